"""InfiniteMemoryBlock: for LlamaIndex's `Memory`, what was flushed from it, brought back when it matters."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence, Sized
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.utils import get_tokenizer
from pydantic import Field, PrivateAttr

from llama_index_infinite_memory.embeddings import as_embedder
from llama_index_infinite_memory.messages import from_message
from llama_index_infinite_memory.settings import EmbedModel
from llama_index_infinite_memory.strippers import Stripper, strip
from shared_core.aio import AsyncInfiniteMemory
from shared_core.engine import InfiniteMemory
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.prompt.template import RecallTemplate
from shared_core.store import Store

__all__ = ["InfiniteMemoryBlock"]

SESSION = "session_id"
"""The key of `additional_kwargs` under which LlamaIndex says whose a flushed message is."""

NO_SESSION = "default"
"""The session of messages of which it does not say so."""

SHORTLIST = 100
"""Messages that are tried, best first, until the room is filled."""


UNDATED = RecallTemplate(day="")
"""LlamaIndex does not say when something was said, only when it was flushed."""


class _Recalled(str):
    """The text of recalled messages, with the messages, best first, so that the weakest can be left out later."""

    __slots__ = ("found",)
    found: tuple[Message, ...]


class InfiniteMemoryBlock(BaseMemoryBlock[str]):
    """Recalls from what `Memory` has flushed; nothing of it is ever dropped.

    What matches the newest user message is written, fenced off as a record, where `Memory` puts the content
    of its blocks. If the whole does not fit, the messages that match least are left out first. One block may serve any
    number of sessions at a time, which never meet.

    Args:
        name: of the block.
        description: for people.
        priority: 0: never shortened; else, as `Memory` has it, blocks with a lower number are shortened first.
        accept_short_term_memory: whether what is flushed is stored.
        max_tokens: what is recalled takes no more.
        top_k: nor is it more than so many messages; None: as many as fit.
        store: a path, a `Store`, a `SessionPool`, or None: in memory, gone when it is closed.
        user_id: whose sessions these are.
        embed_model: finds messages by meaning, as for `as_embedder`; None: as for `InfiniteMemory`.
        strippers: set text apart that only served one turn; None: `DEFAULT_STRIPPERS`.
        tokenizer_fn: counts tokens; None: LlamaIndex's own.
        template: the wording around what is recalled.
        settings: other arguments of `InfiniteMemory`, for a store.

    Raises:
        TypeError: an argument is unknown, or `store` has its settings already; or a `summarizer`, which has nothing to
            do here: the block recalls.
        ValueError, StoreError: as for `SessionPool`.
    """

    max_tokens: int = Field(default=1000, ge=1)
    top_k: int | None = Field(default=None, ge=0)
    user_id: str | None = None
    _pool: SessionPool = PrivateAttr()
    _strippers: tuple[Stripper, ...] | None = PrivateAttr()
    _count: Callable[[str], Sized] = PrivateAttr()
    _template: RecallTemplate = PrivateAttr()

    def __init__(
        self, name: str = "recalled", *, description: str | None = None, priority: int = 1,
        accept_short_term_memory: bool = True, max_tokens: int = 1000, top_k: int | None = None,
        store: SessionPool | Store | str | Path | None = None, user_id: str | None = None,
        embed_model: EmbedModel = None, strippers: Iterable[Stripper] | None = None,
        tokenizer_fn: Callable[[str], Sized] | None = None, template: RecallTemplate = UNDATED, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            name=name, description=description, priority=priority, accept_short_term_memory=accept_short_term_memory,
            max_tokens=max_tokens, top_k=top_k, user_id=user_id,
        )  # type: ignore[call-arg]  # fmt: skip
        self._strippers = None if strippers is None else tuple(strippers)
        self._count = tokenizer_fn or get_tokenizer()
        self._template = template
        if settings.get("summarizer") is not None:
            raise TypeError("summarizer: a block recalls and sums nothing up; InfiniteChatMemoryBuffer does both")
        embedder = as_embedder(embed_model)
        if not isinstance(store, SessionPool):
            self._pool = SessionPool(store, embedder=embedder, **settings)
            weakref.finalize(self, self._pool.close)
        elif settings or embedder is not None:
            names = ", ".join(sorted({*settings, *(["embed_model"] if embedder is not None else [])}))
            raise TypeError(f"{names}: the pool given has its own settings; pass them where it is made")
        else:
            self._pool = store

    # What Memory calls

    async def aput(
        self, messages: list[ChatMessage], from_short_term_memory: bool = False, session_id: str | None = None
    ) -> None:
        """Store messages, in one transaction; they are left as they are."""
        if self.accept_short_term_memory or not from_short_term_memory:
            await self._store(messages, session_id)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self._store(messages, None)

    async def _aget(
        self, messages: list[ChatMessage] | None = None, session_id: str | None = None,
        input: str | ChatMessage | None = None, **block_kwargs: Any,
    ) -> str:  # fmt: skip
        """Return what matches `input`, else the newest user message, else the newest one; other words are ignored."""
        query = self._query(messages or [], input)
        if not query.strip():
            return ""
        async with self._use(session_id or NO_SESSION) as memory:
            found = await AsyncInfiniteMemory(memory).search(query, SHORTLIST)
        return self._written([hit.message for hit in found])

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the content at least so many tokens shorter, without what matches least; None: nothing is left."""
        if not isinstance(content, _Recalled):
            return None
        room = self._tokens(content) - tokens_to_truncate
        return self._render(content.found, room) or None

    # How it is done

    async def _store(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        sessions: dict[str, list[Message]] = {}
        moment = self._pool.settings.get("clock", _now)()
        for place, message in enumerate(messages):
            named = session_id or message.additional_kwargs.get(SESSION)
            neutral = strip(from_message(_unmarked(message)), self._strippers)
            # LlamaIndex gives no time, and messages of one moment would have no order.
            timed = neutral.replace(created_at=moment + timedelta(microseconds=place))
            sessions.setdefault(named if isinstance(named, str) and named else NO_SESSION, []).append(timed)
        for session, given in sessions.items():
            async with self._use(session) as memory:
                await AsyncInfiniteMemory(memory).add(given)

    @asynccontextmanager
    async def _use(self, session_id: str) -> AsyncIterator[InfiniteMemory]:
        memory = await asyncio.to_thread(self._pool.take, session_id, self.user_id)
        try:
            yield memory
        finally:
            await asyncio.shield(asyncio.to_thread(self._pool.give_back, memory))

    def _query(self, messages: Sequence[ChatMessage], input: str | ChatMessage | None) -> str:
        asked = ChatMessage(role="user", content=input) if isinstance(input, str) else input
        if asked is None or not (asked.content or "").strip():
            asked = next((one for one in reversed(messages) if one.role == "user"), messages[-1] if messages else None)
        return strip(from_message(_unmarked(asked)), self._strippers).content if asked is not None else ""

    def _written(self, found: Sequence[Message]) -> str:
        """Return as many of the messages as fit, best first; one that does not fit is passed over."""
        chosen: list[Message] = []
        room = self.max_tokens - self._tokens(self._template.header + self._template.footer)
        for message in found:
            tokens = self._tokens(message.content)
            if tokens <= room and len(chosen) != self.top_k:
                chosen.append(message)
                room -= tokens
        return self._render(chosen, self.max_tokens)

    def _render(self, found: Sequence[Message], room: int) -> str:
        """Write messages, which are given best first, leaving out the last until they fit."""
        for count in range(len(found), 0, -1):
            in_time = sorted(
                found[:count], key=lambda message: message.created_at.timestamp() if message.created_at else 0
            )
            text = _Recalled(self._template.render(in_time))
            text.found = tuple(found[:count])
            if self._tokens(text) <= room:
                return text
        return ""

    def _tokens(self, text: str) -> int:
        return len(self._count(text))

    # Life

    def close(self) -> None:
        """Keep what was indexed and release the store; closing twice is fine."""
        self._pool.close()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "InfiniteMemoryBlock":
        return self  # a workflow copies its state, and what is stored is to stay one

    def __copy__(self) -> "InfiniteMemoryBlock":
        return self


def _now() -> datetime:
    return datetime.now(UTC)


def _moment(message: Message) -> float:
    return message.created_at.timestamp() if message.created_at else 0.0


def _unmarked(message: ChatMessage) -> ChatMessage:
    """Return a message without the session's id that LlamaIndex, or another block, has written into it."""
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != SESSION}
    return message.model_copy(update={"additional_kwargs": kwargs})
