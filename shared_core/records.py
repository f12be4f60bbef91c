"""What a store keeps, as frozen values: messages, their positions in the tree, branches, refs and summaries."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from shared_core.messages import Message, storable

MAIN = "main"
"""The name of the branch every session begins with."""

ALL = 2**31
"""A limit that is never reached."""


class Position(NamedTuple):
    """Where a message stands: its segment (an append-only run) and its depth, counted from the root."""

    segment: int
    depth: int


ROOT = Position(0, -1)
"""The position before the first message."""


class Segment(NamedTuple):
    """An append-only run of messages.

    `parent` is the position it grows out of (None for the first), in a segment with a smaller number. `tip` is the
    depth of its last message, also when that message has been forgotten since, so that a depth is never used twice.

    A merge is a segment of its own, with a second parent, `merged`. It begins with an empty position, the merge itself,
    at depth `base`; the depths before it are left free for what only the second parent's path has. `turn_shift` is
    added to the numbers of the turns there, so that they come after those of the first parent's path.
    """

    segment: int
    parent: Position | None
    tip: int
    merged: Position | None = None
    base: int | None = None
    turn_shift: int = 0

    @property
    def start(self) -> int:
        """The depth of its first position."""
        if self.base is not None:
            return self.base
        return self.parent.depth + 1 if self.parent is not None else 0

    @property
    def before(self) -> int:
        """The depth before its first message; a merge's is that of the merge."""
        return self.base if self.base is not None else self.start - 1


class Stretch(NamedTuple):
    """The messages of one segment between two depths, both included."""

    segment: int
    start: int
    upto: int


class Branch(NamedTuple):
    """A named pointer to the newest message of a line of conversation."""

    name: str
    head: Position


class SessionState(NamedTuple):
    """What to compare before a cache may be trusted.

    `head` is the tip of the branch asked for (None: no such branch), `last_seq` the number of the newest message of
    the session, `epoch` grows whenever something is forgotten. `version` grows with every change of the session: of its
    messages, branches, other names, and its own name, but not of what is derived from messages.
    """

    head: Position | None
    last_seq: int
    epoch: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A message about to be stored: id and time set, counted by the counter named (None: not counted).

    `picked_from` is the id of the message it is a copy or an edited form of, `covers` what it sums up. `alone` says
    that it came without what is said before it: no history is recognized by it.
    """

    message: Message
    counter: str | None = None
    tokens: int | None = None
    picked_from: str | None = None
    covers: tuple[Stretch, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """A stored message, its position, and its token count.

    Attributes:
        message: with `id`, `created_at` and `turn_id`.
        position: where it stands in the tree.
        seq: its number in the session, from 1, in order of storing.
        turn_no: the number of its turn along the branch, from 0; -1 before the first user message.
        counter: the name of the token counter that counted it.
        tokens: its size without grounding and framing, by that counter.
        picked_from: the id of the message it is a copy or an edited form of.
        alone: whether it is stored without a fingerprint; see `Draft`. So is every part of a system prompt.
    """

    message: Message
    position: Position
    seq: int
    turn_no: int
    counter: str | None = None
    tokens: int | None = None
    picked_from: str | None = None
    alone: bool = field(default=False, compare=False)


RefKind = Literal["tag", "stash", "move", "head", "title"]
"""A tag stands still, a stash is the end of a branch that was put aside, and a move is an entry of the reflog.

A head is the branch that a program which comes and goes, such as the command, has checked out. A memory begins on
`main`, whatever the head is. The note of a title is the title of the session; it points nowhere in particular.
"""


class Ref(NamedTuple):
    """A named position.

    Attributes:
        number: unique in the database; a newer one has a larger number.
        kind: what it is.
        name: of the tag; of the branch that was put aside, moved or checked out.
        position: where it points; None for a branch that was deleted.
        base: where the branch pointed before; for a stash, the position before what was put aside.
        note: why, in words.
        created_at: when, in UTC, ISO 8601.
    """

    number: int
    kind: RefKind
    name: str
    position: Position | None
    base: Position | None
    note: str
    created_at: str


class Create(NamedTuple):
    """Create a branch at a position, also a forgotten one; nothing is noted of it."""

    branch: str
    at: Position


class Move(NamedTuple):
    """Move a branch to another position; with `expect`, only if it ends there now, else nothing is changed."""

    branch: str
    to: Position
    note: str
    expect: Position | None = None


class Merge(NamedTuple):
    """Merge another position into a branch; does nothing if that position is on its path already."""

    branch: str
    source: Position
    note: str


class Rename(NamedTuple):
    """Give a branch another name."""

    branch: str
    name: str


class Delete(NamedTuple):
    """Delete a branch; its messages stay."""

    branch: str


class Put(NamedTuple):
    """Store a tag, a stash or a head."""

    kind: RefKind
    name: str
    position: Position
    base: Position | None = None
    note: str = ""


class Drop(NamedTuple):
    """Delete a tag, a stash or a head, by its number."""

    number: int


class Expect(NamedTuple):
    """Check that nothing has changed since the caller looked; else nothing is changed.

    Attributes:
        epoch: the session's, then; if it has grown, something that was read may have been forgotten.
        branch: a branch that must not have been moved or added to since, if any.
        head: where that branch ended then.
    """

    epoch: int
    branch: str | None = None
    head: Position | None = None


Change = Create | Move | Merge | Rename | Delete | Put | Drop | Expect
"""What can be done to branches and other names; one transaction may do several."""


class SessionKey(NamedTuple):
    """A session of a store, and whose it is."""

    key: int
    user_id: str | None
    session_id: str


TITLE_CHARACTERS = 80
"""The longest title of a session."""

TITLE_READ = 400
"""How many characters of a message its title is made from: white space in it may shrink."""


def title_of(content: str) -> str | None:
    """Return the beginning of a message's text on one line; None if it has no text."""
    line = " ".join(storable(content[:TITLE_READ]).split())
    if len(line) > TITLE_CHARACTERS:
        line = f"{line[: TITLE_CHARACTERS - 1].rstrip()}…"
    return line or None


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session at a glance.

    Attributes:
        session_id: the name of the session.
        user_id: the user it belongs to. None: no user.
        messages: how many messages it holds, on all branches; at least one.
        branches: how many branches it has.
        first: when the message that was stored first was said.
        last: when the message that was stored last was said.
        title: the one that it was given, or else the beginning of the user message that was stored first, on one line.
            None: there is none, it has no text, or it is damaged.
    """

    session_id: str
    user_id: str | None
    messages: int
    branches: int
    first: datetime
    last: datetime
    title: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"first": self.first.isoformat(), "last": self.last.isoformat()}


VectorRow = tuple[Position, str, bytes]
"""The position of a message, the hash of the text that was embedded, and its vector."""


class VectorRows(NamedTuple):
    """Vectors of messages in one space, which becomes the one written to last; they replace those that are there.

    A position whose message has been forgotten meanwhile is left out.
    """

    space: str
    rows: Iterable[VectorRow]


class Snapshot(NamedTuple):
    """A derived index as bytes, which replaces the one of this name."""

    name: str
    data: bytes


class Forgotten(NamedTuple):
    """What was forgotten since an epoch.

    Attributes:
        positions: where messages were erased.
        stale: messages that stayed, and lost their vectors.
    """

    positions: list[Position]
    stale: list[Position]


class MainNews(NamedTuple):
    """What is new on the branch `main` of one of several sessions that are read together.

    Attributes:
        state: the session's, with the head of `main`.
        segments: those on the line to that head, second parents included.
        spaces: the names of the vector spaces that hold vectors, the one written to last first.
        records: the messages that were asked for, of all branches, in order of storing.
        vectors: those of these messages that have one in the space asked for, in any order.
    """

    state: SessionState
    segments: list[Segment]
    spaces: list[str]
    records: list[Record]
    vectors: list[VectorRow]


Mark: TypeAlias = tuple[int, ...]
"""A moment of a database, which only the store that returned it can read."""


class MainChanges(NamedTuple):
    """Which of a user's sessions may have changed since a moment.

    Attributes:
        states: the sessions, each with its state on `main`. `head` is None or `ROOT` if there are no messages there.
        mark: the moment of this answer, to be given to the next call; None: the next call reads everything again.
        whole: whether these are all sessions with messages on `main`; any other has none.
    """

    states: list[tuple[SessionKey, SessionState]]
    mark: Mark | None
    whole: bool


class Newest(NamedTuple):
    """The newest turn of a line of conversation."""

    turn_id: str | None
    turn_no: int


class KnownBranch(NamedTuple):
    """What a caller knows of a branch that it adds to, as it was when the caller last looked.

    Attributes:
        state: the session's, with the branch's head.
        turn: the turn of the newest user message on the line to that head, with its number there; `Newest(None, -1)`
            if there is none.
    """

    state: SessionState
    turn: Newest


@dataclass(frozen=True, slots=True)
class Restored:
    """Parts of a session as another store had them.

    Attributes:
        segments: those that are not there yet; or with a larger tip, those that are.
        records: with ids, times, turns, positions and numbers, none of which is taken.
        covers: the position of a message, and a stretch that it sums up.
        branches: where they end; those that do not exist yet are created.
        refs: tags, stashes and moves, oldest first; each gets a new number.
        forgotten: ids that must not be stored from now on; messages already stored stay.
        last_seq: what the next message's number is larger than, also where the newest message has been forgotten.
    """

    segments: tuple[Segment, ...] = ()
    records: tuple[Record, ...] = ()
    covers: tuple[tuple[Position, Stretch], ...] = ()
    branches: tuple[Branch, ...] = ()
    refs: tuple[Ref, ...] = ()
    forgotten: tuple[str, ...] = ()
    last_seq: int = 0


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of `Store.append`.

    Attributes:
        records: one for every message that is stored now, old or new, in the order given.
        added: ids of those that are new.
        forgotten: ids that were not stored because they had been forgotten before.
        head: the branch's new tip.
        known: what is known of the branch now, for the next `append`. None: this store has no use for it, or does not
            know.
        kept: whether the vectors that were given are stored, too.
    """

    records: tuple[Record, ...]
    added: frozenset[str]
    forgotten: tuple[str, ...]
    head: Position
    known: KnownBranch | None = field(default=None, compare=False)
    kept: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of everything said up to a position.

    It belongs to every branch that begins like the one it was made on, and to no other.

    Attributes:
        text: what it says.
        upto: the last position it covers; everything before it is covered too, back to the first message.
        along: a position whose path shows what comes before; `upto` itself, unless a merge brought that in.
        last_id: the id of the last message that was summed up.
        messages: how many were; system and pinned messages are not counted, because every prompt has them.
        created_at: when it was made, aware.
        counter: the name of the token counter that counted it, None if that has no name.
        tokens: its size by that counter, None without a name.
    """

    text: str
    upto: Position
    along: Position
    last_id: str
    messages: int
    created_at: datetime
    counter: str | None = None
    tokens: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "text": self.text,
            "upto": self.last_id,
            "messages": self.messages,
            "created_at": self.created_at.isoformat(),
            "tokens": self.tokens,
        }


Derived = VectorRows | Snapshot | Summary
"""What is made from messages, and goes when they are forgotten."""
