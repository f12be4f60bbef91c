"""An agent with tools, a checkpointer and a memory: the state keeps everything, the model is sent what fits.

Run it from the repository: `python examples/langchain_agent.py`. It needs no network and no key, and leaves no file.
With a real model: `create_agent("openai:gpt-4o-mini", ...)`, a `max_tokens` that suits it, and paths that stay.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteMemoryMiddleware, from_message
from langchain_infinite_memory.testing import EchoChatModel
from shared_core.prompt.report import ContextReport
from shared_core.sharing.readers.openai import read_messages

CONVERSATION = Path(__file__).parent / "data" / "conversation.json"
QUESTION = "What was the code of my locker at the climbing hall?"
THREAD: Any = {"configurable": {"thread_id": "tilda"}}


def set_reminder(text: str) -> str:
    """Set a reminder."""
    return f"Reminder set: {text}"


def show(report: ContextReport, run: object) -> None:
    """Print what a request costs."""
    print(f"  sent: {report.total_tokens} of {report.budget} tokens")


def main() -> None:
    """Ask about the second of nine weeks, use both tools, and go back to try something else."""
    with tempfile.TemporaryDirectory() as folder:
        memory = InfiniteMemoryMiddleware(Path(folder) / "chat.db", max_tokens=2000, recall_tool=True, on_report=show)
        agent = create_agent(
            ToyModel(),
            tools=[set_reminder],
            system_prompt="You are a personal assistant.",
            middleware=[memory],
            checkpointer=InMemorySaver(),
        )

        def ask(text: str, config: Any = THREAD) -> None:
            print(f"\n> {text}")
            messages = agent.invoke({"messages": [HumanMessage(text)]}, config)["messages"]
            print(messages[-1].text, f"  ({len(messages)} messages in the state)", sep="\n")

        # Nine weeks, as if they had been spent here: with their dates in the memory, and in the agent's state.
        past = [message for message in read_messages(CONVERSATION) if message.role != "system"]
        with memory.pool.use("tilda") as session:
            session.add(past)
        agent.update_state(THREAD, {"messages": [from_message(message) for message in past]})

        ask(QUESTION)
        before = agent.get_state(THREAD).config
        ask("Remind me: to buy a watering can")
        ask("Look up: the allergist")

        # Back to before the reminder: what is said now goes on as a line of its own, which is main now.
        ask("Do I need a watering can?", before)
        print()
        with memory.pool.use("tilda") as session:
            for branch in session.branches():
                session.checkout(branch.name)
                found = any("Reminder set: to buy" in message.content for message in session.messages())
                print(f"{branch.name}: the reminder is {'there' if found else 'not there'}")
        memory.close()


class ToyModel(EchoChatModel):
    """Stands for a real model: calls a tool when told to, and otherwise quotes a line of what it was shown."""

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Know the tools already."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        newest = messages[-1]
        order, _, rest = typed(messages).partition(": ")
        if newest.type == "human" and order in ORDERS:
            name, argument = ORDERS[order]
            call = {"name": name, "args": {argument: rest}, "id": f"call-{newest.id}"}
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])
        if newest.type != "tool":
            return super()._generate(messages)
        best = max(newest.text.splitlines(), key=lambda line: len(words(line) & words(typed(messages))))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(best))])


ORDERS = {"Remind me": ("set_reminder", "text"), "Look up": ("search_earlier_messages", "query")}


def typed(messages: list[BaseMessage]) -> str:
    """Return what the person typed last, without what was recalled, which stands before it."""
    return [message.text for message in messages if message.type == "human"][-1].rsplit("\n\n", 1)[-1]


def words(text: str) -> set[str]:
    """Return the words of a text."""
    return set(re.findall(r"\w+", text.lower()))


if __name__ == "__main__":
    main()
