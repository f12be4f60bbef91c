"""Older turns as they are sent: long results whole while everything fits, and media given up before text; pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shared_core.messages import Message
from shared_core.turns import Entry, Turn

Size = Callable[[Message], int]
"""Counts the tokens of a message as sent."""

MEDIA_LEFT_OUT = "[media left out]"
"""What the model is told where images, sound or files of an older turn are not sent again."""


def with_results(turn: Turn, size: Size) -> Turn:
    """Return a turn with the whole text of its replies, such as results of tools whose end is set apart."""
    return _changed(turn, lambda message: message if message.role == "user" else message.whole, size)


def _shows(message: Message) -> bool:
    # What an assistant's message holds besides text is its reasoning.
    return bool(message.media_tokens) and message.role in ("user", "tool")


def tokens_without_media(turn: Turn) -> int:
    """Return at least how many tokens a turn takes."""
    if turn.only_text:
        return turn.tokens
    return turn.tokens - sum(entry.message.media_tokens for entry in turn.entries if _shows(entry.message))


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
    if all(turn.only_text for turn in turns):
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
