"""Agents whose model is a function of its prompt, and what was sent to it; no network."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import Field

from langchain_infinite_memory.middleware import InfiniteMemoryMiddleware
from shared_core.pool import SessionPool
from shared_core.tokens import tools_tokens
from tests.langchain.repaired import tokens

__all__ = [
    "TOOLS", "Model", "Sent", "Words", "agent", "ask", "branches_of", "calls", "config", "look", "memory", "noting",
    "reply", "said", "size", "sqlite_saver", "stored", "typed",
]  # fmt: skip


class Words:
    """Counts words: easy to recount."""

    name: str | None = "words"
    overhead = 4

    def __call__(self, text: str, /) -> int:
        return len(text.split())


class Sent(NamedTuple):
    """One request to the model."""

    messages: list[BaseMessage]
    tools: list[Any]


def noting(reports: list[Any]) -> Callable[[Any, Any], None]:
    """What notes the reports that it is given."""
    return lambda report, run: reports.append(report)


def typed(message: BaseMessage) -> str:
    """What the person typed, without what was put before it."""
    return str(message.text).rsplit("\n\n", 1)[-1]


def calls(*ids: str, text: str = "") -> AIMessage:
    """A request for one look per id."""
    return AIMessage(text, tool_calls=[{"name": "look", "args": {"item": id_}, "id": id_} for id_ in ids])


def reply(messages: Sequence[BaseMessage]) -> AIMessage:
    """Answer from the prompt alone.

    "look at a, b" calls a tool for each; "then" asks for the next round: "look at a, b then c". "what is my X?" is
    answered if somewhere "my X is Y" stands.
    """
    asked = max((n for n, m in enumerate(messages) if isinstance(m, HumanMessage)), default=0)
    question = typed(messages[asked])
    done = results_in(messages[asked:])[-1:]
    if found := re.search(r"look at ([\w, ]+)", question):
        steps = [re.findall(r"\w+", step) for step in found[1].split(" then ")]
        after = [step for step in range(len(steps)) if done and done[0] in steps[step]]
        if (step := after[0] + 1 if after else 0) < len(steps):
            return calls(*steps[step])
    if found := re.search(r"what is my ([\w ]+)\?", question):
        known = [re.search(rf"my {found[1]} is (\w+)", m.text) for m in messages if m.type != "ai"]
        answers = [match[1] for match in known if match]
        return AIMessage(answers[-1] if answers else "I do not know")
    return AIMessage(f"fine: {question}")


class Model(BaseChatModel):
    """Replies by a function of the messages, and remembers every request."""

    reply: Callable[[Sequence[BaseMessage]], AIMessage] = reply
    sent: list[Sent] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=list(tools))

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        self.sent.append(Sent(list(messages), kwargs.get("tools", [])))
        return ChatResult(generations=[ChatGeneration(message=self.reply(messages))])

    @property
    def last(self) -> list[BaseMessage]:
        """The newest request's messages."""
        return self.sent[-1].messages


def look(item: str) -> str:
    """Look at an item."""
    return f"{item} is there"


TOOLS = [look]


def memory(store: Any = None, **settings: Any) -> InfiniteMemoryMiddleware:
    """A middleware that counts words and ranks by them."""
    if isinstance(store, SessionPool):
        return InfiniteMemoryMiddleware(store, **settings)
    given = {"token_counter": Words(), "embedder": "words", "max_tokens": 4096, "reserve_tokens": 0, **settings}
    return InfiniteMemoryMiddleware(store, **given)


def agent(model: Model, *middleware: Any, **arguments: Any) -> Any:
    """An agent with one tool."""
    return create_agent(model, **{"tools": TOOLS, "system_prompt": "be brief", **arguments}, middleware=middleware)


def config(thread: str = "t", **more: Any) -> RunnableConfig:
    """The configuration of a run on a thread."""
    return {"configurable": {"thread_id": thread, **more}, "recursion_limit": 200}


def ask(agent: Any, text: str, thread: str = "t", **configurable: Any) -> list[BaseMessage]:
    """Ask on a thread and return the state's messages."""
    result = agent.invoke({"messages": [HumanMessage(text)]}, config(thread, **configurable))
    return list(result["messages"])


def said(messages: Iterable[BaseMessage]) -> list[tuple[str, str]]:
    """Who said what."""
    return [(message.type, str(message.text)) for message in messages]


def stored(middleware: InfiniteMemoryMiddleware, thread: str = "t", user: str | None = None) -> list[str]:
    """What the live line of a thread's memory says, as written; a call as its ids, a result in brackets."""
    with middleware.pool.use(thread, user) as one:
        one.checkout("main")
        return [
            f"[{m.content}]" if m.role == "tool" else m.content or ",".join(c.id for c in m.tool_calls)
            for m in one.messages()
        ]


def branches_of(middleware: InfiniteMemoryMiddleware, thread: str = "t", user: str | None = None) -> dict[str, str]:
    """What each branch of a thread's memory says, in one line."""
    with middleware.pool.use(thread, user) as one:
        found = {}
        for branch in one.branches():
            one.checkout(branch.name)
            found[branch.name] = " | ".join(m.content for m in one.messages())
        return found


def size(sent: Sent) -> int:
    """What a request costs, counted in words."""
    return tokens(sent.messages, Words()) + tools_tokens([tool_schema(tool) for tool in sent.tools], Words())


def tool_schema(tool: Any) -> Any:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    return convert_to_openai_tool(tool)


@contextmanager
def sqlite_saver(path: Path) -> Iterator[SqliteSaver]:
    """A checkpointer on a file, without waiting for the disk."""
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=OFF")
        yield SqliteSaver(connection)
    finally:
        connection.close()


def results_in(messages: Iterable[BaseMessage]) -> list[str]:
    """The ids of the calls whose results are there."""
    return [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
