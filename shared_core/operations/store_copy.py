"""Everything that one store holds, copied to another of any kind, and brought up to date when it is copied again."""

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from shared_core.errors import DuplicateError, StoreError
from shared_core.queries import Counts
from shared_core.records import ALL, Branch, Delete, Drop, Position, Restored, Segment, SessionKey, Snapshot, VectorRows
from shared_core.sharing.transfer import (
    Tree,
    forgotten_of,
    pages,
    pages_of,
    read_tree,
    write_page,
)
from shared_core.store import Store

Progress = Callable[[int, int], None]
"""Called with the number of messages that are done, and of all."""

MARK = "copied"
"""The name of the snapshot in which a copy notes where it comes from; forgetting removes it with all others."""

ATTEMPTS = 10
"""How often the copy of a session starts over because messages were forgotten in the source meanwhile."""


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
    source: Store, target: Store, *, users: Collection[str | None] | None = None,
    progress: Progress | None = None,
) -> CopyResult:  # fmt: skip
    """Copy sessions from one store to another, of any kind, exactly.

    That is messages with their ids, numbers, turns and times, branches, merges, tags, stashes and the reflog, forgotten
    ids, summaries and vectors. Indexes are built again when they are needed. Both stores may be in use; whoever writes
    to the target waits while a session is copied, for about 6 s of 100,000 messages.

    Call it again to bring what is new: messages, branches that were moved, sessions that were renamed; what was
    forgotten in the source is forgotten in the target. A copy that was interrupted goes on with the session where it
    was. Let nobody write to the source during the last call, and the two are equal.

    Args:
        source: the store to copy from.
        target: the store to copy to. It may hold other sessions.
        users: whose sessions to copy; None stands for the user of nobody's sessions. By default, everybody's.
        progress: called with the number of messages that are done, and of all that are to be brought.

    Raises:
        DuplicateError: the target holds a session of the same name that is no copy of this one, or that somebody wrote
            to or forgot something in. Nothing of that session is written, and nothing at all if it was so before.
        ValueError: the two are the same store.
        StoreError: one of the stores cannot be read or written. Call it again to go on.
    """
    origin = source.identity() or ""
    if source is target or (origin and origin == target.identity()):
        raise ValueError("the source and the destination are the same store; give the address of another one")
    found = _sessions(source, users)
    _prepare(target, origin, found, _sessions(target, users))
    copies = [_SessionCopy(source, target, key, origin) for key in found]
    total = sum(copy.missing() for copy in copies) if progress is not None else 0
    done = 0

    def advance(messages: int) -> None:
        nonlocal done
        done += messages
        if progress is not None:
            progress(done, max(total, done))

    for copy in copies:
        copy.run(advance)
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


def _prepare(target: Store, origin: str, found: Sequence[SessionKey], there: Sequence[SessionKey]) -> None:
    """Rename the copies whose originals were renamed; DuplicateError if a session of the target is in the way."""
    marks = {one: _read_mark(target, one.key) for one in there}
    copies = {mark.session: one for one, mark in marks.items() if mark is not None and mark.source == origin}
    ours = {copies[key.key].key for key in found if key.key in copies}
    renamed: dict[int, str] = {}
    for key in found:
        copy, named = copies.get(key.key), target.session(key.user_id, key.session_id)
        if copy is not None:
            _mark_of_copy(target, copy.key, origin, key)
            if copy.session_id != key.session_id:
                renamed[copy.key] = key.session_id
        if named is not None and named not in ours:
            _mark_of_copy(target, named, origin, key)
    for session in renamed:  # two may swap their names
        target.rename_session(session, f"copy {uuid.uuid4()}")
    for session, name in renamed.items():
        target.rename_session(session, name)


@dataclass(frozen=True, slots=True)
class _Mark:
    """What a session was copied from, and how far.

    Attributes:
        source: `Store.identity` of the store.
        session: the key of the session there.
        epoch: of the session there; what was forgotten until then is forgotten here, too.
        last_seq: the number of the newest message that was copied.
    """

    source: str
    session: int
    epoch: int
    last_seq: int


def _read_mark(store: Store, session: int) -> _Mark | None:
    """Return what a session was copied from; None if it was not, or something was forgotten in it since."""
    data = store.snapshot(session, MARK)
    return None if data is None else _Mark(**json.loads(data))


def _mark_of_copy(target: Store, session: int, origin: str, key: SessionKey) -> _Mark | None:
    """Return the mark of a session of the target, None if that is empty.

    Raises:
        DuplicateError: it holds messages that did not come from this session of the source alone.
    """
    mark, newest = _read_mark(target, session), target.state(session).last_seq
    if mark is not None and (mark.source, mark.session, mark.last_seq) == (origin, key.key, newest):
        return mark
    if newest:
        raise DuplicateError(
            f"session {key.session_id!r} of the destination is no copy of this one, or was changed there since; "
            "nothing of it was written: copy to a new store"
        )
    return None


class _ForgottenError(Exception):
    """Messages were forgotten in the source while they were copied."""


class _SessionCopy:
    """Copies one session, or what is new of it, in one transaction of the target.

    Args:
        source: the store to copy from.
        target: the store to copy to.
        key: the session in the source.
        origin: `Store.identity` of the source.

    Attributes:
        messages, forgotten, vectors: as in `CopyResult`.
    """

    def __init__(self, source: Store, target: Store, key: SessionKey, origin: str) -> None:
        self._source = source
        self._target = target
        self._from = key
        self._to = target.create_session(key.user_id, key.session_id)
        self._origin = origin
        self.messages = self.forgotten = self.vectors = 0

    def missing(self) -> int:
        """Return about how many messages are to be brought."""
        stores = ((self._source, self._from.key), (self._target, self._to))
        wanted, known = (store.state(session).last_seq for store, session in stores)
        return max(wanted - known, 0)

    def run(self, advance: Callable[[int], None]) -> None:
        """Bring everything that the target does not hold; call `advance` with the number of messages of each page."""
        for _ in range(ATTEMPTS):
            tree = read_tree(self._source, self._from.key)
            self.messages = self.forgotten = self.vectors = 0
            with suppress(_ForgottenError), self._target.transaction():
                self._bring(tree, advance)
                return
        raise StoreError(
            f"session {self._from.session_id!r} was not copied: messages were forgotten during all {ATTEMPTS} "
            "attempts; try again"
        )

    def _bring(self, tree: Tree, advance: Callable[[int], None]) -> None:
        there = read_tree(self._target, self._to)
        mark = _mark_of_copy(self._target, self._to, self._origin, self._from)
        behind = mark is not None and mark.epoch != tree.state.epoch
        if behind or self._differ("forgotten"):
            self._forget(stale=behind)
        self._bring_messages(tree, there, advance)
        self._bring_names(tree, there)
        self._bring_summaries(tree.segments)
        spaces = self._source.spaces(self._from.key)
        if spaces != self._target.spaces(self._to) or self._differ("vectors"):
            self._bring_vectors(spaces)
        done = _Mark(self._origin, self._from.key, tree.state.epoch, tree.state.last_seq)
        if _read_mark(self._target, self._to) != done:
            self._target.keep(self._to, Snapshot(MARK, json.dumps(asdict(done)).encode()))
        if self._source.state(self._from.key).epoch != tree.state.epoch:
            raise _ForgottenError

    def _differ(self, what: str) -> bool:
        """Return whether the two stores hold other numbers of something."""
        (wanted,), (known,) = self._source.read(self._from.key, Counts()), self._target.read(self._to, Counts())
        return bool(wanted[what] != known[what])

    def _forget(self, *, stale: bool) -> None:
        """Forget what is forgotten in the source; `stale`: drop all vectors, which forgetting may have done, too."""
        gone: list[Position] = []
        for ids in forgotten_of(self._source, self._from.key):
            gone += [record.position for record in self._target.get(self._to, ids)]
            known = self._target.are_forgotten(self._to, ids)
            self._target.restore(self._to, Restored(forgotten=tuple(id_ for id_ in ids if id_ not in known)))
        kept = [position for position, _ in self._target.stored(self._to)] if stale else []
        if gone or kept:
            self._target.forget(self._to, gone, stale=kept)
        self.forgotten = len(gone)

    def _bring_messages(self, tree: Tree, there: Tree, advance: Callable[[int], None]) -> None:
        known = {number: segment.tip for number, segment in there.segments.items()}
        for page in pages_of(self._source, self._from.key, (), there.state.last_seq, tree.state.last_seq):
            write_page(self._target, self._to, page, tree.segments, known)
            self.messages += len(page.records)
            advance(len(page.records))
        grown = {number for number, segment in tree.segments.items() if known.get(number) != segment.tip}
        if grown:
            segments = tuple(tree.segments[number] for number in sorted(grown))
            self._target.restore(self._to, Restored(segments, last_seq=tree.state.last_seq))

    def _bring_names(self, tree: Tree, there: Tree) -> None:
        """Give the target the branches and other names of the source."""
        if there.names == tree.names:
            return
        self._target.change(self._to, [Delete(name) for name in there.branches])
        # Each deletion has left a move, which is dropped, too.
        refs = read_tree(self._target, self._to).refs
        self._target.change(self._to, [Drop(ref.number) for ref in refs])
        branches = tuple(Branch(*one) for one in tree.branches.items())
        self._target.restore(self._to, Restored(branches=branches, refs=tuple(tree.refs)))

    def _bring_summaries(self, segments: Mapping[int, Segment]) -> None:
        for number, segment in segments.items():
            end = Position(number, segment.tip)
            wanted = self._source.summaries(self._from.key, end, ALL)
            known = self._target.summaries(self._to, end, ALL) if wanted else []
            for summary in reversed(wanted):  # so that of one position the newest is kept last
                if summary not in known:
                    self._target.keep(self._to, summary)

    def _bring_vectors(self, spaces: Sequence[str]) -> None:
        for space in reversed(spaces):  # the one written last is in use
            for page in pages(self._source.vectors(self._from.key, space)):
                known = set(self._target.vectors(self._to, space, [row[0] for row in page]))
                new = [row for row in page if row not in known and row[2]]
                self._target.keep(self._to, VectorRows(space, new))
                self.vectors += len(new)
