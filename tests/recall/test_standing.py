"""Standing facts are recalled where they bear on the question, and cost nothing elsewhere."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message
from shared_core.prompt.context import ContextReport
from shared_core.prompt.reasons import Kind, Reason
from shared_core.prompt.window import Candidate
from shared_core.recall.standing_lane import StandingCandidate, around, entry_key, is_request, with_standing
from shared_core.recall.supersession.changes import restated
from shared_core.turns import Entry

SETTINGS: dict[str, Any] = {
    "max_tokens": 300, "reserve_tokens": 0, "token_counter": "characters/4", "ranking": "lexical", "window_slack": 0,
}  # fmt: skip

FILLER = 40
"""Turns that are more than a prompt of 300 tokens holds."""


def memory_of(*said: str | Message, filler: int = FILLER, store: Any = None, **settings: Any) -> InfiniteMemory:
    memory = InfiniteMemory(store, **SETTINGS | settings)
    for text in said:
        memory.add([Message.user(text) if isinstance(text, str) else text, Message.assistant("Noted.")])
    fill(memory, filler)
    return memory


def fill(memory: InfiniteMemory, turns: int) -> None:
    for number in range(turns):
        memory.add(
            [Message.user(f"Train {number} is blue."), Message.assistant("It leaves at noon from platform two.")]
        )


def stand(report: ContextReport) -> list[str]:
    """The texts that are in the prompt as standing facts, in order of time."""
    return sorted(line.text for line in report.included if line.reason is Reason.STANDING)


def recalled(report: ContextReport) -> list[str]:
    return [line.text for line in report.included if line.kind is Kind.RECALLED]


def standing(memory: InfiniteMemory, question: str) -> list[str]:
    return stand(memory.context(question).report)


BEARS = [
    ("I'm vegan", "Suggest a dinner for Friday"),
    ("I'm allergic to nuts", "What should I bake for the party?"),
    ("I prefer asynchronous persistence", "How should I store the events?"),
    ("I prefer aisle seats", "Book me a flight to Rome, which seat?"),
    ("I have asthma", "Plan a workout for me"),
    ("I work as a nurse", "Help me write my resume"),
    ("please answer in metric units", "Explain how tall a giraffe is"),
    ("call me Sam", "Draft a letter to my bank"),
    ("Hi, I'm Bob.", "What's my name?"),
    ("Call me Sam.", "Who am I?"),
    ("I work as a nurse", "What's my job?"),
    ("I'm allergic to shellfish", "Can I eat prawns?"),
    ("I'm vegetarian", "Is paella ok for me?"),
    ("I never take calls before 10 am", "Can we meet at 9?"),
    ("I prefer aisle seats", "What do you know about me?"),
    ("I hate coriander", "What are my preferences?"),
    ("Always show version numbers when I ask about libraries", "Which libraries does the parser need?"),
    ("Never suggest pork", "Recommend a restaurant"),
]

SILENT = ["lol", "ok", "thanks a lot!", "Who painted the Mona Lisa?", "What is 17 times 23?", "good morning"]


@pytest.mark.parametrize("embedder", [None, "static"])
@pytest.mark.parametrize(("fact", "question"), BEARS, ids=[fact for fact, _ in BEARS])
def test_a_fact_that_bears_on_the_question_is_recalled(fact: str, question: str, embedder: str | None) -> None:
    settings: dict[str, Any] = {} if embedder is None else {"ranking": "hybrid", "embedder": embedder}
    with memory_of(fact, **settings) as memory:
        report = memory.context(question).report
        assert fact in recalled(report)
        # One that is ranked among the best is there because it matches the question.
        why = {line.reason for line in report.included if line.text == fact}
        assert stand(report) == [fact] or why == {Reason.RECALLED}


@pytest.mark.parametrize("question", SILENT)
def test_small_talk_and_general_knowledge_recall_none(question: str) -> None:
    with memory_of(*(fact for fact, _ in BEARS)) as memory:
        report = memory.context(question).report
        assert report.totals[Kind.RECALLED] == 0


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("I'm vegan", "How should I store the events?"),
        ("I prefer asynchronous persistence", "Suggest a dinner for Friday"),
        ("I'm vegan", "What did I cook on Friday?"),
        ("I'm vegan", "When was the dinner?"),
        ("Always show version numbers when I ask about libraries", "Suggest a dinner for Friday"),
        ("I work as a nurse", "What do I do if the pipe leaks?"),
        ("I'm allergic to shellfish", "What do you know about Rome?"),
    ],
)
def test_a_fact_that_does_not_bear_on_the_question_is_not(fact: str, question: str) -> None:
    with memory_of(fact) as memory:
        assert standing(memory, question) == []


def test_the_newest_fact_of_a_kind_about_the_same_holds() -> None:
    with memory_of("I prefer asynchronous persistence", "I'm vegan", "I prefer synchronous persistence now") as memory:
        assert standing(memory, "How should I store the events?") == ["I prefer synchronous persistence now"]
        memory.add([Message.user("I'm no longer vegan"), Message.assistant("Enjoy.")])
        fill(memory, FILLER)
        assert standing(memory, "Suggest a dinner for Friday") == ["I'm no longer vegan"]
        assert standing(memory, "I eat meat again. Suggest a dinner for Friday") == []
        listed = [(fact.text, fact.kind, fact.superseded) for fact in memory.standing()]
    assert listed == [
        ("I'm no longer vegan", "diet", False),
        ("I prefer synchronous persistence now", "preference", False),
        ("I'm vegan", "diet", True),
        ("I prefer asynchronous persistence", "preference", True),
    ]


def test_what_one_speaker_says_does_not_supersede_another_s() -> None:
    ann, bob = Message.user("I'm vegan", name="Ann"), Message.user("I'm no longer vegan", name="Bob")
    with memory_of(ann, bob) as memory:
        assert standing(memory, "Suggest a dinner for Friday") == ["I'm no longer vegan", "I'm vegan"]
        assert [(fact.name, fact.superseded) for fact in memory.standing()] == [("Bob", False), ("Ann", False)]


def test_a_fact_in_the_window_is_not_said_twice() -> None:
    with memory_of("I'm vegan", filler=2, max_tokens=4000) as memory:
        assert standing(memory, "Suggest a dinner for Friday") == []
    with memory_of("I'm vegan") as memory:
        memory.add([Message.user("Remember, I'm vegan!"), Message.assistant("Sure.")])
        context = memory.context("Suggest a dinner for Friday")
        assert stand(context.report) == []
        assert [message.content for message in context.messages].count("Remember, I'm vegan!") == 1


def test_the_report_and_its_short_form_show_it() -> None:
    with memory_of("I'm vegan") as memory:
        report = memory.context("Suggest a dinner for Friday").report
    assert report.stopped.startswith("nothing else recalled: ")
    assert "stands" in str(report)
    assert Reason.STANDING.why in report.full()
    assert memory_prompt(report) == ["I'm vegan"]


def memory_prompt(report: ContextReport) -> list[str]:
    return [line.text for line in report.best]


def test_facts_stand_in_the_fence_with_their_date() -> None:
    with memory_of("I'm vegan", "I'm allergic to nuts") as memory:
        sent = memory.context("Suggest a dinner for Friday").messages[-1].content
    day = memory_day(sent)
    assert sent.index(day) < sent.index("- user: I'm vegan\n- user: I'm allergic to nuts\n</earlier_messages>")


def memory_day(sent: str) -> str:
    return next(line for line in sent.splitlines() if line[:2] == "20")


LONG = "I've thought about the trip for weeks. " * 30 + "I prefer aisle seats. " + "The weather was fine, too. " * 30


def test_of_a_long_message_the_fact_alone_is_recalled() -> None:
    with memory_of(Message.user(LONG, id="m1")) as memory:
        assert standing(memory, "Book me a flight to Rome") == ["I prefer aisle seats (excerpt of message m1)"]
    with memory_of(Message.user(LONG, id="m1"), excerpt_tokens=None) as memory:
        assert standing(memory, "Book me a flight to Rome") == []


def test_an_excerpt_that_matches_the_question_holds_the_fact() -> None:
    text = "I prefer aisle seats. " + "The weather was fine, too. " * 60 + "Rome was the goal of the flight."
    with memory_of(Message.user(text, id="m1"), max_tokens=1000, filler=120) as memory:
        lines = [line for line in memory.context("Book me the flight to Rome").report.included if line.id == "m1"]
    assert len(lines) == 1
    assert "I prefer aisle seats" in lines[0].text
    assert "flight" in lines[0].text


def test_zero_switches_it_off() -> None:
    with memory_of("I'm vegan", standing_tokens=0) as memory:
        assert memory.context("Suggest a dinner for Friday").report.totals[Kind.RECALLED] == 0
        assert [fact.text for fact in memory.standing()] == ["I'm vegan"]


def test_whole_turns_are_recalled_where_messages_are_sent() -> None:
    with memory_of("I'm vegan", placement="messages") as memory:
        messages = memory.context("Suggest a dinner for Friday").messages
    assert [message.content for message in messages[:2]] == ["I'm vegan", "Noted."]


def test_other_sessions_of_the_user_but_not_their_side_branches_nor_those_of_others(tmp_path: Path) -> None:
    store = tmp_path / "chat.db"
    with memory_of("I'm vegan", store=store, user_id="ann", session_id="one", filler=1) as memory:
        memory.fork("side")
        memory.checkout("side")
        memory.add([Message.user("I'm allergic to nuts"), Message.assistant("Noted.")])
    with memory_of("I'm lactose intolerant", store=store, user_id="bob", session_id="one", filler=1):
        pass
    with memory_of("I don't eat pork", store=store, user_id="ann", session_id="two", scope="user") as memory:
        assert standing(memory, "Suggest a dinner for Friday") == ["I don't eat pork", "I'm vegan"]
        assert [(fact.text, fact.session_id) for fact in memory.standing()] == [
            ("I don't eat pork", "two"), ("I'm vegan", "one"),
        ]  # fmt: skip
    with memory_of(store=store, user_id="ann", session_id="two", filler=0) as memory:
        assert standing(memory, "Suggest a dinner for Friday") == ["I don't eat pork"]


def test_a_branch_knows_its_own_facts_only() -> None:
    with memory_of("I'm vegan") as memory:
        memory.fork("side")
        memory.checkout("side")
        memory.add([Message.user("I'm no longer vegan"), Message.assistant("Enjoy.")])
        fill(memory, FILLER)
        assert standing(memory, "Suggest a dinner for Friday") == ["I'm no longer vegan"]
        memory.checkout("main")
        assert standing(memory, "Suggest a dinner for Friday") == ["I'm vegan"]
        assert [fact.text for fact in memory.standing()] == ["I'm vegan"]


def test_forgetting_the_message_removes_the_fact() -> None:
    with memory_of("I'm a vegetarian", "I'm vegan") as memory:
        newest = memory.standing()[0]
        memory.forget(ids=[newest.id])
        assert [(fact.text, fact.superseded) for fact in memory.standing()] == [("I'm a vegetarian", False)]
        assert standing(memory, "Suggest a dinner for Friday") == ["I'm a vegetarian"]
        memory.forget(ids=[memory.standing()[0].id])
        assert memory.standing() == []
        assert standing(memory, "Suggest a dinner for Friday") == []


def test_a_new_process_finds_the_same_with_a_snapshot_and_without(tmp_path: Path) -> None:
    with memory_of("I'm vegan", store=tmp_path / "chat.db") as memory:
        before = memory.context("Suggest a dinner for Friday").report
        memory.index()
        listed = memory.standing()
    for _ in range(2):
        with memory_of(store=tmp_path / "chat.db", filler=0) as memory:
            assert memory.standing() == listed
            assert stand(memory.context("Suggest a dinner for Friday").report) == stand(before) == ["I'm vegan"]


def test_the_asynchronous_memory_lists_the_same() -> None:
    with memory_of("I'm vegan", filler=1) as memory:
        assert asyncio.run(AsyncInfiniteMemory(memory).standing()) == memory.standing()
        (fact,) = memory.standing()
    assert fact.to_dict() == {
        "id": fact.id, "kind": "diet", "text": "I'm vegan", "superseded": False, "name": None,
        "created_at": fact.created_at.isoformat() if fact.created_at else None, "session_id": "default",
    }  # fmt: skip


def test_nothing_stored_states_nothing() -> None:
    with InfiniteMemory(**SETTINGS) as memory:
        assert memory.standing() == []


FACTS = st.lists(st.sampled_from([fact for fact, _ in BEARS] + [LONG]), min_size=1, max_size=6)
QUESTIONS = st.sampled_from([question for _, question in BEARS])


@given(FACTS, QUESTIONS, st.integers(0, 60), st.integers(0, 200), st.sampled_from([60, 0.2, 0.8]))
def test_the_lane_keeps_its_limits(
    facts: list[str], question: str, tokens: int, spare: int, recall_tokens: float | int
) -> None:
    settings = {"standing_tokens": tokens, "recall_tokens": recall_tokens, "max_tokens": 200 + spare}
    with memory_of(*facts, filler=30, **settings) as memory:
        report = memory.context(question).report
    assert sum(line.tokens for line in report.included if line.reason is Reason.STANDING) <= tokens
    share = recall_tokens if isinstance(recall_tokens, int) else int(recall_tokens * report.budget)
    assert report.totals[Kind.RECALLED] <= share
    assert report.total_tokens <= report.budget
    sent = [line.id for line in report.lines if line.kind is Kind.RECALLED and line.id is not None]
    assert len(sent) == len(set(sent))


@given(st.sampled_from(BEARS), st.integers(0, 80), st.integers(25, 80))
def test_a_fact_survives_any_filler_until_it_is_forgotten(bears: tuple[str, str], before: int, after: int) -> None:
    fact, question = bears
    with memory_of(filler=before) as memory:
        stored = memory.add([Message.user(fact), Message.assistant("Noted.")])
        fill(memory, after)
        assert fact in recalled(memory.context(question).report)
        memory.forget(ids=[stored[0].id or ""])
        report = memory.context(question).report
        assert stand(report) == []
        assert fact not in recalled(report)


@given(st.lists(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_the_last_of_a_code_holds(codes: list[int], newer: set[int]) -> None:
    expected = [code in newer or code in codes[index + 1 :] for index, code in enumerate(codes)]
    assert restated(np.array(codes, np.int64), newer).tolist() == expected


def entry(number: int, size: int) -> Entry:
    return Entry(Message.user("x" * size, id=f"m{number}"), size, number, number)


@st.composite
def lanes(draw: st.DrawFn) -> tuple[list[StandingCandidate], list[Candidate]]:
    """Standing facts and ranked candidates, of which some hold the same message."""
    sizes = st.integers(1, 30)
    facts = draw(st.lists(st.integers(0, 9), unique=True, max_size=5))
    ranked = draw(st.lists(st.integers(0, 9), unique=True, max_size=8))
    reasons = st.sampled_from([None, None, Reason.WEAK, Reason.UNLIKELY])
    lane = [Candidate((entry(number, draw(sizes)),), 0.0, match=f"m{number}") for number in facts]
    return (
        [StandingCandidate(one, entry_key(one.entries[0]), (2,)) for one in lane],
        [Candidate((entry(number, draw(sizes)),), 1.0, reason=draw(reasons), match=f"m{number}") for number in ranked],
    )


@given(lanes(), st.integers(0, 60), st.integers(0, 200))
def test_facts_come_first_within_their_tokens_and_no_message_twice(
    made: tuple[list[StandingCandidate], list[Candidate]], tokens: int, room: int
) -> None:
    lane, ranked = made
    found = with_standing(lane, ranked, {}, tokens=tokens, room=room)
    count = sum(one.standing for one in found)
    assert all(one.standing for one in found[:count])
    assert sum(one.tokens for one in found[:count]) <= tokens
    ids = [one.match for one in found]
    assert len(ids) == len(set(ids))
    assert set(ids) >= {one.match for one in ranked}
    order = [one.match for one in ranked]
    assert [one.match for one in found[count:]] == [id_ for id_ in order if id_ not in ids[:count]]


@pytest.mark.parametrize(
    ("passage", "expected"),
    [("b c", "a \u2026 b c"), ("c \u2026", "a \u2026 c \u2026"), ("a b", "a b")],
)
def test_a_passage_gets_what_is_said_around_it(passage: str, expected: str) -> None:
    assert around("a", passage, "a b c d") == expected
    assert around("d", "\u2026 b c", "a b c d") == "\u2026 b c \u2026 d"


REQUESTS = [
    "Can I eat it?",
    "Suggest a dinner",
    "How should I store it?",
    "Can you help me?",
    "What should I cook?",
    "Write a poem.",
]
NO_REQUESTS = ["What did I cook?", "When was it?", "I went home.", "Who painted it?", "What have we said about it?"]


@pytest.mark.parametrize(("text", "expected"), [*((t, True) for t in REQUESTS), *((t, False) for t in NO_REQUESTS)])
def test_a_request_wants_something_made_or_advised(text: str, expected: bool) -> None:
    assert is_request(text) is expected
