"""One session as a stream of pieces: what copies, exports and imports read, and what they write."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple, TypeVar, get_args

from shared_core.queries import After, Branches, Refs, Segments, State
from shared_core.records import (
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionState,
    Stretch,
    VectorRows,
)
from shared_core.store import PAGE, Store

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Tree:
    """All of a session's tree at one moment.

    Attributes:
        state: of the session.
        segments: by number.
        branches: name -> where it ends, in order of creation.
        refs: oldest first.
    """

    state: SessionState
    segments: Mapping[int, Segment]
    branches: Mapping[str, Position]
    refs: Sequence[Ref]

    @property
    def names(self) -> tuple[list[tuple[str, Position]], list[Ref]]:
        """Branches and refs, these without their numbers, which differ from database to database."""
        return list(self.branches.items()), [ref._replace(number=0) for ref in self.refs]


class Page(NamedTuple):
    """Some messages of a session, in order of storing, with what they sum up and their vectors."""

    records: Sequence[Record]
    covers: Sequence[tuple[Position, Stretch]]
    vectors: Sequence[VectorRows]

    def only(self, kept: Collection[Record]) -> "Page":
        """Return the part of a page that belongs to some of its messages."""
        places = {record.position for record in kept}
        vectors = [VectorRows(one.space, [row for row in one.rows if row[0] in places]) for one in self.vectors]
        return Page(list(kept), [one for one in self.covers if one[0] in places], vectors)


# Reading


def read_tree(store: Store, session: int) -> Tree:
    """Return the tree of a session."""
    state, branches, segments, *refs = store.read(
        session, State(), Branches(), Segments(), *(Refs(kind) for kind in get_args(RefKind))
    )
    ends = {branch.name: branch.head for branch in branches}
    return Tree(state, {one.segment: one for one in segments}, ends, sorted(chain.from_iterable(refs)))


def records_of(store: Store, session: int, after: int = 0) -> Iterator[list[Record]]:
    """Yield all messages of a session after a number, in pages."""
    while page := store.find(session, After(after, PAGE)):
        yield page
        after = page[-1].seq


def forgotten_of(store: Store, session: int) -> Iterator[list[str]]:
    """Yield all forgotten ids of a session, in pages."""
    last: str | None = None
    while page := store.forgotten(session, last, PAGE):
        yield page
        last = page[-1]


def pages_of(store: Store, session: int, spaces: Sequence[str], after: int, upto: int) -> Iterator[Page]:
    """Yield the messages whose numbers are larger than `after` and at most `upto`, with what belongs to them."""
    for page in records_of(store, session, after):
        records = [record for record in page if record.seq <= upto]
        if not records:
            return
        places = {record.position for record in records}
        found = store.covers(session, {position.segment for position in places})
        covers = [one for one in found if one[0] in places]
        rows = (VectorRows(space, list(store.vectors(session, space, sorted(places)))) for space in spaces)
        yield Page(records, covers, [VectorRows(one.space, [row for row in one.rows if row[2]]) for one in rows])


def pages(items: Iterable[Item], size: int = PAGE) -> Iterator[list[Item]]:
    """Yield items in lists of at most `size`."""
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


# Writing


def write_page(store: Store, session: int, page: Page, segments: Mapping[int, Segment], known: dict[int, int]) -> None:
    """Write messages with what belongs to them; call it in a transaction.

    Args:
        store: the store.
        session: the key of the session.
        page: the messages.
        segments: all segments that they need.
        known: segment -> its tip in the store; it is brought up to date.
    """
    grown = segments_for(page.records, segments, known)
    store.restore(session, Restored(grown, tuple(page.records), tuple(page.covers)))
    for rows in page.vectors:
        store.keep(session, rows)


def segments_for(
    records: Sequence[Record], segments: Mapping[int, Segment], known: dict[int, int]
) -> tuple[Segment, ...]:
    """Return the segments that messages need, and note their tips, each only as long as it has to be.

    Args:
        records: the messages.
        segments: all that there are.
        known: segment -> its tip in the target; it is brought up to date.
    """
    tips: dict[int, int] = {}
    waiting = [record.position for record in records]
    while waiting:
        number, depth = waiting.pop()
        if depth <= known.get(number, -2) or depth <= tips.get(number, -2):
            continue
        segment = segments[number]
        if number not in known and number not in tips:
            waiting += [parent for parent in (segment.parent, segment.merged) if parent is not None]
        tips[number] = depth
    known |= tips
    return tuple(segments[number]._replace(tip=tips[number]) for number in sorted(tips))
