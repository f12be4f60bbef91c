"""A summary as it is kept: a text, and how far back from the newest message it reaches; a value."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared_core.records import Position

__all__ = ["Summary"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What was said up to a place, in short.

    It belongs to every branch that begins as the one it was made on, and to no other.

    Attributes:
        text: what it says.
        upto: the last place it covers; all before it, back to the first message, are covered too.
        along: a place whose path shows what comes before; `upto` itself but where that is in what a merge brought in.
        last_id: the id of the last message that was summed up.
        messages: how many were; system and pinned messages are not, as they are in every prompt.
        created_at: when it was made, aware.
        counter: the name of the token counter that counted it, None if that has no name.
        tokens: its size by that counter, None without a name.
    """

    text: str
    upto: Position
    along: Position
    last_id: str
    messages: int
    created_at: datetime
    counter: str | None = None
    tokens: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "text": self.text,
            "upto": self.last_id,
            "messages": self.messages,
            "created_at": self.created_at.isoformat(),
            "tokens": self.tokens,
        }
