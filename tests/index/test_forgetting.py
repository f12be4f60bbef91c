"""What was forgotten is on no line of an index, which finds what one that is built anew finds."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.formats.fields import Role
from shared_core.index.arrays import pack
from shared_core.index.session import SNAPSHOT, SessionIndex
from shared_core.records import MAIN, Draft, Position
from shared_core.stores import SQLiteStore
from shared_core.testing import HashingEmbedder
from shared_core.testing.oracle import Session, draft, drafts
from tests.index.sessions import fill, path_to, refreshed, vectors_of

SAID = (
    "I'm vegan and allergic to peanuts.", "The lighthouse is 40 metres high.", "Merci beaucoup, à demain !",
    "Where is the old harbour?", "ok", "", "Always answer in French.", "The harbour lies behind the lighthouse.",
)  # fmt: skip

QUESTION = ("lighthous", "harbour", "only3", "only7")


def talk(count: int) -> list[Draft]:
    """Return messages of several speakers, some with grounding, and words that only one of them says."""
    made = []
    for number in range(count):
        role: Role = ("user", "assistant", "user", "system")[number % 4]
        grounding = {"items": [{"text": f"a page on buoys{number % 5}"}]} if role == "user" else None
        name = (None, "Ann", "Bo")[number % 3] if role == "user" else None
        made.append(draft(f"m{number}", role, f"{SAID[number % 8]} only{number}", name=name, grounding=grounding))
    return made


def told(index: SessionIndex, session: Session, head: Position) -> object:
    """Return all that a line of an index tells, by position instead of by row, by name and by the turn's id."""
    line = index.line(path_to(session, head))
    rows = line.rows[: line.upto]
    positions = index.positions(rows)
    scores = index.lexical.score(QUESTION, line).best(len(rows), np.ones(len(rows), dtype=np.bool_))
    turns = [line.line.turn(index.turn(f"t{number}")) for number in range(40)]
    names = {name: line.has_said(number) for number, name in enumerate(index.names) if line.has_said(number)}
    there = index.rows_at([*positions, Position(0, 1), Position(7, 7)]) >= 0
    times = [index.columns["times"][rows].tolist(), line.sittings[: line.upto].tolist(), line.languages()]
    return positions, scores.tolist(), turns, names, there.tolist(), times, line.terms


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 32)), st.sets(st.integers(0, 32)), st.booleans())
def test_it_finds_what_an_index_finds_that_is_built_anew(first: set[int], then: set[int], loaded: bool) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        session = Session(store)
        session.append(MAIN, talk(30))
        session.append("side", drafts("u1", "a1", "u2"), at=Position(0, 9))
        index = refreshed(session)
        if loaded:
            index.save_snapshot()
            index = refreshed(session)
        heads = [Position(0, 29), Position(1, 12), Position(0, 15)]
        positions = [record.position for record in session.tree.records]
        for number, gone in enumerate((first, then - first)):
            session.forget([positions[one] for one in sorted(gone)])
            session.append(MAIN, [draft(f"new{number}", "user", "I moved to Oslo, to a harbour. only3", name="Cy")])
            index = refreshed(session, index)
            anew = refreshed(session)
            for head in (*heads, Position(0, 30 + number)):
                assert told(index, session, head) == told(anew, session, head)


def test_no_snapshot_holds_what_was_forgotten(store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, [*talk(20), draft("secret", "user", "My password is xyzzy.")])
    index = refreshed(session)
    index.save_snapshot()
    session.forget([Position(0, 20)])
    assert index.refresh(store.state(session.key))
    assert not index.may_be_saved
    assert store.snapshot(session.key, SNAPSHOT) is None
    anew = refreshed(session)
    anew.save_snapshot()
    assert b"xyzzy" not in (store.snapshot(session.key, SNAPSHOT) or b"xyzzy")


@pytest.mark.parametrize("part", ["session", "session_vectors"])
def test_no_snapshot_is_kept_that_was_packed_before_a_forgetting(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Another thread takes it out of the index while the snapshot is made."""
    session = Session(store)
    session.append(MAIN, drafts("u1", "a1", "u2", "a2"))
    index = refreshed(session)
    vectors = vectors_of(session, index)
    fill(vectors, HashingEmbedder(8))

    def slowly(*what: Any) -> bytes:
        session.forget([Position(0, 1)])
        index.refresh(store.state(session.key))
        vectors.drop_forgotten()
        return pack(*what)

    monkeypatch.setattr(f"shared_core.index.{part}.pack", slowly)
    for one in (index,) if part == "session" else (vectors,):
        one.save_snapshot()
        one.save_snapshot()
    assert store.snapshot(session.key, SNAPSHOT) is None
    assert store.snapshot(session.key, "vectors/space") is None


def test_an_index_of_which_most_was_forgotten_is_read_anew(store: SQLiteStore) -> None:
    with InfiniteMemory(store, embedder=HashingEmbedder(8)) as memory:
        memory.add([Message.user(f"boat {number}", id=f"m{number}") for number in range(9)])
        for number in range(8):
            memory.forget(ids=[f"m{number}"])
            found = [str(hit.message.id) for hit in memory.search("boat", 20)]
            assert sorted(found) == [f"m{later}" for later in range(number + 1, 9)]
        (shared,) = memory._prompts.searcher.indexes.opened()
        assert len(shared.rows) < 9
