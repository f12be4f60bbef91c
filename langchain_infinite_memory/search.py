"""Searching the messages of a session: HistoryRetriever for chains, and recall_tool for agents."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Annotated, Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.tools import InjectedToolArg, StructuredTool
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from langchain_infinite_memory.followed_lists import read_list
from langchain_infinite_memory.identity import (
    SessionName,
    Thread,
    ThreadRecord,
    ThreadResolver,
    entry_of,
    named_user,
)
from langchain_infinite_memory.sessions import SessionKey, alent, lent
from langchain_infinite_memory.settings import RESERVE_TOKENS
from langchain_infinite_memory.threads import Hits, ThreadMemory, hits_steps
from shared_core.arguments import instance, whole_number
from shared_core.doors.interop.content import text_tokens
from shared_core.messages import Message
from shared_core.plugins.base import OVERHEAD
from shared_core.plugins.calls import arun_steps, run_steps
from shared_core.pool import SessionPool
from shared_core.prompt.hits import Hit
from shared_core.prompt.template import RecallTemplate
from shared_core.runtime.threads import threads_of

try:
    from langgraph.prebuilt import ToolRuntime
except ImportError:  # then no graph calls the tool
    ToolRuntime = Any  # type: ignore[misc, assignment]

__all__ = ["HistoryRetriever", "recall_tool"]

logger = logging.getLogger("langchain_infinite_memory")

FAILURES = (Exception,)
"""What a search raises: stores, embedders and functions that name sessions may be the caller's own."""

DESCRIPTION = (
    "Search everything that was said earlier, also what is no longer in front of you. "
    "Use it when the user refers to something that you do not see."
)
NOTHING = "Nothing that was said earlier matches."

SHOWN_CHARACTERS = 2_000, 1_000, 500, 250, 125
"""How much is shown of each message, the first that fits; an agent that needs the rest searches with words from it. If
even the least does not fit, fewer messages are shown."""

ANSWER_SHARE = 0.25
"""The most of a prompt's budget that an answer takes, which must be sent with the question, tools and other answers."""

CURRENT_TURN = 8
"""How many more messages are searched for, because those of the current turn may match, too, and are not shown."""


class HistoryRetriever(BaseRetriever):
    """Finds the messages of a session that match a query best; none if nothing matches well enough.

    A document has a message's text, and the message's id as its `id`. Its `metadata` has `message_id`, `role`, `name`
    (if there is one), `time` (ISO 8601), `turn_id` and `score` (higher is better; only comparable within one result).
    A question that is waiting for its answer is not found by its own words. Replies and user messages are searched.

    Args:
        pool: the memories.
        session_id: the session's id; None: the one that `config["configurable"]` names.
        user_id: the user's id; None: the one that the runtime context or `config["configurable"]` names, if there is a
            `user_key`.
        session_key: the entry that names the session; without it, `thread_id` does.
        user_key: the entry that names the user; without it, the run has no user. None: there are no users.
        k: the number of documents, at most; `invoke(query, k=...)` overrides it.
        tags: as for any retriever.
        metadata: as for any retriever.
    """

    pool: SessionPool = Field(exclude=True)
    session_id: str | None = Field(default=None, min_length=1)
    user_id: str | None = Field(default=None, min_length=1)
    session_key: str = Field(default="session_id", min_length=1)
    user_key: str | None = Field(default="user_id", min_length=1)
    k: int = Field(default=4, ge=0)

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Return the messages that match, best first; `k=` overrides the retriever's own."""
        config = ensure_config(config)
        return super().invoke(input, config, **kwargs, key=self._key(config))

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Do what `invoke` does without blocking the event loop; asynchronous embeddings are awaited."""
        config = ensure_config(config)
        return await super().ainvoke(input, config, **kwargs, key=self._key(config))

    def _key(self, config: RunnableConfig) -> SessionKey:
        keys = self.session_key, "thread_id"
        threads = ThreadResolver(
            self.session_id, self.user_key or "user_id", share_with_subgraphs=True, session_keys=keys
        )
        thread = threads.resolve(config=config)
        return thread.session_id, self.user_id or (thread.user_id if self.user_key else None)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, key: SessionKey | None = None,
        k: int | None = None,
    ) -> list[Document]:  # fmt: skip
        wanted = self.k if k is None else whole_number("k", k, least=0)
        with lent(self.pool, *(key or self._key(ensure_config()))) as memory:
            return _documents(run_steps(hits_steps(memory, query, wanted + 1)), query, wanted)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, key: SessionKey | None = None,
        k: int | None = None,
    ) -> list[Document]:  # fmt: skip
        wanted = self.k if k is None else whole_number("k", k, least=0)
        async with alent(self.pool, *(key or self._key(ensure_config()))) as memory:
            steps = hits_steps(memory, query, wanted + 1)
            return _documents(await arun_steps(steps, threads_of(self.pool.store).run), query, wanted)


def _documents(hits: Hits, query: str, k: int) -> list[Document]:
    asking = [message.id for message in hits.newest if message.role == "user" and message.content == query]
    return [_document(hit) for hit in hits.found if hit.message.id not in asking][:k]


def _document(hit: Hit) -> Document:
    message = hit.message
    metadata: dict[str, Any] = {"message_id": message.id, "role": message.role}
    if message.name is not None:
        metadata["name"] = message.name
    metadata["time"] = message.created_at.isoformat() if message.created_at else None
    metadata |= {"turn_id": message.turn_id, "score": hit.score}
    return Document(message.content, id=message.id, metadata=metadata)


class RecallArguments(BaseModel):
    """The arguments of the recall tool."""

    query: str = Field(description="What to look for: the names and words that were probably used.")
    runtime: Annotated[Any, InjectedToolArg, SkipJsonSchema()] = None  # LangGraph before 1.0.5 looks only here


def recall_tool(
    pool: SessionPool, *, name: str = "search_earlier_messages", description: str = DESCRIPTION, top_k: int = 5,
    session_id: SessionName = None, user_id: str | None = None, user_key: str = "user_id",
    share_with_subgraphs: bool = False, template: RecallTemplate | None = None,
) -> StructuredTool:  # fmt: skip
    """Return a tool that searches a session, and answers with a fenced and dated record of the messages found.

    Messages of the current turn are not found. It shows 2,000 characters of a message, and less if it would take more
    than a quarter of the pool's `max_tokens`. `InfiniteMemoryMiddleware(recall_tool=True)` brings such a tool with it.

    Args:
        pool: the memories.
        name: the tool's name.
        description: tells the model when to use the tool.
        top_k: the number of messages, at most.
        session_id: as for `InfiniteMemoryMiddleware`.
        user_id: the user's id; None: the one that the runtime context or the configuration names, if any.
        user_key: as for `InfiniteMemoryMiddleware`.
        share_with_subgraphs: as for `InfiniteMemoryMiddleware`.
        template: the wording around the messages found.
    """
    whole_number("top_k", top_k, least=1)
    if template is not None:
        instance("template", template, RecallTemplate)
    instance("pool", pool, SessionPool)
    user = named_user(user_id)
    limit = partial(pool.settings.get, "max_tokens")
    threads = ThreadResolver(session_id, user_key, share_with_subgraphs=share_with_subgraphs)
    return search_tool(
        ThreadMemory(pool), threads, top_k, limit=limit, user=user, name=name, description=description,
        template=template,
    )  # fmt: skip


def search_tool(
    memory: ThreadMemory, threads: ThreadResolver, top_k: int = 5, *, limit: Callable[[], int | None],
    user: str | None = None, name: str = "search_earlier_messages", description: str = DESCRIPTION,
    template: RecallTemplate | None = None,
) -> StructuredTool:  # fmt: skip
    """Return a tool that searches the conversation of the run that calls it; `limit` returns the model's limit."""
    wording = template or RecallTemplate()

    def run(config: RunnableConfig, runtime: "ToolRuntime | None") -> tuple[Thread, Sequence[BaseMessage]]:
        state = runtime.state if runtime is not None else None
        messages, record = entry_of(state, "messages") or (), ThreadRecord.of(state)
        thread = threads.resolve(config=config, first=read_list(messages).first, record=record)
        owner = record.owner if record is not None else None
        return replace(thread, user_id=user or thread.user_id or owner or None), messages

    def answer(hits: Hits) -> str:
        return _answer(hits, top_k, wording, _room(limit(), memory.pool.settings))

    def search(query: str, config: RunnableConfig, runtime: ToolRuntime = None) -> str:  # type: ignore[assignment]
        try:
            return answer(memory.search(*run(config, runtime), query, top_k + CURRENT_TURN))
        except FAILURES as error:
            return _unsearched(error)

    async def asearch(query: str, config: RunnableConfig, runtime: ToolRuntime = None) -> str:  # type: ignore[assignment]
        try:
            return answer(await memory.asearch(*run(config, runtime), query, top_k + CURRENT_TURN))
        except FAILURES as error:
            return _unsearched(error)

    return StructuredTool.from_function(
        search, asearch, name=name, description=description, args_schema=RecallArguments
    )


def _unsearched(error: Exception) -> str:
    logger.warning("earlier messages cannot be searched: %s", error)
    return f"Earlier messages cannot be searched: {error}"


def _room(max_tokens: int | None, settings: Mapping[str, Any]) -> float:
    """Return how many tokens an answer may take."""
    return inf if max_tokens is None else ANSWER_SHARE * (max_tokens - settings.get("reserve_tokens", RESERVE_TOKENS))


def _answer(hits: Hits, top_k: int, template: RecallTemplate, room: float) -> str:
    current = [message.turn_id for message in hits.newest if message.role != "assistant" or message.tool_calls]
    best = [hit.message for hit in hits.found if hit.message.turn_id not in current][:top_k]
    if not best:
        return NOTHING
    characters = next((most for most in SHOWN_CHARACTERS if _size(best, most) <= room), SHOWN_CHARACTERS[-1])
    while len(best) > 1 and _size(best, characters) > room:
        best.pop()
    in_time = sorted(best, key=lambda message: message.created_at.timestamp() if message.created_at else 0.0)
    return template.render([_shortened(message, characters) for message in in_time])


def _size(messages: Sequence[Message], characters: int) -> int:
    """Return an upper estimate of what messages take in an answer."""
    return sum(text_tokens(message.content[:characters]) + OVERHEAD for message in messages)


def _shortened(message: Message, characters: int) -> Message:
    if len(message.content) <= characters:
        return message
    return message.replace(content=f"{message.content[:characters]} […]")
