"""An index from which messages are taken out is the one that is built anew from the rest, to the last bit."""

from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.index import removal
from shared_core.index.session_index import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.messages import Role
from shared_core.records import MAIN, Draft, Position, Record
from shared_core.stores import SQLiteStore
from shared_core.testing import HashingEmbedder
from shared_core.testing.oracle import Session, draft, drafts
from tests.index.sessions import fill, refreshed, vectors_of

SAID = (
    "I'm vegan and allergic to peanuts.", "The lighthouse is 40 metres high.", "Merci beaucoup, à demain !",
    "Where is the old harbour?", "ok", "", "Always answer in French.", "The harbour lies behind the lighthouse.",
)  # fmt: skip


def talk(count: int) -> list[Draft]:
    """Return messages of several speakers, some with grounding, and words that only one of them says."""
    made = []
    for number in range(count):
        role: Role = ("user", "assistant", "user", "system")[number % 4]
        grounding = {"items": [{"text": f"a page on buoys{number % 5}"}]} if role == "user" else None
        name = (None, "Ann", "Bo")[number % 3] if role == "user" else None
        said = f"{SAID[number % 8]} only{number}"
        made.append(draft(f"m{number}", role, said, name=name, grounding=grounding))
    return made


def assert_same(one: SessionIndex, two: SessionIndex) -> None:
    assert (one.names, one.last_seq, one.epoch, len(one)) == (two.names, two.last_seq, two.epoch, len(two))
    ours, theirs = one._arrays(), two._arrays()
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        assert ours[name].dtype == values.dtype, name
        np.testing.assert_array_equal(ours[name], values, name)


def built(session: Session, records: Sequence[Record], last_seq: int) -> SessionIndex:
    """Return an index of some messages."""
    index = SessionIndex(session.store, session.key)
    index._clear(1)
    for record in records:
        index._add([record])
    index.last_seq = last_seq
    return index


@settings(max_examples=25)
@given(st.sets(st.integers(0, 39)), st.booleans(), st.booleans())
def test_it_is_as_if_built_anew(gone: set[int], loaded: bool, many: bool) -> None:
    """Whether few or many are taken out, which are found in other ways."""
    with closing(SQLiteStore(":memory:")) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(removal, "FEW_STEPS", 0 if many else 100)
        patch.setattr(removal, "FEW_PIECES", 0 if many else 100)
        session = Session(store)
        session.append(MAIN, talk(30))
        session.append("side", drafts("u1", "a1", "u2"), at=Position(0, 9))
        index = refreshed(session)
        if loaded:
            index.save_snapshot()
            index = refreshed(session)
        session.append(MAIN, [draft("new", "user", "I moved to Oslo. only1", name="Cy")])
        index = refreshed(session, index)
        before = index._arrays()
        positions = [record.position for number, record in enumerate(session.tree.records) if number in gone]
        rest = [record for record in session.tree.records if record.position not in positions]
        left = index.without([*positions, Position(7, 7)], 1)
        anew = built(session, rest, index.last_seq)
        assert_same(left, anew)
        later = draft("later", "user", "the lighthouse, once more", name="Bo").message.replace(turn_id="later")
        for one in (left, anew):
            one._add([Record(later, Position(0, 40), 35, 9)])
        assert_same(left, anew)
        assert all(np.array_equal(before[name], values) for name, values in index._arrays().items())


@given(st.lists(st.integers(-1, 5), max_size=20), st.sets(st.integers(0, 19)), st.sampled_from([0, 100]))
def test_codes_are_numbered_in_the_order_of_their_use(said: list[int], gone: set[int], few: int) -> None:
    def numbered(values: list[int]) -> tuple[list[int], list[int]]:
        used = list(dict.fromkeys(value for value in values if value >= 0))
        return [used.index(value) if value >= 0 else -1 for value in values], used

    codes, names = numbered(said)
    rest = [value for row, value in enumerate(said) if row not in gone]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removal, "FEW_STEPS", few)
        rows = np.array(sorted(row for row in gone if row < len(said)), dtype=np.int32)
        left, used = removal.in_order_of_use(np.array(codes, dtype=np.int32), rows, len(names))
    assert (left.tolist(), [names[code] for code in used.tolist()]) == numbered(rest)


def test_no_word_of_what_is_taken_out_is_left(store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, [*talk(20), draft("secret", "user", "My password is xyzzy.")])
    left = refreshed(session).without([Position(0, 20)], 1)
    held = b"".join(values.tobytes() for values in left._arrays().values())
    assert b"xyzzy" not in held
    assert b"lighthous" in held


@pytest.mark.parametrize(("space", "kept_new"), [("hashing/8", [6, 9]), ("hashing/8#turn", [])])
def test_vectors_of_what_is_forgotten_or_stale_are_taken_out(
    store: SQLiteStore, space: str, kept_new: list[int]
) -> None:
    """New ones that stand for whole turns go, too: whoever forgot a part of a turn did not see them."""
    session = Session(store)
    session.append(MAIN, drafts(*(f"u{number}" for number in range(12))))
    index = refreshed(session)
    vectors = SessionVectors(index, space, 8)
    vectors.refresh()
    fill(vectors, HashingEmbedder(8), [0, 2, 3, 5, 7, 11])
    unsaved = (np.ones((1, 8), np.float32) / np.sqrt(8)).astype(np.float32)
    vectors.put([(Position(0, depth), "not stored", unsaved) for depth in (1, 9)])
    left = index.without([Position(0, 1), Position(0, 3)], 1)
    found: SessionVectors = vectors.without(left, [Position(0, 1), Position(0, 3), Position(0, 7)])
    vectors.put([(Position(0, depth), "arrives late", unsaved) for depth in (3, 6, 11)])
    kept = {position: vectors.vectors.first(index.rows_at([position])) for position in index.positions(np.arange(12))}
    depths = sorted([0, 2, 5, 11, *kept_new])
    assert sorted(left.positions(found.vectors.owners)) == [Position(0, depth) for depth in depths]
    for position in left.positions(found.vectors.owners):
        np.testing.assert_array_equal(found.vectors.first(left.rows_at([position])), kept[position])
    found.refresh()
    assert len(found.vectors) == len(depths), "nothing is read again"
    new = found.unsaved
    assert sorted(row[0].depth for row in (new.rows if new is not None else ())) == kept_new


@pytest.mark.parametrize("everything", [False, True])
def test_without_vectors_or_without_anything(store: SQLiteStore, *, everything: bool) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "a1"))
    index = refreshed(session)
    vectors = vectors_of(session, index)
    gone = [Position(0, 0), Position(0, 1)] if everything else [Position(0, 1)]
    left = index.without(gone, 1)
    assert len(left) == (0 if everything else 1)
    assert len(vectors.without(left, gone).vectors) == 0
