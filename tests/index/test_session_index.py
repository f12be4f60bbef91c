"""The rows of a session in memory agree with its store, whatever was cached, damaged or forgotten."""

from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.index.lines import SITTING_GAP
from shared_core.index.session import CACHED_LINES, SNAPSHOT, SessionIndex
from shared_core.index.text import language_of
from shared_core.languages.language import LANGUAGES
from shared_core.records import MAIN, Draft, Position, Snapshot
from shared_core.stores import SQLiteStore
from shared_core.testing.oracle import NOON, Session, draft, drafts
from tests.index.sessions import path_to, refreshed
from tests.support.histories import CountingStore


@pytest.fixture
def session(store: CountingStore) -> Session:
    return Session(store)


def check(index: SessionIndex, session: Session) -> None:
    """Compare the index with the oracle: every row, and the line to every position of the tree."""
    tree = session.tree
    rows = np.setdiff1d(np.arange(len(index)), index.gone)
    assert index.positions(rows) == [record.position for record in tree.records]
    asked = [*tree.positions(), Position(0, 10**6), Position(99, 0)]
    at = {record.position: row for row, record in zip(rows.tolist(), tree.records, strict=True)}
    assert index.rows_at(asked).tolist() == [at.get(position, -1) for position in asked]
    for head in dict.fromkeys([*tree.branches.values(), *tree.positions()]):
        check_line(index, session, head)


def check_line(index: SessionIndex, session: Session, head: Position) -> None:
    line, path = index.line(path_to(session, head)), session.tree.path(head)
    rows = line.rows[: line.upto]
    assert index.positions(rows) == [record.position for record in path]
    assert line.indices(rows).tolist() == list(range(len(path)))
    elsewhere = np.setdiff1d(np.arange(len(index), dtype=np.int32), line.rows)
    assert line.indices(elsewhere).tolist() == [-1] * len(elsewhere)
    np.testing.assert_array_equal(line.along(index.columns["depths"]), [record.position.depth for record in path])
    times = [record.message.created_at for record in path]
    gaps = [(b - a).total_seconds() > SITTING_GAP for a, b in pairwise(times) if a and b]
    np.testing.assert_array_equal(line.sittings[: line.upto], np.cumsum([0, *gaps])[: len(path)])
    assert line.terms == line.along(index.lexical.lengths).sum()
    assert [line.has_said(code) for code in range(len(index.names))] == [
        name in {record.message.name for record in path} for name in index.names
    ]
    spoken = dict.fromkeys(language_of(record.message.content) for record in path)
    assert [LANGUAGES[number] for number in line.languages()] == list(spoken)
    turns = [record.message.turn_id for record in path]
    for turn in set(turns):
        members = [number for number, other in enumerate(turns) if other == turn]
        found = line.line.turn(index.turn(turn or ""))
        assert [number for number in found if number < line.upto] == members
        assert line.line.turn_ends(index.columns["turns"][line.rows[members]]).tolist() == [found[-1]] * len(members)


def equal(first: SessionIndex, second: SessionIndex) -> bool:
    """Whether two indexes hold the same, in the same order."""
    ours, theirs = ({**index.lexical.arrays(), **index.columns}
                    for index in (first, second))  # fmt: skip
    same = all(np.array_equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())
    return same and (first.names, first.last_seq, first.epoch) == (second.names, second.last_seq, second.epoch)


class TestRows:
    def test_only_what_is_new_is_read(self, store: CountingStore, session: Session) -> None:
        index = refreshed(session)
        assert store.rows["after"] == 0
        session.append(MAIN, drafts("u1", "a1", "s1"))
        session.append("side", drafts("u2"), at=Position(0, 0))
        assert len(refreshed(session, index)) == store.rows["after"] == 4
        session.append("side", drafts("a2"))
        assert len(refreshed(session, index)) == store.rows["after"] == 5
        for _ in range(3):
            refreshed(session, index)
        assert store.rows["after"] == 5
        check(index, session)
        assert equal(index, refreshed(session))

    def test_what_recall_needs_to_know(self, session: Session) -> None:
        session.append(MAIN, [
            draft("s1", "system", "be kind"),
            draft("u1", content="  the Tower ", name="Ann"),
            draft("a1", "assistant", " \n", name="Bob"),
            draft("t1", "tool", "42", pinned=True),
            draft("u2", content="x", name="Ann", created_at="1970-01-01T01:00:00+01:00"),
        ])  # fmt: skip
        index = refreshed(session)
        assert index.columns["roles"].tolist() == [0, 1, 2, 3, 1]
        assert index.columns["speaks"].tolist() == [False, True, False, False, True]
        assert index.columns["characters"].tolist() == [7, 9, 0, 2, 1]
        assert [index.names[speaker] if speaker >= 0 else None for speaker in index.columns["speakers"].tolist()] == [
            None, "Ann", "Bob", None, "Ann"
        ]  # fmt: skip
        assert index.columns["times"].tolist() == [NOON.timestamp()] * 4 + [0.0]
        # A message is found by its speaker's name, too.
        assert index.lexical.lengths.tolist() == [1, 2, 1, 1, 2]

    def test_forgetting_reads_nothing_again(self, store: CountingStore, session: Session) -> None:
        session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
        session.append("side", drafts("u3"), at=Position(0, 1))
        index = refreshed(session)
        check(index, session)
        session.forget([Position(0, 1), Position(0, 3)])
        store.reset()
        assert refreshed(session, index) is index
        assert store.rows["after"] == 0
        check(index, session)
        session.append(MAIN, drafts("u4"))
        check(refreshed(session, index), session)

    def test_more_branches_than_lines_are_kept(self, session: Session) -> None:
        session.append(MAIN, drafts("u0", "a0"))
        names = [f"b{number}" for number in range(2 * CACHED_LINES)]
        for number, name in enumerate(names):
            session.append(name, drafts(f"u{number + 1}"), at=Position(0, number % 2))
        index = refreshed(session)
        for _ in range(2):
            check(index, session)
        for number, name in enumerate(names):
            session.append(name, drafts(f"a{number + 1}"))
        check(refreshed(session, index), session)


def replace_time(one: Draft, moment: datetime) -> Draft:
    return replace(one, message=one.message.replace(created_at=moment))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "late", "fork", "branch", "forget", "restart", "look"]),
        st.integers(0, 999),
        st.integers(0, 999),
    ),
    max_size=15,
)


@given(STEPS)
def test_every_line_of_any_tree_is_the_path_that_the_store_has(steps: list[tuple[str, int, int]]) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        session = Session(store)
        index = refreshed(session)
        clock = NOON
        for number, (kind, first, second) in enumerate(steps):
            tree = session.tree
            branch = list(tree.branches)[first % len(tree.branches)]
            position = tree.positions()[second % len(tree.positions())]
            picked = tree.records[second % len(tree.records)] if tree.records else None
            clock += timedelta(hours=(0, 1, 7, -1)[second % 4])
            roles = ["uats"[(first >> 2 * n) % 4] for n in range(first % 3 + 1)]
            fresh = [replace_time(one, clock) for one in drafts(*(f"{r}{number}-{n}" for n, r in enumerate(roles)))]
            if kind == "fork":
                session.fork(f"b{number}", position)
            elif kind == "branch":
                session.append(f"b{number}", fresh, at=position)
            elif kind == "forget" and picked:
                session.forget([picked.position, position])
            elif kind == "restart" and second < 300:
                session.forget([record.position for record in tree.records], branches=True)
            elif kind == "look":
                index = refreshed(session, index)
                check(index, session)
            else:
                here = {record.message.turn_id for record in tree.path(tree.branches[branch])}
                late = picked.message.turn_id if picked and kind == "late" else None
                session.append(branch, fresh, turn=late if late in here else None)
        index = refreshed(session, index)
        check(index, session)
        if not len(index.gone):
            assert equal(index, refreshed(session))
            index.save_snapshot()
            assert equal(index, refreshed(session))


class TestSnapshots:
    @pytest.fixture
    def index(self, session: Session) -> SessionIndex:
        session.append(MAIN, [draft("u1", name="Ann \ud800"), *drafts("a1", "u2")])
        session.append("side", drafts("u3"), at=Position(0, 0))
        index = refreshed(session)
        index.save_snapshot()
        return index

    def test_it_is_read_with_what_came_later(self, store: CountingStore, session: Session, index: SessionIndex) -> None:
        session.append(MAIN, [draft("u4", name="Bob")])
        store.reset()
        loaded = refreshed(session)
        assert (store.rows["after"], loaded.saved, len(loaded)) == (1, 4, 5)
        assert equal(loaded, refreshed(session, index))
        check(loaded, session)

    def test_one_by_other_rules_of_languages_is_made_again(
        self, store: CountingStore, session: Session, index: SessionIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as other:
            other.setattr("shared_core.index.session.digest", lambda: "others")
            index.save_snapshot()
        store.reset()
        rebuilt = refreshed(session)
        assert (store.rows["after"], rebuilt.saved, rebuilt.damaged) == (4, 0, False)
        assert equal(rebuilt, index)
        rebuilt.save_snapshot()
        assert refreshed(session).saved == 4

    def test_one_from_before_a_forgetting_is_not_trusted(
        self, store: CountingStore, session: Session, index: SessionIndex
    ) -> None:
        data = store.snapshot(session.key, SNAPSHOT)
        assert data is not None
        session.forget([Position(0, 1)])
        index.save_snapshot()
        assert store.snapshot(session.key, SNAPSHOT) is None
        store.keep(session.key, Snapshot(SNAPSHOT, data), 1)
        store.reset()
        rebuilt = refreshed(session)
        assert (store.rows["after"], rebuilt.saved) == (3, 0)
        check(rebuilt, session)
