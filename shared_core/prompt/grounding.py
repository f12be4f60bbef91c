"""Grounding: text that was retrieved for a question, trimmed until it fits beside it; pure."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared_core.messages import Grounding

LONG_WORD = 40
"""At most this many characters are given up to cut between words."""


@dataclass(frozen=True, slots=True)
class FittedGrounding:
    """Grounding as rendered into the prompt.

    Attributes:
        text: the rendered text; empty if nothing fits.
        omitted: how many items were left out.
        cut: whether the only remaining item was cut.
        shortened: how many of the items that are there are in less detail.
    """

    text: str
    omitted: int = 0
    cut: bool = False
    shortened: int = 0

    @property
    def trimmed(self) -> bool:
        """Whether items are left out or cut."""
        return bool(self.omitted) or self.cut


def render_grounding(grounding: Grounding, texts: Sequence[str] | None = None, *, content: str = "") -> str:
    """Return header, items and footer as one text; empty if there are no items.

    Args:
        grounding: the grounding.
        texts: the texts of the items that are there; by default of all.
        content: the content of the message, which is part of the text if the grounding surrounds it.
    """
    texts = grounding.shown() if texts is None else texts
    if not grounding.surrounds:
        return grounding.render(texts)
    return grounding.with_content(content, texts) if any(texts) else ""


def _strongest_first(grounding: Grounding) -> list[int]:
    # Items without a score come last. Of equal scores, the earlier item is the stronger one.
    def strength(index: int) -> tuple[float, int]:
        score = grounding.items[index].score
        return (float("-inf") if score is None else score, -index)

    return sorted(grounding.filled, key=strength, reverse=True)


def fit_grounding(grounding: Grounding, fits: Callable[[str], bool], *, content: str = "") -> FittedGrounding:
    """Trim grounding until it fits. Items are given in less detail, then left out, weakest first; the last one is cut.

    Args:
        grounding: the grounding to trim.
        fits: returns whether a rendered grounding fits. If a text fits, a shorter one must fit as well.
        content: as for `render_grounding`.

    Returns:
        The longest version found that fits; empty if not even a part of the best item does.
    """
    order = _strongest_first(grounding)
    if not order:
        return FittedGrounding("")
    whole = render_grounding(grounding, content=content)
    if fits(whole):  # checked first: a note on omitted items may be longer than the items
        return FittedGrounding(whole)
    detailed = grounding.items
    briefer = _in_less_detail(grounding, order)
    if briefer:
        enough = bisect_left(briefer, True, key=lambda version: fits(version.render()))
        if enough < len(briefer):
            return FittedGrounding(briefer[enough].render(), shortened=enough + 1)
        grounding = briefer[-1]

    def best(count: int) -> str:
        return render_grounding(grounding, grounding.shown(order[:count]), content=content)

    # Counting tokens is the expensive part, so bisect instead of removing item by item.
    kept = bisect_left(range(1, len(order)), True, key=lambda count: not fits(best(count)))
    if kept:
        text = best(kept)
        short = sum(grounding.items[index] != detailed[index] for index in order[:kept])
        return FittedGrounding(text, omitted=len(order) - kept, shortened=short)
    text = _cut(grounding.items[order[0]].text, fits, lambda part: render_grounding(grounding, [part], content=content))
    return FittedGrounding(text, omitted=len(order) - bool(text), cut=bool(text))


def _in_less_detail(grounding: Grounding, order: Sequence[int]) -> list[Grounding]:
    """Return the grounding with its weakest item in less detail, then with two, and so on; `order` is best first."""
    items, versions = list(grounding.items), list[Grounding]()
    for index in reversed(order):
        brief = items[index].brief
        if brief and len(brief) < len(items[index].text):
            items[index] = items[index].model_copy(update={"text": brief})
            versions.append(grounding.model_copy(update={"items": tuple(items)}))
    return versions


def _cut(item: str, fits: Callable[[str], bool], render: Callable[[str], str]) -> str:
    """Return the rendering with the longest beginning of `item` that fits, cut between words if possible."""

    def rendered(length: int) -> str:
        return render(item[:length].rstrip())

    longest = bisect_left(range(1, len(item) + 1), True, key=lambda length: not fits(rendered(length)))
    at_word = rendered(word_end(item, longest))
    # A tokenizer may need more tokens for a shorter text, so the result is checked again.
    return at_word if fits(at_word) else rendered(longest)


def word_end(text: str, length: int) -> int:
    """Return the end of the last whole word in `text[:length]`, or `length` if that is far, as without spaces."""
    ends = range(length, max(0, length - LONG_WORD), -1)
    words = (end for end in ends if text[end : end + 1].isspace() and not text[:end].isspace())
    return length if length >= len(text) else next(words, length)
