"""InfiniteChatMessageHistory: a conversation as LangChain's chat message history."""

import copy
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage
from langchain_core.runnables import ensure_config

from langchain_infinite_memory.messages import FORMAT, from_message, system_first, to_message
from langchain_infinite_memory.sessions import MemoryLike, Sessions
from shared_core.aio import AsyncInfiniteMemory
from shared_core.arguments import name_value, whole_number
from shared_core.errors import UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, Payload
from shared_core.prompt.context import Context, ContextReport

__all__ = ["InfiniteChatMessageHistory", "SessionHistories", "session_factory"]

Query = str | BaseMessage | None

Asking = Callable[[InfiniteMemory], dict[str, Any]]
"""Returns arguments of `InfiniteMemory.context`."""

QUESTION_SHARE = 8
"""Which part of the budget is left for a question that is not known yet: an eighth."""

EXCHANGE, CHARACTERS = 8, 500
"""What stands for that question: the two newest texts among so many messages, of each the last so many characters."""

UNSTORED = "infinite-memory-"
"""How the id begins that a window gives to a message that is not stored, such as recalled text."""


@dataclass
class _Added:
    """What the histories of one session have added.

    Attributes:
        turn: the turn that was opened last.
        cleared: whether the session was erased.
    """

    turn: str | None = None
    cleared: bool = False


class InfiniteChatMessageHistory(BaseChatMessageHistory):
    """The messages of a session, for `RunnableWithMessageHistory` and for your own programs.

    `messages` is everything that was said or, with `window=True`, what `RunnableWithMessageHistory` should send of it:
    the newest turns, and what was said before that matters for the newest exchange, as the new question is not told. An
    eighth of the budget is left for that question. Runs that overlap or fail need an object each;
    `session_factory` gives them one.

    Messages are restored equal, in the order in which they were added. A message is not added again if its id is stored
    with the same content. The store is opened when it is first used. LangChain deprecates chat message histories, not
    this class: LangChain 2.0 will need another base class, and agents are better served by a middleware.

    Args:
        session_id: the session's id.
        user_id: the user's id.
        store: a path, a `Store`, a `SessionPool`, or the `InfiniteMemory` of this session, whose branch is then used;
            otherwise the branch is `main`. None: in memory, lost with this object.
        window: whether `messages` is what fits, to be sent before a new question.
        settings: the other arguments of `InfiniteMemory`, and `embeddings`, `token_counter`, `summarizer` and
            `reranker` in LangChain's words; only for a store.

    Raises:
        TypeError: an argument is unknown, or `store` has settings of its own.
        ValueError: `store` belongs to another session.
    """

    def __init__(
        self, session_id: str, *, user_id: str | None = None, store: MemoryLike = None, window: bool = False,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.session_id = name_value("session_id", session_id)
        self.user_id = user_id
        self._window = window
        self._sessions = Sessions(store, **settings)
        self._sessions.check(session_id, user_id)
        self._sent: list[BaseMessage] | None = None
        self._added = _Added()

    # What is stored

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # declared as an attribute
        """All messages of the branch, or the window, oldest first, in a new list."""
        if not self._window:
            return self._all()
        if not _is_in_run(self):
            return _prompt(self._context(_next_question))
        if self._sent is None:
            self._sent = _with_ids(_prompt(self._context(_next_question)))
        return list(self._sent)

    async def aget_messages(self) -> list[BaseMessage]:
        """Return `messages` without blocking the event loop."""
        if not self._window:
            return await self._sessions.call(self._all)
        if not _is_in_run(self):
            return _prompt(await self._acontext(_next_question))
        if self._sent is None:
            self._sent = _with_ids(_prompt(await self._acontext(_next_question)))
        return list(self._sent)

    def _all(self) -> list[BaseMessage]:
        with self._sessions.use(self.session_id, self.user_id) as memory:
            return [from_message(message) for message in memory.messages(replaced=True)]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages in one transaction, durable on return.

        Replies without a user message before them join the turn that this object opened last, or else the newest turn.
        Messages that a run was given are left out: they are stored.

        Raises:
            TypeError: one cannot be stored, such as a `RemoveMessage`.
            DuplicateError: an id is already stored with other content.
        """
        given = _without_repeats(map(to_message, messages))
        with self._sessions.use(self.session_id, self.user_id) as memory:
            stored = self._add(memory, [message for message in given if not _was_sent(memory, message)])
        opened = [message.turn_id for message in stored if message.role == "user"]
        self._added.turn = opened[-1] if opened else self._added.turn
        self._sent = None

    def _add(self, memory: InfiniteMemory, messages: Sequence[Message]) -> list[Message]:
        if self._added.cleared:
            messages = [one if one.id is None or _stored(memory, one.id) else _without_id(one) for one in messages]
        if self._added.turn is not None and all(message.role != "user" for message in messages):
            try:
                return memory.add(messages, turn=self._added.turn)
            except UnknownReferenceError:
                self._added.turn = None  # forgotten since, or on another branch
        return memory.add(messages)

    def clear(self) -> None:
        """Erase the session, with all its branches.

        This object can add the same messages again; other objects cannot, because their ids are forgotten for good.
        """
        with self._sessions.use(self.session_id, self.user_id) as memory:
            memory.forget(session=True)
        self._added.cleared = True
        self._sent = None

    def unanswered(self) -> list[BaseMessage]:
        """Return the user messages of the branch that have no reply, oldest first."""
        with self._sessions.use(self.session_id, self.user_id) as memory:
            messages = list(memory.messages(replaced=True))
        answered = {one.turn_id for one in messages if one.role != "user"}
        return [from_message(one) for one in messages if one.role == "user" and one.turn_id not in answered]

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
        context = await self._acontext(_asking(query, include_question))
        return await self._sessions.call(_prompt, context)

    def explain(self, query: Query = None, *, include_question: bool = True) -> ContextReport:
        """Return the report on what `window` returns for the same arguments."""
        return self._context(_asking(query, include_question)).report

    async def aexplain(self, query: Query = None, *, include_question: bool = True) -> ContextReport:
        """Do what `explain` does without blocking the event loop."""
        return (await self._acontext(_asking(query, include_question))).report

    def _context(self, asking: Asking) -> Context:
        with self._sessions.use(self.session_id, self.user_id) as memory:
            return memory.context(**asking(memory))

    async def _acontext(self, asking: Asking) -> Context:
        async with self._sessions.ause(self.session_id, self.user_id) as memory:
            return await AsyncInfiniteMemory(memory).context(**await self._sessions.call(asking, memory))

    def close(self) -> None:
        """Release the store, if it was opened here."""
        self._sessions.close()

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same messages in the same order."""
        if not isinstance(other, InfiniteChatMessageHistory):
            return NotImplemented
        return self is other or self._all() == other._all()

    __hash__ = None  # type: ignore[assignment]  # equality follows the stored messages

    def __repr__(self) -> str:
        user = f", user_id={self.user_id!r}" if self.user_id is not None else ""
        return f"{type(self).__name__}({self.session_id!r}{user})"


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


def _is_in_run(history: InfiniteChatMessageHistory) -> bool:
    """Return whether a run of `RunnableWithMessageHistory` reads its history.

    It reads twice. When the run ends, it takes the length of the list for the number of messages that it put before the
    input, and cuts off as many before it adds the rest, so both lists must be the same.
    """
    return ensure_config()["configurable"].get("message_history") is history


def _with_ids(window: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return a window in which every message has an id, so that `add_messages` knows what a chain hands back."""
    return [
        message if message.id else message.model_copy(update={"id": f"{UNSTORED}{uuid.uuid4().hex}"})
        for message in window
    ]


def _stored(memory: InfiniteMemory, id_: str | None) -> Message | None:
    try:
        return None if id_ is None else memory.get(id_)
    except UnknownReferenceError:
        return None


def _was_sent(memory: InfiniteMemory, message: Message) -> bool:
    """Return whether a message was put into a window from what is stored, perhaps with its grounding in its text."""
    if message.id is not None and message.id.startswith(UNSTORED):
        return True
    stored = _stored(memory, message.id)
    if stored is None or (stored.role, stored.tool_calls) != (message.role, message.tool_calls):
        return False
    return message.content in (stored.content, stored.grounded.content)


def _without_id(message: Message) -> Message:
    """Return a message that the store accepts although its id was forgotten; the id moves into the payload."""
    own = message.payload.data if message.payload is not None and message.payload.format == FORMAT else {}
    return message.replace(id=None, payload=Payload(format=FORMAT, data={**own, "id": message.id}))


def _without_repeats(messages: Iterable[Message]) -> list[Message]:
    """Drop messages that are given twice with one id and the same content; the store refuses those that differ."""
    first: dict[str, Message] = {}
    return [
        message
        for message in messages
        if message.id is None or (known := first.setdefault(message.id, message)) is message or known != message
    ]


class SessionHistories:
    """The histories of one store, by session; returned by `session_factory`.

    Attributes:
        pool: the memories that the histories use.
    """

    def __init__(self, sessions: Sessions, *, size: int, window: bool) -> None:
        self.pool = sessions.lending
        self._sessions = sessions
        self._new = lru_cache(maxsize=size)(partial(InfiniteChatMessageHistory, store=self.pool, window=window))

    def __call__(self, session_id: str, user_id: str | None = None) -> InfiniteChatMessageHistory:
        """Return a history of the session, which serves one run at a time."""
        return copy.copy(self._new(session_id, user_id=user_id))

    def close(self) -> None:
        """Release the store, if it was opened here."""
        self._sessions.close()

    def __enter__(self) -> "SessionHistories":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def session_factory(
    store: MemoryLike = None, *, size: int = 64, window: bool = True, **settings: Any
) -> SessionHistories:
    """Return a `get_session_history` for `RunnableWithMessageHistory`.

    It is called with `session_id`, or with `session_id` and `user_id` if `history_factory_config` has two fields of
    these names.

    Args:
        store: a path, a `Store`, a `SessionPool`, or None: in memory. It is opened at once; `close()` closes it.
        size: how many unused sessions stay ready, at least 1; any number can be stored.
        window: whether the histories give what fits, as for `InfiniteChatMessageHistory`; False: everything.
        settings: as for `InfiniteChatMessageHistory`.

    Raises:
        TypeError: an argument is unknown, or `store` is an `InfiniteMemory`, which serves one session only.
        ValueError, StoreError: as for `InfiniteMemory`.
    """
    if isinstance(store, InfiniteMemory):
        raise TypeError("store: an InfiniteMemory serves one session only; pass its store")
    whole_number("size", size, least=1)
    return SessionHistories(Sessions(store, size=size, **settings), size=size, window=window)
