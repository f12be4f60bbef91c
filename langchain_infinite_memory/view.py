"""The view of a list of messages that grows: follow it into the store, and build the prompt that fits."""

import asyncio
import inspect
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_infinite_memory.counting import FRAMING
from langchain_infinite_memory.messages import from_message, read_message
from shared_core.aio import AsyncInfiniteMemory
from shared_core.errors import BudgetError
from shared_core.history import FollowedHistory
from shared_core.lists import sliding_window
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.prompt.context import Context, ContextReport
from shared_core.tokens import as_counter, message_tokens, tools_tokens

__all__ = ["HistoryView", "Thread", "View"]

logger = logging.getLogger("langchain_infinite_memory")

SEEN = 128
"""Lists that are kept as they were followed, so that only what is new in them is looked at: the latest."""

WINDOW = frozenset(inspect.signature(sliding_window).parameters)
"""The settings of a memory that bear on the newest turns, too."""


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


@dataclass(frozen=True, slots=True)
class _Seen:
    """A list as it was followed last; `by_id`: its messages, by the ids they are stored under."""

    messages: Sequence[BaseMessage] = ()
    history: FollowedHistory = field(default_factory=FollowedHistory)
    by_id: Mapping[str, BaseMessage] = field(default_factory=dict)

    @property
    def newest(self) -> str | None:
        """The id of the newest message that is stored."""
        return next((id_ for id_ in reversed(self.history.ids) if id_ is not None), None)


class HistoryView:
    """Follows lists of messages, each in its session, and returns what of them, and of the past, to send.

    The list itself is never changed, and its messages are sent as they are, but for text put before the question.

    Args:
        pool: the memories.
    """

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool
        self._seen: OrderedDict[tuple[Thread, str | None], _Seen] = OrderedDict()
        self._lock = threading.Lock()

    def view(
        self, thread: Thread, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (),
        tools: Sequence[Any] = (),
    ) -> View:  # fmt: skip
        """Store what is new in the list and return the prompt for its newest human message.

        System messages at the beginning of the list are sent and charged, and not stored; later ones are, and are sent
        after those.

        Args:
            thread: whose list it is.
            messages: the whole list, oldest first.
            system: system messages that are sent before it: they are charged, and neither stored nor returned.
            tools: what the model may call, charged too.

        Raises:
            BudgetError: system prompt, tool schemas and pinned messages alone exceed the budget.
            StoreError, EmbedderMismatchError: the memory cannot be used.
            ValueError: nor can it with these names, such as none of a user with `scope="user"`.
        """
        with self.pool.use(thread.session_id, thread.user_id) as memory:
            first, talk = _parts(messages)
            seen = self._follow(memory, thread, talk)
            asked: dict[str, Any] = {"tools": _schemas(tools), "reserve_tokens": _reserve(memory, [*system, *first])}
            context = memory.context(**asked)
            if not _ends_here(memory, seen):
                context = memory.context(**asked)
            return _view(first, context, seen)

    async def aview(
        self, thread: Thread, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (),
        tools: Sequence[Any] = (),
    ) -> View:  # fmt: skip
        """Do the same without blocking the event loop."""
        memory = await asyncio.to_thread(self.pool.take, thread.session_id, thread.user_id)
        free = True
        try:
            first, talk = _parts(messages)
            seen = await asyncio.to_thread(self._follow, memory, thread, talk)
            schemas = await asyncio.to_thread(_schemas, tools)
            reserve = await asyncio.to_thread(_reserve, memory, [*system, *first])
            asked: dict[str, Any] = {"tools": schemas, "reserve_tokens": reserve}
            context = await AsyncInfiniteMemory(memory).context(**asked)
            if not await asyncio.to_thread(_ends_here, memory, seen):
                context = await AsyncInfiniteMemory(memory).context(**asked)
            return await asyncio.to_thread(_view, first, context, seen)
        except asyncio.CancelledError:
            free = False  # a thread may be at work with it still
            raise
        finally:
            if free:
                await asyncio.to_thread(self.pool.give_back, memory)

    def record(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Store what is new in the list."""
        with self.pool.use(thread.session_id, thread.user_id) as memory:
            self._follow(memory, thread, _parts(messages)[1])

    async def arecord(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Do the same without blocking the event loop."""
        await asyncio.shield(asyncio.to_thread(self.record, thread, messages))

    def window(
        self, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (), tools: Sequence[Any] = ()
    ) -> list[BaseMessage]:
        """Return the newest turns that fit, without the memory, and at least the newest human message."""
        first, talk = _parts(messages)
        given = {f"{place}": message for place, message in enumerate(talk)}
        named = [read_message(message)[0].replace(id=place, pinned=False) for place, message in given.items()]
        settings = self.pool.settings
        counter, overhead = as_counter(settings.get("token_counter")), settings.get("message_overhead", FRAMING)
        taken = sum(message_tokens(read_message(message)[0], counter, overhead) for message in [*system, *first])
        sizes = {"max_tokens": 4096, "reserve_tokens": 500} | {k: v for k, v in settings.items() if k in WINDOW}
        sizes["reserve_tokens"] += taken + tools_tokens(_schemas(tools), counter)
        try:
            prompt = sliding_window(named, **sizes | {"token_counter": counter, "on_overflow": "keep"})
        except BudgetError:  # what else is sent leaves no room at all
            asked = next((place for place in range(len(named) - 1, -1, -1) if named[place].role == "user"), 0)
            prompt = named[asked:]
        return _written(first, prompt, given)

    def _follow(self, memory: InfiniteMemory, thread: Thread, messages: Sequence[BaseMessage]) -> _Seen:
        # Lists of one run begin with the same message: of two runs at once, each is followed from where it was.
        run = (thread, messages[0].id if messages else None)
        with self._lock:  # one after the other: of two that go on from the same message, the second sees the first
            seen = self._seen.pop(run, _Seen())
            same = _common(seen.messages, messages)
            given = [_neutral(message, stable_id=thread.stable_ids) for message in messages[same:]]
            history = replace(memory.follow(given, after=seen.history.upto(same)), branch=memory.branch)
            by_id = {id_: message for id_, message in zip(history.ids, messages, strict=True) if id_ is not None}
            self._seen[run] = seen = _Seen(list(messages), history, by_id)
            while len(self._seen) > SEEN:
                self._seen.popitem(last=False)
        return seen


def _ends_here(memory: InfiniteMemory, seen: _Seen) -> bool:
    """Return whether the list's end is the branch's; if others have gone on there, stand where the list ends."""
    newest = [message.id for message in memory.newest(1)]
    if seen.newest is None or newest == [seen.newest]:
        return True
    memory.checkout(seen.newest)
    return False


def _common(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """Return how many messages at the beginning are the same."""
    for place, (before, now) in enumerate(zip(old, new, strict=False)):
        if before is not now and not _same(before, now):
            return place
    return min(len(old), len(new))


def _same(one: BaseMessage, other: BaseMessage) -> bool:
    """Return whether two messages are equal; where that cannot be said, as of arrays, whether they are stored alike."""
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return read_message(one) == read_message(other)


def _neutral(message: BaseMessage, *, stable_id: bool) -> Message:
    neutral, lost = read_message(message)
    if lost:
        logger.warning("message %s is stored without %s", message.id, ", ".join(lost))
    return neutral if stable_id else neutral.replace(id=None)


def _parts(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Return the system messages that a list begins with, and the rest."""
    first = next((n for n, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return list(messages[:first]), list(messages[first:])


def _schemas(tools: Sequence[Any]) -> list[Any]:
    return [_schema(tool) for tool in tools]


def _schema(tool: Any) -> Any:
    if not isinstance(tool, Mapping):
        return convert_to_openai_tool(tool)
    try:
        json.dumps(tool)
    except (TypeError, ValueError):
        return repr(tool)
    return tool  # a provider's own tool has a form of its own


def _reserve(memory: InfiniteMemory, system: Sequence[BaseMessage]) -> int:
    """Return what is kept free: the room of the reply and of the system prompt."""
    return memory.reserve_tokens + sum(memory.count(read_message(message)[0]) for message in system)


def _view(first: Sequence[BaseMessage], context: Context, seen: _Seen) -> View:
    return View(_written(first, context.messages, seen.by_id), context.report)


def _written(
    first: Sequence[BaseMessage], prompt: Sequence[Message], given: Mapping[str, BaseMessage]
) -> list[BaseMessage]:
    """Return a prompt in LangChain's messages, with all system messages at its beginning.

    In between, Anthropic's models refuse them.
    """
    ordered = sorted(prompt, key=lambda message: message.role != "system")
    return [*first, *(_sent(message, given.get(message.id or "")) for message in ordered)]


def _sent(message: Message, given: BaseMessage | None) -> BaseMessage:
    """Return a message of the prompt: the one that was given, unless text was put before it."""
    if given is None:
        return from_message(message)
    if message.role != "user" or read_message(given)[0].content == message.content:
        return given
    written = from_message(message)
    return written.model_copy(update={"id": given.id})
