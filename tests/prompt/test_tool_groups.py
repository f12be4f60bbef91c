"""Tool calls and their results where ids are missing, and calls that have no result."""

from collections.abc import Sequence
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, ToolCall, prune, sliding_window
from shared_core.messages import message_list
from shared_core.tokens import as_counter, message_tokens


def calls(*given: tuple[str, str], text: str = "") -> Message:
    return Message.assistant(text, tool_calls=tuple(ToolCall(id=id_, name=name, arguments="{}") for id_, name in given))


def result(text: str, id_: str = "", **fields: Any) -> Message:
    return Message(role="tool", content=text, tool_call_id=id_ or None, **fields)


def said(messages: Sequence[Message]) -> list[tuple[str, str, list[str]]]:
    return [(one.role, one.content, [call.name for call in one.tool_calls]) for one in messages]


NAMELESS = [
    [calls(("", "f")), result("1", "f"), calls(("", "f")), result("2", "f")],
    [calls(("", "f"), ("", "g")), result("g's", "g"), result("f's", "f")],
    [calls(("", "f"), ("", "f")), result("1"), result("2")],
    [calls(("", "f"), ("", "g")), result("f's", name="f"), result("g's", name="g")],
    [calls(("a", "f"), ("b", "g")), result("1"), result("2")],
    [calls(("", "f")), result("1", "made up by the program")],
    [calls(("function:f", "f")), result("1", "f")],
    [calls(("a", "f"), ("a", "f")), result("1", "a"), result("2", "a")],
]


def test_calls_without_ids_stay_with_their_results(subtests: pytest.Subtests) -> None:
    for answers in NAMELESS:
        with subtests.test(answers=answers):
            talk = [Message.user("look"), *answers, Message.assistant("done"), Message.user("and?")]
            with InfiniteMemory(max_tokens=4000) as memory:
                memory.add(talk)
                assert said(memory.context().messages) == said(talk)
                assert not [line for line in memory.context().report.lines if not line.included]
                ids_ = [message.id for message in memory.messages()]
                # What belongs together is forgotten together.
                assert set(memory.forget(ids=[ids_[1] or ""]).ids) >= {ids_[1], ids_[2]}
            assert said(sliding_window(talk, max_tokens=4000)) == said(talk)
            assert said(prune(talk[:-1], "and?", top_k=9)) == [*said(talk[:-1]), ("user", "and?", [])]


HALF = [
    ([calls(("a", "f"), text="Let me look.")], [("assistant", "Let me look.", [])]),
    ([calls(("a", "f"), ("b", "g")), result("2", "b")], [("assistant", "", ["g"]), ("tool", "2", [])]),
    ([calls(("", "f"), ("", "g")), result("2", "g")], [("assistant", "", ["g"]), ("tool", "2", [])]),
    (
        [calls(("", "f"), text="One."), calls(("", "f"), text="Two."), result("2", "f")],
        [("assistant", "One.", []), ("assistant", "Two.", ["f"]), ("tool", "2", [])],
    ),
    ([calls(("a", "f")), result("9", "z")], []),
    ([calls(("a", "f"))], []),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "sent"), HALF)
@pytest.mark.parametrize("pinned", [False, True])
def test_what_stands_beside_a_call_without_a_result_is_sent(
    answers: list[Message], sent: list[tuple[str, str, list[str]]], pinned: bool
) -> None:
    talk = [Message.user("look", pinned=pinned), *answers, Message.user("and?")]
    expected = [("user", "look", []), *sent, ("user", "and?", [])]
    with InfiniteMemory(max_tokens=4000, token_counter="characters/4") as memory:
        memory.add(talk)
        context = memory.context()
        assert said(context.messages) == expected
        assert sum(message_tokens(one, as_counter("characters/4")) for one in context.messages) == context.tokens
    for unit in ("turn", "message"):
        assert said(sliding_window(talk, max_tokens=4000, unit=unit)) == expected
    assert said(prune(talk[:-1], "and?", top_k=9)) == expected


def test_what_is_left_of_an_item_keeps_its_form() -> None:
    call, output = {"type": "custom_tool_call", "name": "run"}, {"type": "custom_tool_call_output", "output": "files"}
    items = [
        {"role": "user", "content": "go"}, {"type": "reasoning", "id": "r", "summary": []},
        {**call, "call_id": "a", "input": "ls"}, {**call, "call_id": "b", "input": "pwd"}, {**output, "call_id": "a"},
        {"role": "user", "content": "and?"},
    ]  # fmt: skip
    _, left, answer, _ = sliding_window(message_list(items), max_tokens=1000)
    assert left.to_responses() == [{**call, "call_id": "a", "input": "ls"}]
    assert answer.to_responses() == [{**output, "call_id": "a"}]


def test_a_second_result_is_left_out_and_reported() -> None:
    with InfiniteMemory(max_tokens=4000) as memory:
        memory.add([Message.user("look"), calls(("a", "f"), ("b", "g")), result("1", "a"), result("again", "a")])
        memory.add([result("2", "b"), Message.assistant("done")])
        context = memory.context("look")
        assert [one.content for one in context.messages] == ["look", "", "1", "2", "done", "look"]
        assert [line.preview for line in context.report.lines if not line.included] == ["again"]
