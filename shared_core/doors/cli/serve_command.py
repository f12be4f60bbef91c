"""The command that serves the memory to any OpenAI client: serve."""

import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shared_core.doors.cli.models import ECHO
from shared_core.doors.cli.options import EmbedderName, ReserveTokens, SessionOptions, with_options
from shared_core.doors.cli.printing import say
from shared_core.doors.cli.serving import (
    Drain,
    Grace,
    Host,
    Port,
    TokensFile,
    installed_extra,
    telemetry_hook,
    tokens_for,
    traced,
)
from shared_core.pool import SessionPool

if TYPE_CHECKING:
    from shared_core.doors.openai_proxy.upstream import Upstream

serve_commands = typer.Typer()

KEY = "INFINITE_MEMORY_UPSTREAM_KEY"
"""The variable with the key for upstream. A key on a command line could be read by all users of the machine."""

PACKAGES = {"starlette", "uvicorn", "httpx"}
"""What the extra installs."""

UNTOLD = 32_768
"""The context limit of a model of which nobody tells it, in tokens."""

ANYBODY = "requests name their conversations: leave out --session"


@serve_commands.command()
@with_options
def serve(
    options: SessionOptions,
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="INFINITE_MEMORY_UPSTREAM",
            help="The server of the model, up to /v1, such as https://api.openai.com/v1. Its key is the variable "
            f"{KEY}; without one, a request's own key is passed on if no tokens are needed.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="echo", help="Answer without a model: echo quotes the line of the prompt that answers."),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    tokens: TokensFile = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help=f"The limit of all models. Else upstream's, or {UNTOLD}.")
    ] = None,
    reserve_tokens: ReserveTokens = 500,
    window: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=N", help="The context limit of one model, in tokens. Can be repeated."),
    ] = None,
    aside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="A regular expression for the beginning of prompts that a client sends about a chat, such as for its "
            "title: they are answered and not stored. Those of Open WebUI and LibreChat are known. Can be repeated.",
        ),
    ] = None,
    embedder: EmbedderName = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="How long upstream may send nothing.")
    ] = 600,
    retries: Annotated[
        int, typer.Option(metavar="N", min=0, help="How often a connection to upstream that fails is tried again.")
    ] = 2,
    max_body: Annotated[
        float, typer.Option(metavar="MB", min=0.001, help="The size of the largest request, in megabytes.")
    ] = 32,
    max_requests: Annotated[int, typer.Option(metavar="N", min=1, help="How many requests are served at a time.")] = 64,
    grace: Grace = 30,
    drain: Drain = 0,
    no_inspector: Annotated[
        bool, typer.Option("--no-inspector", help="Do not serve the page at / that shows what is stored.")
    ] = False,
) -> None:
    """Serve the memory to any OpenAI client, as a proxy.

    It stores what is said, sends the model the prompt that fits, and passes the answer on. Point the client's base URL
    at http://127.0.0.1:8765/v1. With --user, requests that name no user are that user's. In the file of tokens, the
    user * is a program that names the user of each request.
    """
    if options.session != "default":
        raise typer.BadParameter(ANYBODY)
    if (upstream is None) == (model is None) or model not in (None, ECHO):
        raise typer.BadParameter(f"say who answers: --upstream URL, or --model {ECHO}")
    known = tokens_for(host, tokens)
    with installed_extra("server", "starlette, uvicorn and httpx", PACKAGES):
        from shared_core.doors.openai_proxy.app import ALL_PATHS, create_app
        from shared_core.doors.openai_proxy.inspector.endpoints import POLLED
        from shared_core.doors.serving.listener import listener, server_for, url_of
    windows, asides = _windows(window or []), _patterns(aside or [])
    answers = _upstream(upstream, timeout, retries, tells_windows=max_tokens is None)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs addresses with what they hold
    with listener(host, port) as opened:
        hook = telemetry_hook()
        pool = SessionPool(
            options.store, max_tokens=max_tokens or UNTOLD, reserve_tokens=reserve_tokens, embedder=embedder,
            on_event=hook,
        )  # fmt: skip
        app = create_app(
            pool, answers, tokens=known, user=options.user, windows=windows, most_bytes=int(max_body * 2**20),
            most_requests=max_requests, inspector=not no_inspector, asides=asides,
        )  # fmt: skip
        say(f"serving {options.shown_store} at {url_of(host, opened)}/v1; Ctrl-C stops it")
        if not no_inspector:
            say(f"what is stored and sent is shown at {url_of(host, opened)}/")
        server_for(traced(app, hook, ALL_PATHS, (POLLED,)), grace=grace, drain=drain).run(sockets=[opened])


def _upstream(url: str | None, timeout: float, retries: int, *, tells_windows: bool) -> "Upstream":
    from shared_core.doors.openai_proxy.echo_upstream import EchoTransport
    from shared_core.doors.openai_proxy.upstream import Upstream

    if url is None:
        return Upstream("http://echo.invalid/v1", transport=EchoTransport())
    return Upstream(url, key=os.environ.get(KEY), timeout=timeout, retries=retries, tells_windows=tells_windows)


def _windows(given: list[str]) -> dict[str, int]:
    """Return the context limits of models, as given on the command line."""
    windows = {}
    for one in given:
        name, _, tokens = one.rpartition("=")
        if not name or not tokens.isdecimal() or not int(tokens):
            raise typer.BadParameter(f"--window {one}: expected MODEL=N, for example gpt-4o-mini=128000")
        windows[name] = int(tokens)
    return windows


def _patterns(given: list[str]) -> list[str]:
    """Return regular expressions, as given on the command line."""
    for one in given:
        try:
            re.compile(one)
        except re.error as error:
            raise typer.BadParameter(f"--aside {one}: expected a regular expression: {error}") from None
    return given
