"""A store over plain dictionaries: the least that a store over rows of one's own has to have."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.history.normal_form import fingerprint
from shared_core.records import (
    After,
    Branch,
    Criterion,
    IdPrefix,
    InTurn,
    MadeFrom,
    Newest,
    Pinned,
    Position,
    Record,
    Ref,
    RefKind,
    Says,
    Segment,
    SessionKey,
    SessionState,
    Stretch,
    Summary,
    VectorRow,
)
from shared_core.store import ALL
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

    def session_key(self, session: int) -> SessionKey | None:
        return self.kept[session].key if session in self.kept else None

    def rename_sessions(self, names: Mapping[int, str]) -> None:
        for session, name in names.items():
            self.kept[session].key = self.kept[session].key._replace(session_id=name)

    def state(self, session: int, branch: str | None) -> SessionState | None:
        one = self.kept.get(session)
        if one is None:
            return None
        head = one.head(branch) if branch in one.branches else None
        return SessionState(head, one.last_seq, one.epoch, one.version)

    def raise_version(self, session: int) -> None:
        self._of(session).version += 1

    def counts(self, session: int) -> dict[str, int]:
        one = self._of(session)
        turns = {r.message.turn_id for r in one.records.values() if r.turn_no >= 0 and r.message.role != "system"}
        return {
            "messages": len(one.records),
            "turns": len(turns),
            "branches": len(one.branches),
            "segments": len(one.segments),
            "vectors": sum(map(len, one.spaces.values())),
            "forgotten": len(one.gone),
        }

    # The tree

    def segment(self, session: int, segment: int) -> Segment | None:
        return self._of(session).segments.get(segment)

    def next_segment(self, session: int) -> int:
        return max(self._of(session).segments, default=-1) + 1

    def put_segment(self, session: int, segment: Segment) -> None:
        own = self._of(session).segments
        known = own.get(segment.segment, segment)
        own[segment.segment] = known._replace(tip=max(known.tip, segment.tip))

    def end(self, session: int, branch: str) -> BranchEnd | None:
        one = self._of(session)
        if branch not in one.branches:
            return None
        segment, depth = one.branches[branch]
        return BranchEnd(one.head(branch), one.segments[segment].tip, depth is None, one.last_seq, bool(one.gone))

    def branches(self, session: int) -> list[Branch]:
        one = self._of(session)
        return [Branch(name, one.head(name)) for name in one.branches]

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

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = ALL) -> list[Ref]:
        found = [r for r in self._of(session).refs.values() if r.kind == kind and name in (None, r.name)]
        return sorted(found, reverse=True)[: max(limit, 0)]

    def insert_ref(self, session: int, ref: Ref) -> None:
        number = self._next()
        created_at = ref.created_at or f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        self._of(session).refs[number] = ref._replace(number=number, created_at=created_at)

    def drop_ref(self, session: int, number: int) -> bool:
        return self._of(session).refs.pop(number, None) is not None

    # Messages

    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        return [record for record in self._of(session).ordered() if record.message.id in set(ids)]

    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        records = self._of(session).records
        return [records[position] for position in positions if position in records]

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        own = [r for p, r in self._of(session).records.items() if p.segment == upto.segment and p.depth <= upto.depth]
        return sorted(own, key=lambda record: record.position, reverse=True)[: max(limit, 0)]

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        one = self._of(session)
        everything = one.ordered()
        match criterion:
            case After():
                return [record for record in everything if record.seq > criterion.seq][: max(criterion.limit, 0)]
            case InTurn():
                return [record for record in everything if record.message.turn_id == criterion.turn_id]
            case Pinned():
                return [record for record in everything if record.message.stays]
            case IdPrefix():
                found = [record for record in everything if str(record.message.id).startswith(criterion.prefix)]
                return found[: max(criterion.limit, 0)]
            case MadeFrom():
                ids = {one.records[p].message.id for p in criterion.positions if p in one.records}
                summed = {at for at, s in one.covers if any(_inside(p, s) for p in criterion.positions)}
                return [r for r in everything if r.picked_from in ids - {None} or r.position in summed]
            case Says():
                wanted: set[int] = set()
                for number in set(criterion.fingerprints):
                    same = [record.seq for record in everything if one.prints[record.position] == number]
                    wanted |= set(same[len(same) - criterion.limit :] if criterion.limit > 0 else ())
                return [record for record in everything if record.seq in wanted]

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        found = [one for one in self._of(session).covers if {one[0].segment, one[1].segment} & set(segments)]
        return sorted(found, key=lambda one: one[0])

    def newest_question(self, session: int, stretch: Stretch) -> Newest | None:
        asked = [r for p, r in self._of(session).records.items() if _inside(p, stretch) and r.message.role == "user"]
        newest = max(asked, key=lambda record: record.position, default=None)
        return None if newest is None else Newest(newest.message.turn_id, newest.turn_no)

    def turn_number(self, session: int, turn_id: str, upto: Position) -> int | None:
        own = [r for r in self.newest(session, upto, ALL) if r.message.turn_id == turn_id]
        return own[-1].turn_no if own else None

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

    def raise_number(self, session: int, seq: int) -> None:
        self._of(session).last_seq = max(self._of(session).last_seq, seq)

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
        for rows in one.spaces.values():
            for position in (*positions, *stale):
                rows.pop(position, None)
        one.summaries = {number: some for number, some in one.summaries.items() if number not in summaries}
        one.snapshots.clear()
        return session in self.kept

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        return [id_ for id_ in sorted(self._of(session).gone) if after is None or id_ > after][: max(limit, 0)]

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        return set(ids) & self._of(session).gone.keys()

    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        stored = {record.message.id for record in self._of(session).records.values()}
        self._of(session).gone |= {id_: None for id_ in ids if id_ not in stored}

    # What is derived

    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        one = self._of(session)
        own = one.spaces.pop(space, {})
        one.spaces = {space: own | {row[0]: row for row in vectors if row[0] in one.records}} | one.spaces

    def vectors_at(self, session: int, space: str, positions: Sequence[Position]) -> list[VectorRow]:
        own = self._of(session).spaces.get(space, {})
        return [own[position] for position in positions if position in own]

    def vectors_after(self, session: int, space: str, after: Position, limit: int) -> list[VectorRow]:
        own = self._of(session).spaces.get(space, {})
        return [row for position, row in sorted(own.items()) if position > after][: max(limit, 0)]

    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> list[VectorRow]:
        own = {row[1]: row for row in self._of(session).spaces.get(space, {}).values()}
        return [own[hash_] for hash_ in dict.fromkeys(hashes) if hash_ in own]

    def spaces(self, session: int) -> list[str]:
        return [space for space, rows in self._of(session).spaces.items() if rows]

    def put_snapshot(self, session: int, name: str, data: bytes) -> None:
        self._of(session).snapshots[name] = bytes(data)

    def snapshot(self, session: int, name: str) -> bytes | None:
        return self._of(session).snapshots.get(name)

    def insert_summary(self, session: int, summary: Summary) -> None:
        self._of(session).summaries[self._next()] = summary

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        own = self._of(session).summaries.items()
        found = [(s.upto, n, s) for n, s in own if s.upto.segment == upto.segment and s.upto <= upto]
        return [one[2] for one in sorted(found, key=lambda one: one[:2], reverse=True)][: max(limit, 0)]

    def summary_reaches(self, session: int) -> list[SummaryReach]:
        return [SummaryReach(number, one.upto, one.along) for number, one in self._of(session).summaries.items()]


def _inside(position: Position, stretch: Stretch) -> bool:
    return position.segment == stretch.segment and stretch.start <= position.depth <= stretch.upto


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

    def _size(self) -> int:
        return 0

    def scrub(self) -> str | None:
        return None

    def close(self) -> None:
        self._rows = None
