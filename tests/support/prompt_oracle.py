"""What a branch holds and what a prompt must contain, computed from the stored messages alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, takewhile

from shared_core.messages import Grounding, Message
from shared_core.prompt.template import RecallTemplate

__all__ = [
    "Messages",
    "Told",
    "bare",
    "fenced",
    "grounded",
    "ids",
    "is_complete",
    "joined",
    "lighter",
    "media_kept",
    "rendered",
    "sendable",
    "slack_rule",
    "trimmed",
    "units_in_order",
]

Messages = list[Message]


def units(turn: Sequence[Message]) -> list[Messages]:
    """A tool call with its results, wherever in the turn they came; every other message alone."""
    found: list[Messages] = []
    of_call: dict[str | None, Messages] = {}
    for message in turn:
        if message.role == "tool" and message.tool_call_id in of_call:
            of_call[message.tool_call_id].append(message)
        else:
            found.append([message])
            of_call |= {call.id: found[-1] for call in message.tool_calls}
    return found


def is_complete(unit: Messages) -> bool:
    head, *results = unit
    return head.role != "tool" and {c.id for c in head.tool_calls} <= {r.tool_call_id for r in results}


def sendable(turn: Sequence[Message], *, current: bool = False) -> list[Messages]:
    """The units that may be sent: without calls that have no result, but for one that waits at the current turn's end.

    What says nothing besides such calls is left out, and so is a result without its call.
    """
    found = units(turn)
    sent = [u if current and u is found[-1] else answered(u) for u in found if u[0].role != "tool"]
    return [u for u in sent if u]


def answered(unit: Messages) -> Messages:
    """A call with its results, without calls that have none; empty if it says nothing then."""
    head, *results = unit
    calls = tuple(c for c in head.tool_calls if c.id in {r.tool_call_id for r in results})
    if calls == head.tool_calls:
        return unit
    return [head.replace(tool_calls=calls), *results] if calls or head.content.strip() else []


@dataclass(frozen=True)
class Told:
    """A branch: its messages, oldest first, and how large they are for one memory."""

    messages: Messages
    size: Callable[[Message], int]

    @cached_property
    def turns(self) -> dict[str, Messages]:
        """Turn -> messages, in the order in which the turns were opened; only turns that a user opened."""
        found: dict[str, Messages] = {m.id or "": [] for m in self.messages if m.role == "user"}
        for message in self.messages:
            if message.turn_id in found and message.role != "system":
                found[message.turn_id].append(message)
        return found

    @cached_property
    def greeting(self) -> Messages:
        """What is said before the first user message, without tool calls, newest first."""
        before = takewhile(lambda message: message.role != "user", self.messages)
        return [m for m in before if m.role == "assistant" and not m.tool_calls][::-1]

    @cached_property
    def number(self) -> dict[str, int]:
        """Turn -> its number."""
        return {m.id or "": -1 for m in self.greeting} | {turn: number for number, turn in enumerate(self.turns)}

    @cached_property
    def by_id(self) -> dict[str | None, Message]:
        return {message.id: message for message in self.messages}

    @cached_property
    def key(self) -> dict[str | None, tuple[int, int, int]]:
        """Message -> where it stands in a prompt that has no room for all turns."""
        return self.keys(front=True)

    def keys(self, *, front: bool) -> dict[str | None, tuple[int, int, int]]:
        """Message -> where it stands in a prompt: number of the turn, place of its tool group, own place.

        The system prompt stands in front, or where it was said.
        """
        place = {message.id: place for place, message in enumerate(self.messages)}
        keys, opened = {}, -1
        for message in self.messages:
            opened += message.role == "user"
            first = front and message.role == "system" and not message.pinned
            keys[message.id] = (-2 if first else opened, place[message.id], place[message.id])
        for turn, members in self.turns.items():
            for unit in units(members):
                keys |= {m.id: (self.number[turn], place[unit[0].id], place[m.id]) for m in unit}
        return keys

    def tokens(self, messages: Sequence[Message]) -> int:
        """Their size as sent without grounding."""
        return sum(self.size(bare(message)) for message in messages)


def bare(message: Message) -> Message:
    return message.replace(grounding=None)


def lighter(message: Message, told: Told) -> Message:
    """The message with a note in place of its media, if that is smaller."""
    if not message.media_tokens or message.role not in ("user", "tool"):
        return message
    content = "\n".join(part for part in (message.content, "[media left out]") if part)
    light = message.replace(content=content, media_tokens=0, payload=None)
    return light if told.size(light) < told.size(message) else message


def media_kept(full: Sequence[int], light: Sequence[int], rest: int, window: int) -> int:
    """How many of the newest turns keep their media, from the sizes of all turns with them and without, newest first:
    as many as fit with the text of all others; if that text does not fit, as many as fit into the window by themselves.
    """
    kept = range(len(full) + 1)
    if sum(light) <= rest:
        return max(count for count in kept if sum(full[:count]) + sum(light[count:]) <= rest)
    return max(count for count in kept if sum(full[:count]) <= window)


def joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def rendered(grounding: Grounding | None, keep: Sequence[int] | None = None) -> str:
    """Header, the items kept in their order, the note on the others, footer."""
    if grounding is None:
        return ""
    kept = range(len(grounding.items)) if keep is None else sorted(keep)
    texts = [grounding.items[index].text for index in kept]
    omitted = sum(bool(item.text) for item in grounding.items) - sum(map(bool, texts))
    note = grounding.omitted_note.replace("{count}", str(omitted)) if omitted else ""
    return joined(grounding.header, *texts, note, grounding.footer) if any(texts) else ""


def grounded(message: Message) -> Message:
    return with_text(message, rendered(message.grounding))


def with_text(message: Message, grounding: str) -> Message:
    return bare(message).replace(content=joined(grounding, message.content))


def ids(messages: Sequence[Message]) -> list[str | None]:
    return [message.id for message in messages]


def units_in_order(messages: Sequence[Message]) -> list[Messages]:
    """Units as a provider reads them: results belong to the call right before them."""
    found: list[Messages] = []
    for message in messages:
        if message.role == "tool" and found and message.tool_call_id in {c.id for c in found[-1][0].tool_calls}:
            found[-1].append(message)
        else:
            found.append([message])
    return found


def fenced(template: RecallTemplate, recalled: Messages, told: Told, *, by_turn: bool) -> str:
    """The text that brings messages back; they are given best first."""
    if not recalled:
        return ""
    unit_of = {m.id: m.turn_id if by_turn else m.id for m in recalled}
    ranks = list(dict.fromkeys(reversed(unit_of.values())))
    calls = {(message.turn_id, call.id) for message in recalled for call in message.tool_calls}

    def place(message: Message) -> tuple[int, int, int]:
        turn, group, own = told.key[message.id]  # a result whose call is not there, too, stands where it was said
        return turn, group if (message.turn_id, message.tool_call_id) in calls else own, own

    ordered = sorted(recalled, key=place)
    if template.order == "score":
        ordered = sorted(ordered, key=lambda message: ranks.index(unit_of[message.id]))
    lines, day = [template.header], ""
    for message in ordered:
        assert message.created_at is not None
        date = message.created_at.date().isoformat()
        lines += [date] if date != day else []
        text = message.content
        for tag in ("old", "earlier_messages"):
            if f"{tag}>" in template.header + template.footer:
                text = text.replace(f"</{tag}>", f"&lt;/{tag}>")
        text = "\n  ".join(f"{text}|".splitlines())[:-1]
        lines.append(f"- {message.name or message.role}: {text}")
        day = date
    return "\n".join([*lines, template.footer])


def trimmed(question: Message, told: Told, most: int, least: int) -> Iterator[Message]:
    """The question with as much of its grounding as fits into some room between two."""
    longest = ""
    for cut, version in fitting(question):
        size = told.size(version)
        if size <= most and not longest:
            yield version
        elif longest and len(longest.removeprefix(cut).split()) <= 1 and cut:
            yield version  # a cut may give up the word it would break
        if size <= least:
            if not cut:
                return
            longest = longest or cut
    if not longest:
        yield bare(question)  # with on_overflow="keep" not even that need fit


def fitting(question: Message) -> Iterator[tuple[str, Message]]:
    """What is left of the best item if it is cut, and the question with its grounding, from whole to none."""
    grounding = question.grounding or Grounding()
    filled = [index for index, item in enumerate(grounding.items) if item.text]
    scores = [-1e9 if item.score is None else item.score for item in grounding.items]
    strongest = sorted(filled, key=lambda index: (-scores[index], index))
    yield "", grounded(question)
    for count in range(len(strongest) - 1, 0, -1):
        yield "", with_text(question, rendered(grounding, strongest[:count]))
    for best in strongest[:1]:
        text = grounding.items[best].text
        for length in range(len(text) - 1, 0, -1):
            cut = text[:length].rstrip()
            items = [
                item.model_copy(update={"text": cut}) if index == best else item
                for index, item in enumerate(grounding.items)
            ]
            if cut:
                yield cut, with_text(question, rendered(grounding.model_copy(update={"items": tuple(items)}), [best]))
    yield "", bare(question)


def slack_rule(sizes: dict[str, int], number: dict[str, int], room: int, slack: float) -> list[str]:
    """Return the turns kept; all newest first."""
    sums = dict(zip(sizes, accumulate(sizes.values()), strict=True))
    turns = list(sizes)
    fitting = list(takewhile(lambda turn: sums[turn] <= room, turns))
    if fitting == turns or not fitting:
        return fitting
    enough = [turn for turn in fitting if sums[turn] >= (1 - slack) * sums[fitting[-1]]]
    start = max(enough, key=lambda turn: (number[turn] == 0, number[turn] & -number[turn], turns.index(turn)))
    return turns[: turns.index(start) + 1]
