"""Streams of the Responses API: the last event means that the answer is stored, and what breaks off is marked."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import APIError, OpenAI
from starlette.responses import JSONResponse

from shared_core import InfiniteMemory, Message, StoreError
from shared_core.openai_proxy.answer import INTERRUPTED
from shared_core.store import Store
from tests.openai_proxy.response_shapes import call_item, named, reasoning_item, response, said_item, spoken_events
from tests.openai_proxy.servers import always, proxied, stream, until

WHOLE = response([said_item("The code is 4471.")])
EVENTS = [*map(named, spoken_events(WHOLE))]
HALF = EVENTS[:6]
"""The events of a response up to "The co"."""

SENT: dict[str, Any] = {"model": "m", "stream": True, "input": "What is the code?"}
NAMED = {"x-session-id": "s"}


def stored(store: Store) -> list[Message]:
    with InfiniteMemory(store, session_id="s") as memory:
        return list(memory.messages())


def texts(store: Store) -> list[str]:
    return [message.content for message in stored(store)]


def interrupted(message: Message) -> Any:
    assert message.payload is not None
    assert message.payload.format == INTERRUPTED
    return message.payload.data["interrupted"]


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    """Send the request over a bare connection, which the caller may cut."""
    host, port = url.split("/")[2].split(":")
    data = json.dumps(SENT).encode()
    head = (
        f"POST /v1/responses HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"X-Session-Id: s\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=20) as opened:
        opened.sendall(head.encode() + data)
        yield opened


def received(opened: socket.socket, end: bytes) -> None:
    """Wait for some bytes."""
    got = b""
    while end not in got:
        part = opened.recv(65536)
        assert part, got
        got += part


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
        proxied(lambda _: stream([*HALF, *BREAKS[how]]), store) as (url, model),
        OpenAI(base_url=url, api_key="k", max_retries=0, default_headers=NAMED) as client,
    ):
        events: list[Any] = []
        try:
            events += client.responses.create(**SENT)
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


def test_the_error_of_the_server_has_the_form_of_the_protocol(store: Store) -> None:
    with proxied(lambda _: stream(HALF), store) as (url, _):
        *_, last = httpx.post(f"{url}/responses", json=SENT).text.removesuffix("\n\n").split("\n\n")
    name, data = last.split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert (name, told["type"], told["sequence_number"]) == ("event: error", "error", 6)
    assert told["code"] == told["error"]["code"] == "upstream_unreachable"
    assert told["message"] == told["error"]["message"]


def test_a_client_that_goes_away_leaves_what_it_saw(store: Store) -> None:
    go_on = threading.Event()
    with proxied(lambda _: stream([*HALF, None], wait=go_on), store) as (url, _):
        with connected(url) as opened:
            received(opened, b'" co"')
        until(lambda: len(texts(store)) == 2)
        answer = stored(store)[-1]
        assert (answer.content, interrupted(answer), answer.id) == ("The co", "client", WHOLE["id"])
        go_on.set()


def test_a_client_that_goes_away_with_the_last_event_leaves_a_whole_answer(store: Store) -> None:
    go_on = threading.Event()
    with proxied(lambda _: stream([*EVENTS, None], wait=go_on), store) as (url, _):
        with connected(url) as opened:
            received(opened, b"response.completed")
            assert [(one.content, one.payload) for one in stored(store)][1:] == [("The code is 4471.", None)]
        go_on.set()
    assert texts(store) == ["What is the code?", "The code is 4471."]


def test_a_response_that_reached_its_limit_is_stored_as_far_as_it_came(store: Store) -> None:
    half_a_call = call_item("f", '{"a', status="incomplete")
    whole = response([said_item("The code", status="incomplete"), half_a_call], "incomplete")
    with proxied(lambda _: stream([*map(named, spoken_events(whole))]), store) as (url, _):
        text = httpx.post(f"{url}/responses", json=SENT, headers=NAMED).text
    assert text == "".join(map(named, spoken_events(whole)))
    answer = stored(store)[-1]
    assert (answer.content, answer.tool_calls, answer.payload) == ("The code", (), None)


def test_a_response_that_failed_in_one_piece_leaves_its_words(store: Store) -> None:
    for status, words in (("failed", "The co"), ("failed", ""), ("in_progress", "The")):
        whole = response([said_item(words)] if words else [], status)
        with proxied(always(JSONResponse(whole)), store) as (url, _):
            answer = httpx.post(f"{url}/responses", json={**SENT, "stream": False}, headers=NAMED)
            assert answer.json() == whole
    asked, answer_ = stored(store)
    assert (asked.content, answer_.content, interrupted(answer_)) == ("What is the code?", "The co", "upstream")


def test_an_answer_that_cannot_be_stored_is_not_acknowledged(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("the disk is full of 'What is the code?'")

    with proxied(lambda _: "", store) as (url, model):
        model.script = lambda _: monkeypatch.setattr(store, "append", fail) or "It is 4471."
        streamed = httpx.post(f"{url}/responses", json=SENT, headers=NAMED).text
        assert "response.completed" not in streamed
        assert "could not be stored" in streamed
        whole = httpx.post(f"{url}/responses", json={**SENT, "stream": False}, headers=NAMED)
        assert (whole.status_code, "disk" in streamed + whole.text) == (503, False)


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
            assert httpx.post(f"{url}/responses", json=SENT, headers={"x-session-id": f"s{number}"}).text == "".join(
                given
            )
            with InfiniteMemory(store, session_id=f"s{number}") as memory:
                answer = memory.messages()[-1]
            assert (answer.content, answer.id) == ("The code is\n4471.", f"resp_{number}")
            assert answer.payload is None or answer.payload.format != INTERRUPTED
            assert [(call.id, call.arguments) for call in answer.tool_calls] == [("call-1", '{"a": 1}')]
            model.script = lambda _: "Read."
            httpx.post(f"{url}/responses", json={"input": [result], "previous_response_id": f"resp_{number}"})
            assert model.bodies[-1]["input"][-1] == result


def test_the_items_of_a_stream_that_breaks_off_are_kept_without_their_pieces(store: Store) -> None:
    events = [one for one in spoken_events(WHOLE)[:-1] if not one["type"].endswith(".delta")]
    with proxied(lambda _: stream([*map(named, events)]), store) as (url, _):
        httpx.post(f"{url}/responses", json=SENT, headers=NAMED)
    assert [(one.content, interrupted(one)) for one in stored(store)[1:]] == [("The code is 4471.", "upstream")]


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
        answer = httpx.post(f"{url}/responses", json={**SENT, "stream": False}, headers=NAMED)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_invalid")
        model.script = lambda _: stream([named({"type": "response.completed", "response": body})])
        streamed = httpx.post(f"{url}/responses", json=SENT, headers=NAMED).text
        assert ("upstream_invalid" in streamed, "response.completed" in streamed) == (True, False)
    assert texts(store) == ["What is the code?"]
