"""Everything that one store holds, copied to another of any kind."""

import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from shared_core.arguments import whole_number
from shared_core.errors import DuplicateError
from shared_core.operations.session_copy import SessionCopy, read_mark
from shared_core.records import SessionKey
from shared_core.store import Store

Progress = Callable[[int, int], None]
"""Called with the number of messages that are done, and of all."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a copy brought.

    Attributes:
        sessions: how many sessions were looked at.
        messages: how many messages were stored.
        forgotten: how many messages were erased, because they were forgotten in the source.
        vectors: how many vectors were stored.
    """

    sessions: int
    messages: int
    forgotten: int
    vectors: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)


def copy_store(
    source: Store, target: Store, *, users: Collection[str | None] | None = None, jobs: int = 1,
    progress: Progress | None = None,
) -> CopyResult:  # fmt: skip
    """Copy sessions from one store to another, of any kind, exactly.

    That is messages with their ids, numbers, turns and times, branches, merges, tags, stashes and the reflog, forgotten
    ids, summaries and vectors. Indexes are built again when they are needed. Both stores may be in use.

    Call it again to bring what is new: messages, branches that were moved, sessions that were renamed; what was
    forgotten in the source is forgotten in the target. A copy that was interrupted goes on where it was. Let nobody
    write to the source during the last call, and the two are equal.

    Args:
        source: the store to copy from.
        target: the store to copy to. It may hold other sessions.
        users: whose sessions to copy; None stands for the user of nobody's sessions. By default, everybody's.
        jobs: how many sessions are copied at a time.
        progress: called with the number of messages that are done, and of all that are to be brought.

    Raises:
        DuplicateError: the target holds a session of the same name that is no copy of this one, or that somebody wrote
            to or forgot something in. Nothing is written.
        ValueError: the two are the same store, or `jobs` is out of range.
        StoreError: one of the stores cannot be read or written. Call it again to go on.
    """
    whole_number("jobs", jobs, least=1)
    origin = source.identity() or ""
    if source is target or (origin and origin == target.identity()):
        raise ValueError("the source and the destination are the same store; give the address of another one")
    found = _sessions(source, users)
    names = _Names(target, origin, found, _sessions(target, users))
    advance = _Advance(progress)
    for key in found:
        there = names.of(key)
        if there is not None:
            SessionCopy(source, target, key._replace(session_id=there), origin, advance).check()
    names.check()
    names.apply()
    copies = [SessionCopy(source, target, key, origin, advance) for key in found]
    for copy in copies:
        copy.create()
    advance.total = sum(map(_missing(source, target), found)) if progress is not None else 0
    _run(copies, jobs)
    return CopyResult(
        len(copies),
        sum(copy.messages for copy in copies),
        sum(copy.forgotten for copy in copies),
        sum(copy.vectors for copy in copies),
    )


def _sessions(store: Store, users: Collection[str | None] | None) -> list[SessionKey]:
    if users is None:
        return store.sessions()
    return store.sessions(*users) if users else []


def _missing(source: Store, target: Store) -> Callable[[SessionKey], int]:
    def missing(key: SessionKey) -> int:
        there = target.session(key.user_id, key.session_id)
        known = 0 if there is None else target.state(there).last_seq
        return max(source.state(key.key).last_seq - known, 0)

    return missing


def _run(copies: Sequence[SessionCopy], jobs: int) -> None:
    if jobs == 1 or len(copies) < 2:
        for copy in copies:
            copy.run()
        return
    with ThreadPoolExecutor(min(jobs, len(copies)), "copy") as threads:
        started = [threads.submit(copy.run) for copy in copies]
        try:
            for one in started:
                one.result()
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise


class _Advance:
    """Counts the messages that are done, of all jobs."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._done = 0
        self.total = 0

    def __call__(self, messages: int) -> None:
        if self._progress is not None:
            with self._lock:
                self._done += messages
                self._progress(self._done, max(self.total, self._done))


class _Names:
    """The sessions of the target that were copied before, which follow those of the source when these are renamed.

    Args:
        target: the store to copy to.
        origin: `Store.identity` of the source.
        found: the sessions to copy.
        there: those of the target, of the same users.
    """

    def __init__(self, target: Store, origin: str, found: Sequence[SessionKey], there: Sequence[SessionKey]) -> None:
        self._target = target
        self._wanted = {key.key: key for key in found}
        self.copied: dict[int, SessionKey] = {}
        for own in there:
            mark = read_mark(target, own.key)
            if mark is not None and mark.source == origin and mark.session in self._wanted:
                self.copied[mark.session] = own

    def of(self, key: SessionKey) -> str | None:
        """Return the name of the session in the target that this one goes to, now; None if there is none yet."""
        if key.key in self.copied:
            return self.copied[key.key].session_id
        there = self._target.session(key.user_id, key.session_id)
        # Another session's copy has this name, and will give it up.
        return None if there is None or there in self._ours else key.session_id

    @property
    def _ours(self) -> set[int]:
        return {there.key for there in self.copied.values()}

    @property
    def _renamed(self) -> dict[int, SessionKey]:
        """Session of the target -> the user and the new name."""
        wanted = {there: self._wanted[key] for key, there in self.copied.items()}
        return {there.key: one for there, one in wanted.items() if one.session_id != there.session_id}

    def check(self) -> None:
        """Raise DuplicateError if another session of the target has one of the new names, and holds messages."""
        for one in self._renamed.values():
            other = self._target.session(one.user_id, one.session_id)
            if other is not None and other not in self._ours and self._target.state(other).last_seq:
                raise DuplicateError(
                    f"the destination has a session {one.session_id!r} of its own; nothing was written: rename it"
                )

    def apply(self) -> None:
        """Rename the sessions; two may swap their names."""
        renamed = self._renamed
        for session in renamed:
            self._target.rename_session(session, f"copy {uuid.uuid4()}")
        for session, one in renamed.items():
            self._target.rename_session(session, one.session_id)
