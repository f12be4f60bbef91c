"""The conversations that a server lends to its tools: those of the user who calls, and of nobody else."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from shared_core.doors.mcp_server.fenced_records import quoted_name
from shared_core.errors import UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.records import MAIN, SessionInfo
from shared_core.store import Store
from shared_core.tokens import as_counter

__all__ = ["DEFAULT_SESSION", "Conversations"]

DEFAULT_SESSION = "default"
"""The conversation of a call that names none."""

ESCAPES = frozenset("&\\")
"""What a name has that is shown escaped."""

NAMED = 10
"""How many conversations an error names where the one that was asked for does not exist."""


class Conversations:
    """Memories of the conversations of the user who calls.

    Args:
        store: the store, as for `InfiniteMemory`.
        session: the only conversation that is served; None: all of the user's.
        settings: other arguments of `InfiniteMemory`, such as `embedder`.
    """

    def __init__(self, store: str | Path | Store | None, *, session: str | None = None, **settings: Any) -> None:
        self.only = session
        self.counter = as_counter(settings.get("token_counter"))
        self._pool = SessionPool(store, **settings)
        self._wide = self._pool.sharing(**settings, scope="user")
        self._caller: ContextVar[str | None] = ContextVar("caller")

    @property
    def user(self) -> str | None:
        """The user who calls; None: nobody in particular.

        Raises:
            LookupError: no call has said so.
        """
        return self._caller.get()

    @contextmanager
    def called_by(self, user: str | None) -> Iterator[None]:
        """Let everything in a block, and in the threads that it starts, be done for a user."""
        before = self._caller.set(user)
        try:
            yield
        finally:
            self._caller.reset(before)

    def session_named(self, session: str | None) -> str:
        """Return the conversation that a call means.

        Raises:
            ValueError: the server serves another one alone.
        """
        if self.only is None:
            return self._as_stored(session or DEFAULT_SESSION)
        if session not in (None, self.only):
            raise ValueError(f"session={session!r}: this server serves {self.only!r} alone; leave session out")
        return self.only

    @contextmanager
    def writing(self, session: str | None) -> Iterator[InfiniteMemory]:
        """Lend the memory of a conversation, which begins with its first message, on `main`.

        Raises:
            ValueError: another conversation is served alone.
        """
        with self._pool.use(self.session_named(session), self.user) as memory:
            memory.checkout(MAIN)
            yield memory

    @contextmanager
    def reading(self, session: str | None, *, of_user: bool = False) -> Iterator[InfiniteMemory]:
        """Lend the memory of a conversation that exists, or of `default`, which may be empty, on `main`.

        Args:
            session: the conversation; None: the one served alone, or `default`.
            of_user: whether prompts of this memory search all conversations of the user.

        Raises:
            ValueError: as for `writing`.
            UnknownReferenceError: there is no such conversation.
        """
        chosen = self.session_named(session)
        if session is not None and self._key(chosen) is None:
            there = ", ".join(f"'{quoted_name(info.session_id)}'" for info in self.sessions(NAMED)) or "none yet"
            raise UnknownReferenceError(f"there is no session {session!r}; the newest are: {there}")
        with (self._wide if of_user else self._pool).use(chosen, self.user) as memory:
            memory.checkout(MAIN)
            yield memory

    def sessions(self, limit: int) -> list[SessionInfo]:
        """Return the newest conversations of the user, at most so many."""
        if self.only is None:
            return self._pool.sessions(self.user, limit)
        return [info for info in self._pool.sessions(self.user) if info.session_id == self.only][:limit]

    def check(self) -> None:
        """Read from the store; StoreError if it cannot be read."""
        self._pool.store.sessions(limit=1)

    def _as_stored(self, session: str) -> str:
        """Return the conversation whose name was shown so: escaped, where it imitates the fences."""
        if not ESCAPES.intersection(session) or self._key(session) is not None:
            return session
        return shown_as(session, (info.session_id for info in self._pool.sessions(self.user)))

    def _key(self, session: str) -> int | None:
        return self._pool.store.for_user(self.user).session(self.user, session)

    def close(self) -> None:
        """Save the indexes and release the store. Closing twice is allowed."""
        self._pool.close()


def shown_as(name: str, there: Iterable[str]) -> str:
    """Return which of the names that there are is shown so; if none is, the name as it is."""
    return next((one for one in there if quoted_name(one) == name), name)
