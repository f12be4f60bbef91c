"""What a prompt is chosen from: the sliding window of the newest turns, and what is chosen of it; pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Literal

from shared_core.prompt.hits import Hit
from shared_core.prompt.reasons import Reason
from shared_core.session.turns import Turn

Fill = Literal["steady", "stop", "skip"]

SKIP_LIMIT = 64
"""Where too large turns are skipped, the walk ends after this many turns that do not fit."""


_set = object.__setattr__  # a frozen value has no other way in


@dataclass(frozen=True, slots=True)
class Window:
    """The turns of the window, and the turns near it that were left out.

    Attributes:
        kept: the turns in the window, newest first.
        stable_cut: turns that would fit but were left out to keep the start stable, newest first.
        too_large: turns that did not fit, newest first.
        budget: the tokens that it may take.
        most: the largest number of turns in it; None: any.
        tokens: the size of the turns kept.
        reaches_all: whether no turn was left out.
    """

    kept: tuple[Turn, ...] = ()
    stable_cut: tuple[Turn, ...] = ()
    too_large: tuple[Turn, ...] = ()
    budget: int = 0
    most: int | None = None
    tokens: int = field(init=False)
    reaches_all: bool = field(init=False)

    def __post_init__(self) -> None:
        _set(self, "tokens", sum([turn.tokens for turn in self.kept]))
        _set(self, "reaches_all", not self.stable_cut and not self.too_large)

    @property
    def fitting(self) -> int:
        """The tokens of all turns that fit, together with those left out to keep the start stable."""
        return self.tokens + sum([turn.tokens for turn in self.stable_cut])

    def why_without(self, turn: Turn) -> Reason:
        """Return why a turn of `too_large` is left out: once the start is cut, it might fit but would leave a gap."""
        too_many = self.most is not None and len(self.kept) >= self.most
        return Reason.OLDER if too_many or self.tokens + turn.tokens <= self.budget else Reason.NO_ROOM


def fit_window(
    turns: Iterable[Turn], budget: int, *, slack: float = 0.0, skip: bool = False, steady: int | None = None,
    most: int | None = None,
) -> Window:  # fmt: skip
    """Return the newest turns that fit.

    The walk goes from the newest turn to the oldest. At the first turn that does not fit it stops, or skips the turn
    and tries older ones. A turn that exactly fills the budget fits. A greeting fits only if all turns after it do.

    Args:
        turns: newest first. No more are read than needed.
        budget: tokens that the window may take.
        slack: the share of the largest window allowed that may be given up to start it at a turn whose number is
            divisible by a high power of two. Such a start stays the same for many questions, so that a provider's
            prompt cache finds the same beginning again. 0 moves the start with every turn. Not used with `skip`.
        skip: whether turns that do not fit are skipped.
        steady: the tokens of the largest window allowed where not all turns fit; the newest turn is allowed in any
            case. `budget` depends on how much a question recalls, and without this limit the start would, too.
        most: the largest number of turns; the window ends at the next one. None: tokens alone limit it.
    """
    kept: list[Turn] = []
    too_large: list[Turn] = []
    used = 0
    for turn in turns:
        if len(kept) == most:
            return Window(tuple(kept), (), (*too_large, turn), budget, most)
        # A greeting stands before the first turn, or not at all.
        if used + turn.tokens <= budget and not (turn.greets and too_large):
            kept.append(turn)
            used += turn.tokens
            continue
        too_large.append(turn)
        if not skip or len(too_large) >= SKIP_LIMIT:
            break
    # A window that holds everything starts at the first turn anyway, and one with gaps has no stable start.
    if not too_large or skip:
        return Window(tuple(kept), (), tuple(too_large), budget)
    count = _stable_count(kept, slack, budget if steady is None else steady)
    return Window(tuple(kept[:count]), tuple(kept[count:]), tuple(too_large), budget)


def _stable_count(kept: Sequence[Turn], slack: float, most: int) -> int:
    """Return how many turns to keep of those that fit: from the number with the highest power of two in the slack.

    Args:
        kept: the turns that fit, newest first.
        slack: the share of the largest window allowed that may be given up.
        most: the tokens of the largest window allowed.
    """
    sums = list(accumulate([turn.tokens for turn in kept]))
    allowed = max(bisect_right(sums, most), 1)
    enough = range(bisect_left(sums, (1 - slack) * sums[allowed - 1]), allowed) if sums else ()
    numbers = [(kept[index].turn_no, index) for index in enough]
    # `n & -n` is the largest power of two that divides n; all divide 0. Of equal ones the older turn wins.
    return 1 + max([(number & -number or inf, index) for number, index in numbers], default=(0, -1))[1]


ELSEWHERE = -2
"""The turn number of messages of other sessions. It sorts them before all messages of this one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages chosen for a frame.

    Attributes:
        window: the newest turns that are sent.
        candidates: all candidates with their decisions; `Reason.RECALLED` marks those in the prompt.
        recall_tokens: the tokens that recalled candidates add to the prompt.
        text: the text of the recalled messages; empty if they are sent as messages.
    """

    window: Window
    candidates: tuple[Hit, ...] = ()
    recall_tokens: int = 0
    text: str = ""

    @property
    def recalled(self) -> tuple[Hit, ...]:
        """The recalled candidates, best first."""
        return tuple(candidate for candidate in self.candidates if candidate.reason is Reason.RECALLED)
