"""InfiniteChatStore: a chat store for LlamaIndex that keeps every message, for memories that take one."""

import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
from llama_index.core.storage.chat_store.loading import RECOGNIZED_CHAT_STORES
from pydantic import PrivateAttr, SerializationInfo, SerializerFunctionWrapHandler, model_serializer

from llama_index_infinite_memory.conversation import CallQueue, Conversation
from llama_index_infinite_memory.open_stores import OpenStore, StoreLike, reopened_store, shared_store
from llama_index_infinite_memory.settings import Settings
from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.records import MAIN
from shared_core.runtime.forks import Depth, fork_safe_lock

__all__ = ["InfiniteChatStore"]

DEFAULT_PERSIST_PATH = "chat_store.json"
"""The file that `persist` writes by default, as `SimpleChatStore` does."""

IN_USE = 64
"""The number of conversations that stay ready to use, those used last."""


@cache
def _settings() -> Settings:
    """Return the settings of all conversations: nothing is asked here; the buffer that asks embeds what it finds."""
    return Settings(embed_model="words")


class InfiniteChatStore(BaseChatStore):
    """A chat store whose conversations are sessions of infinite-memory, one for each key.

    A `ChatMemoryBuffer` with it, or any other memory that takes a chat store, keeps its conversations in a file, where
    an `InfiniteChatMemoryBuffer` with the key as its `session_id` recalls from them. What is set anew or deleted leaves
    the conversation, and stays on a branch of its own; `forget` erases.

    Several chat stores, threads and processes may share a file. Close it if its store is a file.

    Args:
        store: a path (SQLite), a `Store`, or None: in memory.
        user_id: the user whose conversations these are.

    Raises:
        StoreError: the store cannot be opened.
    """

    user_id: str | None = None
    _opened: OpenStore | None = PrivateAttr(default=None)
    _conversations: "OrderedDict[str, Conversation]" = PrivateAttr(default_factory=OrderedDict)
    _lock: Any = PrivateAttr(default_factory=partial(fork_safe_lock, Depth.CHAT_STORE))
    _calls: CallQueue = PrivateAttr()

    def __init__(self, store: StoreLike | OpenStore = None, *, user_id: str | None = None) -> None:
        super().__init__(user_id=user_id)  # type: ignore[call-arg]
        self._opened = shared_store(store)
        self._calls = CallQueue(self._opened.store)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes it."""
        return "InfiniteChatStore"

    # The protocol of BaseChatStore

    def set_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        """Make these messages the conversation of a key, but for what was forgotten in it; see `set` of a buffer."""
        with self._used(key) as conversation:
            conversation.set(messages)

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return copies of the messages of a key; none if it is not known."""
        with self._used(key) as conversation:
            return conversation.all()

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Store a message at the end; with `idx`, before the message of this index."""
        with self._used(key) as conversation:
            if idx is None:
                conversation.add([message])
                return
            messages = conversation.all()
            messages.insert(idx, message)
            conversation.replace(messages)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Empty a conversation and return its messages; None if it was empty."""
        with self._used(key) as conversation:
            messages = conversation.all()
            conversation.replace([])
            return messages or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take a message out of a conversation and return it; None if there is none of this index."""
        with self._used(key) as conversation:
            messages = conversation.all()
            if not -len(messages) <= idx < len(messages):
                return None
            deleted = messages.pop(idx)
            conversation.replace(messages)
            return deleted

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the last message out of a conversation and return it; None if it is empty."""
        return self.delete_message(key, -1)

    def get_keys(self) -> list[str]:
        """Return the keys of all conversations that hold messages, the oldest first."""
        store = self.opened.store
        heads = [(name, key, store.state(key, MAIN).head) for key, _, name in store.sessions(self.user_id)]
        return [name for name, key, head in heads if head is not None and store.newest(key, head, 1)]

    async def aset_messages(self, key: str, messages: Sequence[ChatMessage]) -> None:
        """Do what `set_messages` does without blocking the event loop; calls have their effect in their order."""
        await self._calls.run(self.set_messages, key, list(messages))

    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Do what `add_message` does without blocking the event loop; calls have their effect in their order."""
        await self._calls.run(self.add_message, key, message, idx)

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """Do what `get_messages` does without blocking the event loop; calls have their effect in their order."""
        return await self._calls.run(self.get_messages, key)

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """Do what `delete_messages` does without blocking the event loop; calls have their effect in their order."""
        return await self._calls.run(self.delete_messages, key)

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Do what `delete_message` does without blocking the event loop; calls have their effect in their order."""
        return await self._calls.run(self.delete_message, key, idx)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """Do what `delete_last_message` does without blocking the event loop; calls keep their order."""
        return await self._calls.run(self.delete_last_message, key)

    async def aget_keys(self) -> list[str]:
        """Do what `get_keys` does without blocking the event loop; calls have their effect in their order."""
        return await self._calls.run(self.get_keys)

    # Beyond the protocol

    def forget(self, key: str) -> None:
        """Erase a conversation, with everything that was set anew or deleted in it before.

        Raises:
            UnknownReferenceError: there never was a conversation of this key.
        """
        with self._used(key) as conversation:
            if conversation.session is None:
                raise UnknownReferenceError(f"no conversation {key!r}: get_keys() lists those that there are")
            conversation.memory.forget(session=True)

    def persist(self, persist_path: str = DEFAULT_PERSIST_PATH, fs: Any = None) -> None:
        """Write all conversations to a JSON file as `SimpleChatStore` does, whose `from_persist_path` reads it.

        Args:
            persist_path: the file.
            fs: an fsspec file system that it is in; None: this machine's.
        """
        said = {key: [message.model_dump(mode="json") for message in self.get_messages(key)] for key in self.get_keys()}
        if fs is None:
            os.makedirs(os.path.dirname(os.path.abspath(persist_path)), exist_ok=True)
        with (open if fs is None else fs.open)(persist_path, "w") as file:
            json.dump({"store": said, "class_name": "SimpleChatStore"}, file)

    @classmethod
    def from_persist_path(
        cls, persist_path: str = DEFAULT_PERSIST_PATH, fs: Any = None, *, store: StoreLike = None,
        user_id: str | None = None,
    ) -> Self:  # fmt: skip
        """Return a chat store with the conversations of a JSON file that `persist` or `SimpleChatStore` wrote.

        What is kept in a database needs no such file: open it by `InfiniteChatStore(path)`.

        Args:
            persist_path: the file; without it, the chat store is empty, as LlamaIndex's is.
            fs: an fsspec file system that it is in; None: this machine's.
            store: where they are kept from now on, as for `InfiniteChatStore`.
            user_id: the user whose conversations these are.
        """
        loaded = cls(store, user_id=user_id)
        for key, messages in SimpleChatStore.from_persist_path(persist_path, fs).store.items():
            loaded.set_messages(key, messages)
        return loaded

    def close(self) -> None:
        """Let go of the store; closing twice is allowed."""
        with self._lock:
            self._opened = None
            self._conversations.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def opened(self) -> OpenStore:
        """The store in use.

        Raises:
            StoreError: the chat store is closed.
        """
        if self._opened is None:
            raise StoreError("this chat store is closed; open another one")
        return self._opened

    @contextmanager
    def _used(self, key: str) -> Iterator[Conversation]:
        with self._lock:
            found = self._conversations.pop(key, None)
            if found is None:
                found = Conversation(self.opened, session_id=key, user_id=self.user_id, settings=_settings())
            self._conversations[key] = found
            if len(self._conversations) > IN_USE:
                self._conversations.popitem(last=False)  # another thread may still use it
        with found.lock:
            yield found

    # JSON and copies, which lead back to the same store

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Return JSON data that names the store, not what it holds."""
        return {**handler(self), "store": self.opened.address, "class_name": self.class_name()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, store: StoreLike = None) -> Self:  # type: ignore[override]
        """Return a chat store of the conversations of the one that `to_dict` was called on.

        Args:
            data: what `to_dict` returned; not changed.
            store: the store, if the file was moved, or was none.

        Raises:
            StoreError: its file is gone or cannot be opened, or it had none and is closed.
        """
        return cls(reopened_store(store or data["store"]), user_id=data["user_id"])

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.model_dump(mode="json"),)


# `ChatMemoryBuffer` reads this table when it is restored, for instance whenever an agent uses its context again.
RECOGNIZED_CHAT_STORES[InfiniteChatStore.class_name()] = InfiniteChatStore  # type: ignore[assignment]
