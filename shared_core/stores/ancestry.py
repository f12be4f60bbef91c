"""Lookups along the path that ends at a position, reading no more segments than the answer needs."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from shared_core.errors import UnknownReferenceError
from shared_core.records import Newest, Position, Segment
from shared_core.stores.rows import Rows, SummaryReach
from shared_core.tree.paths import Span, beginning, walk

__all__ = ["check_position", "covering", "named_turn", "newest_of", "newest_turn", "on_path", "segment_at"]


def segment_at(rows: Rows, session: int, segment: int) -> Segment:
    """Return a segment; UnknownReferenceError if there is none of this number."""
    found = rows.segment(session, segment)
    if found is None:
        raise UnknownReferenceError(f"there is no segment {segment!r} in session {session!r}")
    return found


def check_position(rows: Rows, session: int, position: Position) -> None:
    """Raise UnknownReferenceError if the session has no such position."""
    segment = segment_at(rows, session, position.segment)
    first = segment.base if segment.base is not None else segment.start - 1
    if not first <= position.depth <= segment.tip:
        raise UnknownReferenceError(
            f"there is no position {tuple(position)}; segment {position.segment} ends at {segment.tip}"
        )


def newest_turn(rows: Rows, session: int, head: Position) -> tuple[Newest, int]:
    """Return the turn of the newest user message on the path that ends at `head`, and its number on that path."""
    return newest_of(rows, session, _spans_back(rows, session, head))


def newest_of(rows: Rows, session: int, spans_back: Iterable[Span]) -> tuple[Newest, int]:
    """Return the turn of the newest user message of some spans, newest span first, and its number on their path."""
    for span in spans_back:
        found = rows.newest_question(session, span.stretch)
        if found is not None:
            return found, found.turn_no + span.turn_shift
    return Newest(None, -1), -1


def named_turn(rows: Rows, session: int, turn: str, head: Position) -> Newest:
    """Return a turn that has a message on the path that ends at `head`; UnknownReferenceError if there is none."""
    for end in _ancestry(rows, session, head):
        number = rows.turn_number(session, turn, end)
        if number is not None:
            return Newest(turn, number)
    raise UnknownReferenceError(f"there is no turn {turn!r} on this branch; give the id of its user message")


def on_path(rows: Rows, session: int, head: Position, positions: Collection[Position]) -> Iterator[Position]:
    """Yield those of some positions that lie on the path that ends at `head`."""
    left = set(positions)
    ends = _ancestry(rows, session, head)
    while left and (end := next(ends, None)):
        found = {position for position in left if position.segment == end.segment and position.depth <= end.depth}
        yield from found
        left -= found


def _ancestry(rows: Rows, session: int, head: Position) -> Iterator[Position]:
    """Yield the newest position of each segment on the path that ends at `head`, second parents last.

    A segment that two lines of the path share may be yielded again, deeper.
    """
    seen: dict[int, int] = {}
    end: Position | None = head
    later: list[Position] = []
    while end is not None or later:
        end = later.pop() if end is None else end
        known = seen.get(end.segment)
        if known is None or known < end.depth:
            seen[end.segment] = end.depth
            yield end
        if known is not None:
            end = None
            continue
        segment = segment_at(rows, session, end.segment)
        later += [segment.merged] if segment.merged is not None else []
        end = segment.parent


def _spans_back(rows: Rows, session: int, head: Position) -> Iterator[Span]:
    """Yield the spans of the path that ends at `head`, newest first.

    The spans of single segments start at 0, because no segment has a message before its first one: so the first
    segment, which usually has the answer, need not be read.
    """
    end: Position | None = head
    while end is not None:
        yield Span(end.segment, end.depth, 0)
        segment = segment_at(rows, session, end.segment)
        if segment.merged is not None:
            yield from reversed(walk(end, partial(segment_at, rows, session)).spans[:-1])
            return
        end = segment.parent


def covering(rows: Rows, session: int, positions: Sequence[Position]) -> list[int]:
    """Return the numbers of the stored summaries that cover one of some positions.

    A summary covers everything on the path to its position; the tree alone says what that is.
    """
    depths: dict[int, list[int]] = {}
    for segment, depth in sorted(positions):
        depths.setdefault(segment, []).append(depth)
    segment_of = cache(partial(segment_at, rows, session))
    covered = cache(partial(_covered, segment_of))
    return [
        reach.number
        for reach in rows.summary_reaches(session)
        if any(map(partial(_holds, depths), covered(reach._replace(number=0))))
    ]


def _covered(segment_of: Callable[[int], Segment], reach: SummaryReach) -> list[Span]:
    """Return the spans that a summary covers."""
    upto, along = reach.upto, reach.along
    # Without a path of its own, any path through `upto` shows what comes before it: the one to the tip of its segment.
    end = Position(upto.segment, segment_of(upto.segment).tip) if along == upto else along
    return beginning(walk(end, segment_of), upto)


def _holds(depths: Mapping[int, Sequence[int]], span: Span) -> bool:
    """Return whether a span holds one of some positions, given as segment -> depths in order."""
    of_segment = depths.get(span.segment, ())
    found = bisect_left(of_segment, span.start)
    return found < len(of_segment) and of_segment[found] <= span.upto
