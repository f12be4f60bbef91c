"""Turns: a user message with everything that answers it, and tool groups, which stay whole; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from shared_core.messages import Message
from shared_core.records import Newest

__all__ = ["Entry", "Turn", "assign_turns", "group_turns", "tool_groups"]


_set = object.__setattr__  # a frozen value has no other way in


@dataclass(frozen=True, slots=True)
class Entry:
    """A message with its size.

    Attributes:
        message: with `id` and `turn_id`.
        tokens: its size as sent without grounding, framing included.
        turn_no: the number of its turn along the branch.
        order: its place on the path, growing from the root.
    """

    message: Message
    tokens: int
    turn_no: int
    order: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and everything that answers it, in order, however much was said between.

    Attributes:
        turn_id: the id of the user message.
        turn_no: its number along the branch.
        entries: what can be sent: tool groups stand together, broken ones are in `broken`.
        broken: calls without all their results, results without their call.
        tokens: the size of what can be sent.
        asks: whether it begins with a user's message, as a prompt must.
        answered: whether an assistant's words, not a tool call, end it.
    """

    turn_id: str
    turn_no: int
    entries: tuple[Entry, ...]
    broken: tuple[Entry, ...] = ()
    tokens: int = field(init=False)
    asks: bool = field(init=False)
    answered: bool = field(init=False)

    def __post_init__(self) -> None:
        last = self.broken or self.entries
        ends = last[-1].message if last else None
        _set(self, "tokens", sum(entry.tokens for entry in self.entries))
        _set(self, "asks", bool(self.entries) and self.entries[0].message.role == "user")
        _set(self, "answered", ends is not None and ends.role == "assistant" and not ends.tool_calls)

    def whole(self, *, pending: bool = False) -> "Turn":
        """Return the turn with broken tool groups set apart; `pending` keeps a call at its end that still waits."""
        if not any(entry.message.tool_calls or entry.message.role == "tool" for entry in self.entries):
            return self
        groups = list(tool_groups(self.entries))
        entries: list[Entry] = []
        broken: list[Entry] = []
        for number, group in enumerate(groups, start=1):
            waits = pending and number == len(groups) and group[0].message.role != "tool"
            (entries if waits or _complete(group) else broken).extend(group)
        return replace(self, entries=tuple(entries), broken=tuple(broken))


def group_turns(entries: Iterable[Entry]) -> list[Turn]:
    """Return the turns of messages in path order, oldest first.

    Every turn that can be is begun by its user message. System messages are left out: they stand alone.
    """
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.message.role != "system":
            grouped.setdefault(entry.message.turn_id or "", []).append(entry)
    turns = [Turn(turn_id, members[0].turn_no, tuple(members)) for turn_id, members in grouped.items()]
    return sorted(turns, key=lambda turn: (turn.turn_no, turn.entries[0].order))


def tool_groups(entries: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Yield the units that are kept or dropped together: a tool call with its results, any other message alone."""
    groups: list[list[Entry]] = []
    caller: dict[str, list[Entry]] = {}
    for entry in entries:
        message = entry.message
        owner = caller.get(message.tool_call_id or "") if message.role == "tool" else None
        if owner is not None:
            owner.append(entry)
            continue
        groups.append([entry])
        for call in message.tool_calls:
            caller[call.id] = groups[-1]
    yield from map(tuple, groups)


def _complete(group: Sequence[Entry]) -> bool:
    first, *results = (entry.message for entry in group)
    if first.role == "tool":
        return False
    return {call.id for call in first.tool_calls} <= {result.tool_call_id for result in results}


def chronological(entries: Iterable[Entry]) -> list[Entry]:
    """Return messages in the order of a prompt: by turn, then by time, with tool groups unbroken.

    A system message stands where it was said, but never inside a tool group.
    """
    # Call ids need only be unique within a turn: some models number them anew in each.
    first_of: dict[tuple[int, str | None], int] = {}
    ordered = sorted(entries, key=lambda entry: (entry.turn_no, entry.order))
    keys: list[tuple[int, int, int]] = []
    for entry in ordered:
        message, turn = entry.message, entry.turn_no
        start = first_of.get((turn, message.tool_call_id), entry.order) if message.role == "tool" else entry.order
        keys.append((turn, start, entry.order))
        first_of.update(((turn, call.id), entry.order) for call in message.tool_calls)
    return [entry for _, entry in sorted(zip(keys, ordered, strict=True), key=lambda pair: pair[0])]


def assign_turns(
    messages: Sequence[Message],
    newest: Newest,
    named: Newest | None,
    known: Mapping[str, Newest] = MappingProxyType({}),
) -> list[Newest]:
    """Return each message's turn: a user message opens one, a reply joins that of the message before it in the list.

    Args:
        messages: in order, with ids.
        newest: the newest turn of the branch, `Newest(None, -1)` before the first user message.
        named: the turn that the first replies join, if it is not the newest.
        known: id -> turn of those messages that stand on the branch already, as when a whole history is sent again.

    Returns:
        One `Newest` per message. System messages stand alone, in the time of the newest turn; so do replies before the
        first user message. What stands alone does not change which turn the next reply joins.
    """
    turns: list[Newest] = []
    joined = named or newest
    for message in messages:
        assert message.id is not None
        turn = known.get(message.id)
        if turn is None and message.role == "user":
            turn = newest = Newest(message.id, newest.turn_no + 1)
        elif turn is None:
            alone = message.role == "system" or joined.turn_id is None
            turn = Newest(message.id, newest.turn_no) if alone else joined
        if message.role == "user" or turn.turn_id != message.id:
            joined = turn
        turns.append(turn)
    return turns
