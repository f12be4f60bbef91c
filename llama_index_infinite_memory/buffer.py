"""InfiniteChatMemoryBuffer: a chat memory buffer for LlamaIndex that keeps every message."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar, cast

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseMemory
from llama_index.core.storage.chat_store import BaseChatStore
from pydantic import (
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from llama_index_infinite_memory.chat_store import InfiniteChatStore
from llama_index_infinite_memory.conversation import Conversation
from llama_index_infinite_memory.embeddings import EmbedModel
from llama_index_infinite_memory.messages import chat_messages
from llama_index_infinite_memory.open_stores import OpenStore, StoreLike, shared_store
from llama_index_infinite_memory.prompt import Input, Question, prompt_messages, prompt_steps, read_question
from llama_index_infinite_memory.serialization import reference, restore
from llama_index_infinite_memory.settings import Settings, Tokenizer
from llama_index_infinite_memory.strippers import Stripper
from shared_core.arguments import instance, name_value
from shared_core.memory import InfiniteMemory
from shared_core.plugins.calls import arun_steps, run_steps
from shared_core.prompt.report import ContextReport
from shared_core.runtime.threads import threads_of

__all__ = ["InfiniteChatMemoryBuffer"]

Result = TypeVar("Result")

TOKEN_LIMIT = 3000
"""The default limit, as in `ChatMemoryBuffer`."""

LIMIT_RATIO = 0.75
"""The share of a model's context window that is the limit, as in `ChatMemoryBuffer`."""


class InfiniteChatMemoryBuffer(BaseMemory):
    """A `ChatMemoryBuffer` that keeps every message, and recalls those that matter for a question.

    Create it with `from_defaults`. While the whole conversation fits `token_limit`, `get` returns what
    `ChatMemoryBuffer` returns. Later, it returns the system messages, older turns that match the question, and the
    newest turns, within the limit and in the order in which they were said.

    `set` and `reset` erase nothing: what they take away keeps a branch of its own (`main-2` and so on) in the store.
    `memory` is the engine's `InfiniteMemory`, which searches, forks, checks out branches, and erases. What is changed
    in a message that was put or returned is not stored. `get` returns the newest user message as the same object every
    time, because agents write their state into it.

    Threads may share a buffer, and buffers may share a conversation or a file. Close it if its store is a file. Pickles
    and the result of `from_dict(to_dict())` go on in the same conversation, and so does `copy`; a `deepcopy` begins
    with what was said, and goes on as a branch of its own.

    Attributes:
        token_limit: the most that `get` returns; may be changed.
        session_id: the session's id.
        user_id: the user's id.
        conversation: what is shared; workflows, which copy their state, do not copy a field that is left out of JSON.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, validate_assignment=True)

    token_limit: int = Field(default=0, validate_default=True)
    session_id: str = Field(frozen=True)
    user_id: str | None = Field(default=None, frozen=True)
    conversation: Conversation = Field(default=cast(Any, None), exclude=True, repr=False)

    @field_validator("token_limit")
    @classmethod
    def _positive(cls, limit: int) -> int:
        if limit < 1:
            raise ValueError("Token limit must be set and greater than 0.")
        return limit

    def __init__(self, **given: Any) -> None:
        """Open a conversation; the arguments are those of `from_defaults`, but for `llm`, and all have their names."""
        given.pop("class_name", None)
        key = name_value("chat_store_key", given.pop("chat_store_key", DEFAULT_CHAT_STORE_KEY))
        of_class = type(self).model_fields
        fields = {name: given.pop(name) for name in [*given] if name in of_class}
        if fields.get("session_id") is None:
            fields["session_id"] = key
        name_value("session_id", fields["session_id"])
        super().__init__(**fields)
        if "attached" in given:
            self.conversation = restore(given, self.session_id, self.user_id)
        else:
            self.conversation = self._opened(key, **given)

    def _opened(
        self, key: str, *, store: StoreLike | OpenStore = None, chat_store: BaseChatStore | None = None,
        chat_history: Iterable[ChatMessage] | None = None, **settings: Any,
    ) -> Conversation:  # fmt: skip
        if chat_store is not None:
            instance("chat_store", chat_store, BaseChatStore)
        if isinstance(chat_store, InfiniteChatStore):
            if store is not None or chat_store.user_id != self.user_id:
                raise ValueError("chat_store: it has a store and a user_id; leave store= out, pass the same user_id")
            store = chat_store.opened
        chosen = Settings(**settings)
        if chat_history is not None:
            chat_history = chat_messages("chat_history", chat_history)
        made = Conversation(shared_store(store), session_id=self.session_id, user_id=self.user_id, settings=chosen)
        if chat_history is not None:
            made.set(chat_history)
        elif chat_store is not None and made.session is None:
            made.set(chat_store.get_messages(key))
        return made

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
            chat_store: an `InfiniteChatStore`, which holds the conversation; from any other, what it holds now is
                imported once, if this conversation has never had a message.
            chat_store_key: the conversation's key there, and the session's id unless one is given.
            token_limit: the most that `get` returns; 3,000 without `llm`.
            tokenizer_fn: counts tokens; LlamaIndex's by default.
            session_id: the session's id.
            user_id: the user's id; sessions of two users are separate, even under one id.
            store: a path (SQLite), which is opened once for all buffers of a process; a `Store`; or None: in memory.
            embed_model: finds older messages by meaning: LlamaIndex's `BaseEmbedding`, a function, or an `Embedder`.
                `Settings.embed_model` is never used. None: as for `InfiniteMemory`, offline.
            strippers: set apart text that only served one turn; None: `DEFAULT_STRIPPERS`.
            kwargs: fields of a subclass, and other arguments of `InfiniteMemory`, such as `top_k`, `min_score` or
                `keep_grounding`. `summarizer` may be an `LLM`. `on_overflow` is `"keep"` by default: a question that
                does not fit is sent all the same.

        Raises:
            ValueError: an argument is unknown or out of range.
            StoreError: the store cannot be opened.
        """
        if llm is not None:
            token_limit = token_limit or int(llm.metadata.context_window * LIMIT_RATIO)
        elif token_limit is None:
            token_limit = TOKEN_LIMIT
        return cls(
            token_limit=token_limit, chat_history=chat_history, chat_store=chat_store, chat_store_key=chat_store_key,
            tokenizer_fn=tokenizer_fn, session_id=session_id, user_id=user_id, store=store, embed_model=embed_model,
            strippers=strippers, **kwargs,
        )  # fmt: skip

    @property
    def memory(self) -> InfiniteMemory:
        """The engine's memory of this conversation: summaries, merges, exports, and everything else it can do."""
        memory = self.conversation.memory
        memory.max_tokens = self.token_limit
        return memory

    @property
    def tokenizer_fn(self) -> Tokenizer:
        """The tokenizer."""
        return self.conversation.settings.tokenizer_fn

    @property
    def chat_store(self) -> InfiniteChatStore:
        """The conversations of this store and user as a chat store, as they are on `main`; `persist` writes a file."""
        return InfiniteChatStore(self.conversation.open_store(), user_id=self.user_id)

    @property
    def chat_store_key(self) -> str:
        """The key of this conversation in `chat_store`: the session's id."""
        return self.session_id

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
        return prompt_messages(self.conversation, question, run_steps(prompt_steps(self.conversation, question)))

    async def aget(self, input: Input = None, initial_token_count: int = 0, **kwargs: Any) -> list[ChatMessage]:
        """Do what `get` does without blocking the event loop; asynchronous embeddings are awaited."""
        if type(self).get is not InfiniteChatMemoryBuffer.get:
            return await self._in_order(lambda: self.get(input, initial_token_count=initial_token_count, **kwargs))
        question = await self._in_order(self._question, input, initial_token_count)
        run = threads_of(self.conversation.store).run
        context = await arun_steps(prompt_steps(self.conversation, question), run)
        return await run(prompt_messages, self.conversation, question, context)

    def _question(self, given: Input, initial: int) -> Question:
        if initial > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")
        question = read_question(self.conversation, given, self.token_limit, initial)
        self.conversation.asked = given, initial
        return question

    def get_all(self) -> list[ChatMessage]:
        """Return all messages of the branch, oldest first; those that nobody changed are the same objects again."""
        return self.conversation.all()

    async def aget_all(self) -> list[ChatMessage]:
        """Do what `get_all` does without blocking the event loop."""
        return await self._in_order(self.get_all)

    def put(self, message: ChatMessage) -> None:
        """Store a message; it is durable on return. A reply belongs to the newest user message."""
        self.conversation.add([message])

    async def aput(self, message: ChatMessage) -> None:
        """Do what `put` does without blocking the event loop; messages are stored in the order of the calls."""
        await self._in_order(self.put, message)

    def put_messages(self, messages: Iterable[ChatMessage]) -> None:
        """Store messages in one transaction; they are durable on return."""
        if type(self).put is InfiniteChatMemoryBuffer.put:
            self.conversation.add(chat_messages("messages", messages))
            return
        for message in chat_messages("messages", messages):  # a subclass does more with each of them
            self.put(message)

    async def aput_messages(self, messages: Iterable[ChatMessage]) -> None:
        """Do what `put_messages` does without blocking the event loop."""
        await self._in_order(self.put_messages, chat_messages("messages", messages))

    def set(self, messages: Iterable[ChatMessage]) -> None:
        """Make these messages the conversation, but for what was forgotten; the first may be stored already."""
        self.conversation.set(chat_messages("messages", messages))

    async def aset(self, messages: Iterable[ChatMessage]) -> None:
        """Do what `set` does without blocking the event loop."""
        await self._in_order(self.set, chat_messages("messages", messages))

    def reset(self) -> None:
        """Start an empty conversation; nothing is erased."""
        self.conversation.replace([])

    async def areset(self) -> None:
        """Do what `reset` does without blocking the event loop."""
        await self._in_order(self.reset)

    async def _in_order(self, function: Callable[..., Result], *args: Any) -> Result:
        return await self.conversation.calls.run(function, *args)

    # Beyond the protocol

    def explain(self, input: Input = None, initial_token_count: int = 0) -> ContextReport:
        """Return the report on what `get` returns for the same arguments; without any, for those of its last call."""
        given = (input, initial_token_count) if input is not None or initial_token_count else self.conversation.asked
        return run_steps(prompt_steps(self.conversation, self._question(*given))).report

    def close(self) -> None:
        """Save the index and let go of the store, for all buffers of the conversation; closing twice is allowed."""
        self.conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # JSON and pickles

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Return the fields, and a reference to the conversation, with its messages if it is in memory."""
        return {**handler(self), **reference(self.conversation), "class_name": self.class_name()}

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return JSON data that names the conversation and its present state."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> Self:
        """Return a buffer of the conversation that `to_dict` was called on, in the state that it had then.

        While that is its present state, both buffers share the conversation. A later message of the one that went on is
        not seen by the other, which begins a branch.

        Args:
            data: what `to_dict` returned; not changed.
            kwargs: arguments of `from_defaults`, in case the conversation is no longer in use: those that JSON cannot
                hold, such as `embed_model`, or the `store`, if the file was moved.

        Raises:
            ValueError: it is no such data, it is the state of another `session_id` or `user_id` than those given, or an
                argument is unknown.
            StoreError: the conversation's file is gone, or holds another one.

        Warns:
            RestoreWarning: arguments are missing.
        """
        if "attached" not in data:
            raise ValueError(
                "this is not what to_dict() of this class returned; of another memory, pass "
                "from_defaults(chat_history=its_memory.get_all())"
            )
        return cls(**{**data, **cls.restore_arguments(data), **kwargs})

    @classmethod
    def restore_arguments(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments that JSON cannot hold, for `from_dict`; a subclass overrides this, for agents' contexts."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)
