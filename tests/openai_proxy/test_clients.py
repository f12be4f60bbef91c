"""Programs that know nothing of the memory: OpenAI's SDK, LangChain's model and curl, through the server to a model."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from openai import APIStatusError, NotFoundError, OpenAI, RateLimitError
from pydantic import SecretStr
from starlette.responses import JSONResponse, Response

from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, chunk, completion, proxied, stream

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "call-1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}


def model(body: dict[str, Any]) -> Response | str:
    """Call the tool if there is one; then say what it returned, or the number of messages."""
    newest = body["messages"][-1]
    if newest["role"] == "tool":
        return f"It is {newest['content']}."
    if "tools" not in body:
        return f"I see {len(body['messages'])}."
    if not body.get("stream"):
        return JSONResponse(completion({"content": None, "tool_calls": [CALL]}, "tool_calls"))
    begun = {"index": 0, **CALL, "function": {"name": "weather", "arguments": ""}}
    more = [{"index": 0, "function": {"arguments": part}} for part in ('{"city"', ': "Porto"}')]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [begun]},
        *({"tool_calls": [one]} for one in more),
    ]
    return stream([*(chunk(delta) for delta in deltas), chunk({}, "tool_calls"), "[DONE]"])


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, ModelServer]]:
    with proxied(model) as both:
        yield both


@pytest.fixture
def client(servers: tuple[str, ModelServer]) -> Iterator[OpenAI]:
    with OpenAI(base_url=servers[0], api_key="a key", max_retries=0) as opened:
        yield opened


def said(client: OpenAI, messages: list[Any], *, streamed: bool, **fields: Any) -> Any:
    """Return the message that answers, put together by the SDK."""
    if not streamed:
        return client.chat.completions.create(model="m", messages=messages, **fields).choices[0].message
    with client.chat.completions.stream(model="m", messages=messages, **fields) as events:
        return events.get_final_completion().choices[0].message


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdk_chats_and_calls_tools(client: OpenAI, servers: tuple[str, ModelServer], streamed: bool) -> None:
    history: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"Hi {streamed}"}]
    first = said(client, history, streamed=streamed)
    assert first.content == "I see 2."
    history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "How is the weather?"}]
    called = said(client, history, streamed=streamed, tools=[TOOL])
    assert [call.function.arguments for call in called.tool_calls] == ['{"city": "Porto"}']
    history += [called.model_dump(exclude_none=True, include={"role", "tool_calls"})]
    history += [{"role": "tool", "tool_call_id": "call-1", "content": "sunny"}]
    assert said(client, history, streamed=streamed, tools=[TOOL]).content == "It is sunny."
    sent = servers[1].bodies[-1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user", "assistant", "tool"]
    assert sent == history


def test_what_the_client_sends_goes_on_unchanged(client: OpenAI, servers: tuple[str, ModelServer]) -> None:
    content = [{"type": "text", "text": "Which boat?", "x_part": 1}, PICTURE]
    message = {"role": "user", "content": content, "name": "ann", "x_field": {"a": [1.5, None]}}
    fields = {"seed": 7, "temperature": 0.25, "stop": ["\n"], "x_unknown": {"deep": [True]}, "user": "ann-1"}
    said(client, [message], streamed=False, extra_body=fields)
    assert servers[1].bodies[-1] == {"model": "m", "messages": [message], **fields}
    assert servers[1].headers[-1]["authorization"] == "Bearer a key"
    assert servers[1].headers[-1]["x-stainless-lang"] == "python"


def test_a_stream_arrives_byte_by_byte_as_without_the_server() -> None:
    usage = json.dumps({"id": "c", "choices": [], "usage": {"total_tokens": 3}, "x_own": "ü"}, ensure_ascii=False)
    others = [chunk({"content": "other answer"}, index=1), chunk({"reasoning_content": "hm"}), "not JSON"]
    events = [chunk({"content": "Hé"}), *others, chunk({"content": "llo"}, "stop"), usage, "[DONE]"]
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello?"}]}
    with proxied(lambda _: stream(events)) as (url, model_server):
        through = httpx.post(f"{url}/chat/completions", json=body)
        assert model_server.bodies == [body]
    assert through.content == "".join(f"data: {each}\n\n" for each in events).encode()
    assert through.headers["content-type"].startswith("text/event-stream")


def test_models_pass_through(client: OpenAI, servers: tuple[str, ModelServer]) -> None:
    (only,) = client.models.list().data
    assert only.model_dump()["new_field"] == 1
    with pytest.raises(NotFoundError, match="no such model") as caught:
        client.models.retrieve("some/other model")
    assert caught.value.response.headers["x-request-id"] == "r-1"
    assert servers[1].paths[-1] == "/v1/models/some/other model"


def test_errors_pass_with_their_status_and_store_no_answer(store: Store) -> None:
    failing = iter([(429, {"retry-after": "7"}), (500, {}), (418, {})])

    def script(body: dict[str, Any]) -> Response | str:
        status, headers = next(failing, (200, {}))
        told = {"error": {"message": f"error {status}", "type": "t", "param": None, "code": "c"}}
        return JSONResponse(told, status, headers) if status != 200 else "At last."

    with proxied(script, store) as (url, _), OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        question = [{"role": "user", "content": "Are you there?"}]
        with pytest.raises(RateLimitError, match="error 429") as limited:
            said(client, question, streamed=True)
        assert limited.value.response.headers["retry-after"] == "7"
        for status in (500, 418):
            with pytest.raises(APIStatusError, match=f"error {status}") as failed:
                said(client, question, streamed=False)
            assert (failed.value.status_code, failed.value.code) == (status, "c")
        assert store.overview(None) == []
        assert said(client, question, streamed=True).content == "At last."
        assert [info.messages for info in store.overview(None)] == [2]


def test_langchain_chats_streams_and_calls_tools(servers: tuple[str, ModelServer]) -> None:
    llm = ChatOpenAI(base_url=servers[0], api_key=SecretStr("k"), model="m", max_retries=0)
    assert llm.invoke("Hello from a chain").content == "I see 1."
    assert "".join(str(piece.content) for piece in llm.stream("Hello in pieces")) == "I see 1."
    called = llm.bind_tools([TOOL]).invoke([HumanMessage("How is it out there?")])
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("weather", {"city": "Porto"})]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("streamed", [False, True])
def test_curl(servers: tuple[str, ModelServer], streamed: bool) -> None:
    body = json.dumps({"model": "m", "stream": streamed, "messages": [{"role": "user", "content": "By hand"}]})
    command = ["curl", "-sSN", "--noproxy", "*", "-H", "Content-Type: application/json", "-d", body]
    done = subprocess.run([*command, f"{servers[0]}/chat/completions"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    if streamed:
        assert done.stdout.endswith("data: [DONE]\n\n")
    else:
        assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "I see 1."


@pytest.mark.parametrize("named", [False, True])
def test_a_fact_of_the_third_turn_is_there_at_the_three_hundredth(named: bool) -> None:
    """The client sends its whole history, which is many times as large as the window."""
    history: list[Any] = []
    for turn in range(1, 301):
        told = "My locker code is 4471." if turn == 3 else f"Small talk number {turn} about tea, rain and trains. " * 5
        history += [{"role": "user", "content": told}, {"role": "assistant", "content": f"Noted, turn {turn}."}]
    history.append({"role": "user", "content": "What is my locker code?"})
    with proxied(lambda _: "4471.") as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        headers = {"x-session-id": "long"} if named else {}
        raw = client.chat.completions.with_raw_response.create(
            model="m", messages=history, extra_headers={**headers, "x-memory-report": "1"}
        )
    sent = model_server.texts()
    assert "My locker code is 4471." in "\n".join(sent)
    assert len(sent) < 100
    report = json.loads(raw.text)["memory_report"]
    assert report["total_tokens"] <= report["budget"] == 3596
    assert raw.headers["x-memory-session"].startswith("long" if named else "chat-")
