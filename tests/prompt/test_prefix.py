"""How much of a prompt the next one begins with: where the window starts, and when that moves."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared_core import Context, InfiniteMemory, Message, RecallTemplate, ToolCall
from shared_core.prompt.assembler import Placement
from shared_core.prompt.hits import Kind, Reason
from shared_core.prompt.window import fit_window
from shared_core.session.turns import Entry, Turn
from shared_core.tokens import CallableCounter
from tests.support.prompt_cases import slack_rule


def hundreds(text: str) -> int:
    """A hundred tokens a word, so that short texts fill large windows."""
    return 100 * len(text.split())


TEMPLATE = RecallTemplate(header="", footer="", day="", item="{text}", separator="\n", excerpt_tokens=None)
SETTINGS: dict[str, Any] = {
    "max_tokens": 16_000, "reserve_tokens": 0, "token_counter": CallableCounter(hundreds, overhead=0),
    "embedder": "words", "recall": "thorough", "recall_template": TEMPLATE,
}  # fmt: skip
"""A quarter, 4,000 tokens, is left to questions; the window takes 12,000."""


def turn(number: int) -> list[Message]:
    """A turn of 400 tokens."""
    return [Message.user(f"q{number} said", id=f"u{number}"), Message.assistant(f"a{number} replied", id=f"a{number}")]


def start(context: Context) -> str | None:
    return next(message.id for message in context.messages if message.role != "system")


def starts(questions: Sequence[str], **changed: Any) -> list[str | None]:
    """Where the windows start for questions after 60 turns, with one more turn between each question and the next."""
    with InfiniteMemory(**SETTINGS | changed) as memory:
        memory.add([message for number in range(60) for message in turn(number)])
        found = []
        for number, question in enumerate(questions, start=60):
            found.append(start(memory.context(question)))
            memory.add(turn(number))
        return found


def test_the_start_moves_once_in_so_many_turns() -> None:
    """30 turns fit, 23 are a quarter less: one of these eight starts is a multiple of eight."""
    expected = [f"u{-(-(number - 30) // 8) * 8}" for number in range(60, 100)]
    assert starts(["well"] * 40) == expected
    assert len(set(expected)) == 6


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    with InfiniteMemory(**SETTINGS) as memory:
        memory.add([message for number in range(60) for message in turn(number)])
        yield memory


@pytest.mark.parametrize(
    "question", ["well", *(" ".join(f"q{number}" for number in range(count)) for count in (1, 2, 3, 12)), "well " * 50]
)
def test_a_question_moves_it_only_if_it_takes_more_than_is_left_to_it(memory: InfiniteMemory, question: str) -> None:
    context = memory.context(question)
    room = 16_000 - context.report.totals[Kind.QUESTION] - context.report.totals[Kind.RECALLED]
    sizes = {f"u{number}": 400 for number in range(59, -1, -1)}
    number = {turn: int(turn[1:]) for turn in sizes}
    assert start(context) == slack_rule(sizes, number, min(12_000, room), 0.25)[-1]
    assert (start(context) == "u32") == (room > 11_000), "28 turns"
    assert start(memory.context("well")) == "u32"


def test_what_could_have_been_sent_is_said_in_the_report(memory: InfiniteMemory) -> None:
    lines = [line for line in memory.context("well").report.lines if line.kind is Kind.WINDOW and line.role == "user"]
    left_out = [line.id for line in lines if line.reason is Reason.OLDER]
    assert left_out[:11] == [f"u{number}" for number in range(31, 20, -1)], "39 turns fit beside the question"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [({"max_tokens": 4_000}, "u52"), ({"recall_tokens": 0}, "u24"), ({"top_k": 0}, "u24"), ({"fill": "skip"}, "u21")],
    ids=str,
)
def test_nothing_is_left_in_short_prompts_or_where_nothing_is_recalled(changed: dict[str, Any], expected: str) -> None:
    """9 turns fit, or 39, and nothing but a quarter of them is given up for a number with many factors of two."""
    assert starts(["well"], **changed) == [expected]


# Laws

sizes = st.lists(st.integers(1, 12), min_size=1, max_size=60)
slacks = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.8, 1.0])


def turns_of(sizes: Sequence[int]) -> list[Turn]:
    return [
        Turn(f"{number}", number, (Entry(Message.user("", turn_id=f"{number}"), size, number, number),))
        for number, size in enumerate(sizes)
    ]


def largest(sizes: Sequence[int], most: int) -> int:
    """How many of the newest fit."""
    return sum(total <= most for total in accumulate(reversed(sizes)))


@given(sizes, st.integers(1, 200), st.integers(1, 200), slacks)
def test_the_window_is_what_the_rule_says(sizes: list[int], budget: int, steady: int, slack: float) -> None:
    """Of what fits, and if that is not all also fits into `steady` (or is one turn), the window drops less than the
    slack, so that the number of its first turn has the most factors of two; of those the oldest.
    """
    window = fit_window(reversed(turns_of(sizes)), budget, slack=slack, steady=steady)
    fits, count = largest(sizes, budget), len(sizes)
    allowed = min(fits, max(1, largest(sizes, steady)))
    if fits == count:
        assert len(window.kept) == count
        return
    enough = [n for n in range(1, allowed + 1) if sum(sizes[-n:]) >= (1 - slack) * sum(sizes[-allowed:])]
    ranks = {n: ((count - n) & (n - count) or 1 << 99, n) for n in enough}
    assert len(window.kept) == max(enough, key=ranks.__getitem__, default=0)
    assert len(window.stable_cut) == fits - len(window.kept)


@given(sizes, st.integers(13, 100), st.lists(st.integers(0, 100), min_size=60, max_size=60), slacks)
@example([1] * 60, 40, [0] * 60, 0.5)
def test_the_start_never_goes_back_and_moves_by_half_the_slack(
    sizes: list[int], steady: int, spare: list[int], slack: float
) -> None:
    """Whatever the budget is, if it is never less than what is steady: each move skips the largest power of two that
    is no larger than the turns in the slack, so there are at most as many moves as that is in the turns added.
    """
    found: list[int] = []
    for end, more in zip(range(1, len(sizes) + 1), spare, strict=False):
        window = fit_window(reversed(turns_of(sizes[:end])), steady + more, slack=slack, steady=steady)
        # A conversation larger than what is steady may still be sent whole if the budget happens to allow it.
        found += [] if window.reaches_all else [window.kept[-1].turn_no]
    step = 1 << (1 + int(slack * (steady - max(sizes)) / max(sizes))).bit_length() - 1
    assert found == sorted(found)
    assert all(after - before >= step for before, after in pairwise(found) if after != before)
    assert len(set(found)) <= 1 + len(sizes) / step


texts = st.lists(st.sampled_from(["blue", "red", "green", "so"]), min_size=1, max_size=8).map(" ".join)


@settings(max_examples=max(5, settings().max_examples // 8))
@given(st.lists(st.tuples(texts, texts), min_size=20, max_size=40), st.sampled_from(get_args(Placement)))
def test_a_prompt_begins_with_what_the_one_before_says(said: list[tuple[str, str]], placement: Placement) -> None:
    """Beside the question, recalled text changes nothing before it, as long as the window starts at the same turn;
    elsewhere, no more is promised than the system prompt.
    """
    prompts: list[Context] = []
    with InfiniteMemory(**SETTINGS | {"placement": placement}) as memory:
        memory.add(Message.system("Be brief."))
        for question, reply in said:
            prompts.append(memory.context(question))
            memory.add([Message.user(question), Message.assistant(reply)])
    for before, after in pairwise(prompts):
        assert before.stable_prefix == (len(before.messages) - 1 if placement == "grounding" else 1)
        if placement != "grounding" or start(before) == start(after):
            assert after.messages[: before.stable_prefix] == before.messages[: before.stable_prefix]


def test_the_stable_part_ends_before_the_question_of_a_tool_loop(memory: InfiniteMemory) -> None:
    memory.add(Message.user("well"))
    before = memory.context()
    memory.add([Message.assistant(tool_calls=(ToolCall(id="1", name="look", arguments="{}"),)), Message.tool("x", "1")])
    after = memory.context()
    assert before.stable_prefix == after.stable_prefix == len(before.messages) - 1 == len(after.messages) - 3
    assert memory.context(include_question=False).stable_prefix == 0
