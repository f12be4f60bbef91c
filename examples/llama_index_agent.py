"""An agent with tools whose context is used again and again: the buffer that you hold is the one that fills.

Run it from the repository: `python examples/llama_index_agent.py`. It needs no network and no key. With a real model:
`OpenAI("gpt-4o-mini")` in place of `ToyModel()`, and `store=` with a path that stays.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms import MockFunctionCallingLLM
from llama_index.core.workflow import Context

from llama_index_infinite_memory import InfiniteChatMemoryBuffer


def set_reminder(text: str) -> str:
    """Set a reminder."""
    return f"Reminder set: {text}"


def answer(messages: Sequence[ChatMessage], **kwargs: Any) -> ChatMessage:
    """Stand for a model: call the tool for "Remind me", and find what was said in what is shown."""
    newest = messages[-1].content or ""
    if messages[-1].role == "tool":
        return ChatMessage(role="assistant", content=newest)
    if newest.startswith("Remind me"):
        call = ToolCallBlock(tool_call_id="1", tool_name="set_reminder", tool_kwargs={"text": newest[10:]})
        return ChatMessage(role="assistant", blocks=[call])
    found = re.search(r"locker code is (\d+)", " ".join(str(message.content) for message in messages[:-1]))
    known = f"Your locker code is {found[1]}." if found and "locker" in newest else "I see."
    return ChatMessage(role="assistant", content=f"{known} (I was shown {len(messages)} messages.)")


async def talk(buffer: InfiniteChatMemoryBuffer) -> None:
    """Run the agent in one context for a long time, and go back to try something else."""
    agent = FunctionAgent(tools=[set_reminder], llm=MockFunctionCallingLLM(response_generator=answer), streaming=False)
    context = Context(agent)
    await agent.run("My locker code is 4471.", ctx=context, memory=buffer)
    for day in range(60):
        await agent.run(f"On day {day} I went climbing, and it was good.", ctx=context)

    for question in ("What is my locker code?", "Remind me to buy chalk."):
        print(f"> {question}\n{await agent.run(question, ctx=context)}")
    print(f"{len(buffer.get_all())} messages are stored\n")

    first_answer = list(buffer.memory.messages())[1]
    buffer.memory.fork("what if", at=first_answer.id)
    print(f"> And on the branch?\n{await agent.run('And on the branch?', memory=buffer)}")
    print(f"{len(buffer.get_all())} messages are on {buffer.memory.branch!r}")
    buffer.memory.checkout("main")
    print(f"{len(buffer.get_all())} messages are on {buffer.memory.branch!r}")


def main() -> None:
    """Talk to the agent."""
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=800) as buffer:
        asyncio.run(talk(buffer))


if __name__ == "__main__":
    main()
