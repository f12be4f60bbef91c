"""The beginning of a path, which is what a summary covers; pure."""

from itertools import takewhile

from shared_core.records import Position
from shared_core.tree import Path, Span

__all__ = ["beginning"]


def beginning(path: Path, upto: Position) -> list[Span]:
    """Return the spans of a path up to one of its places, inclusive."""
    end = path.place(upto)
    spans = takewhile(lambda span: span.start + span.shift <= end, path.spans)
    return [span._replace(upto=min(span.upto, end - span.shift)) for span in spans]
