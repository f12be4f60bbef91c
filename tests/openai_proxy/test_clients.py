"""Programs that know nothing of the memory: OpenAI's SDK, LangChain's model and curl, through the server to a model."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import APIStatusError, NotFoundError, OpenAI, RateLimitError
from pydantic import SecretStr
from starlette.responses import JSONResponse, Response

from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, chunk, proxied, stream
from tests.openai_proxy.weather_model import FACT, TOOL, small_talk, weather_model

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, ModelServer]]:
    with proxied(weather_model) as both:
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
    with_tools = llm.bind_tools([TOOL])
    called = with_tools.invoke([HumanMessage("How is it out there?")])
    pieces = list(with_tools.stream([HumanMessage("How is it out there, in pieces?")]))
    for calls in (called.tool_calls, sum(pieces[1:], pieces[0]).tool_calls):
        assert [(call["name"], call["args"]) for call in calls] == [("weather", {"city": "Porto"})]
    asked = [HumanMessage("How is it out there?"), called, ToolMessage("sunny", tool_call_id="call-1")]
    assert with_tools.invoke(asked).content == "It is sunny."


# A fact of the third turn, asked for in the three hundredth: the whole history is many times as large as the window


@pytest.fixture(scope="module")
def history() -> list[dict[str, Any]]:
    *told, question = small_talk(300)
    turns = [({"role": "user", "content": one}, {"role": "assistant", "content": "Noted."}) for one in told]
    return [*itertools.chain(*turns), {"role": "user", "content": question}]


@pytest.mark.parametrize("named", [False, True])
def test_the_sdk_gets_a_fact_of_the_third_turn(history: list[Any], named: bool) -> None:
    with proxied(weather_model) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        headers = {"x-session-id": "long"} if named else {}
        raw = client.chat.completions.with_raw_response.create(
            model="m", messages=history, extra_headers={**headers, "x-memory-report": "1"}
        )
    assert raw.parse().choices[0].message.content == "4471."
    sent = model_server.texts()
    assert FACT in "\n".join(sent)
    assert len(sent) < 100
    report = json.loads(raw.text)["memory_report"]
    assert report["total_tokens"] <= report["budget"] == 3596
    assert raw.headers["x-memory-session"].startswith("long" if named else "chat-")
