"""The Responses API through the server: OpenAI's SDK and LangChain, with streams, tools and ids of responses."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from openai import BadRequestError, NotFoundError, OpenAI, RateLimitError
from pydantic import SecretStr
from starlette.responses import JSONResponse, PlainTextResponse, Response

from shared_core import InfiniteMemory, SessionPool
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.store import Store
from tests.openai_proxy.response_shapes import (
    call_item,
    named,
    reasoning_item,
    response,
    said_item,
    spoken_events,
)
from tests.openai_proxy.servers import ModelServer, always, proxied, served, stream

TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
SESSION = {"x-session-id": "s"}
ARGUMENTS = '{"city": "Porto"}'
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}


def model(body: dict[str, Any]) -> Response | str:
    """Call the tool if there is one; then say what it returned, or the number of items."""
    newest = body["input"][-1]
    if newest.get("type") == "function_call_output":
        return f"It is {newest['output']}."
    if "tools" not in body:
        return f"I see {len(body['input'])}."
    whole = response([reasoning_item("secret"), call_item("weather", ARGUMENTS)])
    return stream([*map(named, spoken_events(whole))]) if body.get("stream") else JSONResponse(whole)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, ModelServer]]:
    with proxied(model) as both:
        yield both


@pytest.fixture
def client(servers: tuple[str, ModelServer]) -> Iterator[OpenAI]:
    with OpenAI(base_url=servers[0], api_key="a key", max_retries=0) as opened:
        yield opened


def ask(client: OpenAI, given: Any, *, streamed: bool = False, **fields: Any) -> Any:
    """Return the response, put together by the SDK."""
    if not streamed:
        return client.responses.create(model="m", input=given, **fields)
    with client.responses.stream(model="m", input=given, **fields) as events:
        return events.get_final_response()


def shown(items: list[Any]) -> list[Any]:
    """Return what items say: role and text, call, or output."""
    said = []
    for item in items:
        kind = item.get("type", "message")
        said.append((item["role"], item["content"]) if kind == "message" else item.get("output", kind))
    return said


def texts(store: Store, session: str, user: str | None = None) -> list[str]:
    with InfiniteMemory(store, session_id=session, user_id=user) as memory:
        return [message.content for message in memory.messages()]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdk_sends_its_history_and_calls_tools(
    client: OpenAI, servers: tuple[str, ModelServer], streamed: bool
) -> None:
    history: list[Any] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": f"Hi {streamed}"}]
    first = ask(client, history, streamed=streamed)
    assert first.output_text == "I see 2."
    history += [item.to_dict() for item in first.output]
    history.append({"role": "user", "content": [{"type": "input_text", "text": "How is the weather?"}]})
    called = ask(client, history, streamed=streamed, tools=[TOOL])
    assert [item.type for item in called.output] == ["reasoning", "function_call"]
    assert called.output[1].arguments == ARGUMENTS
    history += [item.to_dict() for item in called.output]
    history.append({"type": "function_call_output", "call_id": "call-1", "output": "sunny"})
    assert ask(client, history, streamed=streamed, tools=[TOOL]).output_text == "It is sunny."
    assert servers[1].bodies[-1]["input"] == history


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdk_sends_what_is_new_after_a_response(
    client: OpenAI, servers: tuple[str, ModelServer], streamed: bool
) -> None:
    first = ask(client, f"Hello {streamed}", streamed=streamed, instructions="Be brief.")
    called = ask(client, "How is it?", streamed=streamed, previous_response_id=first.id, tools=[TOOL])
    output = {"type": "function_call_output", "call_id": "call-1", "output": "sunny"}
    last = ask(client, [output], streamed=streamed, previous_response_id=called.id, tools=[TOOL])
    assert last.output_text == "It is sunny."
    sent = servers[1].bodies[-1]
    call = {"type": "function_call", "call_id": "call-1", "name": "weather", "arguments": ARGUMENTS}
    assert shown(sent["input"][:3]) == [
        ("user", f"Hello {streamed}"),
        ("assistant", "I see 1."),
        ("user", "How is it?"),
    ]
    assert sent["input"][3]["encrypted_content"] == "secret"
    assert sent["input"][4:] == [call, output]
    assert sent.keys() == {"model", "input", "tools"} | ({"stream"} if streamed else set())
    assert servers[1].bodies[-3]["instructions"] == "Be brief."
    # What was thought is for the turn it was thought in.
    ask(client, "Thanks", previous_response_id=last.id)
    assert [item["type"] for item in servers[1].bodies[-1]["input"]].count("reasoning") == 0


def test_a_stream_arrives_byte_by_byte_as_without_the_server() -> None:
    whole = response([said_item("Héllo"), {"type": "x_item", "id": "x"}])
    events = [*map(named, spoken_events(whole)), ": ping\n\n", "[DONE]"]
    events[2:2] = ["not JSON", 'event: x.own\ndata: {"a": "ü"}\n\n']
    body = {"model": "m", "stream": True, "input": "Hello?"}
    with proxied(lambda _: stream(events)) as (url, model_server):
        through = httpx.post(f"{url}/responses", json=body)
        sent = [{"type": "message", "role": "user", "content": "Hello?"}]
        assert model_server.bodies == [{**body, "input": sent}]
        direct = "".join(each if each.endswith("\n\n") else f"data: {each}\n\n" for each in events)
        assert through.content == direct.encode()
        off = httpx.post(f"{url}/responses", json=body, headers={"x-memory": "off"})
        assert (model_server.bodies[-1], off.content) == (body, direct.encode())
        assert (through.headers["content-type"], off.headers["x-memory"]) == ("text/event-stream; charset=utf-8", "off")


def test_an_older_response_is_gone_on_after_on_a_branch(store: Store) -> None:
    with proxied(model, store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        first = ask(client, "Where to?")
        ask(client, "To Porto", previous_response_id=first.id)
        other = ask(client, "To Faro", previous_response_id=first.id)
        assert shown(model_server.bodies[-1]["input"])[1:] == [("assistant", "I see 1."), ("user", "To Faro")]
        ask(client, "By train", previous_response_id=other.id)
        assert "Porto" not in json.dumps(model_server.bodies[-1]["input"])
        # A request that is sent again, because its response was lost, opens no branch.
        ask(client, "By train", previous_response_id=other.id)
    (info,) = store.overview(None)
    assert info.branches == 3
    assert texts(store, info.session_id) == ["Where to?", "I see 1.", "To Faro", "I see 3.", "By train", "I see 5."]


def test_a_response_of_another_user_or_of_none_is_refused(store: Store) -> None:
    with proxied(model, store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        own = ask(client, "My code is 4471", user="ann")
        off = ask(client, [{"role": "user", "content": "Hi"}], extra_headers={"x-memory": "off"})
        unstored = ask(client, "Hello", store=False)
        sent = len(model_server.bodies)
        for previous, fields in (
            (own.id, {"user": "ben"}),
            (own.id, {}),
            (own.id, {"user": "ann", "extra_headers": {"x-session-id": "other"}}),
            (off.id, {}),
            (unstored.id, {}),
            ("resp_unknown", {}),
        ):
            with pytest.raises(BadRequestError) as refused:
                ask(client, "What is my code?", previous_response_id=previous, **fields)
            assert (refused.value.code, "4471" in refused.value.message) == ("previous_response_not_found", False)
        assert len(model_server.bodies) == sent
        named = {"x-session-id": store.overview("ann")[0].session_id}
        ask(client, "And now?", previous_response_id=own.id, user="ann", extra_headers=named)
        assert "4471" in json.dumps(model_server.bodies[-1]["input"])


@pytest.mark.parametrize("fields", [{"conversation": "trip"}, {"conversation": {"id": "trip"}}, {}])
def test_a_named_conversation_takes_only_what_is_new(store: Store, fields: dict[str, Any]) -> None:
    headers = {} if fields else {"x-session-id": "trip"}
    with proxied(model, store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        for text in ("My code is 4471", "What is my code?"):
            ask(client, text, extra_body=fields, extra_headers=headers)
        said = [("user", "My code is 4471"), ("assistant", "I see 1."), ("user", "What is my code?")]
        assert shown(model_server.bodies[-1]["input"]) == said
        assert model_server.bodies[-1].keys() == {"model", "input"}
        for user in ("ann", "ben"):
            ask(client, "Hi", user=user, extra_body=fields, extra_headers=headers)
            assert shown(model_server.bodies[-1]["input"]) == [("user", "Hi")]
        # The other protocol goes on in the same conversation.
        chat = {"messages": [{"role": "user", "content": "And by chat?"}], **fields}
        httpx.post(f"{url}/chat/completions", json=chat, headers=headers)
        assert model_server.texts()[0] == "My code is 4471"


def test_a_history_without_a_name_goes_on_by_its_beginning(store: Store) -> None:
    """Two that begin alike are two, though answers are stored under the ids of their responses."""
    with proxied(lambda _: "Yes.", store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        histories: list[list[Any]] = []
        for number in range(2):
            history: list[Any] = [{"role": "user", "content": "Hello"}]
            for text in (f"My code is {number}{number}", "What is my code?"):
                history += [item.to_dict() for item in ask(client, history).output]
                history.append({"role": "user", "content": text})
            histories.append(history)
        for history in histories:
            ask(client, history)
            assert model_server.bodies[-1]["input"] == history
    assert [(info.messages, info.branches) for info in store.overview(None)] == [(6, 1), (6, 1)]


def test_what_the_model_does_itself_is_passed_on_and_not_sent_again(store: Store) -> None:
    search = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    picture = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "AAAA"}
    cut_off = call_item("weather", '{"ci', status="incomplete")
    answers = [[reasoning_item(), search, said_item("Found.")], [picture], [said_item("Wait"), cut_off]]
    with proxied(lambda _: "", store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        previous = None
        for number, output in enumerate(answers):
            whole = response(output, "incomplete" if number == 2 else "completed")
            model_server.script = always(JSONResponse(whole))
            given = ask(client, f"Question {number}", previous_response_id=previous)
            assert given.to_dict()["output"] == output
            previous = given.id
        ask(client, "Last", previous_response_id=previous)
    assert shown(model_server.bodies[-1]["input"]) == [
        ("user", "Question 0"), ("assistant", "Found."), ("user", "Question 1"), ("user", "Question 2"),
        ("assistant", "Wait"), ("user", "Last"),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["computer", "approval"])
def test_a_tool_of_the_api_s_own_is_used_over_several_responses(store: Store, kind: str) -> None:
    screen = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    steps: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for number in range(3):
        if kind == "computer":
            call = {"type": "computer_call", "action": {"type": "wait"}, "status": "completed", "id": f"cu_{number}"}
            output = {"type": "computer_call_output", "output": screen, "call_id": f"c{number}"}
            steps.append(({**call, "call_id": f"c{number}", "pending_safety_checks": []}, output))
        else:
            own = {"id": f"mcpr_{number}", "name": "f", "server_label": "s", "arguments": "{}"}
            answer = {"approval_request_id": f"mcpr_{number}", "approve": True}
            steps.append(({"type": "mcp_approval_request", **own}, {"type": "mcp_approval_response", **answer}))
    expected: list[Any] = [{"type": "message", "role": "user", "content": "Book it"}]
    with proxied(lambda _: "Booked.", store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        given: Any = "Book it"
        script, previous = model_server.script, None
        for call, output in steps:
            said = [reasoning_item(), call]
            model_server.script = always(JSONResponse(response(said)))
            previous = ask(client, given, previous_response_id=previous).id
            assert model_server.bodies[-1]["input"] == expected
            expected += [*said, output]
            given = [output]
        model_server.script = script
        last = ask(client, given, previous_response_id=previous)
        assert (last.output_text, model_server.bodies[-1]["input"]) == ("Booked.", expected)
        ask(client, "Thanks", previous_response_id=last.id)
        assert shown(model_server.bodies[-1]["input"])[-2:] == [("assistant", "Booked."), ("user", "Thanks")]


def test_a_result_without_its_call_is_refused_after_a_response(store: Store) -> None:
    """The prompt would hold no such result, and the model would answer something else."""
    result = {"type": "function_call_output", "call_id": "call-1", "output": "sunny"}
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    with proxied(model, store) as (url, model_server), OpenAI(base_url=url, api_key="k") as client:
        first = ask(client, "Hello")
        for given, name in ((result, "call-1"), (approval, "mcpr_1")):
            with pytest.raises(BadRequestError, match=f"'{name}'") as refused:
                ask(client, [given], previous_response_id=first.id)
            assert refused.value.code == "tool_call_not_found"
        assert (len(model_server.bodies), store.overview(None)[0].messages) == (1, 2)
        # The call may come with its result, or have been made some messages before, on another branch's stem.
        call = {"type": "function_call", "call_id": "call-1", "name": "weather", "arguments": ARGUMENTS}
        told = ask(client, [call, result], previous_response_id=first.id)
        ask(client, "And now?", previous_response_id=told.id)
        other = ask(client, "And here?", previous_response_id=told.id)
        asked = ask(client, [result, {"role": "user", "content": "Again?"}], previous_response_id=other.id)
        assert (asked.output_text[:5], store.overview(None)[0].branches) == ("I see", 2)


def test_errors_of_upstream_reach_the_client(store: Store) -> None:
    limited = {"error": {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}}
    no_model = {"error": {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"}}
    with proxied(lambda _: "", store) as (url, server), OpenAI(base_url=url, api_key="k", max_retries=0) as client:
        server.script = lambda _: JSONResponse(limited, 429, {"retry-after": "7"})
        with pytest.raises(RateLimitError, match="slow down") as refused:
            ask(client, "Hi", stream=True)
        assert refused.value.response.headers["retry-after"] == "7"
        server.script = lambda _: JSONResponse(no_model, 404)
        with pytest.raises(NotFoundError, match="no such model"):
            ask(client, "Hi")
        for answer in (JSONResponse({"detail": "Not Found"}, 404), PlainTextResponse("404 page not found", 404)):
            server.script = always(answer)
            with pytest.raises(NotFoundError, match="/v1/chat/completions") as absent:
                ask(client, "Hi")
            assert absent.value.code == "upstream_without_responses"
    assert store.overview(None) == []


@pytest.mark.parametrize("by_id", [False, True])
def test_langchain_chats_streams_and_calls_tools(servers: tuple[str, ModelServer], by_id: bool) -> None:
    llm = ChatOpenAI(
        base_url=servers[0], api_key=SecretStr("k"), model="m", max_retries=0, use_responses_api=True,
        use_previous_response_id=by_id,
    )  # fmt: skip
    question = f"Hello from a chain {by_id}"
    first = llm.invoke(question)
    assert first.text == "I see 1."
    pieces = list(llm.stream([HumanMessage(question), first, HumanMessage("And in pieces?")]))
    assert "".join(piece.text for piece in pieces) == "I see 3."
    asked, answer, again = (item["content"] for item in servers[1].bodies[-1]["input"])
    assert (asked, "I see 1." in str(answer), again) == (question, True, "And in pieces?")
    called = llm.bind_tools([TOOL]).invoke([HumanMessage("How is it out there?")])
    assert isinstance(called, AIMessage)
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("weather", {"city": "Porto"})]


def test_the_report_comes_before_the_end(store: Store) -> None:
    with proxied(lambda _: "It is 4471.", store) as (url, _), OpenAI(base_url=url, api_key="k") as client:
        extra = {"x-memory-report": "true"}
        with client.responses.stream(model="m", input="What is the code?", extra_headers=extra) as events:
            *_, last, end = events
            assert events.get_final_response().output_text == "It is 4471."
    assert end.type == "response.completed"
    report = last.model_dump()["memory_report"]
    assert [line["kind"] for line in report["lines"] if line["included"]] == ["question"]


def test_echo_needs_no_model(store: Store) -> None:
    app = create_app(SessionPool(store), Upstream("http://echo.invalid/v1", transport=EchoTransport()))
    with served(app) as (url, _), OpenAI(base_url=f"{url}/v1", api_key="k") as client:
        first = ask(client, "My locker code is 4471.", instructions="Be brief.")
        assert first.output_text == "Noted. I was shown 2 messages."
        for streamed in (True, False):
            asked = ask(client, "What is my locker code?", previous_response_id=first.id, streamed=streamed)
            assert asked.output_text == "You said: My locker code is 4471."
        question = {"role": "user", "content": "Hello"}
        kinds = ("item_reference", "web_search_call", "compaction", "reasoning", "x_unknown")
        given: list[Any] = [{"type": kind, "id": "x", "summary": []} for kind in kinds]
        for items in ([*given, question], [question, *given, question], given[:1]):
            asked = ask(client, items, extra_headers={"x-memory": "off"})
            number = items.count(question)
            assert asked.output_text.startswith(f"Noted. I was shown {number}" if number else "I was shown 0 messages")


@pytest.mark.parametrize("given", [{"prompt": {"id": "pmpt_1"}}, {"input": []}, {"input": [{"id": "msg_1"}]}])
def test_what_asks_nothing_goes_on_as_it_is(store: Store, given: dict[str, Any]) -> None:
    developer = {"input": [{"role": "developer", "content": "Say something new"}]}
    with proxied(lambda _: "New.", store) as (url, model_server):
        for body in ({"model": "m", **given}, {"model": "m", **developer}):
            answer = httpx.post(f"{url}/responses", json=body)
            assert (answer.status_code, answer.headers["x-memory"]) == (200, "off")
            assert model_server.bodies[-1] == body
        assert store.overview(None) == []
        # In a conversation, it is answered there.
        httpx.post(f"{url}/responses", json={"input": "Hi"}, headers=SESSION)
        assert httpx.post(f"{url}/responses", json=given, headers=SESSION).status_code == 200
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "New."}]
    assert model_server.bodies[-1]["input"] == [*({"type": "message", **one} for one in said), *given.get("input", ())]
    assert texts(store, "s") == ["Hi", "New.", "New."]


def test_a_call_in_a_reference_keeps_its_result(store: Store) -> None:
    """Some clients send the ids of items that the model's server has stored, instead of the items."""
    history = [
        {"role": "user", "content": "How is it?"},
        {"type": "item_reference", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "call-1", "output": "sunny"},
    ]
    with proxied(lambda _: "Sunny.", store) as (url, model_server):
        httpx.post(f"{url}/responses", json={"input": history}, headers=SESSION)
        assert model_server.bodies[-1]["input"] == history
    assert texts(store, "s") == ["How is it?", "Sunny."]
