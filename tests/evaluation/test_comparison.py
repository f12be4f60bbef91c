"""Whether a setting is worth it: the sentence follows from the figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.evaluation.comparison import Figures, compared, judged
from shared_core.evaluation.figures import Lead

FEWER, MORE, AS_MANY = Lead(-300.0, -320.0, -280.0), Lead(300.0, 280.0, 320.0), Lead(2.0, -3.0, 7.0)
NOTHING = Lead(0.0, 0.0, 0.0)


def test_verdict(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Lead, Lead, Lead, int, int, str, str]] = [
        (
            Lead(0.1, 0.04, 0.16),
            MORE,
            MORE,
            12,
            100,
            "worth it",
            "10.0 points more [+4.0, +16.0] of the evidence; 300 more tokens recalled, 300 more in the prompt",
        ),
        (
            Lead(-0.1, -0.16, -0.04),
            FEWER,
            AS_MANY,
            12,
            100,
            "not worth it",
            "10.0 points less [-16.0, -4.0] of the evidence; 300 fewer tokens recalled, about as many in the prompt",
        ),
        (
            Lead(-0.01, -0.03, 0.01),
            FEWER,
            AS_MANY,
            4,
            100,
            "worth it",
            "as much of the evidence (1.0 points less [-3.0, +1.0]); 300 fewer tokens recalled, "
            "about as many in the prompt",
        ),
        (
            Lead(0.01, -0.01, 0.03),
            MORE,
            FEWER,
            4,
            100,
            "worth it",
            "as much of the evidence (1.0 points more [-1.0, +3.0]); 300 more tokens recalled, 300 fewer in the prompt",
        ),
        (
            NOTHING,
            AS_MANY,
            MORE,
            0,
            100,
            "not worth it",
            "as much of the evidence (0.0 points more [+0.0, +0.0]); about as many tokens recalled, "
            "300 more in the prompt",
        ),
        (NOTHING, NOTHING, NOTHING, 0, 5, "not worth it", "it changes nothing for these questions"),
        # Nothing changed in 30 questions: up to 3 / 30 of all may, and 60 would say that it is at most 5 %.
        (
            NOTHING,
            FEWER,
            FEWER,
            0,
            30,
            "not enough questions to tell",
            "a difference of 10 points may be luck or unseen with 30; about 60 would tell",
        ),
        # An interval of 10 points to each side has to be half as wide: four times the questions.
        (
            Lead(0.0, -0.1, 0.1),
            FEWER,
            FEWER,
            20,
            100,
            "not enough questions to tell",
            "a difference of 10 points may be luck or unseen with 100; about 400 would tell",
        ),
        # Five questions that change are luck, however sure the interval is.
        (
            Lead(0.05, 0.01, 0.1),
            MORE,
            MORE,
            5,
            100,
            "not enough questions to tell",
            "a difference of 10 points may be luck or unseen with 100; about 120 would tell",
        ),
    ]
    for evidence, recalled, tokens, changed, questions, verdict, why in rows:
        with subtests.test(
            evidence=evidence,
            recalled=recalled,
            tokens=tokens,
            changed=changed,
            questions=questions,
            verdict=verdict,
            why=why,
        ):
            assert judged(evidence, recalled, tokens, changed, questions) == (verdict, why)


def figures(evidence: list[float], tokens: float = 100) -> Figures:
    same = [tokens] * len(evidence)
    return Figures(evidence, same, same, [1.0] * len(evidence), [str(number) for number in range(len(evidence))])


def test_every_figure_is_compared_question_by_question() -> None:
    found = compared("x", figures([1.0] * 40, 150), figures([1.0] * 20 + [0.5] * 20))
    assert found.name == "x"
    assert found.evidence.mean == 0.25
    assert (found.recalled, found.tokens, found.milliseconds) == ((50, 50, 50), (50, 50, 50), (0, 0, 0))
    assert found.verdict == "worth it"
    assert found.to_dict()["evidence"]["mean"] == 0.25


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=90))
def test_what_is_better_one_way_is_worse_the_other_way(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = figures([one for one, _ in pairs]), figures([other for _, other in pairs])
    there, back = compared("x", ours, theirs), compared("x", theirs, ours)
    assert there.evidence.mean == pytest.approx(-back.evidence.mean)
    assert (there.verdict == "not enough questions to tell") == (back.verdict == "not enough questions to tell")
    # At the same price, only more evidence pays.
    assert {there.verdict, back.verdict} != {"worth it"}
    assert there.verdict != "worth it" or there.evidence.low > 0
