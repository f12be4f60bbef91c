"""The sliding window and grounding, with the published figures, by message and by whole turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import (
    Context,
    Grounding,
    GroundingItem,
    InfiniteMemory,
    Message,
    ToolCall,
    sliding_window,
)
from shared_core.errors import MessageTooLargeError
from shared_core.prompt.hits import Kind
from shared_core.results import Reason
from shared_core.tokens import CallableCounter, as_counter, body_tokens, message_tokens

COUNTERS = ["characters/4", "o200k_base"]

Row = tuple[Any, ...]
"""A role (s, u, a; c: a tool call; t: its result), a size in tokens, and for some questions the size of grounding."""


def unframed(counter: str) -> CallableCounter:
    """The counter of this name, for messages without framing."""
    counts = as_counter(counter)
    return CallableCounter(counts, counts.name, overhead=0)


class Sized:
    """Makes messages of exactly so many tokens; message number 3 has the id `"3"`."""

    def __init__(self, counter: str) -> None:
        self.name = counter
        self.count = as_counter(counter)

    def text(self, tokens: int) -> str:
        text = "wxyz" * tokens if self.name == "characters/4" else ("a" + " a" * (tokens - 1) if tokens else "")
        assert self.count(text) == tokens
        return text

    def messages(self, rows: Sequence[Row]) -> list[Message]:
        messages = [self._message(str(index), *row) for index, row in enumerate(rows)]
        for message, row in zip(messages, rows, strict=True):
            assert body_tokens(message, self.count) == row[1]
        return messages

    def _message(self, index: str, role: str, tokens: int, grounding: int = 0) -> Message:
        if role == "c":
            call = ToolCall(id="call", name=self.text(1), arguments=self.text(tokens - 2))
            return Message.assistant(id=index, tool_calls=(call,))
        if role == "t":
            return Message.tool(self.text(tokens - 1), "call", id=index)
        makers: dict[str, Callable[..., Message]] = {"s": Message.system, "u": Message.user, "a": Message.assistant}
        return makers[role](self.text(tokens), id=index, grounding=self.text(grounding))

    def size(self, messages: Sequence[Message]) -> int:
        return sum(message_tokens(message, unframed(self.name)) for message in messages)


@pytest.fixture(params=COUNTERS)
def sized(request: pytest.FixtureRequest) -> Sized:
    return Sized(request.param)


def by_message(
    messages: Sequence[Message], counter: str, limit: int, reserve: int = 0, **options: Any
) -> list[Message]:
    """The window as the write-ups cut it: between any two messages, framing free."""
    settings: dict[str, Any] = {"unit": "message"} | options
    return sliding_window(
        messages, max_tokens=limit, reserve_tokens=reserve, token_counter=unframed(counter), **settings
    )


def memory_of(
    messages: Sequence[Message], counter: str, limit: int, reserve: int = 0, **options: Any
) -> InfiniteMemory:
    """A memory that has the window alone: nothing is recalled."""
    settings: dict[str, Any] = {"embedder": "words", "recall_tokens": 0, "fill": "stop"}
    memory = InfiniteMemory(
        max_tokens=limit, reserve_tokens=reserve, token_counter=unframed(counter), **settings | options
    )
    memory.add(messages)
    return memory


def by_turn(messages: Sequence[Message], counter: str, limit: int, reserve: int = 0, **options: Any) -> Context:
    with memory_of(messages, counter, limit, reserve, **options) as memory:
        return memory.context()


def ids(messages: Sequence[Message]) -> list[int]:
    return [int(message.id or "-1") for message in messages]


@dataclass(frozen=True)
class Case:
    """One row: what is said, what is kept by message and by turn, and how many tokens that is.

    `message` and `turn` are indices of `rows`. `why` explains those by turn; those by message are the source's own.
    """

    name: str
    rows: list[Row]
    limit: int
    message: list[int]
    message_tokens: int
    turn: list[int]
    turn_tokens: int
    why: str
    reserve: int = 0
    fill: Literal["stop", "skip"] = "stop"
    keep: Literal["newest", "all"] = "newest"


A5 = [("u", 2), ("a", 2), ("u", 50), ("a", 2), ("u", 2)]
A6 = [("s", 5), ("u", 5), ("a", 5), ("u", 5)]
A7 = [("s", 120), ("u", 2033), ("a", 250), ("u", 1200), ("a", 512), ("u", 1200)]
A10 = [("u", 6), ("a", 6), ("u", 6)]
B2 = [("s", 100), ("u", 6, 1795), ("a", 120), ("u", 6, 1795), ("a", 120), ("u", 6, 1795)]
B3 = [("s", 10), ("u", 6, 50), ("a", 6), ("u", 6, 50), ("c", 2), ("t", 8)]
B7 = [("s", 100), ("u", 6, 5000)]

CASES = [
    *(
        Case(f"A2 {limit} less {reserve}: as much as is left fits", [("u", 7), ("a", 9), ("u", left - 16)], limit,
             [0, 1, 2], left, [0, 1, 2], left, "7 + 9 beside the question fill the budget to the token", reserve)
        for limit, reserve, left in [(4096, 500, 3596), (4096, 700, 3396), (4096, 550, 3546), (32768, 700, 32068),
                                     (32768, 550, 32218)]
    ),
    Case("A2 one token more does not", [("u", 8), ("a", 9), ("u", 3580)], 4096, [1, 2], 3589, [2], 3580,
         "8 + 9 = 17 of 16 left", 500),
    Case("A5 stop at the first that does not fit", A5, 20, [3, 4], 4, [4], 2, "turn 50 + 2 of 18 left: stop"),
    Case("A5 or skip it", A5, 20, [0, 1, 3, 4], 8, [0, 1, 4], 6, "turn 50 + 2 is passed over, 2 + 2 fits", fill="skip"),
    Case("A6 what fills the budget fits", A6, 20, [0, 1, 2, 3], 20, [0, 1, 2, 3], 20, "5 + 5 of 10 left"),
    Case("A6 one token less", A6, 19, [0, 2, 3], 15, [0, 3], 10, "5 + 5 of 9 left"),
    Case("A7 gradle", A7, 4096, [0, 2, 3, 4, 5], 3282, [0, 3, 4, 5], 3032,
         "1200 + 512 of 2076 left, then 2033 + 250 of 364", 700),
    Case("A10 before the tool call", A10, 20, [0, 1, 2], 18, [0, 1, 2], 18, "6 + 6 of 14 left"),
    Case("A10 after it", [*A10, ("c", 2), ("t", 8)], 20, [2, 3, 4], 16, [2, 3, 4], 16,
         "the newest turn is 6 + 2 + 8; 6 + 6 of 4 left"),
    Case("B2 grounding on the newest question alone", B2, 3396, [0, 1, 2, 3, 4, 5], 2153, [0, 1, 2, 3, 4, 5], 2153,
         "100 + 1801, twice 6 + 120; 1243 are free"),
    Case("B2 and on all of them", B2, 3396, [0, 4, 5], 2021, [0, 5], 1901, "1801 + 120 of 1495 left", keep="all"),
    Case("B3 grounding stays with its question through a tool loop", B3, 100, [0, 1, 2, 3, 4, 5], 88,
         [0, 1, 2, 3, 4, 5], 88, "10, then 6 + 6, then 56 + 2 + 8"),
    Case("B7 B9 grounding is cut to what the question leaves", B7, 3396, [0, 1], 3396, [0, 1], 3396,
         "the published cut stops at 2985, for its estimate is cautious; an exact count may fill the budget"),
]  # fmt: skip


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
class TestTable:
    def expect(self, sent: Sequence[Message], kept: list[int], tokens: int, counter: str, case: Case) -> None:
        sized = Sized(counter)
        assert ids(sent) == kept
        assert sized.size(sent) <= case.limit - case.reserve
        # By characters the blank line before a grounded question is free; other tokenizers count it.
        grounded = sum(len(case.rows[index]) > 2 for index in kept)
        spare = 0 if counter == "characters/4" else grounded
        assert tokens - spare <= sized.size(sent) <= tokens + spare
        assert all(message.grounding is None for message in sent)

    def test_by_message(self, case: Case, counter: str) -> None:
        messages = Sized(counter).messages(case.rows)
        sent = by_message(messages, counter, case.limit, case.reserve, fill=case.fill, keep_grounding=case.keep)
        self.expect(sent, case.message, case.message_tokens, counter, case)

    def test_by_turn(self, case: Case, counter: str) -> None:
        messages = Sized(counter).messages(case.rows)
        context = by_turn(messages, counter, case.limit, case.reserve, fill=case.fill, keep_grounding=case.keep)
        self.expect(context.messages, case.turn, case.turn_tokens, counter, case)
        assert context.tokens == Sized(counter).size(context.messages)
        assert context.report.budget == case.limit - case.reserve


# A: the window


@given(
    turns=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=20),
    limits=st.lists(st.integers(12, 300), min_size=1, max_size=4),
    fill=st.sampled_from(["stop", "steady"]),
)
def test_a9_the_limit_of_a_call_gives_the_prompt_of_a_memory_with_that_limit(
    turns: list[tuple[int, int]], limits: list[int], fill: str
) -> None:
    """Whatever limits were asked for before, and the memory's own is not changed."""
    messages = Sized("characters/4").messages([row for u, a in turns for row in (("u", u), ("a", a))])
    with memory_of(messages, "characters/4", 40, fill=fill) as memory:
        own = memory.context("what is the code?")
        for limit in limits:
            with memory_of(messages, "characters/4", limit, fill=fill) as other:
                asked = memory.context("what is the code?", max_tokens=limit)
                assert ids(asked.messages[:-1]) == ids(other.context("what is the code?").messages[:-1])
                assert asked.report.budget == limit
        assert memory.context("what is the code?") == own


class TestA11B12:
    """A question that does not fit is an error with both numbers, never a prompt without it."""

    rows: Sequence[Row] = [("s", 5), ("u", 3), ("a", 3), ("u", 16)]

    def test_a11_b12_a_question_larger_than_the_budget_is_an_error(self, sized: Sized) -> None:
        messages = sized.messages(self.rows)
        for ask in (by_message, by_turn):
            with pytest.raises(MessageTooLargeError, match="question") as raised:
                ask(messages, sized.name, 20)
            assert (raised.value.needed, raised.value.available) == (16, 15)
            ask(messages, sized.name, 21)

    def test_a11_on_request_the_question_is_sent_all_the_same_and_reported(self, sized: Sized) -> None:
        messages = sized.messages(self.rows)
        assert ids(by_message(messages, sized.name, 20, on_overflow="keep")) == [0, 3]
        context = by_turn(messages, sized.name, 20, on_overflow="keep")
        assert ids(context.messages) == [0, 3]
        assert context.report.over_budget
        assert context.tokens == 21


OFFER = "9:40 to Porto or 11:15 to Faro?"


def test_a12_a_greeting_is_sent_with_the_first_question() -> None:
    messages = [Message.assistant(OFFER), Message.user("The second, please.")]
    assert [m.content for m in sliding_window(messages, max_tokens=100)] == [OFFER, "The second, please."]
    with InfiniteMemory() as memory:
        memory.add(messages[0])
        assert memory.context().messages == (), "nobody has asked anything"
        assert [m.content for m in memory.context("The second, please.").messages] == [OFFER, "The second, please."]
        assert [m.content for m in memory.context("?", include_question=False).messages] == [OFFER]
        memory.add(Message.system("Sell tickets."))
        memory.add(messages[1])
        assert [m.content for m in memory.context().messages] == ["Sell tickets.", OFFER, "The second, please."]


def test_a12_also_by_message_no_tool_call_is_split(sized: Sized) -> None:
    half: list[Row] = [("u", 3), ("c", 3)]
    messages = sized.messages([*half, ("u", 3), ("c", 3), ("t", 5), ("a", 4), ("u", 3)])
    for limit in range(3, 30):
        sent = by_message(messages, sized.name, limit)
        assert sum(bool(message.tool_calls) for message in sent) == sum(message.role == "tool" for message in sent)


def test_a13_system_messages_in_between_are_sent_and_paid(sized: Sized) -> None:
    messages = sized.messages([("u", 3), ("s", 4), ("u", 5)])
    for limit, kept in ((12, [0, 1, 2]), (11, [1, 2]), (9, [1, 2])):
        assert ids(by_message(messages, sized.name, limit)) == kept
        # A memory takes it for the system prompt, which comes first once something is left out.
        assert ids(by_turn(messages, sized.name, limit).messages) == kept


class TestA17:
    @pytest.mark.parametrize(
        "text", ["ok!", "x=1;", "да", "日本語です", "🙂", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22"]
    )
    def test_what_is_not_english_is_not_underestimated(self, text: str) -> None:
        real = as_counter(None)(text)
        assert real > 0
        assert message_tokens(Message.user(text), as_counter(None)) == 4 + real
        assert as_counter("conservative")(text) >= real


def test_a21_every_decision_is_data_with_its_reason_and_what_was_left(sized: Sized) -> None:
    report = by_turn(sized.messages(A7), sized.name, 4096, 700).report
    assert [(line.id, line.role, line.included, line.reason, line.tokens, line.left) for line in report.lines] == [
        ("0", "system", True, Reason.ALWAYS_SENT, 120, 3276),
        ("5", "user", True, Reason.QUESTION, 1200, 2076),
        ("4", "assistant", True, Reason.NEWEST, 512, 1564),
        ("3", "user", True, Reason.NEWEST, 1200, 364),
        ("2", "assistant", False, Reason.NO_ROOM, 250, 364),
        ("1", "user", False, Reason.NO_ROOM, 2033, 364),
    ]


# B: grounding

HEADER = "Talks at this year's conference:"
FOOTER = "Answer from these talks. Give time and place."


def talks(*titles: str, note: str = "") -> Grounding:
    """Retrieved passages, the weakest first."""
    items = tuple(GroundingItem(text=title, score=index / 10) for index, title in enumerate(titles))
    return Grounding(items=items, header=HEADER, footer=FOOTER, omitted_note=note)


def ask(question: Message, counter: str, limit: int, **options: Any) -> list[str]:
    """The question as it is sent, by the function and by the engine."""
    (window,) = by_message([question], counter, limit, **options)
    (sent,) = by_turn([question], counter, limit, **options).messages
    assert window.content == sent.content
    return sent.content.split("\n\n")


class TestB11:
    question = Message.user("when?", grounding=talks("weak " * 40, "fair " * 40, "best", note="({count} left out)"))

    def test_the_model_is_told_how_many_passages_are_missing(self, sized: Sized) -> None:
        assert ask(self.question, sized.name, 60) == [HEADER, "best", "(2 left out)", FOOTER, "when?"]
        assert not any("left out" in part for part in ask(self.question, sized.name, 4096))

    def test_the_caller_is_told(self, sized: Sized) -> None:
        def line(limit: int) -> tuple[bool, int]:
            (found,) = [line for line in by_turn([self.question], sized.name, limit).report.lines
                        if line.kind is Kind.GROUNDING]  # fmt: skip
            assert found.reason is Reason.QUESTION
            return found.part, found.tokens

        whole = sized.count("\n\n".join([HEADER, "weak " * 40, "fair " * 40, "best", FOOTER, "when?"]))
        assert line(4096) == (False, whole - sized.count("when?"))
        assert line(60)[0]


class TestB16:
    """Whether old grounding is worth its room is a setting."""

    rows: Sequence[Row] = [("u", 6, 50), ("a", 6), ("u", 6, 40), ("a", 6), ("u", 6, 30)]

    settings: Sequence[tuple[Any, list[int]]] = [
        ("newest", [4]), ("none", []), ("all", [0, 2, 4]), (0, []), (1, [4]), (2, [2, 4]), (3, [0, 2, 4]),
        (9, [0, 2, 4]),
    ]  # fmt: skip

    def grounded(self, sent: Sequence[Message]) -> list[int]:
        return [index for index, message in zip(ids(sent), sent, strict=True) if "\n\n" in message.content]

    @pytest.mark.parametrize(("keep", "grounded"), settings)
    def test_which_questions_keep_theirs(self, sized: Sized, keep: Any, grounded: list[int]) -> None:
        messages = sized.messages(self.rows)
        assert self.grounded(by_turn(messages, sized.name, 4096, keep_grounding=keep).messages) == grounded
        for unit in ("turn", "message"):
            assert self.grounded(by_message(messages, sized.name, 4096, unit=unit, keep_grounding=keep)) == grounded


# R7: a window limited in turns


@pytest.mark.parametrize(("most", "kept"), [(0, []), (1, ["u3", "a3"]), (2, ["u2", "a2", "u3", "a3"]), (9, None)])
def test_r7_the_newest_turns_beside_the_question(most: int, kept: list[str] | None) -> None:
    talk = [
        said(f"{who}{number}") for number in range(4) for said, who in ((Message.user, "u"), (Message.assistant, "a"))
    ]
    kept = [message.content for message in talk] if kept is None else kept
    with InfiniteMemory(window_turns=most, recall_tokens=0) as memory:
        memory.add(talk)
        context = memory.context("well?")
    assert [message.content for message in context.messages] == [*kept, "well?"]
    assert (Reason.OLDER in {line.reason for line in context.report.lines}) == (len(kept) < len(talk))
    listed = sliding_window([*talk, Message.user("well?")], max_tokens=4_096, window_turns=most)
    assert [message.content for message in listed] == [*kept, "well?"]


def test_r7_recall_brings_what_the_window_leaves_out() -> None:
    with InfiniteMemory(window_turns=1, top_k=2) as memory:
        memory.add([Message.user("My locker code is 4471."), Message.assistant("Noted.")])
        memory.add([Message.user("Which hill is steep?"), Message.assistant("The old one.")])
        memory.add([Message.user("And which is green?"), Message.assistant("The new one.")])
        prompt = "\n".join(message.content for message in memory.context("What is my locker code?").messages)
    assert "4471" in prompt
    assert "green" in prompt
    assert "steep" not in prompt
