"""Whatever takes a message takes OpenAI's dict, with the same result."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.history.normal_form import normal_forms
from shared_core.messages import MessageLike, content_of
from shared_core.prompt.context import Context
from tests.formats.requests import chat_dicts
from tests.support.histories import with_ids

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is the weather in Porto?"}], "name": "ann"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    {"role": "assistant", "content": "18 degrees."},
]
QUESTION = {"role": "user", "content": "And tomorrow?"}
READ = [Message.from_openai(item) for item in TALK]


def said(messages: Sequence[Message]) -> list[Any]:
    return [content_of(message) for message in messages]


def test_add_takes_one_dict_or_several() -> None:
    memory = InfiniteMemory()
    assert said(memory.add(TALK[0])) == said(READ[:1])
    assert said(memory.add(TALK[1:])) == said(READ[1:])
    assert said(memory.add([READ[4], TALK[4]])) == said([READ[4], READ[4]])
    assert said(list(memory.messages())[:5]) == said(READ)


def test_follow_knows_a_dict_and_the_equal_message_as_the_same() -> None:
    memory = InfiniteMemory()
    as_dicts = memory.follow(TALK)
    assert memory.follow(READ) == as_dicts
    assert memory.follow([*READ[:2], *TALK[2:]]) == as_dicts
    longer = memory.follow([QUESTION], after=as_dicts)
    assert memory.follow([*TALK, QUESTION]) == longer
    assert len(list(memory.messages())) == 6
    assert [branch.name for branch in memory.branches()] == ["main"]


@given(items=st.lists(chat_dicts, min_size=1, max_size=3))
def test_the_digests_of_a_dict_are_those_of_the_message_it_becomes_after_a_round_trip(
    items: list[dict[str, Any]],
) -> None:
    read = [Message.from_openai(item) for item in items]
    again = [Message.from_openai(message.to_openai()) for message in read]
    assert normal_forms(again) == normal_forms(read)


def ask(question: str | MessageLike) -> Context:
    numbers = count()
    memory = with_ids(InfiniteMemory(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)), lambda: f"m{next(numbers)}")
    memory.add(TALK)
    return memory.context(question)


def test_context_and_count_take_a_dict() -> None:
    asked = Message.from_openai(QUESTION)
    assert [content_of(message) for message in ask(QUESTION).messages] == said([*READ, asked])
    assert ask(QUESTION).report == ask(asked).report == ask("And tomorrow?").report
    memory = InfiniteMemory()
    assert [memory._count(item) for item in TALK] == [memory._count(message) for message in READ]
    with pytest.raises(ValueError, match="'tool'"):
        memory.context(TALK[3])
    with pytest.raises(ValueError, match="'you'"):
        memory.context({"role": "you", "content": "x"})
    with pytest.raises(TypeError):
        memory._count(5)  # type: ignore[arg-type]
