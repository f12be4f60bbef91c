"""The newest requests of each user with the reports on their prompts, in memory alone."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from shared_core.doors.view.page_data import SentPrompt
from shared_core.prompt.report import ContextReport, ReportLine

__all__ = ["RequestRing", "SeenRequest"]

MOST = 100
"""The most requests that are kept, of all users together."""

MOST_LINES = 65_536
"""The most lines that their reports have together. A line takes some 0.6 KB with a text of `LONGEST` characters in
English; a report has about 60 in a window of 4,096 tokens, and 600 in one of 64,000."""

LONGEST = 300
"""Characters of a text, or of the name of a model, that are kept. The page shows no more of a request."""

TEXT = ReportLine._fields.index("text")


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request whose prompt was built.

    Attributes:
        stamp: when it was seen, or changed last, in microseconds; no two of them have the same.
        number: the first `stamp`, which stays.
        prompt: the prompt.
        session: the conversation. None: it is a new one that nothing is stored of.
        seconds: how long its answer took until it was stored. None: no answer is stored.
    """

    stamp: int
    number: int
    prompt: SentPrompt
    session: str | None
    seconds: float | None = None


class RequestRing:
    """Keeps the newest requests of each user.

    When it is full, the user with most requests, or with most lines, loses the oldest request: one user's many requests
    do not push out the few of another.

    It keeps the lines of a report, and not what they are made of: that holds the messages with their photos and files.
    To make them takes 3 µs a line when a request is noted: 0.15 ms of 9 with 60 lines, 1.9 ms of 15 with 600.

    Args:
        most: how many requests are kept.
        most_lines: how many lines their reports may have together, unless one alone has more.
    """

    def __init__(self, most: int = MOST, most_lines: int = MOST_LINES) -> None:
        self._most, self._most_lines = most, most_lines
        self._lock = threading.Lock()
        self._stamp = 0
        self._of: dict[str | None, deque[SeenRequest]] = {}

    def note(self, user: str | None, session: str | None, model: str | None, report: ContextReport) -> int:
        """Keep a request whose prompt was built, and return its number."""
        report = replace(report, lines=tuple(map(_cut, report.lines)))
        model = model[:LONGEST] if model is not None else None
        with self._lock:
            stamp = self._next()
            prompt = SentPrompt(report, datetime.fromtimestamp(stamp / 1e6, UTC), model)
            self._of.setdefault(user, deque()).append(SeenRequest(stamp, stamp, prompt, session))
            self._shrink(len, self._most)
            self._shrink(_lines, self._most_lines)
            return stamp

    def answered(self, user: str | None, number: int, session: str | None) -> None:
        """Note that the answer to a request is stored, and in which conversation."""
        with self._lock:
            seen = self._of.get(user, deque())
            for index, one in enumerate(seen):
                if one.number == number:
                    stamp = self._next()
                    seconds = (stamp - number) / 1e6
                    seen[index] = replace(one, stamp=stamp, session=session, seconds=seconds)

    def of(self, user: str | None) -> list[SeenRequest]:
        """Return the requests of a user, newest first."""
        with self._lock:
            return [*reversed(self._of.get(user, ()))]

    def drop(self, user: str | None, numbers: set[int]) -> None:
        """Keep some requests no longer. The newest of the others counts as changed, so that a poll notices it."""
        with self._lock:
            left = deque(one for one in self._of.get(user, ()) if one.number not in numbers)
            if left:
                left[-1] = replace(left[-1], stamp=self._next())
            self._of[user] = left
            self._tidy(user)

    def _next(self) -> int:
        self._stamp = max(time.time_ns() // 1000, self._stamp + 1)
        return self._stamp

    def _shrink(self, size: Callable[[deque[SeenRequest]], int], most: int) -> None:
        """Drop the oldest request of the user with most, until all have no more than `most` or one request is left."""
        sizes = {user: size(seen) for user, seen in self._of.items()}
        while sum(sizes.values()) > most and sum(map(len, self._of.values())) > 1:
            fullest = max(sizes, key=sizes.__getitem__)
            self._of[fullest].popleft()
            sizes[fullest] = size(self._of[fullest])
            self._tidy(fullest)

    def _tidy(self, user: str | None) -> None:
        if not self._of[user]:
            del self._of[user]


def _cut(line: ReportLine) -> ReportLine:
    """Return a line with no more of its text than is shown."""
    if len(line.text) <= LONGEST:
        return line
    return ReportLine._make((*line[:TEXT], line.text[:LONGEST], *line[TEXT + 1 :]))  # a third of `_replace`


def _lines(seen: deque[SeenRequest]) -> int:
    return sum(len(one.prompt.report.lines) for one in seen)
