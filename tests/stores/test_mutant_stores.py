"""The store contract, proven: a store that breaks one promise fails the test that stands for it."""

import inspect
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings

from shared_core.errors import DuplicateError, InfiniteMemoryError, UnknownReferenceError
from shared_core.queries import After, Criterion, IdPrefix, Query
from shared_core.records import (
    Appended,
    Branch,
    Change,
    Derived,
    Draft,
    MainChanges,
    Mark,
    Merge,
    Move,
    Position,
    Record,
    Restored,
    SessionState,
    Snapshot,
    VectorRow,
    VectorRows,
)
from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.testing import StoreContract

TESTS = {name: test for name, test in inspect.getmembers(StoreContract, inspect.isfunction) if name.startswith("test_")}


class LosesOrder(SQLiteStore):
    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        return super().newest(session, upto, limit)[::-1]


class PagesWithGaps(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        if isinstance(criterion, After):
            criterion = criterion._replace(seq=criterion.seq + (criterion.seq > 0))
        return super().find(session, criterion)


class IgnoresTheSession(SQLiteStore):
    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        others = (record for key in range(1, 50) for record in super(IgnoresTheSession, self).get(key, keys))
        return super().get(session, keys) or list(others)


class GluesKeys(SQLiteStore):
    def create_session(self, user_id: str | None, session_id: str) -> int:
        return super().create_session(None, f"{user_id}{session_id}")

    def session(self, user_id: str | None, session_id: str) -> int | None:
        return super().session(None, f"{user_id}{session_id}")


class CreatesOnLooking(SQLiteStore):
    def session(self, user_id: str | None, session_id: str) -> int | None:
        return super().session(user_id, session_id) or self._write(
            lambda rows: rows.insert_session(user_id, session_id)
        )


class KeepsVectors(SQLiteStore):
    kept: dict[str, VectorRow]

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if isinstance(derived, VectorRows):
            derived = derived._replace(rows=list(derived.rows))
            self.kept = {row[1]: row for row in derived.rows}
        return super().keep(session, derived, epoch)

    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        return [self.kept[hash_] for hash_ in hashes.values() if hash_ in self.kept]


class ReusesDepths(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute(
                "UPDATE segments SET tip = (SELECT coalesce(max(depth), -1) FROM messages AS m "
                "WHERE m.session = segments.session AND m.segment = segments.segment)"
            )
            connection.execute(
                "UPDATE branches SET depth = min(depth, (SELECT tip FROM segments AS s "
                "WHERE s.session = branches.session AND s.segment = branches.segment))"
            )


class ReusesNumbers(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute("UPDATE sessions SET least_seq = 0")


class KeepsSnapshots(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        kept = {name: self.snapshot(session, name) for name in ("a", "b")}
        super().forget(session, positions, **how)
        for name, data in kept.items():
            self.keep(session, Snapshot(name, data or b""), self.state(session).epoch)


class StoresHalfACall(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        try:
            return super().append(session, branch, drafts, **how)
        except DuplicateError:
            super().append(session, branch, drafts[:1], **how)
            raise


class LeavesMessagesElsewhere(SQLiteStore):
    """Stores what is new in a call, and leaves what another branch holds where it is."""

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        try:
            return super().append(session, branch, drafts, **how)
        except DuplicateError:
            known = {record.message.id for record in self.get(session, [str(draft.message.id) for draft in drafts])}
            return super().append(session, branch, [one for one in drafts if one.message.id not in known], **how)


class GivesRepliesTheNewestTurn(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        taken = {record.message.id for record in self.get(session, [str(draft.message.id) for draft in drafts])}
        new = [draft for draft in drafts if draft.message.id not in taken]
        appended = super().append(session, branch, new, **how)
        return replace(super().append(session, branch, drafts), added=appended.added)


class BringsBackTheForgotten(SQLiteStore):
    def forget(self, session: int, positions: Sequence[Position], **how: Any) -> None:
        super().forget(session, positions, **how)
        with self._db.writing() as connection:
            connection.execute("DELETE FROM tombstones")


class HasWildcards(SQLiteStore):
    def find(self, session: int, criterion: Criterion) -> list[Record]:
        if not isinstance(criterion, IdPrefix):
            return super().find(session, criterion)
        sql = "SELECT id FROM messages WHERE session = ? AND id LIKE ? || '%' ORDER BY seq LIMIT ?"
        return self.get(session, [row[0] for row in self._db.query(sql, (session, *criterion))])


class NeverScrubs(SQLiteStore):
    def scrub(self) -> str | None:
        return "not now"


class MergesTheOtherWayRound(SQLiteStore):
    def change(self, session: int, changes: Sequence[Change]) -> None:
        for one in changes:
            if isinstance(one, Merge):
                head = dict(self.branches(session))[one.branch]
                super().change(session, [Move(one.branch, one.source, ""), Merge(one.branch, head, one.note)])
            else:
                super().change(session, [one])


class ChangesHalf(SQLiteStore):
    def change(self, session: int, changes: Sequence[Change]) -> None:
        for one in changes:
            super().change(session, [one])


class IgnoresWhereABranchIs(SQLiteStore):
    def change(self, session: int, changes: Sequence[Change]) -> None:
        super().change(session, [one._replace(expect=None) if isinstance(one, Move) else one for one in changes])


class ChangesLater(SQLiteStore):
    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        changes = how.pop("changes", ())
        appended = super().append(session, branch, drafts, **how)
        self.change(session, changes)
        return appended


class RestoresHalf(SQLiteStore):
    def restore(self, session: int, restored: Restored) -> None:
        super().restore(session, replace(restored, covers=(), refs=()))


class CatchesUpOnItsBranch(SQLiteStore):
    def read(self, session: int, *queries: Query) -> list[Any]:
        answers = super().read(session, *queries)
        state = next((one for one in answers if isinstance(one, SessionState)), None)
        if state is None or state.head is None:
            return answers
        own = state.head.segment
        return [
            [record for record in answer if record.position.segment == own] if isinstance(query, After) else answer
            for query, answer in zip(queries, answers, strict=True)
        ]


class CountsOnlyMessages(SQLiteStore):
    """A version that does not grow when a branch moves, when something is forgotten, and so on."""

    def state(self, session: int, branch: str | None = None) -> SessionState:
        state = super().state(session, branch)
        return state._replace(version=state.last_seq)


class TakesItsCallersWord(SQLiteStore):
    """What is known gives the turn, whatever has moved since."""

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        known = how.pop("known", None)
        reply = drafts[0].message.role == "assistant"
        if known is not None and reply and how.get("turn") is None:
            with suppress(UnknownReferenceError):
                return super().append(session, branch, drafts, **{**how, "turn": known.turn.turn_id})
        return super().append(session, branch, drafts, **how)


class TellsEachChangeOnce(SQLiteStore):
    """Keeps what was told in the object, whoever asks."""

    since: Mark | None = None

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, None if since is None else self.since)
        self.since = found.mark
        return found


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
        states = super().main_changes(user_id).states
        if since is None:
            return MainChanges(states, mark, True)
        return MainChanges([one for one in states if numbers.get(one[0].key, 0) > since[0]], mark, False)


class ReadsWhatIsOutdated(SQLiteStore):
    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        return super().at(wanted, {})


class NumbersFromASequence(SQLiteStore):
    """Takes a number before its transaction, which may end after that of a larger number."""

    sequences: ClassVar[dict[Path, Iterator[int]]] = {}

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        sequence = self.sequences.setdefault(self._db._path, itertools.count(1))
        numbers = [next(sequence) for _ in drafts]
        time.sleep(0.003 * (numbers[0] % 3))
        with self.transaction():
            return _stored_with(self, session, branch, drafts, numbers)


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
        return self._write(lambda rows: rows.insert_session(user_id, session_id)) or 0


class ChecksBeforeItKeeps(SQLiteStore):
    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        if not isinstance(derived, Snapshot):
            return super().keep(session, derived, epoch)
        current = self.state(session).epoch == epoch
        for _ in range(200):  # until somebody has forgotten something meanwhile, or nobody does
            if self.state(session).epoch != epoch:
                break
            time.sleep(0.001)
        return super().keep(session, derived, None) if current else False


BROKEN: list[tuple[type[SQLiteStore], str]] = [
    (RestoresHalf, "test_a_session_is_brought_as_it_was"),
    (LosesOrder, "test_any_history_reads_like_the_oracle"),
    (PagesWithGaps, "test_any_history_reads_like_the_oracle"),
    (IgnoresTheSession, "test_one_session_does_not_see_another"),
    (GluesKeys, "test_no_two_sessions_share_anything"),
    (CreatesOnLooking, "test_no_two_sessions_share_anything"),
    (KeepsVectors, "test_forgetting_reaches_everything"),
    (ReusesDepths, "test_forgetting_reaches_everything"),
    (ReusesNumbers, "test_forgetting_reaches_everything"),
    (KeepsSnapshots, "test_forgetting_reaches_everything"),
    (StoresHalfACall, "test_other_content_under_a_known_id_is_refused"),
    (LeavesMessagesElsewhere, "test_a_message_that_the_branch_does_not_hold_is_refused"),
    (GivesRepliesTheNewestTurn, "test_replies_join_their_turn"),
    (BringsBackTheForgotten, "test_forgetting_reaches_everything"),
    (HasWildcards, "test_an_id_and_a_prefix_mean_themselves"),
    (NeverScrubs, "test_forgetting_reaches_everything"),
    (MergesTheOtherWayRound, "test_a_merge_has_two_parents_in_order"),
    (ChangesHalf, "test_changes_are_made_together_or_not_at_all"),
    (IgnoresWhereABranchIs, "test_changes_are_made_together_or_not_at_all"),
    (CatchesUpOnItsBranch, "test_any_history_reads_like_the_oracle"),
    (CountsOnlyMessages, "test_every_change_is_told_and_nothing_else"),
    (TakesItsCallersWord, "test_what_a_caller_knows_hides_nothing"),
    (TellsEachChangeOnce, "test_every_change_is_told_and_nothing_else"),
    (MarksByANumberTakenBefore, "test_any_changes_of_two_objects_are_told_to_whoever_asks"),
    (ReadsWhatIsOutdated, "test_what_a_store_answers_its_own_way_is_what_it_would_by_default"),
    (NumbersFromASequence, "test_any_appends_of_two_objects_are_one_order"),
    (LooksAndThenCreates, "test_any_two_objects_create_one_session"),
    (ChecksBeforeItKeeps, "test_any_what_is_derived_goes_with_what_it_is_made_from"),
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
