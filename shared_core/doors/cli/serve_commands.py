"""The commands that serve a store: to any OpenAI client, and to clients of the Model Context Protocol."""

import logging
import os
import re
import sys
from contextlib import ExitStack, closing
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shared_core.arguments import session_names
from shared_core.doors.cli.models import ECHO
from shared_core.doors.cli.options import EmbedderName, ReserveTokens, SessionOptions, say, with_options
from shared_core.doors.serving.bearer_tokens import BearerTokens, require_named_users, require_tokens
from shared_core.errors import installed, require
from shared_core.pool import SessionPool

if TYPE_CHECKING:
    from shared_core.doors.openai_proxy.upstream import Upstream
    from shared_core.events.telemetry import OpenTelemetryEvents

KEY = "INFINITE_MEMORY_UPSTREAM_KEY"
"""The variable with the key for upstream. A key on a command line could be read by all users of the machine."""

UNTOLD = 32_768
"""The context limit of a model of which nobody tells it, in tokens."""

ANYBODY = "requests name their conversations: leave out --session"


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
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="The origin of a chat program that runs in a browser, such as https://chat.example. Can be repeated.",
        ),
    ] = None,
    no_inspector: Annotated[
        bool, typer.Option("--no-inspector", help="Do not serve the page at / that shows what is stored.")
    ] = False,
) -> None:
    """Serve the memory to any OpenAI client, as a proxy.

    It stores what is said, sends the model the prompt that fits, and passes the answer on. Point the client's base URL
    at http://127.0.0.1:8765/v1. With --user, requests that name no user are that user's. In the file of tokens, the
    user * is a program that names the user of each request.

    Examples:
      infinite-memory serve --upstream https://api.openai.com/v1 --window gpt-4o-mini=128000
      infinite-memory serve --host 0.0.0.0 --tokens tokens.txt --upstream http://localhost:11434/v1
    """
    if options.session is not None:
        raise typer.BadParameter(ANYBODY)
    if (upstream is None) == (model is None) or model not in (None, ECHO):
        raise typer.BadParameter(f"say who answers: --upstream URL, or --model {ECHO}")
    known = tokens_for(host, tokens)
    for package in ("starlette", "uvicorn", "httpx"):
        require(package, 'pip install "infinite-memory[server]"')
    from shared_core.doors.openai_proxy.app import create_app
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
            allow_origins=allow_origin or (),
        )  # fmt: skip
        say(f"serving {options.shown_store} at {url_of(host, opened)}/v1; Ctrl-C stops it")
        if not no_inspector:
            say(f"what is stored and sent is shown at {url_of(host, opened)}/")
        server_for(app, grace=grace, drain=drain, at_end=None if hook is None else hook.export).run(sockets=[opened])


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


@with_options
def mcp(
    options: SessionOptions,
    http: Annotated[bool, typer.Option("--http", help="Serve HTTP instead of the standard streams.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8766,
    tokens: TokensFile = None,
    grace: Grace = 30,
    drain: Drain = 0,
    embedder: EmbedderName = None,
) -> None:
    """Serve the memory as tools to MCP clients.

    A client, such as Claude Desktop or an editor, starts the command and talks to it over the standard streams. With
    --http it serves any number of clients at /mcp; --host, --port, --tokens, --grace and --drain are for that.

    Examples:
      infinite-memory mcp --user ann
      infinite-memory mcp --http --host 0.0.0.0 --tokens tokens.txt
    """
    if not http and tokens is not None:
        raise typer.BadParameter("--tokens is for --http: over the standard streams, --user says who calls")
    if tokens is not None and options.user is not None:
        raise typer.BadParameter("the tokens say who calls: leave out --user, or --tokens")
    session_names(options.session_id, options.user)
    known = tokens_for(host, tokens) if http else None
    require_named_users(known)
    for package in ("mcp.server.mcpserver", "starlette", "uvicorn"):  # the SDK has the first from version 2.3 on
        require(package, 'pip install "infinite-memory[mcp]"')
    from shared_core.doors.mcp_server.conversations import Conversations
    from shared_core.doors.mcp_server.server import MemoryServer
    from shared_core.doors.mcp_server.transports import PATH, http_app, serve_stdio
    from shared_core.doors.serving.listener import listener, server_for, url_of

    hook = telemetry_hook()
    settings: dict[str, Any] = {"on_event": hook} | ({} if embedder is None else {"embedder": embedder})
    with ExitStack() as stack:
        opened = stack.enter_context(listener(host, port)) if http else None  # before a store is created
        conversations = stack.enter_context(closing(Conversations(options.store, session=options.session, **settings)))
        server = MemoryServer(conversations, user=options.user, tokens=known, version=version("infinite-memory"))
        if opened is None:
            serve_stdio(server)
            return
        app = http_app(server, conversations, host=host, tokens=known)
        say(f"serving MCP at {url_of(host, opened)}{PATH}; Ctrl-C stops it")
        server_for(app, grace=grace, drain=drain, at_end=None if hook is None else hook.export).run(sockets=[opened])


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
