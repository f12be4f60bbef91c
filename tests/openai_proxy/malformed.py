"""Requests that are none: a table of what can be wrong, and in how many places; each answer must be a 4xx."""

import json
from collections.abc import Iterator
from typing import Any

USER = {"role": "user", "content": "Where to, caf\u00e9 or \U0001f600?"}
GOOD: dict[str, Any] = {"model": "m", "stream": False, "max_tokens": 7, "messages": [USER], "metadata": {"a": "b"}}
BODY = json.dumps(GOOD, ensure_ascii=False).encode()
CHAT = b"POST /v1/chat/completions HTTP/1.1"
JSON = b"Content-Type: application/json"
LENGTH = b"Content-Length: %d" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked"
FRAME = (b"Host: localhost", b"Connection: close")
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

Case = tuple[str, bytes]
"""What is wrong, and the bytes to send."""


def request(*lines: bytes, body: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def sent(body: bytes, *headers: bytes) -> bytes:
    """Return a request whose frame is right, with any body."""
    return request(CHAT, *FRAME, *(headers or (JSON,)), b"Content-Length: %d" % len(body), body=body)


def request_lines() -> Iterator[Case]:
    """Lines that are no request, or one for nothing that is there."""
    no_http = (
        b"", b"\0", b"hello", b"GET", b"GET /v1/models", b"GET /v1/models HTTP/1", b"GET /v1/models HTTP/1.1 x",
        b" GET /v1/models HTTP/1.1", b"GET\t/v1/models HTTP/1.1", b"GET /v1/models HTTPS/1.1",
        b"GET /v1/mo dels HTTP/1.1", b"GET /v1/caf\xc3\xa9 HTTP/1.1", b"GET /v1/\x00 HTTP/1.1",
        b"GET /v1/models\rHTTP/1.1", b"HTTP/1.1 200 OK", b"PRI * HTTP/2.0", b"GET /v1/" + b"x" * 400_000 + b" HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\xff" * 64,
    )  # fmt: skip
    for line in no_http:
        yield f"line {line[:40]!r}", request(line, *FRAME)
    for method in (b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"CONNECT", b"FOO", b"post", b"X" * 300):
        line = method + b" /v1/chat/completions HTTP/1.1"
        yield f"method {method[:20]!r}", request(line, *FRAME, JSON, LENGTH, body=BODY)
    targets = (
        b"/", b"/v1", b"/v1/chat/completions/", b"//v1/chat/completions", b"/V1/chat/completions",
        b"/v1/chat/completions%00", b"/v1/chat%2fcompletions/x", b"/%2e%2e/etc", b"/v1/models/..%2f..%2fx", b"*",
        b"http://a/v1/models", b"/%zz", b"/%ff%fe", b"?", b"/" + b"%41" * 2_000, b"a:80",
    )  # fmt: skip
    for target in targets:
        yield f"target {target[:30]!r}", request(b"POST " + target + b" HTTP/1.1", *FRAME, JSON, LENGTH, body=BODY)


def header_lines() -> Iterator[Case]:
    """A header that is wrong, first and last among good ones."""
    broken = (
        b"X", b": x", b" X: y", b"X : y", b"X y: z", b"X\0: y", b"X: a\0b", b"X: a\rb", b"X\xc3\xa9: y",
        b"X: " + b"x" * 400_000, b"\r\n".join(b"X-%d: y" % number for number in range(50_000)), b"Host: a\r\nHost: b",
        b"X: y\r\n folded\x00", b"X@: y", b'"X": y',
    )  # fmt: skip
    for line in broken:
        yield f"header {line[:30]!r} first", request(CHAT, line, *FRAME, JSON, LENGTH, body=BODY)
        yield f"header {line[:30]!r} last", request(CHAT, *FRAME, JSON, LENGTH, line, body=BODY)
    lengths = (
        b"", b"-1", b"+5", b"0x10", b"5,6", b"1e3", b"five", b"\xd9\xa1", b"1_0", b"34000000", b"9" * 300, b"\0",
    )  # fmt: skip
    for length in lengths:
        yield f"length {length[:20]!r}", request(CHAT, *FRAME, JSON, b"Content-Length: " + length, body=BODY)
        yield f"lengths {length[:20]!r}", request(CHAT, *FRAME, JSON, LENGTH, b"Content-Length: " + length, body=BODY)
    for coding in (b"gzip", b"chunked, gzip", b"xchunked", b"chunked;q=1", b"", b"chunked, chunked", b"\0chunked"):
        line = b"Transfer-Encoding: " + coding
        yield f"coding {coding!r}", request(CHAT, *FRAME, JSON, line, body=BODY)
        yield f"coding {coding!r} and length", request(CHAT, *FRAME, JSON, LENGTH, line, body=BODY)


def names_and_kinds() -> Iterator[Case]:
    """Headers that are HTTP, and name nothing that is served."""
    names = (
        b"\xff\xfe", b"{{ID}}", b"a" * 257, b"a\tb", b"\xe2\x80\xaeb", b"\xed\xa0\x80", b"one\r\nX-Session-Id: two",
    )  # fmt: skip
    for name in names:
        for header in (b"X-Session-Id", b"X-User-Id", b"X-OpenWebUI-Chat-Id", b"X-OpenWebUI-User-Id"):
            again = name.replace(b"X-Session-Id", header)
            yield f"{header.decode()} {name[:20]!r}", sent(BODY, JSON, header + b": " + again)
    kinds = (
        b"", b"text/plain", b"application/jsonx", b"application/x-www-form-urlencoded", b"application/json, text/plain",
    )  # fmt: skip
    for kind in kinds:
        yield f"kind {kind!r}", sent(BODY, b"Content-Type: " + kind)
    for coding in (b"gzip", b"x", b"gzip, identity"):
        yield f"encoding {coding!r}", sent(BODY, JSON, b"Content-Encoding: " + coding)
    for header in (b"X-Memory", b"X-Memory-Report"):
        for word in (b"", b"2", b"perhaps", b"\xff", b"on\r\n" + header + b": off"):
            yield f"{header.decode()} {word[:9]!r}", sent(BODY, JSON, header + b": " + word)


def chunked_bodies() -> Iterator[Case]:
    """Chunks that are none, and bodies in good chunks that are no JSON."""
    wrong = (
        b"zz\r\n{}\r\n", b"-1\r\n{}\r\n", b"0x2\r\n{}\r\n0\r\n\r\n", b" 2\r\n{}\r\n0\r\n\r\n", b"\r\n\r\n",
        b"2{}\r\n", b"2\r\n{}xx0\r\n\r\n", b"1\r\n{}\r\n0\r\n\r\n", b"f" * 25 + b"\r\n{}\r\n",
        b"2;" + b"x" * 400_000 + b"\r\n{}\r\n0\r\n\r\n", b"2;\0\r\n{}\r\n0\r\n\r\n", b"2\r\n{}\r\n0\r\n: y\r\n\r\n",
        b"2\r\n{}\r\nx", b"\0", b"2_0\r\n{}\r\n",
    )  # fmt: skip
    for chunks in wrong:
        yield f"chunks {chunks[:20]!r}", request(CHAT, *FRAME, JSON, CHUNKED, body=chunks)
        yield f"chunks {chunks[:20]!r} later", request(CHAT, *FRAME, JSON, CHUNKED, body=b"1\r\n{\r\n" + chunks)
    for size in (1, 17):
        parts = [BODY[at : at + size] for at in range(0, len(BODY) - 1, size)]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [b"[", *parts])
        yield f"chunks of {size}", request(CHAT, *FRAME, JSON, CHUNKED, body=chunks + b"0\r\n\r\n")


def bodies() -> Iterator[Case]:
    """A good body that is cut, or to which a byte is added that JSON or UTF-8 does not have there."""
    for at in range(0, len(BODY), 3):
        yield f"cut at {at}", sent(BODY[:at])
    for byte in (b"\0", b"\xff", b"\x1f", b"\xc3"):
        for at in range(0, len(BODY), 9):
            damaged = BODY[:at] + byte + BODY[at:]
            yield f"{byte!r} at {at}", sent(damaged)
    for coding in ("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp500"):
        good = json.dumps({**GOOD, "messages": [{**USER, "content": "\u00e9"}]}, ensure_ascii=False)
        yield coding, sent(good.encode(coding))
    for text in (b"[]", b"7", b"1e999", b"null", b'"x"', b"NaN", b"{}", b"{}{}", b"//{}", b"{'a':1}", b'{"a":1,}',
                 b'{"a":01}', b'{"a":"\\x"}', b"\t", b"undefined", b"---\na: 1", b"a=1",
                 b'{"messages":[{"role":"user"}'):  # fmt: skip
        yield f"text {text!r}", sent(text)


def deep_bodies() -> Iterator[Case]:
    """Values within values, 100,000 deep."""
    places = ('{"messages": %s}', '{"metadata": %s}', '{"x": %s}', '{"messages": [{"role": "user", "content": %s}]}',
              '{"messages": [{"role": "user", "content": "hi", "x": %s}]}', "%s")  # fmt: skip
    for place in places:
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            deep = opening * 100_000 + "1" + closing * 100_000
            yield f"deep in {place}", sent((place % deep).encode())


def huge_bodies(most: int) -> Iterator[Case]:
    """Bodies of more bytes than are allowed, by their length, or by the bytes that come."""
    pad = b'{"pad": "' + b"x" * most + b'"}'
    yield "large by its length", sent(pad)
    yield "large in one chunk", request(CHAT, *FRAME, JSON, CHUNKED, body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(pad), pad))
    chunks = b"".join(b"1000\r\n%b\r\n" % (b" " * 4096) for _ in range(most // 4096 + 2))
    yield "large in many chunks", request(CHAT, *FRAME, JSON, CHUNKED, body=chunks + b"0\r\n\r\n")
    yield "large and announced only", request(CHAT, *FRAME, JSON, b"Content-Length: %d" % (most + 1))
    yield (
        "large and waited for",
        request(CHAT, *FRAME, JSON, b"Expect: 100-continue", b"Content-Length: %d" % (most + 1)),
    )


def pipelined() -> Iterator[Case]:
    """A good request, and one that is none, in one piece."""
    for name, bad in [*list(request_lines())[:20:2], *list(header_lines())[:30:4], *list(chunked_bodies())[:30:4]]:
        yield f"pipelined {name}", HEALTH + bad


def half_sent() -> Iterator[Case]:
    """The beginning of a good request, after which nothing comes."""
    for whole in (sent(BODY), request(CHAT, *FRAME, JSON, CHUNKED, body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY))):
        for at in [*range(0, len(whole) - 1, 17), len(whole) - 1]:
            yield f"cut at {at}", whole[:at]
