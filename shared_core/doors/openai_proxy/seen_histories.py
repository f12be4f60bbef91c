"""The histories that were seen: of one that is sent again with more at its end, only what is new is read."""

import marshal
import threading
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared_core.history.followed import FollowedHistory

MOST = 250_000
"""How many messages the histories that are kept have together, with an id of some 90 bytes each; the newest ones."""

SYSTEM = ("system", "developer")
"""Roles of the system prompt, which may be another one in every request."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A history, without its system prompt, as it was stored.

    Attributes:
        session: the conversation.
        stored: the key of the session, and its epoch: what is forgotten later is no part of the history any more.
        ids: for each message, the id that it is stored under.
        ends: for each message, how many entries of the request there are up to its end.
    """

    session: str
    stored: tuple[int, int]
    ids: tuple[str | None, ...]
    ends: "array[int]"

    @property
    def followed(self) -> FollowedHistory:
        """The history, for `InfiniteMemory.follow`."""
        return FollowedHistory(self.ids, (False,) * len(self.ids))


def parted(entries: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the entries of a request that are said, and those of the system prompt."""
    prompt = [one for one in entries if isinstance(one, dict) and one.get("role") in SYSTEM and not one.get("pinned")]
    own = {id(one) for one in prompt}
    return [one for one in entries if id(one) not in own] if prompt else [*entries], prompt


def digests_of(entries: Sequence[Any]) -> list[int]:
    """Return a digest of the first entry, of the first two, and so on; none: they are nested too deeply.

    It holds within a process. Marshal's second version writes equal data alike, and takes a third of JSON's time.
    """
    before = 0
    try:
        return [before := hash((before, marshal.dumps(entry, 2))) for entry in entries]
    except ValueError:
        return []


class SeenHistories:
    """Keeps the newest histories of all users.

    Args:
        most: how many messages they may have together.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most, self._held = most, 0
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str | None, int], Seen] = OrderedDict()

    def longest(self, user: str | None, session: str | None, digests: Sequence[int]) -> Seen | None:
        """Return the longest history of a user that one begins with; None: there is none.

        Args:
            user: the user.
            session: the conversation. None: any.
            digests: the `digests_of` the history.
        """
        with self._lock:
            found = (self._seen.get((user, digest)) for digest in reversed(digests))
            return next((one for one in found if one is not None and session in (None, one.session)), None)

    def note(self, user: str | None, digest: int, seen: Seen) -> None:
        """Keep a history; `digest` is the last of the `digests_of` it."""
        with self._lock:
            known = self._seen.pop((user, digest), None)
            self._seen[user, digest] = seen
            self._held += len(seen.ids) - (len(known.ids) if known is not None else 0)
            while self._held > self._most and len(self._seen) > 1:
                self._held -= len(self._seen.popitem(last=False)[1].ids)
