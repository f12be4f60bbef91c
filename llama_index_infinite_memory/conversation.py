"""A conversation in use: the engine's memory, and what its store cannot keep."""

import asyncio
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory.line import Line, lines
from llama_index_infinite_memory.messages import from_message, read_message, to_message
from llama_index_infinite_memory.open_stores import OpenStore
from llama_index_infinite_memory.settings import Settings
from shared_core.errors import InfiniteMemoryError, StoreError
from shared_core.history.matcher import forgotten_in
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.records import MAIN
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import threads_of
from shared_core.session.paths import unused_branch_name
from shared_core.store import Store

Result = TypeVar("Result")

in_use: "weakref.WeakValueDictionary[str, Conversation]" = weakref.WeakValueDictionary()
"""The conversations of this process, by their keys."""


class CallQueue:
    """Runs the calls of an event loop's coroutines in threads, one at a time, in the order in which they were made.

    A call that was cancelled before its turn is left out. Calls that do not come through the queue never wait for it.

    Args:
        store: the store that is called, whose threads are used.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function in a thread, after all calls made before, and return what it returns."""
        for loop in [*self._locks]:
            if loop.is_closed():
                self._locks.pop(loop, None)
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            return await threads_of(self._store).run(function, *args)


class Conversation:
    """A conversation in use, which any number of buffers share.

    Args:
        opened: where it is stored.
        session_id: the session's id.
        user_id: the user's id.
        settings: how messages are counted and recalled.

    Attributes:
        key: the name by which `in_use` finds it.
        session_id: the session's id, as it was given.
        user_id: the user's id, as it was given.
        opened: where it is stored; None: it is closed.
        store: the store.
        lock: held while stored messages change.
        calls: the calls of coroutines that change messages.
        engine: the memory.
        asked: the newest question, and the tokens that were sent besides.
    """

    def __init__(self, opened: OpenStore, *, session_id: str, user_id: str | None, settings: Settings) -> None:
        self.key = uuid.uuid4().hex
        self.session_id, self.user_id = session_id, user_id
        self.opened: OpenStore | None = opened
        self.store = opened.store
        self.settings = settings
        self.lock = fork_safe_lock(Depth.CONVERSATION)
        self.calls = CallQueue(self.store)
        self.engine = InfiniteMemory(self.store, session_id=session_id, user_id=user_id, **settings.arguments())
        self.asked: tuple[Any, int] = (None, 0)
        self._live: tuple[str, ChatMessage] | None = None
        in_use[self.key] = self

    def open_store(self) -> OpenStore:
        """Return the open store.

        Raises:
            StoreError: the conversation is closed.
        """
        if self.opened is None:
            raise StoreError("this conversation is closed; open it again with from_defaults or from_dict")
        return self.opened

    @property
    def memory(self) -> InfiniteMemory:
        """The engine; it returns to `main` if others have erased its branch.

        Raises:
            StoreError: the conversation is closed.
        """
        self.open_store()
        branch = self.engine.branch
        if branch not in (None, MAIN) and branch not in {known.name for known in self.engine.branches()}:
            self.engine.checkout(MAIN)
        return self.engine

    @property
    def head(self) -> str | None:
        """The id of the newest message; None: there is none."""
        newest = self.memory.newest(1)
        return newest[0].id if newest else None

    @property
    def session(self) -> int | None:
        """The store's key of the session; None: nothing is stored."""
        return self.store.session(self.engine.user_id, self.engine.session_id)

    # Storing

    def add(self, messages: Iterable[ChatMessage]) -> None:
        """Store messages at the end, in one transaction."""
        converted = [*map(from_message, messages)]
        with self.lock:
            self._add(converted)

    def _add(self, converted: Sequence[Message]) -> None:
        if converted:
            self.memory.add(converted)

    def set(self, messages: Sequence[ChatMessage]) -> None:
        """Make a history the conversation, but for what was forgotten: who sends it again does not bring that back."""
        with self.lock:
            line, gone = self._line(), set[int]()
            if not line.begins(messages) and line.shared(messages) < len(messages):
                with self.memory._lock:
                    gone = forgotten_in(self.memory._checkout.live, (read_message(one)[0] for one in messages))
            self.replace([one for index, one in enumerate(messages) if index not in gone])

    def replace(self, given: Sequence[ChatMessage]) -> None:
        """Make these messages the conversation; messages that differ from them keep a branch of their own."""
        with self.lock:
            line = self._line()
            stored, count = line.messages, line.shared(given)
            converted = [*map(from_message, given[count:])]
            if count == len(stored):
                self._add(converted)
                return
            kept, aside = self._end_after(stored, count)
            try:
                converted = [*map(from_message, given[kept:count]), *converted]
                self._add(converted)
            except BaseException:
                self._put_back(stored, aside)
                raise
            if aside is not None and _says_again(converted, stored[kept:]):
                self.memory.delete_branch(aside)  # a front end that keeps less than we do sends it with every question

    def _end_after(self, stored: Sequence[Message], count: int) -> tuple[int, str | None]:
        """Let the branch end after so many messages, or fewer; return how many, and the branch that keeps the rest."""
        memory = self.memory
        if memory.branch is None:
            self.go_back_to(stored[count - 1].id if count else None)
            return count, None
        try:
            return count, memory.rewind(stored[count - 1].id if count else None)
        except ValueError:  # a merge brought in the last one that stays
            return 0, memory.rewind()

    def _put_back(self, stored: Sequence[Message], aside: str | None) -> None:
        """Undo `_end_after`."""
        with suppress(InfiniteMemoryError):  # the store is away, or another program has gone on: the branch stays
            if aside is None:
                self.go_back_to(stored[-1].id)
            else:
                self.memory.undo()
                self.memory.delete_branch(aside)

    def go_back_to(self, id: str | None) -> None:
        """Check out an earlier state, by its newest message, None: when there was none; it goes on as a branch."""
        if id is not None:
            self.memory.checkout(id)
            return
        session = self.session
        self.memory.fork(unused_branch_name(self.store, session, f"{MAIN}-", first=2) if session else f"{MAIN}-2")
        if self.head is not None:
            self.memory.delete_branch(self.memory.rewind())

    def rebuild(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Store what `dump` returned for a conversation that is gone."""
        self._add([Message.model_validate(message).replace(turn_id=None) for message in messages])

    # Reading

    def _line(self) -> Line:
        """Return all messages of the branch; those that an earlier call has read are not read again."""
        memory = self.memory
        session, branch = self.session, memory.branch
        state = self.store.state(session, branch) if session is not None and branch is not None else None
        known = lines.take(self)
        if known is None or state is None or not known.goes_on(state, memory.newest):
            known = Line(list(memory.messages(replaced=True)), state)
        if state is not None:
            lines.keep(self, known)
        return known

    def all(self) -> list[ChatMessage]:
        """Return all messages of the branch as they were put."""
        with self.lock:
            return self._line().shown()

    def live(self, stored: Message) -> ChatMessage:
        """Return the newest user message, always the same object, because agents write their state into it."""
        if self._live is None or self._live[0] != stored.id:
            self._live = (stored.id or "", to_message(stored.whole))
        return self._live[1]

    def live_text(self, stored: Message) -> str:
        """Return the text of the newest user message, with what an agent has written into it."""
        if self._live is not None and self._live[0] == stored.id:
            return self._live[1].content or ""
        return stored.whole.content

    def dump(self) -> list[dict[str, Any]]:
        """Return the messages of this branch as JSON data."""
        with self.lock:
            messages = self._line().messages
            return [message.model_dump(mode="json", exclude_defaults=True) for message in messages]

    # End of use

    def __deepcopy__(self, memo: dict[int, Any]) -> "Conversation":
        """Return a conversation that has the same messages, and goes on as a branch of its own."""
        with self.lock:
            made = self.another()
            made.go_back_to(self.head)
            return made

    def another(self) -> "Conversation":
        """Return another conversation of the same session, on its main branch."""
        return Conversation(
            self.open_store(), session_id=self.session_id, user_id=self.user_id, settings=self.settings
        )  # fmt: skip

    def close(self) -> None:
        """Save the index, and let go of the store; closing twice is allowed."""
        with self.lock:
            if self.opened is None:
                return
            lines.take(self)
            try:
                self.engine.close()
            finally:
                self.opened = None


def _says_again(given: Iterable[Message], stored: Iterable[Message]) -> bool:
    """Return whether a history holds, in order, everything that people were told and said themselves."""
    texts = iter([(message.role, message.content.strip()) for message in given])
    return all(
        (message.role, message.content.strip()) in texts
        for message in stored
        if message.role == "user" or (message.role == "assistant" and not message.tool_calls)
    )
