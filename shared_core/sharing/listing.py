"""Add a list of messages to a branch, as a file without branches holds them; what is there already is left as it is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shared_core.messages import Message, content_of
from shared_core.records import Draft, Position
from shared_core.sharing.adding import other_id
from shared_core.sharing.writing import Progress
from shared_core.store import Store

__all__ = ["Listed", "add_list"]

BATCH = 500
"""Messages stored together at least; a batch ends before a user message, so that no reply is without its question."""


@dataclass
class Listed:
    """What became of a list so far."""

    new: int = 0
    known: int = 0
    forgotten: int = 0
    renamed: dict[str, str] = field(default_factory=dict)


def add_list(
    store: Store, session: int, branch: str, messages: Sequence[Message], draft: Callable[[Message], Draft], *,
    at: Position | None = None, progress: Progress | None = None,
) -> Listed:  # fmt: skip
    """Add messages to a branch, inside a transaction of the store.

    One whose id is stored with other content gets another id, always the same for what it says after the same one.

    Args:
        store: where the session is.
        session: its key.
        branch: which branch.
        messages: with ids, all different.
        draft: returns a message ready to be stored.
        at: where to open the branch, which is new then.
        progress: told how many are done.
    """
    listed = Listed()
    for batch in _batches(messages):
        drafts = _with_free_ids(store, session, [draft(message) for message in batch], listed)
        appended = store.append(session, branch, drafts, at=at)
        at = None
        listed.new += len(appended.added)
        listed.forgotten += len(appended.forgotten)
        listed.known += len(batch) - len(appended.added) - len(appended.forgotten)
        if progress is not None:
            progress(listed.new + listed.known + listed.forgotten, len(messages))
    return listed


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    start = 0
    for place, message in enumerate(messages):
        if message.role == "user" and place - start >= BATCH:
            yield messages[start:place]
            start = place
    if start < len(messages):
        yield messages[start:]


def _with_free_ids(store: Store, session: int, drafts: Sequence[Draft], listed: Listed) -> list[Draft]:
    """Return drafts under ids that nothing else is stored under."""
    stored = {record.message.id: record.message for record in store.get(session, [_id(draft) for draft in drafts])}
    found: list[Draft] = []
    before: str | None = None
    for one in drafts:
        id_, message = _id(one), one.message
        if id_ in stored and content_of(stored[id_]) != content_of(message):
            listed.renamed[id_] = other_id(message, before)
            one = Draft(message.replace(id=listed.renamed[id_]), one.counter, one.tokens)
        before = _id(one)
        found.append(one)
    return found


def _id(draft: Draft) -> str:
    assert draft.message.id is not None
    return draft.message.id
