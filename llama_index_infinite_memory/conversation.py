"""A conversation in use: the engine's memory, and what its store cannot keep."""

import asyncio
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage, TextBlock

from llama_index_infinite_memory.messages import from_message, is_bare, read_message, same, to_message
from llama_index_infinite_memory.open_stores import OpenStore
from llama_index_infinite_memory.settings import Settings
from shared_core.errors import InfiniteMemoryError, StoreError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, content_of
from shared_core.records import MAIN, SessionState
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.runtime.threads import threads_of
from shared_core.session.paths import unused_branch_name
from shared_core.store import Store

Result = TypeVar("Result")

LINE_BYTES = 64 * 2**20
"""The most that the lines read by all conversations of this process take."""

MESSAGE_BYTES = 2_500
"""What a message takes beside its text, stored and shown."""


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


class Line:
    """The messages of a branch as they were read, and as they are shown.

    Attributes:
        messages: the messages, oldest first.
        state: the state of the branch then.
        size: about the bytes that they take.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.state: SessionState | None = None
        self.size = 0
        self._shown: list[ChatMessage] = []
        self._built: dict[int, ChatMessage] = {}

    def gain(self, new: Iterable[Message], state: SessionState | None) -> None:
        """Add what the branch has gained."""
        before = len(self.messages)
        self.messages += new
        self.size += sum(map(_size, self.messages[before:]))
        self.state = state

    def shown(self) -> list[ChatMessage]:
        """Return the messages as they were put: the same objects each time, except those that somebody has changed."""
        for index, (stored, one) in enumerate(zip(self.messages, self._shown, strict=False)):
            if not self._is_as_built(index, stored, one):
                self._shown[index] = to_message(stored.whole)
        self._shown += [to_message(stored.whole) for stored in self.messages[len(self._shown) :]]
        return [*self._shown]

    def _is_as_built(self, index: int, stored: Message, given: ChatMessage) -> bool:
        if is_bare(stored):
            return _is_text_of(given, stored)
        if index not in self._built:
            self._built[index] = to_message(stored.whole)
        return same(vars(self._built[index]), vars(given))  # pydantic's own comparison is slower

    def shared(self, given: Sequence[ChatMessage]) -> int:
        """Return with how many of the given messages the line begins."""
        for index, (stored, one) in enumerate(zip(self.messages, given, strict=False)):
            if not self._holds(index, stored, one):
                return index
        return min(len(self.messages), len(given))

    def _holds(self, index: int, stored: Message, given: ChatMessage) -> bool:
        """Return whether a message is a stored one, perhaps as another program wrote it, or as its mere text."""
        if not isinstance(given, ChatMessage):
            return False
        if self._is_as_built(index, stored, given):
            return True
        whole = stored.whole
        shown = to_message(whole)
        if given.role != shown.role or given.content != shown.content:
            return False
        rich = stored.tool_calls or any(block.block_type not in ("text", "thinking") for block in shown.blocks)
        mere_text = given.content and not given.additional_kwargs and all(map(_is_text, given.blocks))
        return bool(mere_text and not rich) or content_of(read_message(given)[0]) == content_of(stored)


def _is_text_of(given: ChatMessage, stored: Message) -> bool:
    """Return whether a message is the mere text of a stored one, in one block; without a call for most messages."""
    blocks = given.blocks
    return (
        len(blocks) == 1
        and type(blocks[0]) is TextBlock
        and blocks[0].text == stored.whole.content
        and given.role == stored.role
        and not given.additional_kwargs
    )


def _is_text(block: Any) -> bool:
    return isinstance(block, TextBlock)


def _size(message: Message) -> int:
    """Return about the bytes that a message takes in memory, stored and shown."""
    rest = len(message.model_dump_json()) if message.payload is not None or message.grounding is not None else 0
    return MESSAGE_BYTES + len(message.content) + 2 * rest


class Lines:
    """What conversations have read, those that were used last, as far as it takes no more than `LINE_BYTES`."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[Conversation, Line] = weakref.WeakKeyDictionary()
        self._lock = fork_safe_lock(Depth.MOMENT)

    def take(self, conversation: "Conversation") -> Line | None:
        """Return what a conversation has read, which is no longer kept."""
        with self._lock:
            return self._kept.pop(conversation, None)

    def keep(self, conversation: "Conversation", line: Line) -> None:
        """Keep what a conversation has read."""
        with self._lock:
            self._kept[conversation] = line
            kept = list(self._kept.items())  # the one used last comes last
            size = sum(one.size for _, one in kept)
            for oldest, one in kept:
                if size > LINE_BYTES:
                    del self._kept[oldest]
                    size -= one.size


_lines = Lines()

in_use: "weakref.WeakValueDictionary[str, Conversation]" = weakref.WeakValueDictionary()
"""The conversations of this process, by their keys."""


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

    def replace(self, messages: Iterable[ChatMessage]) -> None:
        """Make these messages the conversation; messages that differ from them keep a branch of their own."""
        given = list(messages)
        with self.lock:
            line = self._line()
            stored, count = line.messages, line.shared(given)
            converted = [*map(from_message, given[count:])]
            if count == len(stored):
                self._add(converted)
                return
            kept, aside = self._end_after(stored, count)
            converted = [*map(from_message, given[kept:count]), *converted]
            try:
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
        known = _lines.take(self)
        new = self._gained(known, state) if known is not None and state is not None else None
        if known is None or new is None:
            known, new = Line(), list(memory.messages(replaced=True))
        known.gain(new, state)
        if state is not None:
            _lines.keep(self, known)
        return known

    def _gained(self, known: Line, state: SessionState) -> list[Message] | None:
        """Return what the branch gained since it was read; None: it may have changed otherwise."""
        before, now = known.state, state
        if before == now:
            return []
        if before is None or before.head is None or now.head is None:
            return None
        grown = now.head.depth - before.head.depth
        if (before.epoch, before.head.segment) != (now.epoch, now.head.segment) or grown < 0:
            return None
        new = self.memory.newest(grown + 1)
        return new[1:] if new and known.messages and new[0].id == known.messages[-1].id else None

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
            _lines.take(self)
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
