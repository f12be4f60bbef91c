"""What of a store can be read: all of it is, and what is left of a damaged one goes into a new store."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.messages import storable
from shared_core.operations.salvage import Piece, Salvage, free_name, tried
from shared_core.records import Restored, SessionKey
from shared_core.store import Store
from shared_core.stores import SQLiteStore, open_store, read_address

Progress = Callable[[int, int], None]
"""Called with the number of messages that were read, and of all."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that cannot be read, or that the database itself finds wrong.

    Attributes:
        what: what it is, such as "message 'm7'".
        why: why it cannot be read, or what is wrong with it.
        session: the name of the session. None: the damage is to the store as a whole.
        user: the user whose session it is. None: nobody's.
    """

    what: str
    why: str
    session: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What a check found.

    Attributes:
        messages: how many messages can be read.
        sessions: how many sessions there are.
        damages: what is damaged.
    """

    messages: int
    sessions: int
    damages: Sequence[Damage]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)


def check_store(store: str | Path | Store, *, progress: Progress | None = None) -> StoreCheck:
    """Read everything in a store, have the database check its files, and say what is damaged; nothing is written.

    A file is seen as it is at one moment, and need not be one that a memory can open.

    Args:
        store: a path, an address or a store.
        progress: called with the number of messages that were read, and of all.

    Raises:
        StoreError: it cannot be opened at all, or is not ours.
    """
    with _opened(store) as source:
        return _Reading(source, None, progress).run()


def recover_store(store: str | Path | Store, target: Store, *, progress: Progress | None = None) -> StoreCheck:
    """Write everything that can be read of a damaged store to a new one, and return what `check_store` does.

    That is messages, branches, tags, stashes, the reflog, summaries, vectors and forgotten ids. A branch that leads
    through something that cannot be read keeps the messages that can. A session whose name is lost is nobody's, and
    called `recovered-` and its number.

    Args:
        store: as for `check_store`.
        target: the new store, of any kind.
        progress: as for `check_store`.

    Raises:
        DuplicateError: the target holds a session of the same name. Those before it are written.
        StoreError: as for `check_store`; or the target cannot be written.
    """
    with _opened(store) as source:
        return _Reading(source, target, progress).run()


@contextmanager
def _opened(store: str | Path | Store) -> Iterator[Store]:
    place = store.path if isinstance(store, SQLiteStore) else store
    if isinstance(place, Store) or place is None:
        assert isinstance(store, Store)
        yield store
        return
    found = read_address(place)
    with closing(SQLiteStore.to_check(found) if isinstance(found, Path) else open_store(found)) as opened:
        yield opened


class _Reading:
    """Reads a store, and writes what it reads to another one if there is one."""

    def __init__(self, source: Store, target: Store | None, progress: Progress | None) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._damages: dict[Damage, None] = {}
        self._read = self._total = 0

    def run(self) -> StoreCheck:
        """Read everything."""
        for fault in self._source.faults():
            self._note("the database", fault)
        sessions = self._sessions()
        if self._progress is not None:
            with suppress(StoreError):
                self._total = sum(self._source.stats(one.key)["messages"] for one in sessions)
        for session in sessions:
            self._read_session(session)
        return StoreCheck(self._read, len(sessions), tuple(self._damages))

    def _sessions(self) -> list[SessionKey]:
        """Return all sessions; one whose name is lost gets another."""
        keys = tried(self._note, "the sessions", self._source.session_keys) or []
        found = tried(self._note, "the names of sessions", self._source.sessions)
        if found is None:
            found = [one for key in keys for one in self._named(key)]
        found = [one for one in found if all(storable(name) == name for name in (one.session_id, one.user_id or ""))]
        names = {one.session_id for one in found}
        for key in sorted({*keys} - {one.key for one in found}):
            lost = SessionKey(key, None, free_name(key, names))
            self._note(f"the name of session number {key}", "it is lost", lost)
            found.append(lost)
        return found

    def _named(self, key: int) -> list[SessionKey]:
        """Return the session with a key; none if its name cannot be read."""
        read = tried(self._note, "the names of sessions", self._source.sessions, after=key - 1, limit=1) or []
        return [one for one in read if one.key == key]

    def _note(self, what: str, why: str, session: SessionKey | None = None) -> None:
        whose = () if session is None else (session.session_id, session.user_id)
        self._damages[Damage(what, why, *whose)] = None

    def _read_session(self, session: SessionKey) -> None:
        note = partial(self._note, session=session)
        pieces = map(self._counted, Salvage(self._source, session, note).pieces())
        if self._target is None:
            for _ in pieces:
                pass
            return
        if self._target.session(session.user_id, session.session_id) is not None:
            raise DuplicateError(f"there is a session {session.session_id!r} already; recover to a new store")
        with self._target.transaction():
            key = self._target.create_session(session.user_id, session.session_id)
            for piece in pieces:
                try:
                    _write(self._target, key, piece)
                except (UnknownReferenceError, DuplicateError) as error:  # it refers to what is lost
                    note("a part of the session", str(error))

    def _counted(self, piece: Piece) -> Piece:
        if isinstance(piece, Restored) and piece.records:
            self._read += len(piece.records)
            if self._progress is not None:
                self._progress(self._read, max(self._total, self._read))
        return piece


def _write(target: Store, session: int, piece: Piece) -> None:
    if isinstance(piece, Restored):
        target.restore(session, piece)
    else:
        target.keep(session, piece)
