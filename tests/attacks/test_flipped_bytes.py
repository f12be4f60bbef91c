"""A flipped byte in a database, its write-ahead log or a snapshot: an error that names it, or the same answers."""

import os
import random
import shutil
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, StoreError, UnknownReferenceError
from shared_core.recall.search import DAMAGED
from shared_core.records import SessionInfo
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import NOON, history

FLIPS = 500 if os.environ.get("SOAK") else 10
WHAT_TO_DO = ("restore it from a backup", "give another path", "upgrade infinite-memory", "infinite-memory doctor")
SETTINGS: dict[str, Any] = {"max_tokens": 600, "reserve_tokens": 50}
Answers = dict[str, Any]


def opened(path: Path, **settings: Any) -> InfiniteMemory:
    return InfiniteMemory(path, embedder=HashingEmbedder(), **SETTINGS | settings)


def tell(memory: InfiniteMemory) -> None:
    """Hold a conversation with branches, a merge, a tag, a stash, and messages that are forgotten."""
    for start in range(0, 160, 4):
        memory.add(history(4, start))
    memory.fork("side", at="m70")
    memory.checkout("side")
    memory.add([Message.user("Über die Gärten, once more", name="Zoë", id="s0", created_at=NOON)])
    memory.add([Message.assistant("They are green. " * 200, id="s1", created_at=NOON)])
    memory.tag("here")
    memory.checkout("main")
    memory.merge("side")
    memory.add(history(20, 160))
    memory.forget(ids=["m9", "m10", "m11"])
    memory.add(history(20, 180))


def questions(memory: InfiniteMemory) -> Iterator[tuple[str, Callable[[], Any]]]:
    for branch in ("main", "side"):
        yield f"checkout {branch}", partial(memory.checkout, branch)
        yield f"messages {branch}", lambda: [message.model_dump() for message in memory.messages()]
        yield f"newest {branch}", lambda: [message.model_dump() for message in memory.newest(7)]
        yield f"log {branch}", lambda: [str(line) for line in memory.log(500)]
    yield "checkout main", partial(memory.checkout, "main")
    for question in ("what of item33 and the gardens?", "what did Zoë say?"):
        yield f"search {question}", partial(found_by, memory, question)
        yield f"context {question}", partial(prompt_for, memory, question)
    for id_ in (*(f"m{number}" for number in (*range(9), *range(12, 200))), "s0", "s1"):
        yield id_, partial(memory.get, id_)
    yield "branches", memory.branches
    yield "tags", memory.tags
    yield "reflog", memory.reflog
    # How many messages a session holds is counted in an index, which has no checksums.
    yield "sessions", partial(listed, memory)


def listed(memory: InfiniteMemory) -> list[SessionInfo] | str:
    """Return the sessions; the word "error" if a warning says that something in the list may be wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return [replace(one, messages=0) for one in memory.sessions()]
        except RuntimeWarning as warning:
            check_words(warning)
            return "error"


def found_by(memory: InfiniteMemory, question: str) -> list[tuple[str | None, float]]:
    return [(hit.message.id, hit.score) for hit in memory.search(question, 9)]


def prompt_for(memory: InfiniteMemory, question: str) -> list[str]:
    return [message.content for message in memory.context(question).messages]


def answers(path: Path) -> Answers:
    """Return the answers; for those that fail with a StoreError that says what to do, the word "error"."""
    found: Answers = {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with opened(path) as memory:
                for name, ask in questions(memory):
                    found[name] = answer(ask)
        except StoreError as error:
            check_words(error)
            found["opening"] = "error"
    if any("what was stored last may be missing" in str(one.message) for one in said):
        found["opening"] = "error"
    return found


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except StoreError as error:
        check_words(error)
        return "error"
    except UnknownReferenceError:
        return "unknown"


def check_words(error: StoreError | RuntimeWarning) -> None:
    assert any(advice in str(error) for advice in WHAT_TO_DO), error


def outcome(found: Answers, expected: Answers) -> str:
    """Return whether damage was noticed before any answer was another one."""
    if found.get("opening") == "error":
        return "error at opening"
    wrong = [name for name in expected if found.get(name) not in ("error", expected[name])]
    if wrong:
        return f"silent: {wrong}"
    return "error" if "error" in found.values() else "equal"


def flip(path: Path, chance: random.Random, among: tuple[int, int] | None = None) -> int:
    data = bytearray(path.read_bytes())
    at = chance.randrange(*(among or (0, len(data))))
    data[at] ^= chance.randrange(1, 256)
    path.write_bytes(data)
    return at


def counted(folder: Path, names: list[str], flipped: str, seed: int) -> Counter[str]:
    expected = answers(copied(folder, names))
    assert not {"error", "unknown"} & {one for one in expected.values() if isinstance(one, str)}
    chance, outcomes = random.Random(seed), Counter[str]()
    for _ in range(FLIPS):
        path = copied(folder, names)
        flip(path.with_name(path.name + flipped), chance)
        outcomes[outcome(answers(path), expected)] += 1
    return outcomes


def copied(folder: Path, names: list[str]) -> Path:
    target = folder / "copy"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name in names:
        shutil.copy(folder / name, target / name)
    return target / "chat.db"


def silent(outcomes: Counter[str]) -> int:
    return sum(count for result, count in outcomes.items() if result.startswith("silent"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("closed")
    with opened(folder / "chat.db") as memory:
        tell(memory)
        memory.index()
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed process leaves: some of it is in the database, the rest in the log."""
    folder, away = tmp_path_factory.mktemp("killed"), tmp_path_factory.mktemp("away")
    with opened(away / "chat.db") as memory:
        tell(memory)
        for name in ("chat.db", "chat.db-wal"):
            shutil.copy(away / name, folder / name)
    return folder


def test_a_byte_of_a_database(closed: Path) -> None:
    assert silent(counted(closed, ["chat.db"], "", 1)) == 0


def test_a_byte_of_a_log(killed: Path) -> None:
    assert silent(counted(killed, ["chat.db", "chat.db-wal"], "-wal", 2)) == 0


def test_a_byte_of_a_snapshot(closed: Path) -> None:
    """An index that is damaged is made again, so that nothing is another answer, and the report says so."""
    expected, chance = answers(copied(closed, ["chat.db"])), random.Random(3)
    for _ in range(FLIPS):
        path = copied(closed, ["chat.db"])
        with sqlite3.connect(path) as connection:
            # What a snapshot reaches up to is read only when the next one is saved.
            found = "SELECT rowid, data FROM snapshots WHERE name <> 'reach' ORDER BY rowid"
            row, data = chance.choice(connection.execute(found).fetchall())
            damaged = bytearray(data)
            damaged[chance.randrange(len(data))] ^= chance.randrange(1, 256)
            connection.execute("UPDATE snapshots SET data = ? WHERE rowid = ?", (bytes(damaged), row))
        connection.close()
        with opened(path) as memory:
            assert memory.context("what of item33 and the gardens?").report.degraded == (DAMAGED,)
        assert answers(path) == expected
