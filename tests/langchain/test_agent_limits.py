"""The limit of an agent's prompts: what the model takes, what providers refuse, and what they count."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    dynamic_prompt,
)
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core import exceptions
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_infinite_memory import InfiniteMemoryMiddleware
from shared_core import SessionPool
from tests.langchain.agents import TOOLS, Model, Words, agent, ask, config, noting, said, size, stored
from tests.langchain.random_histories import objections

TALK = "tell me of the rain " * 8

overflow_is_told = pytest.mark.skipif(
    not hasattr(exceptions, "ContextOverflowError"), reason="this LangChain does not tell that a prompt is too large"
)


def middleware(**settings: Any) -> InfiniteMemoryMiddleware:
    return InfiniteMemoryMiddleware(token_counter=Words(), embedder="words", reserve_tokens=0, **settings)


@pytest.mark.parametrize(("limit", "budget"), [(None, 150), (("fraction", 0.8), 120), (100, 100)])
def test_the_models_profile_is_the_limit(limit: Any, budget: int) -> None:
    reports: list[Any] = []
    model = Model(profile={"max_input_tokens": 150})
    one = agent(model, middleware(max_tokens=limit, on_report=noting(reports)), checkpointer=InMemorySaver())
    for _ in range(8):
        ask(one, TALK)
    assert max(map(size, model.sent)) <= budget
    assert max(map(size, model.sent)) > budget - 60


@overflow_is_told
def test_a_second_refusal_is_the_callers() -> None:
    def refuses(messages: Sequence[BaseMessage]) -> AIMessage:
        raise exceptions.ContextOverflowError("too large")

    model = Model(reply=refuses)
    given: Any = {"messages": [HumanMessage(TALK), AIMessage("fine"), HumanMessage(TALK), HumanMessage("hello")]}
    with pytest.raises(exceptions.ContextOverflowError):
        agent(model, middleware(max_tokens=1000)).invoke(given, config())
    assert [len(sent.messages) for sent in model.sent] == [5, 3]


def test_an_unknown_model_gets_its_tools_its_question_and_its_newest_results_on_top() -> None:
    def look(item: str) -> str:
        """Look at an item."""
        return f"{item} " * 5000

    model = Model()
    one = agent(model, middleware(), tools=[look], checkpointer=InMemorySaver())
    question = "look at a, b then c, d then e, f!" + " please" * 5000
    messages = ask(one, question)
    assert messages[-1].text == f"fine: {question}"
    stub = ("tool", "[result of look left out, 5,006 tokens]")
    sent, state = said(model.last[1:]), said(messages[:-1])
    assert [n for n, (shown, whole) in enumerate(zip(sent, state, strict=True)) if shown != whole] == [2, 3, 5, 6]
    assert [sent[n] for n in (2, 3, 5, 6)] == [stub] * 4
    assert said(model.sent[1].messages[1:]) == state[:4], "what came last is there"


# Middleware that changes requests


def test_an_unknown_model_gets_what_other_middleware_adds_to_the_question_on_top() -> None:
    class Adds(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            question = request.messages[-1]
            longer = question.model_copy(update={"content": "a document " * 5000 + str(question.text)})
            return handler(request.override(messages=[*request.messages[:-1], longer]))

    model = Model()
    one = agent(model, Adds(), middleware(), tools=[], checkpointer=InMemorySaver())
    for text in ("one", "two"):
        ask(one, text)
    assert said(model.last[1:]) == [("human", "a document " * 5000 + "two")]


@dynamic_prompt
def long_prompt(request: Any) -> str:
    """A system prompt that no middleware before it knows."""
    return "be kind " * 20


class Picks(AgentMiddleware):
    """Asks another model than the agent's."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(model=self.model))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(model=self.model))


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_listed_last_the_prompt_keeps_the_limit_whatever_others_change(way: str) -> None:
    large, small = Model(profile={"max_input_tokens": 1_000}), Model(profile={"max_input_tokens": 150})
    memory = middleware()
    one = create_agent(
        large, TOOLS, middleware=[memory, long_prompt, Picks(small), memory.prompt], checkpointer=InMemorySaver()
    )
    for number in range(8):
        given: Any = {"messages": [HumanMessage(f"{number} {TALK}")]}
        one.invoke(given, config()) if way == "invoke" else asyncio.run(one.ainvoke(given, config()))
    assert large.sent == []
    assert 90 < max(map(size, small.sent)) <= 150
    assert len(stored(memory)) == 16


class Selects(AgentMiddleware):
    """Lets the model see one tool of two."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[tool for tool in request.tools if tool.name == "look"]))


def test_a_whole_stack_keeps_the_limit_and_stores_what_the_state_said() -> None:
    def other(item: str) -> str:
        """Look at another item, described at some length so that the schema of this tool is not a small one."""
        return item

    large, small = Model(profile={"max_input_tokens": 1_000}), Model(profile={"max_input_tokens": 170})
    memory = middleware(recall_tokens=60)
    stack = [
        memory,
        SummarizationMiddleware(
            Model(reply=lambda messages: AIMessage("of rain")), trigger=("messages", 12), keep=("messages", 4)
        ),
        HumanInTheLoopMiddleware(interrupt_on={"look": True}),
        ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=0, placeholder="[cleared]")]),
        long_prompt, Picks(small), Selects(), memory.prompt,
    ]  # fmt: skip
    one: Any = create_agent(large, [*TOOLS, other], middleware=stack, checkpointer=InMemorySaver())
    expected: list[str] = []
    for number in range(8):
        text = f"look at {'abcdefgh'[number]}" if number % 3 == 1 else f"{number} {TALK}".strip()
        state = one.invoke({"messages": [HumanMessage(text)]}, config())
        while "__interrupt__" in state:
            state = one.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config())
        item = text[-1]
        expected += [text, item, f"[{item} is there]", f"fine: {text}"] if number % 3 == 1 else [text, f"fine: {text}"]
        assert state["messages"][-1].text == f"fine: {text}"
        assert objections(small.last, window=True) == []
    assert large.sent == []
    assert 100 < max(map(size, small.sent)) <= 170
    assert {len(sent.tools) for sent in small.sent} == {1}
    assert stored(memory) == expected, "also what the summary has replaced"


def test_alone_it_warns_once_of_what_others_may_add(caplog: pytest.LogCaptureFixture) -> None:
    told = "list its .prompt last"
    for behind, warned in (([], 0), ([long_prompt], 1)):
        caplog.clear()
        memory = middleware(max_tokens=100)
        one = create_agent(Model(), TOOLS, middleware=[memory, *behind], checkpointer=InMemorySaver())
        for _ in range(3):
            ask(one, TALK)
        assert caplog.text.count(told) == warned


@pytest.mark.parametrize("behind", [[], [long_prompt]])
def test_an_agent_without_the_prompt_keeps_the_limit_whatever_another_lists(behind: list[Any]) -> None:
    memory, model = middleware(max_tokens=150), Model()
    create_agent(Model(), TOOLS, middleware=[memory, long_prompt, memory.prompt])
    one = create_agent(model, TOOLS, middleware=[memory, *behind], checkpointer=InMemorySaver())
    for _ in range(8):
        ask(one, TALK)
    assert max(map(size, model.sent)) <= 150 + 44 * len(behind), "with the message that others add behind it"


def test_a_limit_beside_a_pool_is_that_of_the_agent() -> None:
    with SessionPool(token_counter=Words(), embedder="words", reserve_tokens=0) as pool:
        model = Model()
        one = create_agent(
            model, TOOLS, middleware=[InfiniteMemoryMiddleware(pool, max_tokens=100)], checkpointer=InMemorySaver()
        )
        for _ in range(6):
            ask(one, TALK)
    assert 50 < max(map(size, model.sent)) <= 100
