"""What a store can be asked, as frozen values; `Store.read` answers several of them from one moment."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from shared_core.records import ALL, Position, Record, RefKind, Segment, Stretch


class After(NamedTuple):
    """Find the messages stored after number `seq`, of all branches; at most `limit`."""

    seq: int
    limit: int


class InTurns(NamedTuple):
    """Find the messages of some turns, of all branches."""

    turn_ids: Sequence[str]


class IdPrefix(NamedTuple):
    """Find messages by the beginning of their ids, in which no character is a wildcard; at most `limit`."""

    prefix: str
    limit: int


class MadeFrom(NamedTuple):
    """Find the messages that are copies of some at these positions, or sum any of them up.

    A copy is known by the id that it was picked from. Copies of copies are not found.
    """

    positions: Sequence[Position]


class Says(NamedTuple):
    """Find the messages with some fingerprints (see `normal_form`), of all branches; of each, the newest `limit`."""

    fingerprints: Sequence[int]
    limit: int


@dataclass(frozen=True, slots=True)
class Pinned:
    """Find the messages that stay in every prompt: system messages and pinned ones, of all branches."""


Criterion = After | InTurns | IdPrefix | MadeFrom | Says | Pinned
"""What messages can be found by, wherever they stand in the tree."""


class State(NamedTuple):
    """Ask for the `SessionState`, with the head of a branch if one is named."""

    branch: str | None = None


class Line(NamedTuple):
    """Ask for the `LineRead` of what leads to the end of a branch, or to a position.

    Attributes:
        head: the name of the branch, or the position.
        newest: the largest number of messages to read from the end of the line.
        known: number -> segment, which need not be read again; it may be an older state of it.
    """

    head: str | Position
    newest: int
    known: Mapping[int, Segment] = MappingProxyType({})


class LineRead(NamedTuple):
    """What leads to a position.

    Attributes:
        segments: those on the line, second parents included, but for those that were known; none without a branch.
        newest: the newest messages of the line, newest first; it ends early where a merge was made.
    """

    segments: list[Segment]
    newest: list[Record]


class Segments(NamedTuple):
    """Ask for the segments with a larger number than `after`, in order of numbers; at most `limit`."""

    after: int = -1
    limit: int = ALL


@dataclass(frozen=True, slots=True)
class Branches:
    """Ask for all branches, in order of creation."""


class Refs(NamedTuple):
    """Ask for the newest refs of a kind, the newest first; all, or only those of one name."""

    kind: RefKind
    name: str | None = None
    limit: int = ALL


class Ids(NamedTuple):
    """Ask for the messages with these ids, in the order asked; unknown ids are left out."""

    ids: Sequence[str]


class At(NamedTuple):
    """Ask for the messages at these positions, in the order asked; empty positions are left out."""

    positions: Sequence[Position]


class Back(NamedTuple):
    """Ask for the messages of the segment of `upto` no deeper than it, the deepest first; at most `limit`."""

    upto: Position
    limit: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Ask for the positions and ids of all messages, in order of storing.

    Nothing else of them need be readable, so that a session with a damaged message can be forgotten.
    """


class Count(NamedTuple):
    """Ask how many messages some stretches hold."""

    stretches: Collection[Stretch]


class Covers(NamedTuple):
    """Ask which messages sum up what, where either of the two is in one of these segments.

    The answer is the position of a message, and a stretch that it sums up; by position, and of one message in its
    order.
    """

    segments: Collection[int]


class Vectors(NamedTuple):
    """Ask for vectors of a space: those at some positions, in this order; or all after one, in order of positions.

    A vector whose row is damaged comes with an empty hash and no bytes, so that it can be made again.
    """

    space: str
    positions: Sequence[Position] | None = None
    after: Position = Position(-1, -1)
    limit: int = ALL


class KnownVectors(NamedTuple):
    """Ask for what need not be embedded again of some messages, given as position -> hash of the text to embed.

    That is a message's own vector if it was made from the same text, else one of another message with that text.
    """

    space: str
    hashes: Mapping[Position, str]


@dataclass(frozen=True, slots=True)
class Spaces:
    """Ask for the names of the vector spaces that hold vectors, the one written to last first."""


class SnapshotOf(NamedTuple):
    """Ask for the bytes of a snapshot, exactly as they were given; None if there is none of this name."""

    name: str


class Summaries(NamedTuple):
    """Ask for the summaries that end in the segment of `upto` no deeper than it; at most `limit`.

    The deepest comes first, and of one position the one that was kept last.
    """

    upto: Position
    limit: int


class ForgottenIds(NamedTuple):
    """Ask for forgotten ids after one, or from the first; at most `limit`.

    They come in an order of the store's, which is the same for the same ids in every database of its kind.
    """

    after: str | None
    limit: int


class AreForgotten(NamedTuple):
    """Ask which of some ids are forgotten."""

    ids: Collection[str]


class ForgottenSince(NamedTuple):
    """Ask for what was `Forgotten` since an epoch: of all calls; None if a store does not know all of it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Ask for the counts "messages", "turns", "branches", "segments", "vectors" and "forgotten" of a session."""


Query = (
    State | Line | Criterion | Segments | Branches | Refs | Ids | At | Back | Stored | Count | Covers | Vectors
    | KnownVectors | Spaces | SnapshotOf | Summaries | ForgottenIds | AreForgotten | ForgottenSince | Counts
)  # fmt: skip
"""What `Store.read` answers."""
