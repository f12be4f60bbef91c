"""Servers for tests, each a real one at a free port: the memory, and a model server that plays a script."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from shared_core import SessionPool
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.doors.serving.listener import listener, server_for
from shared_core.store import Store
from shared_core.testing import HashingEmbedder
from tests.openai_proxy.response_shapes import named, response, said_item, spoken_events


async def _shortly(delay: float) -> None:
    await asyncio.sleep(delay / 20)


# Uvicorn sleeps a tenth of a second wherever it waits for something: at each start and stop of a server.
vars(uvicorn.server)["asyncio"] = SimpleNamespace(**{**vars(asyncio), "sleep": _shortly})


@contextmanager
def served(app: ASGIApp, *, grace: float = 5, **limits: Any) -> Iterator[tuple[str, uvicorn.Server]]:
    """Serve an application in a thread, and yield its address and the server."""
    with listener("127.0.0.1", 0) as opened:
        server = server_for(app, grace=grace, **limits)
        started = threading.Event()
        startup = server.startup

        async def noting(sockets: Any = None) -> None:
            await startup(sockets=sockets)
            started.set()

        server.startup = noting  # type: ignore[method-assign]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        assert started.wait(20)
        try:
            yield f"http://127.0.0.1:{opened.getsockname()[1]}", server
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def chunk(delta: Mapping[str, Any], end: str | None = None, index: int = 0) -> str:
    """Return a chunk of a stream as the API writes it."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": end}
    made = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "scripted"}
    return json.dumps(made | {"system_fingerprint": "fp", "choices": [choice]})


def spoken(text: str) -> list[str]:
    """Return the events of an answer that is streamed in pieces of three characters."""
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": one}) for one in pieces),
        chunk({}, "stop"),
    ]


def until(true: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    for _ in range(4000):
        if true():
            return
        time.sleep(0.005)
    raise AssertionError("it does not happen")


def completion(message: Mapping[str, Any], end: str = "stop") -> dict[str, Any]:
    """Return a completion as the API writes it."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "logprobs": None, "finish_reason": end}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "scripted"}
    return made | {"choices": [choice], "usage": usage}


Script = Callable[[dict[str, Any]], Response | str]
"""Takes the body of a request and returns the response, or the text that the model says."""


def always(answer: Response | str) -> Script:
    """Return a script that answers every request alike."""
    return lambda _: answer


_MODEL = {"id": "scripted", "object": "model", "new_field": 1}


class ModelServer:
    """A model server that plays a script.

    Args:
        script: answers the requests for completions and responses.
        listed: the answers to requests for the list of models; the last one is given again.

    Attributes:
        bodies: the bodies of the requests for completions and responses.
        headers: the headers of all requests.
        paths: the paths of all requests.
    """

    def __init__(self, script: Script, listed: Sequence[Response] = ()) -> None:
        self.script = script
        self._listed = iter(listed)
        self._told: Response = JSONResponse({"object": "list", "data": [_MODEL]})
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._completions, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
                Route("/v1/{rest:path}", self._other, methods=["GET"]),
            ]
        )

    async def _completions(self, request: Request) -> Response:
        body = await self._noted(request)
        said = self.script(body)
        if isinstance(said, Response):
            return said
        return stream([*spoken(said), "[DONE]"]) if body.get("stream") else JSONResponse(completion({"content": said}))

    async def _responses(self, request: Request) -> Response:
        body = await self._noted(request)
        said = self.script(body)
        if isinstance(said, Response):
            return said
        whole = response([said_item(said)])
        return stream([*map(named, spoken_events(whole))]) if body.get("stream") else JSONResponse(whole)

    async def _noted(self, request: Request) -> dict[str, Any]:
        """Note a request, and return its body."""
        self.headers.append(dict(request.headers))
        self.paths.append(request.url.path)
        body: dict[str, Any] = json.loads(await request.body())
        self.bodies.append(body)
        return body

    async def _other(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        self.paths.append(request.url.path)
        if request.path_params["rest"] == "models":
            self._told = next(self._listed, self._told)
            return self._told
        return JSONResponse({"error": {"message": "no such model", "type": "x"}}, 404, {"x-request-id": "r-1"})

    def texts(self, number: int = -1) -> list[Any]:
        """Return the contents of the messages of a request."""
        return [message["content"] for message in self.bodies[number]["messages"]]


def stream(events: Sequence[str | None], *, wait: threading.Event | None = None) -> StreamingResponse:
    """Return a response that streams events. At None it waits for the event; without one, it breaks off there.

    An event is its data, or the whole of it.
    """

    async def body() -> AsyncIterator[bytes]:
        for each in events:
            if each is not None:
                yield (each if each.endswith("\n\n") else f"data: {each}\n\n").encode()
            elif wait is None:
                raise ConnectionAbortedError
            else:
                while not wait.is_set():
                    await asyncio.sleep(0.005)

    return StreamingResponse(body(), media_type="text/event-stream")


@contextmanager
def proxied(
    script: Script, store: str | Path | Store | None = None, *, grace: float = 5, key: str | None = None,
    settings: Mapping[str, Any] | None = None, listed: Sequence[Response] = (), **options: Any,
) -> Iterator[tuple[str, ModelServer]]:  # fmt: skip
    """Serve a model server and the memory before it; yield the address of the memory, up to `/v1`, and the model.

    With `listed`, the model server is asked for its windows.
    """
    model = ModelServer(script, listed)
    with served(model.app) as (model_url, _):
        pool = SessionPool(store, embedder=HashingEmbedder(), **(settings or {}))
        app = create_app(pool, Upstream(f"{model_url}/v1", key=key, tells_windows=bool(listed)), **options)
        with served(app, grace=grace) as (url, _):
            yield f"{url}/v1", model
