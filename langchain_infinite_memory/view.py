"""The view of a list of messages that grows: follow it into the store, and build the prompt that fits."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_infinite_memory.messages import from_message, read_message
from shared_core.aio import AsyncInfiniteMemory
from shared_core.engine import InfiniteMemory
from shared_core.errors import BudgetError
from shared_core.following import History
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.prompt.context import Context, ContextReport

__all__ = ["HistoryView", "Thread", "View"]

logger = logging.getLogger("langchain_infinite_memory")


PLAIN: dict[str, Any] = {"scope": "session", "ranking": "lexical", "embedder": None, "top_k": 0, "on_overflow": "keep"}
"""The settings of a memory that recalls nothing."""


class Thread(NamedTuple):
    """Whose list it is.

    Attributes:
        session_id: which conversation.
        user_id: whose.
        stable_ids: whether a message has the same id whenever the list is sent, as a checkpointer sees to.
    """

    session_id: str
    user_id: str | None = None
    stable_ids: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """The messages to send, and why."""

    messages: list[BaseMessage]
    report: ContextReport


@dataclass
class _Seen:
    """The list as one memory followed it last."""

    messages: list[BaseMessage] = field(default_factory=list)
    history: History = field(default_factory=History)
    by_id: dict[str, BaseMessage] = field(default_factory=dict)


class HistoryView:
    """Follows lists of messages, each in its session, and returns what of them, and of the past, to send.

    The list itself is never changed, and its messages are sent as they are, but for text put before the question.

    Args:
        pool: the memories.
    """

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool
        self._seen: WeakKeyDictionary[InfiniteMemory, _Seen] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def view(
        self, thread: Thread, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (),
        tools: Sequence[Any] = (),
    ) -> View:  # fmt: skip
        """Store what is new in the list and return the prompt for its newest human message.

        Args:
            thread: whose list it is.
            messages: the whole list, oldest first, without the system prompt.
            system: system messages that are sent before it: they are charged, and neither stored nor returned.
            tools: what the model may call, charged too.

        Raises:
            BudgetError: system prompt, tool schemas and pinned messages alone exceed the budget.
            StoreError, EmbedderMismatchError: the memory cannot be used.
        """
        with self.pool.use(thread.session_id, thread.user_id) as memory:
            seen = self._follow(memory, thread, messages)
            context = memory.context(tools=_schemas(tools), reserve_tokens=_reserve(memory, system))
            return _view(context, seen)

    async def aview(
        self, thread: Thread, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (),
        tools: Sequence[Any] = (),
    ) -> View:  # fmt: skip
        """Do the same without blocking the event loop."""
        memory = await asyncio.to_thread(self.pool.take, thread.session_id, thread.user_id)
        try:
            seen = await asyncio.to_thread(self._follow, memory, thread, messages)
            reserve = await asyncio.to_thread(_reserve, memory, system)
            context = await AsyncInfiniteMemory(memory).context(tools=_schemas(tools), reserve_tokens=reserve)
            return await asyncio.to_thread(_view, context, seen)
        finally:
            await asyncio.shield(asyncio.to_thread(self.pool.give_back, memory))

    def record(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Store what is new in the list."""
        with self.pool.use(thread.session_id, thread.user_id) as memory:
            self._follow(memory, thread, messages)

    async def arecord(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Do the same without blocking the event loop."""
        await asyncio.shield(asyncio.to_thread(self.record, thread, messages))

    def window(
        self, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (), tools: Sequence[Any] = ()
    ) -> list[BaseMessage]:
        """Return the newest turns that fit, without the memory, and at least the newest human message."""
        named = [read_message(m)[0].replace(id=f"{place}", pinned=False) for place, m in enumerate(messages)]
        with InfiniteMemory(**self.pool.settings | PLAIN) as memory:
            memory.add(named)
            try:
                prompt = memory.context(tools=_schemas(tools), reserve_tokens=_reserve(memory, system)).messages
            except BudgetError:  # what else is sent leaves no room at all
                asked = next((n for n in range(len(named) - 1, -1, -1) if named[n].role == "user"), 0)
                return list(messages[asked:])
        return [_sent(message, messages[int(message.id or 0)]) for message in prompt]

    def _follow(self, memory: InfiniteMemory, thread: Thread, messages: Sequence[BaseMessage]) -> _Seen:
        with self._lock:
            seen = self._seen.setdefault(memory, _Seen())
        same = _common(seen.messages, messages)
        for id_ in seen.history.ids[same:]:
            seen.by_id.pop(id_ or "", None)
        given = [_neutral(message, stable_id=thread.stable_ids) for message in messages[same:]]
        seen.history = memory.follow(given, after=seen.history.upto(same))
        seen.messages[same:] = messages[same:]
        seen.by_id |= {id_: m for id_, m in zip(seen.history.ids[same:], messages[same:], strict=True) if id_}
        return seen


def _common(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """Return how many messages at the beginning are the same."""
    for place, (before, now) in enumerate(zip(old, new, strict=False)):
        if before is not now and before != now:
            return place
    return min(len(old), len(new))


def _neutral(message: BaseMessage, *, stable_id: bool) -> Message:
    neutral, lost = read_message(message)
    if lost:
        logger.warning("message %s is stored without %s", message.id, ", ".join(lost))
    return neutral if stable_id else neutral.replace(id=None)


def _schemas(tools: Sequence[Any]) -> list[Any]:
    return [convert_to_openai_tool(tool) for tool in tools]


def _reserve(memory: InfiniteMemory, system: Sequence[BaseMessage]) -> int:
    """Return what is kept free: the room of the reply and of the system prompt."""
    return memory.reserve_tokens + sum(memory.count(read_message(message)[0]) for message in system)


def _view(context: Context, seen: _Seen) -> View:
    return View([_sent(message, seen.by_id.get(message.id or "")) for message in context.messages], context.report)


def _sent(message: Message, given: BaseMessage | None) -> BaseMessage:
    """Return a message of the prompt: the one that was given, unless text was put before it."""
    if given is None:
        return from_message(message)
    if message.role != "user" or read_message(given)[0].content == message.content:
        return given
    written = from_message(message)
    return written.model_copy(update={"id": given.id})
