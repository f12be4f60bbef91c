"""The message list of a thread, sent whole with each run: store what is new in it, and build the prompt that fits."""

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

from langchain_infinite_memory.messages import from_message, read_message, system_first
from langchain_infinite_memory.token_counters import FRAMING
from shared_core.aio import AsyncInfiniteMemory
from shared_core.errors import BudgetError
from shared_core.history import FollowedHistory
from shared_core.lists import sliding_window
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.prompt.context import Context, ContextReport
from shared_core.prompt.stubs import is_stub
from shared_core.tokens import as_counter, message_tokens, tools_tokens

logger = logging.getLogger("langchain_infinite_memory")

FOLLOWED = 128
"""The number of lists that are remembered, the newest ones, so that only new messages have to be looked at."""

WINDOW_SETTINGS = frozenset(inspect.signature(sliding_window).parameters)
"""The settings of a memory that also apply to a sliding window."""


class Thread(NamedTuple):
    """The conversation that a list belongs to.

    Attributes:
        session_id: the session's id.
        user_id: the user's id.
        stable_ids: whether a message keeps its id from one run to the next, as a checkpointer ensures.
    """

    session_id: str
    user_id: str | None = None
    stable_ids: bool = True


@dataclass(frozen=True, slots=True)
class ThreadPrompt:
    """The messages to send, and the report on them."""

    messages: list[BaseMessage]
    report: ContextReport


@dataclass(frozen=True, slots=True)
class _Followed:
    """A list as it was followed last.

    Attributes:
        messages: the list.
        history: what the engine returned for it.
        by_id: its messages, by the ids under which they are stored.
    """

    messages: Sequence[BaseMessage] = ()
    history: FollowedHistory = field(default_factory=FollowedHistory)
    by_id: Mapping[str, BaseMessage] = field(default_factory=dict)

    @property
    def newest(self) -> str | None:
        """The id of the newest message that is stored."""
        return next((id_ for id_ in reversed(self.history.ids) if id_ is not None), None)


class ThreadMemory:
    """Stores the message lists of threads, and builds prompts from them and from what was said before.

    A list is never changed. Its messages are sent as they are, except for text that is put before the question.

    Args:
        pool: the memories.
    """

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool
        self._followed: OrderedDict[tuple[Thread, str | None], _Followed] = OrderedDict()
        self._lock = threading.Lock()

    def prompt(
        self, thread: Thread, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (),
        tools: Sequence[Any] = (),
    ) -> ThreadPrompt:  # fmt: skip
        """Store what is new in the list and return the prompt for its newest human message.

        System messages at the beginning of the list are sent and charged, but not stored. Later ones are stored,
        and sent after those.

        Args:
            thread: the conversation that the list belongs to.
            messages: the whole list, oldest first.
            system: system messages that the caller sends before the list; they are charged, but neither stored nor
                returned.
            tools: tools that the model may call, which are charged, too.

        Raises:
            BudgetError: system prompt, tool schemas and pinned messages alone exceed the budget.
            StoreError, EmbedderMismatchError: the memory cannot be used.
            ValueError: the memory cannot be used for this thread, such as one without a user with `scope="user"`.
        """
        with self.pool.use(thread.session_id, thread.user_id) as memory:
            leading, talk = _split(messages)
            followed = self._follow(memory, thread, talk)
            arguments: dict[str, Any] = {
                "tools": _schemas(tools),
                "reserve_tokens": _reserve(memory, [*system, *leading]),
            }
            context = memory.context(**arguments)
            if not _stands_at_end(memory, followed):
                context = memory.context(**arguments)
            return _thread_prompt(leading, context, followed)

    async def aprompt(
        self, thread: Thread, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (),
        tools: Sequence[Any] = (),
    ) -> ThreadPrompt:  # fmt: skip
        """Do what `prompt` does without blocking the event loop."""
        memory = await asyncio.to_thread(self.pool.take, thread.session_id, thread.user_id)
        idle = True
        try:
            leading, talk = _split(messages)
            followed = await asyncio.to_thread(self._follow, memory, thread, talk)
            schemas = await asyncio.to_thread(_schemas, tools)
            reserve = await asyncio.to_thread(_reserve, memory, [*system, *leading])
            arguments: dict[str, Any] = {"tools": schemas, "reserve_tokens": reserve}
            context = await AsyncInfiniteMemory(memory).context(**arguments)
            if not await asyncio.to_thread(_stands_at_end, memory, followed):
                context = await AsyncInfiniteMemory(memory).context(**arguments)
            return await asyncio.to_thread(_thread_prompt, leading, context, followed)
        except asyncio.CancelledError:
            idle = False  # a worker thread may still use it
            raise
        finally:
            if idle:
                await asyncio.to_thread(self.pool.give_back, memory)

    def record(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Store what is new in the list."""
        with self.pool.use(thread.session_id, thread.user_id) as memory:
            self._follow(memory, thread, _split(messages)[1])

    async def arecord(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Do what `record` does without blocking the event loop."""
        await asyncio.shield(asyncio.to_thread(self.record, thread, messages))

    def window(
        self, messages: Sequence[BaseMessage], *, system: Sequence[BaseMessage] = (), tools: Sequence[Any] = ()
    ) -> list[BaseMessage]:
        """Return the newest turns that fit, and at least the newest human message, without using the memory."""
        leading, talk = _split(messages)
        given = {f"{index}": message for index, message in enumerate(talk)}
        named = [read_message(message)[0].replace(id=id_, pinned=False) for id_, message in given.items()]
        settings = self.pool.settings
        counter, overhead = as_counter(settings.get("token_counter")), settings.get("message_overhead", FRAMING)
        taken = sum(message_tokens(read_message(message)[0], counter, overhead) for message in [*system, *leading])
        sizes = {"max_tokens": 4096, "reserve_tokens": 500} | {
            k: v for k, v in settings.items() if k in WINDOW_SETTINGS
        }
        sizes["reserve_tokens"] += taken + tools_tokens(_schemas(tools), counter)
        try:
            prompt = sliding_window(named, **sizes | {"token_counter": counter, "on_overflow": "keep"})
        except BudgetError:  # system messages and tools leave no room at all
            question = next((index for index in range(len(named) - 1, -1, -1) if named[index].role == "user"), 0)
            prompt = named[question:]
        return _langchain_messages(leading, prompt, given)

    def _follow(self, memory: InfiniteMemory, thread: Thread, messages: Sequence[BaseMessage]) -> _Followed:
        # The lists of one run begin with the same message. Two runs at once are followed apart, each from its own list.
        run = (thread, messages[0].id if messages else None)
        with self._lock:  # of two callers that go on from the same message, the second must see the first
            followed = self._followed.pop(run, _Followed())
            same = _common_start(followed.messages, messages)
            given = [_engine_message(message, stable_id=thread.stable_ids) for message in messages[same:]]
            history = replace(memory.follow(given, after=followed.history.upto(same)), branch=memory.branch)
            by_id = {id_: message for id_, message in zip(history.ids, messages, strict=True) if id_ is not None}
            self._followed[run] = followed = _Followed(list(messages), history, by_id)
            while len(self._followed) > FOLLOWED:
                self._followed.popitem(last=False)
        return followed


def _stands_at_end(memory: InfiniteMemory, followed: _Followed) -> bool:
    """Return whether the branch ends where the list ends; if others have gone on there, check out the list's end."""
    newest = [message.id for message in memory.newest(1)]
    if followed.newest is None or newest == [followed.newest]:
        return True
    memory.checkout(followed.newest)
    return False


def _common_start(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """Return how many messages at the beginning are the same."""
    for index, (before, now) in enumerate(zip(old, new, strict=False)):
        if before is not now and not _same(before, now):
            return index
    return min(len(old), len(new))


def _same(one: BaseMessage, other: BaseMessage) -> bool:
    """Return whether two messages are equal or, if they hold values such as arrays, whether they are stored alike."""
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return read_message(one) == read_message(other)


def _engine_message(message: BaseMessage, *, stable_id: bool) -> Message:
    converted, lost = read_message(message)
    if lost:
        logger.warning("message %s is stored without %s", message.id, ", ".join(lost))
    return converted if stable_id else converted.replace(id=None)


def _split(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Return the system messages that a list begins with, and the rest."""
    count = next((n for n, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return list(messages[:count]), list(messages[count:])


def _schemas(tools: Sequence[Any]) -> list[Any]:
    return [_schema(tool) for tool in tools]


def _schema(tool: Any) -> Any:
    if not isinstance(tool, Mapping):
        return convert_to_openai_tool(tool)
    try:
        json.dumps(tool)
    except (TypeError, ValueError):
        return repr(tool)
    return tool  # a provider's own tool has no common form


def _reserve(memory: InfiniteMemory, system: Sequence[BaseMessage]) -> int:
    """Return the tokens to keep free: for the reply and for the system prompt; BudgetError if that is too large."""
    taken, budget = sum(memory.count(read_message(one)[0]) for one in system), memory.max_tokens - memory.reserve_tokens
    if taken > budget:
        raise BudgetError(
            f"system messages need {taken:,} tokens, but the budget is {budget:,}: raise max_tokens, lower "
            "reserve_tokens, or shorten them",
            needed=taken,
            available=budget,
        )
    return memory.reserve_tokens + taken


def _thread_prompt(leading: Sequence[BaseMessage], context: Context, followed: _Followed) -> ThreadPrompt:
    return ThreadPrompt(_langchain_messages(leading, context.messages, followed.by_id), context.report)


def _langchain_messages(
    leading: Sequence[BaseMessage], prompt: Sequence[Message], given: Mapping[str, BaseMessage]
) -> list[BaseMessage]:
    """Return a prompt as LangChain's messages, with all system messages at its beginning."""
    return [*leading, *(_sent(message, given.get(message.id or "")) for message in system_first(prompt))]


def _sent(message: Message, given: BaseMessage | None) -> BaseMessage:
    """Return a message of the prompt: the given one, unless the prompt holds another text."""
    if given is None:
        return from_message(message)
    if is_stub(message):
        return given.model_copy(update={"content": message.content})
    if read_message(given)[0].content == message.content:
        return given
    written = from_message(message)
    return written.model_copy(update={"id": given.id})
