"""A local server that answers as OpenAI's and Anthropic's do: their clients work without a network and a key."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from shared_core.doors.interop.echo import echo
from shared_core.formats.anthropic import write_anthropic
from shared_core.messages import Message, fields_of, message_list

__all__ = ["ChatServer", "quote"]

Answer = Callable[[Sequence[Message]], Message]

_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def quote(said: Sequence[Message]) -> Message:
    """Return an answer: the line of the prompt that matches best, as "You said: My locker code is 4471"."""
    return Message.assistant(echo([(message.role, message.content) for message in said]))


class ChatServer:
    """Answers chat completions, the Responses API and Anthropic's Messages API, at a port of this machine.

    It runs inside a `with` block, in a thread. Chat completions and Anthropic's messages are streamed word by word if
    the request says so; the Responses API refuses such a request.

    Args:
        answer: returns the answer to the messages of a request. It may call tools. Called in other threads.

    Attributes:
        url: the `base_url` for the clients.
        requests: the bodies of the requests, oldest first.
    """

    def __init__(self, answer: Answer = quote) -> None:
        self._answer = answer
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.requests: list[dict[str, Any]] = []

    def reply(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the body of the response; None if no API has this path."""
        written = next((write for end, write in _WRITERS.items() if path.endswith(end)), None)
        if written is None:
            return None
        self.requests.append(body)
        return written(self._answer(_said(body)))

    def __enter__(self) -> "ChatServer":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, kind, text = _respond(server, self.path, body)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Write no log."""

    return Handler


# Requests


def _said(body: Mapping[str, Any]) -> list[Message]:
    """Return the messages of a request to any of the APIs."""
    given = body.get("input", body.get("messages"))
    if isinstance(given, str):
        return [Message.user(given)]
    system = [{"role": "system", "content": body["system"]}] if "system" in body else []
    return message_list([*system, *given])


# Responses


def _respond(server: ChatServer, path: str, body: dict[str, Any]) -> tuple[int, str, str]:
    """Return the status, the type of the content and the content that answer a request."""
    streamed = body.get("stream", False)
    if streamed and path.endswith("/responses"):
        return 400, "application/json", _error("the Responses API is not streamed here: leave out stream=True")
    reply = server.reply(path, body)
    if reply is None:
        return 404, "application/json", _error("unknown path")
    if not streamed:
        return 200, "application/json", json.dumps(reply)
    if path.endswith("/messages"):
        sent = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(reply)]
    else:
        sent = [f"data: {event}\n\n" for event in (*map(json.dumps, _chunks(reply)), "[DONE]")]
    return 200, "text/event-stream", "".join(sent)


def _error(message: str) -> str:
    return json.dumps({"error": {"message": message}})


def _chunks(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pieces of a chat completion: the role, the text word by word, the calls, and why it ends."""
    (choice,) = reply["choices"]
    message = choice["message"]
    words = re.findall(r"\s*\S+|\s+$", message["content"] or "")
    calls = [{"index": index, **call} for index, call in enumerate(message.get("tool_calls", ()))]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in words)]
    deltas += [{"tool_calls": [call]} for call in calls]
    ends = [None] * len(deltas) + [choice["finish_reason"]]
    made = {"id": reply["id"], "object": "chat.completion.chunk", "created": reply["created"], "model": reply["model"]}
    for delta, end in zip([*deltas, {}], ends, strict=True):
        yield made | {"choices": [{"index": 0, "delta": delta, "finish_reason": end, "logprobs": None}]}


def _events(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pieces of a message of Anthropic's: its blocks, texts word by word, and why it ends."""
    ends = {key: reply[key] for key in ("stop_reason", "stop_sequence")}
    yield {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}}
    for index, block in enumerate(reply["content"]):
        if block["type"] == "text":
            deltas = [{"type": "text_delta", "text": word} for word in re.findall(r"\s*\S+|\s+$", block["text"])]
            block = {"type": "text", "text": ""}
        elif block["type"] == "tool_use":
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            block = {**block, "input": {}}
        else:
            deltas = []
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ends, "usage": reply["usage"]}
    yield {"type": "message_stop"}


def _completion(answer: Message) -> dict[str, Any]:
    message = {"refusal": None, "annotations": [], **answer.to_openai()}
    reason = "tool_calls" if answer.tool_calls else "stop"
    choice = {"index": 0, "finish_reason": reason, "logprobs": None, "message": message}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "local"}
    return made | {"choices": [choice], "usage": _USAGE}


def _response(answer: Message) -> dict[str, Any]:
    output = [_output(item) for item in answer.to_responses()]
    made = {"id": "resp_1", "object": "response", "created_at": 0, "model": "local", "status": "completed"}
    return made | {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def _output(item: dict[str, Any]) -> dict[str, Any]:
    if item["type"] != "message":
        return {"id": f"fc_{item['call_id']}", "status": "completed", **item}
    text = {"type": "output_text", "text": item["content"], "annotations": [], "logprobs": []}
    return {**item, "id": "msg_1", "status": "completed", "content": [text]}


def _anthropic_message(answer: Message) -> dict[str, Any]:
    turns = write_anthropic([fields_of(answer)])["messages"]
    content = turns[0]["content"] if turns else []
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    reason = "tool_use" if answer.tool_calls else "end_turn"
    made = {"id": "msg_1", "type": "message", "role": "assistant", "model": "local", "stop_sequence": None}
    return made | {"content": blocks, "stop_reason": reason, "usage": {"input_tokens": 0, "output_tokens": 0}}


_WRITERS: Mapping[str, Callable[[Message], dict[str, Any]]] = {
    "/chat/completions": _completion,
    "/responses": _response,
    "/messages": _anthropic_message,
}
