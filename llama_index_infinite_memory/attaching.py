"""A buffer as JSON data, and back to the memory it stands for: the one in use, its file, or what the data holds."""

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.loading import load_chat_store

from llama_index_infinite_memory.conversation import Attached
from llama_index_infinite_memory.settings import Settings
from shared_core.errors import UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import MAIN
from shared_core.store import Store

__all__ = ["attach", "reference", "register", "upstream_messages"]

_stores: "weakref.WeakValueDictionary[str, Store]" = weakref.WeakValueDictionary()
_attached: "weakref.WeakValueDictionary[str, Attached]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def register(attached: Attached) -> Attached:
    """Have `attach` find a memory for as long as somebody uses it."""
    with _lock:
        _attached[attached.key] = attached
        if not attached.owns_store:
            _stores[attached.key] = attached.store
    return attached


def reference(attached: Attached) -> dict[str, Any]:
    """Return as JSON data where a memory is; what would be gone with this process is written out."""
    with attached.lock:
        newest = attached.memory.newest(1)
        data: dict[str, Any] = {
            "attached": attached.key,
            "store": attached.path,
            "branch": attached.memory.branch,
            "head": newest[0].id if newest else None,
            "settings": attached.settings.to_dict(),
        }
        if attached.path is None:
            data["messages"] = attached.written_out()
    return data


def attach(data: Mapping[str, Any], session_id: str, user_id: str | None, overrides: Mapping[str, Any]) -> Attached:
    """Return the memory that `reference` gave the data for.

    Args:
        data: what `reference` returned.
        session_id: which conversation.
        user_id: whose.
        overrides: settings that data cannot hold, such as a model, for a memory that is not in use any more.

    Raises:
        StoreError: its file cannot be opened.
    """
    with _lock:
        found = _attached.get(str(data.get("attached")))
        given = _stores.get(str(data.get("attached")))
    if found is not None and not found.closed and _holds(found, data):
        return found
    settings = Settings.from_dict(data.get("settings") or {}, overrides)
    key = str(data["attached"]) if data.get("attached") and found is None else None
    opened = Attached(given or data.get("store"), session_id=session_id, user_id=user_id, settings=settings, key=key)
    if opened.in_memory:
        messages = [Message.model_validate(message) for message in data.get("messages") or ()]
        opened.memory.add([message.replace(turn_id=None) for message in messages])
        opened.restored = True
    elif (place := data.get("branch") or data.get("head")) not in (None, MAIN):
        _go_back(opened, str(place))
    return register(opened)


def _holds(found: Attached, data: Mapping[str, Any]) -> bool:
    """Return whether a memory goes on from the data: two states of one that is gone may be read, in any order."""
    if not found.restored or data.get("head") is None:
        return True
    try:
        found.memory.get(str(data["head"]))
    except UnknownReferenceError:
        return False
    return True


def _go_back(opened: Attached, place: str) -> None:
    try:
        opened.memory.checkout(place)
    except UnknownReferenceError:  # forgotten since: it stands on its main line
        return


def upstream_messages(data: Mapping[str, Any], key: str) -> list[ChatMessage] | None:
    """Return the messages of data that `ChatMemoryBuffer` wrote, in its present form or its old; None: it has none.

    Raises:
        ValueError: it names a chat store that `ChatMemoryBuffer` does not read either.
    """
    if "chat_history" in data:
        return [ChatMessage.model_validate(message) for message in data["chat_history"]]
    if "chat_store" in data:
        return list(load_chat_store(dict(data["chat_store"])).get_messages(key))
    return None
