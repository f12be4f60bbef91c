"""What belongs together in a prompt: turns, tool groups, and the messages of a system prompt. Pure functions.

A turn is a user message with everything that answers it, a tool group a call with its results.

System messages that are stored together, and those that join them later, share a `turn_id`: the id of the first of
them. Only those with the newest such id on a path are sent; they replace all earlier ones. A pinned system message
is part of no system prompt: it is always sent, where it was said.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType

from shared_core.formats.parts import ANTHROPIC_FORMAT, OPENAI_FORMAT, RESPONSES_FORMAT
from shared_core.messages import Message, ToolCall
from shared_core.records import Newest

_set = object.__setattr__  # the only way to set an attribute of a frozen value


GREETING = -1
"""The turn number of messages before the first user message."""

Size = Callable[[Message], int]
"""Counts the tokens of a message as sent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A message with its size.

    Attributes:
        message: the message, with `id` and `turn_id`.
        tokens: the tokens it takes when it is sent, with framing and without grounding.
        turn_no: the number of its turn along the branch.
        order: its index on the path, counted from the root.
    """

    message: Message
    tokens: int
    turn_no: int
    order: int


def tokens_of(entries: Iterable[Entry]) -> int:
    """Return the size of messages as sent."""
    return sum([entry.tokens for entry in entries])


@dataclass(frozen=True, slots=True)
class Turn:
    """A user message and everything that answers it, in order. Messages of other turns may lie in between.

    Attributes:
        turn_id: the id of the user message.
        turn_no: its number along the branch.
        entries: the messages that can be sent, with unbroken tool groups.
        broken: results without their call, and messages that hold nothing but calls without a result.
        tokens: the size of the messages that can be sent.
        asks: whether it begins with a user message.
        greets: whether it is what an assistant says before the first user message. A prompt that holds the first turn
            may begin with it. Any other reply without its user message cannot be sent by itself.
        answered: whether it ends with an assistant's text instead of a tool call.
        only_text: whether no message that can be sent has media, or text that is set apart from its content.
        has_tools: whether a message that can be sent calls a tool or is a result.
    """

    turn_id: str
    turn_no: int
    entries: tuple[Entry, ...]
    broken: tuple[Entry, ...] = ()
    tokens: int = field(init=False)
    asks: bool = field(init=False)
    greets: bool = field(init=False)
    answered: bool = field(init=False)
    only_text: bool = field(init=False)
    has_tools: bool = field(init=False)

    def __post_init__(self) -> None:
        last = max((*self.broken, *self.entries), key=attrgetter("order"), default=None)
        ends = last.message if last is not None else None
        _set(self, "tokens", sum([entry.tokens for entry in self.entries]))
        _set(self, "asks", bool(self.entries) and self.entries[0].message.role == "user")
        _set(self, "greets", self.turn_no == GREETING and all(map(_is_said, self.entries)))
        _set(self, "answered", ends is not None and ends.role == "assistant" and not ends.tool_calls)
        _set(self, "only_text", not any(e.message.grounding or e.message.media_tokens for e in self.entries))
        _set(self, "has_tools", any(e.message.tool_calls or e.message.role == "tool" for e in self.entries))

    def whole(self, size: Size, *, pending: bool = False) -> "Turn":
        """Return the turn without calls that have no result, which providers refuse.

        What is said or called beside such a call stays. What holds nothing else is moved to `broken`, and so are a
        result without its call, and a second result.

        Args:
            size: counts the tokens of a message as sent.
            pending: keep a tool call at the end of the turn, whose results may still come.
        """
        if not self.has_tools:
            return self
        groups = list(tool_groups(self.entries))
        entries: list[Entry] = []
        broken: list[Entry] = []
        for number, whole in enumerate(groups, start=1):
            group = _with_first_results(whole)
            if len(group) < len(whole):
                broken += [entry for entry in whole if entry not in group]
            waits = pending and number == len(groups) and group[0].message.role != "tool"
            sent = group if waits else _answered(group, size)
            (entries if sent else broken).extend(sent or group)
        return replace(self, entries=tuple(entries), broken=tuple(broken))


def _is_said(entry: Entry) -> bool:
    return entry.message.role == "assistant" and not entry.message.tool_calls


def group_turns(entries: Iterable[Entry], known: Mapping[str, Turn] = MappingProxyType({})) -> list[Turn]:
    """Return the turns of messages that are in path order, oldest first.

    A turn begins with its user message, if that is among them. System messages are left out: they belong to no turn.

    Args:
        entries: the messages.
        known: turns that were grouped before, by id; they are returned again where their messages are the same.
    """
    grouped: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.message.role != "system":
            grouped.setdefault(entry.message.turn_id or "", []).append(entry)
    turns: list[Turn] = []
    for turn_id, members in grouped.items():
        same, before = tuple(members), known.get(turn_id)
        turns.append(before if before and before.entries == same else Turn(turn_id, members[0].turn_no, same))
    return sorted(turns, key=attrgetter("turn_no"))  # in the order of their first messages already


def turns_before(past: Sequence[Turn], current: Turn | None, size: Size) -> tuple[list[Turn], list[Turn]]:
    """Return the turns that a window may hold, without broken tool groups, and those that cannot be sent.

    Args:
        past: the turns before the question, newest first.
        current: the turn of the question; without one, a greeting is no prompt.
        size: counts the tokens of a message as sent.
    """
    held: list[Turn] = []
    unsent: list[Turn] = []
    for turn in past:
        if turn.asks or (turn.greets and current is not None):
            held.append(turn.whole(size) if turn.has_tools else turn)
        else:
            unsent.append(turn)
    return held, unsent


def tool_groups(entries: Sequence[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Yield the groups that are kept or dropped as a whole: a tool call with its results, any other message alone."""
    groups: dict[int, list[Entry]] = {}
    answers = calls_of(entries)
    for index, entry in enumerate(entries):
        groups.setdefault(answers[index][0] if index in answers else index, []).append(entry)
    yield from map(tuple, groups.values())


def calls_of(entries: Sequence[Entry]) -> dict[int, tuple[int, int]]:
    """Return which call each result answers: index of the result -> index of the message that calls, and of its call.

    A result answers the newest call with its id. Where ids are missing, as with Ollama's models, it answers a call of
    its turn that has no result yet, in the newest message with one: the first with its name, else the first.
    """
    newest: dict[str, int] = {}
    waiting: dict[tuple[int, int], ToolCall] = {}
    found: dict[int, tuple[int, int]] = {}
    for index, entry in enumerate(entries):
        message, id_ = entry.message, entry.message.tool_call_id or ""
        for number, call in enumerate(message.tool_calls):
            newest[call.id], waiting[index, number] = index, call
        if message.role != "tool":
            continue
        if id_ and (caller := newest.get(id_)) is not None:
            calls = entries[caller].message.tool_calls
            same = [(caller, number) for number, call in enumerate(calls) if call.id == id_]
            at = next((one for one in same if one in waiting), same[-1])
        else:
            names = {id_, message.name} - {"", None}  # some programs name the tool where the id belongs
            open_ = [at for at in waiting if entries[at[0]].turn_no == entry.turn_no]
            named = [at for at in open_ if waiting[at].name in names]
            placed = named or [at for at in open_ if not (id_ and waiting[at].id)]
            if not placed:
                continue
            at = min(placed, key=lambda at: (-at[0], at[1]))
        found[index] = at
        waiting.pop(at, None)
    return found


def _with_first_results(group: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return a group without second results of a call, which providers refuse."""
    if len(group) < 3:
        return group
    first: dict[tuple[int, int], Entry] = {}
    for index, call in calls_of(group).items():
        first.setdefault(call, group[index])
    return (group[0], *first.values())


def _answered(group: Sequence[Entry], size: Size) -> tuple[Entry, ...]:
    """Return a group without the calls that have no result; empty if nothing is left that can be sent."""
    first, *results = group
    answered = {number for _, number in calls_of(group).values()}
    calls = tuple([call for number, call in enumerate(first.message.tool_calls) if number in answered])
    if first.message.role == "tool" or not (calls or first.message.content.strip() or not first.message.tool_calls):
        return ()
    if len(calls) == len(first.message.tool_calls):
        return tuple(group)
    message, payload = first.message.replace(tool_calls=calls), first.message.payload
    if payload is not None and payload.format not in (ANTHROPIC_FORMAT, OPENAI_FORMAT, RESPONSES_FORMAT):
        # A framework's payload holds all calls. It is left out, since every format can write a message without one.
        message = message.replace(media_tokens=0, payload=None)
    return (replace(first, message=message, tokens=size(message)), *results)


def chronological(entries: Iterable[Entry]) -> list[Entry]:
    """Return messages in the order of a prompt: by turn, then by time, with unbroken tool groups.

    A system message stays where it was said, but never inside a tool group.
    """
    ordered = sorted(entries, key=attrgetter("turn_no", "order"))
    if "tool" not in [entry.message.role for entry in ordered]:
        return ordered  # no result can come away from its call
    answers = calls_of(ordered)
    keys: list[tuple[int, int, int]] = []
    for index, entry in enumerate(ordered):
        caller = ordered[answers[index][0]] if index in answers else entry
        # Call ids are only unique within a turn: some models start counting again in each.
        start = caller.order if caller.turn_no == entry.turn_no else entry.order
        keys.append((entry.turn_no, start, entry.order))
    return [entry for _, entry in sorted(zip(keys, ordered, strict=True), key=lambda pair: pair[0])]


def assign_turns(
    messages: Sequence[Message],
    newest: Newest,
    named: Newest | None,
    known: Mapping[str, Newest] = MappingProxyType({}),
) -> list[Newest]:
    """Return the turn of each message. A user message opens a turn; a reply joins the turn of the message before it.

    Args:
        messages: the messages, with ids, in order.
        newest: the newest turn of the branch. `Newest(None, -1)`: there is no user message yet.
        named: the turn that the first replies join. None: the newest.
        known: id -> turn, for messages that are on the branch already, as when a whole history is sent again.

    Returns:
        One `Newest` per message. A system message gets a turn of its own, or the one it names (see `is_prompt`),
        with the number of the newest turn. A reply before the first user message gets a turn of its own, too. Such
        messages do not change which turn the next reply joins.
    """
    turns: list[Newest] = []
    joined = named or newest
    for message in messages:
        assert message.id is not None
        turn = known.get(message.id)
        if turn is None and message.role == "user":
            turn = newest = Newest(message.id, newest.turn_no + 1)
        elif turn is None and message.role == "system":
            turn = Newest(message.turn_id or message.id, newest.turn_no)
        elif turn is None:
            turn = Newest(message.id, newest.turn_no) if joined.turn_id is None else joined
        if message.role == "user" or (message.role != "system" and turn.turn_id != message.id):
            joined = turn
        turns.append(turn)
    return turns


FRONT = -3
"""The turn number of the system prompt: it comes before a greeting, and before messages of other sessions."""


def is_prompt(message: Message) -> bool:
    """Return whether a message belongs to a system prompt that a later one replaces."""
    return message.role == "system" and not message.pinned


def said(message: Message) -> tuple[str | None, str]:
    """Return what a message of a system prompt says: its speaker's name and its text."""
    return message.name, message.content


def said_of(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that are not part of a system prompt."""
    return [message for message in messages if not is_prompt(message)]


def newest_prompt(entries: Sequence[Entry]) -> list[Entry]:
    """Return the messages of the newest system prompt among messages in path order; empty if there is none."""
    prompts = [entry for entry in entries if is_prompt(entry.message)]
    return [entry for entry in prompts if entry.message.turn_id == prompts[-1].message.turn_id]


def in_front(prompt: Sequence[Entry]) -> list[Entry]:
    """Return a system prompt with its messages where they are sent: in front, but those that joined it later stay."""
    return [replace(entry, turn_no=FRONT) if entry.turn_no == prompt[0].turn_no else entry for entry in prompt]


def kept_of(current: Sequence[Message], wanted: Sequence[Message]) -> int:
    """Return how many messages of the current prompt stay when another one is wanted; 0: it is replaced as a whole.

    A prompt that only grows keeps its messages.
    """
    same = [said(message) for message in wanted[: len(current)]] == [said(message) for message in current]
    return len(current) if same else 0


def said_together(messages: Sequence[Message], prompt_id: str | None = None) -> list[Message]:
    """Return messages with ids, with all system prompts among them joined into one.

    Args:
        messages: the messages, with ids.
        prompt_id: the `turn_id` of the prompt that they join. None: they are a prompt of their own.
    """
    joined: list[Message] = []
    for message in messages:
        if is_prompt(message):
            prompt_id = prompt_id or message.id
            message = message.replace(turn_id=prompt_id)
        joined.append(message)
    return joined


def prompt_joined(message: Message, before: Message | None) -> str | None:
    """Return the `turn_id` of a message that names none, in a list that was kept elsewhere; None: it is no prompt.

    Such a list may hold several requests, each with its prompt. System messages directly one after another are one.

    Args:
        message: the message, with its id.
        before: the one before it, as stored.
    """
    if not is_prompt(message):
        return None
    return before.turn_id if before is not None and is_prompt(before) else message.id
