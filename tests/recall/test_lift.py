"""The score that strong matches lend to the messages around them, computed by hand beside the real thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.prompt.hits import Hit
from shared_core.recall import rank as ranking
from shared_core.recall import signals
from shared_core.recall.scope import Scope
from tests.recall.test_ranking import Said, ranked, scope_of

QUESTION = "boat tower"
words = st.lists(st.sampled_from(["boat", "tower", "river", "sand"]), max_size=4).map(" ".join)
says = st.builds(Said, text=words, cosine=st.one_of(st.none(), st.integers(-8, 8)), days=st.just(0))


def lifts(scope: Scope, alone: list[Hit], strong: int, reach: int) -> dict[int, float]:
    """Place -> lift, from the ranking without it."""
    bar = sorted(one.score for one in alone)[-strong]
    found: dict[int, float] = {}
    for one in alone:
        for index in range(max(0, one.place[1] - reach), min(scope.line.upto, one.place[1] + reach + 1)):
            if not one.reason and scope.line.sittings[index] == scope.line.sittings[one.place[1]]:
                share = 1 - abs(index - one.place[1]) / (reach + 1)
                found[index] = found.get(index, 0) + ranking.LIFT * max(0, one.score - bar) * share / (reach + 1)
    return {index: lift for index, lift in found.items() if lift >= ranking.MIN_LIFT and scope.eligible[index]}


@given(
    said=st.lists(says, min_size=5, max_size=14),
    evenings=st.sets(st.integers(1, 13), max_size=2),
    without=st.sets(st.integers(0, 13), max_size=3),
    strong=st.integers(1, 4),
    reach=st.integers(1, 3),
    first=st.integers(1, 3),
)
def test_rows_around_strong_matches_are_lifted(
    said: list[Said], evenings: set[int], without: set[int], strong: int, reach: int, first: int
) -> None:
    said = [Said(one.text, one.cosine, days=sum(e <= index for e in evenings)) for index, one in enumerate(said)]
    scope = scope_of(said, without=sorted(without))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "AROUND", {})
        patch.setattr(ranking, "STRONG", 1_000)
        alone = ranked(QUESTION, scope, words=0.2, floor=0.2, pool=6)
        patch.setattr(ranking, "STRONG", strong)
        patch.setattr(ranking, "REACH", reach)
        patch.setattr(ranking, "FIRST", first)
        found = ranked(QUESTION, scope, words=0.2, floor=0.2, pool=6)
    lift = lifts(scope, alone, strong, reach) if len(alone) > strong else {}
    own = {one.place[1]: one.score for one in alone}
    assert {one.place[1] for one in found} >= own.keys()
    assert {one.place[1] for one in found} <= own.keys() | lift.keys()
    assert {one.place[1] for one in found if one.reason} == {one.place[1] for one in alone if one.reason} - lift.keys()
    scores = [one.score for one in found]
    assert scores == pytest.approx(sorted(scores, reverse=True), abs=1e-3)
    if not lift:
        assert found == alone
        return
    leading = [one.place[1] for one in alone if not one.reason][:first]
    assert [one.place[1] for one in found][: len(leading)] == leading
    # After the first: what was found by itself stands in the order of its score and lift together.
    rest = [one.place[1] for one in found if one.place[1] in own and one.place[1] not in leading]
    total = [own[index] + lift.get(index, 0) for index in rest]
    assert total == pytest.approx(sorted(total, reverse=True), abs=1e-3)


def test_a_stretch_of_talk_comes_back_whole_and_what_surrounds_it_does_not() -> None:
    """Few messages of a stretch match a question; those between them are brought back, too, and no others."""
    said = [Said("sand", -4) for _ in range(120)]
    for index in (50, 53, 56):
        said[index] = Said("boat tower", 8)
    strong = [one.place[1] for one in ranked(QUESTION, scope_of(said), words=0.3, floor=0.2) if not one.reason]
    assert strong[:3] == [56, 53, 50]
    assert set(range(48, 59)) <= set(strong)
    assert set(strong) <= set(range(30, 77))


def test_long_messages_are_lifted_less() -> None:
    said = [Said("sand", -4) for _ in range(80)]
    said[40] = Said("boat tower", 8)
    said[41] = Said("river " * 400, -4)
    found = [one.place[1] for one in ranked(QUESTION, scope_of(said), words=0.3, floor=0.2) if not one.reason]
    assert found.index(42) < found.index(41)


def test_whole_turns_are_lifted_once_each() -> None:
    said = [Said("sand", -4, role="assistant" if index % 2 else "user") for index in range(240)]
    for index in (80, 86):
        said[index] = Said("boat tower", 8)
    found = ranked(QUESTION, scope_of(said, unit="turn"), words=0.3, floor=0.2)
    turns = [one.place[1] // 2 for one in found]
    assert len(set(turns)) == len(turns)
    assert {39, 40, 41, 42, 43, 44} <= {one.place[1] // 2 for one in found if not one.reason}
