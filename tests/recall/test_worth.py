"""Recall stops where a message is not worth its tokens, and is silent where nothing is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.prompt.context import ContextReport
from shared_core.prompt.hits import Kind, Reason
from shared_core.recall.query import parse_query
from shared_core.recall.scope import ALL_SAMPLED
from shared_core.recall.worth import (
    BARS,
    GOES_ON,
    KNOWN,
    TRUST,
    Bars,
    Depth,
    Recall,
    chance_of_answer,
    chances_of_part,
    depth_of,
    doubtful,
    verdict,
)
from shared_core.sharing.readers.openai import read_messages
from shared_core.testing.hashing_embedder import HashingEmbedder

DATA = Path(__file__).parents[2] / "examples" / "data"

SCORES = st.lists(st.floats(-5, 9, width=32), min_size=1, max_size=60)


def chance(text: str, *, holds: float = 0.0, cosine: float | None = None, stranger: bool = False) -> float:
    """The chance of an answer if the best message holds a share of the words, and all are as near as the cosine."""
    dense = np.full(9, np.nan if cosine is None else cosine, np.float32)
    unrelated = None if cosine is None else (0.25, 0.15)
    present = np.array([holds], np.float32)
    return chance_of_answer(parse_query(text, ["Ann"]), present, dense, unrelated=unrelated, stranger=stranger)


@pytest.mark.parametrize("text", ["Where did we stay at the weekend?", "Did I tell you a joke?", "When do we start?"])
def test_small_words_in_a_question_about_those_who_talk_ask_for_what_was_said(text: str) -> None:
    assert chance(text, holds=1.0) > BARS["balanced"].open  # type: ignore[union-attr]
    assert chance(text, holds=1.0, cosine=0.6) > BARS["balanced"].open  # type: ignore[union-attr]


def test_a_line_that_neither_asks_nor_requests_needs_more_to_be_answered() -> None:
    said, asked, requested = (
        chance(text, holds=0.4, cosine=0.4)
        for text in ("a red lighthouse.", "a red lighthouse?", "show a red lighthouse.")
    )
    assert said < asked
    assert said < requested


def test_a_question_that_goes_on_has_a_depth_of_its_own_and_is_never_doubtful() -> None:
    query = parse_query("The draft is done. What is next?", ["Ann"])
    assert [doubtful(query, chance) for chance in (KNOWN - 0.01, KNOWN)] == [True, False]
    on = replace(query, goes_on=True)
    assert not doubtful(on, 0.0)
    assert depth_of(on, hidden=False) == Depth(GOES_ON, TRUST)


def test_what_the_best_messages_hold_together_counts_if_a_question_goes_on() -> None:
    query = replace(parse_query("The draft of the report is done. What is next?", ["Ann"]), goes_on=True)
    present, dense = np.array([0.2], np.float32), np.array([0.4], np.float32)

    def found(unrelated: tuple[float, float] | None, together: float, score: float) -> float:
        return chance_of_answer(
            query, present, dense, unrelated=unrelated, stranger=False, together=together, score=score
        )

    known = (0.25, 0.15)
    assert found(known, 0.2, 3.0) < found(known, 0.8, 3.0) < found(known, 0.8, 5.0)
    assert found(None, 0.2, 3.0) == found(None, 0.8, 5.0), "by words alone, single messages decide"


@given(holds=st.floats(0, 0.9), cosine=st.one_of(st.none(), st.floats(-1, 0.9)))
def test_whatever_speaks_for_an_answer_raises_the_chance(holds: float, cosine: float | None) -> None:
    asked = chance("when did the boiler break", holds=holds, cosine=cosine)
    assert 0 < asked < 1
    assert chance("when did the boiler break", holds=holds + 0.1, cosine=cosine) > asked
    assert chance("when did Ann say the boiler broke", holds=holds, cosine=cosine) > asked
    assert chance("when did the boiler break", holds=holds, cosine=cosine, stranger=True) < asked
    if cosine is not None:
        assert chance("when did the boiler break", holds=holds, cosine=cosine + 0.1) > asked


@given(SCORES)
def test_chances_fall_with_the_rank(scores: list[float]) -> None:
    chances = chances_of_part(np.array(sorted(scores, reverse=True), np.float32))
    assert len(chances) == len(scores)
    assert np.all(np.diff(chances) <= 0)
    assert np.all((chances > 0) & (chances < 1))


@given(SCORES, st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.2), st.floats(0, 0.2))
def test_a_higher_bar_never_lets_more_through(
    scores: list[float], chance: float, lower: float, go_on: float, more: float
) -> None:
    ranked = np.array(sorted(scores, reverse=True), np.float32)
    loose, strict = (verdict(Bars(lower, bar), chance, ranked).worth for bar in (go_on, go_on + more))
    assert 0 <= strict <= loose <= len(scores)
    assert verdict(Bars(lower, 0), chance, ranked).worth == (len(scores) if chance >= lower else 0)


def test_questions_in_other_words_than_their_answers_are_answered() -> None:
    questions = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))
    asked = [question for question in questions if question["category"] == "paraphrase"]
    found = []
    with InfiniteMemory(embedder="static") as memory:
        memory.add(read_messages(DATA / "conversation.json"))
        for question in asked:
            shown = {line.id for line in memory.context(question["question"]).report.included}
            found.append(len(shown & set(question["evidence"])) / len(question["evidence"]))
    assert np.mean(found) > 0.6


TIGHT: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 0}

TOPICS = (
    ("the boiler in the cellar", "the plumber from Basel tightens its valve"),
    ("our trip to the Azores", "flights go through Lisbon on Fridays"),
    ("my sister's wedding", "the hall is booked for the second of June"),
    ("the climbing gym", "the locker is number 118 and its code is 4093"),
    ("the tax papers", "the deadline is the last of March"),
)


def asked(text: str, recall: Recall = "balanced", **settings: Any) -> ContextReport:
    """The report on a question after a talk in which five topics take turns."""
    settings |= {"max_tokens": 900, "reserve_tokens": 100}
    with InfiniteMemory(embedder="static", recall=recall, **settings) as memory:
        for number in range(60):
            topic, news = TOPICS[number % len(TOPICS)]
            memory.add([Message.user(f"About {topic}, part {number}."), Message.assistant(f"Noted {number}: {news}.")])
        return memory.context(text).report


@pytest.mark.parametrize("text", ["lol", "What is 17 times 23?", "Who painted the Mona Lisa?", "Tell me a joke."])
def test_a_question_about_something_else_recalls_nothing_and_the_report_says_why(text: str) -> None:
    report = asked(text)
    assert report.totals[Kind.RECALLED] == 0
    assert report.stopped.startswith("nothing recalled: ")
    assert report.to_dict()["stopped"] == report.stopped
    assert {line.reason for line in report.lines if line.kind is Kind.RECALLED} <= {Reason.WEAK}


def test_a_threshold_that_nothing_reaches_is_named() -> None:
    report = asked("What is the code of the locker at the climbing gym?", min_score=0.99)
    assert report.totals[Kind.RECALLED] == 0
    assert "no message reaches the threshold, which is min_score" in " ".join(str(report).split())


def test_each_eagerness_recalls_a_beginning_of_what_the_next_one_does() -> None:
    question = "What is the code of the locker at the climbing gym?"
    precise, balanced, thorough = (asked(question, recall) for recall in ("precise", "balanced", "thorough"))
    assert any(line.text.endswith("its code is 4093.") for line in precise.best)
    assert 0 < precise.totals[Kind.RECALLED] < balanced.totals[Kind.RECALLED] <= thorough.totals[Kind.RECALLED]
    assert precise.stopped
    assert not thorough.stopped


def test_a_sample_of_cosines_serves_until_the_session_has_doubled() -> None:
    """An embedder that does not say how close unrelated messages are is sampled; the same state tells the same."""
    sampled = list[int]()
    with InfiniteMemory(embedder=HashingEmbedder(8), **TIGHT) as memory:
        said = 0
        for some in [500, 60, 200, 400]:
            memory.add([Message.user(f"thing {number}") for number in range(said, said + some)])
            said += some
            memory.index()
            first = memory.context("Which thing was it?").report
            vectors = memory._prompts.searcher.indexes.opened()[0].vectors[0]
            assert vectors is not None
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(vectors.vectors, "unrelated", lambda rows, least=0: sampled.append(len(rows)))
                again = memory.context("Which thing was it?").report
            assert bool(sampled) == (said <= ALL_SAMPLED)
            assert again.stopped == first.stopped or sampled
            sampled.clear()
        with InfiniteMemory(embedder=HashingEmbedder(8), **TIGHT) as other:
            other.add([Message.user(f"thing {number}") for number in range(said)])
            other.index()
            assert other.context("Which thing was it?").report.stopped == first.stopped


CONVERSATION = DATA / "conversation.json"


def test_a_floor_of_the_caller_is_one_more_condition() -> None:
    """What is silent without a floor is silent with one, and what is recalled with it is recalled without it."""
    questions = ["Who won the world cup in 1998?", "What was the code of my locker at the climbing hall?"]
    found: list[list[set[str | None]]] = []
    for least in (None, 0.6):
        with InfiniteMemory(max_tokens=1_000, min_score=least) as memory:
            memory.import_file(CONVERSATION)
            lines = [memory.context(question).report.lines for question in questions]
        found.append([{one.id for one in some if one.kind is Kind.RECALLED and one.included} for some in lines])
    usual, floored = found
    assert usual[0] == floored[0] == set()
    assert usual[1] >= floored[1] > set()
