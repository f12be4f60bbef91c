"""What a shell completes: the names of branches, tags and sessions that are in the store."""

from collections.abc import Callable
from contextlib import closing

import typer

from shared_core.errors import InfiniteMemoryError
from shared_core.store import Store
from shared_core.stores import database_path, open_store

__all__ = ["branch_names", "revisions", "session_names"]


def branch_names(context: typer.Context) -> list[str]:
    """Return the branches of the session that the command line names so far."""
    return _names(context, lambda store: _branches(store, context))


def revisions(context: typer.Context) -> list[str]:
    """Return the branches and tags of the session that the command line names so far."""
    return _names(context, lambda store: [*_branches(store, context), *_tags(store, context)])


def session_names(context: typer.Context) -> list[str]:
    """Return the sessions of the user that the command line names so far."""
    return _names(context, lambda store: [key.session_id for key in store.sessions(_option(context, "user"))])


def _branches(store: Store, context: typer.Context) -> list[str]:
    session = _session(store, context)
    return [] if session is None else [branch.name for branch in store.branches(session)]


def _tags(store: Store, context: typer.Context) -> list[str]:
    session = _session(store, context)
    return [] if session is None else [tag.name for tag in store.refs(session, "tag")]


def _session(store: Store, context: typer.Context) -> int | None:
    return store.session(_option(context, "user"), _option(context, "session") or "default")


def _names(context: typer.Context, read: Callable[[Store], list[str]]) -> list[str]:
    """Return what is read from the store; nothing if there is none: a shell has no use for an error."""
    try:
        path = database_path(_option(context, "store") or "chat.db")  # a shell does not wait for a server
        if not path.is_file():
            return []
        with closing(open_store(path)) as store:
            return read(store)
    except (InfiniteMemoryError, ValueError):
        return []


def _option(context: typer.Context, name: str) -> str | None:
    """Return an option as it is written after the command, before it, or in the environment."""
    for place in (context, context.find_root()):
        source = place.get_parameter_source(name)
        if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT"):
            return str(place.params[name])
    return None
