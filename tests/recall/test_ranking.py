"""Ranking by words and meaning, what counts as irrelevant, and what a named speaker or date adds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.formats.fields import Role
from shared_core.index.lines import LinePrefix
from shared_core.index.session import SessionIndex
from shared_core.index.session_vectors import SessionVectors
from shared_core.messages import Message
from shared_core.plugins.base import Vectors
from shared_core.prompt.hits import Hit
from shared_core.recall import rank as ranking
from shared_core.recall.query import parse_query
from shared_core.recall.rank import RankedResults, rank
from shared_core.recall.scope import RecallUnit, Scope
from shared_core.recall.signals import (
    AROUND_TERMS,
    ASKED_BACK,
    DATE_BOOST,
    FADE_TERMS,
    NOT_OF_SELF,
    REACTION_BOOST,
    SPEAKER_BOOST,
    ScopeSearch,
)
from shared_core.records import MAIN, Draft
from shared_core.session.paths import walk
from shared_core.stores import SQLiteStore

DAY = datetime(2023, 5, 7, tzinfo=UTC)
DIMENSION = 16
QUESTION: Vectors = np.eye(1, DIMENSION, dtype=np.float32)[0]


@dataclass(frozen=True)
class Said:
    """A message; `cosine` is that of its vector with the question, in sixteenths; None: it has no vector."""

    text: str = ""
    cosine: int | None = None
    name: str | None = None
    role: Role = "user"
    days: int = 0
    turn: str | None = None


def scope_of(said: Sequence[Said], *, unit: RecallUnit = "message", without: Sequence[int] = ()) -> Scope:
    """Store messages, index them and give them vectors; all may be found except the indices in `without`."""
    store = SQLiteStore(":memory:")
    session = store.create_session(None, "s")
    head = store.branches(session)[0].head
    for number, one in enumerate(said):
        message = Message(role=one.role, content=one.text, name=one.name, id=f"m{number}",
                          created_at=DAY + timedelta(days=one.days))  # fmt: skip
        head = store.append(session, MAIN, [Draft(message)], turn=one.turn).head
    index = SessionIndex(store, session)
    index.refresh(store.state(session, MAIN))
    vectors = SessionVectors(index, "space", DIMENSION)
    vectors.refresh()
    indices = index.positions(np.arange(len(said)))
    vectors.put([(indices[i], f"{i}", vector(one.cosine)) for i, one in enumerate(said) if one.cosine is not None])
    line = index.line(walk(head, lambda segment: store.segment(session, segment)))
    store.close()
    eligible = np.array([index not in without for index in range(len(said))], dtype=np.bool_)
    return Scope(index, vectors, line, eligible, unit)


def vector(cosine: int) -> Vectors:
    """Return a vector, exact in half precision, with so many sixteenths along the question."""
    return np.array([[cosine / 16, 0.5, *[0.0] * (DIMENSION - 2)]], dtype=np.float32)


def upto(scope: Scope, count: int) -> Scope:
    return replace(scope, line=LinePrefix(scope.line.line, count), eligible=scope.eligible[:count])


def listed(found: RankedResults) -> list[Hit]:
    return found.hits(np.arange(len(found)))


def ranked(question: str, *scopes: Scope, vector: Vectors | None = QUESTION, floor: float = 0.0, words: float = 0.0,
           weight: float = 0.5, pool: int = 100, min_score: float | None = None) -> list[Hit]:  # fmt: skip
    """Rank with one floor for the best and all others, and this share of words instead of the measured ones."""
    names = [name for scope in scopes for name in scope.session_index.names]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MIN_LEXICAL", words), ("OPENING_LEXICAL", words), ("RELAXED", 1.0)):
            patch.setattr(ranking, name, value)
        query = parse_query(question, names)
        return listed(rank(query, scopes, vector, floor=floor, weight=weight, pool=pool, min_score=min_score))


def indices(found: Sequence[Hit], *, weak: bool | None = None) -> list[int]:
    return [one.place[1] for one in found if weak is None or bool(one.reason) is weak]


def z(values: Sequence[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    if not known:
        return [0.0] * len(values)
    mean = sum(known) / len(known)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in known) / len(known))
    return [(value - mean) / max(deviation, 1e-4) if value is not None else 0.0 for value in values]


def best_of(scores: dict[int, float], count: int) -> set[int]:
    return set(sorted(scores, key=lambda index: (-scores[index], -index))[:count])


said = st.builds(
    Said,
    text=st.lists(st.sampled_from(["boat", "tower", "river"]), max_size=2).map(" ".join),
    cosine=st.one_of(st.none(), st.integers(-8, 8)),
)


@given(
    said=st.lists(said, min_size=1, max_size=10),
    without=st.sets(st.integers(0, 9)),
    by_meaning=st.booleans(),
    weight=st.sampled_from([0.0, 0.5, 2.0]),
    pool=st.integers(1, 4),
    floor=st.integers(-4, 8),
    least=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_scores_are_fused_over_the_union_of_both_lists(
    said: list[Said], without: set[int], by_meaning: bool, weight: float, pool: int, floor: int, least: float
) -> None:
    # Each in a sitting of its own, so that no neighbour lends it anything.
    said = [replace(one, days=day) for day, one in enumerate(said)]
    scope = scope_of(said, without=sorted(without))
    vector = QUESTION if by_meaning else None
    found = ranked("boat tower", scope, vector=vector, weight=weight, pool=pool, floor=floor / 16, words=least)
    # The oracle: what BM25 and the cosines say of each index, the rest by hand.
    bm25 = scope.session_index.lexical.score(["boat", "tower"], scope.line)
    shares = dict(enumerate((bm25.values / max(bm25.ceiling, 1e-9)).tolist()))
    cosines = {i: one.cosine / 16 for i, one in enumerate(said) if one.cosine is not None and by_meaning}
    may = [index for index in range(len(said)) if index not in without]
    union = best_of({index: shares[index] for index in may if shares[index] > 0}, pool)
    union |= best_of({index: cosines[index] for index in may if index in cosines}, pool)
    order = sorted(union)
    words, meaning = z([shares[index] for index in order]), z([cosines.get(index) for index in order])
    scores = {index: lexical + weight * dense for index, lexical, dense in zip(order, words, meaning, strict=True)}
    near = {index for index in order if cosines.get(index, -1) >= floor / 16}
    idf = {term: math.log1p((len(said) - n + 0.5) / (n + 0.5)) for term in ("boat", "tower")
           if (n := sum(term in one.text.split() for one in said)) or True}  # fmt: skip
    present = {index: sum(idf[term] for term in set(said[index].text.split()) & set(idf)) / sum(idf.values())
               for index in order}  # fmt: skip
    strong = near | {index for index in order if max(shares[index], present[index] / 3) >= np.float32(least)}
    assert {one.place[1] for one in found} == union
    assert {one.place[1] for one in found if not one.reason} == strong
    assert {one.place[1]: one.dense for one in found} == {index: cosines.get(index) for index in order}
    for one in found:
        assert one.score == pytest.approx(scores[one.place[1]], abs=1e-3)
        assert one.lexical == pytest.approx(shares[one.place[1]])
    assert found == sorted(found, key=lambda one: (-one.score, -one.place[1]))


@given(said=st.lists(st.sampled_from(["a boat", "A boat!", "the boat", "two boats", "a tower"]), max_size=30),
       repeats=st.integers(1, 4), pool=st.sampled_from([1, 2, 5, 100]))  # fmt: skip
def test_of_the_same_said_again_only_the_newest_few_are_among_the_best(
    said: list[str], repeats: int, pool: int
) -> None:
    scope = scope_of([Said(text) for text in said])
    alike: dict[str, list[int]] = {}
    for one in sorted(ranked("boat", scope), key=lambda one: one.place[1]):
        alike.setdefault(said[one.place[1]].lower().strip("!"), []).append(one.place[1])
    newest = {index for indices in alike.values() for index in indices[-repeats:]}
    found = {one.place[1] for one in ranked("boat", replace(scope, repeats=repeats), pool=pool)}
    assert len(found) == min(pool, len(newest))
    assert all(len(found.intersection(indices)) <= repeats for indices in alike.values())
    assert pool < 100 or found == newest


def test_turns_that_end_alike_are_not_the_same_said_again() -> None:
    said: list[Said] = []
    for number in range(12):
        said += [Said(f"topic {number}"), Said("done", 15 - number % 8, role="assistant", turn=f"m{2 * number}")]
    scope = scope_of(said, unit="turn")
    everywhere = [one.place[1] for one in ranked("hello", scope, floor=-1)]
    assert len(everywhere) == 12
    assert [one.place[1] for one in ranked("hello", replace(scope, repeats=2), floor=-1)] == everywhere
    again = scope_of([replace(one, text="topic" if one.role == "user" else one.text) for one in said], unit="turn")
    assert len(ranked("hello", replace(again, repeats=2), floor=-1)) == 2


@pytest.mark.parametrize(
    ("floor", "words", "strong"),
    [(0.25, 9.0, {0, 5, 6}), (0.26, 9.0, set()), (0.26, 0.7, {0, 5, 6})],
)
def test_once_one_message_matches_well_others_may_match_less(
    floor: float, words: float, strong: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [Said("tower and river", -8), Said(), Said(), Said(), Said(), Said("boat", 4), Said("cat", 3), Said("dog")]
    monkeypatch.setattr(ranking, "MIN_LEXICAL", 0.7)
    monkeypatch.setattr(ranking, "OPENING_LEXICAL", words)
    monkeypatch.setattr(ranking, "RELAXED", 0.7)
    found = listed(rank(parse_query("tower river", []), [scope_of(said)], QUESTION, floor=floor, weight=0.5))
    assert set(indices(found, weak=False)) == strong
    assert {0, 5, 6} <= set(indices(found))


def test_after_the_first_the_neighbours_meaning_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a sitting, so much the less the longer a message is; what has no vector still counts as the mean."""
    said = [Said("tower", 8), Said("boat", 6), Said("cat", 2), Said("dog"), Said("fish", 4, days=1)]
    scope = scope_of(said)
    lent = [
        (0.2 * 6 + 0.1 * 2) / 16, (0.4 * 8 + 0.2 * 2) / 16, (0.4 * 6 + 0.2 * 8) / 16, (0.4 * 2 + 0.2 * 6) / 16, 0.0
    ]  # fmt: skip
    found = ScopeSearch(0, parse_query("hello", []), scope, QUESTION).signals(np.arange(5))
    assert found.around.tolist() == pytest.approx(lent)
    long = scope_of([said[0], replace(said[1], text=" ".join(f"word{n}" for n in range(2 * AROUND_TERMS)))])
    found = ScopeSearch(0, parse_query("hello", []), long, QUESTION).signals(np.arange(2))
    assert found.around.tolist() == pytest.approx([0.2 * 6 / 16, 0.5 * 0.4 * 8 / 16])
    assert indices(ranked("hello", scope, floor=-1)) == [0, 1, 4, 2]
    # Beside so good a neighbour the second is the best there is, but those that come first are so by themselves.
    cosines = [8 / 16, 6 / 16, 2 / 16]
    meant = [cosine + added for cosine, added in zip(cosines, lent, strict=False)]
    assert meant[1] > meant[0]
    monkeypatch.setattr(ranking, "FIRST", 0)
    assert indices(ranked("hello", scope, floor=-1)) == [1, 0, 2, 4]


def test_beside_a_match_a_message_without_its_words_is_weak_unless_its_meaning_matches() -> None:
    scope = scope_of([Said("hello there"), Said("cat"), Said("ok"), Said("Mittens", 7)])
    for vector, bands in ((None, ["weak", "strong", "weak", "weak"]), (QUESTION, ["weak", "strong", "weak", "fair"])):
        found = rank(parse_query("cat", []), [scope], vector, floor=0.1, weight=0.5)
        found.threshold = 0.4
        hits = {hit.place[1]: hit for hit in listed(found)}
        assert [hits[index].band for index in range(4)] == bands
        assert [hits[index].lexical > 0 for index in range(4)] == [False, True, False, False]


def test_a_message_that_holds_one_word_still_counts_those_of_its_neighbours() -> None:
    near, far = ([Said("a cat"), Said("it eats food", days=days)] for days in (0, 1))
    shares = [{hit.place[1]: hit.lexical for hit in ranked("cat food", scope_of(said))} for said in (near, far)]
    assert all(shares[0][index] > shares[1][index] > 0 for index in (0, 1))


@pytest.mark.parametrize(
    ("question", "boosted"),
    [
        ("tower?", []),
        ("Ann's tower?", [0, 2]),
        ("tower, bob?", [1]),
        ("did Ann and Bob like the tower?", []),
        ("Eve's tower?", []),
    ],
)
def test_a_speaker_counts_only_when_one_is_named(question: str, boosted: list[int]) -> None:
    said = [Said("my tower" if index == 2 else "tower", name=name)
            for index, name in enumerate(("Ann", "Bob", "Ann", None))]  # fmt: skip
    scope = scope_of(said)
    query = parse_query(question, ["Ann", "Bob", "Eve"])
    plain = replace(query, speakers=())
    with_, without = (
        {one.place[1]: one.score for one in listed(rank(q, [scope], None, floor=0, weight=0))} for q in (query, plain)
    )
    gain = {index: with_[index] - without[index] for index in range(4)}
    # The last of Ann's is of herself.
    of_self = [NOT_OF_SELF, NOT_OF_SELF, 1.0, 1.0]
    assert gain == pytest.approx(
        {index: SPEAKER_BOOST * of_self[index] * (index in boosted) for index in range(4)}, abs=1e-4
    )


def test_you_is_the_assistant_where_nobody_is_named() -> None:
    scope = scope_of([Said("a tower", role="user"), Said("the tower", role="assistant"), Said("the tower", name="Ann")])
    for question, named in (
        ("did you see a tower?", [0, ASKED_BACK, 0]),
        ("Ann, did you see a tower?", [0, 0, NOT_OF_SELF]),
    ):
        query = parse_query(question, ["Ann"])
        assert ScopeSearch(0, query, scope, None).signals(np.arange(3)).named.tolist() == named
    on = replace(parse_query("The tower is done. What were your suggestions?", []), goes_on=True)
    assert on.asks_back
    assert not ScopeSearch(0, on, scope, None).signals(np.arange(3)).named.any()


def test_reactions_come_last() -> None:
    """Being only about the listener counts against a message; length weakens it."""
    long = " ".join(f"word{number}" for number in range(4 * FADE_TERMS))
    texts = ["tower", "tower", "did you like your tower?", "I showed you my tower", "tower", f"you {long}", "tower"]
    scope = scope_of([*map(Said, texts), Said("tower", days=1), Said(f"you {long}", days=1)])
    found = ScopeSearch(0, parse_query("tower?", []), scope, None).signals(np.arange(9))
    assert found.reacts.tolist() == pytest.approx([0, 0, 1, 0, 0, 1 / 4, 0, 0, 1 / 4])
    plain = scope_of([Said("tower"), Said("tower", days=1), Said("you tower", days=2)])
    scores = {one.place[1]: one.score for one in ranked("tower", plain, vector=None)}
    assert scores == pytest.approx({0: 0, 1: 0, 2: REACTION_BOOST}, abs=1e-3)


def test_a_date_counts_by_how_well_it_matches() -> None:
    scope = scope_of([Said("tower", days=days) for days in (-30, 0, 1, 365)])
    plain = {one.place[1]: one.score for one in ranked("tower", scope, vector=None)}
    dated = {one.place[1]: one.score for one in ranked("the tower on 7 May 2023?", scope, vector=None)}
    gain = {index: dated[index] - plain[index] for index in range(4)}
    # The date's own words match nowhere, so that nothing else differs.
    assert gain == pytest.approx({0: 0, 1: DATE_BOOST, 2: DATE_BOOST / 2, 3: 0}, abs=1e-3)


class TestTurns:
    def test_the_best_message_stands_for_its_turn(self) -> None:
        """Once, by its words; by the vector of the whole turn, which the last message keeps."""
        said = [Said("tower river"), Said("tower", role="assistant"), Said("fine", 8, role="assistant"),
                Said("dogs", days=1), Said("tower", 2, role="assistant", days=1)]  # fmt: skip
        scope = scope_of(said, unit="turn")
        single = {one.place[1]: one.lexical for one in ranked("tower river", replace(scope, unit="message"))}
        found = ranked("tower river", scope)
        assert [(one.place[1], one.dense) for one in found] == [(0, 0.5), (4, 0.125)]
        assert [one.lexical for one in found] == [single[0], single[4]]

    def test_only_an_eligible_message_stands_for_its_turn(self) -> None:
        said = [Said("tower tower tower"), Said("tower", role="assistant"), Said("dog", 8, role="assistant")]
        assert indices(ranked("tower", scope_of(said, unit="turn", without=[0]))) == [1]
        assert indices(ranked("cat", scope_of(said, unit="turn", without=[0]))) == [2]
        assert indices(ranked("cat", scope_of(said, unit="turn", without=[0, 2]))) == [1]
        assert ranked("cat", scope_of(said, unit="turn", without=[0, 1, 2])) == []

    def test_a_reply_after_the_question_is_not_found(self) -> None:
        """The turn is what it was then, and is found once."""
        said = [Said("tower tower"), Said("dog", 4, role="assistant"), Said("now?"),
                Said("tower", 8, role="assistant", turn="m0")]  # fmt: skip
        scope = scope_of(said, unit="turn")
        assert scope.units(np.arange(4)).tolist() == [3, 3, 2, 3]
        assert [one.dense for one in ranked("tower", scope) if one.place[1] != 2] == [0.5]
        before = upto(scope, 2)
        assert before.units(np.arange(2)).tolist() == [1, 1]
        assert [(one.place[1], one.dense) for one in ranked("tower", before)] == [(0, 0.25)]
