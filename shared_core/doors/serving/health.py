"""The paths by which whoever runs a server learns whether its process lives, and whether it can answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shared_core.errors import StoreError

__all__ = ["HEALTH", "READY", "health_routes", "not_ready"]

logger = logging.getLogger(__name__)

HEALTH = "/healthz"
"""Answers 200 while the process runs."""

READY = "/readyz"
"""Answers 200 if the store can be read and the server is not about to stop, else 503."""


def health_routes(check: Callable[[], Any]) -> list[Route]:
    """Return both routes.

    Args:
        check: reads from the store; raises a StoreError if it cannot be read. It is called in a thread.
    """

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        try:
            await asyncio.to_thread(check)
        except StoreError as error:  # its message may name files and addresses of the server
            logger.error("the store cannot be read: %s", type(error).__name__)
            return not_ready("the store cannot be read")
        return JSONResponse({"status": "ready"})

    return [Route(HEALTH, health, methods=["GET"]), Route(READY, ready, methods=["GET"])]


def not_ready(why: str) -> Response:
    """Return the answer of a server that is not ready."""
    return JSONResponse({"status": why}, 503, {"retry-after": "1"})
