"""The doctor of a file lists what is damaged, one row at a time, and the rest is saved."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.app import run
from shared_core.records import After
from shared_core.stores import SQLiteStore
from shared_core.stores.sqlite.doctor import examine
from shared_core.stores.sqlite.recovery import recover
from shared_core.testing.oracle import ALL
from tests.stores.test_damage import change, change_all, conversation
from tests.support.histories import history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def test_the_doctor_finds_nothing_in_what_is_whole(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conversation(path)
    before = path.read_bytes()
    assert run(["doctor", "--store", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 33 messages in 1 session and no damage\n"
    recover(path, tmp_path / "saved.db")
    assert path.read_bytes() == before
    with closing(SQLiteStore(tmp_path / "saved.db")) as saved, closing(SQLiteStore(path)) as store:
        for sql in (
            "SELECT id, checksum FROM messages ORDER BY id", "SELECT * FROM tombstones", "SELECT * FROM covers",
            "SELECT kind, name, segment, depth, base_segment, base_depth, note, created_at FROM refs ORDER BY ref",
        ):  # fmt: skip
            assert saved._db.query(sql) == store._db.query(sql)
    with (
        InfiniteMemory(path, embedder="words") as memory,
        InfiniteMemory(tmp_path / "saved.db", embedder="words") as saved,
    ):
        assert saved.branches() == memory.branches()
        assert saved.context("what of item3?").messages == memory.context("what of item3?").messages


def test_the_doctor_lists_damage_by_session_and_saves_the_rest(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for user, name in (("ann", "diary"), (None, "other")):
        with InfiniteMemory(path, session_id=name, user_id=user, embedder="words") as memory:
            memory.add(history(9))
    change(path, "UPDATE texts SET content = 'other' WHERE text = 3")
    change(path, "DELETE FROM texts WHERE text = 5")
    change(path, "UPDATE branches SET checksum = 1 WHERE session = 2")
    change(path, "DELETE FROM messages WHERE session = 2 AND id = 'm7'")
    saved = tmp_path / "saved.db"
    assert run(["doctor", "--store", str(path), "--json", "--recover", str(saved)]) == 1
    answer = json.loads(capsys.readouterr().out)
    expected = {
        ("message", "its checksum is wrong", "diary", "ann", "m2"),
        ("message", "its text cannot be read", "diary", "ann", "m4"),
        ("a branch", "its checksum is wrong", "other", None, "main"),
        ("messages", "1 more are missing, and nothing else is known of them", "other", None, None),
    }
    named = {tuple(one.values())[:5] for one in answer["damages"] if one["what"] != "the structure of the file"}
    assert named == expected
    assert (answer["messages"], answer["sessions"], answer["recovered"]) == (15, 2, str(saved))
    for user, name, lost in (("ann", "diary", (2, 4)), (None, "other", (7,))):
        with InfiniteMemory(saved, session_id=name, user_id=user, embedder="words") as memory:
            kept = [message for number, message in enumerate(history(9)) if number not in lost]
            assert [message.content for message in memory.messages()] == [message.content for message in kept]
            memory.add(Message.user("and on"))
            assert memory.newest(1)[0].content == "and on"
    assert examine(saved).damages == []
    assert run(["doctor", "--store", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "  user ann, session diary: message m2: its checksum is wrong" in lines
    assert run(["doctor", "--store", str(path), "--recover", str(saved)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_doctor_reads_around_a_damaged_page(path: Path, tmp_path: Path) -> None:
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(600))
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    at = data.find(b"item300 concerns")
    page = at // size * size
    data[page : page + size] = bytes(size)
    path.write_bytes(data)
    found = examine(path)
    recover(path, tmp_path / "saved.db")
    with InfiniteMemory(tmp_path / "saved.db", embedder="words") as memory:
        saved = [message.id for message in memory.messages()]
    lost = [message for message in history(600) if message.id not in saved]
    assert 0 < len(lost) < 80
    assert "m300" in {message.id for message in lost}
    assert {damage.id for damage in found.damages if damage.what == "message"} == {message.id for message in lost}


@pytest.mark.parametrize("depth", [b"\x7f\xff", b"\x00\x05"], ids=["too large", "too small"])
@pytest.mark.parametrize("side", [-1, 1], ids=["before", "after"])
def test_one_damaged_key_hides_no_message_that_can_be_read(path: Path, depth: bytes, side: int) -> None:
    """It is that of the message next to a page that cannot be read: it does not tell how far the reading came."""
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(600))
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    keys = {number: number.to_bytes(2, "big") + (number + 1).to_bytes(2, "big") for number in range(256, 600)}
    found = {number: data.index(key + b"m%d" % number) for number, key in keys.items()}
    gone = [number for number in found if found[number] // size == found[400] // size]
    next_to = gone[-1 if side > 0 else 0] + side
    data[found[next_to] : found[next_to] + 2] = depth
    page = found[400] // size * size
    data[page : page + size] = bytes(size)
    path.write_bytes(data)
    read = examine(path)
    lost = {f"m{number}" for number in (next_to, *gone)}
    assert 0 < len(gone) < 80
    assert read.messages == 600 - len(lost)
    assert {damage.id for damage in read.damages if damage.what == "message"} == lost


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("DELETE FROM sqlite_master WHERE type = 'index' AND name = 'messages_turn'", {"index messages_turn"}),
        ("DELETE FROM sqlite_master WHERE name = 'messages_id'", {"index messages_id"}),
        ("DELETE FROM sqlite_master WHERE name IN ('messages_seq', 'states')", {"index messages_seq", "view states"}),
        ("DELETE FROM sqlite_master WHERE name = 'sessions_news'", {"trigger sessions_news"}),
        ("DELETE FROM sqlite_master WHERE name IN ('migrations', 'gaps')", {"table migrations", "table gaps"}),
        ("DELETE FROM sqlite_master WHERE name = 'sessions'", {"table sessions"}),
    ],
)
def test_a_part_of_the_schema_that_is_gone_is_named_and_the_messages_are_saved(
    path: Path, tmp_path: Path, sql: str, names: set[str]
) -> None:
    """SQLite's own check misses an index whose definition is gone while the last one in the schema is a view."""
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(9))
    change_all(path, "PRAGMA writable_schema = ON", sql)
    found = examine(path)
    missing = [damage for damage in found.damages if damage.why.endswith("it is missing")]
    assert {f"{damage.what} {damage.id}" if damage.derived else damage.why[:-15] for damage in missing} == names
    others = {damage.why for damage in found.damages} - {damage.why for damage in missing}
    assert not [why for why in others if "used" not in why and not why.startswith("no such table")]
    assert found.messages == 9
    recover(path, tmp_path / "saved.db")
    with closing(SQLiteStore(tmp_path / "saved.db")) as saved:
        (key,) = [one.key for one in saved.sessions()]
        assert [record.message.id for record in saved.find(key, After(0, ALL))] == [one.id for one in history(9)]
    assert examine(tmp_path / "saved.db").damages == []


def test_the_doctor_sees_one_moment_of_a_database_that_is_written_to(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared_core.stores.sqlite.doctor._PAGE", 6)
    told: list[tuple[int, int]] = []
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(10))

        def write(done: int, total: int) -> None:
            told.append((done, total))
            memory.forget(ids=[f"m{done}"])
            memory.fork(f"b{done}")
            memory.add(Message.user("meanwhile", id=f"x{done}"))

        found = examine(path, write)
        assert (found.damages, found.messages, told) == ([], 10, [(6, 10)])
        assert (examine(path).damages, examine(path).messages) == ([], 10)
