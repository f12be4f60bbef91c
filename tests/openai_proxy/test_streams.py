"""Streams that break off: what came of an answer is stored and marked, and `[DONE]` means that it is stored."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import APIError, OpenAI
from starlette.responses import Response

from shared_core import InfiniteMemory, Message, SessionPool, StoreError
from shared_core.openai_proxy.answer import INTERRUPTED
from shared_core.openai_proxy.app import create_app
from shared_core.openai_proxy.upstream import Upstream
from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, chunk, completion, proxied, served, spoken, stream, until

HALF = spoken("The code is 4471.")[:3]
"""The events of an answer up to "The co"."""

QUESTION = {"role": "user", "content": "What is the code?"}


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": list(messages) or [QUESTION], **fields}


def stored(store: Store, session: str = "s") -> list[Message]:
    with InfiniteMemory(store, session_id=session) as memory:
        return list(memory.messages())


def texts(store: Store, session: str = "s") -> list[str]:
    return [message.content for message in stored(store, session)]


@contextmanager
def connected(url: str, sent: dict[str, Any], *, session: str = "s") -> Iterator[socket.socket]:
    """Send a request over a bare connection, which the caller may cut."""
    host, port = url.split("/")[2].split(":")
    data = json.dumps(sent).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"X-Session-Id: {session}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as opened:
        opened.sendall(head.encode() + data)
        yield opened


def received(opened: socket.socket, end: bytes) -> bytes:
    """Return what arrives up to some bytes."""
    got = b""
    while end not in got:
        part = opened.recv(65536)
        assert part, got
        got += part
    return got


@pytest.mark.parametrize("end", ["cut", "no finish", "error"])
def test_an_answer_that_upstream_breaks_off_is_stored_and_marked(store: Store, end: str) -> None:
    error = json.dumps({"error": {"message": "overloaded", "type": "server_error"}})
    events: dict[str, list[str | None]] = {"cut": [None], "no finish": [], "error": [error, "[DONE]"]}
    with (
        proxied(lambda _: stream([*HALF, *events[end]]), store) as (url, model),
        OpenAI(base_url=url, api_key="k", max_retries=0, default_headers={"x-session-id": "s"}) as client,
    ):
        got = []
        with pytest.raises(APIError, match="overloaded" if end == "error" else "broke off"):
            got += [each.choices[0].delta.content for each in client.chat.completions.create(**body())]
        asked, answer = stored(store)
        assert (asked.content, answer.content) == ("What is the code?", "The co")
        assert answer.payload is not None
        assert (answer.payload.format, answer.payload.data) == (INTERRUPTED, {"interrupted": "upstream"})
        # The client goes on with what it saw: no branch is opened, and the mark is not sent.
        model.script = lambda _: "Sorry: 4471."
        history = [QUESTION, {"role": "assistant", "content": "The co"}, {"role": "user", "content": "Go on."}]
        httpx.post(f"{url}/chat/completions", json=body(*history), headers={"x-session-id": "s"})
        assert model.bodies[-1]["messages"] == history
        assert texts(store) == ["What is the code?", "The co", "Go on.", "Sorry: 4471."]


def test_a_client_that_goes_away_leaves_what_it_saw_and_upstream_is_told(store: Store) -> None:
    go_on = threading.Event()
    with proxied(lambda _: stream([*HALF, None, "[DONE]"], wait=go_on), store) as (url, _):
        with connected(url, body()) as opened:
            received(opened, b" co")
        until(lambda: len(texts(store)) == 2)
        answer = stored(store)[-1]
        assert answer.content == "The co"
        assert answer.payload is not None
        assert answer.payload.data == {"interrupted": "client"}
        go_on.set()


def test_a_whole_answer_is_stored_as_such_if_the_client_goes_before_the_end(store: Store) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    go_on, events = threading.Event(), [chunk({"content": "Wait."}), chunk({"tool_calls": [call]}, "tool_calls")]
    with proxied(lambda _: stream([*events, None, "[DONE]"], wait=go_on), store) as (url, _):
        with connected(url, body()) as opened:
            received(opened, b'"finish_reason": "tool_calls"')
        until(lambda: len(texts(store)) == 2)
        go_on.set()
    answer = stored(store)[-1]
    assert (answer.content, [one.name for one in answer.tool_calls], answer.payload) == ("Wait.", ["f"], None)


def test_a_whole_answer_that_is_no_message_leaves_its_words(store: Store) -> None:
    nameless = {"index": 0, "id": "c", "function": {"arguments": "{}"}}
    events = [chunk({"content": "Wait."}), chunk({"tool_calls": [nameless]}, "tool_calls"), None]
    with proxied(lambda _: stream(events), store) as (url, _):
        httpx.post(f"{url}/chat/completions", json=body(), headers={"x-session-id": "s"})
    answer = stored(store)[-1]
    assert (answer.content, answer.tool_calls) == ("Wait.", ())
    assert answer.payload is not None
    assert answer.payload.data == {"interrupted": "upstream"}


def test_a_client_that_goes_away_before_a_whole_answer_stores_none(store: Store) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def script(_: dict[str, Any]) -> Any:
        arrived.set()
        return stream([None, json.dumps(completion({"content": "unseen"}))], wait=go_on)

    with proxied(script, store) as (url, model):
        with connected(url, body(stream=False)):
            assert arrived.wait(20)
        go_on.set()
        model.script = lambda _: "seen"
        httpx.post(f"{url}/chat/completions", json=body(stream=False), headers={"x-session-id": "s"})
        assert texts(store) == ["What is the code?", "seen"]


def test_done_comes_after_the_answer_is_stored(store: Store) -> None:
    sent: Any = {"json": body(), "headers": {"x-session-id": "s"}}
    with (
        proxied(lambda _: stream([*spoken("It is 4471."), "[DONE]"]), store) as (url, _),
        httpx.stream("POST", f"{url}/chat/completions", **sent) as response,
    ):
        at_the_end = [texts(store) for line in response.iter_lines() if line == "data: [DONE]"]
    assert at_the_end == [["What is the code?", "It is 4471."]]


def test_an_answer_that_cannot_be_stored_is_not_acknowledged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("the disk is full of 'What is the code?'")

    with proxied(lambda _: "", store) as (url, model):
        headers = {"x-session-id": "s"}
        model.script = lambda _: monkeypatch.setattr(store, "append", fail) or "It is 4471."
        streamed = httpx.post(f"{url}/chat/completions", json=body(), headers=headers).text
        assert "[DONE]" not in streamed
        assert "could not be stored" in streamed
        whole = httpx.post(f"{url}/chat/completions", json=body(stream=False), headers=headers)
        assert (whole.status_code, whole.headers["retry-after"]) == (503, "1")
        assert "disk" not in streamed + whole.text


def test_a_server_that_stops_stores_what_came_of_its_answers(store: Store) -> None:
    """Requests that end in time end as always; the others are broken off."""
    go_on = threading.Event()
    model = ModelServer(lambda _: stream([*HALF, None, "[DONE]"], wait=go_on))
    with served(model.app) as (model_url, _):
        app = create_app(SessionPool(store), Upstream(f"{model_url}/v1"))
        with served(app, grace=1) as (url, server), connected(url, body()) as opened:
            received(opened, b" co")
            model.script = lambda _: stream([*spoken("In time."), "[DONE]"])
            with connected(url, body(), session="quick") as other:
                server.should_exit = True
                assert b"[DONE]" in received(other, b"[DONE]")
            until(lambda: len(texts(store)) == 2)
        go_on.set()
    assert texts(store) == ["What is the code?", "The co"]
    assert texts(store, "quick") == ["What is the code?", "In time."]


def test_the_report_comes_before_the_end(store: Store) -> None:
    with proxied(lambda _: "It is 4471.", store) as (url, _), OpenAI(base_url=url, api_key="k") as client:
        extra = {"x-memory-report": "true"}
        *_, last = client.chat.completions.create(**body(), extra_headers=extra)
    report = last.model_dump()["memory_report"]
    assert [line["kind"] for line in report["lines"] if line["included"]] == ["question"]


def test_calls_of_a_broken_stream_are_not_stored(store: Store) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    with proxied(lambda _: stream([chunk({"content": "Wait."}), chunk({"tool_calls": [call]})]), store) as (url, _):
        httpx.post(f"{url}/chat/completions", json=body(), headers={"x-session-id": "s"})
    assert [(message.content, message.tool_calls) for message in stored(store)][1:] == [("Wait.", ())]


def test_a_model_server_that_is_away_or_slow_or_says_nonsense(store: Store) -> None:
    """The client is told which, and nothing but the question is stored."""
    go_on, named = threading.Event(), {"x-session-id": "s"}
    model = ModelServer(lambda _: stream([None], wait=go_on))
    with socket.socket() as taken, served(model.app) as (model_url, _):
        taken.bind(("127.0.0.1", 0))  # it does not listen
        away = Upstream(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", retries=0)
        with served(create_app(SessionPool(store), away)) as (url, _):
            answer = httpx.post(f"{url}/v1/chat/completions", json=body(), headers=named)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
            assert httpx.get(f"{url}/v1/models").status_code == 502
        slow = Upstream(f"{model_url}/v1", timeout=0.3)
        with served(create_app(SessionPool(store), slow)) as (url, _):
            answer = httpx.post(f"{url}/v1/chat/completions", json=body(stream=False), headers=named)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
            streamed = httpx.post(f"{url}/v1/chat/completions", json=body(), headers=named)
            assert "upstream_timeout" in streamed.text
            go_on.set()
            model.script = lambda _: Response("no JSON", media_type="application/json")
            answer = httpx.post(f"{url}/v1/chat/completions", json=body(stream=False), headers=named)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
            nameless = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": "{}"}}]}, "tool_calls")
            model.script = lambda _: stream([nameless, "[DONE]"])
            streamed = httpx.post(f"{url}/v1/chat/completions", json=body(), headers=named)
            assert "upstream_invalid" in streamed.text
            assert "[DONE]" not in streamed.text
    assert texts(store) == ["What is the code?"]
