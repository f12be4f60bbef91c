"""The drawing of a conversation tree in a terminal: a column for each line of conversation."""

from collections.abc import Iterator, Sequence

from shared_core.records import Position
from shared_core.tree.log import LogEntry


def draw(entries: Sequence[LogEntry]) -> Iterator[tuple[str, LogEntry | None]]:
    """Yield the lines of a drawing, each with its entry, if it has one: `*` is a message, `o` a merge.

    Args:
        entries: newest first, a parent after all its children, as `InfiniteMemory.log` returns them.
    """
    lanes: list[Position | None] = []
    """The position that each column waits for, from left to right; None: the column is free."""
    for entry in entries:
        mine = [column for column, awaited in enumerate(lanes) if awaited == entry.position]
        column = mine[0] if mine else _free(lanes)
        for other in mine[1:]:
            yield _joined(lanes, column, other), None
            lanes[other] = None
        lanes[column] = entry.position
        yield _row(lanes, column, "o" if entry.message is None else "*"), entry
        first, *others = entry.parents or (None,)
        lanes[column] = first
        for parent in others:
            there = parent in lanes
            side = lanes.index(parent) if there else _free(lanes)
            lanes[side] = parent
            yield _parted(lanes, column, side, there=there), None


def _free(lanes: list[Position | None]) -> int:
    """Return a free column; add one if there is none."""
    if None not in lanes:
        lanes.append(None)
    return lanes.index(None)


def _row(lanes: Sequence[Position | None], column: int, mark: str) -> str:
    marks = ["|" if awaited is not None else " " for awaited in lanes]
    marks[column] = mark
    return " ".join(marks).rstrip()


def _joined(lanes: Sequence[Position | None], column: int, other: int) -> str:
    """Return the line on which one column ends in another to its left."""
    marks = list(" ".join("|" if awaited is not None else " " for awaited in lanes))
    marks[2 * other] = " "
    marks[2 * other - 1] = "/"
    _bridge(marks, column, 2 * other - 1)
    return "".join(marks).rstrip()


def _parted(lanes: Sequence[Position | None], column: int, side: int, *, there: bool) -> str:
    """Return the line on which a column branches off to another one, which may exist already."""
    marks = list(" ".join("|" if awaited is not None else " " for awaited in lanes))
    marks[2 * side] = "|" if there else " "
    if side > column:
        marks[2 * side - 1] = "\\"
        _bridge(marks, column, 2 * side - 1)
    else:
        marks[2 * side + 1] = "/"
        _bridge(marks, side + 1, 2 * column)
    return "".join(marks).rstrip()


def _bridge(marks: list[str], column: int, upto: int) -> None:
    """Draw a horizontal line through free cells, to the right of a column."""
    for at in range(2 * column + 1, upto):
        if marks[at] == " ":
            marks[at] = "_"
