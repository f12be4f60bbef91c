"""What was chosen for a prompt: the window, and the fate of everything old that might be brought back; values."""

from dataclasses import dataclass

from shared_core.prompt.context import Reason
from shared_core.prompt.turns import Entry
from shared_core.prompt.window import Window

__all__ = ["Candidate", "Selection"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something old that may be worth bringing back.

    Attributes:
        entries: one message, or the messages of a turn, in order.
        score: higher is better.
        lexical: share of the question's informative words it matches.
        dense: cosine with the question, None without a vector.
        reason: why it is out already; None: it may be chosen.
    """

    entries: tuple[Entry, ...]
    score: float
    lexical: float | None = None
    dense: float | None = None
    reason: Reason | None = None

    def because(self, reason: Reason) -> "Candidate":
        """Return the candidate with its fate decided."""
        return Candidate(self.entries, self.score, self.lexical, self.dense, reason)


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen for a frame: the window, and the fate of every candidate (`Reason.RECALLED`: in)."""

    window: Window
    candidates: tuple[Candidate, ...] = ()
    recall_tokens: int = 0

    @property
    def recalled(self) -> tuple[Candidate, ...]:
        """The candidates that are in, best first."""
        return tuple(candidate for candidate in self.candidates if candidate.reason is Reason.RECALLED)

    @property
    def tokens(self) -> int:
        """What the selection needs."""
        return self.window.tokens + self.recall_tokens
