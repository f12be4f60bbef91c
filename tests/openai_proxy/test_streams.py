"""Streams of both APIs: what came of an answer is stored and marked, and the end means that it is stored."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from openai import APIError, OpenAI
from starlette.responses import JSONResponse, Response

from shared_core import InfiniteMemory, Message, SessionPool, StoreError
from shared_core.doors.openai_proxy.answer import NOTED
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.store import Store
from tests.openai_proxy.response_shapes import call_item, named, reasoning_item, response, said_item, spoken_events
from tests.openai_proxy.servers import ModelServer, always, chunk, proxied, served, spoken, stream, until

NAMED = {"x-session-id": "s"}
QUESTION = {"role": "user", "content": "What is the code?"}
WHOLE = response([said_item("The code is 4471.")])


class Api(NamedTuple):
    """What is sent, and what comes back.

    Attributes:
        half: the events of an answer up to "The co".
        seen: what the client has received then.
        end: what stands in the last event of a whole answer.
    """

    path: str
    sent: dict[str, Any]
    half: list[str]
    seen: bytes
    end: str


CHAT = Api(
    "/chat/completions", {"model": "m", "stream": True, "messages": [QUESTION]}, spoken("The code is 4471.")[:3],
    b" co", "[DONE]",
)  # fmt: skip
RESPONSES = Api(
    "/responses", {"model": "m", "stream": True, "input": "What is the code?"}, [*map(named, spoken_events(WHOLE)[:6])],
    b'" co"', "response.completed",
)  # fmt: skip

both = pytest.mark.parametrize("api", [CHAT, RESPONSES], ids=["chat", "responses"])


def stored(store: Store, session: str = "s") -> list[Message]:
    with InfiniteMemory(store, session_id=session) as memory:
        return list(memory.messages())


def texts(store: Store) -> list[str]:
    return [message.content for message in stored(store)]


def interrupted(message: Message) -> Any:
    assert message.payload is not None
    assert message.payload.format == NOTED
    return message.payload.data["interrupted"]


def ask(url: str, api: Api, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}{api.path}", json={**api.sent, **fields}, headers=NAMED)


@contextmanager
def received(url: str, api: Api, end: bytes) -> Iterator[None]:
    """Send the request over a bare connection, which is cut once some bytes have arrived."""
    host, port = url.split("/")[2].split(":")
    data = json.dumps(api.sent).encode()
    head = (
        f"POST /v1{api.path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"X-Session-Id: s\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as opened:
        opened.sendall(head.encode() + data)
        got = b""
        while end not in got:
            part = opened.recv(65536)
            assert part, got
            got += part
        yield


@both
def test_a_client_that_goes_away_leaves_what_it_saw(store: Store, api: Api) -> None:
    go_on = threading.Event()
    with proxied(lambda _: stream([*api.half, None], wait=go_on), store) as (url, _):
        with received(url, api, api.seen):
            pass
        until(lambda: len(texts(store)) == 2)
        go_on.set()
    answer = stored(store)[-1]
    assert (answer.content, interrupted(answer)) == ("The co", "client")


@both
def test_the_end_comes_after_the_answer_is_stored(store: Store, api: Api) -> None:
    with (
        proxied(lambda _: "It is 4471.", store) as (url, _),
        httpx.stream("POST", f"{url}{api.path}", json=api.sent, headers=NAMED) as answer,
    ):
        at_the_end = [texts(store) for line in answer.iter_lines() if line.startswith("data:") and api.end in line]
    assert at_the_end == [["What is the code?", "It is 4471."]]


@both
def test_an_answer_that_cannot_be_stored_is_not_acknowledged(
    store: Store, monkeypatch: pytest.MonkeyPatch, api: Api
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("the disk is full of 'What is the code?'")

    with proxied(lambda _: "", store) as (url, model):
        model.script = lambda _: monkeypatch.setattr(store, "append", fail) or "It is 4471."
        streamed = ask(url, api).text
        assert (api.end in streamed, "could not be stored" in streamed) == (False, True)
        whole = ask(url, api, stream=False)
        assert (whole.status_code, whole.headers["retry-after"]) == (503, "1")
        assert "disk" not in streamed + whole.text


# Chat completions


@pytest.mark.parametrize("end", ["cut", "no finish", "error", "late error"])
def test_an_answer_that_upstream_breaks_off_is_stored_and_marked(store: Store, end: str) -> None:
    error = json.dumps({"error": {"message": "overloaded", "type": "server_error"}})
    events: dict[str, list[str | None]] = {"cut": [None], "no finish": [], "error": [error, "[DONE]"]}
    events["late error"] = [chunk({}, "stop"), error, "[DONE]"]
    with (
        proxied(lambda _: stream([*CHAT.half, *events[end]]), store) as (url, model),
        OpenAI(base_url=url, api_key="k", max_retries=0, default_headers=NAMED) as client,
    ):
        got = []
        with pytest.raises(APIError, match="overloaded" if "error" in end else "broke off"):
            got += [each.choices[0].delta.content for each in client.chat.completions.create(**CHAT.sent)]
        asked, answer = stored(store)
        assert (asked.content, answer.content) == ("What is the code?", "The co")
        assert interrupted(answer) == "upstream"
        # The client goes on with what it saw: no branch is opened, and the mark is not sent.
        model.script = lambda _: "Sorry: 4471."
        history = [QUESTION, {"role": "assistant", "content": "The co"}, {"role": "user", "content": "Go on."}]
        ask(url, CHAT, messages=history)
        assert model.bodies[-1]["messages"] == history
        assert texts(store) == ["What is the code?", "The co", "Go on.", "Sorry: 4471."]


def test_a_whole_answer_is_stored_as_such_if_the_client_goes_before_the_end(store: Store) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    go_on, events = threading.Event(), [chunk({"content": "Wait."}), chunk({"tool_calls": [call]}, "tool_calls")]
    with proxied(lambda _: stream([*events, None, "[DONE]"], wait=go_on), store) as (url, _):
        with received(url, CHAT, b'"finish_reason": "tool_calls"'):
            pass
        until(lambda: len(texts(store)) == 2)
        go_on.set()
    answer = stored(store)[-1]
    assert (answer.content, [one.name for one in answer.tool_calls], answer.payload) == ("Wait.", ["f"], None)


def test_the_report_comes_before_the_end(store: Store) -> None:
    with proxied(lambda _: "It is 4471.", store) as (url, _), OpenAI(base_url=url, api_key="k") as client:
        extra = {"x-memory-report": "true"}
        *_, last = client.chat.completions.create(**CHAT.sent, extra_headers=extra)
    report = last.model_dump()["memory_report"]
    assert [line["kind"] for line in report["lines"] if line["included"]] == ["question"]


def test_a_whole_answer_that_is_no_message_leaves_its_words(store: Store) -> None:
    nameless = {"index": 0, "id": "c", "function": {"arguments": "{}"}}
    events = [chunk({"content": "Wait."}), chunk({"tool_calls": [nameless]}, "tool_calls"), None]
    with proxied(lambda _: stream(events), store) as (url, _):
        ask(url, CHAT)
    answer = stored(store)[-1]
    assert (answer.content, answer.tool_calls, interrupted(answer)) == ("Wait.", (), "upstream")


def test_calls_of_a_broken_stream_are_not_stored(store: Store) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    with proxied(lambda _: stream([chunk({"content": "Wait."}), chunk({"tool_calls": [call]})]), store) as (url, _):
        ask(url, CHAT)
    assert [(message.content, message.tool_calls) for message in stored(store)][1:] == [("Wait.", ())]


def test_a_model_server_that_is_away_or_slow_or_says_nonsense(store: Store) -> None:
    """The client is told which, and nothing but the question is stored."""
    go_on = threading.Event()
    model = ModelServer(lambda _: stream([None], wait=go_on))
    with socket.socket() as taken, served(model.app) as (model_url, _):
        taken.bind(("127.0.0.1", 0))  # it does not listen
        away = Upstream(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", retries=0)
        with served(create_app(SessionPool(store), away)) as (url, _):
            answer = ask(f"{url}/v1", CHAT)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
            assert httpx.get(f"{url}/v1/models").status_code == 502
        slow = Upstream(f"{model_url}/v1", timeout=0.3)
        with served(create_app(SessionPool(store), slow)) as (url, _):
            answer = ask(f"{url}/v1", CHAT, stream=False)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
            streamed = ask(f"{url}/v1", CHAT)
            assert "upstream_timeout" in streamed.text
            go_on.set()
            model.script = lambda _: Response("no JSON", media_type="application/json")
            answer = ask(f"{url}/v1", CHAT, stream=False)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
            nameless = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": "{}"}}]}, "tool_calls")
            model.script = lambda _: stream([nameless, "[DONE]"])
            streamed = ask(f"{url}/v1", CHAT)
            assert "upstream_invalid" in streamed.text
            assert "[DONE]" not in streamed.text
    assert texts(store) == ["What is the code?"]


# Responses


FAILED = {"type": "response.failed", "response": {**WHOLE, "status": "failed", "error": {"message": "overloaded"}}}
ERROR = {"type": "error", "code": "server_error", "message": "overloaded", "param": None, "sequence_number": 9}
UNLINKED = {"type": "function_call", "call_id": {}, "name": "f", "arguments": ""}
BREAKS: dict[str, list[str | None]] = {
    "cut": [None], "no end": [], "only [DONE]": ["[DONE]"], "failed": [named(FAILED)], "error": [named(ERROR)],
    "an error of another kind": [json.dumps({"error": {"message": "overloaded"}})],
}  # fmt: skip


@pytest.mark.parametrize("how", BREAKS)
def test_a_response_that_upstream_breaks_off_is_stored_and_marked(store: Store, how: str) -> None:
    with (
        proxied(lambda _: stream([*RESPONSES.half, *BREAKS[how]]), store) as (url, model),
        OpenAI(base_url=url, api_key="k", max_retries=0, default_headers=NAMED) as client,
    ):
        events: list[Any] = []
        try:
            events += client.responses.create(**RESPONSES.sent)
        except APIError as error:
            assert ("overloaded" if "kind" in how else "broke off") in error.message  # noqa: PT017
        else:
            assert events[-1].type == ("error" if how == "error" else "response.failed")
        asked, answer = stored(store)
        assert (asked.content, answer.content, interrupted(answer)) == ("What is the code?", "The co", "upstream")
        # The client goes on after what it saw, in either way.
        model.script = lambda _: "Sorry: 4471."
        client.responses.create(model="m", input="Go on.", previous_response_id=WHOLE["id"])
        said = [{"type": "message", "role": "assistant", "content": "The co"}]
        assert model.bodies[-1]["input"][1:2] == said
        assert texts(store) == ["What is the code?", "The co", "Go on.", "Sorry: 4471."]


def test_a_response_that_reached_its_limit_is_stored_as_far_as_it_came(store: Store) -> None:
    half_a_call = call_item("f", '{"a', status="incomplete")
    whole = response([said_item("The code", status="incomplete"), half_a_call], "incomplete")
    with proxied(lambda _: stream([*map(named, spoken_events(whole))]), store) as (url, _):
        text = ask(url, RESPONSES).text
    assert text == "".join(map(named, spoken_events(whole)))
    answer = stored(store)[-1]
    assert (answer.content, answer.tool_calls) == ("The code", ())
    assert answer.payload is not None
    assert answer.payload.data == {"ids": [whole["output"][0]["id"]]}


def test_a_response_that_failed_in_one_piece_leaves_its_words(store: Store) -> None:
    for status, words in (("failed", "The co"), ("failed", ""), ("in_progress", "The")):
        whole = response([said_item(words)] if words else [], status)
        with proxied(always(JSONResponse(whole)), store) as (url, _):
            assert ask(url, RESPONSES, stream=False).json() == whole
    asked, answer_ = stored(store)
    assert (asked.content, answer_.content, interrupted(answer_)) == ("What is the code?", "The co", "upstream")


@pytest.mark.parametrize("sent", ["items", "words and a call", "no indexes"])
def test_a_last_event_without_the_output_leaves_what_came_before(store: Store, sent: str) -> None:
    """Some servers and gateways send each item when it is done, and none of them in the last event."""
    whole = response([reasoning_item(), said_item("The code is"), call_item("read", '{"a": 1}'), said_item("4471.")])
    *events, last = spoken_events(whole)
    if sent == "words and a call":
        events = [one for one in events if one["type"] != "response.output_item.done" or "call_id" in one["item"]]
    elif sent == "no indexes":
        events = [{key: one[key] for key in one if "index" not in key} for one in events]
    result = {"type": "function_call_output", "call_id": "call-1", "output": "4471"}
    last_events: list[dict[str, Any] | None] = [{"output": []}, {"output": None}, {}, None]
    with proxied(lambda _: "", store) as (url, model):
        for number, end in enumerate(last_events):
            own = {"id": f"resp_{number}", "status": whole["status"]}
            ends = {"type": last["type"]} if end is None else {**last, "response": {**own, **end}}
            begins = {**events[0], "response": {**events[0]["response"], **own, "status": "in_progress"}}
            given = [named(one) for one in (begins, *events[2:], ends)]
            model.script = always(stream(given))
            assert httpx.post(
                f"{url}/responses", json=RESPONSES.sent, headers={"x-session-id": f"s{number}"}
            ).text == "".join(given)
            with InfiniteMemory(store, session_id=f"s{number}") as memory:
                answer = memory.messages()[-1]
            assert (answer.content, answer.id) == ("The code is\n4471.", f"resp_{number}")
            assert answer.payload is None or "interrupted" not in answer.payload.data
            assert [(call.id, call.arguments) for call in answer.tool_calls] == [("call-1", '{"a": 1}')]
            model.script = lambda _: "Read."
            httpx.post(f"{url}/responses", json={"input": [result], "previous_response_id": f"resp_{number}"})
            assert model.bodies[-1]["input"][-1] == result


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"output": None},
        {"output": [7]},
        {"output": [{"type": []}]},
        {"output": [{"type": "message", "role": 7}]},
        {"output": [UNLINKED]},
    ],
)
def test_what_is_no_response_is_told(store: Store, body: dict[str, Any]) -> None:
    with proxied(lambda _: JSONResponse(body), store) as (url, model):
        answer = ask(url, RESPONSES, stream=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
        model.script = lambda _: stream([named({"type": "response.completed", "response": body})])
        streamed = ask(url, RESPONSES).text
        assert ("upstream_invalid" in streamed, "response.completed" in streamed) == (True, False)
    assert texts(store) == ["What is the code?"]
