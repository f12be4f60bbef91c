"""Tool groups of the current turn that do not all fit: whole ones, stubs in place of results, and gaps; pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from shared_core.formats.parts import OPENAI_FORMAT
from shared_core.messages import Message, Payload
from shared_core.turns import Entry

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


def is_stub(message: Message) -> bool:
    """Return whether a message of a prompt is a tool's result that was replaced by a stub."""
    return message.role == "tool" and _STUB.fullmatch(message.content) is not None


def stubs_of(answers: Iterable[Entry], size: Callable[[Message], int]) -> dict[int, Entry]:
    """Return the stub of each tool result that is larger than its stub, by the result's `order`.

    Args:
        answers: what answers a question so far, in order.
        size: counts the tokens of a message as sent.
    """
    names: dict[str | None, str] = {}
    stubs: dict[int, Entry] = {}
    for entry in answers:
        message = entry.message
        names.update((call.id, call.name) for call in message.tool_calls)
        if message.role == "tool":
            name = names.get(message.tool_call_id) or message.name or "a tool"
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


@dataclass(frozen=True, slots=True)
class FittedGroups:
    """The groups as they are sent, in order, and those that are not; see `fit_groups`."""

    sent: tuple[Entry, ...]
    left_out: tuple[Entry, ...]


def fit_groups(groups: Sequence[Group], needed: Sequence[bool], stubs: Mapping[int, Entry], room: int) -> FittedGroups:
    """Return the groups that fit: the newest ones whole, older ones with stubs, and the oldest not at all.

    From the first group that does not fit whole, all older ones have stubs; from the first that does not fit with stubs
    either, all older ones are left out. So the turn has one gap, and what follows it is complete.

    Args:
        groups: tool groups, oldest first.
        needed: which of them are sent whole in any case. They take no room.
        stubs: the stubs of results, by `order`.
        room: tokens for the other groups.
    """
    short = [group if must else _with_stubs(group, stubs) for group, must in zip(groups, needed, strict=True)]
    older = sum(tokens(group) for group, must in zip(short, needed, strict=True) if not must)
    reserve = int(STUBS_SHARE * max(0, room))
    sent: list[Group] = []
    left_out: list[Group] = []
    whole = True
    for group, stubbed, must in zip(reversed(groups), reversed(short), reversed(needed), strict=True):
        older -= 0 if must else tokens(stubbed)
        whole = whole and (must or tokens(group) + min(older, reserve) <= room)
        given = group if must or whole else stubbed
        if must or (not left_out and tokens(given) <= room):
            sent.insert(0, given)
            room -= 0 if must else tokens(given)
        else:
            left_out.insert(0, group)
    return FittedGroups(tuple(chain(*sent)), tuple(chain(*left_out)))


def _with_stubs(group: Group, stubs: Mapping[int, Entry]) -> Group:
    return tuple(stubs.get(entry.order, entry) for entry in group)


def tokens(entries: Iterable[Entry]) -> int:
    """Return the size of messages as sent."""
    return sum(entry.tokens for entry in entries)
