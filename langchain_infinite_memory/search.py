"""HistoryRetriever: what was said before, as documents."""

from datetime import datetime
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import Field, PrivateAttr

from langchain_infinite_memory.sessions import MemoryLike, Sessions, Whose
from shared_core.aio import AsyncInfiniteMemory
from shared_core.messages import Message, Role
from shared_core.recall.ranking import ScoredMessage

__all__ = ["HistoryRetriever"]


class HistoryRetriever(BaseRetriever):
    """Finds the messages of a session that match a query best; none if nothing matches well enough.

    A document's text is a message's, its `id` the message's id; its `metadata` has `message_id`, `role`, `name` (where
    there is one), `time` (ISO 8601), `turn_id` and `score` (higher is better, comparable within one result only). A
    question that waits for its answer is not found by its own words. Replies and user messages are searched; results of
    tools and system messages with `role="tool"` and `role="system"`.

    Args:
        memory: a path, a `Store`, a `SessionPool`, or an `InfiniteMemory`, which is searched where it stands.
        session_id: which session; None: the one that `config["configurable"]` names.
        user_id: whose; None: whom `config["configurable"]` names, if there is a `user_key`.
        session_key: the entry that names the session.
        user_key: the one that names the user; None: there are no users.
        k: at most this many documents; `invoke(query, k=...)` has its own.
        role: only what this role said.
        since: only what was said at or after this moment.
        until: only what was said at or before it.
        tags: as for any retriever; so is `metadata`.
        metadata: for tracing.
        settings: the other arguments of `InfiniteMemory`, and `embeddings` in LangChain's words (`engine_settings`),
            where `memory` has none of its own.
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
        """Return the messages that match, best first; `k=` replaces the retriever's own."""
        config = ensure_config(config)
        return super().invoke(input, config, **kwargs, whose=self._whose(config))

    async def ainvoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:
        """Do what `invoke` does without blocking the event loop; natively asynchronous embeddings are awaited."""
        config = ensure_config(config)
        return await super().ainvoke(input, config, **kwargs, whose=self._whose(config))

    def _whose(self, config: RunnableConfig) -> Whose:
        if self._sessions.only is not None:
            return self._sessions.only.session_id, self._sessions.only.user_id
        entries = {**(config.get("configurable") or {}), **self._fixed}
        return self._sessions.whose(entries, [self._keys[0]], self._keys[1])

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, whose: Whose | None = None,
        k: int | None = None,
    ) -> list[Document]:  # fmt: skip
        wanted = self.k if k is None else k
        with self._sessions.use(*(whose or self._whose(ensure_config()))) as memory:
            found = memory.search(query, wanted + 1, **self._limits())
            return _documents(found, memory.newest(1), query, wanted)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, whose: Whose | None = None,
        k: int | None = None,
    ) -> list[Document]:  # fmt: skip
        wanted = self.k if k is None else k
        async with self._sessions.ause(*(whose or self._whose(ensure_config()))) as memory:
            waiting = AsyncInfiniteMemory(memory)
            found = await waiting.search(query, wanted + 1, **self._limits())
            return _documents(found, await waiting.newest(1), query, wanted)

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
