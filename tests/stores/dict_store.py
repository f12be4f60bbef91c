"""A store on plain dicts: only the rows, to prove that everything else is decided above them. Not for real use."""

import copy
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

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
from shared_core.stores.rows import BranchEnd, Rows, SummaryReach
from shared_core.stores.tree_store import TreeStore


@dataclass
class Tables:
    """One session."""

    name: SessionKey
    epoch: int = 0
    last_seq: int = 0
    version: int = 0
    segments: dict[int, Segment] = field(default_factory=dict)
    branches: dict[str, tuple[Position, bool]] = field(default_factory=dict)
    refs: dict[int, Ref] = field(default_factory=dict)
    records: dict[Position, Record] = field(default_factory=dict)
    covers: list[tuple[Position, Stretch]] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    spaces: dict[str, dict[Position, VectorRow]] = field(default_factory=dict)
    snapshots: dict[str, bytes] = field(default_factory=dict)
    summaries: dict[int, Summary] = field(default_factory=dict)

    def in_order(self) -> list[Record]:
        return sorted(self.records.values(), key=lambda record: record.seq)


class DictRows(Rows):
    """All sessions; numbers of sessions, refs and summaries come from one counter."""

    def __init__(self) -> None:
        self.tables: dict[int, Tables] = {}
        self.numbers = count(1)

    def of(self, session: int) -> Tables:
        return self.tables.get(session) or Tables(SessionKey(session, None, ""))

    def session(self, user_id: str | None, session_id: str) -> int | None:
        return next((key for key, one in self.tables.items() if one.name[1:] == (user_id, session_id)), None)

    def sessions(self, user_ids: Collection[str | None] | None, after: int = 0, limit: int = 2**31) -> list[SessionKey]:
        found = [one.name for one in self.tables.values() if user_ids is None or one.name.user_id in user_ids]
        return [one for one in found if one.key > after][: max(limit, 0)]

    def insert_session(self, user_id: str | None, session_id: str) -> int:
        key = next(self.numbers)
        self.tables[key] = Tables(SessionKey(key, user_id, session_id))
        return key

    def session_key(self, session: int) -> SessionKey | None:
        return self.tables[session].name if session in self.tables else None

    def rename_sessions(self, names: Mapping[int, str]) -> None:
        for session, name in names.items():
            self.tables[session].name = self.tables[session].name._replace(session_id=name)

    def state(self, session: int, branch: str | None) -> SessionState | None:
        one = self.tables.get(session)
        end = self.end(session, branch) if branch is not None else None
        return None if one is None else SessionState(end and end.head, one.last_seq, one.epoch, one.version)

    def raise_version(self, session: int) -> None:
        self.of(session).version += 1

    def counts(self, session: int) -> dict[str, int]:
        one = self.of(session)
        turns = {r.message.turn_id for r in one.records.values() if r.turn_no >= 0 and r.message.role != "system"}
        names = ("records", "branches", "segments", "forgotten")
        found = {name: len(getattr(one, name)) for name in names}
        vectors = sum(map(len, one.spaces.values()))
        return found | {"messages": found.pop("records"), "turns": len(turns), "vectors": vectors}

    def segment(self, session: int, segment: int) -> Segment | None:
        return self.of(session).segments.get(segment)

    def next_segment(self, session: int) -> int:
        return max(self.of(session).segments, default=-1) + 1

    def put_segment(self, session: int, segment: Segment) -> None:
        known = self.of(session).segments.setdefault(segment.segment, segment)
        self.of(session).segments[segment.segment] = known._replace(tip=max(known.tip, segment.tip))

    def end(self, session: int, branch: str) -> BranchEnd | None:
        one = self.of(session)
        if branch not in one.branches:
            return None
        head, attached = one.branches[branch]
        tip = one.segments[head.segment].tip
        return BranchEnd(Position(head.segment, tip) if attached else head, tip, attached, one.last_seq, True)

    def branches(self, session: int) -> list[Branch]:
        ends = [(name, self.end(session, name)) for name in self.of(session).branches]
        return [Branch(name, end.head) for name, end in ends if end is not None]

    def put_branch(self, session: int, name: str, head: Position, *, attached: bool = False) -> None:
        if session not in self.tables:
            raise UnknownReferenceError(f"there is no session {session!r}")
        self.tables[session].branches[name] = head, attached

    def detach_branches(self, session: int, segments: Collection[int]) -> None:
        for branch in self.branches(session):
            if branch.head.segment in segments:
                self.put_branch(session, branch.name, branch.head)

    def rename_branch(self, session: int, name: str, to: str) -> None:
        one = self.of(session)
        one.branches = {to if key == name else key: value for key, value in one.branches.items()}
        for number, ref in one.refs.items():
            if ref.name == name and ref.kind != "tag":
                one.refs[number] = ref._replace(name=to)

    def drop_branch(self, session: int, name: str) -> None:
        self.of(session).branches.pop(name, None)

    def refs(self, session: int, kind: RefKind, name: str | None, limit: int) -> list[Ref]:
        found = [r for r in self.of(session).refs.values() if r.kind == kind and name in (None, r.name)]
        return found[::-1][: max(limit, 0)]

    def insert_ref(self, session: int, ref: Ref) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        ref = ref._replace(number=next(self.numbers), created_at=ref.created_at or now)
        self.of(session).refs[ref.number] = ref

    def drop_ref(self, session: int, number: int) -> bool:
        return self.of(session).refs.pop(number, None) is not None

    def get(self, session: int, ids: Sequence[str]) -> list[Record]:
        wanted = set(ids)
        return [record for record in self.of(session).records.values() if record.message.id in wanted]

    def at(self, session: int, positions: Sequence[Position]) -> list[Record]:
        records = self.of(session).records
        return [records[position] for position in positions if position in records]

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        return self._deepest(self.of(session).records, upto)[: max(limit, 0)]

    def _deepest(self, rows: Mapping[Position, Record], upto: Position) -> list[Record]:
        below = [position for position in rows if position.segment == upto.segment and position.depth <= upto.depth]
        return [rows[position] for position in sorted(below, reverse=True)]

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        records = self.of(session).in_order()
        match criterion:
            case After(seq, limit):
                return [record for record in records if record.seq > seq][: max(limit, 0)]
            case InTurn(turn_id):
                return [record for record in records if record.message.turn_id == turn_id]
            case IdPrefix(prefix, limit):
                return [r for r in records if str(r.message.id).startswith(prefix)][: max(limit, 0)]
            case MadeFrom(positions):
                ids = {record.message.id for record in self.at(session, positions)}
                covers = self.of(session).covers
                summing = {by for by, source in covers for position in positions if _within(position, source)}
                return [record for record in records if record.picked_from in ids or record.position in summing]
            case Says(fingerprints, limit):
                said: dict[int | None, list[Record]] = {}
                for record in records:
                    said.setdefault(None if record.alone else fingerprint(record.message), []).append(record)
                found = [record for one in {*fingerprints} for record in said.get(one, [])[::-1][: max(limit, 0)]]
                return sorted(found, key=lambda record: record.seq)
            case Pinned():
                return [record for record in records if record.message.stays]

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        wanted = [one for one in self.of(session).covers if {one[0].segment, one[1].segment} & set(segments)]
        return sorted(wanted, key=lambda one: one[0])

    def newest_question(self, session: int, stretch: Stretch) -> Newest | None:
        rows = self._deepest(self.of(session).records, Position(stretch.segment, stretch.upto))
        found = (r for r in rows if r.position.depth >= stretch.start and r.message.role == "user")
        return next((Newest(record.message.turn_id, record.turn_no) for record in found), None)

    def turn_number(self, session: int, turn_id: str, upto: Position) -> int | None:
        rows = self._deepest(self.of(session).records, upto)
        return next((record.turn_no for record in rows if record.message.turn_id == turn_id), None)

    def insert_records(
        self, session: int, records: Sequence[Record], covers: Sequence[tuple[Position, Stretch]] = ()
    ) -> None:
        one = self.of(session)
        taken = {key for r in one.records.values() for key in (r.message.id, r.seq)}
        for record in records:
            if record.position.segment not in one.segments:
                raise UnknownReferenceError(f"there is no segment {record.position.segment}")
            if record.position in one.records or taken & {record.message.id, record.seq}:
                raise DuplicateError(f"message {record.message.id!r}, its position or number is taken")
            one.records[record.position] = record
            one.last_seq = max(one.last_seq, record.seq)
            segment = one.segments[record.position.segment]
            one.segments[segment.segment] = segment._replace(tip=max(segment.tip, record.position.depth))
        one.covers += covers
        one.version += 1

    def raise_number(self, session: int, seq: int) -> None:
        self.of(session).last_seq = max(self.of(session).last_seq, seq)

    def erase(
        self, session: int, positions: Sequence[Position], stale: Sequence[Position], summaries: Collection[int]
    ) -> bool:
        one = self.of(session)
        one.epoch += 1
        one.forgotten |= {
            str(one.records.pop(position).message.id) for position in positions if position in one.records
        }
        one.covers = [cover for cover in one.covers if cover[0] not in positions]
        for space in one.spaces.values():
            for position in {*positions, *stale} & space.keys():
                del space[position]
        one.summaries = {number: kept for number, kept in one.summaries.items() if number not in summaries}
        one.snapshots.clear()
        return session in self.tables

    def tombstones(self, session: int, after: str | None, limit: int) -> list[str]:
        return [id_ for id_ in sorted(self.of(session).forgotten) if after is None or id_ > after][: max(limit, 0)]

    def forgotten(self, session: int, ids: Sequence[str]) -> set[str]:
        return self.of(session).forgotten & set(ids)

    def insert_tombstones(self, session: int, ids: Sequence[str]) -> None:
        self.of(session).forgotten |= set(ids) - {record.message.id for record in self.get(session, ids)}

    def put_vectors(self, session: int, space: str, vectors: Sequence[VectorRow]) -> None:
        one = self.of(session)
        rows = one.spaces.pop(space, {})
        one.spaces[space] = rows | {row[0]: row for row in vectors if row[0] in one.records}

    def vectors_at(self, session: int, space: str, positions: Sequence[Position]) -> list[VectorRow]:
        rows = self.of(session).spaces.get(space, {})
        return [rows[position] for position in positions if position in rows]

    def vectors_after(self, session: int, space: str, after: Position, limit: int) -> list[VectorRow]:
        rows = self.of(session).spaces.get(space, {})
        return [rows[position] for position in sorted(rows) if position > after][:limit]

    def vectors_of(self, session: int, space: str, hashes: Collection[str]) -> list[VectorRow]:
        rows = self.of(session).spaces.get(space, {}).values()
        return list({row[1]: row for row in rows if row[1] in hashes}.values())

    def spaces(self, session: int) -> list[str]:
        return [space for space, rows in reversed(self.of(session).spaces.items()) if rows]

    def put_snapshot(self, session: int, name: str, data: bytes) -> None:
        self.of(session).snapshots[name] = data

    def snapshot(self, session: int, name: str) -> bytes | None:
        return self.of(session).snapshots.get(name)

    def insert_summary(self, session: int, summary: Summary) -> None:
        self.of(session).summaries[next(self.numbers)] = summary

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        newest = reversed(self.of(session).summaries.values())
        found = [one for one in newest if _within(one.upto, Stretch(upto.segment, -1, upto.depth))]
        return sorted(found, key=lambda one: -one.upto.depth)[: max(limit, 0)]

    def summary_reaches(self, session: int) -> list[SummaryReach]:
        return [SummaryReach(number, one.upto, one.along) for number, one in self.of(session).summaries.items()]


def _within(position: Position, stretch: Stretch) -> bool:
    return position.segment == stretch.segment and stretch.start <= position.depth <= stretch.upto


class DictStore(TreeStore):
    """Undoes a transaction by going back to a copy of everything."""

    def __init__(self) -> None:
        self._rows = DictRows()
        self._lock = threading.RLock()
        self._closed = False

    @contextmanager
    def _reading(self) -> Iterator[DictRows]:
        with self._lock:
            if self._closed:
                raise StoreError("the store is closed")
            yield self._rows

    @contextmanager
    def _writing(self) -> Iterator[DictRows]:
        with self._reading() as rows:
            before = {key: copy.copy(one) for key, one in rows.tables.items()}
            for one in before.values():
                for name, value in vars(one).items():
                    setattr(one, name, copy.copy(value))
                one.spaces = {space: dict(vectors) for space, vectors in one.spaces.items()}
            try:
                yield rows
            except BaseException:
                rows.tables = before
                raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._writing():
            yield

    def _size(self) -> int:
        return 0

    def scrub(self) -> str | None:
        with self._reading():
            return None

    def close(self) -> None:
        self._closed = True
