"""Agents of many tools and long results, with the default budget: prompts are valid, and nothing is lost in silence."""

import itertools
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, Field, create_model

from langchain_infinite_memory import InfiniteMemoryMiddleware
from langchain_infinite_memory.token_counters import list_counter
from shared_core.errors import BudgetError
from shared_core.tokens import as_counter, tools_tokens
from tests.langchain.agents import Model, agent, config, tool_schema
from tests.langchain.random_histories import objections

PROFILES = [8_192, 32_768, 128_000, 1_000_000, None]
"""What models say they take; the last one says nothing."""

STUB = re.compile(r"\[result of (\w+) left out, ([\d,]+) tokens\]")
COUNT = itertools.count()


def count(text: str) -> int:
    """About what tiktoken counts, and the same on a machine that has none of its tables."""
    return round(0.23 * len(text))


size_of = list_counter(count)


def page(number: int) -> str:
    """The text of a page: 35 kB, 8,000 tokens."""
    line = f"Page {number} says that the ladder of steel weighs some kilos more than the one of oak beside it. "
    return line * (35_000 // len(line))


def read(number: int) -> str:
    """Read a page of the catalogue."""
    return page(number)


def tools() -> list[Any]:
    """Thirty tools, whose schemas take 7,000 tokens."""
    words = "what is looked for, in the words that are used in the catalogue of the house; "
    query = (str, Field(description=words * 10))
    arguments: list[type[BaseModel]] = [create_model(f"Arguments{number}", query=query) for number in range(29)]
    others = [
        StructuredTool.from_function(
            lambda query: "nothing", name=f"search_{number}", description=f"Search shelf {number}.", args_schema=one
        )
        for number, one in enumerate(arguments)
    ]
    return [*others, read]


TOOLS = tools()


def reads(messages: Sequence[BaseMessage]) -> AIMessage:
    """Read the pages that the question names: "read 1, 2 then 3" is two calls at once, and then one."""
    asked = max(n for n, message in enumerate(messages) if isinstance(message, HumanMessage))
    named = re.findall(r"read ([\d, then]+)", str(messages[asked].text))
    steps = [re.findall(r"\d+", step) for step in named[0].split("then")] if named else []
    taken = sum(isinstance(message, AIMessage) for message in messages[asked:])
    if taken < len(steps):
        calls = [{"name": "read", "args": {"number": int(n)}, "id": f"call-{next(COUNT)}"} for n in steps[taken]]
        return AIMessage("", tool_calls=calls)
    return AIMessage(f"that was turn {len(messages)}")


def total(messages: Iterable[BaseMessage]) -> int:
    """What a request costs, as the engine counts."""
    return size_of(list(messages)) + tools_tokens([tool_schema(tool) for tool in TOOLS], as_counter(count))


class Watch:
    """Runs an agent, and checks each prompt against the state from which it was built."""

    def __init__(self, limit: int | None, **settings: Any) -> None:
        self.limit = limit
        self.memory = InfiniteMemoryMiddleware(None, token_counter=count, **settings)
        self.model = Model(reply=reads, profile=None if limit is None else {"max_input_tokens": limit})
        self.agent = agent(self.model, self.memory, tools=TOOLS, checkpointer=InMemorySaver())

    def ask(self, question: str) -> list[list[BaseMessage]]:
        """Ask, and return the prompts, checked."""
        before = len(self.model.sent)
        self.agent.invoke({"messages": [HumanMessage(question)]}, {**config(), "recursion_limit": 40})
        state = self.agent.get_state(config()).values["messages"]
        prompts = [sent.messages for sent in self.model.sent[before:]]
        start = max(n for n, message in enumerate(state) if isinstance(message, HumanMessage))
        answers = [n for n, message in enumerate(state) if n > start and isinstance(message, AIMessage)]
        assert len(prompts) == len(answers)
        for prompt, answer in zip(prompts, answers, strict=True):
            self.check(prompt, state[:answer], state[start:answer])
        return prompts

    def attempt(self, question: str) -> tuple[list[list[BaseMessage]], BudgetError | None]:
        """Ask; what cannot be sent may raise."""
        try:
            return self.ask(question), None
        except BudgetError as error:
            return [], error

    def check(self, prompt: Sequence[BaseMessage], state: Sequence[BaseMessage], turn: Sequence[BaseMessage]) -> None:
        """Raise unless the prompt is valid, and holds each message of the current turn whole or as a stub."""
        assert objections(prompt, window=True) == []
        assert [n for n, message in enumerate(prompt) if isinstance(message, SystemMessage)] == [0]
        places = {message.id: n for n, message in enumerate(state)}
        shown = [places[message.id] for message in prompt if message.id in places]
        assert shown == sorted(set(shown)), "in the order of the state, nothing twice"
        there = {message.id: message for message in prompt}
        for message in turn:
            sent = there[message.id]
            if not isinstance(message, ToolMessage):
                assert type(sent) is type(message)
                assert str(sent.text).endswith(str(message.text))
            elif sent.text != message.text:
                stub = STUB.fullmatch(str(sent.text))
                assert stub is not None, sent.text
                assert stub[1] == "read"
                assert int(stub[2].replace(",", "")) == pytest.approx(count(page(1)), rel=0.05)
        if self.limit is not None:
            assert total(prompt) <= self.limit


def stubs(prompt: Iterable[BaseMessage]) -> int:
    return sum(bool(STUB.fullmatch(str(message.text))) for message in prompt)


def test_what_is_given_is_as_large_as_it_should_be() -> None:
    assert tools_tokens([tool_schema(tool) for tool in TOOLS], as_counter(count)) == pytest.approx(7_000, rel=0.05)
    assert len(page(1)) == pytest.approx(35_000, rel=0.05)


@pytest.mark.parametrize("limit", PROFILES[1:])
def test_small_talk_beside_thirty_tools_is_sent_whole(limit: int | None) -> None:
    watch = Watch(limit)
    with closing(watch.memory):
        for turn in range(6):
            (prompt,) = watch.ask(f"question {turn}")
            assert [message.type for message in prompt] == ["system", *["human", "ai"] * turn, "human"]


@pytest.mark.parametrize("limit", PROFILES)
def test_pages_are_sent_whole_or_leave_a_stub(limit: int | None) -> None:
    watch = Watch(limit)
    with closing(watch.memory):
        watch.ask("my locker code is 4471")
        for question in ("read 1", "read 2, 3, 4", "read 5 then 6 then 7", "and what was that?"):
            prompts, error = watch.attempt(question)
            if error is not None:
                assert limit == 8_192
                assert error.needed > error.available > 0
                assert len(re.findall(r"\d,?\d*", str(error))) >= 2, "the sizes"
            elif limit is not None and limit >= 128_000:
                assert sum(map(stubs, prompts)) == 0
    if limit is not None and limit >= 128_000:  # everything fits
        state = watch.agent.get_state(config()).values["messages"]
        assert [message.text for message in prompts[-1][1:]] == [message.text for message in state[:-1]]


def test_a_page_that_does_not_fit_any_model_leaves_a_stub_and_the_agent_goes_on() -> None:
    watch = Watch(32_768)
    with closing(watch.memory):
        prompts = watch.ask("read 1 then 2 then 3 then 4 then 5 then 6")
        assert [stubs(prompt) for prompt in prompts] == sorted(stubs(prompt) for prompt in prompts)
        assert stubs(prompts[-1]) > 0
        assert "Page 6" in str(prompts[-1][-1].text), "the newest result is there"


def test_a_fraction_of_what_the_model_takes() -> None:
    watch = Watch(32_768, max_tokens=("fraction", 0.5))
    with closing(watch.memory):
        prompts = watch.ask("read 1 then 2 then 3")
        assert max(map(total, prompts)) <= 16_384
        assert stubs(prompts[-1]) > 0
