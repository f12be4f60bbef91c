"""What is sent of a tool loop that outgrows the budget: whole results, stubs of older ones, and notes on both."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, ToolCall, sliding_window
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.prompt.fixed_part import is_stub
from shared_core.results import Reason
from shared_core.tokens import CallableCounter


def words(text: str) -> int:
    return len(text.split())


SETTINGS: dict[str, Any] = {
    "reserve_tokens": 0, "token_counter": CallableCounter(words, overhead=0), "fill": "stop", "embedder": "words",
}  # fmt: skip


def group(number: int, *sizes: int, name: str = "search", **fields: Any) -> list[Message]:
    """A message of 3 tokens per call, and results of so many tokens, 1 of it for the id of the call."""
    calls = [ToolCall(id=f"c{number}.{place}", name=name, arguments="{}") for place in range(len(sizes))]
    results = [
        Message.tool(" ".join(["x"] * (size - 1)), call.id, id=f"t{call.id[1:]}", **fields)
        for call, size in zip(calls, sizes, strict=True)
    ]
    return [Message.assistant(id=f"a{number}", tool_calls=tuple(calls)), *results]


def loop(*groups: Sequence[int]) -> list[Message]:
    """A question of 2 tokens, and tool groups with results of these sizes."""
    return [
        Message.user("find it", id="q"), *(one for n, sizes in enumerate(groups) for one in group(n, *sizes))
    ]  # fmt: skip


def sent(messages: Sequence[Message], limit: int, **changes: Any) -> list[str]:
    """The prompt: the ids of messages sent whole, and stubs."""
    with InfiniteMemory(**SETTINGS | changes) as memory:
        memory.add(messages)
        prompt = memory.context(max_tokens=limit).messages
    arguments = {name: value for name, value in (SETTINGS | changes).items() if name != "embedder"}
    window = sliding_window(messages, max_tokens=limit, **arguments)
    assert [message.content for message in window] == [message.content for message in prompt]
    return [message.content if is_stub(message) else message.id or "" for message in prompt]


def stub(size: int, name: str = "search") -> str:
    return f"[result of {name} left out, {size:,} tokens]"


def test_an_older_result_gives_way_to_a_stub_that_says_how_large_it_is() -> None:
    messages = loop([8_000], [50], [50])
    assert sent(messages, 8_111) == ["q", "a0", "t0.0", "a1", "t1.0", "a2", "t2.0"]
    assert sent(messages, 8_110) == ["q", "a0", stub(8_000), "a1", "t1.0", "a2", "t2.0"]
    assert sent(messages, 2 + 53 + 53 + 11) == ["q", "a0", stub(8_000), "a1", "t1.0", "a2", "t2.0"]


def test_from_the_first_that_does_not_fit_all_older_ones_have_stubs() -> None:
    """Small results are not picked out, so that what is sent changes seldom; but none that is smaller than its stub."""
    messages = loop([5], [20], [60], [20])
    assert sent(messages, 90) == ["q", "a0", "t0.0", "a1", stub(20), "a2", stub(60), "a3", "t3.0"]
    parallel = loop([90, 5, 90], [20])
    assert sent(parallel, 60) == ["q", "a0", stub(90), "t0.1", stub(90), "a1", "t1.0"]


def test_if_not_even_stubs_fit_the_oldest_groups_go_and_the_report_says_so() -> None:
    messages = loop([30], [30], [30])
    with InfiniteMemory(**SETTINGS) as memory:
        memory.add(messages)
        report = memory.context(max_tokens=2 + 33 + 11).report
    assert [(line.id, line.reason) for line in report.lines] == [
        ("q", Reason.QUESTION), ("a1", Reason.QUESTION), ("t1.0", Reason.QUESTION), ("a2", Reason.QUESTION),
        ("t2.0", Reason.QUESTION), ("a0", Reason.NO_ROOM), ("t0.0", Reason.NO_ROOM),
    ]  # fmt: skip
    assert report.total_tokens == report.budget == 46
    assert [line.text for line in report.lines if line.part] == [stub(30)]
    assert report.degraded == (
        "tool results of this turn replaced by stubs: 1 (30 tokens) do not fit",
        "messages of this turn left out: 2 (33 tokens) do not fit",
    )


def test_stubs_take_a_quarter_of_the_room_at_most_from_newer_results() -> None:
    """Long arguments of old calls do not push out what the model has just read."""
    call = ToolCall(id="c", name="write", arguments=" ".join(["x"] * 28))
    old = [Message.user("find it", id="q"), Message.assistant(id="a", tool_calls=(call,)), Message.tool("x " * 40, "c")]
    messages = [*old, *group(1, 37), *group(2, 47)]
    # The old call needs 38 tokens with a stub, the next group 40 without; 70 are left beside what must be sent.
    assert sent(messages, 2 + 50 + 70) == ["q", "a1", "t1.0", "a2", "t2.0"]
    assert sent(messages, 2 + 50 + 78) == ["q", "a", stub(41, "write"), "a1", "t1.0", "a2", "t2.0"]


def test_what_cannot_fit_is_an_error_with_the_sizes() -> None:
    messages = loop([30], [300])
    with InfiniteMemory(**SETTINGS) as memory:
        memory.add(messages)
        with pytest.raises(
            MessageTooLargeError, match=r"question needs 2 .* group 303, but 90 are left of a budget of 90"
        ):
            memory.context(max_tokens=90)
        tools = ["schema " * 7_000]
        with pytest.raises(
            BudgetError, match=r"messages \(0\) and tool schemas \(7,012\) need 7,012 tokens, but .* 4,096"
        ):
            memory.context(max_tokens=4_096, tools=tools)
    with InfiniteMemory(**SETTINGS | {"on_overflow": "keep"}) as memory:
        memory.add(messages)
        report = memory.context(max_tokens=90).report
        assert report.over_budget
        assert [line.id for line in report.lines if line.reason is Reason.NO_ROOM] == ["a0", "t0.0"]
        with pytest.raises(BudgetError, match="tool schemas"):
            memory.context(max_tokens=4_096, tools=tools)


def test_tools_that_leave_no_room_for_older_turns_are_named() -> None:
    with InfiniteMemory(**SETTINGS) as memory:
        memory.add([Message.user("x " * 30), Message.assistant("x " * 30), Message.user("and now?")])
        assert memory.context(max_tokens=99, tools=["x " * 70]).report.degraded == (
            "tool schemas take 82 of 99 tokens, so little of the conversation fits",
        )
        assert memory.context(max_tokens=99).report.degraded == ()


def test_a_stub_has_neither_pictures_nor_a_form_of_its_own() -> None:
    """It is text for every provider, and answers the same call."""
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    messages: list[Any] = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "shoot", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "here"}, picture]},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "x " * 50},
        {"role": "assistant", "tool_calls": [{"id": "d", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "d", "content": "nothing"},
    ]
    with InfiniteMemory(**SETTINGS) as memory:
        memory.add(messages)
        context = memory.context(max_tokens=60)
    first, old = stub(1_105 + 2, "shoot"), stub(52, "old")
    chat = context.to_openai()
    assert [chat[2], chat[4]] == [
        {"role": "tool", "tool_call_id": "c", "content": first}, {"role": "function", "name": "old", "content": old}
    ]  # fmt: skip
    outputs = [item["output"] for item in context.to_responses() if item["type"] == "function_call_output"]
    assert outputs == [first, old, "nothing"]
    blocks = [block for turn in context.to_anthropic()["messages"][1:] for block in turn["content"]]
    assert [block["content"] for block in blocks if block["type"] == "tool_result"] == [first, old, "nothing"]


def test_a_loop_appends_until_the_budget_is_used_up_and_then_changes_once() -> None:
    """With slack, most prompts of a long loop begin with the one before, as a provider's cache needs it."""
    prompts = []
    with InfiniteMemory(**SETTINGS | {"fill": "steady", "max_tokens": 3_000}) as memory:
        memory.add(Message.user("find it", id="q"))
        for number in range(30):
            memory.add(group(number, 200))
            prompts.append(memory.context().messages)
    changes = [number for number, (one, other) in enumerate(pairwise(prompts)) if other[: len(one)] != one]
    assert len(changes) <= 5
    calls = [message.id for message in prompts[-1] if message.tool_calls]
    assert calls == [f"a{number}" for number in range(30)], "the model sees all that it has called"
