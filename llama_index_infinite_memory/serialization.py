"""Buffers as JSON data, pickles and copies, which all lead back to the same conversation."""

import json
import pickle
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Self, cast

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseMemory
from llama_index.core.storage.chat_store import BaseChatStore
from llama_index.core.storage.chat_store.loading import load_chat_store
from pydantic import (
    Field,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from llama_index_infinite_memory.conversation import Conversation
from llama_index_infinite_memory.settings import Settings, Tokenizer, refuse_unknown
from shared_core.errors import UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import MAIN
from shared_core.store import Store

_stores: "weakref.WeakValueDictionary[str, Store]" = weakref.WeakValueDictionary()
_conversations: "weakref.WeakValueDictionary[str, Conversation]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


class SerializableBuffer(BaseMemory):
    """A buffer of a conversation, without the operations on it.

    Copies, pickles and the result of `from_dict(to_dict())` share the conversation while it is in use in this process.
    Elsewhere, they open its file again; the messages of a conversation without a file are part of the data.

    Attributes:
        token_limit: the most that `get` returns; may be changed.
        chat_store_key: the key in `chat_store`, and the session's id unless one is given.
        session_id: the session's id.
        user_id: the user's id.
    """

    token_limit: int
    chat_store_key: str = Field(default=DEFAULT_CHAT_STORE_KEY, frozen=True)
    session_id: str = Field(frozen=True)
    user_id: str | None = Field(default=None, frozen=True)
    _conversation: Conversation = PrivateAttr()

    def __init__(
        self, *, conversation: Conversation | None = None, tokenizer_fn: Tokenizer | None = None,
        chat_store: BaseChatStore | None = None, **data: Any,
    ) -> None:  # fmt: skip
        super().__init__(**data)
        if conversation is None:
            settings = Settings.of(tokenizer_fn, None, None, {})
            conversation = register(
                Conversation(None, session_id=self.session_id, user_id=self.user_id, settings=settings)
            )
        self._conversation = conversation
        if chat_store is not None:
            conversation.write_through(chat_store, self.chat_store_key)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("token_limit", -1) < 1:
            hint = " Pass token_limit instead of max_tokens." if "max_tokens" in values else ""
            raise ValueError(f"Token limit must be set and greater than 0.{hint}")
        key = values.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        return {**values, "session_id": key if values.get("session_id") is None else values["session_id"]}

    @property
    def tokenizer_fn(self) -> Tokenizer:
        """The tokenizer."""
        return self._conversation.settings.tokenizer_fn

    @property
    def chat_store(self) -> BaseChatStore | None:
        """The chat store to which messages are also written."""
        return self._conversation.chat_store[0] if self._conversation.chat_store else None

    # JSON

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return JSON data that names the conversation; if it has no file, with the messages of this branch."""
        names = {"session_id": self.session_id, "user_id": self.user_id, "chat_store_key": self.chat_store_key}
        return {
            "token_limit": self.token_limit, **names, **reference(self._conversation), "class_name": self.class_name()
        }  # fmt: skip

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Return `to_dict()`."""
        return self.to_dict()

    def to_json(self, **kwargs: Any) -> str:
        """Return `to_dict()` as JSON text."""
        return json.dumps(self.to_dict())

    def to_string(self) -> str:
        """Return `to_dict()` as JSON text."""
        return self.to_json()

    @classmethod
    def from_string(cls, json_str: str, **kwargs: Any) -> Self:
        """Return a buffer of the conversation that `to_string` was called on."""
        return cls.from_dict(json.loads(json_str), **kwargs)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> Self:
        """Return a buffer of the conversation that `to_dict` was called on.

        Data that `ChatMemoryBuffer` wrote is imported, in its present form or its old one.

        Args:
            data: what `to_dict` returned; not changed.
            kwargs: `tokenizer_fn`, `embed_model`, `strippers` and other settings, in case the conversation is no longer
                in use; for data of `ChatMemoryBuffer`, any argument of `from_defaults`.

        Raises:
            ValueError: the data has no `token_limit`, or an argument is unknown.
            StoreError: the conversation's file cannot be opened.
        """
        key = data.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        limit = data.get("token_limit", -1)
        if "attached" not in data:
            given = {"chat_history": upstream_messages(data, key), "token_limit": limit, "chat_store_key": key}
            return cast(Self, cls.from_defaults(**{**given, **kwargs}))
        refuse_unknown(kwargs, known=("tokenizer_fn", "embed_model", "strippers"))
        session_id, user_id = data["session_id"], data.get("user_id")
        conversation = restore(data, session_id, user_id, kwargs)
        return cls(
            conversation=conversation, token_limit=limit, chat_store_key=key, session_id=session_id, user_id=user_id
        )

    # Copies

    def __copy__(self) -> Self:
        return type(self)(
            conversation=self._conversation, token_limit=self.token_limit, chat_store_key=self.chat_store_key,
            session_id=self.session_id, user_id=self.user_id,
        )  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self._conversation.settings
        kwargs = {"tokenizer_fn": settings.tokenizer_fn, "embed_model": settings.embed_model}
        return _unpickled, (type(self), self.to_dict(), {name: v for name, v in kwargs.items() if _pickles(v)})

    def __bool__(self) -> bool:
        return True  # engines say `memory or Memory.from_defaults()`, which must not replace an empty buffer

    def __eq__(self, other: object) -> bool:
        """Return whether both share one conversation and have the same limit."""
        if not isinstance(other, SerializableBuffer):
            return NotImplemented
        return self._conversation is other._conversation and self.token_limit == other.token_limit

    __hash__ = None  # type: ignore[assignment]  # the limit may change


def _unpickled(cls: type[SerializableBuffer], data: dict[str, Any], kwargs: dict[str, Any]) -> SerializableBuffer:
    return cls.from_dict(data, **kwargs)


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # pickling an unknown object may raise anything
        return False
    return value is not None


# Conversations in use


def register(conversation: Conversation) -> Conversation:
    """Let `restore` find a conversation for as long as it is in use."""
    with _lock:
        _conversations[conversation.key] = conversation
        if not conversation.owns_store:
            _stores[conversation.key] = conversation.store
    return conversation


def reference(conversation: Conversation) -> dict[str, Any]:
    """Return JSON data that names a conversation, with its messages if they would be lost with this process."""
    with conversation.lock:
        newest = conversation.memory.newest(1)
        data: dict[str, Any] = {
            "attached": conversation.key,
            "store": conversation.path,
            "branch": conversation.memory.branch,
            "head": newest[0].id if newest else None,
            "settings": conversation.settings.to_dict(),
        }
        if conversation.path is None:
            data["messages"] = conversation.dump()
    return data


def restore(
    data: Mapping[str, Any], session_id: str, user_id: str | None, overrides: Mapping[str, Any]
) -> Conversation:
    """Return the conversation that `reference` was called on.

    It is the one in use, or its file is opened again, or it is made anew of the messages in the data.

    Args:
        data: what `reference` returned.
        session_id: the session's id.
        user_id: the user's id.
        overrides: settings that data cannot hold, such as a model, in case the conversation is no longer in use.

    Raises:
        StoreError: its file cannot be opened.
    """
    with _lock:
        found = _conversations.get(str(data.get("attached")))
        given = _stores.get(str(data.get("attached")))
    if found is not None and not found.closed and _holds(found, data):
        return found
    settings = Settings.from_dict(data.get("settings") or {}, overrides)
    key = str(data["attached"]) if data.get("attached") and found is None else None
    opened = Conversation(
        given or data.get("store"), session_id=session_id, user_id=user_id, settings=settings, key=key
    )
    if opened.in_memory:
        messages = [Message.model_validate(message) for message in data.get("messages") or ()]
        opened.memory.add([message.replace(turn_id=None) for message in messages])
        opened.restored = True
    elif (ref := data.get("branch") or data.get("head")) not in (None, MAIN):
        _check_out(opened, str(ref))
    return register(opened)


def _holds(found: Conversation, data: Mapping[str, Any]) -> bool:
    """Return whether a conversation continues the data: two states of a lost one may be read, in any order."""
    if not found.restored or data.get("head") is None:
        return True
    try:
        found.memory.get(str(data["head"]))
    except UnknownReferenceError:
        return False
    return True


def _check_out(opened: Conversation, ref: str) -> None:
    try:
        opened.memory.checkout(ref)
    except UnknownReferenceError:  # forgotten since, so the main line stays checked out
        return


def upstream_messages(data: Mapping[str, Any], key: str) -> list[ChatMessage] | None:
    """Return the messages in data that `ChatMemoryBuffer` wrote, in its present form or its old one; None if none.

    Raises:
        ValueError: it names a chat store that `ChatMemoryBuffer` does not read either.
    """
    if "chat_history" in data:
        return [ChatMessage.model_validate(message) for message in data["chat_history"]]
    if "chat_store" in data:
        return list(load_chat_store(dict(data["chat_store"])).get_messages(key))
    return None
