"""What handles of one memory share: the engine, what it cannot keep, and the message that is handed out live."""

import copy
import uuid
import warnings
import weakref
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store import BaseChatStore

from llama_index_infinite_memory.line import begin_anew, common_start, fork_after, stand_on_main_line
from llama_index_infinite_memory.messages import UnstorableWarning, read_message, same, to_message
from llama_index_infinite_memory.settings import Settings
from llama_index_infinite_memory.strippers import rejoin, strip
from shared_core.engine import InfiniteMemory
from shared_core.errors import UnknownReferenceError
from shared_core.locks import fork_safe_lock
from shared_core.messages import Message
from shared_core.prompt.context import Context
from shared_core.records import MAIN
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tokens import body_tokens

__all__ = ["Attached", "StoreLike", "copied"]

StoreLike = Store | str | Path | None

REMEMBERED_SIZES = 4_096
"""Messages whose size is remembered."""


class Attached:
    """One memory in use.

    Args:
        store: a path, a `Store`, or None: in memory.
        session_id: which conversation.
        user_id: whose.
        settings: how it is counted and recalled.
        key: the name by which other handles find it; None: a new one.

    Attributes:
        path: of the store, absolute, if that is a file.
        owns_store: whether the store was opened here.
        chat_store: where messages are written, too, with the key there; None: nowhere.
        lock: held while what is stored changes.
        engine: the memory.
        built: the prompt built last, and what it was built for.
        last: the question asked last, and what was sent besides.
        restored: whether the messages were read from data, because the memory they were in is gone.
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
        self.last: tuple[str | ChatMessage | None, int] = (None, 0)
        self.closed = False
        self.restored = False
        self._written: tuple[Any, list[dict[str, Any]]] = (None, [])
        self._kept: dict[str, ChatMessage] = {}
        self._live: tuple[str, ChatMessage] | None = None
        self.built: tuple[Any, Context] | None = None
        self.size = lru_cache(maxsize=REMEMBERED_SIZES)(partial(body_tokens, counter=self.counter))
        arguments = settings.arguments()
        self.owns_store = not isinstance(store, Store)
        self.store = open_store(self.path or store, durability=settings.engine.get("durability", "full"))
        self._release = weakref.finalize(self, self.store.close) if self.owns_store else None
        try:
            self.engine = InfiniteMemory(self.store, session_id=session_id, user_id=user_id, **arguments)
            stand_on_main_line(self.engine)
        except BaseException:
            self._close_store()
            raise

    @property
    def memory(self) -> InfiniteMemory:
        """The engine, on its main line again if its branch was erased by others."""
        branch = self.engine.branch
        if branch not in (None, MAIN) and branch not in {known.name for known in self.engine.branches()}:
            with self.lock:
                stand_on_main_line(self.engine)
        return self.engine

    @property
    def in_memory(self) -> bool:
        """Whether the messages are gone with this process."""
        return self.owns_store and self.path is None

    # Storing

    def neutral(self, message: ChatMessage) -> Message:
        """Return a message as it is stored, without text that serves one turn only."""
        read, lost = read_message(message)
        if lost and not self.in_memory:
            warnings.warn(f"ChatMessage: stored without {', '.join(lost)}", UnstorableWarning, stacklevel=5)
        return strip(read, self.settings.strippers)

    def add(self, messages: Iterable[ChatMessage]) -> None:
        """Store messages at the end, in one transaction."""
        given = list(messages)
        neutral = [self.neutral(message) for message in given]
        with self.lock:
            stored = self.memory.add(neutral)
        for message, kept in zip(stored, given, strict=True):
            self._keep(message, kept)

    def replace(self, messages: Iterable[ChatMessage]) -> None:
        """Have the conversation be these messages; where it was another, that stays on its branch."""
        given = list(messages)
        with self.lock:
            stored = list(self.memory.messages())
            same = common_start(stored, given, self.whole)
            if same < len(stored):
                begin_anew(self.memory, self.store, stored[:same])
            if same < len(given):
                self.add(given[same:])

    def branch(self, name: str, at: str | int | None) -> None:
        """Open a branch and stand on it; `at` is a place, or how many messages of this one it has."""
        with self.lock:
            if not isinstance(at, int):
                self.memory.fork(name, at)
                return
            kept = list(islice(self.memory.messages(), at)) if at > 0 else []
            if at < 0 or len(kept) < at:
                raise UnknownReferenceError(f"at={at}: this branch has not so many messages")
            fork_after(self.memory, self.store, name, kept)

    def write_through(
        self, chat_store: BaseChatStore, key: str, *, instead: Sequence[ChatMessage] | None = None
    ) -> None:
        """Import what a chat store holds, and have everything written there, too.

        Args:
            chat_store: any.
            key: of the conversation there.
            instead: the conversation, replacing what it holds.
        """
        if instead is not None:
            chat_store.set_messages(key, [copied(message) for message in instead])
        held = list(chat_store.get_messages(key))
        if held or instead is not None:
            self.replace(held)
        self.chat_store = chat_store, key

    def _keep(self, stored: Message, given: ChatMessage) -> None:
        """Keep what the store cannot give back equal, such as objects in `additional_kwargs`."""
        built = to_message(rejoin(stored))
        streams = any(map(_has_stream, given.blocks))
        if stored.id is None or same(built.model_copy(update={"blocks": given.blocks} if streams else {}), given):
            return
        kept = copied(given)
        if streams:
            kept.blocks = built.blocks
        self._kept[stored.id] = kept

    # Handing out

    def whole(self, stored: Message) -> ChatMessage:
        """Return a stored message as it was put, as a copy."""
        kept = self._kept.get(stored.id or "")
        return copied(kept) if kept is not None else to_message(rejoin(stored))

    def sent(self, message: Message) -> ChatMessage:
        """Return a message of a prompt, which need not say all that was put."""
        kept = self._kept.get(message.id or "")
        if kept is not None and (kept.content or "") == message.content:
            return copied(kept)
        return to_message(message)

    def live(self, stored: Message) -> ChatMessage:
        """Return the newest user message, the same object every time, so that what an agent writes into it stays."""
        if self._live is None or self._live[0] != stored.id:
            self._live = (stored.id or "", self.whole(stored))
        return self._live[1]

    def written(self, stored: Message) -> str:
        """Return the text of the newest user message as it is handed out."""
        if self._live is not None and self._live[0] == stored.id:
            return self._live[1].content or ""
        return rejoin(stored).content

    def written_out(self) -> list[dict[str, Any]]:
        """Return the messages of this branch as JSON data; each is written once."""
        with self.lock:
            forgotten = 0 if self.owns_store else self.memory.stats()["forgotten"]  # by others, through their object
            state = (self.memory.branch, forgotten)
            known, written = self._written
            written = written if known == state else []
            count, new = 1, self.memory.newest(1)
            while written and new and new[0].id != written[-1]["id"] and len(new) == count:
                count *= 2
                new = self.memory.newest(count)
            ids = [message.id for message in new]
            if written and written[-1]["id"] in ids:
                new = new[ids.index(written[-1]["id"]) + 1 :]
            else:
                written, new = [], list(self.memory.messages())
            written = [*written, *(message.model_dump(mode="json", exclude_defaults=True) for message in new)]
            self._written = (state, written)
            return list(written)

    # Life

    def forget(self) -> None:
        """Erase the session everywhere."""
        with self.lock:
            self.engine.forget(session=True)
            self._kept.clear()
            self._live = self.built = None
            self._written = (None, [])

    def close(self) -> None:
        """Keep what was indexed and release the store, if it was opened here; closing twice is fine."""
        self.closed = True
        try:
            self.engine.close()
        finally:
            self._close_store()

    def _close_store(self) -> None:
        if self._release is not None:
            self._release()


def _file(store: StoreLike) -> str | None:
    """Return the absolute path of the file that is named; None if no file is, or by an address of another kind."""
    if store is None or isinstance(store, Store):
        return None
    name = str(store).removeprefix("sqlite:///") if isinstance(store, str) else str(store)
    return None if name == ":memory:" or "://" in name else str(Path(name).expanduser().absolute())


def copied(message: ChatMessage) -> ChatMessage:
    """Return a copy that shares nothing, or, where an object cannot be copied, as little as possible."""
    try:
        return copy.deepcopy(message)
    except Exception:  # what an unknown object raises when it is copied is not known
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
