"""The ids and times of new messages, from the caller's functions, whose values are checked where they come in."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared_core.messages import Message, in_utc


@dataclass(frozen=True, slots=True)
class Stamps:
    """Completes messages that have no id or no time.

    Args:
        clock: returns the time.
        new_id: returns an id, each time another one.
    """

    clock: Callable[[], datetime]
    new_id: Callable[[], str]

    def id(self) -> str:
        """Return a new id; ValueError if `new_id` returns none."""
        made = self.new_id()
        if not isinstance(made, str) or not made:
            raise ValueError(f"new_id returned {made!r}; it must return a text that is not empty")
        return made

    def time(self) -> datetime:
        """Return the time, with a zone; ValueError if `clock` returns none that can be stored."""
        now = self.clock()
        if not isinstance(now, datetime):
            raise ValueError(f"clock returned {now!r}; it must return a datetime")
        try:
            return in_utc(now)
        except ValueError as error:
            raise ValueError(f"clock returned a time that cannot be stored: {error}") from error

    def completed(self, message: Message) -> Message:
        """Return a message with an id and a time."""
        changes: dict[str, Any] = {}
        if message.id is None:
            changes["id"] = self.id()
        if message.created_at is None:
            changes["created_at"] = self.time()
        return message.replace(**changes) if changes else message
