"""A history answers alike however it was loaded, and many sessions keep a bounded amount in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.index import session_vectors
from tests.index.kill_indexer import QUESTIONS, opened
from tests.index.test_crashes import Answers, answers
from tests.support.histories import history

COUNT = 700


def said() -> list[Message]:
    """Return a conversation in which much is said twice, and some in other words."""
    first = history(COUNT // 2)
    again = [
        message.replace(id=f"again {message.id}", turn_id=None, content=message.content.replace("concerns", "is about"))
        if number % 3
        else message.replace(id=f"again {message.id}", turn_id=None)
        for number, message in enumerate(first)
    ]
    return [*first, *again]


def in_memory(path: Path) -> InfiniteMemory:
    memory = opened(None)
    memory.add(said())
    return memory


def on_disk(path: Path) -> InfiniteMemory:
    memory = opened(str(path))
    memory.add(said())
    memory.index()
    return memory


def bit_by_bit(path: Path) -> InfiniteMemory:
    memory, messages = opened(str(path)), said()
    for start in range(0, COUNT, 90):
        memory.add(messages[start : start + 90])
        memory.context(QUESTIONS[0])
    return memory


def reopened(path: Path) -> InfiniteMemory:
    on_disk(path).close()
    return opened(str(path))


def reopened_without_snapshot(path: Path) -> InfiniteMemory:
    with opened(str(path)) as memory:
        memory.add(said())
        memory.context(QUESTIONS[0])  # embeds; too little for `close` to keep a snapshot
    return opened(str(path))


def reopened_with_an_old_snapshot(path: Path) -> InfiniteMemory:
    with opened(str(path)) as memory:
        memory.add(said()[:500])
        memory.index()
        memory.add(said()[500:])
        memory.context(QUESTIONS[0])
    return opened(str(path))


WAYS: list[Callable[[Path], InfiniteMemory]] = [
    on_disk, bit_by_bit, reopened, reopened_without_snapshot, reopened_with_an_old_snapshot,
]  # fmt: skip


@pytest.fixture(scope="module")
def expected() -> Answers:
    with in_memory(Path()) as memory:
        return answers(memory)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_ids_and_scores_come_whichever_way(
    tmp_path: Path, expected: Answers, way: Callable[[Path], InfiniteMemory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_vectors, "PART", 64)
    with way(tmp_path / "chat.db") as memory:
        assert answers(memory) == expected
        assert memory.context(QUESTIONS[0]).report.degraded == ()
    assert any(score for hits, _ in expected for _, score in hits)
