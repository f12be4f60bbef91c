"""Repairing a list of LangChain messages: what is left is what providers accept."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_infinite_memory.repair import INTERRUPTED, repair_messages
from tests.langchain.random_histories import (
    accepted,
    ids,
    needs_providers,
    objections,
    sent_objections,
    sound_histories,
    wild_histories,
)

OPTIONS: list[dict[str, Any]] = [
    {"dangling": dangling, "pending": pending} for dangling in ("drop", "answer") for pending in ("keep", "repair")
]


def listed(*rows: Any) -> list[BaseMessage]:
    """Messages from short forms: "s", "h", "a"; a call is a list of ids, a result a tuple with one."""
    made: list[BaseMessage] = []
    for place, row in enumerate(rows):
        fields: dict[str, Any] = {"content": f"text {place}", "id": str(place)}
        if isinstance(row, list):
            made.append(AIMessage(**fields, tool_calls=[{"name": "tool", "args": {}, "id": call} for call in row]))
        elif isinstance(row, tuple):
            made.append(ToolMessage(**fields, tool_call_id=row[0]))
        else:
            made.append({"s": SystemMessage, "h": HumanMessage, "a": AIMessage}[row](**fields))
    return made


class TestCases:
    def test_what_is_kept_and_in_which_order(self, subtests: pytest.Subtests) -> None:
        rows: list[tuple[list[Any], list[int]]] = [
            ([], []),
            (["s"], [0]),
            (["h", "a"], [0, 1]),
            (["h", ["x"], ("x",), "a"], [0, 1, 2, 3]),
            (["h", ["x", "y"], ("y",), ("x",), "a"], [0, 1, 2, 3, 4]),
            # no result: dropped, with the results that the message has
            (["h", ["x"], "a"], [0, 2]),
            (["h", ["x"], "h"], [0, 2]),
            (["h", ["x", "y"], ("x",), "a"], [0, 3]),
            # waiting at the end: left alone
            (["h", ["x"]], [0, 1]),
            (["h", ["x", "y"], ("y",)], [0, 1, 2]),
            (["h", ["x"], ["y"]], [0, 2]),
            (["h", [None]], [0, 1]),
            # a person spoke while a call was running
            (["h", ["x"], "h", ("x",)], [0, 1, 3, 2]),
            (["h", ["x", "y"], ("x",), "h", "a", ("y",)], [0, 1, 2, 5, 3, 4]),
            # no call: dropped
            ([("x",), "h"], [1]),
            (["h", ("x",), "a"], [0, 2]),
            (["h", ["x"], ("y",)], [0, 1]),
            # answered twice: the first result counts
            (["h", ["x"], ("x",), ("x",), "a"], [0, 1, 2, 4]),
            (["h", ["x"], ("x",), "h", ("x",)], [0, 1, 2, 3]),
            # the same id in another turn is another call
            (["h", ["x"], ("x",), "h", ["x"], ("x",)], [0, 1, 2, 3, 4, 5]),
            (["h", ["x"], "h", ["x"], ("x",)], [0, 2, 3, 4]),
            # calls that no result can name
            (["h", ["x", "x"], ("x",), ("x",), "a"], [0, 4]),
            (["h", [None], ("",), "a"], [0, 3]),
            # system messages
            (["s", "h", "s", "a"], [0, 2, 1, 3]),
            (["h", ["x"], "s", ("x",)], [2, 0, 1, 3]),
            (["h", ["x"], "s"], [2, 0, 1]),
        ]
        for said, kept in rows:
            with subtests.test(said=said):
                assert ids(repair_messages(listed(*said))) == kept

    def test_an_invalid_call_has_to_be_answered_too(self) -> None:
        invalid = [{"name": "tool", "args": "{", "id": "y", "error": "cut off"}]
        call = AIMessage("", tool_calls=[{"name": "tool", "args": {}, "id": "x"}], invalid_tool_calls=invalid, id="1")
        question, answer = HumanMessage("?"), AIMessage("!")
        results = [ToolMessage("1", tool_call_id="x"), ToolMessage("2", tool_call_id="y")]
        assert repair_messages([question, call, *results, answer]) == [question, call, *results, answer]
        assert repair_messages([question, call, results[0], answer]) == [question, answer]
        made_up = ToolMessage(INTERRUPTED, tool_call_id="y", name="tool", status="error")
        answered = repair_messages([question, call, results[0], answer], dangling="answer")
        assert answered == [question, call, results[0], made_up, answer]

    def test_a_function_call_is_answered_by_the_function_s_name(self) -> None:
        call = AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})
        result = FunctionMessage(content="1", name="f")
        question, answer = HumanMessage("?"), AIMessage("!")
        assert repair_messages([question, call, answer, result]) == [question, call, result, answer]
        assert repair_messages([question, call, answer]) == [question, answer]
        made_up = FunctionMessage(content=INTERRUPTED, name="f")
        assert repair_messages([question, call, answer], dangling="answer") == [question, call, made_up, answer]


class TestOptions:
    def test_dangling_calls_can_be_answered(self) -> None:
        messages = listed("h", ["x", "y", "z"], ("y",), "h", ["x", "x"], "a")
        repaired = repair_messages(messages, dangling="answer")
        made_up = [ToolMessage(INTERRUPTED, tool_call_id=call, name="tool", status="error") for call in ("x", "z")]
        assert repaired == [*messages[:3], *made_up, messages[3], messages[5]]

    def test_pending_calls_can_be_repaired_too(self) -> None:
        messages = listed("h", ["x", "y"], ("y",))
        assert repair_messages(messages, pending="repair") == messages[:1]
        answered = repair_messages(messages, pending="repair", dangling="answer")
        made_up = ToolMessage(INTERRUPTED, tool_call_id="x", name="tool", status="error")
        assert answered == [*messages, made_up]


class TestLaws:
    @given(wild_histories(old=True), st.sampled_from(OPTIONS))
    def test_nothing_is_left_that_providers_reject(self, messages: list[BaseMessage], options: Any) -> None:
        before = [message.model_copy(deep=True) for message in messages]
        repaired = repair_messages(messages, **options)
        assert objections(repaired) == []
        assert messages == before
        assert repair_messages(repaired, **options) == repaired
        given_objects = set(map(id, messages))
        made_up = [message for message in repaired if id(message) not in given_objects]
        assert all(message.content == INTERRUPTED for message in made_up)
        assert not made_up or options["dangling"] == "answer"
        kept = [id(message) for message in repaired]
        assert len(set(kept)) == len(kept)

    @given(wild_histories(old=True), st.sampled_from(OPTIONS))
    def test_whatever_is_no_call_and_no_result_stays_in_its_order(
        self, messages: list[BaseMessage], options: Any
    ) -> None:
        def said(kinds: tuple[type[BaseMessage], ...], given: list[BaseMessage]) -> list[int]:
            plain = [m for m in given if not (isinstance(m, AIMessage) and (m.tool_calls or m.invalid_tool_calls))]
            return ids(m for m in plain if isinstance(m, kinds) and not m.additional_kwargs)

        repaired = repair_messages(messages, **options)
        for kinds in ((SystemMessage,), (HumanMessage, AIMessage)):
            assert said(kinds, repaired) == said(kinds, messages)

    @given(sound_histories(systems=2))
    def test_a_sound_history_stays_as_it_is(self, messages: list[BaseMessage]) -> None:
        repaired = repair_messages(messages)
        assert list(map(id, repaired)) == list(map(id, messages))
        assert repaired is not messages

    @needs_providers
    @given(wild_histories(), st.sampled_from(OPTIONS))
    def test_openai_anthropic_and_google_accept_it(self, messages: list[BaseMessage], options: Any) -> None:
        assert sent_objections(repair_messages(messages, **options)) == []


@needs_providers
class TestChecker:
    """The checker of these tests finds what is wrong; LangChain's formatters alone do not."""

    @pytest.mark.parametrize(
        "rows", [["h", ["x"], "h"], ["h", ("x",), "a"], ["h", ["x"], "h", ("x",)], ["h", ["x", "y"], ("x",), "h"]]
    )
    def test_broken_groups_are_found_in_the_list_and_in_what_is_sent(self, rows: list[Any]) -> None:
        assert objections(listed(*rows))
        assert accepted(listed(*rows))
        assert sent_objections(listed(*rows))
