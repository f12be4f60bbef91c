"""Set text of a message apart from what it says, without losing a character; pure.

The part that stays is the message's `content`, which is recalled. The rest surrounds it as its `grounding`: the model
is shown it in the current turn only, and `search` finds it. `Message.whole` is the message as it was given.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shared_core.messages import CUT, SET_APART, Grounding, Message

MANY = 1_000
"""Paragraphs that become items of their own; all further ones are one item."""


@dataclass(frozen=True, slots=True)
class Stripper:
    """One kind of text that is set apart.

    Args:
        name: names the kind.
        strip: returns the message with that text set apart by `set_apart`, or the message itself.
    """

    name: str
    strip: Callable[[Message], Message]


def stripper_list(strippers: Iterable[Stripper]) -> tuple[Stripper, ...]:
    """Return strippers as a tuple; TypeError if something else is among them."""
    if isinstance(strippers, str | Stripper) or not isinstance(strippers, Iterable):
        raise TypeError(f"strippers={strippers!r:.80}: expected a list of Stripper; [] sets nothing apart")
    given = tuple(strippers)
    for one in given:
        if not isinstance(one, Stripper):
            raise TypeError(f"strippers holds {one!r:.80}; expected Stripper(name, function)")
    return given


def strip(message: Message, strippers: Iterable[Stripper]) -> Message:
    """Return the message without the text that the strippers, one after the other, set apart.

    A message that already has grounding is returned as it is.

    Raises:
        ValueError: a stripper lost text, so that the message could not be restored.
    """
    if message.grounding is not None:
        return message
    stripped = message
    for stripper in strippers:
        stripped = stripper.strip(stripped)
        if stripped.whole != message:
            raise ValueError(
                f"stripper {stripper.name!r} changed what the message says; use set_apart(message, start, end), "
                "which keeps one part of the text and sets the rest apart"
            )
    return stripped


def set_apart(message: Message, start: int, end: int, *, mark: str = "") -> Message:
    """Return the message with `content[start:end]`, without surrounding space, as its content, and the rest set apart.

    Nothing is set apart if nothing else is there, or no text would stay.

    Args:
        message: the message.
        start: where the part that stays begins.
        end: where it ends.
        mark: `CUT`, to end the content with it; only for a part at the beginning.
    """
    grounding = message.grounding
    if grounding is not None and (grounding.header or not grounding.surrounds):
        return message
    kept = message.content[start:end]
    if not kept.strip():
        return message
    whole = message.whole
    shift = sum(len(item.text) for item in grounding.items) if grounding is not None else 0
    start += shift + len(kept) - len(kept.lstrip())
    end = start + len(kept.strip())
    before, kept, after = whole.content[:start], whole.content[start:end], whole.content[end:]
    if not (before + after).strip():
        return message
    if before:
        surrounding = _surrounding(before, footer=after)
    else:  # text comes before its grounding: the header marks this, so it must not be empty
        header = after[: max(1, len(after) - len(after.lstrip()))]
        surrounding = _surrounding(after[len(header) :], header=header)
    apart = whole.replace(content=kept + mark, grounding=surrounding)
    return apart if apart.whole == whole else message  # the text itself ends with the mark


def _surrounding(text: str, *, header: str = "", footer: str = "") -> Grounding:
    """Return grounding with a paragraph to an item, so that it can be trimmed by paragraphs."""
    paragraphs = (part for part in re.split(r"(?<=\n\n)", text, maxsplit=MANY) if part)
    return Grounding.of(*paragraphs, header=header, footer=footer, omitted_note=SET_APART)


LONG = 400
"""Characters up to which a result stays whole: leaving out less would save little more than the note costs."""

BEGINNING = 200
"""Characters that stay of a long result, so that the model sees what it was."""


def keep_beginning(message: Message) -> Message:
    """Return the message with the end of a long text set apart; the content ends with `CUT`."""
    text = message.content
    if len(text) <= LONG or text[:1].isspace():
        return message
    spaces = [found.start() for found in re.finditer(r"\s", text[:BEGINNING])]
    end = spaces[-1] if spaces and spaces[-1] > BEGINNING // 2 else BEGINNING
    return set_apart(message, 0, end, mark=CUT)


def _tool_result(message: Message) -> Message:
    return keep_beginning(message) if message.role == "tool" else message


TOOL_RESULTS = Stripper("tool_results", _tool_result)
"""Of a tool's result of more than `LONG` characters, the beginning stays."""
