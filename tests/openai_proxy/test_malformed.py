"""Requests that are none: each is told so with a 4xx, nothing of them is stored, and the server lives."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.openai_proxy.servers import ModelServer, proxied
from tests.support.histories import CountingStore

USER = {"role": "user", "content": "hi"}
GOOD: dict[str, Any] = {"model": "m", "messages": [USER]}
GOOD_RESPONSE: dict[str, Any] = {"model": "m", "input": [USER]}

NOT_TEXT: list[Any] = [7, True, [], {}]
NOT_LIST: list[Any] = ["x", 7, {}]
NOT_COUNT: list[Any] = ["7", 0, -1, 1.5, True, []]

WRONG_FIELDS: dict[str, list[Any]] = {
    "model": NOT_TEXT,
    "stream": ["true", 1, []],
    "tools": [*NOT_LIST, ["x"], [None]],
    "temperature": ["1", True, []],
    "user": [*NOT_TEXT, "a\nb", "{{USER_ID}}", "x" * 257, "\ud800"],
    "metadata": ["x", [], {"session_id": 7}, {"user_id": []}, {"thread_id": "a\0b"}],
    "conversation": [7, [], {"id": 7}, {"id": "x" * 300}],
    "stream_options": ["x", []],
}
"""Of both protocols."""

WRONG_CHATS: dict[str, list[Any]] = {
    **WRONG_FIELDS,
    "messages": [None, *NOT_LIST, [], [None], [[USER]], [{}], [USER, {"content": "hi"}]],
    "max_tokens": NOT_COUNT,
    "max_completion_tokens": NOT_COUNT,
    "n": NOT_COUNT,
    "top_p": ["1", []],
}

WRONG_RESPONSES: dict[str, list[Any]] = {
    **WRONG_FIELDS,
    "input": [None, *NOT_TEXT[:2], {}, [None], ["hi"], [[USER]], [{}], [{"id": 7}], [{"type": ["message"]}]],
    "instructions": [*NOT_TEXT, ["hi"]],
    "previous_response_id": [*NOT_TEXT, "resp_unknown", "a\nb", "{{ID}}", "\ud800"],
    "max_output_tokens": NOT_COUNT,
    "store": ["true", 1],
    "background": ["true", True],
    "prompt": ["x", []],
}

WRONG_MESSAGES: list[Any] = [
    {"role": "nobody", "content": "hi"},
    {"role": ["user"], "content": "hi"},
    {"role": "user"},
    {"role": "user", "content": 7},
    {"role": "user", "content": [None]},
    {"role": "user", "content": [{"type": "text", "text": 7}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": 7}}]},
    {"role": "user", "content": "hi", "name": 7},
    {"role": "user", "content": "hi", "created_at": "yesterday"},
    {"role": "user", "content": "hi", "media_tokens": -1},
    {"role": "tool", "content": "hi"},
    {"role": "assistant", "tool_calls": [7]},
    {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": 7, "arguments": ""}}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""},
]

WRONG_ITEMS: list[Any] = [
    {"role": "tool", "content": "hi", "tool_call_id": "a"},
    {"role": "user", "content": None},
    {"role": "user", "content": [{"text": "hi"}]},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"type": "message", "content": "hi"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
    {"type": "function_call", "call_id": "a", "name": 7, "arguments": ""},
    {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": {}},
    {"type": "function_call_output", "call_id": "a"},
    {"type": "function_call_output", "call_id": "a", "output": [{"type": "unknown"}]},
    {"type": "message", "role": "user", "content": "hi", "previous": {"deep": 1e999}},
]

BODIES: list[bytes] = [
    b"", b"[]", b'{"messages": [}', b"\xff\xfe\x00", b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
    b'{"a": Infinity, "messages": [{"role": "user", "content": "hi"}]}',
    b'{"messages": [{"role": "user", "content": "hi", "x": [1e999]}]}',
    b'{"a": ' + b"9" * 5000 + b', "messages": [{"role": "user", "content": "hi"}]}',
    b'{"messages": [{"role": "user", "content": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
    json.dumps(GOOD).encode() + b"{}",
]  # fmt: skip

PATHS = [
    ("GET", "/chat/completions"), ("POST", "/models"), ("GET", "/responses/resp_1"), ("POST", "/conversations"),
    ("GET", "/models/../../admin"), ("GET", "/models/a/%2E%2E/%2e%2e/b"), ("OPTIONS", "/chat/completions"),
    ("GET", "//models"), ("GET", "/%00"), ("GET", "/" + "x" * 5000),
]  # fmt: skip

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a server that, after all of these requests, answers a good one and has stored that alone."""
    store = CountingStore(":memory:")
    with proxied(lambda _: "Yes.", store) as (url, model), httpx.Client(base_url=url, timeout=60) as client:
        yield client
        assert nothing_of(model, store)
        assert client.post("/chat/completions", json=GOOD).status_code == 200
        assert [info.messages for info in store.overview(None)] == [2]
    store.close()


def nothing_of(model: ModelServer, store: CountingStore) -> bool:
    return (model.bodies, store.sessions(), store.overview(None)) == ([], [], [])


def refused(answer: httpx.Response, sent: object) -> None:
    assert 400 <= answer.status_code < 500, (sent, answer.text)
    error = answer.json()["error"]
    assert error["type"] in ("invalid_request_error", "not_found_error"), sent
    assert 0 < len(error["message"]) < 400, sent


@pytest.mark.parametrize(
    ("path", "good", "fields", "listed", "items"),
    [
        ("/chat/completions", GOOD, WRONG_CHATS, "messages", WRONG_MESSAGES),
        ("/responses", GOOD_RESPONSE, WRONG_RESPONSES, "input", WRONG_ITEMS),
    ],
    ids=["chat", "responses"],
)
def test_a_wrong_field_message_or_body(
    client: httpx.Client, path: str, good: dict[str, Any], fields: dict[str, list[Any]], listed: str, items: list[Any]
) -> None:
    wrong = [{**good, name: value} for name, values in fields.items() for value in values]
    wrong += [{**good, listed: [USER, one]} for one in items]
    if listed == "input":
        wrong += [{**good, "conversation": "c", "previous_response_id": "resp_1"}]
    bodies = [body.replace(b'"messages"', f'"{listed}"'.encode()) for body in BODIES]
    for body in [*(json.dumps(one).encode() for one in wrong), *bodies]:
        refused(client.post(path, content=body, headers=JSON), body[:200])


def test_what_is_not_served(client: httpx.Client) -> None:
    for method, path in PATHS:
        refused(client.request(method, path, json=GOOD), (method, path[:99]))
