"""A history answers alike however it was loaded, and many sessions keep a bounded amount in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, SessionPool
from shared_core.index import session_vectors
from shared_core.recall import open_indexes as sessions
from shared_core.testing import HashingEmbedder
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


def reindexed(path: Path) -> InfiniteMemory:
    with InfiniteMemory(path, embedder=HashingEmbedder(name="another")) as other:
        other.add(said())
        other.index()
    memory = opened(str(path))
    memory.reindex()
    return memory


WAYS: list[Callable[[Path], InfiniteMemory]] = [
    on_disk, bit_by_bit, reopened, reopened_without_snapshot, reopened_with_an_old_snapshot, reindexed,
]  # fmt: skip


@pytest.fixture(scope="module")
def expected() -> Answers:
    with in_memory(Path()) as memory:
        return answers(memory)


@pytest.mark.parametrize("part", [64, 65_536])
@pytest.mark.parametrize("way", WAYS)
def test_the_same_ids_and_scores_come_whichever_way(
    tmp_path: Path, expected: Answers, way: Callable[[Path], InfiniteMemory], part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_vectors, "PART", part)
    with way(tmp_path / "chat.db") as memory:
        assert answers(memory) == expected
        assert memory.context(QUESTIONS[0]).report.degraded == ()
    assert any(score for hits, _ in expected for _, score in hits)


def test_a_pool_keeps_a_bounded_number_of_indexes(tmp_path: Path) -> None:
    with SessionPool(tmp_path / "chat.db", size=4, embedder=HashingEmbedder(), durability="process") as pool:
        for number in range(60):
            with pool.use(str(number)) as memory:
                memory.add(history(6))
                assert memory.search("item3")
        idle = [memory for memories in pool._idle.values() for memory in memories]
        kept = [index for memory in idle for index, _ in memory._prompts.searcher.sessions.opened()]
        assert (len(idle), len(kept), sum(map(len, kept))) == (4, 4, 24)


@pytest.mark.parametrize(("most", "value"), [("OPEN_ROWS", 100), ("OPEN_SESSIONS", 16)])
def test_one_object_keeps_a_bounded_number_of_a_user_s_rows(
    tmp_path: Path, most: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, most, value)
    with SessionPool(tmp_path / "chat.db", embedder=HashingEmbedder(), durability="process") as pool:
        for number in range(60):
            with pool.use(str(number), "ann") as memory:
                memory.add([message.replace(id=f"{number} {message.id}") for message in history(6)])
        store = pool.store
        options: dict[str, Any] = {"embedder": HashingEmbedder(), "embed_budget_ms": 60_000}
        with InfiniteMemory(store, session_id="0", user_id="ann", scope="user", **options) as memory:
            first = [hit.message.id for hit in memory.search("item3 gardens", 100)]
            assert len({str(found).split()[0] for found in first}) > 16, "all sessions are searched"
            assert [hit.message.id for hit in memory.search("item3 gardens", 100)] == first
            opened_now = list(memory._prompts.searcher.sessions.opened())
            assert (len(opened_now), sum(len(index) for index, _ in opened_now)) == (17, 102)
