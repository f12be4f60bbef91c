"""Agents that hand over to each other: one memory for all, in which old results of tools are shortened.

Run it from the repository: `python examples/llama_index_workflow.py`. It needs no network and no key. With a real
model: `OpenAI("gpt-4o-mini")` in place of the one made of `answer`, and `store=` with a path that stays.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms import MockFunctionCallingLLM

from llama_index_infinite_memory import InfiniteChatMemoryBuffer

PAGE = "Ladders: aluminium, twelve kilos, eighty euros, in stock. " * 15


def read_catalogue() -> str:
    """Read the catalogue."""
    return PAGE


def call(name: str, **arguments: Any) -> ChatMessage:
    """Return a reply that calls a tool."""
    block = ToolCallBlock(tool_call_id=name, tool_name=name, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[block])


def answer(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
    """Stand for a model: the first agent reads and hands over, the second one says what it was shown."""
    if messages[0].content == "You read.":
        read = messages[-1].role == "tool"
        return call("handoff", to_agent="writer", reason="It has been read.") if read else call("read_catalogue")
    results = [str(message.content) for message in messages if str(message.content).startswith("Ladders:")]
    whole = sum(result == PAGE for result in results)
    return ChatMessage(role="assistant", content=f"{whole} whole and {len(results) - whole} shortened catalogues shown")


async def talk(buffer: InfiniteChatMemoryBuffer) -> None:
    """Ask four times; each time the catalogue is read, and another agent writes about it."""
    model = MockFunctionCallingLLM(response_generator=answer)
    shared: dict[str, Any] = {"llm": model, "streaming": False}
    reader = FunctionAgent(
        name="reader", description="Reads.", system_prompt="You read.", tools=[read_catalogue],
        can_handoff_to=["writer"], **shared,
    )  # fmt: skip
    writer = FunctionAgent(name="writer", description="Writes.", system_prompt="You write.", **shared)
    workflow = AgentWorkflow(agents=[reader, writer], root_agent="reader", initial_state={"customer": "Ana"})
    for number in range(4):
        print(await workflow.run(f"Question {number}: how heavy is a ladder?", memory=buffer))


def main() -> None:
    """Run the workflow, and look at what is stored: everything, and the state of no run."""
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=700) as buffer:
        asyncio.run(talk(buffer))
        stored = buffer.get_all()
        print(f"{len(stored)} messages are stored, {sum(message.content == PAGE for message in stored)} catalogues")
        print(stored[0].content)


if __name__ == "__main__":
    main()
