"""The sliding window: the newest turns as they are sent, which of them fit, and what is chosen beside them; pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from typing import Literal

from shared_core.messages import Message
from shared_core.prompt.hits import Hit, Reason
from shared_core.session.turns import Entry, Size, Turn

Fill = Literal["steady", "stop", "skip"]

SKIP_LIMIT = 64
"""Where too large turns are skipped, the walk ends after this many turns that do not fit."""


@dataclass(frozen=True, slots=True)
class Window:
    """The turns of the window, and the turns near it that were left out.

    Attributes:
        kept: the turns in the window, newest first.
        stable_cut: turns that would fit but were left out to keep the start stable, newest first.
        too_large: turns that did not fit, newest first.
        budget: the tokens that it may take.
        most: the largest number of turns in it; None: any.
    """

    kept: tuple[Turn, ...] = ()
    stable_cut: tuple[Turn, ...] = ()
    too_large: tuple[Turn, ...] = ()
    budget: int = 0
    most: int | None = None

    @property
    def tokens(self) -> int:
        """The size of the turns kept."""
        return sum([turn.tokens for turn in self.kept])

    @property
    def reaches_all(self) -> bool:
        """Whether no turn was left out."""
        return not self.stable_cut and not self.too_large

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


MEDIA_LEFT_OUT = "[media left out]"
"""What the model is told where images, sound or files of an older turn are not sent again."""


def with_results(turn: Turn, size: Size) -> Turn:
    """Return a turn with the whole text of its replies, such as results of tools whose end is set apart."""
    return _changed(turn, lambda message: message if message.role == "user" else message.whole, size)


def _shows(message: Message) -> bool:
    # What an assistant's message holds besides text is its reasoning.
    return bool(message.media_tokens) and message.role in ("user", "tool")


def tokens_without_media(turns: Iterable[Turn]) -> int:
    """Return at least how many tokens some turns take."""
    media = [
        entry.message.media_tokens
        for turn in turns
        if not turn.only_text
        for entry in turn.entries
        if _shows(entry.message)
    ]
    return sum([turn.tokens for turn in turns]) - sum(media)


def without_media(message: Message) -> Message:
    """Return a message of a user or a tool as text, with a note in the place of its media."""
    if not _shows(message):
        return message
    # The payload, which holds the media, is left out as well: every format can write a message without one.
    text = "\n".join(filter(None, (message.content, MEDIA_LEFT_OUT)))
    return message.replace(content=text, media_tokens=0, payload=None)


def lighter(message: Message, size: Size) -> Message:
    """Return a message without its media, unless the note takes as much room as they do."""
    light = without_media(message)
    return light if light is message or size(light) < size(message) else message


def abridged(turns: Sequence[Turn], size: Size, *, room: int, window: Callable[[], int]) -> list[Turn]:
    """Return turns as they are sent, newest first.

    If they all fit, results are whole. Otherwise, the oldest media give way first, before any text does.

    Args:
        turns: newest first.
        size: counts the tokens of a message as sent.
        room: the tokens for them.
        window: returns the tokens that are left for them beside recalled messages; called if their text does not fit.
    """
    # Nearly all turns hold nothing but text, and all of them are looked at for every prompt.
    if False not in [turn.only_text for turn in turns]:
        return list(turns)
    full = [with_results(turn, size) for turn in turns]
    if sum(turn.tokens for turn in full) <= room:
        return full
    light = [_changed(turn, lambda message: lighter(message, size), size) for turn in turns]
    kept = _with_media(turns, light, room, window)
    return [*turns[:kept], *light[kept:]]


def _with_media(turns: Sequence[Turn], light: Sequence[Turn], room: int, window: Callable[[], int]) -> int:
    """Return how many of the newest turns keep their media."""
    media = [turn.tokens - bare.tokens for turn, bare in zip(turns, light, strict=True)]
    if not any(media):
        return len(turns)
    spare = room - sum(bare.tokens for bare in light)
    sizes, left = (media, spare) if spare >= 0 else ([turn.tokens for turn in turns], window())
    for count, tokens in enumerate(sizes):
        left -= tokens
        if left < 0:
            return count
    return len(turns)


def _changed(turn: Turn, change: Callable[[Message], Message], size: Size) -> Turn:
    """Return a turn with its messages changed; the turn itself if none is."""
    if turn.only_text:
        return turn
    entries = tuple(_entry(entry, change(entry.message), size) for entry in turn.entries)
    same = all(new is old for new, old in zip(entries, turn.entries, strict=True))
    return turn if same else replace(turn, entries=entries)


def _entry(entry: Entry, message: Message, size: Size) -> Entry:
    return entry if message is entry.message else replace(entry, message=message, tokens=size(message))


ELSEWHERE = -2
"""The turn number of messages of other sessions. It sorts them before all messages of this one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages chosen for a fixed part.

    Attributes:
        window: the newest turns that are sent.
        candidates: all candidates with their decisions; `Reason.RECALLED` marks those in the prompt.
        recall_tokens: the tokens that recalled candidates add to the prompt.
        text: the text of the recalled messages; empty if they are sent as messages.
    """

    window: Window = field(default_factory=Window)
    candidates: tuple[Hit, ...] = ()
    recall_tokens: int = 0
    text: str = ""

    @property
    def recalled(self) -> tuple[Hit, ...]:
        """The recalled candidates, best first."""
        return tuple(candidate for candidate in self.candidates if candidate.reason is Reason.RECALLED)
