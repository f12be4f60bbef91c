"""Recall stops where a message is not worth its tokens, and is silent where nothing is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.prompt.hits import Kind, Reason
from shared_core.prompt.report import ContextReport
from shared_core.recall.scope import ALL_SAMPLED
from shared_core.recall.worth import OPEN, Recall, Signs, chance_of_answer, chances_of_part, verdict
from shared_core.sharing.readers.openai import read_messages
from shared_core.testing.hashing_embedder import HashingEmbedder

DATA = Path(__file__).parents[2] / "examples" / "data"

SCORES = st.lists(st.floats(-5, 9, width=32), min_size=1, max_size=60)

ASKED = Signs(
    words=0.5, meaning=1.5, terms=1.4, participant=0, stranger=0, about_talk=0, of_us=0, asks=1, borrows=0, score=4.0
)
"""Of a question that has an answer."""


def test_a_question_is_told_from_small_talk() -> None:
    assert chance_of_answer(ASKED) > OPEN
    assert chance_of_answer(ASKED._replace(words=0.3, meaning=0.2, terms=0.7, asks=0, score=3.0)) < OPEN


@given(sign=st.sampled_from(Signs._fields), more=st.floats(0.01, 3))
def test_whatever_speaks_for_an_answer_raises_the_chance(sign: str, more: float) -> None:
    raised = chance_of_answer(ASKED._replace(**{sign: getattr(ASKED, sign) + more}))
    assert (raised < chance_of_answer(ASKED)) if sign == "stranger" else (raised > chance_of_answer(ASKED))
    assert 0 < raised < 1


@given(SCORES, st.booleans())
def test_chances_fall_with_the_rank(scores: list[float], spread: bool) -> None:
    chances = chances_of_part(np.array(sorted(scores, reverse=True), np.float32), spread=spread)
    assert len(chances) == len(scores)
    assert np.all(np.diff(chances) <= 0)
    assert np.all((chances > 0) & (chances < 1))


@given(SCORES, st.floats(0, 0.2), st.floats(0, 0.2), st.booleans())
def test_a_higher_price_never_lets_more_through(scores: list[float], price: float, more: float, spread: bool) -> None:
    ranked = np.array(sorted(scores, reverse=True), np.float32)
    loose, strict = (verdict(one, ASKED, ranked, spread=spread).worth for one in (price, price + more))
    assert 0 <= strict <= loose <= len(scores)
    assert verdict(0, ASKED, ranked, spread=spread).worth == len(scores)
    assert verdict(0, ASKED._replace(score=-9.0), ranked, spread=spread).worth == 0


@pytest.mark.parametrize(("recall", "least"), [("balanced", 0.3), ("thorough", 0.6)])
def test_questions_in_other_words_than_their_answers_are_answered(recall: Recall, least: float) -> None:
    questions = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))
    asked = [question for question in questions if question["category"] == "paraphrase"]
    found = []
    with InfiniteMemory(embedder="static", recall=recall) as memory:
        memory.add(read_messages(DATA / "conversation.json"))
        for question in asked:
            shown = {line.id for line in memory.context(question["question"]).report.included}
            found.append(len(shown & set(question["evidence"])) / len(question["evidence"]))
    assert np.mean(found) > least


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
