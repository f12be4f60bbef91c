"""The oracle of the store contract: a session as plain lists, and every question a store must answer like it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import takewhile

from shared_core.formats.fields import Role
from shared_core.messages import Message
from shared_core.queries import After, InTurns, Line, LineRead, Pinned, State
from shared_core.records import (
    MAIN,
    ROOT,
    Appended,
    Branch,
    Create,
    Draft,
    KnownBranch,
    Merge,
    Move,
    Newest,
    Position,
    Record,
    Segment,
    VectorRow,
)
from shared_core.session.paths import walk
from shared_core.session.turns import assign_turns
from shared_core.store import Store

__all__ = ["ALL", "NOON", "Session", "Tree", "check", "draft", "drafts", "of_texts"]

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, timezone(timedelta(hours=5, minutes=45)))
_ROLES: tuple[Role, ...] = ("user", "assistant", "tool", "system")
ALL = 10**6
"""A limit that is never reached."""


def draft(id_: str, role: Role = "user", content: str | None = None, **fields: object) -> Draft:
    """Return a draft; the text is made from the id if none is given."""
    text = f"text of {id_}" if content is None else content
    message = Message.model_validate({"id": id_, "role": role, "content": text, "created_at": NOON, **fields})
    return Draft(message, "words", len(text.split()))


def drafts(*ids: str) -> list[Draft]:
    """Return drafts whose roles follow from the first letters of their ids: "u1" is a user's, "s1" a system message."""
    return [draft(id_, next(role for role in _ROLES if role[0] == id_[0])) for id_ in ids]


class Tree:
    """The oracle: one session as plain lists, every question answered by looking at everything."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.segments = {0: Segment(0, None, -1)}
        self.branches = {MAIN: ROOT}
        self.forgotten: set[str | None] = set()
        self.last_seq = 0
        self.epoch = 0
        self.erased: list[set[Position]] = []

    def path(self, head: Position) -> list[Record]:
        """Return the messages that a branch with this head sees, oldest first."""
        at = {record.position: record for record in self.records}
        return [at[position] for position in self.line(head) if position in at]

    def line(self, head: Position) -> dict[Position, int]:
        """Return position -> what is added to the numbers of turns there, of a branch with this head, oldest first.

        The first parent's come first, then what only the second parent has, then the segment's own.
        """
        segment = self.segments[head.segment]
        line = self.line(segment.parent) if segment.parent is not None else {}
        if segment.merged is not None:
            there = self.line(segment.merged).items()
            line |= {position: turns + segment.turn_shift for position, turns in there if position not in line}
        return line | {Position(head.segment, depth): 0 for depth in range(segment.start, head.depth + 1)}

    def newest_turn(self, positions: Mapping[Position, int]) -> tuple[Newest, int]:
        """Return the turn of the newest user message at some positions, and its number there."""
        at = {record.position: record for record in self.records}
        for position, turns in reversed(list(positions.items())):
            if position in at and at[position].message.role == "user":
                turn_no = at[position].turn_no
                return Newest(at[position].message.id, turn_no), turn_no + turns
        return Newest(None, -1), -1

    def positions(self) -> list[Position]:
        """Return every position where a branch may be created."""
        return [Position(n, depth) for n, s in self.segments.items() for depth in range(s.before, s.tip + 1)]

    def merge(self, branch: str, source: Position, opened: int) -> None:
        """Do what `Merge` does."""
        head = self.branches[branch]
        ours, theirs = self.line(head), self.line(source)
        new = [position for position in theirs if position not in ours]
        if not new:
            return
        assert opened not in self.segments, "a merge is a segment of its own"
        before = dict(takewhile(lambda item: item[0] != new[0], theirs.items()))
        shift = self.newest_turn(ours)[1] - self.newest_turn(before)[1]
        base = head.depth + len(new) + 1
        self.segments[opened] = Segment(opened, head, base, source, base, shift)
        self.branches[branch] = Position(opened, base)

    def elsewhere(self, branch: str, given: Sequence[Draft], at: Position | None = None) -> set[str | None]:
        """Return the ids of messages that are stored, but not on a branch, or on a new one at a position."""
        on_branch = {record.message.id for record in self.path(self.branches.get(branch, at or ROOT))}
        stored = {record.message.id for record in self.records}
        return {one.message.id for one in given} & stored - on_branch

    def append(
        self, branch: str, given: Sequence[Draft], opened: int, at: Position | None = None, turn: str | None = None
    ) -> Appended:
        """Return what `Store.append` must return; `opened` is the number of the new segment, if one is needed."""
        assert not self.elsewhere(branch, given, at), "what is stored, but not on the branch, is refused"
        self.branches.setdefault(branch, at or ROOT)
        head = self.branches[branch]
        known = {record.message.id: record for record in self.records}
        new = [d for d in given if d.message.id not in known and d.message.id not in self.forgotten]
        path = self.path(head)
        named = next((Newest(turn, r.turn_no) for r in path if r.message.turn_id == turn), None)
        newest, turn_no = self.newest_turn(self.line(head))
        before = {str(r.message.id): Newest(r.message.turn_id, r.turn_no) for r in path}
        added = {str(d.message.id) for d in new}
        listed = [d.message for d in given if d.message.id not in self.forgotten]
        turns = assign_turns(listed, Newest(newest.turn_id, turn_no), named or newest, before)
        turn_of = {message.id: turn for message, turn in zip(listed, turns, strict=True)}
        if new and self.segments[head.segment].tip != head.depth:
            assert opened not in self.segments, "a new segment has a number of its own"
            self.segments[opened] = Segment(opened, head, head.depth)
            head = Position(opened, head.depth)
        for new_draft in new:
            turn_id, turn_no = turn_of[new_draft.message.id]
            self.last_seq += 1
            head = Position(head.segment, head.depth + 1)
            message = new_draft.message.replace(turn_id=turn_id)
            counted = new_draft.counter, new_draft.tokens, new_draft.picked_from
            self.records.append(Record(message, head, self.last_seq, turn_no, *counted))
            self.segments[head.segment] = self.segments[head.segment]._replace(tip=head.depth)
        self.branches[branch] = head
        known = {record.message.id: record for record in self.records}
        stored = tuple(known[d.message.id] for d in given if d.message.id in known)
        skipped = tuple(str(d.message.id) for d in given if d.message.id in self.forgotten)
        return Appended(stored, frozenset(added), skipped, head)

    def forget(self, positions: Sequence[Position]) -> None:
        """Do what `Store.forget` does."""
        gone = [record for record in self.records if record.position in positions]
        self.forgotten |= {record.message.id for record in gone}
        self.records = [record for record in self.records if record.position not in positions]
        self.erased.append({record.position for record in gone})
        self.epoch += 1

    def restart(self, segment: int) -> None:
        """Do what `Store.forget` does to branches; `segment` is where `main` begins anew."""
        assert segment not in self.segments, "main begins anew in a segment of its own"
        self.segments[segment] = Segment(segment, None, -1)
        self.branches = {MAIN: Position(segment, -1)}


def of_texts(store: Store, key: int, space: str, hashes: Iterable[str]) -> list[VectorRow]:
    """Return the vectors that are known of texts with these hashes, by whatever message."""
    return store.known_vectors(key, space, {Position(9, number): one for number, one in enumerate(hashes)})


def check(store: Store, key: int, tree: Tree) -> None:
    """Compare everything that can be read of a session's messages and branches with the oracle."""
    _check_found(store, key, tree)
    _check_pages(store, key, tree)
    assert store.branches(key) == [Branch(name, head) for name, head in tree.branches.items()]
    for name, head in tree.branches.items():
        _check_line(store, key, tree, head)
        _check_out(store, key, tree, name, head)
    opened = {r.message.turn_id for r in tree.records if r.turn_no >= 0 and r.message.role != "system"}
    counts = {
        "messages": len(tree.records),
        "turns": len(opened),
        "branches": len(tree.branches),
        "segments": len(tree.segments),
        "forgotten": len(tree.forgotten),
    }
    assert store.stats(key).items() >= counts.items()
    gone = sorted(map(str, tree.forgotten))
    assert store.are_forgotten(key, [*gone, "unknown", *gone]) == set(gone)
    for epoch in range(tree.epoch + 1):
        found, there = store.forgotten_since(key, epoch), {record.position for record in tree.records}
        if found is not None:  # a store need not know
            assert {one for erased in tree.erased[epoch:] for one in erased} <= set(found.positions)
            assert not there & set(found.positions)


def _check_found(store: Store, key: int, tree: Tree) -> None:
    """Compare what is found by id, position, turn or pin, wherever it stands."""
    everything = tree.records
    ids = [str(record.message.id) for record in reversed(everything)]
    assert store.get(key, [*ids, "unknown", *map(str, tree.forgotten)]) == everything[::-1]
    at = {record.position: record for record in everything}
    asked = [*tree.positions()[::-1], Position(99, 0), *tree.positions()[:1]]
    assert store.get(key, asked) == [at[position] for position in asked if position in at]
    turns = sorted({str(record.message.turn_id) for record in everything})
    for some in (*([turn] for turn in turns), turns[1:], [*turns[::-1], "unknown", *turns], []):
        assert store.find(key, InTurns(some)) == [record for record in everything if record.message.turn_id in some]
    assert store.find(key, Pinned()) == [record for record in everything if record.message.stays]


def _check_pages(store: Store, key: int, tree: Tree) -> None:
    """Compare what is read forwards, or backwards, in parts."""
    for after, limit in ((0, ALL), (tree.last_seq // 2, 3), (tree.last_seq, 1), (0, 0)):
        assert store.find(key, After(after, limit)) == [r for r in tree.records if r.seq > after][:limit]
    segments = list(tree.segments.values())
    assert store.segments(key, -1, ALL) == segments
    assert store.segments(key, 0, 2) == segments[1:3]
    for segment in segments:
        for depth, limit in ((segment.tip, ALL), (segment.tip + 1, 2), (segment.tip - 1, 1), (segment.tip, 0)):
            below = [r for r in tree.records if r.position.segment == segment.segment and r.position.depth <= depth]
            assert store.newest(key, Position(segment.segment, depth), limit) == below[::-1][:limit]
    read: list[str] = []
    while page := store.forgotten(key, read[-1] if read else None, 2):
        read += page
        assert len(read) <= len(tree.forgotten), "a page begins before its `after`"
    assert sorted(read) == sorted(map(str, tree.forgotten))


def _check_line(store: Store, key: int, tree: Tree, head: Position) -> None:
    """Compare the way to the end of a branch, and what is read along it."""
    path = walk(head, partial(store.segment, key))
    positions = [Position(span.segment, depth) for span in path.spans for depth in range(span.start, span.upto + 1)]
    line = tree.line(head)
    assert positions == list(line)
    assert [path.span_of(position).turn_shift for position in positions] == list(line.values())
    assert [path.index_of(position) for position in positions] == list(range(len(positions)))
    assert [path.at(number) for number in range(len(positions))] == positions
    assert store.at({key: positions}, {key: tree.epoch}) == {key: tree.path(head)}
    assert store.at({key: positions}, {key: tree.epoch + 1}) is None
    assert store.count(key, [span.stretch for span in path.spans]) == len(tree.path(head))


def _check_out(store: Store, key: int, tree: Tree, name: str, head: Position) -> None:
    """Compare what is read together of a branch, as when it is checked out."""
    path, on_line, half = tree.path(head)[::-1], {one.segment for one in tree.line(head)}, tree.last_seq // 2
    new = [record for record in tree.records if record.seq > half]
    line: LineRead
    state, read, staying, line = store.read(key, State(name), After(half, ALL), Pinned(), Line(name, 5))
    assert state == store.state(key, name)
    assert state[:3] == (head, tree.last_seq, tree.epoch)
    assert (read, staying) == (new, [record for record in tree.records if record.message.stays])
    assert {segment.segment for segment in line.segments} >= on_line
    assert all(segment == tree.segments[segment.segment] for segment in line.segments)
    assert line.newest == path[: len(line.newest)]
    merged = any(tree.segments[number].merged for number in on_line)
    assert merged or len(line.newest) == min(5, len(path))
    again, none, known = store.read(key, State(), After(half, 0), Line(head, 5, tree.segments))
    assert (again.head, none, known.newest) == (None, [], line.newest)


class Session:
    """A session of a store and its oracle, changed together."""

    def __init__(self, store: Store, session_id: str = "s", user_id: str | None = None) -> None:
        self.store = store
        self.key = store.create_session(user_id, session_id)
        self.tree = Tree()

    def append(
        self, branch: str, given: Sequence[Draft], at: Position | None = None, turn: str | None = None,
        known: KnownBranch | None = None,
    ) -> Appended:  # fmt: skip
        """Append to both; the store must return what the oracle does."""
        result = self.store.append(self.key, branch, given, at=at, turn=turn, known=known)
        assert result == self.tree.append(branch, given, result.head.segment, at, turn)
        return result

    def known(self, branch: str) -> KnownBranch:
        """Return what a caller knows that has just looked at a branch."""
        head = self.tree.branches[branch]
        newest, turn_no = self.tree.newest_turn(self.tree.line(head))
        return KnownBranch(self.store.state(self.key, branch), Newest(newest.turn_id, turn_no))

    def merge(self, branch: str, source: Position) -> None:
        """Merge in both."""
        self.store.change(self.key, [Merge(branch, source, "merge")])
        self.tree.merge(branch, source, self.store.state(self.key, branch).head.segment)  # type: ignore[union-attr]

    def move(self, branch: str, to: Position) -> None:
        """Move a branch in both."""
        self.store.change(self.key, [Move(branch, to, "move")])
        self.tree.branches[branch] = to

    def fork(self, name: str, at: Position) -> None:
        """Create a branch in both."""
        self.store.change(self.key, [Create(name, at)])
        self.tree.branches[name] = at

    def forget(
        self, positions: Sequence[Position], branches: bool = False, stale: Sequence[Position] = ()
    ) -> None:  # fmt: skip
        """Forget in both."""
        self.store.forget(self.key, positions, stale=stale, branches=branches)
        self.tree.forget(positions)
        if branches:
            self.tree.restart(self.store.branches(self.key)[0].head.segment)

    def check(self) -> None:
        """Compare everything that can be read."""
        check(self.store, self.key, self.tree)
