"""The newest requests of each user with the reports on their prompts, in memory alone."""

import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from shared_core.prompt.context import ContextReport
from shared_core.view.page_data import SentPrompt

__all__ = ["RequestRing", "SeenRequest"]

MOST = 100
"""The most requests that are kept, of all users together: a report may hold the texts of some hundred messages."""


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

    When it is full, the user with most requests loses the oldest one: one user's many requests do not push out the few
    of another.

    Args:
        most: how many requests are kept.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._stamp = 0
        self._of: dict[str | None, deque[SeenRequest]] = {}

    def note(self, user: str | None, session: str | None, model: str | None, report: ContextReport) -> int:
        """Keep a request whose prompt was built, and return its number."""
        with self._lock:
            stamp = self._next()
            prompt = SentPrompt(report, datetime.fromtimestamp(stamp / 1e6, UTC), model)
            self._of.setdefault(user, deque()).append(SeenRequest(stamp, stamp, prompt, session))
            if sum(map(len, self._of.values())) > self._most:
                fullest = max(self._of, key=lambda user: len(self._of[user]))
                self._of[fullest].popleft()
                self._tidy(fullest)
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

    def _tidy(self, user: str | None) -> None:
        if not self._of[user]:
            del self._of[user]
