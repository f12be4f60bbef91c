"""The command that serves a store to programs that speak the Model Context Protocol."""

from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Self

import typer

from shared_core.arguments import session_names
from shared_core.doors.cli import completion
from shared_core.doors.cli.options import EmbedderName, StorePath, with_options
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
from shared_core.doors.serving.bearer_tokens import require_named_users

mcp_commands = typer.Typer()

PACKAGES = {"mcp", "starlette", "uvicorn"}
"""What the extra installs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOptions:
    """What is served, and to whom.

    Attributes:
        store: path or URL of the database.
        session: the only conversation that is served. None: all of the user's.
        user: whose conversations are served. None: those of nobody, unless tokens say who calls.
    """

    store: StorePath = "chat.db"
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="ID",
            autocompletion=completion.session_names,
            help="Serve this conversation and no other.",
        ),
    ] = None
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="The ID of the user whose conversations are served.")
    ] = None

    def with_whole_id(self) -> Self:
        """Return these options; the session may not exist yet."""
        return self


@mcp_commands.command()
@with_options
def mcp(
    options: ServedOptions,
    http: Annotated[bool, typer.Option("--http", help="Serve HTTP instead of the standard streams.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8766,
    tokens: TokensFile = None,
    grace: Grace = 30,
    drain: Drain = 0,
    branches: Annotated[
        bool, typer.Option("--branches", help="Let clients work on branches: with fork, merge and an argument branch.")
    ] = False,
    embedder: EmbedderName = None,
) -> None:
    """Serve the memory as tools to MCP clients.

    A client, such as Claude Desktop or an editor, starts the command and talks to it over the standard streams. With
    --http it serves any number of clients at /mcp; --host, --port, --tokens, --grace and --drain are for that.
    """
    if not http and tokens is not None:
        raise typer.BadParameter("--tokens is for --http: over the standard streams, --user says who calls")
    if tokens is not None and options.user is not None:
        raise typer.BadParameter("the tokens say who calls: leave out --user, or --tokens")
    session_names(options.session if options.session is not None else "default", options.user)
    known = tokens_for(host, tokens) if http else None
    require_named_users(known)
    with installed_extra("mcp", "the MCP SDK, version 2.3 or newer", PACKAGES):
        from shared_core.doors.mcp_server.conversations import Conversations
        from shared_core.doors.mcp_server.server import MemoryServer
        from shared_core.doors.mcp_server.transports import PATH, PATHS, http_app, serve_stdio
        from shared_core.doors.serving.listener import listener, server_for, url_of
    hook = telemetry_hook()
    settings: dict[str, Any] = {"on_event": hook} | ({} if embedder is None else {"embedder": embedder})
    with ExitStack() as stack:
        opened = stack.enter_context(listener(host, port)) if http else None  # before a store is created
        conversations = stack.enter_context(closing(Conversations(options.store, session=options.session, **settings)))
        server = MemoryServer(
            conversations, user=options.user, tokens=known, branches=branches, version=version("infinite-memory")
        )
        if opened is None:
            serve_stdio(server)
            return
        app = http_app(server, conversations, host=host, tokens=known)
        say(f"serving MCP at {url_of(host, opened)}{PATH}; Ctrl-C stops it")
        server_for(traced(app, hook, PATHS), grace=grace, drain=drain).run(sockets=[opened])
