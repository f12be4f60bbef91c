"""What a summarizer's failure leads to: the same is not tried again with every question."""

import warnings
from dataclasses import dataclass

from shared_core.records import Position
from shared_core.summaries.answering import SummaryFailure
from shared_core.summaries.kept import Summary

__all__ = ["PAUSE", "Pausing"]

PAUSE = 10
"""Questions that go by after a failure before the same is tried again, unless twice as much has left the window."""


@dataclass(slots=True)
class _Failed:
    """The last failure: after which summary, how many places were left then, and how many questions still pass."""

    after: Position | None
    places: int
    reason: str
    left: int = PAUSE


class Pausing:
    """Remembers the last failure of one memory's summarizer."""

    def __init__(self) -> None:
        self._failed: _Failed | None = None
        self._warned = False

    def begin(self, previous: Summary | None, places: int, failure: SummaryFailure) -> str:
        """Note a failure and return what the report says of it; the first one is a warning, too."""
        reason = f"the summary is not renewed, as the summarizer failed ({failure})"
        self._failed = _Failed(_place(previous), places, reason)
        if not self._warned:
            self._warned = True
            warnings.warn(reason, RuntimeWarning, stacklevel=2)
        return reason

    def reason(self, previous: Summary | None, places: int) -> str:
        """Return why nothing is to be tried for this question; empty: it may be.

        Args:
            previous: the summary so far.
            places: how many places there are between its end and the window.
        """
        failed = self._failed
        if failed is None or failed.after != _place(previous) or places >= 2 * failed.places or failed.left <= 0:
            return ""
        failed.left -= 1
        return failed.reason


def _place(summary: Summary | None) -> Position | None:
    return summary.upto if summary is not None else None
