"""InfiniteChatMemoryBuffer: a chat memory buffer for LlamaIndex that keeps every message."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore

from llama_index_infinite_memory.conversation import Conversation, StoreLike, copied
from llama_index_infinite_memory.prompt import (
    Input,
    Question,
    cache_context,
    cached_context,
    prompt_messages,
    read_question,
    widened,
)
from llama_index_infinite_memory.serialization import SerializableBuffer, register
from llama_index_infinite_memory.settings import EmbedModel, Settings, Tokenizer, refuse_unknown
from llama_index_infinite_memory.strippers import Stripper
from shared_core.aio import AsyncInfiniteMemory
from shared_core.errors import BudgetError
from shared_core.messages import Role
from shared_core.prompt.context import Context, ContextReport
from shared_core.recall.ranking import ScoredMessage

__all__ = ["FoundMessage", "InfiniteChatMemoryBuffer"]

TOKEN_LIMIT = 3000
"""The default limit, as in `ChatMemoryBuffer`."""

LIMIT_RATIO = 0.75
"""The share of a model's context window that is the limit, as in `ChatMemoryBuffer`."""


SEARCHED: tuple[Role, ...] = ("user", "assistant", "tool")
"""The roles of the messages that a search finds unless one is named."""


class FoundMessage(NamedTuple):
    """A copy of a message that a search found; `id` names it for `branch` and `checkout`."""

    message: ChatMessage
    score: float
    id: str


class InfiniteChatMemoryBuffer(SerializableBuffer):
    """A `ChatMemoryBuffer` that keeps every message, and recalls those that matter for a question.

    Create it with `from_defaults`. While the whole conversation fits `token_limit`, `get` returns what
    `ChatMemoryBuffer` returns. Later, it returns the system messages, older turns that match the question, and the
    newest turns, within the limit and in the order in which they were said.

    `set` and `reset` erase nothing: the conversation continues on another branch (`main-2` and so on), and the old one
    stays in the store. `forget` erases. Messages are copied when they are put and when they are returned, except the
    newest user message: `get` returns the same object every time, because agents write their state into it.

    Threads may share a buffer, and buffers may share a conversation. Close it if its store is a file.
    """

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes it."""
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
        """Open a conversation; the first six arguments are those of `ChatMemoryBuffer.from_defaults`.

        Args:
            chat_history: messages that replace the stored conversation.
            llm: the limit is three quarters of its context window, unless a limit is given.
            chat_store: its messages are imported, and all messages are also written to it.
            chat_store_key: the conversation's key there, and the session's id unless one is given.
            token_limit: the most that `get` returns; 3,000 without `llm`.
            tokenizer_fn: counts tokens; LlamaIndex's by default.
            session_id: the session's id.
            user_id: the user's id; sessions of two users are separate, even under one id.
            store: a path (SQLite), a `Store`, or None: in memory.
            embed_model: finds older messages by meaning: LlamaIndex's `BaseEmbedding`, a function, or an `Embedder`.
                `Settings.embed_model` is never used. None: static word vectors, which come with this package.
            strippers: set apart text that only served one turn; None: `DEFAULT_STRIPPERS`.
            kwargs: other arguments of `InfiniteMemory`, such as `top_k`, `min_score` or `keep_grounding`. `summarizer`
                may be an `LLM`. `on_overflow` is `"keep"` by default: a question that does not fit is sent all the
                same.

        Raises:
            ValueError: an argument is unknown or out of range.
            StoreError: the store cannot be opened.
        """
        refuse_unknown(kwargs)
        if llm is not None:
            token_limit = token_limit or int(llm.metadata.context_window * LIMIT_RATIO)
        elif token_limit is None:
            token_limit = TOKEN_LIMIT
        names: dict[str, Any] = {"session_id": chat_store_key if session_id is None else session_id, "user_id": user_id}
        if token_limit < 1:
            return cls(token_limit=token_limit, **names)  # raises, before anything is opened
        settings = Settings.of(tokenizer_fn, embed_model, strippers, kwargs)
        conversation = register(Conversation(store, **names, settings=settings))
        made = cls(conversation=conversation, token_limit=token_limit, chat_store_key=chat_store_key, **names)
        if chat_store is not None:
            conversation.write_through(chat_store, chat_store_key, instead=chat_history)
        elif chat_history is not None:
            conversation.replace(chat_history)
        return made

    # The protocol of BaseMemory

    def get(self, input: Input = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """Return what a model needs for a question, within `token_limit`.

        Args:
            input: the question, which is not returned, but for which room is kept. None, or the text of the newest user
                message while it is not answered: that message, which is returned with its replies.
            initial_token_count: the tokens that are sent besides.
            kwargs: ignored.

        Raises:
            ValueError: `initial_token_count` exceeds the limit.
        """
        question = self._question(input, initial_token_count)
        return prompt_messages(self._conversation, question, self._context(question))

    async def aget(self, input: Input = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """Do what `get` does without blocking the event loop; asynchronous embeddings are awaited."""
        question = await asyncio.to_thread(self._question, input, initial_token_count)
        context = await self._acontext(question)
        return await asyncio.to_thread(prompt_messages, self._conversation, question, context)

    def _question(self, given: Input, initial: int) -> Question:
        if initial > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")
        self._conversation.last = given, initial
        return read_question(self._conversation, given, self.token_limit, initial)

    def _context(self, question: Question) -> Context:
        state, built = cached_context(self._conversation, question)
        if built is None:
            try:
                built = self._conversation.engine.context(**question.arguments)
            except BudgetError as error:
                built = self._conversation.engine.context(**widened(self._conversation, question, error).arguments)
            cache_context(self._conversation, state, built)
        return built

    async def _acontext(self, question: Question) -> Context:
        state, built = await asyncio.to_thread(cached_context, self._conversation, question)
        if built is None:
            memory = AsyncInfiniteMemory(self._conversation.engine)
            try:
                built = await memory.context(**question.arguments)
            except BudgetError as error:
                built = await memory.context(**widened(self._conversation, question, error).arguments)
            cache_context(self._conversation, state, built)
        return built

    def get_all(self) -> list[ChatMessage]:
        """Return copies of all messages of the branch, oldest first."""
        return [self._conversation.whole(message) for message in self._conversation.memory.messages(replaced=True)]

    async def aget_all(self) -> list[ChatMessage]:
        """Do what `get_all` does without blocking the event loop."""
        return await asyncio.to_thread(self.get_all)

    def put(self, message: ChatMessage) -> None:
        """Store a message; it is durable on return. A reply belongs to the newest user message."""
        self.put_messages([message])

    async def aput(self, message: ChatMessage) -> None:
        """Do what `put` does without blocking the event loop."""
        await self.aput_messages([message])

    def put_messages(self, messages: Iterable[ChatMessage]) -> None:
        """Store messages in one transaction; they are durable on return."""
        given = list(messages)
        self._conversation.add(given)
        if (mirror := self._conversation.chat_store) is not None:
            for message in given:
                mirror[0].add_message(mirror[1], copied(message))

    async def aput_messages(self, messages: Iterable[ChatMessage]) -> None:
        """Do what `put_messages` does without blocking the event loop."""
        given = list(messages)
        await asyncio.to_thread(self._conversation.add, given)
        if (mirror := self._conversation.chat_store) is not None:
            for message in given:
                await mirror[0].async_add_message(mirror[1], copied(message))

    def set(self, messages: Iterable[ChatMessage]) -> None:
        """Make these messages the conversation; those with which it begins already are not stored again."""
        given = list(messages)
        self._conversation.replace(given)
        self._mirror(given)

    async def aset(self, messages: Iterable[ChatMessage]) -> None:
        """Do what `set` does without blocking the event loop."""
        given = list(messages)
        await asyncio.to_thread(self._conversation.replace, given)
        if (mirror := self._conversation.chat_store) is not None:
            await mirror[0].aset_messages(mirror[1], [copied(message) for message in given])

    def reset(self) -> None:
        """Start an empty conversation; nothing is erased."""
        self.set([])

    async def areset(self) -> None:
        """Do what `reset` does without blocking the event loop."""
        await self.aset([])

    def explain(self, input: Input = None, initial_token_count: int = 0) -> ContextReport:
        """Return the report on what `get` returns for the same arguments; without any, for those of its last call."""
        given = (input, initial_token_count) if input is not None or initial_token_count else self._conversation.last
        return self._context(self._question(*given)).report

    # Beyond the protocol

    def _mirror(self, messages: Sequence[ChatMessage] | None = None) -> None:
        if (mirror := self._conversation.chat_store) is not None:
            shown = self.get_all() if messages is None else messages
            mirror[0].set_messages(mirror[1], [copied(message) for message in shown])

    def forget(self) -> None:
        """Erase the session, with all its branches, from memory, files and `chat_store`."""
        self._conversation.forget()
        if (mirror := self._conversation.chat_store) is not None:
            mirror[0].delete_messages(mirror[1])

    def search(
        self, query: str, top_k: int = 10, *, since: datetime | None = None, until: datetime | None = None,
        role: Role | None = None,
    ) -> list[FoundMessage]:  # fmt: skip
        """Return the messages of this branch that match a query, best first; see `InfiniteMemory.search`.

        Results of tools, and text that is set apart, are searched as well.
        """
        return self._found(
            self._conversation.memory.search(query, top_k, since=since, until=until, role=role or SEARCHED)
        )

    async def asearch(
        self, query: str, top_k: int = 10, *, since: datetime | None = None, until: datetime | None = None,
        role: Role | None = None,
    ) -> list[FoundMessage]:  # fmt: skip
        """Do what `search` does without blocking the event loop."""
        memory = AsyncInfiniteMemory(await asyncio.to_thread(lambda: self._conversation.memory))
        found = await memory.search(query, top_k, since=since, until=until, role=role or SEARCHED)
        return await asyncio.to_thread(self._found, found)

    def _found(self, found: list[ScoredMessage]) -> list[FoundMessage]:
        return [FoundMessage(self._conversation.whole(one.message), one.score, one.message.id or "") for one in found]

    @property
    def current_branch(self) -> str | None:
        """The branch that is checked out; None after `checkout` of a message."""
        return self._conversation.engine.branch

    def branches(self) -> list[str]:
        """Return the names of all branches, in order of creation."""
        return [branch.name for branch in self._conversation.memory.branches()]

    def branch(self, name: str, at: str | int | None = None) -> None:
        """Create a branch and check it out; other branches do not show what is put on it.

        Args:
            name: the new branch's name.
            at: how many messages of this branch it begins with; or the id of the last of them, or a branch's name;
                None: all of them.

        Raises:
            DuplicateError: the name is taken.
            UnknownReferenceError: `at` names no message or branch.
        """
        self._conversation.branch(name, at)
        self._mirror()

    def checkout(self, reference: str) -> None:
        """Check out a branch, or a message by its id; messages that are put there start a branch.

        Raises:
            UnknownReferenceError: there is no such branch or message.
        """
        with self._conversation.lock:
            self._conversation.memory.checkout(reference)
        self._mirror()

    def close(self) -> None:
        """Save the index and release the store, for all buffers of the conversation; closing twice is allowed."""
        self._conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
