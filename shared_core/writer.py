"""Store messages: give them an id and a time, count them, and find the turn they belong to."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from shared_core.arguments import in_utc
from shared_core.base import TokenCounter
from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.live import LiveSession
from shared_core.messages import Message
from shared_core.records import Appended, Change, Draft, Record
from shared_core.tokens import body_tokens
from shared_core.tree import Head, unused_branch_name

__all__ = ["Changes", "Writer"]

Changes = Callable[[str], Sequence[Change]]


def _no_changes(branch: str) -> Sequence[Change]:
    return ()


class Writer:
    """Writes for one object.

    Args:
        live: where it stands.
        counter: counts what is stored; a nameless counter's results are not kept.
        clock: the time of a message that has none.
        new_id: the id of a message that has none.

    Attributes:
        open_turn: the turn this object opened last: its next reply belongs there, whoever else writes.
    """

    def __init__(
        self, live: LiveSession, counter: TokenCounter, *, clock: Callable[[], datetime], new_id: Callable[[], str]
    ) -> None:
        self.live = live
        self.counter = counter
        self.clock = clock
        self.new_id = new_id
        self.open_turn: str | None = None

    def add(self, messages: Sequence[Message], turn: str | None) -> list[Message]:
        """Store messages and return them as stored; `turn` and errors are those of `InfiniteMemory.add`."""
        if turn is not None and any(message.role == "user" for message in messages):
            raise ValueError(f"turn={turn!r}: only replies can join a turn; a user message opens its own")
        if not messages:
            return []
        if turn is not None and self.live.key is None:
            raise UnknownReferenceError(f"there is no turn {turn!r} on this branch; nothing is stored yet")
        drafts = [self.draft(message) for message in messages]
        records = self.write(drafts, turn=turn).records if turn is not None else self._append_to_open_turn(drafts)
        for record in records:
            if record.message.role == "user":
                self.open_turn = record.message.turn_id
        return [record.message for record in records]

    def _append_to_open_turn(self, drafts: Sequence[Draft]) -> Sequence[Record]:
        try:
            return self.write(drafts, turn=self.open_turn).records
        except UnknownReferenceError:
            if self.open_turn is None:
                raise
            self.open_turn = None  # nothing of it is left on this branch: it has been forgotten since
            return self.write(drafts).records

    def draft(self, message: Message) -> Draft:
        """Return a message with an id, a time and its size."""
        changes: dict[str, Any] = {}
        if message.id is None:
            changes["id"] = self.new_id()
        if message.created_at is None:
            changes["created_at"] = in_utc(self.clock())
        complete = message.replace(**changes) if changes else message
        if self.counter.name is None:
            return Draft(complete)
        return Draft(complete, self.counter.name, body_tokens(complete, self.counter))

    def write(self, drafts: Sequence[Draft], *, turn: str | None = None, changes: Changes = _no_changes) -> Appended:
        """Store drafts where the object stands; on a detached head this opens a branch.

        Args:
            drafts: what to store.
            turn: as in `Store.append`.
            changes: returns what to change in the same transaction, given the branch.
        """
        session = self.live.create()
        store = self.live.store
        branch, at = self.live.head
        if branch is not None:
            return store.append(session, branch, drafts, turn=turn, changes=changes(branch))
        while True:
            name = unused_branch_name(store, session)
            try:
                appended = store.append(session, name, drafts, at=at, turn=turn, changes=changes(name))
            except DuplicateError:
                if name not in {other.name for other in store.branches(session)}:
                    raise
                continue  # another writer took the name first
            self.live.go(Head(name))
            return appended
