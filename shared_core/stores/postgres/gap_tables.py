"""Gaps in PostgreSQL: a message that is missing without one has been lost, which is said instead of passed over."""

from collections.abc import Mapping, Sequence

from shared_core.errors import StoreError
from shared_core.records import Record, Segment, Stretch
from shared_core.stores.gaps import NUMBERS, Range, missing, without
from shared_core.stores.postgres.damage import damaged
from shared_core.stores.postgres.transactions import columns
from shared_core.stores.postgres.tree_tables import TreeTables
from shared_core.stores.row_values import lost_messages

_GAPS = (
    "SELECT DISTINCT g.segment, g.start, g.upto "
    "FROM unnest(%(segments)s::bigint[], %(starts)s::bigint[], %(uptos)s::bigint[]) AS w (segment, start, upto) "
    "JOIN {s}.gaps AS g ON g.session = %(session)s AND g.segment = w.segment "
    "AND g.start <= w.upto AND g.upto >= w.start ORDER BY g.segment, g.start"
)
_INSERT = (
    "INSERT INTO {s}.gaps SELECT %(session)s, w.* "
    "FROM unnest(%(segments)s::bigint[], %(starts)s::bigint[], %(uptos)s::bigint[]) AS w"
)
_BEFORE = (
    "SELECT id FROM {s}.messages WHERE session = %(session)s AND segment = %(segment)s AND depth < %(start)s "
    "ORDER BY depth DESC LIMIT 1",
    "SELECT id FROM {s}.messages WHERE session = %(session)s AND seq < %(start)s ORDER BY seq DESC LIMIT 1",
)

Ranges = Mapping[int, Sequence[Range]]
"""Segment, or `NUMBERS` -> ascending ranges of depths, or of numbers."""


class GapTables(TreeTables):
    """Which positions and numbers hold no message."""

    def note_gaps(self, session: int, ranges: Ranges) -> None:
        """Note some ranges; gaps of one segment never overlap."""
        rows = [(segment, *one) for segment, left in self.unexplained(session, ranges).items() for one in left]
        if rows:
            self.run(_INSERT, session, columns(rows, ("segments", "starts", "uptos")))

    def note_empty(self, session: int, stretches: Sequence[Stretch], numbers: Sequence[range]) -> None:
        ranges: dict[int, list[Range]] = {NUMBERS: [(one.start, one.stop - 1) for one in numbers]}
        for segment, start, upto in sorted(stretches):
            ranges.setdefault(segment, []).append((start, upto))
        self.note_gaps(session, ranges)

    def unexplained(self, session: int, ranges: Ranges) -> dict[int, list[Range]]:
        """Return which of some ranges are not noted as gaps."""
        wanted = {segment: own for segment, own in ranges.items() if own}
        if not wanted:
            return {}
        spans = [(segment, own[0][0], own[-1][1]) for segment, own in wanted.items()]
        noted: dict[int, list[Range]] = {}
        for segment, *gap in self.run(_GAPS, session, columns(spans, ("segments", "starts", "uptos"))):
            noted.setdefault(segment, []).append((gap[0], gap[1]))
        left = {segment: without(own, noted.get(segment, [])) for segment, own in wanted.items()}
        return {segment: own for segment, own in left.items() if own}

    def refuse_loss(self, session: int, ranges: Ranges) -> None:
        """Raise StoreError if there should be a message in one of some ranges, which hold none."""
        for segment, lost in self.unexplained(session, ranges).items():
            raise self._loss(session, segment, lost)

    def _loss(self, session: int, segment: int, lost: Sequence[Range]) -> StoreError:
        found = self.run(_BEFORE[segment == NUMBERS], session, {"segment": segment, "start": lost[0][0]})
        return lost_messages(damaged, self.session_key(session), found[0][0] if found else None)


def holes(records: Sequence[Record], first: int, last: int) -> dict[int, list[Range]]:
    """Return which numbers from `first` to `last` none of some messages has, which are in order of storing."""
    return {NUMBERS: missing((record.seq for record in records), first, last)}


def holes_of(segment: Segment, ranges: Sequence[Range]) -> list[Range]:
    """Return the parts of some ranges at which a segment has held messages."""
    first = segment.start if segment.base is None else segment.base + 1
    inside = [(max(start, first), min(upto, segment.tip)) for start, upto in ranges]
    return [one for one in inside if one[0] <= one[1]]
