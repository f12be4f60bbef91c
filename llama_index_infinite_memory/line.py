"""The line of conversation that a buffer follows: where it stands, and how it begins anew without losing the old."""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory.messages import same
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.records import MAIN, Create, Position
from shared_core.store import Store

__all__ = ["begin_anew", "common_start", "fork_after", "newest_turn", "stand_on_main_line"]

_MAIN_LINE = re.compile(rf"{MAIN}(?:-\d+)?")

FIRST_LOOK = 8
"""Messages looked at first, from the end; then twice as many, and so on."""


def stand_on_main_line(memory: InfiniteMemory) -> None:
    """Stand on the branch that was begun last by `begin_anew`, or on `main`."""
    names = [branch.name for branch in memory.branches() if _MAIN_LINE.fullmatch(branch.name)]
    if names and names[-1] != memory.branch:
        memory.checkout(names[-1])


def begin_anew(memory: InfiniteMemory, store: Store, kept: Sequence[Message]) -> None:
    """Stand on a new branch, `main-2` and so on, that has the first messages of this one only; nothing is erased."""
    taken = {branch.name for branch in memory.branches()}
    number = next(number for number in range(2, len(taken) + 3) if f"{MAIN}-{number}" not in taken)
    fork_after(memory, store, f"{MAIN}-{number}", kept)


def fork_after(memory: InfiniteMemory, store: Store, name: str, kept: Sequence[Message]) -> None:
    """Open a branch that ends after the last of some messages from the first one of this branch on.

    Raises:
        DuplicateError: the name is taken.
    """
    if kept:
        memory.fork(name, at=kept[-1].id)
        return
    key = store.session(memory.user_id, memory.session_id)
    first = next(memory.messages(), None)
    if key is None or first is None or first.id is None:
        memory.fork(name)
        return
    (record,) = store.get(key, [first.id])
    store.change(key, [Create(name, Position(record.position.segment, -1))])
    memory.checkout(name)


def common_start(
    stored: Sequence[Message], given: Sequence[ChatMessage], shown: Callable[[Message], ChatMessage]
) -> int:
    """Return how many of the first messages are the same."""
    pairs = zip(stored, given, strict=False)
    return sum(1 for _ in takewhile(lambda pair: same(shown(pair[0]), pair[1]), pairs))


def newest_turn(memory: InfiniteMemory) -> list[Message]:
    """Return the newest user message of the branch and what answers it; nothing if there is no user message."""
    size = FIRST_LOOK
    while True:
        newest = memory.newest(size)
        asked = next((message for message in reversed(newest) if message.role == "user"), None)
        if asked is not None:
            return [message for message in newest if message.turn_id == asked.turn_id]
        if len(newest) < size:
            return []
        size *= 2
