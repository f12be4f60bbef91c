"""References to a conversation as JSON data, and the way back to the state that a reference names."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from llama_index_infinite_memory.conversation import Conversation, in_use
from llama_index_infinite_memory.open_stores import reopened_store
from llama_index_infinite_memory.settings import Settings
from shared_core.errors import StoreError, UnknownReferenceError, warn

__all__ = ["RestoreWarning"]

REFERENCE = ("attached", "owner", "store", "branch", "head", "settings", "left_out", "messages")
"""The keys of a reference."""


class RestoreWarning(UserWarning):
    """A buffer was restored without objects that JSON cannot hold; the message names the arguments to pass."""


def reference(conversation: Conversation) -> dict[str, Any]:
    """Return JSON data that names a conversation and its state, with its messages if no database holds them."""
    with conversation.lock:
        opened = conversation.open_store()
        data: dict[str, Any] = {
            "attached": conversation.key,
            "owner": [conversation.session_id, conversation.user_id],
            "store": opened.address,
            "branch": conversation.memory.branch,
            "head": conversation.head,
            "settings": conversation.settings.to_dict(),
            "left_out": conversation.settings.unwritten(),
        }
        if opened.in_memory:
            data["messages"] = conversation.dump()
    return data


def restore(data: Mapping[str, Any], session_id: str, user_id: str | None) -> Conversation:
    """Return the conversation that `reference` was called on, in the state in which it was then.

    If that is its present state, it is the conversation in use. Otherwise it is another one on the same store, whose
    messages, once it goes on, are on a branch of their own.

    Args:
        data: what `reference` returned, and arguments of a buffer that it cannot hold, such as a model, in case the
            conversation is no longer in use.
        session_id: the session's id.
        user_id: the user's id.

    Raises:
        ValueError: it is a conversation of another session or user.
        StoreError: its file is gone, holds another conversation, or cannot be opened; or it had none, and is closed.
    """
    if data["owner"] != [session_id, user_id]:
        raise ValueError(
            f"this is the state of session {data['owner'][0]!r} of user {data['owner'][1]!r}, not of {session_id!r} of "
            f"{user_id!r}; open theirs with from_defaults"
        )
    given = {name: value for name, value in data.items() if name not in REFERENCE}
    found = in_use.get(data["attached"])
    if found is None or found.opened is None or data["store"] not in (found.opened.address, found.store):
        restored = _reopened(data, given)
    elif (found.memory.branch, found.head) == (data["branch"], data["head"]):
        return found
    else:
        restored = found.another()
    _go_to(restored, data)
    return restored


def _reopened(data: Mapping[str, Any], given: Mapping[str, Any]) -> Conversation:
    """Return a conversation that is no longer in use, on its main branch."""
    session_id, user_id = data["owner"]
    settings = Settings(**{**data["settings"], **given})
    opened = reopened_store(data["store"], may_be_new="messages" in data)
    missing = [name for name in data["left_out"] if name not in given]
    if missing:
        shown = ", ".join(f"{name}=..." for name in missing)
        warn(
            f"restored without {', '.join(missing)}, which JSON cannot hold: pass from_dict(data, {shown}), "
            "or return them from restore_arguments",
            RestoreWarning,
        )
    return Conversation(opened, session_id=session_id, user_id=user_id, settings=settings)


def _go_to(restored: Conversation, data: Mapping[str, Any]) -> None:
    """Check out the state that data names."""
    memory, head = restored.memory, data["head"]
    if restored.session is None:
        if not data.get("messages") and head is not None:
            raise StoreError(
                f"{data['store']!r} holds no conversation {memory.session_id!r}; pass the path of the file that does: "
                "from_dict(data, store=...)"
            )
        restored.rebuild(data.get("messages") or ())
        return
    if data["branch"] in {branch.name for branch in memory.branches()}:
        memory.checkout(data["branch"])
    if restored.head != head:
        with suppress(UnknownReferenceError):  # it was forgotten
            restored.go_back_to(head)
