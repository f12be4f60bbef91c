"""A conversation of another program, with the versions of it as branches, before it is stored."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shared_core.display import short
from shared_core.messages import Message, Payload
from shared_core.records import MAIN
from shared_core.sharing.format import MAX_NESTING, LineError, nesting

SHOWN = 8
"""Characters of a message's id in the name of a version."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Node(NamedTuple):
    """A message with an id and a time, and the id of the message before it."""

    message: Message
    parent: str | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with its branches, or a list of messages.

    Attributes:
        id: the id that the other program gave it. "": none.
        title: its title. "": none.
        nodes: its messages, each after its parent.
        ends: branch -> id of its last message; `main` comes first. Empty: the nodes are a list, which has no branches.
        left_out: what is not stored -> how often, for example `{"image": 3}`.
    """

    id: str
    title: str
    nodes: Sequence[Node]
    ends: Mapping[str, str | None] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def messages(self) -> list[Message]:
        """The messages, in order."""
        return [node.message for node in self.nodes]

    @property
    def left_out_words(self) -> tuple[str, ...]:
        """What is not stored, in words."""
        return tuple(_several(what, count) for what, count in self.left_out.items())


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation of a file that is not converted yet.

    Attributes:
        id: its id. "": none.
        title: its title. "": none.
        read: returns the conversation; raises `InputFileError` if it is invalid.
    """

    id: str
    title: str
    read: Callable[[], Conversation]


def _several(what: str, count: int) -> str:
    """Return a number of things; the first word of what they are becomes a plural."""
    noun, space, rest = what.partition(" ")
    return f"{count:,} {noun}{'' if count == 1 else 's'}{space}{rest}"


def list_of(messages: Sequence[Message]) -> Conversation:
    """Return a list of messages, which has no branches."""
    parents = [None, *(message.id for message in messages)]
    nodes = [Node(message, parent) for message, parent in zip(messages, parents, strict=False)]
    return Conversation("", "", nodes)


class Builder:
    """Collects the messages of a conversation.

    Attributes:
        nodes: id -> message and parent.
        left_out: counts what is not stored.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.left_out: Counter[str] = Counter()

    def add(self, message: Message, parent: str | None) -> str:
        """Add a message after another one and return its id; `LineError` if the id is taken."""
        assert message.id is not None
        if message.id in self.nodes:
            raise LineError(f"two messages have the id {message.id!r}; expected unique ids")
        self.nodes[message.id] = Node(message, parent)
        return message.id

    def finish(self, id_: str, title: Any, current: str | None) -> Conversation:
        """Return the conversation: `main` ends at `current`, or else at the newest message."""
        ends = ends_of(self.nodes, current)
        return Conversation(
            id_, title if isinstance(title, str) else "", tuple(self.nodes.values()), ends, dict(self.left_out)
        )


def ends_of(nodes: Mapping[str, Node], current: str | None) -> dict[str, str | None]:
    """Return branch -> its last message: `main` for the version last shown, then the others in order.

    They are named after their first message that no branch before them has, as in a newer export.
    """
    inner = {node.parent for node in nodes.values()}
    leaves = [id_ for id_ in nodes if id_ not in inner]
    main = current if current in nodes else leaves[-1] if leaves else None
    ends: dict[str, str | None] = {MAIN: main}
    seen: set[str] = set()
    for leaf in dict.fromkeys([*filter(None, [main]), *leaves]):
        first, above = leaf, nodes[leaf].parent
        while above is not None and above not in seen:
            seen.add(first)
            first, above = above, nodes[above].parent
        seen.add(first)
        if leaf != main:
            name = f"version-{first[:SHOWN]}"
            ends[f"version-{first}" if name in ends else name] = leaf
    return ends


def message_of(what: str, **fields: Any) -> Message:
    """Return a message; `LineError` that names `what` it is and its id if a field is invalid."""
    try:
        message = Message(**fields)
    except ValueError as error:
        reason = " ".join(str(error).split()).removeprefix("Message: ")
        raise LineError(f"{what} {short(fields['id'])}: {reason}") from None
    check_nesting(message)
    return message


def check_nesting(message: Message) -> None:
    """Raise `LineError` if the payload of a message is nested too deeply to be exported."""
    if message.payload is not None and nesting(message.payload.data) > MAX_NESTING:
        raise LineError(f"is nested too deeply; {MAX_NESTING} levels are enough")


def payload_of(format: str, data: Any) -> Payload | None:
    """Return a payload; None for no data."""
    return Payload(format=format, data=data) if data else None


def time_of(value: Any, missing: datetime) -> datetime:
    """Return a time that is written as seconds since 1970 or as ISO 8601 text; `missing` if there is none."""
    if value is None or value == "":
        return missing
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise LineError(f"{short(value)} is not a time; expected ISO 8601 text or seconds since 1970")
