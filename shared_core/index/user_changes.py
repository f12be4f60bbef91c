"""Which of a user's sessions have changed, and which of the changes somebody has not followed yet."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from shared_core.records import ROOT, MainChanges, Mark, SessionKey, SessionState


class Told(NamedTuple):
    """What the store said of a session last.

    Attributes:
        key: the session.
        state: its state on `main`.
        number: grows from change to change.
    """

    key: SessionKey
    state: SessionState
    number: int

    @property
    def gone(self) -> bool:
        """Whether there are no messages on its `main`."""
        return self.state.head in (None, ROOT)


class UserChanges:
    """The states of a user's sessions, the one that changed last at the end.

    Attributes:
        mark: what the store is asked with next.
        answers: how many answers of the store were noted. One that was asked for before the last one was noted must not
            be: it may bring back an older state.
    """

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self.answers = 0
        self._told: OrderedDict[int, Told] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return how many sessions are known."""
        return len(self._told)

    def __getitem__(self, session: int) -> Told:
        """Return what is known of a session."""
        return self._told[session]

    def note(self, changes: MainChanges) -> None:
        """Note an answer of the store, which was asked with `mark` as it is now."""
        self.answers += 1
        for key, state in changes.states:
            self._note(key, state)
        if changes.whole and len(self._told) > len(changes.states):
            listed = {key.key for key, _ in changes.states}
            for told in [told for session, told in self._told.items() if session not in listed]:
                self._note(told.key, told.state._replace(head=None))
        self.mark = changes.mark

    def _note(self, key: SessionKey, state: SessionState) -> None:
        known = self._told.get(key.key)
        if known is None or (known.key, known.state) != (key, state):
            self._count += 1
            self._told[key.key] = Told(key, state, self._count)
            self._told.move_to_end(key.key)

    def since(self, number: int) -> Iterator[Told]:
        """Iterate over what changed after the change of this number, the newest first."""
        for told in reversed(self._told.values()):
            if told.number <= number:
                return
            yield told

    @property
    def count(self) -> int:
        """The number of the last change."""
        return self._count


class Unfollowed:
    """The sessions whose last change somebody has not followed yet.

    Attributes:
        sessions: their keys.
    """

    def __init__(self) -> None:
        self.sessions: set[int] = set()
        self._upto = 0

    def advance(self, changes: UserChanges) -> set[int]:
        """Add what changed since the last call; return the sessions."""
        if changes.count > self._upto:
            self.sessions.update(told.key.key for told in changes.since(self._upto))
            self._upto = changes.count
        return self.sessions
