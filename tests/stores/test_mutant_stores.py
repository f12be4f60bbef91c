"""The store contract, proven: a store that breaks one promise fails the test that stands for it."""

import inspect
import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings

from shared_core.errors import DuplicateError, InfiniteMemoryError, StoreError, UnknownReferenceError
from shared_core.records import (
    ROOT,
    After,
    Appended,
    Branch,
    Change,
    CheckedOut,
    Criterion,
    Derived,
    Draft,
    Forgotten,
    IdPrefix,
    InTurn,
    MadeFrom,
    MainChanges,
    MainNews,
    Mark,
    Merge,
    Move,
    Position,
    Put,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionInfo,
    SessionKey,
    SessionState,
    Snapshot,
    Summary,
    VectorRow,
    VectorRows,
)
from shared_core.store import ALL, Store
from shared_core.stores import SQLiteStore
from shared_core.testing import StoreContract

TESTS = {name: test for name, test in inspect.getmembers(StoreContract, inspect.isfunction) if name.startswith("test_")}


class LosesOrder(SQLiteStore):
    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        return super().newest(session, upto, limit)[::-1]


class AnswersInOrderOfStoring(SQLiteStore):
    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        return sorted(super().get(session, keys), key=lambda record: record.seq)


class PagesWithGaps(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        if isinstance(criterion, After):
            criterion = criterion._replace(seq=criterion.seq + (criterion.seq > 0))
        return super().find(session, criterion)


class IgnoresTheSession(SQLiteStore):
    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        others = (record for key in range(1, 50) for record in super(IgnoresTheSession, self).get(key, keys))
        return super().get(session, keys) or list(others)


class MixesUsers(SQLiteStore):
    def create_session(self, user_id: str | None, session_id: str) -> int:
        return super().create_session(user_id or None, session_id)


class GluesKeys(SQLiteStore):
    def create_session(self, user_id: str | None, session_id: str) -> int:
        return super().create_session(None, f"{user_id}{session_id}")

    def session(self, user_id: str | None, session_id: str) -> int | None:
        return super().session(None, f"{user_id}{session_id}")


class CreatesOnLooking(SQLiteStore):
    def session(self, user_id: str | None, session_id: str) -> int | None:
        return self.create_session(user_id, session_id)


class KeepsVectors(SQLiteStore):
    kept: dict[str, VectorRow]

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if isinstance(derived, VectorRows):
            derived = derived._replace(rows=list(derived.rows))
            self.kept = {row[1]: row for row in derived.rows}
        return super().keep(session, derived, epoch)

    def vectors(self, *which: Any, hashes: Collection[str] | None = None) -> Iterator[VectorRow]:
        if hashes is None:
            return super().vectors(*which)
        return iter([self.kept[hash_] for hash_ in hashes if hash_ in self.kept])


class MixesSpaces(SQLiteStore):
    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if isinstance(derived, VectorRows):
            derived = derived._replace(space=derived.space.lower())
        return super().keep(session, derived, epoch)

    def vectors(self, session: int, space: str, *which: Any, **how: Any) -> Iterator[VectorRow]:
        return super().vectors(session, space.lower(), *which, **how)


class NamesSpacesByAlphabet(SQLiteStore):
    def spaces(self, session: int) -> list[str]:
        return sorted(super().spaces(session))


class ReusesDepths(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute(
                "UPDATE segments SET least_tip = (SELECT coalesce(max(depth), -1) FROM messages AS m "
                "WHERE m.session = segments.session AND m.segment = segments.segment)"
            )
            connection.execute(
                "UPDATE branches SET depth = min(depth, (SELECT tip FROM tips AS s "
                "WHERE s.session = branches.session AND s.segment = branches.segment))"
            )


class KeepsStaleVectors(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how | {"stale": ()})


class ReusesNumbers(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute("UPDATE sessions SET least_seq = 0")


class KeepsTheEpoch(SQLiteStore):
    def state(self, session: int, branch: str | None = None) -> SessionState:
        return super().state(session, branch)._replace(epoch=0)


class TakesStaleSnapshots(SQLiteStore):
    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        return super().keep(session, derived, None if isinstance(derived, Snapshot) else epoch)


class LosesEmptySnapshots(SQLiteStore):
    def snapshot(self, session: int, name: str) -> bytes | None:
        return super().snapshot(session, name) or None


class KeepsSnapshots(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        kept = {name: self.snapshot(session, name) for name in ("a", "b")}
        super().forget(session, positions, **how)
        for name, data in kept.items():
            self.keep(session, Snapshot(name, data or b""), self.state(session).epoch)


class AcceptsChangedContent(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        taken = {record.message.id for record in self.get(session, [str(draft.message.id) for draft in drafts])}
        new = [draft for draft in drafts if draft.message.id not in taken]
        return super().append(session, branch, new, **how)


class StoresHalfACall(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        try:
            return super().append(session, branch, drafts, **how)
        except DuplicateError:
            super().append(session, branch, drafts[:1], **how)
            raise


class IgnoresTheTurn(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        return super().append(session, branch, drafts, **how | {"turn": None})


class GivesRepliesTheNewestTurn(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        taken = {record.message.id for record in self.get(session, [str(draft.message.id) for draft in drafts])}
        new = [draft for draft in drafts if draft.message.id not in taken]
        appended = super().append(session, branch, new, **how)
        return replace(super().append(session, branch, drafts), added=appended.added)


class TakesTurnsOfOtherBranches(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        try:
            return super().append(session, branch, drafts, **how)
        except UnknownReferenceError:
            if how.get("turn") is None or not self.find(session, InTurn(how["turn"])):
                raise
            return super().append(session, branch, drafts, **how | {"turn": None})


class MakesMissingBranches(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        try:
            return super().append(session, branch, drafts, **how)
        except UnknownReferenceError:
            return super().append(session, branch, drafts, at=Position(0, -1))


class BringsBackTheForgotten(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute("DELETE FROM tombstones")


class ForgetsTheWrongPlace(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, [Position(0, place.depth) for place in positions], **how)


class BeginsAnewAtTheOldRoot(SQLiteStore):
    def branches(self, session: int) -> list[Branch]:
        return [Branch(name, Position(0, head.depth)) for name, head in super().branches(session)]


class HasWildcards(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        if not isinstance(criterion, IdPrefix):
            return super().find(session, criterion)
        sql = "SELECT id FROM messages WHERE session = ? AND id LIKE ? || '%' ORDER BY seq LIMIT ?"
        return self.get(session, [row[0] for row in self._db.query(sql, (session, *criterion))])


class CutsAtNul(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        found = super().find(session, criterion)
        for record in found:
            object.__setattr__(record, "message", record.message.replace(content=record.message.content.split("\0")[0]))
        return found


class KeepsTimeInUtc(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        found = super().find(session, criterion)
        for record in found:
            assert record.message.created_at is not None
            there = record.message.created_at.astimezone(UTC)
            object.__setattr__(record, "message", record.message.replace(created_at=there))
        return found


class CountsEverySession(SQLiteStore):
    def stats(self, session: int) -> Mapping[str, int]:
        return {**super().stats(session), "messages": self._db.query("SELECT count(*) FROM messages")[0][0]}


class NeverScrubs(SQLiteStore):
    def scrub(self) -> str | None:
        return "not now"


class ClosesOnce(SQLiteStore):
    def close(self) -> None:
        assert not self._db._closed, "closed twice"
        super().close()


class ReadsAfterClosing(SQLiteStore):
    def state(self, session: int, branch: str | None = None) -> SessionState:
        return SessionState(None, 0, 0) if self._db._closed else super().state(session, branch)


class HoldsNoNul(SQLiteStore):
    """Sound: says which message it cannot hold."""

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        for draft in drafts:
            if "\0" in draft.message.content:
                raise StoreError(f"message {draft.message.id!r} has a NUL, which this store cannot hold")
        return super().append(session, branch, drafts, **how)


class RefusesWithoutAName(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        if any("\0" in draft.message.content for draft in drafts):
            raise StoreError("no")
        return super().append(session, branch, drafts, **how)


class MergesTheOtherWayRound(SQLiteStore):
    def change(self, session: int, changes: Sequence[Change]) -> None:
        for one in changes:
            if isinstance(one, Merge):
                head = dict(self.branches(session))[one.branch]
                super().change(session, [Move(one.branch, one.source, ""), Merge(one.branch, head, one.note)])
            else:
                super().change(session, [one])


class NumbersTurnsAnew(SQLiteStore):
    def segment(self, session: int, segment: int) -> Segment:
        return super().segment(session, segment)._replace(turn_shift=0)


class ChangesHalf(SQLiteStore):
    def change(self, session: int, changes: Sequence[Change]) -> None:
        for one in changes:
            super().change(session, [one])


class IgnoresWhereABranchIs(SQLiteStore):
    def change(self, session: int, changes: Sequence[Change]) -> None:
        super().change(session, [one._replace(expect=None) if isinstance(one, Move) else one for one in changes])


class KeepsNoMoves(SQLiteStore):
    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 10**6) -> list[Ref]:
        return super().refs(session, kind, name, limit) if kind != "move" else []


class KeepsNamesWhenAllIsForgotten(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        tags = self.refs(session, "tag")
        super().forget(session, positions, **how)
        for tag in tags if how.get("branches") else ():
            self.change(session, [Put("tag", tag.name, self.branches(session)[0].head)])


class LosesOrigins(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        copies = isinstance(criterion, MadeFrom)
        return [record for record in super().find(session, criterion) if not copies or record.picked_from is not None]


class CoversEverything(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        if not isinstance(criterion, MadeFrom):
            return super().find(session, criterion)
        segments = {position.segment for position in criterion.positions}
        return self.get(session, [position for position, _ in self.covers(session, segments)])


class ChangesLater(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        changes = how.pop("changes", ())
        appended = super().append(session, branch, drafts, **how)
        self.change(session, changes)
        return appended


class KeepsSummaries(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        kept = self.summaries(session, Position(0, 9), 9)
        super().forget(session, positions, **how)
        for summary in kept:
            self.keep(session, summary, self.state(session).epoch)


class DropsAllSummaries(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute("DELETE FROM summaries")


class TakesStaleSummaries(SQLiteStore):
    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        return super().keep(session, derived, None if isinstance(derived, Summary) else epoch)


class ReplacesSummaries(SQLiteStore):
    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        newest = {summary.upto: summary for summary in reversed(super().summaries(session, upto, limit))}
        return [newest[place] for place in sorted(newest, reverse=True)]


class RestoresHalf(SQLiteStore):
    def restore(self, session: int, restored: Restored) -> None:
        super().restore(session, replace(restored, covers=(), refs=()))


class CarriesBranchesAlong(SQLiteStore):
    def restore(self, session: int, restored: Restored) -> None:
        ends = {branch.name: branch.head for branch in self.branches(session)}
        super().restore(session, restored)
        for record in restored.records:
            for name, head in ends.items():
                if head == record.position._replace(depth=record.position.depth - 1):
                    super().restore(session, Restored(branches=(Branch(name, record.position),)))


class CommitsAsItGoes(SQLiteStore):
    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()


class TellsOthersForgotten(SQLiteStore):
    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        return super().forgotten(1, after, limit)


class AsksTheFirstSession(SQLiteStore):
    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        return super().are_forgotten(1, ids)


class KnowsNobody(SQLiteStore):
    def sessions(self, *user_ids: str | None, **how: Any) -> list[SessionKey]:
        return [one for one in super().sessions(*user_ids, **how) if one.user_id is not None]


class NamesNobodys(SQLiteStore):
    def sessions_named(self, session_id: str) -> list[SessionKey]:
        return [one for one in super().sessions_named(session_id) if one.user_id is None]


class FindsInEverybodysSessions(SQLiteStore):
    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        return [one for one in super().sessions() if super(SQLiteStore, self).get(one.key, [str(message)])]


class DescribesEverybody(SQLiteStore):
    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        return super().overview(limit=limit)


class DescribesInOrderOfCreation(SQLiteStore):
    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        infos = {(info.user_id, info.session_id): info for info in super().overview(*user_ids)}
        return [infos[one[1:]] for one in self.sessions(*user_ids) if one[1:] in infos][:limit]


class CutsTitlesInBytes(SQLiteStore):
    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        infos = super().overview(*user_ids, limit=limit)
        titles = [info.title and info.title.encode("utf-8", "replace")[:79].decode("utf-8", "ignore") for info in infos]
        return [replace(info, title=title) for info, title in zip(infos, titles, strict=True)]


class RenamesByCopying(SQLiteStore):
    def rename_session(self, session: int, session_id: str) -> None:
        (user,) = (one.user_id for one in self.sessions() if one.key == session)
        key = self.create_session(user, session_id)
        self.append(key, "main", [Draft(record.message) for record in self.find(session, After(0, 99))])


class TakesNamesInUse(SQLiteStore):
    def rename_session(self, session: int, session_id: str) -> None:
        with self._writing() as rows:
            rows.rename_sessions({session: session_id})


class CatchesUpOnItsBranch(SQLiteStore):
    def catch_up(
        self, session: int, branch: str | None, after_seq: int, limit: int
    ) -> tuple[SessionState, list[Record]]:
        state, records = super().catch_up(session, branch, after_seq, limit)
        return state, [record for record in records if state.head and record.position.segment == state.head.segment]


class CatchesUpTwice(SQLiteStore):
    def catch_up(
        self, session: int, branch: str | None, after_seq: int, limit: int
    ) -> tuple[SessionState, list[Record]]:
        return super().catch_up(session, branch, after_seq - 1, limit)


class StopsAtForks(SQLiteStore):
    def check_out(self, session: int, branch: str | None, at: Position | None, **how: Any) -> CheckedOut:
        found = super().check_out(session, branch, at, **how)
        segment = found.newest[0].position.segment if found.newest else 0
        return found._replace(newest=[record for record in found.newest if record.position.segment == segment])


class LeavesParentsOut(SQLiteStore):
    def check_out(self, session: int, branch: str | None, at: Position | None, **how: Any) -> CheckedOut:
        found = super().check_out(session, branch, at, **how)
        return found._replace(segments=found.segments[:1])


class CountsOnlyMessages(SQLiteStore):
    """A version that does not grow when a branch moves, when something is forgotten, and so on."""

    def state(self, session: int, branch: str | None = None) -> SessionState:
        state = super().state(session, branch)
        return state._replace(version=state.last_seq)


class ForgetsUnseen(SQLiteStore):
    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        super().forget(session, positions, stale=stale, branches=branches)
        with self._db.writing() as connection:
            connection.execute("UPDATE sessions SET changes = changes - 1 WHERE session = ?", (session,))


class RaisesForWhatIsDerived(SQLiteStore):
    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        kept = super().keep(session, derived, epoch)
        with self._writing() as rows:
            rows.raise_version(session)
        return kept


class TakesItsCallersWord(SQLiteStore):
    """What is known gives the turn, whatever has moved since."""

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        known = how.pop("known", None)
        reply = drafts[0].message.role == "assistant"
        if known is not None and reply and how.get("turn") is None:
            with suppress(UnknownReferenceError):
                return super().append(session, branch, drafts, **{**how, "turn": known.turn.turn_id})
        return super().append(session, branch, drafts, **how)


class MovesToWhatIsKnown(SQLiteStore):
    """What is known says where messages go, whatever has moved since."""

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        known = how.get("known")
        if known is not None and self.state(session, branch).last_seq == known.state.last_seq:
            super().change(session, [Move(branch, known.state.head, "")])
        return super().append(session, branch, drafts, **how)


class KeepsWhateverItIsGiven(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        return super().append(session, branch, drafts, **{**how, "epoch": self.state(session).epoch})


class KeepsItAfterwards(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        vectors, epoch = how.pop("vectors", None), how.pop("epoch", None)
        kept = vectors is None or self.keep(session, vectors, epoch)
        return replace(super().append(session, branch, drafts, **how), kept=kept)


class PagesUsersByKey(SQLiteStore):
    def users(self, after: str | None = None, limit: int = ALL) -> list[str]:
        found = list(dict.fromkeys(one.user_id for one in self.sessions() if one.user_id is not None))
        return [user for user in found if after is None or user > after][:limit]


class IgnoresWhereAPageBegins(SQLiteStore):
    def sessions(self, *user_ids: str | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        return super().sessions(*user_ids, limit=limit) if after < 3 else []


class ReadsOnlyTheNewOfMain(SQLiteStore):
    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        found = super().main_news(wanted, space)
        lines = {key: {segment.segment for segment in news.segments} for key, news in found.items()}
        return {
            key: news._replace(records=[record for record in news.records if record.position.segment in lines[key]])
            for key, news in found.items()
        }


class ReadsPastTheLast(SQLiteStore):
    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        return super().main_news({key: (after, ALL) for key, (after, _) in wanted.items()}, space)


class TellsOnlyOfNewMessages(SQLiteStore):
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        last = {key: state.last_seq for key, state in super().main_states()} if since is None else self.last
        found, self.last = super().main_changes(user_id, since), last
        grown = [(key, state) for key, state in found.states if state.last_seq > last.get(key, 0)]
        return found if found.whole else found._replace(states=grown)

    last: dict[SessionKey, int]


class TellsNotWhatIsGone(SQLiteStore):
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        return found._replace(states=[one for one in found.states if one[1].head not in (None, ROOT)])


class TellsTheChangesOfEverybody(SQLiteStore):
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        others = [user for user in (*self.users(), None) if user != user_id and not found.whole]
        return found._replace(
            states=sum((super(type(self), self).main_changes(o, since).states for o in others), found.states)
        )


class TellsEachChangeOnce(SQLiteStore):
    """Keeps what was told in the object, whoever asks."""

    since: Mark | None = None

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, None if since is None else self.since)
        self.since = found.mark
        return found


class MarksWhatMayBeUndone(SQLiteStore):
    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        ((text, changed),) = self._db.query("SELECT (SELECT max(text) FROM texts), (SELECT max(changed) FROM sessions)")
        return found._replace(mark=(text or 0, changed or 0, 9))


class MarksByANumberTakenBefore(SQLiteStore):
    """A change takes its number before its transaction, which may end after that of a larger number."""

    numbers: ClassVar[dict[Path, tuple[Iterator[int], dict[int, int]]]] = {}

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        sequence, changed = self.numbers.setdefault(self._db._path, (itertools.count(1), {}))
        number = next(sequence)
        time.sleep(0.003 * (number % 3))
        appended = super().append(session, branch, drafts, **how)
        changed[session] = number
        return appended

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        _, changed = self.numbers.setdefault(self._db._path, (itertools.count(1), {}))
        numbers = dict(changed)
        mark = (max(numbers.values(), default=0),)
        states = self.main_states(user_id)
        if since is None:
            return MainChanges(states, mark, True)
        return MainChanges([one for one in states if numbers.get(one[0].key, 0) > since[0]], mark, False)


class KeepsVectorsOfWhatIsOutdated(SQLiteStore):
    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:
        return super().keep_vectors(space, rows, {session: self.state(session).epoch for session in rows})


class TakesVectorsOfOldTexts(SQLiteStore):
    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        return list(self.vectors(session, space, list(hashes)))


class KnowsOnlyTheLastCall(SQLiteStore):
    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        return super().forgotten_since(session, max(epoch, self.state(session).epoch - 1))


class KnowsNothingOfTheStale(SQLiteStore):
    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        found = super().forgotten_since(session, epoch)
        return None if found is None else found._replace(stale=[])


class ReadsWhatIsOutdated(SQLiteStore):
    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        return super().at(wanted, {})


class ChecksOnlyWhatItReads(SQLiteStore):
    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        return super().at(wanted, {session: epoch for session, epoch in epochs.items() if session in wanted})


class NumbersFromASequence(SQLiteStore):
    """Takes a number before its transaction, which may end after that of a larger number."""

    sequences: ClassVar[dict[Path, Iterator[int]]] = {}

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        sequence = self.sequences.setdefault(self._db._path, itertools.count(1))
        numbers = [next(sequence) for _ in drafts]
        time.sleep(0.003 * (numbers[0] % 3))
        with self.transaction():
            return _stored_with(self, session, branch, drafts, numbers)


class ReadsBeforeItWaits(SQLiteStore):
    """Numbers messages by what it read before it had the lock."""

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        last = self.state(session).last_seq
        time.sleep(0.002)
        with self.transaction():
            return _stored_with(self, session, branch, drafts, range(last + 1, last + 1 + len(drafts)))


def _stored_with(
    store: Store, session: int, branch: str, drafts: Sequence[Draft], numbers: Iterable[int]
) -> Appended:  # fmt: skip
    head, turn = store.state(session, branch).head, str(drafts[0].message.id)
    assert head is not None
    records = [
        Record(draft.message.replace(turn_id=turn), Position(head.segment, head.depth + n), seq, 0, "words", 1)
        for n, (draft, seq) in enumerate(zip(drafts, numbers, strict=True), 1)
    ]
    end = records[-1].position
    store.restore(session, Restored(records=tuple(records), branches=(Branch(branch, end),)))
    return Appended(tuple(records), frozenset(str(draft.message.id) for draft in drafts), (), end)


class LooksAndThenCreates(SQLiteStore):
    def create_session(self, user_id: str | None, session_id: str) -> int:
        known = self.session(user_id, session_id)
        time.sleep(0.002)
        if known is not None:
            return known
        with self._writing() as rows:
            return rows.insert_session(user_id, session_id)


class ChecksBeforeItKeeps(SQLiteStore):
    kinds: tuple[type, ...] = (Snapshot,)

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if not isinstance(derived, self.kinds):
            return super().keep(session, derived, epoch)
        current = self.state(session).epoch == epoch
        for _ in range(200):  # until somebody has forgotten something meanwhile, or nobody does
            if self.state(session).epoch != epoch:
                break
            time.sleep(0.001)
        return super().keep(session, derived, None) if current else False


class ChecksBeforeItKeepsSummaries(ChecksBeforeItKeeps):
    kinds = (Summary,)


class StopsAfterAFork(SQLiteStore):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._pid = os.getpid()
        super().__init__(*arguments, **named)

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        if self._pid != os.getpid():
            raise StoreError("this connection belongs to another process")
        return super().append(session, branch, drafts, **how)


BROKEN: list[tuple[type[SQLiteStore], str]] = [
    (RestoresHalf, "test_a_session_is_brought_as_it_was"),
    (RestoresHalf, "test_what_a_restored_message_sums_up_is_known"),
    (CarriesBranchesAlong, "test_what_a_restored_message_sums_up_is_known"),
    (CommitsAsItGoes, "test_a_transaction_is_all_or_nothing"),
    (TellsOthersForgotten, "test_forgotten_ids_are_read_by_pages"),
    (AsksTheFirstSession, "test_it_can_be_asked_which_ids_are_forgotten"),
    (KnowsNobody, "test_users_are_known"),
    (NamesNobodys, "test_no_two_sessions_share_anything"),
    (FindsInEverybodysSessions, "test_no_two_sessions_share_anything"),
    (LosesOrder, "test_reading_is_limited_and_paged"),
    (AnswersInOrderOfStoring, "test_reading_is_limited_and_paged"),
    (PagesWithGaps, "test_reading_is_limited_and_paged"),
    (IgnoresTheSession, "test_one_session_does_not_see_another"),
    (MixesUsers, "test_no_two_sessions_share_anything"),
    (GluesKeys, "test_no_two_sessions_share_anything"),
    (CreatesOnLooking, "test_a_session_exists_from_its_creation_on"),
    (KeepsVectors, "test_forgetting_reaches_everything"),
    (MixesSpaces, "test_vectors_are_kept_by_position_and_text"),
    (NamesSpacesByAlphabet, "test_vectors_are_kept_by_position_and_text"),
    (ReusesDepths, "test_forgetting_reaches_everything"),
    (ReusesDepths, "test_any_history_reads_like_the_oracle"),
    (ReusesNumbers, "test_forgetting_reaches_everything"),
    (KeepsStaleVectors, "test_what_is_stale_loses_its_vectors_and_nothing_else"),
    (KeepsTheEpoch, "test_forgetting_reaches_everything"),
    (TakesStaleSnapshots, "test_forgetting_reaches_everything"),
    (KeepsSnapshots, "test_forgetting_reaches_everything"),
    (LosesEmptySnapshots, "test_a_snapshot_is_exact"),
    (AcceptsChangedContent, "test_other_content_under_a_known_id_is_refused"),
    (StoresHalfACall, "test_other_content_under_a_known_id_is_refused"),
    (IgnoresTheTurn, "test_replies_join_their_turn"),
    (GivesRepliesTheNewestTurn, "test_replies_join_the_known_message_before_them"),
    (GivesRepliesTheNewestTurn, "test_any_history_reads_like_the_oracle"),
    (TakesTurnsOfOtherBranches, "test_unknown_branches_turns_and_positions_are_refused"),
    (MakesMissingBranches, "test_unknown_branches_turns_and_positions_are_refused"),
    (BringsBackTheForgotten, "test_forgetting_reaches_everything"),
    (ForgetsTheWrongPlace, "test_forgetting_reaches_everything"),
    (BeginsAnewAtTheOldRoot, "test_forgetting_all_begins_anew"),
    (HasWildcards, "test_a_prefix_means_itself"),
    (CutsAtNul, "test_any_text_is_exact_or_refused_by_name"),
    (RefusesWithoutAName, "test_any_text_is_exact_or_refused_by_name"),
    (KeepsTimeInUtc, "test_messages_come_back_as_they_were"),
    (CountsEverySession, "test_one_session_does_not_see_another"),
    (NeverScrubs, "test_forgetting_reaches_everything"),
    (ClosesOnce, "test_a_closed_store_says_so"),
    (ReadsAfterClosing, "test_a_closed_store_says_so"),
    (MergesTheOtherWayRound, "test_a_merge_has_two_parents_in_order"),
    (MergesTheOtherWayRound, "test_any_tree_with_merges_reads_like_the_oracle"),
    (NumbersTurnsAnew, "test_a_merge_has_two_parents_in_order"),
    (ChangesHalf, "test_changes_are_made_together_or_not_at_all"),
    (IgnoresWhereABranchIs, "test_changes_are_made_together_or_not_at_all"),
    (KeepsNoMoves, "test_what_becomes_of_branches_is_noted"),
    (KeepsNamesWhenAllIsForgotten, "test_names_go_when_all_is_forgotten"),
    (LosesOrigins, "test_it_is_known_what_a_message_was_made_from"),
    (CoversEverything, "test_it_is_known_what_a_message_was_made_from"),
    (KeepsSummaries, "test_forgetting_takes_the_summaries_that_cover_it"),
    (DropsAllSummaries, "test_forgetting_takes_the_summaries_that_cover_it"),
    (TakesStaleSummaries, "test_summaries_come_back_by_position"),
    (ReplacesSummaries, "test_summaries_come_back_by_position"),
    (DescribesEverybody, "test_sessions_are_described"),
    (DescribesInOrderOfCreation, "test_sessions_are_described"),
    (CutsTitlesInBytes, "test_a_title_is_one_short_line"),
    (RenamesByCopying, "test_a_renamed_session_keeps_everything"),
    (TakesNamesInUse, "test_a_name_in_use_is_refused"),
    (TakesNamesInUse, "test_a_name_of_no_messages_is_swapped"),
    (CatchesUpOnItsBranch, "test_catching_up_returns_the_state_and_what_is_new"),
    (CatchesUpTwice, "test_catching_up_returns_the_state_and_what_is_new"),
    (StopsAtForks, "test_a_branch_is_checked_out_with_all_that_leads_to_it"),
    (LeavesParentsOut, "test_a_branch_is_checked_out_with_all_that_leads_to_it"),
    (CountsOnlyMessages, "test_the_version_grows_with_every_change_of_the_session_alone"),
    (ForgetsUnseen, "test_the_version_grows_with_every_change_of_the_session_alone"),
    (RaisesForWhatIsDerived, "test_the_version_grows_with_every_change_of_the_session_alone"),
    (TakesItsCallersWord, "test_what_a_caller_knows_changes_nothing_but_the_time"),
    (MovesToWhatIsKnown, "test_what_a_caller_knows_changes_nothing_but_the_time"),
    (KeepsWhateverItIsGiven, "test_vectors_are_kept_along_with_messages_if_nothing_was_forgotten"),
    (KeepsItAfterwards, "test_vectors_are_kept_along_with_messages_if_nothing_was_forgotten"),
    (IgnoresWhereAPageBegins, "test_users_and_sessions_are_read_by_pages"),
    (PagesUsersByKey, "test_users_and_sessions_are_read_by_pages"),
    (ReadsOnlyTheNewOfMain, "test_what_is_new_on_main_comes_for_many_sessions_at_once"),
    (ReadsPastTheLast, "test_what_is_new_on_main_comes_for_many_sessions_at_once"),
    (TellsOnlyOfNewMessages, "test_whoever_asks_for_changes_knows_what_is_on_every_main"),
    (TellsNotWhatIsGone, "test_whoever_asks_for_changes_knows_what_is_on_every_main"),
    (TellsTheChangesOfEverybody, "test_whoever_asks_for_changes_knows_what_is_on_every_main"),
    (TellsEachChangeOnce, "test_whoever_asks_for_changes_knows_what_is_on_every_main"),
    (TellsEachChangeOnce, "test_what_was_told_may_be_asked_for_again"),
    (MarksWhatMayBeUndone, "test_what_is_undone_is_not_taken_for_read"),
    (MarksByANumberTakenBefore, "test_any_changes_of_two_objects_are_told_to_whoever_asks"),
    (KeepsVectorsOfWhatIsOutdated, "test_the_vectors_of_several_sessions_are_kept_where_nothing_was_forgotten"),
    (TakesVectorsOfOldTexts, "test_known_vectors_are_a_messages_own_or_of_an_equal_text"),
    (KnowsOnlyTheLastCall, "test_what_was_forgotten_since_an_epoch_is_known_whole_or_not_at_all"),
    (KnowsNothingOfTheStale, "test_what_was_forgotten_since_an_epoch_is_known_whole_or_not_at_all"),
    (ReadsWhatIsOutdated, "test_messages_are_read_only_if_nothing_was_forgotten"),
    (ChecksOnlyWhatItReads, "test_messages_are_read_only_if_nothing_was_forgotten"),
    (NumbersFromASequence, "test_any_appends_of_two_objects_are_one_order"),
    (ReadsBeforeItWaits, "test_any_appends_of_two_objects_are_one_order"),
    (LooksAndThenCreates, "test_any_two_objects_create_one_session"),
    (ChecksBeforeItKeeps, "test_any_what_is_derived_goes_with_what_it_is_made_from"),
    (ChecksBeforeItKeepsSummaries, "test_any_what_is_derived_goes_with_what_it_is_made_from"),
    (StopsAfterAFork, "test_a_store_goes_on_after_a_fork"),
    (ChangesLater, "test_changes_and_messages_are_one_transaction"),
]


def cases(name: str) -> list[dict[str, Any]]:
    """The arguments of a contract test, fixtures aside."""
    for mark in getattr(TESTS[name], "pytestmark", []):
        return [{mark.args[0]: value} for value in mark.args[1]]
    return [{}]


def run(kind: type[SQLiteStore], name: str, folder: Path) -> None:
    """Call one contract test, with all its arguments, on new stores."""
    for number, arguments in enumerate(cases(name)):
        path = folder / f"{name}-{number}.db"
        store = kind(path, durability="process")

        def reopen(path: Path = path) -> Store:
            return kind(path, durability="process")

        if "reopen" in inspect.signature(TESTS[name]).parameters:
            arguments = {**arguments, "reopen": reopen}
        try:
            TESTS[name](StoreContract(), store=store, **arguments)
        finally:
            SQLiteStore.close(store)


@pytest.mark.parametrize("name", TESTS)
def test_a_sound_store_passes(name: str, tmp_path: Path) -> None:
    run(SQLiteStore, name, tmp_path)


def test_a_store_may_refuse_a_text_by_name(tmp_path: Path) -> None:
    run(HoldsNoNul, "test_any_text_is_exact_or_refused_by_name", tmp_path)


@pytest.fixture
def _unshrunk() -> Iterator[None]:
    """Let hypothesis stop at the first failure it finds; which one does not matter here."""
    name = settings.get_current_profile_name()
    settings.register_profile("unshrunk", settings(), phases=[Phase.generate])
    settings.load_profile("unshrunk")
    yield
    settings.load_profile(name)


@pytest.mark.usefixtures("_unshrunk")
@pytest.mark.parametrize(("kind", "name"), BROKEN)
def test_a_broken_store_is_found_out(kind: type[SQLiteStore], name: str, tmp_path: Path) -> None:
    # An error of ours where the contract expects none is a failed test, too. A test that never ends finds nothing out.
    with pytest.raises((AssertionError, pytest.fail.Exception, InfiniteMemoryError), match=r"^(?!Timeout)"):
        run_often(kind, name, tmp_path)


def run_often(kind: type[SQLiteStore], name: str, folder: Path) -> None:
    """Run a test of the contract, several times if it goes by chance."""
    for attempt in range(8 if name.startswith("test_any_") else 1):
        (here := folder / f"{attempt}").mkdir()
        run(kind, name, here)
