"""LlamaIndex's agents with our buffer, beside `ChatMemoryBuffer` run in the same way."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.workflow import Context
from pydantic import PrivateAttr

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.scripted_llm import QUESTIONS, Talker, called, how_many, lines, seen

pytestmark = [  # what upstream's agents do
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]

Memory = ChatMemoryBuffer | InfiniteChatMemoryBuffer


Make = Callable[..., InfiniteChatMemoryBuffer]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def calls_once(messages: Sequence[ChatMessage]) -> ChatMessage | str:
    newest = messages[-1]
    return called("add", a=1, b=2) if newest.role == "user" else f"It is {newest.content}; {how_many(messages)}"


def reasons(messages: Sequence[ChatMessage]) -> str:
    if "Observation:" in (messages[-1].content or ""):
        return f"Thought: I know.\nAnswer: {how_many(messages)}"
    return 'Thought: I need a tool.\nAction: add\nAction Input: {"a": 1, "b": 2}'


def codes(messages: Sequence[ChatMessage]) -> str:
    if "Result of executing" in (messages[-1].content or ""):
        return how_many(messages)
    return "<execute>\nprint(1 + 2)\n</execute>"


def hands_off_then_adds(messages: Sequence[ChatMessage]) -> ChatMessage | str:
    if messages[0].content == "You are first.":
        return called("handoff", id="hand", to_agent="second", reason="It adds.")
    return f"It is 3; {how_many(messages)}" if messages[-1].content == "3" else called("add", a=1, b=2)


def function_agent(llm: Talker, streaming: bool) -> Any:
    return FunctionAgent(tools=[add], llm=llm, system_prompt="Be short.", streaming=streaming)


def react_agent(llm: Talker, streaming: bool) -> Any:
    return ReActAgent(tools=[add], llm=llm, system_prompt="Be short.", streaming=streaming)


def code_act_agent(llm: Talker, streaming: bool) -> Any:
    return CodeActAgent(code_execute_fn=lambda code: "3", llm=llm, streaming=streaming)


def workflow(llm: Talker, streaming: bool, **arguments: Any) -> Any:
    shared: dict[str, Any] = {"llm": llm, "streaming": streaming}
    first = FunctionAgent(
        name="first", description="Hands off.", system_prompt="You are first.", can_handoff_to=["second"], **shared
    )
    second = FunctionAgent(name="second", description="Adds.", system_prompt="You are second.", tools=[add], **shared)
    return AgentWorkflow(agents=[first, second], root_agent="first", **arguments)


AGENTS: list[tuple[Any, Any]] = [
    (function_agent, calls_once),
    (react_agent, reasons),
    (code_act_agent, codes),
    (workflow, hands_off_then_adds),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("build", "rule"), AGENTS)
def test_agents_store_and_send_what_they_do_with_a_chat_memory_buffer(
    build: Any, rule: Any, streaming: bool, made: Make
) -> None:
    async def run(memory: Memory) -> tuple[list[Any], list[str]]:
        llm = Talker(rule)
        agent = build(llm, streaming)
        answers = [str(await agent.run(question, memory=memory)) for question in QUESTIONS]
        return llm.requests, answers

    ours, theirs = made(), ChatMemoryBuffer.from_defaults()
    sent, expected = asyncio.run(run(ours)), asyncio.run(run(theirs))
    assert sent == expected
    assert seen(ours.get_all()) == seen(theirs.get_all())
    roles = [message.role.value for message in ours.get_all()]
    assert (
        roles
        == 3
        * {
            function_agent: ["user", "assistant", "tool", "assistant"],
            react_agent: ["user", "assistant"],
            code_act_agent: ["user", "assistant", "user", "assistant"],
            workflow: ["user", "assistant", "tool", "assistant", "tool", "assistant"],
        }[build]
    )


class Nameless(Talker):
    """Gives its calls no ids, and results the tool's name or nothing, as the clients of Ollama and others do."""

    def __init__(self, named: bool) -> None:
        super().__init__(self._calls_twice)
        self._named = named

    _named: bool = PrivateAttr()

    def _calls_twice(self, messages: Sequence[ChatMessage]) -> ChatMessage | str:
        if messages[-1].role == "tool":
            return f"It is {messages[-1].content}; {how_many(messages)}"
        calls = [types.ToolCallBlock(tool_name="add", tool_kwargs={"a": 1, "b": b}) for b in (2, 3)]
        return ChatMessage(role="assistant", blocks=[types.TextBlock(text="Let me add."), *calls])

    def get_tool_calls_from_response(self, *args: Any, **kwargs: Any) -> list[ToolSelection]:
        chosen = super().get_tool_calls_from_response(*args, **kwargs)
        return [one.model_copy(update={"tool_id": one.tool_name if self._named else ""}) for one in chosen]


@pytest.mark.skipif(not hasattr(types, "ToolCallBlock"), reason="this version of LlamaIndex keeps calls as objects")
@pytest.mark.parametrize("named", [False, True])
def test_calls_without_ids_are_sent_again_with_their_results(named: bool, made: Make) -> None:
    async def run(memory: Memory) -> Any:
        llm = Nameless(named)
        for question in QUESTIONS:
            await function_agent(llm, False).run(question, memory=memory)
        return llm.requests

    ours = made()
    assert asyncio.run(run(ours)) == asyncio.run(run(ChatMemoryBuffer.from_defaults()))
    roles = [message.role.value for message in ours.get()]
    assert roles == 3 * ["user", "assistant", "tool", "tool", "assistant"]


@pytest.mark.filterwarnings("ignore::workflows.context.state_store.UnserializableKeyWarning")  # for upstream's buffer
@pytest.mark.parametrize(("build", "rule"), AGENTS)
def test_a_context_used_again_goes_on_in_the_users_own_object(build: Any, rule: Any, made: Make) -> None:
    async def run(memory: Memory, *, each_time: bool) -> tuple[Any, Any]:
        llm = Talker(rule)
        agent = build(llm, False)
        context = Context(agent)
        for number, question in enumerate(QUESTIONS):
            await agent.run(question, ctx=context, **({"memory": memory} if each_time or not number else {}))
        return llm.requests, seen((await context.store.get("memory")).get_all())

    ours, theirs = made(), ChatMemoryBuffer.from_defaults()
    sent, held = asyncio.run(run(ours, each_time=False))
    expected, kept = asyncio.run(run(theirs, each_time=True))
    assert sent == expected
    assert held == seen(ours.get_all()) == kept


def test_state_is_sent_and_not_stored(made: Make) -> None:
    async def run(memory: Memory) -> list[list[dict[str, Any]]]:
        llm = Talker(calls_once)
        agent = AgentWorkflow(
            agents=[FunctionAgent(name="one", description="One.", tools=[add], llm=llm, streaming=False)],
            root_agent="one",
            initial_state={"mood": "calm"},
        )
        for question in QUESTIONS[:2]:
            await agent.run(question, memory=memory)
        return llm.requests

    ours, theirs = made(), ChatMemoryBuffer.from_defaults()
    sent, upstream = asyncio.run(run(ours)), asyncio.run(run(theirs))
    state = "Current state:\n{'mood': 'calm'}\n\nCurrent message:\n"
    assert [message["blocks"][0]["text"] for message in sent[1] if message["role"] == "user"] == [
        f"{state}{QUESTIONS[0]}\n"  # through all of the turn, as with a ChatMemoryBuffer
    ]
    assert sent[:2] == upstream[:2]
    assert lines(ours.get_all())[0] == f"user: {QUESTIONS[0]}"
    assert sent[2][0]["blocks"][0]["text"] == QUESTIONS[0]
    assert sent[2][-1]["blocks"][0]["text"] == f"{state}{QUESTIONS[1]}\n"
    assert upstream[2][0]["blocks"][0]["text"] == f"{state}{QUESTIONS[0]}\n"  # there it stays, out of date
