"""References to a conversation as JSON data, and the way back to the state that a reference names."""

import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.loading import load_chat_store

from llama_index_infinite_memory.conversation import Conversation
from llama_index_infinite_memory.open_stores import OpenStore, StoreLike, shared_store
from llama_index_infinite_memory.settings import Settings, written_settings
from shared_core.errors import StoreError, UnknownReferenceError, warn
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.stores import store_exists

__all__ = ["RestoreWarning"]

KEPT = 1_000
"""The number of conversations, those opened last, whose settings this process keeps for `restore`."""

REFERENCE = ("attached", "owner", "store", "branch", "head", "settings", "left_out", "messages")
"""The keys of a reference."""


class RestoreWarning(UserWarning):
    """A buffer was restored without objects that JSON cannot hold; the message names the arguments to pass."""


class _Source:
    """What a reference cannot hold: settings; and, as long as others hold them, the conversation and its stores."""

    def __init__(self, conversation: Conversation) -> None:
        opened = conversation.opened
        assert opened is not None
        self.settings = conversation.settings
        self.conversation = weakref.ref(conversation)
        self.store = weakref.ref(opened if opened.in_memory else opened.pool or opened.store)


_sources: "weakref.WeakValueDictionary[str, _Source]" = weakref.WeakValueDictionary()
_recent: deque[_Source] = deque(maxlen=KEPT)
_lock = fork_safe_lock(Depth.MOMENT)


def register(conversation: Conversation) -> Conversation:
    """Let `restore` find a conversation while it is in use, and its settings for longer."""
    conversation.source = source = _Source(conversation)
    with _lock:
        _sources[conversation.key] = source
        _recent.append(source)
    return conversation


def reference(conversation: Conversation) -> dict[str, Any]:
    """Return JSON data that names a conversation and its state, with its messages unless a file holds them."""
    with conversation.lock:
        if conversation.source is None:
            register(conversation)
        left_out = conversation.settings.unwritten()
        left_out += ["store"] if conversation.path is None and not conversation.in_memory else []
        data: dict[str, Any] = {
            "attached": conversation.key,
            "owner": list(conversation.owner),
            "store": conversation.path,
            "branch": conversation.memory.branch,
            "head": conversation.head,
            "settings": conversation.settings.to_dict(),
            "left_out": left_out,
        }
        if conversation.path is None:
            data["messages"] = conversation.dump()
    return data


def restore(data: Mapping[str, Any], session_id: str, user_id: str | None) -> Conversation:
    """Return the conversation that `reference` was called on, in the state in which it was then.

    If that is its present state, it is the conversation in use. Otherwise it is another one on the same store, whose
    messages, once it goes on, are on a branch of their own. For another session or user than that of `reference`, it is
    their own conversation on that store, and nothing of what data tells is in it.

    Args:
        data: what `reference` returned, and arguments of a buffer that it cannot hold, such as a model, in case the
            conversation is no longer in use.
        session_id: the session's id.
        user_id: the user's id.

    Raises:
        StoreError: its file is gone, holds another conversation, or cannot be opened.
    """
    key = str(data["attached"])
    with _lock:
        source = _sources.get(key)
    found = source.conversation() if source is not None else None
    owner = list(data.get("owner") or (found.owner if found is not None else (session_id, user_id)))
    same_owner = owner == [session_id, user_id]
    given = {name: value for name, value in data.items() if name not in REFERENCE}
    if found is not None and same_owner and _is_present(found, data):
        return found
    told = source.settings.given if source is not None else written_settings(data.get("settings") or {})
    settings = Settings.of(**{**told, **given})
    opening = partial(Conversation, session_id=session_id, user_id=user_id, settings=settings)
    opened = _store_of(data, source)
    restored = opening(opened, key=key if found is None and same_owner else None)
    if same_owner:
        if opened.rebuilt and not _knows(restored, data.get("head")):  # from an earlier state of it
            restored = opening(shared_store(None))
        _go_to(restored, data)
    _warn([name for name in data.get("left_out", ()) if name not in given], source, restored)
    return register(restored)


def _is_present(found: Conversation, data: Mapping[str, Any]) -> bool:
    """Return whether a conversation in use is in the state that data names, and where its caller wants it."""
    if found.opened is None or data.get("store") not in (None, found.path, found.opened.pool, found.store):
        return False
    same_branch = found.memory.branch == data.get("branch") or found.opened.rebuilt  # which holds nothing but that
    return same_branch and found.head == data.get("head")


def _store_of(data: Mapping[str, Any], source: _Source | None) -> OpenStore:
    store = data.get("store")
    if store is None:
        return shared_store(source.store() if source is not None else None)
    require_file(store, may_be_new=bool(data.get("messages")))
    return shared_store(store)


def require_file(store: StoreLike, *, may_be_new: bool) -> None:
    """Raise a StoreError if the store that data names is a file that is not there, unless it may be created."""
    if isinstance(store, str | Path) and not may_be_new and not store_exists(store):
        raise StoreError(
            f"{str(store)!r} is gone, which holds what is to be restored; if it was moved, pass its path: "
            "from_dict(data, store=...)"
        )


def _knows(conversation: Conversation, head: str | None) -> bool:
    try:
        return head is None or conversation.memory.get(head) is not None
    except UnknownReferenceError:
        return False


def _go_to(restored: Conversation, data: Mapping[str, Any]) -> None:
    """Check out the state that data names."""
    memory, head = restored.memory, data.get("head")
    if restored.session is None:
        if not data.get("messages") and head is not None:
            raise StoreError(
                f"{restored.path or 'the store given'!r} holds no conversation {memory.session_id!r}; pass the path of "
                "the file that does: from_dict(data, store=...)"
            )
        restored.rebuild(data.get("messages") or ())
        return
    names = [branch.name for branch in memory.branches()]
    wanted = dict.fromkeys(name for name in (data.get("branch"), *names) if name in names)
    for name in wanted:
        newest = next(reversed(memory.messages(at=name)), None)
        if (newest.id if newest is not None else None) == head:
            memory.checkout(name)
            return
    if _knows(restored, head):
        restored.go_back_to(head)
    else:  # forgotten since
        memory.checkout(next(iter(wanted)))


def _warn(left_out: Iterable[str], source: _Source | None, restored: Conversation) -> None:
    """Say which of the arguments that were left out are missing."""
    missing = [name for name in left_out if (restored.in_memory if name == "store" else source is None)]
    if missing:
        shown = ", ".join(f"{name}=..." for name in missing)
        warn(
            f"restored without {', '.join(missing)}, which JSON cannot hold: pass from_dict(data, {shown}), "
            "or return them from restore_arguments",
            RestoreWarning,
        )


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
