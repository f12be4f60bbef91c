"""recall_tool: a tool by which an agent searches what was said before."""

from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field

from langchain_infinite_memory.sessions import MemoryLike, Sessions, Whose
from shared_core.aio import AsyncInfiniteMemory
from shared_core.arguments import whole_number
from shared_core.messages import Message
from shared_core.prompt.template import RecallTemplate
from shared_core.recall.ranking import ScoredMessage

__all__ = ["recall_tool"]

DESCRIPTION = (
    "Search everything that was said earlier in this conversation, also what is no longer in front of you. "
    "Use it when the user refers to something that you do not see."
)
NOTHING = "Nothing that was said earlier matches."

LONG = 2_000
"""Characters of one message that are shown; an agent that needs the rest asks with its words."""

OWN = 8
"""Messages of the turn that is going on, which may match as well and are not shown, at most."""


class Query(BaseModel):
    """The tool's arguments."""

    query: str = Field(description="What to look for: the names and words that were probably used.")


def recall_tool(
    memory: MemoryLike, *, name: str = "search_earlier_messages", description: str = DESCRIPTION, top_k: int = 5,
    session_id: str | None = None, user_id: str | None = None,
    session_keys: Sequence[str] = ("thread_id", "session_id"), user_key: str = "user_id",
    template: RecallTemplate | None = None, **settings: Any,
) -> StructuredTool:  # fmt: skip
    """Return a tool that searches a session and answers with what was said, fenced off as a record and dated.

    What belongs to the turn that is going on is not found.

    Args:
        memory: a path, a `Store`, a `SessionPool`, or an `InfiniteMemory`, which is searched where it stands.
        name: of the tool.
        description: tells the model when to use it.
        top_k: at most this many messages.
        session_id: which session; None: the one that the run's configuration names.
        user_id: whose; None: whom the runtime context or the configuration names, if it does.
        session_keys: the first of these entries of `config["configurable"]` that is there names the session.
        user_key: the attribute or entry of the runtime context, or the entry of the configuration, that names the user.
        template: the wording around what was found.
        settings: the other arguments of `InfiniteMemory`, and `embeddings` in LangChain's words (`engine_settings`),
            where `memory` has none of its own.
    """
    whole_number("top_k", top_k, least=1)
    sessions = Sessions(memory, **settings)
    written = template or RecallTemplate()

    def whose(config: RunnableConfig) -> Whose:
        if sessions.only is not None:
            return sessions.only.session_id, sessions.only.user_id
        given = (config.get("configurable") or {}).items()
        entries = {key: str(value) for key, value in given if value is not None and value != ""}
        users = (user_id, _entry_of_context(user_key), entries.get(user_key))
        user = next((str(name) for name in users if name is not None and name != ""), None)
        if session_id is not None:
            return session_id, user
        return sessions.whose(entries, session_keys, None)[0], user

    def search(query: str, config: RunnableConfig) -> str:
        with sessions.use(*whose(config)) as memory:
            return _answer(memory.search(query, top_k + OWN), memory.newest(1), top_k, written)

    async def asearch(query: str, config: RunnableConfig) -> str:
        async with sessions.ause(*whose(config)) as memory:
            waiting = AsyncInfiniteMemory(memory)
            found = await waiting.search(query, top_k + OWN)
            return _answer(found, await waiting.newest(1), top_k, written)

    return StructuredTool.from_function(search, asearch, name=name, description=description, args_schema=Query)


def _answer(found: Sequence[ScoredMessage], newest: Sequence[Message], top_k: int, template: RecallTemplate) -> str:
    going_on = [message.turn_id for message in newest if message.role != "assistant" or message.tool_calls]
    best = [hit.message for hit in found if hit.message.turn_id not in going_on][:top_k]
    in_time = sorted(best, key=lambda message: message.created_at.timestamp() if message.created_at else 0.0)
    return template.render([_cut(message) for message in in_time]) or NOTHING


def _cut(message: Message) -> Message:
    if len(message.content) <= LONG:
        return message
    return message.replace(content=f"{message.content[:LONG]} […]")


def _entry_of_context(key: str) -> Any:
    """Return the user as LangGraph's runtime context names them; None where there is none."""
    try:
        from langgraph.runtime import get_runtime
    except ModuleNotFoundError:
        return None
    context = getattr(get_runtime(), "context", None)  # in a run that is no graph's there is no runtime
    return context.get(key) if isinstance(context, dict) else getattr(context, key, None)
