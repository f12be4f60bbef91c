"""Requests that are none: each is told so with a 4xx, nothing of them is stored, and the server lives."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.openai_proxy.servers import ModelServer, proxied
from tests.support.histories import CountingStore

USER = {"role": "user", "content": "hi"}
GOOD: dict[str, Any] = {"model": "m", "messages": [USER]}

NOT_TEXT: list[Any] = [7, 1.5, True, [], {}]
NOT_LIST: list[Any] = ["x", 7, True, {}]
NOT_COUNT: list[Any] = ["7", 0, -1, 1.5, True, [], {}]

WRONG_FIELDS: dict[str, list[Any]] = {
    "messages": [None, *NOT_LIST, [], [None], ["hi"], [7], [[USER]], [{}], [USER, None], [USER, {"content": "hi"}]],
    "model": NOT_TEXT,
    "stream": ["true", 1, 0, [], {}],
    "tools": [*NOT_LIST, ["x"], [None], [[]]],
    "max_tokens": NOT_COUNT,
    "max_completion_tokens": NOT_COUNT,
    "n": NOT_COUNT,
    "temperature": ["1", True, [], {}],
    "top_p": ["1", False, []],
    "user": [*NOT_TEXT, "a\nb", "{{USER_ID}}", "x" * 257, "\ud800"],
    "metadata": ["x", 7, [], {"session_id": 7}, {"user_id": []}, {"thread_id": "a\0b"}],
    "conversation": [7, True, [], {"id": 7}, {"id": "x" * 300}],
    "stream_options": ["x", 1, []],
}

WRONG_MESSAGES: list[Any] = [
    {"role": "nobody", "content": "hi"},
    {"role": None, "content": "hi"},
    {"role": 7, "content": "hi"},
    {"role": ["user"], "content": "hi"},
    {"role": "user"},
    {"role": "user", "text": "hi"},
    {"role": "user", "content": 7},
    {"role": "user", "content": {"text": "hi"}},
    {"role": "user", "content": [7]},
    {"role": "user", "content": [None]},
    {"role": "user", "content": [{"text": "hi"}]},
    {"role": "user", "content": [{"type": 7}]},
    {"role": "user", "content": [{"type": "text"}]},
    {"role": "user", "content": [{"type": "text", "text": 7}]},
    {"role": "user", "content": [{"type": "unknown"}]},
    {"role": "user", "content": [{"type": "image_url"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": 7}}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]},
    {"role": "user", "content": "hi", "name": 7},
    {"role": "user", "content": "hi", "id": 7},
    {"role": "user", "content": "hi", "created_at": "yesterday"},
    {"role": "user", "content": "hi", "pinned": "perhaps"},
    {"role": "user", "content": "hi", "media_tokens": -1},
    {"role": "tool", "content": "hi"},
    {"role": "tool", "content": "hi", "tool_call_id": 7},
    {"role": "assistant", "tool_calls": "x"},
    {"role": "assistant", "tool_calls": [7]},
    {"role": "assistant", "tool_calls": [{}]},
    {"role": "assistant", "tool_calls": [{"id": "a"}]},
    {"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "f", "arguments": ""}}]},
    {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": 7, "arguments": ""}}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""},
]

GOOD_RESPONSE: dict[str, Any] = {"model": "m", "input": [USER]}

WRONG_RESPONSES: dict[str, list[Any]] = {
    "input": [None, *NOT_TEXT[:3], {}, [None], ["hi"], [7], [[USER]], [{}], [USER, None], [{"id": 7}], [{"type": 7}],
              [{"type": ["message"], "role": "user"}], [{"role": 7, "content": "hi"}], [{"content": "hi"}]],
    "instructions": [*NOT_TEXT, ["hi"]],
    "previous_response_id": [*NOT_TEXT, "resp_unknown", "a\nb", "{{ID}}", "x" * 257, "\ud800", "a\0b"],
    "max_output_tokens": NOT_COUNT,
    "store": ["true", 1, []],
    "background": ["true", 1, True],
    "prompt": ["x", 7, []],
    **{name: WRONG_FIELDS[name] for name in ("model", "stream", "tools", "temperature", "user", "metadata",
                                             "conversation", "stream_options")},
}  # fmt: skip

WRONG_ITEMS: list[Any] = [
    {"role": "nobody", "content": "hi"},
    {"role": "tool", "content": "hi", "tool_call_id": "a"},
    {"role": "user"},
    {"role": "user", "content": None},
    {"role": "user", "content": 7},
    {"role": "user", "content": {"text": "hi"}},
    {"role": "user", "content": [7]},
    {"role": "user", "content": [{"text": "hi"}]},
    {"role": "user", "content": [{"type": 7}]},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
    {"role": "user", "content": [{"type": "input_text"}]},
    {"role": "user", "content": [{"type": "input_text", "text": 7}]},
    {"type": "message", "content": "hi"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
    {"type": "function_call"},
    {"type": "function_call", "call_id": "a", "name": "f"},
    {"type": "function_call", "call_id": "a", "name": 7, "arguments": ""},
    {"type": "function_call", "call_id": 7, "name": "f", "arguments": ""},
    {"type": "custom_tool_call", "call_id": "a", "name": "f", "input": {}},
    {"type": "function_call_output", "output": "hi"},
    {"type": "function_call_output", "call_id": "a"},
    {"type": "function_call_output", "call_id": "a", "output": 7},
    {"type": "function_call_output", "call_id": "a", "output": [{"type": "unknown"}]},
    {"type": "message", "role": "user", "content": "hi", "previous": {"deep": 1e999}},
]

BODIES: list[bytes] = [
    b"", b" ", b"{", b"}", b"[]", b"null", b"7", b'"text"', b"{'a': 1}", b'{"messages": [}', b"\xff\xfe\x00", b"\x00",
    json.dumps(GOOD).encode("utf-16"), b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), b'{"messages": [NaN]}',
    b'{"a": Infinity, "messages": [{"role": "user", "content": "hi"}]}',
    b'{"a": 1e999, "messages": [{"role": "user", "content": "hi"}]}',
    b'{"messages": [{"role": "user", "content": "hi", "x": [1e999]}]}',
    b'{"a": ' + b"9" * 5000 + b', "messages": [{"role": "user", "content": "hi"}]}',
    b"[" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"messages": [{"role": "user", "content": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
    b'{"messages": [{"role": "user", "content": "\xe9"}]}', json.dumps(GOOD).encode() + b"{}",
    b"a=1&b=2", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--",
]  # fmt: skip

HEADERS: list[list[tuple[str, bytes]]] = [
    [("content-type", b"text/plain")],
    [("content-type", b"application/x-www-form-urlencoded")],
    [("content-type", b"")],
    [("content-type", b"application/jsonx")],
    [("content-encoding", b"gzip")],
    [("x-session-id", b"{{CONVERSATION_ID}}")],
    [("x-session-id", b"x" * 257)],
    [("x-session-id", b"\xff\xfe")],
    [("x-session-id", b"a\tb")],
    [("x-session-id", b"one"), ("x-session-id", b"two")],
    [("x-user-id", b"one"), ("x-user-id", b"two")],
    [("x-user-id", "a\u202eb".encode())],
    *[[("x-memory", word)] for word in (b"perhaps", b"none", b"null", b"undefined", b"new", b"")],
    [("x-memory", b"off"), ("x-memory", b"on")],
    [("x-memory-report", b"2")],
]

RAW: dict[str, bytes] = {
    "no HTTP": b"hello\r\n\r\n",
    "no path": b"POST HTTP/1.1\r\nHost: a\r\n\r\n",
    "two lengths": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "length and chunks": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a negative length": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "a length that is no number": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
    "an endless length": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 99999999999\r\n\r\n{}",
    "a length of many digits": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "a wrong chunk": b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "a folded header": b"GET /v1/models HTTP/1.1\r\nHost: a\r\n x-session-id b\x00c: d\r\n\r\n",
    "a huge header": b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX-Big: " + b"x" * 200_000 + b"\r\n\r\n",
    "a NUL in the path": b"GET /v1/\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
}

Server = tuple[httpx.Client, ModelServer, CountingStore]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    store = CountingStore(":memory:")
    with proxied(lambda _: "Yes.", store) as (url, model), httpx.Client(base_url=url, timeout=60) as client:
        yield client, model, store
        # After all of them, the server answers, and has stored this alone.
        assert (model.bodies, store.users(), store.overview(None)) == ([], [], [])
        assert client.post("/chat/completions", json=GOOD).status_code == 200
        assert [info.messages for info in store.overview(None)] == [2]
    store.close()


JSON = {"content-type": "application/json"}

PATHS = [
    ("GET", "/chat/completions"), ("PUT", "/chat/completions"), ("DELETE", "/models"), ("POST", "/models"),
    ("GET", "/responses"), ("GET", "/responses/resp_1"), ("POST", "/responses/resp_1/cancel"),
    ("POST", "/conversations"), ("DELETE", "/responses/resp_1"), ("GET", "/chat"), ("GET", "/models/../../admin"),
    ("GET", "/models/%2e%2e/x"), ("GET", "/models/a/%2E%2E/%2e%2e/b"), ("PATCH", "/"), ("OPTIONS", "/chat/completions"),
    ("GET", "/chat/completions/"), ("GET", "//models"), ("GET", "/%00"), ("GET", "/" + "x" * 5000),
]  # fmt: skip


def refused(answer: httpx.Response, sent: object) -> None:
    assert 400 <= answer.status_code < 500, (sent, answer.text)
    error = answer.json()["error"]
    assert error["type"] in ("invalid_request_error", "not_found_error"), sent
    assert 0 < len(error["message"]) < 400, sent


def test_a_wrong_field_or_message(server: Server) -> None:
    wrong = [{**GOOD, name: value} for name, values in WRONG_FIELDS.items() for value in values]
    wrong += [{**GOOD, "messages": [USER, one]} for one in WRONG_MESSAGES]
    for body in wrong:
        refused(server[0].post("/chat/completions", content=json.dumps(body).encode(), headers=JSON), body)


def test_a_wrong_field_or_item_of_a_response(server: Server) -> None:
    wrong = [{**GOOD_RESPONSE, name: value} for name, values in WRONG_RESPONSES.items() for value in values]
    wrong += [{**GOOD_RESPONSE, "conversation": "c", "previous_response_id": "resp_1"}]
    wrong += [{**GOOD_RESPONSE, "input": [USER, one]} for one in WRONG_ITEMS]
    for body in wrong:
        refused(server[0].post("/responses", content=json.dumps(body).encode(), headers=JSON), body)


def test_a_wrong_body(server: Server) -> None:
    json_type = {"content-type": "application/json; charset=utf-8"}
    for body in BODIES:
        refused(server[0].post("/chat/completions", content=body, headers=json_type), body[:99])
        as_input = body.replace(b'"messages"', b'"input"')
        refused(server[0].post("/responses", content=as_input, headers=json_type), as_input[:99])


def test_wrong_headers_and_paths(server: Server) -> None:
    for headers in HEADERS:
        kind = [] if any(name == "content-type" for name, _ in headers) else [("content-type", b"application/json")]
        given = [(name.encode(), value) for name, value in [*kind, *headers]]
        refused(server[0].post("/chat/completions", content=json.dumps(GOOD).encode(), headers=given), headers)
    for method, path in PATHS:
        refused(server[0].request(method, path, json=GOOD), (method, path[:99]))


def test_what_is_no_request(server: Server) -> None:
    url = server[0].base_url
    for name, sent in RAW.items():
        with socket.create_connection((url.host, url.port or 0), timeout=20) as opened:
            try:
                opened.sendall(sent)
                answer = opened.recv(65536)
            except ConnectionError:  # the server does not read all of what it refuses
                continue
        assert answer.startswith(b"HTTP/1.1 4"), (name, answer)
