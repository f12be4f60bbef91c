"""A conversation in use: the engine's memory, what its store cannot keep, and the branch that a buffer follows."""

import copy
import re
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import QueryBundle
from llama_index.core.storage.chat_store import BaseChatStore

from llama_index_infinite_memory.content import GROUNDING
from llama_index_infinite_memory.messages import UnstorableWarning, read_message, same, to_message
from llama_index_infinite_memory.settings import Settings
from shared_core.errors import UnknownReferenceError
from shared_core.lifecycle import fork_safe_lock
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.context import Context
from shared_core.records import MAIN, Create, Position
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tokens import body_tokens

StoreLike = Store | str | Path | None

REMEMBERED_SIZES = 4_096
"""The number of messages whose size is remembered."""

FIRST_READ = 8
"""How many messages are read first, from the end; then twice as many, and so on."""

_MAIN_LINE = re.compile(rf"{MAIN}(?:-\d+)?")


class Conversation:
    """A conversation in use, which any number of buffers share.

    Args:
        store: a path, a `Store`, or None: in memory.
        session_id: the session's id.
        user_id: the user's id.
        settings: how messages are counted and recalled.
        key: the name by which other buffers find it; None: a new one.

    Attributes:
        path: of the store, absolute, if it is a file.
        owns_store: whether the store was opened here.
        chat_store: a chat store to which messages are also written, with the key there; None: there is none.
        lock: held while stored messages change.
        engine: the memory.
        built: the newest prompt, and what it was built for.
        last: the newest question, and the tokens that were sent besides.
        restored: whether the messages were read from data, because the memory that held them is gone.
    """

    def __init__(
        self, store: StoreLike, *, session_id: str, user_id: str | None, settings: Settings, key: str | None = None
    ) -> None:
        self.key = key or uuid.uuid4().hex
        self.path = _file(store)
        self.settings = settings
        self.counter = settings.counter
        self.lock = fork_safe_lock()
        self.chat_store: tuple[BaseChatStore, str] | None = None
        self.last: tuple[str | ChatMessage | QueryBundle | None, int] = (None, 0)
        self.closed = False
        self.restored = False
        self._dumped: tuple[Any, list[dict[str, Any]]] = (None, [])
        self._originals: dict[str, ChatMessage] = {}
        self._live: tuple[str, ChatMessage] | None = None
        self.built: tuple[Any, Context] | None = None
        self.size = lru_cache(maxsize=REMEMBERED_SIZES)(partial(body_tokens, counter=self.counter))
        arguments = settings.arguments()
        self.owns_store = not isinstance(store, Store)
        self.store = open_store(self.path or store, durability=settings.engine.get("durability", "full"))
        self._release = weakref.finalize(self, self.store.close) if self.owns_store else None
        try:
            self.engine = InfiniteMemory(self.store, session_id=session_id, user_id=user_id, **arguments)
            check_out_main_line(self.engine)
        except BaseException:
            self._close_store()
            raise

    @property
    def memory(self) -> InfiniteMemory:
        """The engine; it returns to its main line if others have erased its branch."""
        branch = self.engine.branch
        if branch not in (None, MAIN) and branch not in {known.name for known in self.engine.branches()}:
            with self.lock:
                check_out_main_line(self.engine)
        return self.engine

    @property
    def in_memory(self) -> bool:
        """Whether the messages are lost when the process ends."""
        return self.owns_store and self.path is None

    # Storing

    def stored_form(self, message: ChatMessage) -> Message:
        """Return a message as the engine takes it."""
        read, lost = read_message(message, self.settings.media)
        if lost and not self.in_memory:
            warnings.warn(f"ChatMessage: stored without {', '.join(lost)}", UnstorableWarning, stacklevel=5)
        return read

    def add(self, messages: Iterable[ChatMessage]) -> None:
        """Store messages at the end, in one transaction."""
        given = list(messages)
        converted = [self.stored_form(message) for message in given]
        with self.lock:
            stored = self.memory.add(converted)
        for message, original in zip(stored, given, strict=True):
            self._keep(message, original)

    def replace(self, messages: Iterable[ChatMessage]) -> None:
        """Make these messages the conversation; messages that differ from them stay on their branch."""
        given = list(messages)
        with self.lock:
            stored = list(self.memory.messages(replaced=True))
            count = _common_start(stored, given, self.whole)
            if count < len(stored):
                _fork_main_line(self.memory, self.store, stored[:count])
            if count < len(given):
                self.add(given[count:])

    def branch(self, name: str, at: str | int | None) -> None:
        """Create a branch and check it out; `at` is a reference, or the number of messages that it begins with."""
        with self.lock:
            if not isinstance(at, int):
                self.memory.fork(name, at)
                return
            first = list(islice(self.memory.messages(replaced=True), at)) if at > 0 else []
            if at < 0 or len(first) < at:
                raise UnknownReferenceError(f"at={at}: this branch has fewer messages")
            _fork_after(self.memory, self.store, name, first)

    def write_through(
        self, chat_store: BaseChatStore, key: str, *, instead: Sequence[ChatMessage] | None = None
    ) -> None:
        """Import the messages of a chat store, and write all further ones to it, too.

        Args:
            chat_store: any chat store.
            key: the conversation's key there.
            instead: messages that replace those in the chat store first.
        """
        if instead is not None:
            chat_store.set_messages(key, [copied(message) for message in instead])
        held = list(chat_store.get_messages(key))
        if held or instead is not None:
            self.replace(held)
        self.chat_store = chat_store, key

    def _keep(self, stored: Message, given: ChatMessage) -> None:
        """Keep the original of a message that cannot be restored equal, such as one with objects in its kwargs."""
        built = to_message(stored.whole)
        streams = any(map(_has_stream, given.blocks))
        if stored.id is None or same(built.model_copy(update={"blocks": given.blocks} if streams else {}), given):
            return
        original = copied(given)
        if streams:
            original.blocks = built.blocks
        self._originals[stored.id] = original

    # Reading

    def whole(self, stored: Message) -> ChatMessage:
        """Return a copy of a message as it was put."""
        original = self._originals.get(stored.id or "")
        return copied(original) if original is not None else to_message(stored.whole)

    def sent(self, message: Message) -> ChatMessage:
        """Return a message of a prompt, which may hold less text than was put, or more."""
        original = self._originals.get(message.id or "")
        if original is not None and (original.content or "") == message.content and message.grounding is None:
            shown = copied(original)
            shown.additional_kwargs.pop(GROUNDING, None)  # no provider's API knows it
            return shown
        return to_message(message)

    def live(self, stored: Message) -> ChatMessage:
        """Return the newest user message, always the same object, because agents write their state into it."""
        if self._live is None or self._live[0] != stored.id:
            self._live = (stored.id or "", self.whole(stored))
        return self._live[1]

    def live_text(self, stored: Message) -> str:
        """Return the text of the newest user message, with what an agent has written into it."""
        if self._live is not None and self._live[0] == stored.id:
            return self._live[1].content or ""
        return stored.whole.content

    def dump(self) -> list[dict[str, Any]]:
        """Return the messages of this branch as JSON data; each message is dumped once and then remembered."""
        with self.lock:
            forgotten = 0 if self.owns_store else self.memory.stats()["forgotten"]  # by others who share the store
            state = (self.memory.branch, forgotten)
            known, dumped = self._dumped
            dumped = dumped if known == state else []
            count, new = 1, self.memory.newest(1)
            while dumped and new and new[0].id != dumped[-1]["id"] and len(new) == count:
                count *= 2
                new = self.memory.newest(count)
            ids = [message.id for message in new]
            if dumped and dumped[-1]["id"] in ids:
                new = new[ids.index(dumped[-1]["id"]) + 1 :]
            else:
                dumped, new = [], list(self.memory.messages(replaced=True))
            dumped = [*dumped, *(message.model_dump(mode="json", exclude_defaults=True) for message in new)]
            self._dumped = (state, dumped)
            return list(dumped)

    # End of use

    def forget(self) -> None:
        """Erase the session everywhere."""
        with self.lock:
            self.engine.forget(session=True)
            self._originals.clear()
            self._live = self.built = None
            self._dumped = (None, [])

    def close(self) -> None:
        """Save the index, and release the store if it was opened here; closing twice is allowed."""
        self.closed = True
        try:
            self.engine.close()
        finally:
            self._close_store()

    def _close_store(self) -> None:
        if self._release is not None:
            self._release()


def _file(store: StoreLike) -> str | None:
    """Return the absolute path of the file that a store is; None if it is not a file, or named by another address."""
    if store is None or isinstance(store, Store):
        return None
    name = str(store).removeprefix("sqlite:///") if isinstance(store, str) else str(store)
    return None if name == ":memory:" or "://" in name else str(Path(name).expanduser().absolute())


def copied(message: ChatMessage) -> ChatMessage:
    """Return a copy that shares nothing with the message, except objects that cannot be copied."""
    try:
        return copy.deepcopy(message)
    except Exception:  # copying an unknown object may raise anything
        kwargs = {name: _copied(value) for name, value in message.additional_kwargs.items()}
        return message.model_copy(
            update={"blocks": [_copied(block) for block in message.blocks], "additional_kwargs": kwargs}
        )


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # as above
        return value


def _has_stream(block: Any) -> bool:
    return any(hasattr(value, "seek") for value in vars(block).values())


# Branches


def check_out_main_line(memory: InfiniteMemory) -> None:
    """Check out the newest branch of the main line: `main`, or the last one that `replace` created."""
    names = [branch.name for branch in memory.branches() if _MAIN_LINE.fullmatch(branch.name)]
    if names and names[-1] != memory.branch:
        memory.checkout(names[-1])


def _fork_main_line(memory: InfiniteMemory, store: Store, kept: Sequence[Message]) -> None:
    """Create and check out the next branch of the main line (`main-2` and so on), which begins with `kept`."""
    taken = {branch.name for branch in memory.branches()}
    number = next(number for number in range(2, len(taken) + 3) if f"{MAIN}-{number}" not in taken)
    _fork_after(memory, store, f"{MAIN}-{number}", kept)


def _fork_after(memory: InfiniteMemory, store: Store, name: str, kept: Sequence[Message]) -> None:
    """Create a branch that begins with the given messages, the first ones of this branch, and check it out.

    Raises:
        DuplicateError: the name is taken.
    """
    if kept:
        memory.fork(name, at=kept[-1].id)
        return
    key = store.session(memory.user_id, memory.session_id)
    first = next(iter(memory.messages(replaced=True)), None)
    if key is None or first is None or first.id is None:
        memory.fork(name)
        return
    (record,) = store.get(key, [first.id])
    store.change(key, [Create(name, Position(record.position.segment, -1))])
    memory.checkout(name)


def _common_start(
    stored: Sequence[Message], given: Sequence[ChatMessage], shown: Callable[[Message], ChatMessage]
) -> int:
    """Return how many leading messages are the same."""
    pairs = zip(stored, given, strict=False)
    return sum(1 for _ in takewhile(lambda pair: same(shown(pair[0]), pair[1]), pairs))


def newest_turn(memory: InfiniteMemory) -> list[Message]:
    """Return the newest user message of the branch and its replies; empty if there is no user message."""
    size = FIRST_READ
    while True:
        newest = memory.newest(size)
        asked = next((message for message in reversed(newest) if message.role == "user"), None)
        if asked is not None:
            return [message for message in newest if message.turn_id == asked.turn_id]
        if len(newest) < size:
            return []
        size *= 2
