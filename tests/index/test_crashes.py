"""A memory that was killed while indexing, or whose file was damaged, answers as if nothing had happened."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shared_core import InfiniteMemory
from shared_core.index import session_vectors
from shared_core.index.arrays import MAGIC
from shared_core.recall.search import DAMAGED
from shared_core.stores import SQLiteStore
from tests.index.kill_indexer import QUESTIONS, SMALL_PART, opened
from tests.support.histories import history

LONG = (pytest.mark.soak, pytest.mark.skipif("SOAK" not in os.environ, reason="takes minutes; SOAK=1 runs it"))
SCRIPT = Path(__file__).with_name("kill_indexer.py")
Answers = list[tuple[list[tuple[str | None, float]], list[str]]]


def answers(memory: InfiniteMemory) -> Answers:
    """Return what is found, with scores, and the prompts."""
    return [
        (
            [(hit.message.id, hit.score) for hit in memory.search(question, 20)],
            [message.content for message in memory.context(question).messages],
        )
        for question in QUESTIONS
    ]


def never_killed(memory: InfiniteMemory) -> Answers:
    """Return the answers of a memory that was told the same, all at once, and left in peace."""
    with opened(None) as other:
        other.add([message.replace(turn_id=None) for message in memory.messages()])
        return answers(other)


def run_and_kill(what: str, path: Path, lines: int, delay: float = 0.0) -> None:
    """Run a child until it has said so many lines, and a little longer."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[2]), *sys.path])}
    command = [sys.executable, str(SCRIPT), what, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        for _ in range(lines):
            assert child.stdout.readline(), "it ended by itself"
        time.sleep(delay)
        assert child.poll() is None
        child.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def check(path: Path) -> None:
    with opened(str(path)) as memory:
        found = answers(memory)
        assert memory.context(QUESTIONS[0]).report.degraded == ()
        assert found == never_killed(memory)
        memory.index()
        assert answers(memory) == found


@pytest.mark.parametrize(("what", "lines"), [("embed", 2), ("code", 1)])
def test_killed_while_it_embeds_or_codes(path: Path, what: str, lines: int) -> None:
    run_and_kill(what, path, lines)
    with closing(SQLiteStore(path)) as store:
        stats = store.stats(1)
        assert stats["messages"] == {"embed": 2_000, "code": 200}[what]
        # What a question embeds is stored with the next message.
        assert stats["vectors"] in {"embed": range(1, 2_000), "code": (0,)}[what]
    check(path)


@pytest.mark.parametrize("seed", [1, pytest.param(range(30), marks=LONG)])
def test_killed_while_it_keeps_snapshots(path: Path, seed: int | range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_vectors, "PART", SMALL_PART)
    chance = random.Random(str(seed))
    for _ in range(2) if isinstance(seed, int) else seed:
        run_and_kill("keep", path, 5, chance.uniform(0, 0.05))
        check(path)


# Damage


SIZE = 1_200


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Answers]:
    """Return the bytes of a store with snapshots, and what it answers."""
    path = tmp_path_factory.mktemp("whole") / "chat.db"
    with opened(str(path)) as memory:
        memory.add(history(SIZE))
        memory.index()
        found = answers(memory)
    with opened(str(path)) as memory:
        assert memory.context(QUESTIONS[0]).report.degraded == ()
        assert answers(memory) == found
    return path.read_bytes(), found


def snapshots(path: Path) -> dict[str, bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, data FROM snapshots WHERE part = 0"))


def flipped(offset: float) -> Callable[[Path, str], None]:
    """Return what flips a bit in the file, at a byte (or a share) of a snapshot."""

    def flip(path: Path, name: str) -> None:
        data = snapshots(path)[name]
        at = int(offset) if offset >= 1 or offset == 0 else int(offset * len(data))
        file = bytearray(path.read_bytes())
        # The bytes around it tell where it is in the file, unless they go over the end of a page.
        while file.count(data[at : at + 24]) != 1 or len(data[at : at + 24]) < 24:
            at -= 1
        file[file.find(data[at : at + 24])] ^= 4
        path.write_bytes(file)
        assert snapshots(path)[name] != data

    return flip


def cut(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE snapshots SET data = substr(data, 1, length(data) / 2) WHERE name = ?", (name,))


DAMAGE = {
    "version": flipped(len(MAGIC) - 1), "checksum": flipped(len(MAGIC) + 3), "header": flipped(40),
    "middle": flipped(0.5), "cut": cut,
}  # fmt: skip


@pytest.mark.parametrize("what", ["rows", "vectors"])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_index_is_built_anew_and_said_once(
    path: Path, whole: tuple[bytes, Answers], what: str, how: str
) -> None:
    data, expected = whole
    path.write_bytes(data)
    [name] = [name for name in snapshots(path) if name.startswith(what)]
    DAMAGE[how](path, name)
    with opened(str(path)) as memory:
        reports = [memory.context(question).report.degraded for question in QUESTIONS[:3]]
        assert reports == [(DAMAGED,), (), ()]
        assert answers(memory) == expected
    with opened(str(path)) as memory:
        assert memory.context(QUESTIONS[0]).report.degraded == (), "closing has mended it"
        assert answers(memory) == expected


def test_a_page_that_the_store_cannot_read_costs_no_answer(path: Path, whole: tuple[bytes, Answers]) -> None:
    """Within a snapshot, the number of the next page is destroyed."""
    data, expected = whole
    path.write_bytes(data)
    [name] = [name for name in snapshots(path) if name.startswith("vectors")]
    kept, file = snapshots(path)[name], bytearray(data)
    page, start = 4096, 20_000
    while kept[start : start + 200] not in file:  # it goes over the end of a page
        start += 200
    at = file.find(kept[start : start + 200]) // page * page
    file[at : at + 4] = b"\xff\xff\xff\xf0"
    path.write_bytes(file)
    with pytest.raises(sqlite3.DatabaseError):
        snapshots(path)
    memory = opened(str(path))
    assert memory.context(QUESTIONS[0]).report.degraded == (DAMAGED,)
    assert answers(memory) == expected
