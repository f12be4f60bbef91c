"""What was chosen for a prompt: the window, and the fate of everything old that might be brought back; values."""

from dataclasses import dataclass

from shared_core.prompt.context import Reason
from shared_core.prompt.turns import Entry
from shared_core.prompt.window import Window

__all__ = ["ELSEWHERE", "Candidate", "Selection"]

ELSEWHERE = -2
"""The turn number of messages of other sessions: they come before everything of this one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something old that may be worth bringing back.

    Attributes:
        entries: one message, or the messages of a turn, in order.
        score: higher is better.
        lexical: share of the question's informative words it matches.
        dense: cosine with the question, None without a vector.
        reason: why it is out already; None: it may be chosen.
        cut: whether an excerpt stands for a long message.
    """

    entries: tuple[Entry, ...]
    score: float
    lexical: float | None = None
    dense: float | None = None
    reason: Reason | None = None
    cut: bool = False

    @property
    def elsewhere(self) -> bool:
        """Whether it was said in another session, which no window of this one reaches."""
        return self.entries[0].turn_no == ELSEWHERE

    @property
    def tokens(self) -> int:
        """What its messages cost as messages."""
        return sum(entry.tokens for entry in self.entries)

    def because(self, reason: Reason) -> "Candidate":
        """Return the candidate with its fate decided."""
        # `replace` takes four times as long, and this is asked a hundred times a prompt.
        return Candidate(self.entries, self.score, self.lexical, self.dense, reason, self.cut)


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen for a frame.

    Attributes:
        window: the newest turns that are sent.
        candidates: the fate of each (`Reason.RECALLED`: in).
        recall_tokens: what those that are in add to the prompt.
        text: how they are written; empty where they come back as messages.
    """

    window: Window
    candidates: tuple[Candidate, ...] = ()
    recall_tokens: int = 0
    text: str = ""

    @property
    def recalled(self) -> tuple[Candidate, ...]:
        """The candidates that are in, best first."""
        return tuple(candidate for candidate in self.candidates if candidate.reason is Reason.RECALLED)

    @property
    def tokens(self) -> int:
        """What the selection needs."""
        return self.window.tokens + self.recall_tokens
