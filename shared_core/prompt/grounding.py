"""Join grounding to the question it was retrieved for, trimmed to what fits; pure."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared_core.messages import Grounding, Message

__all__ = ["BLANK_LINE", "FittedGrounding", "fit_grounding", "join", "render_grounding", "with_grounding"]

BLANK_LINE = "\n\n"
"""What stands between the parts of a rendered message."""

LONG_WORD = 40
"""Characters that are given up at most so that a cut falls between words."""


@dataclass(frozen=True, slots=True)
class FittedGrounding:
    """Grounding as it goes into the prompt.

    Attributes:
        text: rendered; empty if nothing fits.
        omitted: how many items were left out whole.
        cut: whether the last remaining item was cut inside.
    """

    text: str
    omitted: int = 0
    cut: bool = False

    @property
    def trimmed(self) -> bool:
        """Whether the model sees less than was retrieved."""
        return bool(self.omitted) or self.cut


def join(*parts: str) -> str:
    """Return the parts that are not empty, with a blank line between them."""
    return BLANK_LINE.join(part for part in parts if part)


def render_grounding(grounding: Grounding | None, *, keep: Sequence[int] | None = None) -> str:
    """Return header, items and footer as one text; empty when there is no item.

    Args:
        grounding: what was retrieved; None renders as nothing.
        keep: indices of the items to show; all by default.
    """
    if grounding is None:
        return ""
    shown = _filled(grounding) if keep is None else sorted(keep)
    return _assemble(grounding, [grounding.items[index].text for index in shown])


def _filled(grounding: Grounding) -> list[int]:
    """Return the indices of the items that say something."""
    return [index for index, item in enumerate(grounding.items) if item.text]


def _assemble(grounding: Grounding, texts: Sequence[str]) -> str:
    if not any(texts):
        return ""
    omitted = len(_filled(grounding)) - sum(map(bool, texts))
    note = grounding.omitted_note.replace("{count}", str(omitted)) if omitted else ""
    return join(grounding.header, *texts, note, grounding.footer)


def _strongest_first(grounding: Grounding) -> list[int]:
    def strength(index: int) -> tuple[float, int]:
        score = grounding.items[index].score
        return (float("-inf") if score is None else score, -index)

    return sorted(_filled(grounding), key=strength, reverse=True)


def fit_grounding(grounding: Grounding | None, fits: Callable[[str], bool]) -> FittedGrounding:
    """Trim grounding until it fits: whole items go, weakest first; only the best one left is cut inside.

    Args:
        grounding: what was retrieved.
        fits: whether a rendered grounding fits; if a text fits, a shorter one must too.

    Returns:
        The longest version found that `fits` accepts; empty if not even a part of the best item does.
    """
    order = _strongest_first(grounding) if grounding is not None else []
    if grounding is None or not order:
        return FittedGrounding("")
    whole = render_grounding(grounding)
    if fits(whole):  # also where the note on what was left out would be longer than what is left out
        return FittedGrounding(whole)
    counts = range(1, len(order))
    kept = bisect_left(counts, True, key=lambda count: not fits(render_grounding(grounding, keep=order[:count])))
    if kept:
        return FittedGrounding(render_grounding(grounding, keep=order[:kept]), omitted=len(order) - kept)
    text = _cut(grounding, grounding.items[order[0]].text, fits)
    return FittedGrounding(text, omitted=len(order) - bool(text), cut=bool(text))


def _cut(grounding: Grounding, item: str, fits: Callable[[str], bool]) -> str:
    """Return the rendering with the longest beginning of `item` that fits, ending at a word where there is one."""

    def rendered(length: int) -> str:
        return _assemble(grounding, [item[:length].rstrip()])

    longest = bisect_left(range(1, len(item) + 1), True, key=lambda length: not fits(rendered(length)))
    at_word = rendered(_word_end(item, longest))
    # A tokenizer may need more tokens for a shorter text, so the answer of the bisection is checked once more.
    return at_word if fits(at_word) else rendered(longest)


def _word_end(text: str, length: int) -> int:
    """Return the end of the last whole word in `text[:length]`; `length` if it is far, as in scripts without spaces."""
    ends = range(length, max(0, length - LONG_WORD), -1)
    words = (end for end in ends if text[end : end + 1].isspace() and not text[:end].isspace())
    return length if length >= len(text) else next(words, length)


def with_grounding(message: Message, grounding_text: str) -> Message:
    """Return the message as it is sent: grounding before the text, and no grounding left apart."""
    if not grounding_text and message.grounding is None:
        return message
    return message.replace(content=join(grounding_text, message.content), grounding=None)
