"""`prune_messages`: prompts that providers accept, from a list of one's own, and with recall."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_infinite_memory import prune_messages
from shared_core import BudgetError
from shared_core.testing import HashingEmbedder
from tests.langchain.agents import Words
from tests.langchain.random_histories import PROVIDERS, objections, sent_objections, sound_histories, wild_histories
from tests.langchain.repaired import called, repaired, tokens

WORDS: dict[str, Any] = {"token_counter": Words()}


def size(messages: list[BaseMessage]) -> int:
    return tokens(messages, Words())


def same(returned: Sequence[BaseMessage], given_: Sequence[BaseMessage]) -> bool:
    """Whether these are the same objects."""
    return list(map(id, returned)) == list(map(id, given_))


class TestWindow:
    @given(wild_histories(), st.integers(1, 200))
    def test_laws_for_any_history(self, messages: list[BaseMessage], most: int) -> None:
        before = [message.model_copy(deep=True) for message in messages]
        try:
            kept = prune_messages(messages, max_tokens=most, **WORDS)
        except BudgetError:
            assert size([one for one in messages if isinstance(one, SystemMessage)]) > most
            return
        assert messages == before
        assert objections(kept) == []
        assert not PROVIDERS or sent_objections(kept) == []
        assert [one for one in kept if isinstance(one, SystemMessage)] == [
            one for one in messages if isinstance(one, SystemMessage)
        ]
        asked = [message for message in messages if isinstance(message, HumanMessage)]
        assert not asked or asked[-1] in kept

    @given(sound_histories(systems=2), st.integers(60, 300))  # room for the system messages
    def test_it_is_the_newest_turns_that_fit(self, messages: list[BaseMessage], most: int) -> None:
        kept = prune_messages(messages, max_tokens=most, **WORDS)
        system = [one for one in messages if isinstance(one, SystemMessage)]
        body = [one for one in messages if not isinstance(one, SystemMessage)]
        asked = [place for place, one in enumerate(body) if isinstance(one, HumanMessage)]
        opening = body[: asked[0]] if asked else body
        if not asked:
            assert same(kept, system), "nothing is asked"
            return
        if size(messages) <= most and not any(map(called, opening)):
            assert same(kept, system + repaired(body)), "with a greeting"
            return
        talk = kept[len(system) :]
        fitting = [body[place:] for place in asked if size(system + body[place:]) <= most]
        if fitting:
            assert same(talk, fitting[0])
        else:  # without the steps of its turn that do not fit, a question may have room for the greeting
            assert isinstance(talk[0], HumanMessage) or same(talk[: len(opening)], opening)

    def test_a_call_whose_result_comes_later_goes_and_system_messages_move_to_the_front(self) -> None:
        call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "x"}])
        question, result, more, rule = (
            HumanMessage("q"), ToolMessage("r", tool_call_id="x"), HumanMessage("and?"), SystemMessage("s"),
        )  # fmt: skip
        kept = prune_messages([question, call, more, rule, result], max_tokens=100, **WORDS)
        assert same(kept, [rule, question, more])

    def test_a_call_that_was_passed_over_goes(self) -> None:
        call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "x"}])
        question, more = HumanMessage("q"), HumanMessage("never mind")
        assert same(prune_messages([question, call, more], max_tokens=99, **WORDS), [question, more])


class TestRecall:
    def test_old_turns_that_matter_are_recalled_in_their_order(self) -> None:
        code = [HumanMessage("My locker code is 4471."), AIMessage("Noted.")]
        days = [one for day in range(40) for one in (HumanMessage(f"Day {day} was sunny."), AIMessage("Good."))]
        options: Any = {"max_tokens": 120, **WORDS, "embeddings": HashingEmbedder()}
        plain = prune_messages([*code, *days], **options)
        kept = prune_messages([*code, *days], **options, query="What is my locker code?")
        assert code[0] not in plain
        assert kept[0] is code[0]
        assert same(kept[-2:], days[-2:])
        assert size(kept) + size([HumanMessage("What is my locker code?")]) <= 120
        assert prune_messages([], **options, query="What?") == []

    @given(wild_histories(), st.integers(60, 200))
    def test_laws(self, messages: list[BaseMessage], most: int) -> None:
        before = [message.model_copy(deep=True) for message in messages]
        kept = prune_messages(messages, max_tokens=most, **WORDS, query="w call", embeddings=HashingEmbedder())
        assert messages == before
        assert objections(kept) == []


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"max_tokens": 5, "query": 3}, {"max_tokens": True}])
def test_a_wrong_argument_is_named(options: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"max_tokens|query"):
        prune_messages([HumanMessage("x")], **options)


@pytest.mark.parametrize("one", ["hello", HumanMessage("hello"), {"role": "user", "content": "hello"}])
def test_one_message_is_no_list_of_its_letters(one: Any) -> None:
    with pytest.raises(TypeError, match=r"hello.*: expected a list of messages"):
        prune_messages(one, max_tokens=99)
