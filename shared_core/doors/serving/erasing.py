"""Erasing as all doors do it: which message a beginning of an id means, what goes, and the confirmation for it."""

import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

from shared_core.errors import AmbiguousReferenceError, StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.session.forget import ForgetResult

__all__ = ["DAMAGED", "Erasing", "StaleConfirmationError", "newest_at", "readable", "whole_id"]

DAMAGED = "damaged, its text cannot be read"


class StaleConfirmationError(ValueError):
    """A confirmation is not the one for what would be erased now."""


class Erasing:
    """Erases what a dry run showed, and nothing else.

    A confirmation fits as long as the same call would erase the same messages. Nothing is kept, so it needs no time
    limit, and after the messages are erased it fits nothing. A new object knows no confirmation of an older one.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def forget(
        self, memory: InfiniteMemory, which: Mapping[str, Any], confirmation: str | None
    ) -> tuple[ForgetResult, str]:
        """Erase messages, or show what would be erased; return the result, and the confirmation for it.

        Args:
            memory: the memory of the conversation.
            which: the arguments of `forget`, but for `dry_run`.
            confirmation: what the dry run gave. None: this is the dry run.

        Raises:
            StaleConfirmationError: the confirmation is for something else; nothing is erased.
            UnknownReferenceError: a message is not stored.
        """
        shown = memory.forget(**which, dry_run=True)
        # Erasing a whole conversation also erases its branches, so it is another thing than erasing all its messages.
        signed = json.dumps([memory.user_id, memory.session_id, "session" in which, *shown.ids]).encode()
        fits = hmac.digest(self._secret, signed, "sha256").hex()[:32]
        if confirmation is None:
            return shown, fits
        if not shown.ids or not hmac.compare_digest(confirmation.encode("utf-8", "surrogateescape"), fits.encode()):
            raise StaleConfirmationError("nothing was erased: what would be erased now is not what was shown")
        # By their ids, so that what came in meanwhile stays; a whole conversation has no such limit.
        return memory.forget(**(which if "session" in which else {"ids": list(shown.ids)})), fits


def newest_at(memory: InfiniteMemory, revision: str) -> Message | None:
    """Return the newest message at a revision; None: nothing was said there."""
    return next(reversed(memory.messages(at=revision)), None)


def whole_id(memory: InfiniteMemory, id: str) -> str:
    """Return the id that begins so; an unknown one as it is. The name of a branch or a tag is no beginning of an id.

    Raises:
        AmbiguousReferenceError: several ids begin so.
    """
    if id in {ref.name for ref in [*memory.branches(), *memory.tags()]} or readable(memory, id) is not None:
        return id
    try:
        newest = newest_at(memory, id)
    except (AmbiguousReferenceError, StoreUnavailableError):
        raise
    except (StoreError, UnknownReferenceError):  # a damaged message can be erased by its whole id
        return id
    return newest.id if newest is not None and newest.id is not None and newest.id.startswith(id) else id


def readable(memory: InfiniteMemory, id: str) -> Message | None:
    """Return the message with an id; None: it is not stored, or damaged."""
    try:
        return memory.get(id)
    except StoreUnavailableError:
        raise
    except (StoreError, UnknownReferenceError):
        return None
