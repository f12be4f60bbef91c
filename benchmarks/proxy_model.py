"""A model server that answers at once, in a process of its own: `python benchmarks/proxy_model.py` says its address."""

import asyncio
import json

__all__ = ["ADDRESS", "WORDS"]

ADDRESS = r"http://(\S+):(\d+)/"
"""Finds the address in what it says."""

WORDS = ("I", "have", "noted", "that", "and", "will", "think", "of", "it", "when", "the", "harbour", "comes", "up")
MADE = {"id": "chatcmpl-1", "created": 7, "model": "m"}


def _answer() -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": " ".join(WORDS)}, "finish_reason": "stop"}
    body = json.dumps(MADE | {"object": "chat.completion", "choices": [choice]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _events() -> list[bytes]:
    deltas = [{"role": "assistant", "content": ""}, *({"content": f"{word} "} for word in WORDS), {}]
    chunks = [
        MADE | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks[-1]["choices"] = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    events = [f"data: {json.dumps(one)}\n\n".encode() for one in chunks] + [b"data: [DONE]\n\n"]
    return [b"%x\r\n%b\r\n" % (len(one), one) for one in events]


ANSWER, EVENTS = _answer(), _events()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
            if not json.loads(body).get("stream"):
                writer.write(ANSWER)
            else:
                writer.write(HEAD + EVENTS[0])
                for event in EVENTS[1:]:
                    await asyncio.sleep(0)
                    writer.write(event)
                writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=2**24)
    print("http://{}:{}/".format(*server.sockets[0].getsockname()), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
