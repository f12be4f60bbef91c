"""InfiniteChatMessageHistory: a conversation as LangChain's chat message history."""

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage
from langchain_core.runnables import ensure_config

from langchain_infinite_memory.messages import FORMAT, from_message, system_first, to_message
from langchain_infinite_memory.sessions import StoreLike, alent, lent, open_pool
from shared_core.aio import AsyncInfiniteMemory
from shared_core.arguments import name_value, whole_number
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, Payload
from shared_core.pool import SessionPool
from shared_core.prompt.context import Context
from shared_core.runtime.threads import threads_of

__all__ = ["InfiniteChatMessageHistory", "SessionHistories", "session_factory"]

Query = str | BaseMessage | None

Asking = Callable[[InfiniteMemory], dict[str, Any]]
"""Returns arguments of `InfiniteMemory.context`."""

QUESTION_SHARE = 8
"""Which part of the budget is left for a question that is not known yet: an eighth."""

EXCHANGE, CHARACTERS = 8, 500
"""What stands for that question: the two newest texts among so many messages, of each the last so many characters."""


class InfiniteChatMessageHistory(BaseChatMessageHistory):
    """The messages of a session, for `RunnableWithMessageHistory` and for your own programs.

    `messages` is everything that was said or, with `window=True`, what `RunnableWithMessageHistory` should send of it:
    the newest turns, and what was said before that matters for the newest exchange, as the new question is not told. An
    eighth of the budget is left for that question. Runs that overlap or fail need an object each;
    `session_factory` gives them one.

    Messages are restored equal, in the order in which they were added. A message is not added again if its id is stored
    with the same content. LangChain deprecates chat message histories, not this class: LangChain 2.0 will need another
    base class, and agents are better served by a middleware.

    Args:
        session_id: the session's id.
        user_id: the user's id.
        store: a path, a `Store` or a `SessionPool`; None: in memory, lost with this object.
        window: whether `messages` is what fits, to be sent before a new question.
        settings: the other arguments of `InfiniteMemory`, and `embeddings`, `token_counter` and `summarizer` in
            LangChain's words; not for a `SessionPool`, which has its own.

    Raises:
        TypeError: an argument is unknown, or `store` has settings of its own.
        ValueError, StoreError: as for `InfiniteMemory`.
    """

    def __init__(
        self, session_id: str, *, user_id: str | None = None, store: StoreLike = None, window: bool = False,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.session_id = name_value("session_id", session_id)
        self.user_id = user_id
        self._window = window
        self.pool = open_pool(store, **settings)
        self._owns_pool = self.pool is not store
        self._sent: list[BaseMessage] | None = None
        self._cleared = False

    # What is stored

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # declared as an attribute
        """All messages of the branch, or the window, oldest first, in a new list."""
        if not self._window:
            return self._all()
        if self._sent is None or not self._is_in_run():
            self._sent = _prompt(self._context(_next_question))
        return list(self._sent)

    async def aget_messages(self) -> list[BaseMessage]:
        """Return `messages` without blocking the event loop."""
        if not self._window:
            return await threads_of(self.pool.store).run(self._all)
        if self._sent is None or not self._is_in_run():
            self._sent = _prompt(await self._acontext(_next_question))
        return list(self._sent)

    def _is_in_run(self) -> bool:
        """Return whether a run of `RunnableWithMessageHistory` reads this history.

        It reads twice. When the run ends, it takes the length of the list for the number of messages that it put before
        the input, and cuts off as many before it adds the rest, so both lists must be the same.
        """
        return ensure_config()["configurable"].get("message_history") is self

    def _all(self) -> list[BaseMessage]:
        with lent(self.pool, self.session_id, self.user_id) as memory:
            return [from_message(message) for message in memory.messages(replaced=True)]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages in one transaction, durable on return. What was forgotten is not stored again.

        After `clear`, this object stores it, under another id: to clear and add the rest again is a usual way to trim.

        Raises:
            TypeError: one cannot be stored, such as a `RemoveMessage`.
            DuplicateError: an id is stored, or given twice, with other content.
        """
        read, store, first = map(to_message, messages), self.pool.store, dict[str | None, Message]()
        given = [one for one in read if one.id is None or first.setdefault(one.id, one) is one or first[one.id] != one]
        session = store.session(self.user_id, self.session_id)
        ids = [message.id for message in given if message.id is not None]
        erased = store.are_forgotten(session, ids) if self._cleared and session is not None and ids else ()
        with lent(self.pool, self.session_id, self.user_id) as memory:
            memory.add([_under_another_id(one) if one.id in erased else one for one in given])
        self._sent = None

    def clear(self) -> None:
        """Erase the session, with all its branches."""
        with lent(self.pool, self.session_id, self.user_id) as memory:
            memory.forget(session=True)
        self._sent, self._cleared = None, True

    # The prompt

    def window(self, query: Query = None, *, include_question: bool = True) -> list[BaseMessage]:
        """Return the prompt for a question within the budget: the newest turns, and older messages that matter for it.

        Args:
            query: the question, if it is not stored yet; None: the newest user message.
            include_question: whether the prompt ends with the question; it is charged to the budget either way.

        Raises:
            BudgetError: system and pinned messages alone exceed the budget.
            EmbedderMismatchError: the session's vectors were made by another embedder.
        """
        return _prompt(self._context(_asking(query, include_question)))

    async def awindow(self, query: Query = None, *, include_question: bool = True) -> list[BaseMessage]:
        """Do what `window` does without blocking the event loop; asynchronous embeddings are awaited."""
        return _prompt(await self._acontext(_asking(query, include_question)))

    def _context(self, asking: Asking) -> Context:
        with lent(self.pool, self.session_id, self.user_id) as memory:
            return memory.context(**asking(memory))

    async def _acontext(self, asking: Asking) -> Context:
        async with alent(self.pool, self.session_id, self.user_id) as memory:
            asked = await threads_of(self.pool.store).run(asking, memory)
            return await AsyncInfiniteMemory(memory).context(**asked)

    def close(self) -> None:
        """Release the store, if it was opened here."""
        if self._owns_pool:
            self.pool.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, user_id={self.user_id!r})"


def _asking(query: Query, include_question: bool) -> Asking:
    question = to_message(query) if isinstance(query, BaseMessage) else query
    return lambda memory: {"question": question, "include_question": include_question}


def _next_question(memory: InfiniteMemory) -> dict[str, Any]:
    """Ask for what to send before a question that is not known: the newest exchange stands for it.

    It ends with a line break, so that it is never taken for a stored question that has no answer yet.
    """
    said = [message.content for message in memory.newest(EXCHANGE) if message.role != "tool" and message.content]
    room = (memory.max_tokens - memory.reserve_tokens) // QUESTION_SHARE
    return {
        "question": "".join(f"{text[-CHARACTERS:]}\n" for text in said[-2:]),
        "reserve_tokens": memory.reserve_tokens + room,
        "include_question": False,
    }


def _prompt(context: Context) -> list[BaseMessage]:
    return [from_message(message) for message in system_first(context.messages)]


def _under_another_id(message: Message) -> Message:
    """Return a message that the store accepts although its id was forgotten; the id moves into the payload."""
    own = message.payload.data if message.payload is not None and message.payload.format == FORMAT else {}
    return message.replace(id=None, payload=Payload(format=FORMAT, data={**own, "id": message.id}))


class SessionHistories:
    """The histories of one store, by session; returned by `session_factory`.

    Attributes:
        pool: the memories that the histories use.
    """

    def __init__(self, pool: SessionPool, *, owned: bool, window: bool) -> None:
        self.pool = pool
        self._owned, self._window = owned, window

    def __call__(self, session_id: str, user_id: str | None = None) -> InfiniteChatMessageHistory:
        """Return a history of the session, which serves one run at a time."""
        return InfiniteChatMessageHistory(session_id, user_id=user_id, store=self.pool, window=self._window)

    def close(self) -> None:
        """Release the store, if it was opened here."""
        if self._owned:
            self.pool.close()

    def __enter__(self) -> "SessionHistories":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def session_factory(
    store: StoreLike = None, *, size: int = 64, window: bool = True, **settings: Any
) -> SessionHistories:
    """Return a `get_session_history` for `RunnableWithMessageHistory`.

    It is called with `session_id`, or with `session_id` and `user_id` if `history_factory_config` has two fields of
    these names.

    Args:
        store: a path, a `Store`, a `SessionPool`, or None: in memory. It is opened at once; `close()` closes it.
        size: how many unused sessions stay ready; any number can be stored.
        window: whether the histories give what fits, as for `InfiniteChatMessageHistory`; False: everything.
        settings: as for `InfiniteChatMessageHistory`.

    Raises:
        TypeError, ValueError, StoreError: as for `InfiniteChatMessageHistory`.
    """
    pool = open_pool(store, size=whole_number("size", size, least=0), **settings)
    return SessionHistories(pool, owned=pool is not store, window=window)
