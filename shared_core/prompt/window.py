"""What is chosen for a prompt: the sliding window of the newest turns, and the candidates for recall; pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from shared_core.prompt.context import Reason
from shared_core.turns import Entry, Turn

__all__ = ["ELSEWHERE", "SKIP_LIMIT", "Candidate", "Fill", "Selection", "Window", "fit_window"]

Fill = Literal["stop", "skip"]

SKIP_LIMIT = 64
"""With `fill="skip"`, how many turns that do not fit are passed over before the walk ends."""


_set = object.__setattr__  # a frozen value has no other way in


@dataclass(frozen=True, slots=True)
class Window:
    """The turns that go into the prompt, and those near it that do not.

    Attributes:
        kept: newest first.
        stable_cut: would have fitted, but were left out so that the start stands still; newest first.
        too_large: were tried and did not fit, newest first.
        tokens: the size of the turns kept.
        reaches_all: whether no turn had to be left out.
    """

    kept: tuple[Turn, ...] = ()
    stable_cut: tuple[Turn, ...] = ()
    too_large: tuple[Turn, ...] = ()
    tokens: int = field(init=False)
    reaches_all: bool = field(init=False)

    def __post_init__(self) -> None:
        _set(self, "tokens", sum(turn.tokens for turn in self.kept))
        _set(self, "reaches_all", not self.stable_cut and not self.too_large)


def fit_window(turns: Iterable[Turn], budget: int, *, slack: float = 0.0, fill: Fill = "stop") -> Window:
    """Return the newest turns that fit.

    The walk goes from the newest turn to the oldest and stops at the first that does not fit (`fill="stop"`), or passes
    over it and tries older ones (`fill="skip"`). A turn that exactly fills the budget fits.

    Args:
        turns: newest first; no more are read than needed.
        budget: tokens.
        slack: share of the largest fitting window that may be given up to start it at a turn whose number is divisible
            by a high power of two. Such a start stays where it is for many questions, so that a provider's prompt cache
            finds the same beginning again. 0 moves the start with every turn. Not used with `fill="skip"`.
        fill: see above.
    """
    kept: list[Turn] = []
    too_large: list[Turn] = []
    used = 0
    for turn in turns:
        if used + turn.tokens <= budget:
            kept.append(turn)
            used += turn.tokens
            continue
        too_large.append(turn)
        if fill == "stop" or len(too_large) >= SKIP_LIMIT:
            break
    if not too_large or fill == "skip":
        return Window(tuple(kept), (), tuple(too_large))
    count = _stable_count(kept, (1 - slack) * used)
    return Window(tuple(kept[:count]), tuple(kept[count:]), tuple(too_large))


def _stable_count(kept: list[Turn], least: float) -> int:
    """Return how many turns to keep: at least `least` tokens, the oldest with the most often halved number."""
    best, best_power, used = len(kept), -1, 0
    for count, turn in enumerate(kept, start=1):
        used += turn.tokens
        power = _power_of_two(turn.turn_no)
        if used >= least and power >= best_power:
            best, best_power = count, power
    return best


def _power_of_two(number: int) -> int:
    """Return the largest p for which 2**p divides `number`; 0 is divisible by all."""
    return 1_000 if number == 0 else (number & -number).bit_length() - 1


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
