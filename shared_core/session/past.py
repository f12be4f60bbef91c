"""The past of a conversation: where its branch ended at a time, or at a message."""

from datetime import date
from math import inf
from typing import NamedTuple

import numpy as np

from shared_core.arguments import moment
from shared_core.errors import UnknownReferenceError
from shared_core.recall.embedder_choice import EmbedderChoice
from shared_core.recall.open_indexes import OpenIndexes
from shared_core.records import ROOT, Position
from shared_core.session.checkout import Checkout

EXPECTED = "expected a time, such as '2026-01-31' or a datetime, or the id of a message"


class Past(NamedTuple):
    """Where a branch ended.

    Attributes:
        position: its last message then, or the root.
        time: seconds since 1970, after which nothing counts that was said in other sessions.
    """

    position: Position
    time: float


def past_of(checkout: Checkout, sessions: OpenIndexes, as_of: date | str) -> Past:
    """Return the past that `as_of` means: everything before the first message said after a time, or up to a message.

    Args:
        checkout: the branch that is checked out, and its session.
        sessions: holds the session's index, which knows when messages were said.
        as_of: a datetime, a date, which means the end of its day, ISO 8601 text, or the id of a message.

    Raises:
        TypeError: it is something else.
        ValueError: a merge brought the message in.
        UnknownReferenceError: the text is no time, and names no message of the branch.
    """
    if not isinstance(as_of, date | str):
        raise TypeError(f"as_of={as_of!r}: {EXPECTED}")
    live = checkout.live
    live.sync()
    if isinstance(as_of, str):
        records = live.store.get(live.key, [as_of]) if live.key is not None else []
        if records:
            at = records[0].message.created_at
            return Past(checkout.end_on_path(as_of), inf if at is None else at.timestamp())
    try:
        time = moment("as_of", as_of, end=True).timestamp()
    except ValueError:
        raise UnknownReferenceError(f"as_of={as_of!r}: {EXPECTED} on this branch") from None
    return Past(_last_before(checkout, sessions, time), time)


def _last_before(checkout: Checkout, sessions: OpenIndexes, time: float) -> Position:
    """Return the position of the last message before the first one that was said after a time."""
    live = checkout.live
    if live.key is None:
        return ROOT
    session_index, _ = sessions.open(live.sync(), EmbedderChoice(None))
    line = session_index.line(live.path)
    later = np.flatnonzero(line.along(session_index.columns["times"]) > time)
    if not len(later):
        return live.path.head
    for index in range(int(later[0]) - 1, -1, -1):
        (position,) = session_index.positions(line.rows[[index]])
        if not live.path.span_of(position).shift:  # what a merge brought in was not on this branch then
            return position
    return ROOT
