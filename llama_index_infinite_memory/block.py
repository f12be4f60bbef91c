"""InfiniteMemoryBlock: recalls what LlamaIndex's `Memory` has flushed, when it matters."""

import weakref
from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache, partial, wraps
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory.memory import BaseMemoryBlock, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.utils import get_tokenizer
from pydantic import Field, PrivateAttr

from llama_index_infinite_memory.embeddings import EmbedModel
from llama_index_infinite_memory.messages import from_message
from llama_index_infinite_memory.open_stores import StoreLike
from llama_index_infinite_memory.settings import engine_embedder
from llama_index_infinite_memory.strippers import DEFAULT_STRIPPERS
from shared_core.aio import AsyncInfiniteMemory
from shared_core.arguments import suggestion
from shared_core.doors.interop.adapters import memory_arguments
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.prompt.template import RecallTemplate
from shared_core.runtime.threads import lent_async, threads_of
from shared_core.strippers import Stripper, strip

__all__ = ["InfiniteMemoryBlock"]

SESSION = "session_id"
"""The key of `additional_kwargs` in which LlamaIndex names the session of a flushed message."""

NO_SESSION = "default"
"""The session of messages that name none."""

SHORTLIST = 100
"""The number of messages that are tried, best first, until the room is filled."""

UNDATED = RecallTemplate(day="")
"""LlamaIndex does not record when something was said; the time of flushing would mislead."""


class _Recalled(str):
    """The text of recalled messages, with the messages, best first: `Memory` may ask later to leave some out."""

    __slots__ = ("found",)
    found: tuple[Message, ...]


class InfiniteMemoryBlock(BaseMemoryBlock[str]):
    """Stores what `Memory` flushes, and recalls from it; nothing is ever dropped.

    Messages that match the newest user message are written, as a fenced record, where `Memory` puts the content of its
    blocks. If they do not all fit, those that match least are left out first. One block can serve any number of
    sessions at a time, and keeps them apart. `Memory.reset` starts its session anew here, too. `use` lends the engine's
    memory of a session, which searches and erases.

    Args:
        name: the block's name; `"recalled"` by default.
        description: for people.
        priority: 0: never shortened; otherwise `Memory` shortens blocks with a lower number first.
        accept_short_term_memory: whether flushed messages are stored.
        max_tokens: the most tokens that recalled messages may take.
        top_k: the most messages to recall; None: as many as fit.
        store: a path, a `Store`, or None: in memory, lost when it is closed.
        user_id: the user whose sessions these are.
        embed_model: finds messages by meaning, as for `as_embedder`; None: as for `InfiniteMemory`.
        strippers: set apart text that only served one turn.
        tokenizer_fn: counts tokens; LlamaIndex's by default.
        settings: other arguments of `InfiniteMemory`. `recall_template`, the wording around recalled messages, shows no
            dates by default.

    Raises:
        TypeError: an argument is unknown; or a `summarizer` is given, which a block has no use for.
        ValueError: an argument is out of range.
        StoreError: as for `SessionPool`.
    """

    name: str = "recalled"
    priority: int = 1
    max_tokens: int = Field(default=1000, ge=1)
    top_k: int | None = Field(default=None, ge=0)
    user_id: str | None = Field(default=None, min_length=1)
    tokenizer_fn: Callable[[str], Sized] = Field(default_factory=get_tokenizer, exclude=True)
    _pool: SessionPool = PrivateAttr()
    _template: RecallTemplate = PrivateAttr()

    def __init__(
        self, *, store: StoreLike = None, embed_model: EmbedModel = None,
        strippers: Iterable[Stripper] = DEFAULT_STRIPPERS, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(**{name: settings.pop(name) for name in [*settings] if name in type(self).model_fields})
        if settings.get("summarizer") is not None:
            raise TypeError("summarizer: a block recalls and does not summarize; InfiniteChatMemoryBuffer does both")
        if "embedder" in settings:
            raise TypeError("embedder: write embed_model=, which takes one, too")
        if unknown := next((name for name in settings if name not in memory_arguments()), None):
            near = suggestion(unknown, memory_arguments() - {"embedder"} | {*type(self).model_fields, "embed_model"})
            raise TypeError(f"{type(self).__name__}() has no argument {unknown!r}{near}")
        settings |= {"embedder": engine_embedder(embed_model), "strippers": strippers}
        settings["recall_template"] = self._template = settings.get("recall_template") or UNDATED
        self._pool = SessionPool(store, **settings)
        weakref.finalize(self, self._pool.close)
        _hear_resets()

    # What Memory calls

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Store messages, those of a session in one transaction."""
        sessions: dict[str, list[Message]] = {}
        for message in messages:
            named = message.additional_kwargs.get(SESSION)
            session_id = named if isinstance(named, str) and named else NO_SESSION
            sessions.setdefault(session_id, []).append(_own(message))
        for session_id, given in sessions.items():
            async with self._lent(session_id) as memory:
                await AsyncInfiniteMemory(memory).add(given)

    async def _aget(
        self, messages: list[ChatMessage] | None = None, session_id: str | None = None,
        input: str | ChatMessage | None = None, **block_kwargs: Any,
    ) -> str:  # fmt: skip
        """Return what matches `input`, else the newest user message, else the newest message."""
        query = self._query(messages or [], input)
        if not query.strip():
            return ""
        async with self._lent(session_id or NO_SESSION) as memory:
            found = await AsyncInfiniteMemory(memory).search(query, SHORTLIST)
        # What only served an earlier turn is not recalled.
        return self._written([hit.message for hit in found if hit.source != "grounding"])

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the content shortened by so many tokens, without the weakest matches; None if nothing is left."""
        if not isinstance(content, _Recalled):
            return None
        room = self._tokens(content) - tokens_to_truncate
        return self._render(content.found, room) or None

    # Finding and writing

    def _lent(self, session_id: str) -> AbstractAsyncContextManager[InfiniteMemory]:
        take = partial(self._pool.take, session_id, self.user_id)
        return lent_async(threads_of(self._pool.store).run, take, self._pool.give_back, InfiniteMemory.close)

    def _query(self, messages: Sequence[ChatMessage], input: str | ChatMessage | None) -> str:
        asked = ChatMessage(role="user", content=input) if isinstance(input, str) else input
        if asked is None or not (asked.content or "").strip():
            asked = next((one for one in reversed(messages) if one.role == "user"), messages[-1] if messages else None)
        return strip(_own(asked), self._pool.settings["strippers"]).content if asked is not None else ""

    def _written(self, found: Sequence[Message]) -> str:
        """Return the text of as many messages as fit, best first; one that does not fit is skipped."""
        chosen: list[Message] = []
        room = self.max_tokens - self._tokens(self._template.header + self._template.footer)
        for message in found:
            tokens = self._tokens(message.content)
            if tokens <= room and len(chosen) != self.top_k:
                chosen.append(message)
                room -= tokens
        return self._render(chosen, self.max_tokens)

    def _render(self, found: Sequence[Message], room: int) -> str:
        """Return the text of messages, given best first; the last are left out until the rest fit."""
        for count in range(len(found), 0, -1):
            in_time = sorted(found[:count], key=_timestamp)
            text = _Recalled(self._template.render(in_time))
            text.found = tuple(found[:count])
            if self._tokens(text) <= room:
                return text
        return ""

    def _tokens(self, text: str) -> int:
        return len(self.tokenizer_fn(text))

    # What was stored

    def use(self, session_id: str = NO_SESSION) -> AbstractContextManager[InfiniteMemory]:
        """Lend the engine's memory of a session, for a `with` block: `search`, `forget` and all else that it can do.

        What it forgets, `Memory` still holds in its own table until its `reset`.

        Args:
            session_id: the `session_id` of the `Memory`.
        """
        return self._pool.use(session_id, self.user_id)

    def reset(self, session_id: str = NO_SESSION) -> None:
        """Start a session anew, as `Memory.reset` does; what was stored keeps a branch, such as `main-2`."""
        with self.use(session_id) as memory:
            memory.rewind()

    # End of use

    def close(self) -> None:
        """Save the index and release the store; closing twice is allowed."""
        self._pool.close()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "InfiniteMemoryBlock":
        return self  # a workflow copies its state, and its copies must share what is stored

    def __copy__(self) -> "InfiniteMemoryBlock":
        return self


@cache
def _hear_resets() -> None:
    """Let `Memory` tell these blocks that it was reset, which LlamaIndex tells none; `Memory.reset` calls `areset`."""
    areset = Memory.areset

    @wraps(areset)
    async def areset_with_blocks(self: Memory, status: MessageStatus | None = None) -> None:
        await areset(self, status)
        for block in self.memory_blocks:
            if isinstance(block, InfiniteMemoryBlock) and status is not MessageStatus.ACTIVE:
                await threads_of(block._pool.store).run(block.reset, self.session_id)

    Memory.areset = areset_with_blocks  # type: ignore[method-assign]


def _own(message: ChatMessage) -> Message:
    """Return a message for the engine, without the session's id that LlamaIndex or another block wrote into it."""
    kwargs = {key: value for key, value in message.additional_kwargs.items() if key != SESSION}
    return from_message(message.model_copy(update={"additional_kwargs": kwargs}))


def _timestamp(message: Message) -> float:
    return message.created_at.timestamp() if message.created_at else 0.0
