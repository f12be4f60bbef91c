"""InfiniteChatMemoryBuffer: LlamaIndex's chat memory buffer, which forgets nothing."""

import asyncio
from collections.abc import Iterable
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore

from llama_index_infinite_memory.attaching import register
from llama_index_infinite_memory.conversation import Attached, StoreLike, copied
from llama_index_infinite_memory.prompt import (
    Input,
    Question,
    built_before,
    everything,
    prompt,
    question,
    remember,
    report,
    wider,
)
from llama_index_infinite_memory.settings import EmbedModel, Settings, Tokenizer, refuse_unknown
from llama_index_infinite_memory.strippers import Stripper
from llama_index_infinite_memory.verbs import Verbs
from shared_core.aio import AsyncInfiniteMemory
from shared_core.errors import BudgetError
from shared_core.prompt.context import Context, ContextReport

__all__ = ["InfiniteChatMemoryBuffer"]

TOKEN_LIMIT = 3000
"""The default limit, `ChatMemoryBuffer`'s."""

LIMIT_RATIO = 0.75
"""The share of a model's context window that is the limit, `ChatMemoryBuffer`'s."""


class InfiniteChatMemoryBuffer(Verbs):
    """A `ChatMemoryBuffer` that keeps everything, and brings back what matters for a question.

    Made by `from_defaults`. While everything fits `token_limit`, `get` returns what `ChatMemoryBuffer` returns; then
    the system messages, older turns that match the question, and the newest turns, in the order in which they were
    said, within the limit.

    `set` and `reset` erase nothing: what was said goes on as another branch, `main-2` and so on, and the old one stays
    in the store. `forget` erases. Messages are copied when they come in and when they go out, but the newest user
    message, which `get` hands out as the same object every time, because agents write their state into it.

    Threads and handles may share it. `close` it where it has a file.
    """

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which it is serialized."""
        return "InfiniteChatMemoryBuffer"

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Tokenizer | None = None,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        store: StoreLike = None,
        embed_model: EmbedModel = None,
        strippers: Iterable[Stripper] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open a memory; the first six arguments are those of `ChatMemoryBuffer.from_defaults`.

        Args:
            chat_history: what the conversation is, instead of what is stored.
            llm: three quarters of its context window are the limit, unless one is given.
            chat_store: what it holds is imported, and everything is written there, too.
            chat_store_key: the key there, and the session's name unless one is given.
            token_limit: for everything that `get` returns; 3,000 without `llm`.
            tokenizer_fn: counts; LlamaIndex's by default.
            session_id: which conversation.
            user_id: whose; two users' sessions of one name never meet.
            store: a path (SQLite), a `Store`, or None: in memory.
            embed_model: finds older messages by meaning: LlamaIndex's `BaseEmbedding`, a function, or an `Embedder`.
                `Settings.embed_model` is never used. None: static word vectors, which come with this package.
            strippers: set text apart that only served one turn; None: `DEFAULT_STRIPPERS`.
            kwargs: other arguments of `InfiniteMemory`, such as `top_k`, `min_score`, `keep_grounding`, `summarizer`,
                which may be an `LLM` here, or `on_overflow`, which is `"keep"` here: a question that does not fit is
                sent all the same.

        Raises:
            ValueError: an argument is unknown or out of range.
            StoreError: the store cannot be opened.
        """
        refuse_unknown(kwargs)
        if llm is not None:
            token_limit = token_limit or int(llm.metadata.context_window * LIMIT_RATIO)
        elif token_limit is None:
            token_limit = TOKEN_LIMIT
        place: dict[str, Any] = {"session_id": chat_store_key if session_id is None else session_id, "user_id": user_id}
        if token_limit < 1:
            return cls(token_limit=token_limit, **place)  # which refuses it, before anything is opened
        settings = Settings.of(tokenizer_fn, embed_model, strippers, kwargs)
        attached = register(Attached(store, **place, settings=settings))
        made = cls(attached=attached, token_limit=token_limit, chat_store_key=chat_store_key, **place)
        if chat_store is not None:
            attached.write_through(chat_store, chat_store_key, instead=chat_history)
        elif chat_history is not None:
            attached.replace(chat_history)
        return made

    # The protocol

    def get(self, input: Input = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """Return what a model needs for a question, within `token_limit`.

        Args:
            input: the question. None, or what the newest user message says while nothing answers it: that message, and
                what followed. Otherwise room is kept for it, and it is not among what is returned.
            initial_token_count: tokens that are sent besides.
            kwargs: ignored.

        Raises:
            ValueError: `initial_token_count` is more than the limit.
        """
        asked = self._asked(input, initial_token_count)
        shown = everything(self._attached, asked)
        return prompt(self._attached, asked, self._context(asked)) if shown is None else shown

    async def aget(self, input: Input = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """Do what `get` does without blocking the event loop; natively asynchronous embeddings are awaited."""
        asked, shown = await asyncio.to_thread(self._asked_or_all, input, initial_token_count)
        if shown is not None:
            return shown
        return await asyncio.to_thread(prompt, self._attached, asked, await self._acontext(asked))

    def _asked(self, given: Input, initial: int) -> Question:
        if initial > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")
        self._attached.last = given, initial
        return question(self._attached, given, self.token_limit - initial)

    def _asked_or_all(self, given: Input, initial: int) -> tuple[Question, list[ChatMessage] | None]:
        asked = self._asked(given, initial)
        return asked, everything(self._attached, asked)

    def _context(self, asked: Question) -> Context:
        moment, built = built_before(self._attached, asked)
        if built is None:
            try:
                built = self._attached.engine.context(**asked.arguments)
            except BudgetError as error:
                built = self._attached.engine.context(**wider(self._attached, asked, error).arguments)
            remember(self._attached, moment, built)
        return built

    async def _acontext(self, asked: Question) -> Context:
        moment, built = await asyncio.to_thread(built_before, self._attached, asked)
        if built is None:
            memory = AsyncInfiniteMemory(self._attached.engine)
            try:
                built = await memory.context(**asked.arguments)
            except BudgetError as error:
                built = await memory.context(**wider(self._attached, asked, error).arguments)
            remember(self._attached, moment, built)
        return built

    def get_all(self) -> list[ChatMessage]:
        """Return copies of all messages of the branch, oldest first."""
        return [self._attached.whole(message) for message in self._attached.memory.messages()]

    async def aget_all(self) -> list[ChatMessage]:
        """Do what `get_all` does without blocking the event loop."""
        return await asyncio.to_thread(self.get_all)

    def put(self, message: ChatMessage) -> None:
        """Store a message, durable on return; a reply belongs to the newest user message."""
        self.put_messages([message])

    async def aput(self, message: ChatMessage) -> None:
        """Do what `put` does without blocking the event loop."""
        await self.aput_messages([message])

    def put_messages(self, messages: Iterable[ChatMessage]) -> None:
        """Store messages in one transaction, durable on return."""
        given = list(messages)
        self._attached.add(given)
        if (there := self._attached.chat_store) is not None:
            for message in given:
                there[0].add_message(there[1], copied(message))

    async def aput_messages(self, messages: Iterable[ChatMessage]) -> None:
        """Do what `put_messages` does without blocking the event loop."""
        given = list(messages)
        await asyncio.to_thread(self._attached.add, given)
        if (there := self._attached.chat_store) is not None:
            for message in given:
                await there[0].async_add_message(there[1], copied(message))

    def set(self, messages: Iterable[ChatMessage]) -> None:
        """Have the conversation be these messages; those it begins with already are not stored again."""
        given = list(messages)
        self._attached.replace(given)
        self._mirror(given)

    async def aset(self, messages: Iterable[ChatMessage]) -> None:
        """Do what `set` does without blocking the event loop."""
        given = list(messages)
        await asyncio.to_thread(self._attached.replace, given)
        if (there := self._attached.chat_store) is not None:
            await there[0].aset_messages(there[1], [copied(message) for message in given])

    def reset(self) -> None:
        """Begin anew with no message; nothing is erased."""
        self.set([])

    async def areset(self) -> None:
        """Do what `reset` does without blocking the event loop."""
        await self.aset([])

    def explain(self, input: Input = None, initial_token_count: int = 0) -> ContextReport:
        """Return why `get`, called with the same arguments, is as it is; without any: as it was called last."""
        given = (input, initial_token_count) if input is not None or initial_token_count else self._attached.last
        asked = self._asked(*given)
        return report(asked, self._context(asked))
