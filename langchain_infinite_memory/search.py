"""Searching the messages of a session: HistoryRetriever for chains, and recall_tool for agents."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.tools import StructuredTool
from pydantic import BaseModel, Field, PrivateAttr

from langchain_infinite_memory.sessions import MemoryLike, SessionKey, Sessions
from shared_core.aio import AsyncInfiniteMemory
from shared_core.arguments import whole_number
from shared_core.messages import Message, Role
from shared_core.prompt.template import RecallTemplate
from shared_core.recall.ranking import ScoredMessage

__all__ = ["HistoryRetriever", "recall_tool"]

DESCRIPTION = (
    "Search everything that was said earlier in this conversation, also what is no longer in front of you. "
    "Use it when the user refers to something that you do not see."
)
NOTHING = "Nothing that was said earlier matches."

SHOWN_CHARACTERS = 2_000
"""The most that is shown of one message; an agent that needs the rest searches with words from it."""

CURRENT_TURN = 8
"""How many more messages are searched for, because those of the current turn may match, too, and are not shown."""


class HistoryRetriever(BaseRetriever):
    """Finds the messages of a session that match a query best; none if nothing matches well enough.

    A document has a message's text, and the message's id as its `id`. Its `metadata` has `message_id`, `role`, `name`
    (if there is one), `time` (ISO 8601), `turn_id` and `score` (higher is better; only comparable within one result).
    A question that is waiting for its answer is not found by its own words. Replies and user messages are searched;
    results of tools and system messages only with `role="tool"` and `role="system"`.

    Args:
        memory: a path, a `Store`, a `SessionPool`, or an `InfiniteMemory`, which is searched where it stands.
        session_id: the session's id; None: the one that `config["configurable"]` names.
        user_id: the user's id; None: the one that `config["configurable"]` names, if there is a `user_key`.
        session_key: the entry that names the session.
        user_key: the entry that names the user; None: there are no users.
        k: the number of documents, at most; `invoke(query, k=...)` overrides it.
        role: search only what this role said.
        since: search only what was said at or after this moment.
        until: search only what was said at or before this moment.
        tags: as for any retriever.
        metadata: as for any retriever.
        settings: the other arguments of `InfiniteMemory`, and `embeddings` in LangChain's words; only for a store.
    """

    k: int = Field(default=4, ge=0)
    role: Role | None = None
    since: datetime | None = None
    until: datetime | None = None
    _sessions: Sessions = PrivateAttr()
    _fixed: dict[str, Any] = PrivateAttr()
    _keys: tuple[str, str | None] = PrivateAttr()

    def __init__(
        self, memory: MemoryLike = None, *, session_id: str | None = None, user_id: str | None = None,
        session_key: str = "session_id", user_key: str | None = None, k: int = 4, role: Role | None = None,
        since: datetime | None = None, until: datetime | None = None, tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(k=k, role=role, since=since, until=until, tags=tags, metadata=metadata)  # type: ignore[call-arg]
        self._sessions = Sessions(memory, **settings)
        self._keys = (session_key, user_key or ("user_id" if user_id is not None else None))
        fixed = {self._keys[0]: session_id, self._keys[1]: user_id}
        self._fixed = {key: value for key, value in fixed.items() if key is not None and value is not None}

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Return the messages that match, best first; `k=` overrides the retriever's own."""
        config = ensure_config(config)
        return super().invoke(input, config, **kwargs, key=self._key(config))

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Do what `invoke` does without blocking the event loop; asynchronous embeddings are awaited."""
        config = ensure_config(config)
        return await super().ainvoke(input, config, **kwargs, key=self._key(config))

    def _key(self, config: RunnableConfig) -> SessionKey:
        if self._sessions.only is not None:
            return self._sessions.only.session_id, self._sessions.only.user_id
        entries = {**(config.get("configurable") or {}), **self._fixed}
        return self._sessions.key(entries, [self._keys[0]], self._keys[1])

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, key: SessionKey | None = None,
        k: int | None = None,
    ) -> list[Document]:  # fmt: skip
        wanted = self.k if k is None else k
        with self._sessions.use(*(key or self._key(ensure_config()))) as memory:
            found = memory.search(query, wanted + 1, **self._limits())
            return _documents(found, memory.newest(1), query, wanted)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, key: SessionKey | None = None,
        k: int | None = None,
    ) -> list[Document]:  # fmt: skip
        wanted = self.k if k is None else k
        async with self._sessions.ause(*(key or self._key(ensure_config()))) as memory:
            searching = AsyncInfiniteMemory(memory)
            found = await searching.search(query, wanted + 1, **self._limits())
            return _documents(found, await searching.newest(1), query, wanted)

    def _limits(self) -> dict[str, Any]:
        return {"since": self.since, "until": self.until, "role": self.role}

    def close(self) -> None:
        """Release the store, if it was opened here."""
        self._sessions.close()


def _documents(found: list[ScoredMessage], newest: list[Message], query: str, k: int) -> list[Document]:
    asking = [message.id for message in newest if message.role == "user" and message.content == query]
    return [_document(hit) for hit in found if hit.message.id not in asking][:k]


def _document(hit: ScoredMessage) -> Document:
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


def recall_tool(
    memory: MemoryLike, *, name: str = "search_earlier_messages", description: str = DESCRIPTION, top_k: int = 5,
    session_id: str | None = None, user_id: str | None = None,
    session_keys: Sequence[str] = ("thread_id", "session_id"), user_key: str = "user_id",
    template: RecallTemplate | None = None, **settings: Any,
) -> StructuredTool:  # fmt: skip
    """Return a tool that searches a session, and answers with a fenced and dated record of the messages found.

    Messages of the current turn are not found.

    Args:
        memory: a path, a `Store`, a `SessionPool`, or an `InfiniteMemory`, which is searched where it stands.
        name: the tool's name.
        description: tells the model when to use the tool.
        top_k: the number of messages, at most.
        session_id: the session's id; None: the one that the run's configuration names.
        user_id: the user's id; None: the one that the runtime context or the configuration names, if any.
        session_keys: the first of these entries of `config["configurable"]` that is set names the session.
        user_key: the attribute or entry of the runtime context, or the entry of the configuration, that names the user.
        template: the wording around the messages found.
        settings: the other arguments of `InfiniteMemory`, and `embeddings` in LangChain's words; only for a store.
    """
    whole_number("top_k", top_k, least=1)
    sessions = Sessions(memory, **settings)
    wording = template or RecallTemplate()

    def key(config: RunnableConfig) -> SessionKey:
        if sessions.only is not None:
            return sessions.only.session_id, sessions.only.user_id
        given = (config.get("configurable") or {}).items()
        entries = {name: str(value) for name, value in given if value is not None and value != ""}
        users = (user_id, _entry_of_context(user_key), entries.get(user_key))
        user = next((str(named) for named in users if named is not None and named != ""), None)
        if session_id is not None:
            return session_id, user
        return sessions.key(entries, session_keys, None)[0], user

    def search(query: str, config: RunnableConfig) -> str:
        with sessions.use(*key(config)) as memory:
            return _answer(memory.search(query, top_k + CURRENT_TURN), memory.newest(1), top_k, wording)

    async def asearch(query: str, config: RunnableConfig) -> str:
        async with sessions.ause(*key(config)) as memory:
            waiting = AsyncInfiniteMemory(memory)
            found = await waiting.search(query, top_k + CURRENT_TURN)
            return _answer(found, await waiting.newest(1), top_k, wording)

    return StructuredTool.from_function(
        search, asearch, name=name, description=description, args_schema=RecallArguments
    )


def _answer(found: Sequence[ScoredMessage], newest: Sequence[Message], top_k: int, template: RecallTemplate) -> str:
    current = [message.turn_id for message in newest if message.role != "assistant" or message.tool_calls]
    best = [hit.message for hit in found if hit.message.turn_id not in current][:top_k]
    in_time = sorted(best, key=lambda message: message.created_at.timestamp() if message.created_at else 0.0)
    return template.render([_shortened(message) for message in in_time]) or NOTHING


def _shortened(message: Message) -> Message:
    if len(message.content) <= SHOWN_CHARACTERS:
        return message
    return message.replace(content=f"{message.content[:SHOWN_CHARACTERS]} […]")


def _entry_of_context(key: str) -> Any:
    """Return an entry of LangGraph's runtime context; None if there is none."""
    try:
        from langgraph.runtime import get_runtime
    except ModuleNotFoundError:
        return None
    context = getattr(get_runtime(), "context", None)  # a run outside a graph has no runtime
    return context.get(key) if isinstance(context, dict) else getattr(context, key, None)
