"""RequestSpans: a server span for each request, as child of the client's span, and as parent of what is done for it."""

import asyncio
import logging
import threading
from collections.abc import Collection, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared_core.errors import require

require("opentelemetry.trace", 'pip install "infinite-memory[otel]"')

from opentelemetry import metrics, propagate, trace  # noqa: E402
from opentelemetry.trace import Span, SpanKind, StatusCode  # noqa: E402

__all__ = ["RequestSpans"]

logger = logging.getLogger(__name__)

METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
"""Methods that spans name. A client may send any other word."""

EXPORT_SECONDS = 10.0
"""How long a server that stops waits until its telemetry is exported. A collector may be out of reach."""

ENDS = ("lifespan.shutdown.complete", "lifespan.shutdown.failed")
"""What an application says last."""


@runtime_checkable
class _Exporting(Protocol):
    """A provider that exports; those of the API alone do not."""

    def force_flush(self, timeout_millis: int = ...) -> bool: ...


class RequestSpans:
    """Passes requests on to an application, each inside a span by the conventions for HTTP servers.

    The client's span is read from the header `traceparent`, and the new one is written there: whoever passes the header
    on continues the trace. Nothing else of a request is recorded but its method, its path if it is known, and the
    status.

    When the application ends, what was recorded is exported: the signal that stops the server may end the process
    before anything else does so.

    Args:
        app: answers the requests.
        paths: known paths; what follows one is shown as `/*`.
        tracer_provider: makes the spans. None: the global one.
        polled: paths that an open page asks again and again: their requests get no span.
    """

    def __init__(
        self, app: ASGIApp, paths: Collection[str], tracer_provider: trace.TracerProvider | None = None, *,
        polled: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._app, self._paths, self._polled = app, paths, polled
        self._tracer_provider = tracer_provider
        self._tracer = trace.get_tracer("infinite_memory.server", tracer_provider=tracer_provider)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, partial(self._ending, send))
            return
        if scope["type"] != "http" or scope["path"] in self._polled:
            await self._app(scope, receive, send)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        with self._span(scope, dict(headers)) as span:
            if not span.get_span_context().is_valid:  # no provider is set
                await self._app(scope, receive, send)
                return

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note_status(span, message["status"])
                await send(message)

            await self._app({**scope, "headers": _continued(scope["headers"])}, receive, noting)

    async def _ending(self, send: Send, message: Message) -> None:
        """Pass on what the application says of its beginning and end, and export before the last of it."""
        if message["type"] in ENDS:
            exporting = threading.Thread(
                target=self._export, daemon=True
            )  # the process does not wait for it any longer
            exporting.start()
            await asyncio.to_thread(exporting.join, EXPORT_SECONDS)
        await send(message)

    def _export(self) -> None:
        for provider in (self._tracer_provider or trace.get_tracer_provider(), metrics.get_meter_provider()):
            if isinstance(provider, _Exporting):
                try:
                    provider.force_flush(round(1_000 * EXPORT_SECONDS))
                except Exception as error:  # of an exporter, which may raise anything
                    logger.warning("telemetry was not exported: %s", type(error).__name__)

    @contextmanager
    def _span(self, scope: Scope, headers: MutableMapping[str, str]) -> Iterator[Span]:
        route = self._route(scope["path"])
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        shown = "HTTP" if method == "_OTHER" else method
        attributes: dict[str, Any] = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
        with self._tracer.start_as_current_span(
            f"{shown} {route}" if route else shown, propagate.extract(headers), kind=SpanKind.SERVER,
            attributes=attributes | ({"http.route": route} if route else {}), record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                yield span
            except Exception as error:  # its message may hold what was said
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    def _route(self, path: str) -> str | None:
        """Return a path as spans may show it; None: it is not known, and may say anything."""
        if path in self._paths:
            return path
        return next((f"{known}/*" for known in self._paths if path.startswith(f"{known}/")), None)


def _note_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_attribute("error.type", str(status))
        span.set_status(StatusCode.ERROR)


def _continued(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request as if the span that is current now had sent it."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    own = {name.encode("latin-1"): value.encode("latin-1") for name, value in carrier.items()}
    return [(name, value) for name, value in headers if name not in own] + list(own.items())
