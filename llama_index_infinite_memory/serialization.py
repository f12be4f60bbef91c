"""What a buffer is as an object: a light handle of a memory, that copies, pickles and JSON lead back to."""

import json
import pickle
from collections.abc import Mapping
from typing import Any, Self, cast

from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY, BaseMemory
from llama_index.core.storage.chat_store import BaseChatStore
from pydantic import (
    Field,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from llama_index_infinite_memory.attaching import attach, reference, register, upstream_messages
from llama_index_infinite_memory.conversation import Attached
from llama_index_infinite_memory.settings import Settings, Tokenizer, refuse_unknown

__all__ = ["Handle"]


class Handle(BaseMemory):
    """One of any number of handles of a memory.

    A copy, a pickle and what `from_dict` makes of `to_dict` are handles of the same memory while it is in use in this
    process. Elsewhere they open its file again; a memory that has no file goes along in the data.

    Attributes:
        token_limit: for everything that is sent; may be changed.
        chat_store_key: the key in `chat_store`, and the session's name where it is given no other.
        session_id: which conversation.
        user_id: whose.
    """

    token_limit: int
    chat_store_key: str = Field(default=DEFAULT_CHAT_STORE_KEY, frozen=True)
    session_id: str = Field(frozen=True)
    user_id: str | None = Field(default=None, frozen=True)
    _attached: Attached = PrivateAttr()

    def __init__(
        self, *, attached: Attached | None = None, tokenizer_fn: Tokenizer | None = None,
        chat_store: BaseChatStore | None = None, **data: Any,
    ) -> None:  # fmt: skip
        super().__init__(**data)
        if attached is None:
            settings = Settings.of(tokenizer_fn, None, None, {})
            attached = register(Attached(None, session_id=self.session_id, user_id=self.user_id, settings=settings))
        self._attached = attached
        if chat_store is not None:
            attached.write_through(chat_store, self.chat_store_key)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("token_limit", -1) < 1:
            raise ValueError("Token limit must be set and greater than 0.")
        key = values.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        return {**values, "session_id": key if values.get("session_id") is None else values["session_id"]}

    @property
    def tokenizer_fn(self) -> Tokenizer:
        """What counts tokens."""
        return self._attached.settings.tokenizer_fn

    @property
    def chat_store(self) -> BaseChatStore | None:
        """Where messages are written, too."""
        return self._attached.chat_store[0] if self._attached.chat_store else None

    # JSON

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return as JSON data where the memory is; one that has no file is written out, as far as this branch goes."""
        place = {"session_id": self.session_id, "user_id": self.user_id, "chat_store_key": self.chat_store_key}
        return {
            "token_limit": self.token_limit, **place, **reference(self._attached), "class_name": self.class_name()
        }  # fmt: skip

    @model_serializer(mode="wrap")
    def custom_model_dump(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Dump what `to_dict` returns."""
        return self.to_dict()

    def to_json(self, **kwargs: Any) -> str:
        """Return `to_dict()` as JSON text."""
        return json.dumps(self.to_dict())

    def to_string(self) -> str:
        """Return `to_dict()` as JSON text."""
        return self.to_json()

    @classmethod
    def from_string(cls, json_str: str, **kwargs: Any) -> Self:
        """Return a handle of the memory that `to_string` was called on."""
        return cls.from_dict(json.loads(json_str), **kwargs)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **kwargs: Any) -> Self:
        """Return a handle of the memory that `to_dict` was called on.

        Data that `ChatMemoryBuffer` wrote is imported, in its present form or its old one.

        Args:
            data: what `to_dict` returned; not changed.
            kwargs: `tokenizer_fn`, `embed_model`, `strippers` and other settings, where the memory is not in use any
                more; for data of `ChatMemoryBuffer`, any argument of `from_defaults`.

        Raises:
            ValueError: the data has no `token_limit`, or an argument is unknown.
            StoreError: the memory's file cannot be opened.
        """
        key = data.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        limit = data.get("token_limit", -1)
        if "attached" not in data:
            given = {"chat_history": upstream_messages(data, key), "token_limit": limit, "chat_store_key": key}
            return cast(Self, cls.from_defaults(**{**given, **kwargs}))
        refuse_unknown(kwargs, known=("tokenizer_fn", "embed_model", "strippers"))
        session_id, user_id = data["session_id"], data.get("user_id")
        attached = attach(data, session_id, user_id, kwargs)
        return cls(attached=attached, token_limit=limit, chat_store_key=key, session_id=session_id, user_id=user_id)

    # Copies

    def __copy__(self) -> Self:
        return type(self)(
            attached=self._attached, token_limit=self.token_limit, chat_store_key=self.chat_store_key,
            session_id=self.session_id, user_id=self.user_id,
        )  # fmt: skip

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self._attached.settings
        kwargs = {"tokenizer_fn": settings.tokenizer_fn, "embed_model": settings.embed_model}
        return _unpickled, (type(self), self.to_dict(), {name: v for name, v in kwargs.items() if _pickles(v)})

    def __bool__(self) -> bool:
        return True  # `memory or Memory.from_defaults()`, as engines have it, must not replace an empty one

    def __eq__(self, other: object) -> bool:
        """Whether both are handles of one memory, with one limit."""
        if not isinstance(other, Handle):
            return NotImplemented
        return self._attached is other._attached and self.token_limit == other.token_limit

    __hash__ = None  # type: ignore[assignment]  # the limit may change


def _unpickled(cls: type[Handle], data: dict[str, Any], kwargs: dict[str, Any]) -> Handle:
    return cls.from_dict(data, **kwargs)


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # what an unknown object raises when it is pickled is not known
        return False
    return value is not None
