"""Facts of an answer, intervals, and lines that no conversation has an answer to."""

import pytest

from shared_core.evaluation.figures import Lead, bootstrap, facts, interval, mentioned, percent, points, share
from shared_core.evaluation.prompts import foreign_questions, small_talk


def test_facts_are_the_words_of_the_answer_that_the_question_does_not_hold() -> None:
    found = facts("She moved to the mountains of Nepal.", "Where did she move to?")
    assert found == {"mountain", "nepal"}
    assert mentioned(found, ["A mountain.", "Two mountains!"]) == 0.5
    assert mentioned(found, ["Nepal has", "mountains"]) == 1
    assert mentioned(found, []) == 0
    assert facts(None, "Where?") == facts("There.", "Where?") == frozenset()
    assert mentioned(frozenset(), ["Nepal"]) is None


def test_bootstrap_draws_whole_conversations() -> None:
    # Drawn are twice the first (a lead of 1), each once (2/3), or twice the second (0).
    assert bootstrap([1, 1, 1], [0, 0, 1], ["x", "x", "y"]) == pytest.approx((2 / 3, 0, 1))
    assert bootstrap([1, 0], [0, 0], ["x", "x"]) == (0.5, 0.5, 0.5)


def test_few_conversations_are_no_surer_than_their_questions() -> None:
    ours, none = [1.0, 0.0] * 20, [0.0] * 40
    single = bootstrap(ours, none, [str(number) for number in range(40)])
    assert bootstrap(ours, none, ["x", "y"] * 20) == (0.5, 0, 1) == interval(ours, none, ["x", "y"] * 20)
    assert bootstrap(ours, none, ["x"] * 20 + ["y"] * 20) == (0.5, 0.5, 0.5)
    assert interval(ours, none, ["x"] * 20 + ["y"] * 20) == single
    assert 0.3 < single.low < 0.5 < single.high < 0.7
    ten = [str(number // 4) for number in range(40)]
    assert interval(ours, none, ten) == bootstrap(ours, none, ten) == (0.5, 0.5, 0.5)


def test_bootstrap_of_very_many_questions_draws_fewer_samples() -> None:
    lead = bootstrap([1.0] * 20_000 + [0.0] * 20_000, [0.0] * 40_000, [str(number) for number in range(40_000)])
    # The standard error of a share of one half is .5 / 200.
    assert lead == pytest.approx((0.5, 0.5 - 1.96 * 0.0025, 0.5 + 1.96 * 0.0025), abs=0.0005)


def test_shares_and_leads_as_text() -> None:
    assert share({1, 2, 9}, [1, 2, 3, 4]) == 0.5
    assert percent(Lead(0.5, 0.25, 1)) == "50.0 [25.0, 100.0]"
    assert points(Lead(0.5, -0.25, 1)) == "+50.0 [-25.0, +100.0]"


def test_foreign_questions_are_those_of_the_next_conversation() -> None:
    many = [f"Question {number}?" for number in range(100)]
    talks = [["Who lives here?"], many, ["Where is it from?", "What did Ann buy?"]]
    assert foreign_questions(talks, 1) == talks[2]
    assert foreign_questions(talks, 2) == talks[0]
    drawn = foreign_questions(talks, 0)
    assert drawn == foreign_questions(talks, 0)
    assert len(set(drawn)) == 80
    assert set(drawn) <= set(many)
    assert foreign_questions(talks[:1], 0) == []


def test_small_talk_is_half_chat_and_half_knowledge() -> None:
    assert [len(set(lines)) for lines in small_talk().values()] == [20, 20]
