"""What is sent where not all fits: results as stubs, gaps in the current turn, older turns without media; pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from shared_core.formats.parts import OPENAI_FORMAT
from shared_core.messages import Message, Payload
from shared_core.session.turns import Entry, Size, Turn, calls_of, tokens_of

MEDIA_LEFT_OUT = "[media left out]"
"""What the model is told where images, sound or files of an older turn are not sent again."""

STUB = "[result of {name} left out, {tokens:,} tokens]"
"""What the model reads in place of a tool's result."""

_STUB = re.compile(r"\[result of .+ left out, [\d,]+ tokens\]", re.DOTALL)

STUBS_SHARE = 0.25
"""The share of the room that newer groups leave for the stubs of older ones.

A group's call is sent with its stubs, and the arguments of calls may be long. Without a limit, they would take the room
of newer results, which the model needs more. Without a reserve, the model would forget what it has called already, and
call it again.
"""

Group = tuple[Entry, ...]


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


def is_stub(message: Message) -> bool:
    """Return whether a message of a prompt is a tool's result that was replaced by a stub."""
    return message.role == "tool" and _STUB.fullmatch(message.content) is not None


def stubs_of(answers: Sequence[Entry], size: Size) -> dict[int, Entry]:
    """Return the stub of each tool result that is larger than its stub, by the result's `order`.

    Args:
        answers: what answers a question so far, in order.
        size: counts the tokens of a message as sent.
    """
    calls = calls_of(answers)
    stubs: dict[int, Entry] = {}
    for index, entry in enumerate(answers):
        message = entry.message
        if message.role == "tool":
            caller, number = calls[index]
            name = answers[caller].message.tool_calls[number].name or "a tool"
            sent = message.replace(
                content=STUB.format(name=name, tokens=entry.tokens), media_tokens=0, payload=_without_parts(message)
            )
            if (tokens := size(sent)) < entry.tokens:
                stubs[entry.order] = Entry(sent, tokens, entry.turn_no, entry.order)
    return stubs


def _without_parts(message: Message) -> Payload | None:
    """Return what a payload says beside the content: in OpenAI's, that is the form of a result."""
    payload = message.payload
    if payload is None or payload.format != OPENAI_FORMAT or not isinstance(payload.data, Mapping):
        return None
    kept = {key: value for key, value in payload.data.items() if key != "content"}
    return Payload(format=payload.format, data=kept) if kept else None


def fit_groups(
    groups: Sequence[Group], needed: Sequence[bool], stubs: Mapping[int, Entry], room: int
) -> tuple[Group, Group]:
    """Return what is sent of the groups, and what is not: the newest are whole, older ones have stubs, the oldest go.

    From the first group that does not fit whole, all older ones have stubs; from the first that does not fit with stubs
    either, all older ones are left out. So the turn has one gap, and what follows it is complete.

    Args:
        groups: tool groups, oldest first.
        needed: which of them are sent whole in any case. They take no room.
        stubs: the stubs of results, by `order`.
        room: tokens for the other groups.
    """
    short = [group if must else _with_stubs(group, stubs) for group, must in zip(groups, needed, strict=True)]
    older = sum(tokens_of(group) for group, must in zip(short, needed, strict=True) if not must)
    reserve = int(STUBS_SHARE * max(0, room))
    sent: list[Group] = []
    left_out: list[Group] = []
    whole = True
    for group, stubbed, must in zip(reversed(groups), reversed(short), reversed(needed), strict=True):
        older -= 0 if must else tokens_of(stubbed)
        whole = whole and (must or tokens_of(group) + min(older, reserve) <= room)
        given = group if must or whole else stubbed
        if must or (not left_out and tokens_of(given) <= room):
            sent.insert(0, given)
            room -= 0 if must else tokens_of(given)
        else:
            left_out.insert(0, group)
    return tuple(chain(*sent)), tuple(chain(*left_out))


def _with_stubs(group: Group, stubs: Mapping[int, Entry]) -> Group:
    return tuple(stubs.get(entry.order, entry) for entry in group)
