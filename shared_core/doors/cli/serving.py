"""What the commands that serve share: options, traces, and the error for an extra that is not installed."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared_core.doors.serving.bearer_tokens import BearerTokens, require_tokens
from shared_core.errors import MissingExtraError, installed

if TYPE_CHECKING:
    from shared_core.events.telemetry import OpenTelemetryEvents

__all__ = [
    "Drain",
    "Grace",
    "Host",
    "Port",
    "TokensFile",
    "installed_extra",
    "telemetry_hook",
    "tokens_for",
    "traced",
]

Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen at.")]
Port = Annotated[
    int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port to listen at; 0: any that is free.")
]
TokensFile = Annotated[
    str | None,
    typer.Option(
        "--tokens",
        metavar="FILE",
        help="A file with a line USER TOKEN for each user. A request must bear one of the tokens, and sees what "
        "belongs to that user. Every address but loopback needs it.",
    ),
]
Grace = Annotated[
    float,
    typer.Option("--grace", metavar="SECONDS", min=1, help="How long running requests may take when the server stops."),
]
Drain = Annotated[
    float,
    typer.Option(
        "--drain",
        metavar="SECONDS",
        min=0,
        help="How long the server goes on serving when it is told to stop, while /readyz says 503.",
    ),
]


def tokens_for(host: str, path: str | None) -> BearerTokens | None:
    """Return the tokens of a file; None if there is no file and an address needs none.

    Raises:
        InputFileError: the file cannot be read, or holds something else.
        ValueError: other machines reach the address, and there is no file.
    """
    tokens = None if path is None else BearerTokens.read(path)
    require_tokens(host, tokens)
    return tokens


def telemetry_hook() -> "OpenTelemetryEvents | None":
    """Return a hook for OpenTelemetry's global providers; None if its API is not installed.

    Nothing is recorded before the program that runs the command has set providers, as `opentelemetry-instrument` does.
    """
    if not installed("opentelemetry.trace"):
        return None
    from shared_core.events.telemetry import OpenTelemetryEvents

    return OpenTelemetryEvents()


def traced(
    app: Callable[..., Any], hook: "OpenTelemetryEvents | None", paths: Collection[str], polled: Collection[str] = ()
) -> Callable[..., Any]:
    """Return an ASGI application whose requests are spans, or the same one without OpenTelemetry's API.

    Args:
        app: the application.
        hook: what `telemetry_hook` returned.
        paths: the paths that spans name.
        polled: paths whose requests get no span.
    """
    if hook is None:
        return app
    from shared_core.doors.serving.request_spans import RequestSpans

    return RequestSpans(app, paths, polled=polled)


@contextmanager
def installed_extra(extra: str, needed: str, packages: Collection[str]) -> Iterator[None]:
    """Raise MissingExtraError if a package of an extra is missing when a server is imported in the block.

    Args:
        extra: the name of the extra.
        needed: what the command needs, in words.
        packages: what the extra installs. A module of another package that is missing is a defect, and shows itself.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        text = f'this command needs {needed}: pip install "infinite-memory[{extra}]"'
        raise MissingExtraError(text, name=missing) from error
