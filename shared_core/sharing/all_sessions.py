"""Share several conversations at once: those of a user, or all that a store holds."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from shared_core.base import TokenCounter
from shared_core.messages import Message
from shared_core.records import Draft
from shared_core.redact import Redact
from shared_core.sharing.export import Progress, Source, write_sessions
from shared_core.sharing.importer import ImportResult, Target, bring
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tokens import as_counter, body_tokens

__all__ = ["export_sessions", "import_sessions"]


def export_sessions(
    store: str | Path | Store, path: str | os.PathLike[str], *, users: Sequence[str | None] | None = None,
    vectors: bool = False, redact: Redact | Sequence[Redact] = (), progress: Progress | None = None,
) -> int:  # fmt: skip
    """Write all conversations of some users, or of a store, to one file; return how many messages it holds.

    Args:
        store: a path (SQLite) or a `Store`.
        path: the file; it appears whole or not at all, and replaces one that is there.
        users: whose; None among them: those that belong to nobody. None: everybody's.
        vectors: as in `InfiniteMemory.export`; so are `redact` and `progress`.
        redact: what not to tell.
        progress: called with how many messages are done and how many there are.

    Raises:
        StoreError: the store cannot be read or the file not be written.
    """
    rules = [redact] if callable(redact) else list(redact)
    with _Opened(store) as opened:
        owners = dict.fromkeys(one.user_id for one in opened.sessions()) if users is None else users
        sources = [Source(*one) for user in owners for one in opened.sessions(user)]
        return write_sessions(opened, sources, path, vectors=vectors, rules=rules, progress=progress)


def import_sessions(
    store: str | Path | Store, path: str | os.PathLike[str], *, user_id: str | None = None,
    token_counter: TokenCounter | Callable[[str], int] | str | None = None, progress: Progress | None = None,
) -> list[ImportResult]:  # fmt: skip
    """Bring all conversations of a file into a store, all of them or nothing; what is known is left as it is.

    Args:
        store: a path (SQLite) or a `Store`.
        path: as in `InfiniteMemory.import_file`; a list that has no name goes to the session `"default"`.
        user_id: whose they become; None: whose the file says.
        token_counter: counts what is stored, as in `InfiniteMemory`.
        progress: called with how many messages are done and how many there are, of the conversation at hand where
            another program wrote the file.

    Raises:
        InputFileError: the file is not what it should be; nothing is changed.
        StoreError: the store cannot be written.
    """
    counter = as_counter(token_counter)

    def route(user: str | None, session_id: str, count: int) -> Target:
        return Target(user if user_id is None else user_id, session_id or "default")

    def draft(message: Message) -> Draft:
        complete = message if message.created_at is not None else message.replace(created_at=datetime.now(UTC))
        plain = Draft(complete)
        if counter.name is None:
            return plain
        return replace(plain, counter=counter.name, tokens=body_tokens(complete, counter))

    with _Opened(store) as opened:
        return [one.result for one in bring(opened, path, route, draft, progress=progress)]


class _Opened:
    """A store for a while: one that was given stays open."""

    def __init__(self, store: str | Path | Store) -> None:
        self._given = isinstance(store, Store)
        self._store = open_store(store)

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *exc_info: object) -> None:
        if not self._given:
            self._store.close()
