"""One session copied from a store to another, exactly, and brought up to date when it is copied again."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property

from shared_core.errors import DuplicateError
from shared_core.records import (
    ALL,
    Branch,
    Change,
    Delete,
    Drop,
    Position,
    Restored,
    Segment,
    SessionKey,
    Snapshot,
    Summary,
    VectorRows,
)
from shared_core.sharing.transfer import (
    Tree,
    forgotten_of,
    numbered_refs,
    pages,
    pages_of,
    parents_first,
    read_tree,
    segments_of,
    tree_now,
    write_page,
)
from shared_core.store import Store

MARK = "copied"
"""The name of the snapshot in which a copy notes where it comes from; forgetting removes it with all others."""

ROUNDS = 10
"""How often a session is caught up with in which something is forgotten again and again."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a session was copied from, and how far.

    Attributes:
        source: `Store.identity` of the store.
        session: the key of the session there.
        epoch: of the session there; what was forgotten until then is forgotten here, too. None: it is not known.
        last_seq: the number of the newest message that was copied.
    """

    source: str
    session: int
    epoch: int | None
    last_seq: int

    def snapshot(self) -> Snapshot:
        """Return it as it is stored."""
        return Snapshot(MARK, json.dumps(asdict(self)).encode())


def read_mark(store: Store, session: int) -> Mark | None:
    """Return what a session was copied from; None if it was not, or something was forgotten in it since."""
    data = store.snapshot(session, MARK)
    return None if data is None else Mark(**json.loads(data))


class SessionCopy:
    """Copies one session, or what is new of it.

    Args:
        source: the store to copy from.
        target: the store to copy to.
        key: the session in the source.
        origin: `Store.identity` of the source.
        advance: called with the number of messages after each page.
    """

    def __init__(
        self, source: Store, target: Store, key: SessionKey, origin: str, advance: Callable[[int], None]
    ) -> None:
        self._source = source
        self._target = target
        self._from = key
        self._origin = origin
        self._advance = advance
        self._epoch: int | None = None  # what a mark says while the copy is not done
        self._left = (0, 0)  # number of the newest message and epoch of the target after what was written last
        self.messages = 0
        self.forgotten = 0
        self.vectors = 0

    @cached_property
    def _key(self) -> int:
        return self._target.create_session(self._from.user_id, self._from.session_id)

    def create(self) -> None:
        """Create the session in the target if it does not exist."""
        assert self._key

    # What the target holds already

    def check(self) -> None:
        """Raise DuplicateError if the target holds messages in this session that did not come from here alone."""
        session = self._target.session(self._from.user_id, self._from.session_id)
        if session is None or not self._target.state(session).last_seq:
            return
        if not self._is_ours(session, read_mark(self._target, session)):
            raise self._changed("nothing was written")

    def _changed(self, written: str) -> DuplicateError:
        return DuplicateError(
            f"session {self._from.session_id!r} of the destination is no copy of this one, or was changed there since; "
            f"{written}: copy to a new store"
        )

    def _is_ours(self, session: int, mark: Mark | None) -> bool:
        """Return whether a session of the target holds what was copied from this one, and no other messages."""
        if mark is None or (mark.source, mark.session) != (self._origin, self._from.key):
            return False
        return self._target.state(session).last_seq == mark.last_seq

    # What is new

    def run(self) -> None:
        """Bring everything that the target does not hold; each page is one transaction, so that it may be killed."""
        source, key = self._source, self._from.key
        for _ in range(ROUNDS):
            self._left = self._now()
            self.check()  # others may have written to it since all sessions were checked
            mark = read_mark(self._target, self._key)
            known = mark.epoch if mark is not None and self._is_ours(self._key, mark) else None
            tree = read_tree(source, key)
            empty = not self._target.state(self._key).last_seq
            self._epoch = tree.state.epoch if empty else known
            behind = known != tree.state.epoch
            if behind or self._counts("forgotten"):
                self._forget()
            self._bring_messages(tree)
            self._bring_tree(tree)
            self._bring_summaries(tree.segments)
            self._bring_vectors(whole=behind and not empty)
            self._epoch = tree.state.epoch
            if mark != Mark(self._origin, key, self._epoch, self._target.state(self._key).last_seq):
                with self._writing():
                    self._note()
            if source.state(key).epoch == tree.state.epoch:
                return

    def _counts(self, what: str) -> bool:
        """Return whether the two stores hold other numbers of something."""
        return self._source.stats(self._from.key)[what] != self._target.stats(self._key)[what]

    def _now(self) -> tuple[int, int]:
        state = self._target.state(self._key)
        return state.last_seq, state.epoch

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Enter a transaction of the target; DuplicateError if others wrote to the session since the one before it.

        They may have forgotten what would be written now.
        """
        with self._target.transaction():
            if self._now() != self._left:
                raise self._changed("no more was written")
            yield
            now = self._now()
        self._left = now

    def _note(self) -> None:
        """Note what was copied, in the transaction that did it."""
        last = self._target.state(self._key).last_seq
        self._target.keep(self._key, Mark(self._origin, self._from.key, self._epoch, last).snapshot())

    def _forget(self) -> None:
        """Forget what was forgotten in the source."""
        for ids in forgotten_of(self._source, self._from.key):
            gone = [record.position for record in self._target.get(self._key, ids)]
            if gone:
                with self._writing():
                    self._target.forget(self._key, gone)
                    self._note()
                self.forgotten += len(gone)
            missing = set(ids) - self._target.are_forgotten(self._key, ids)
            if missing:
                with self._writing():
                    self._target.restore(self._key, Restored(forgotten=tuple(id_ for id_ in ids if id_ in missing)))

    def _bring_messages(self, tree: Tree) -> None:
        newest = self._target.state(self._key).last_seq
        if newest >= tree.state.last_seq:
            return
        known = {one.segment: one.tip for one in segments_of(self._target, self._key)}
        spaces = self._source.spaces(self._from.key)[::-1]
        for page in pages_of(self._source, self._from.key, spaces, newest, tree.state.last_seq):
            with self._writing():
                write_page(self._target, self._key, page, tree.segments, known)
                self._note()
            self.messages += len(page.records)
            self.vectors += sum(len(list(rows.rows)) for rows in page.vectors)
            self._advance(len(page.records))

    def _bring_tree(self, tree: Tree) -> None:
        """Give the target the segments, branches and other names of the source."""
        now = tree_now(self._target, self._key)
        changed = {one.segment for one in tree.segments.values() if now.segments.get(one.segment) != one}
        segments = tuple(tree.segments[number] for number in parents_first(changed, tree.segments))
        last = tree.state.last_seq
        same = (now.branches, list(now.branches), now.refs) == (tree.branches, list(tree.branches), tree.refs)
        if same and not segments and now.state.last_seq >= last:
            return
        with self._writing():
            self._target.restore(self._key, Restored(segments, last_seq=last))
            if not same:
                self._drop_names(now.branches)
                branches = tuple(Branch(*one) for one in tree.branches.items())
                self._target.restore(self._key, Restored(branches=branches, refs=tuple(tree.refs)))
            self._note()

    def _drop_names(self, branches: Mapping[str, Position]) -> None:
        self._target.change(self._key, [Delete(name) for name in branches])  # each leaves a move, which is dropped, too
        drops: list[Change] = [Drop(number) for number, _ in numbered_refs(self._target, self._key)]
        self._target.change(self._key, drops)

    def _bring_summaries(self, segments: Mapping[int, Segment]) -> None:
        for number, segment in segments.items():
            end = Position(number, segment.tip)
            wanted = self._source.summaries(self._from.key, end, ALL)
            known = self._target.summaries(self._key, end, ALL) if wanted else []
            for summary in reversed(wanted):  # so that of one position the newest is kept last
                if summary not in known:
                    self._keep(summary)

    def _keep(self, derived: Summary | VectorRows) -> None:
        with self._writing():
            self._target.keep(self._key, derived)

    # Vectors

    def _bring_vectors(self, *, whole: bool) -> None:
        """Bring the vectors of messages that were copied before, if there are others than here.

        Args:
            whole: compare them one by one; otherwise only if there are more or fewer.
        """
        wanted = self._source.spaces(self._from.key)
        if whole or self._counts("vectors") or set(wanted) != set(self._target.spaces(self._key)):
            self._drop_extra(wanted)
            for space in wanted:
                self._bring_space(space)
        if self._target.spaces(self._key) != wanted:
            for space in reversed(wanted):
                self._keep(VectorRows(space, ()))

    def _drop_extra(self, wanted: Sequence[str]) -> None:
        """Drop the vectors that the source does not have; with them go those of the same messages in other spaces."""
        extra: set[Position] = set()
        for space in self._target.spaces(self._key):
            for page in pages(self._target.vectors(self._key, space)):
                positions = [row[0] for row in page]
                own = self._source.vectors(self._from.key, space, positions) if space in wanted else ()
                extra |= {*positions} - {row[0] for row in own}
        for positions in pages(sorted(extra)):
            with self._writing():
                self._target.forget(self._key, [], stale=positions)
                self._note()

    def _bring_space(self, space: str) -> None:
        for page in pages(self._source.vectors(self._from.key, space)):
            known = set(self._target.vectors(self._key, space, [row[0] for row in page]))
            new = [row for row in page if row not in known and row[2]]
            if new:
                self._keep(VectorRows(space, new))
                self.vectors += len(new)
