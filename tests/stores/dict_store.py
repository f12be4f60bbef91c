"""A store over plain dictionaries: the least that a store over rows of one's own has to have."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from shared_core import queries
from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.history.normal_form import fingerprint
from shared_core.records import (
    ALL,
    Branch,
    Derived,
    Newest,
    Position,
    Record,
    Ref,
    Segment,
    SessionKey,
    SessionState,
    Snapshot,
    Stretch,
    Summary,
    VectorRow,
)
from shared_core.stores import rows
from shared_core.stores.rows import BranchEnd, Rows, SummaryReach
from shared_core.stores.tree_store import Result, TreeStore


@dataclass
class Kept:
    """All of one session."""

    key: SessionKey
    epoch: int = 0
    version: int = 0
    last_seq: int = 0
    segments: dict[int, Segment] = field(default_factory=dict)
    branches: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    refs: dict[int, Ref] = field(default_factory=dict)
    records: dict[Position, Record] = field(default_factory=dict)
    prints: dict[Position, int | None] = field(default_factory=dict)
    covers: list[tuple[Position, Stretch]] = field(default_factory=list)
    gone: dict[str, None] = field(default_factory=dict)
    spaces: dict[str, dict[Position, VectorRow]] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    summaries: dict[int, Summary] = field(default_factory=dict)

    def ordered(self) -> list[Record]:
        return sorted(self.records.values(), key=attrgetter("seq"))

    def back(self, upto: Position) -> list[Record]:
        own = [r for p, r in self.records.items() if p.segment == upto.segment and p.depth <= upto.depth]
        return sorted(own, key=lambda record: record.position, reverse=True)

    def head(self, name: str) -> Position:
        segment, depth = self.branches[name]
        return Position(segment, self.segments[segment].tip if depth is None else depth)


class DictRows(Rows):
    """Rows in dictionaries."""

    def __init__(self) -> None:
        self.kept: dict[int, Kept] = {}
        self.number = 0

    def _next(self) -> int:
        self.number += 1
        return self.number

    def _of(self, session: int) -> Kept:
        return self.kept.get(session) or Kept(SessionKey(session, None, ""))

    # Sessions

    def session(self, user_id: str | None, session_id: str) -> int | None:
        return next((key for key, one in self.kept.items() if one.key[1:] == (user_id, session_id)), None)

    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        found = [one.key for one in self.kept.values() if user_ids is None or one.key.user_id in user_ids]
        return [key for key in found if key.key > after][: max(limit, 0)]

    def insert_session(self, user_id: str | None, session_id: str) -> int | None:
        if self.session(user_id, session_id) is not None:
            return None
        key = self._next()
        self.kept[key] = Kept(SessionKey(key, user_id, session_id))
        return key

    def rename_sessions(self, names: Mapping[int, str]) -> None:
        for session, name in names.items():
            self.kept[session].key = self.kept[session].key._replace(session_id=name)

    def raise_version(self, session: int, seq: int = 0) -> None:
        one = self._of(session)
        one.version += 1
        one.last_seq = max(one.last_seq, seq)

    def ask(self, session: int, query: Any) -> Any:
        if isinstance(query, queries.State) and session not in self.kept:
            return None
        return ANSWERS[type(query)](self._of(session), query)

    # The tree

    def put_segment(self, session: int, segment: Segment) -> None:
        own = self._of(session).segments
        known = own.get(segment.segment, segment)
        own[segment.segment] = known._replace(tip=max(known.tip, segment.tip))

    def put_branch(self, session: int, name: str, head: Position, *, attached: bool = False) -> None:
        if session not in self.kept:
            raise UnknownReferenceError(f"there is no session {session!r}")
        self._of(session).branches[name] = (head.segment, None if attached else head.depth)

    def detach_branches(self, session: int, segments: Collection[int]) -> None:
        one = self._of(session)
        attached = [name for name, (segment, depth) in one.branches.items() if depth is None and segment in segments]
        one.branches |= {name: (*one.head(name),) for name in attached}

    def rename_branch(self, session: int, name: str, to: str) -> None:
        one = self._of(session)
        one.branches = {to if own == name else own: head for own, head in one.branches.items()}
        moved = {n: r for n, r in one.refs.items() if r.name == name and r.kind in ("move", "stash", "head")}
        one.refs |= {number: ref._replace(name=to) for number, ref in moved.items()}

    def drop_branch(self, session: int, name: str) -> None:
        self._of(session).branches.pop(name, None)

    def insert_ref(self, session: int, ref: Ref) -> None:
        number = self._next()
        created_at = ref.created_at or f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self._of(session).refs[number] = ref._replace(number=number, created_at=created_at)

    def drop_ref(self, session: int, number: int) -> bool:
        return self._of(session).refs.pop(number, None) is not None

    # Messages

    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        one = self._of(session)
        ids, numbers = {r.message.id for r in one.records.values()}, {r.seq for r in one.records.values()}
        for record in records:
            if record.position.segment not in one.segments:
                raise UnknownReferenceError(f"there is no segment {record.position.segment!r}")
            if record.message.id in ids or record.seq in numbers or record.position in one.records:
                raise DuplicateError(f"{record.message.id!r}, its position or its number is taken")
            ids.add(record.message.id)
            numbers.add(record.seq)
            one.records[record.position] = record
            one.prints[record.position] = None if record.alone else fingerprint(record.message)
            segment, depth = record.position
            one.segments[segment] = one.segments[segment]._replace(tip=max(one.segments[segment].tip, depth))
            one.last_seq = max(one.last_seq, record.seq)
            one.version += 1
        if any(at not in one.records for at, _ in covers):
            raise UnknownReferenceError("there is no message that could sum something up")
        one.covers += covers

    # Forgetting

    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        one = self._of(session)
        one.epoch += 1
        for position in positions:
            record = one.records.pop(position, None)
            one.gone |= {} if record is None else {str(record.message.id): None}
        one.covers = [cover for cover in one.covers if cover[0] in one.records]
        for own in one.spaces.values():
            for position in (*positions, *stale):
                own.pop(position, None)
        one.summaries = {number: some for number, some in one.summaries.items() if number not in summaries}
        one.snapshots.clear()
        return session in self.kept

    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        stored = {record.message.id for record in self._of(session).records.values()}
        self._of(session).gone |= {id_: None for id_ in ids if id_ not in stored}

    # What is derived

    def put(self, session: int, derived: Derived) -> None:
        one = self._of(session)
        if isinstance(derived, Snapshot):
            one.snapshots[derived.name] = bytes(derived.data)
        elif isinstance(derived, Summary):
            one.summaries[self._next()] = derived
        else:
            own = one.spaces.pop(derived.space, {})
            own |= {row[0]: row for row in derived.rows if row[0] in one.records}
            one.spaces = {derived.space: own} | one.spaces


def _inside(position: Position, stretch: Stretch) -> bool:
    return position.segment == stretch.segment and stretch.start <= position.depth <= stretch.upto


def _first(found: Sequence[Any], limit: int) -> list[Any]:
    return list(found[: max(limit, 0)])


def _state(one: Kept, query: queries.State) -> SessionState:
    head = one.head(query.branch) if query.branch in one.branches else None
    return SessionState(head, one.last_seq, one.epoch, one.version)


def _end(one: Kept, query: rows.End) -> BranchEnd | None:
    if query.branch not in one.branches:
        return None
    segment, depth = one.branches[query.branch]
    return BranchEnd(one.head(query.branch), one.segments[segment].tip, depth is None, one.last_seq, bool(one.gone))


def _counts(one: Kept, query: queries.Counts) -> dict[str, int]:
    turns = {
        record.message.turn_id for record in one.ordered() if record.turn_no >= 0 and record.message.role != "system"
    }
    return {
        "messages": len(one.records),
        "turns": len(turns),
        "branches": len(one.branches),
        "segments": len(one.segments),
        "vectors": sum(map(len, one.spaces.values())),
        "forgotten": len(one.gone),
    }


def _ids(one: Kept, query: queries.Ids) -> list[Record]:
    found = {record.message.id: record for record in one.records.values()}
    return [found[id_] for id_ in query.ids if id_ in found]


def _made_from(one: Kept, query: queries.MadeFrom) -> list[Record]:
    ids = {one.records[p].message.id for p in query.positions if p in one.records}
    summed = {at for at, s in one.covers if any(_inside(p, s) for p in query.positions)}
    return [r for r in one.ordered() if r.picked_from in ids - {None} or r.position in summed]


def _says(one: Kept, query: queries.Says) -> list[Record]:
    wanted: set[int] = set()
    for number in set(query.fingerprints):
        same = [record.seq for record in one.ordered() if one.prints[record.position] == number]
        wanted |= set(same[len(same) - query.limit :] if query.limit > 0 else ())
    return [record for record in one.ordered() if record.seq in wanted]


def _newest_question(one: Kept, query: rows.NewestQuestion) -> Newest | None:
    asked = [r for p, r in one.records.items() if _inside(p, query.stretch) and r.message.role == "user"]
    newest = max(asked, key=lambda record: record.position, default=None)
    return None if newest is None else Newest(newest.message.turn_id, newest.turn_no)


def _turn_number(one: Kept, query: rows.TurnNumber) -> int | None:
    numbers = [record.turn_no for record in one.back(query.upto) if record.message.turn_id == query.turn_id]
    return numbers[-1] if numbers else None


def _vectors(one: Kept, query: queries.Vectors) -> list[VectorRow]:
    own = one.spaces.get(query.space, {})
    if query.positions is not None:
        return [own[position] for position in query.positions if position in own]
    return _first([row for position, row in sorted(own.items()) if position > query.after], query.limit)


def _known_vectors(one: Kept, query: queries.KnownVectors) -> list[VectorRow]:
    own = one.spaces.get(query.space, {})
    same = {row[1]: row for row in own.values()}
    found = [own[at] if at in own and own[at][1] == text else same.get(text) for at, text in query.hashes.items()]
    return list({row[0]: row for row in found if row is not None}.values())


def _summaries(one: Kept, query: queries.Summaries) -> list[Summary]:
    own = [(s.upto, n, s) for n, s in one.summaries.items() if s.upto.segment == query.upto.segment]
    found = sorted((o for o in own if o[0] <= query.upto), key=lambda o: o[:2], reverse=True)
    return _first([summary for _, _, summary in found], query.limit)


ANSWERS: dict[type, Callable[[Kept, Any], Any]] = {
    queries.State: _state,
    queries.Counts: _counts,
    queries.Segments: lambda o, q: _first([s for n, s in sorted(o.segments.items()) if n > q.after], q.limit),
    queries.Branches: lambda o, q: [Branch(name, o.head(name)) for name in o.branches],
    queries.Refs: lambda o, q: _first(
        sorted((r for r in o.refs.values() if r.kind == q.kind and q.name in (None, r.name)), reverse=True), q.limit
    ),
    queries.Ids: _ids,
    queries.At: lambda o, q: [o.records[position] for position in q.positions if position in o.records],
    queries.Back: lambda o, q: _first(o.back(q.upto), q.limit),
    queries.After: lambda o, q: _first([record for record in o.ordered() if record.seq > q.seq], q.limit),
    queries.InTurns: lambda o, q: [record for record in o.ordered() if record.message.turn_id in q.turn_ids],
    queries.IdPrefix: lambda o, q: _first([r for r in o.ordered() if str(r.message.id).startswith(q.prefix)], q.limit),
    queries.MadeFrom: _made_from,
    queries.Says: _says,
    queries.Pinned: lambda o, q: [record for record in o.ordered() if record.message.stays],
    queries.Stored: lambda o, q: [(record.position, record.message.id) for record in o.ordered()],
    queries.Count: lambda o, q: sum(_inside(position, s) for position in o.records for s in q.stretches),
    queries.Covers: lambda o, q: sorted(
        (cover for cover in o.covers if {cover[0].segment, cover[1].segment} & set(q.segments)), key=lambda one: one[0]
    ),
    queries.Vectors: _vectors,
    queries.KnownVectors: _known_vectors,
    queries.Spaces: lambda o, q: [space for space, vectors in o.spaces.items() if vectors],
    queries.SnapshotOf: lambda o, q: o.snapshots.get(q.name),
    queries.Summaries: _summaries,
    queries.ForgottenIds: lambda o, q: _first(
        [one for one in sorted(o.gone) if q.after is None or one > q.after], q.limit
    ),
    queries.AreForgotten: lambda o, q: set(q.ids) & o.gone.keys(),
    queries.ForgottenSince: lambda o, q: None,
    rows.End: _end,
    rows.NextSegment: lambda o, q: max(o.segments, default=-1) + 1,
    rows.NewestQuestion: _newest_question,
    rows.TurnNumber: _turn_number,
    rows.Reaches: lambda o, q: [SummaryReach(number, s.upto, s.along) for number, s in o.summaries.items()],
}


class DictStore(TreeStore):
    """Keeps everything in dictionaries; gone when it is closed."""

    def __init__(self) -> None:
        self._rows: DictRows | None = DictRows()
        self._lock = threading.RLock()

    def _read(self, ask: Callable[[Rows], Result]) -> Result:
        with self._lock:
            if self._rows is None:
                raise StoreError("the store is closed; open a new one")
            return ask(self._rows)

    def _write(self, act: Callable[[Rows], Result]) -> Result:
        with self.transaction():
            return self._read(act)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            before = deepcopy(self._rows)
            try:
                yield
            except BaseException:
                self._rows = before
                raise

    def size(self) -> int:
        return 0

    def scrub(self) -> str | None:
        return None

    def close(self) -> None:
        self._rows = None
