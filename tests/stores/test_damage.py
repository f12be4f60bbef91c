"""Damage to a database is named where it is read, and what was made from messages is made again."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, StoreError, UnknownReferenceError
from shared_core.queries import After
from shared_core.recall.search import DAMAGED
from shared_core.records import MAIN, Branch, Position, Restored, Segment, Snapshot, Summary, VectorRows
from shared_core.stores import SQLiteStore, gaps
from shared_core.stores.row_values import checksum_of
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.testing.oracle import ALL, Session, drafts, of_texts
from tests.support.histories import NOON, history


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    with closing(SQLiteStore(path, durability="process")) as store:
        yield store


def change(path: Path, sql: str, *values: object) -> None:
    """Do what damage does: change rows past our code."""
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, values).rowcount == 1


# Rows


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("texts", "content", "other words"),
        ("texts", "content", b"text of u2"),
        ("texts", "name", "Eve"),
        ("texts", "extra", '{"pinned":true}'),
        ("messages", "id", "u9"),
        ("messages", "role", "system"),
        ("messages", "turn_id", "u1"),
        ("messages", "turn_no", 7),
        ("messages", "created_at", "2024-05-01T12:00:01+00:00"),
        ("messages", "stays", 1),
        ("messages", "tokens", 4),
        ("messages", "counter", "other"),
        ("messages", "picked_from", "u1"),
        ("messages", "checksum", 0),
        ("messages", "seq", 9),
    ],
)
def test_a_changed_value_is_named(path: Path, store: SQLiteStore, table: str, column: str, value: object) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "u2", "u3"))
    change(path, f"UPDATE {table} SET {column} = ? WHERE text = 2", value)
    name = value if column == "id" else "u2"
    with pytest.raises(
        StoreError, match=f"message '{name}' cannot be read: its checksum is wrong.*infinite-memory doctor"
    ):
        store.newest(session.key, Position(0, 2), 3)
    assert [record.message.id for record in store.get(session.key, ["u1", "u3"])] == ["u1", "u3"]


def test_bytes_that_are_no_text_are_named(path: Path, store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "u2"))
    change(path, "UPDATE texts SET content = CAST(x'ff41' AS TEXT) WHERE text = 1")
    with pytest.raises(StoreError, match="'u1'"):
        store.find(session.key, After(0, ALL))


def test_a_text_that_is_lost_is_named(path: Path, store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "u2"))
    change(path, "DELETE FROM texts WHERE text = 1")
    with pytest.raises(StoreError, match="'u1'"):
        store.get(session.key, ["u2", "u1"])


@pytest.mark.parametrize(("id_", "where"), [("u1", "at the beginning"), ("u2", "after message 'u1'")])
def test_a_message_that_is_lost_is_noticed(path: Path, store: SQLiteStore, id_: str, where: str) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "u2", "u3"))
    change(path, "DELETE FROM messages WHERE id = ?", id_)
    with pytest.raises(StoreError, match=f"messages of session 's' cannot be read: missing {where}"):
        store.newest(session.key, Position(0, 2), 3)
    for keys in ([Position(0, depth) for depth in range(3)], [Position(0, ["u1", "u2"].index(id_))]):
        with pytest.raises(StoreError, match=f"missing {where}"):
            store.get(session.key, keys)
    with pytest.raises(StoreError, match=f"missing {where}"):
        store.find(session.key, After(0, ALL))


def test_the_newest_message_is_missed_by_its_number(path: Path) -> None:
    """The table has lost its last row, but the index of numbers has not."""
    with closing(SQLiteStore(path)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1", "u2", "u3"))
        (page,) = store._db.query("SELECT rootpage FROM sqlite_master WHERE name = 'messages'")[0]
    data = bytearray(path.read_bytes())
    count = (page - 1) * 4096 + 3  # the number of cells of the page
    assert data[count : count + 2] == b"\0\3"
    data[count + 1] = 2
    path.write_bytes(data)
    with closing(SQLiteStore(path)) as store:
        for read in (lambda: store.state(key, MAIN), lambda: store.find(key, After(0, ALL))):
            with pytest.raises(
                StoreError, match="the newest message of session number 1 cannot be read: it is missing"
            ):
                read()


def test_an_id_that_its_index_has_lost_is_no_unknown_id(path: Path) -> None:
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(3))
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages_id'").fetchone()
    data = bytearray(path.read_bytes())
    at = data.index(b"m1", (page - 1) * 4096)
    assert at < page * 4096
    data[at : at + 2] = b"x1"
    path.write_bytes(data)
    with InfiniteMemory(path, embedder="words") as memory:
        for ask in (lambda: memory.get("m1"), lambda: memory.forget(ids=["m1"])):
            with pytest.raises(StoreError, match="'m1'"):
                ask()
        with pytest.raises(UnknownReferenceError):
            memory.get("m9")


def test_what_was_forgotten_or_never_came_is_not_missed(store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, drafts(*(f"u{number}" for number in range(9))))
    for depths in ([3], [4, 5], [8], [0]):
        session.forget([Position(0, depth) for depth in depths])
    session.check()
    assert [record.seq for record in store.find(session.key, After(0, ALL))] == [2, 3, 7, 8]
    assert len(store.newest(session.key, Position(0, 8), 99)) == 4
    assert store._db.query("SELECT start, upto FROM gaps WHERE segment = 0 ORDER BY start") == [
        (0, 0), (3, 3), (4, 5), (8, 8),
    ]  # fmt: skip
    # A session as another store had it, with positions and numbers passed over.
    other = Session(store, "other")
    whole = store.find(session.key, After(0, ALL))
    store.restore(other.key, Restored((Segment(0, None, 11), Segment(1, Position(0, 8), 9)), tuple(whole)))
    assert store.newest(other.key, Position(0, 11), 99) == whole[::-1]
    assert store.find(other.key, After(0, ALL)) == whole
    assert store.get(other.key, [Position(0, depth) for depth in range(-1, 20)]) == whole


def test_derived_rows_are_made_again_or_named(path: Path, store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "u2"))
    positions = [Position(0, 0), Position(0, 1)]
    store.keep(session.key, VectorRows("space", [(positions[0], "h1", b"one"), (positions[1], "h2", b"two")]))
    store.keep(session.key, Summary("all of it", positions[1], positions[1], "u2", 2, NOON, None, None))
    change(path, "UPDATE vectors SET vector = ? WHERE depth = 0", b"eno")
    lost = (positions[0], "", b"")
    assert list(store.vectors(session.key, "space")) == [lost, (positions[1], "h2", b"two")]
    assert list(store.vectors(session.key, "space", positions[:1])) == [lost]
    assert of_texts(store, session.key, "space", ["h1", "h2"]) == [(positions[1], "h2", b"two")]
    change(path, "UPDATE texts SET content = 'none of it' WHERE text = 3")
    with pytest.raises(StoreError, match="'u2'"):
        store.summaries(session.key, positions[1], 1)


def test_an_index_that_leads_to_no_row_is_damage(path: Path) -> None:
    """SQLite deletes nothing, and then finds the name taken."""
    with closing(SQLiteStore(path)) as store:
        key = store.create_session(None, "s")
        store.keep(key, Snapshot("rows", b"whatever"))
    row = b"\x01\x05\x09\x15\x08\x1crowswhatever"  # which begins with its number
    data = path.read_bytes()
    assert row in data
    path.write_bytes(data.replace(row, b"\x03" + row[1:]))
    with closing(SQLiteStore(path)) as store, pytest.raises(StoreError, match=r"UNIQUE.*infinite-memory doctor"):
        store.keep(key, Snapshot("rows", b"later"))


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE branches SET segment = 1 WHERE name = 'main'", "branch 'main'"),
        ("UPDATE branches SET name = 'niam' WHERE name = 'main'", "branch 'niam'"),
        ("UPDATE segments SET parent_depth = 0 WHERE segment = 1", "segment 1"),
        ("UPDATE refs SET depth = 0 WHERE kind = 'tag'", "tag 'here'"),
    ],
)
def test_a_damaged_tree_is_named(path: Path, sql: str, what: str) -> None:
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(4))
        memory.tag("here", at="m1")
        memory.fork("side", at="m2")
        memory.checkout("side")
        memory.add(Message.user("aside", id="s"))
        memory.rename_branch("side", "other")
    change(path, sql)
    with InfiniteMemory(path, embedder="words") as memory:

        def read() -> None:
            memory.branches()
            memory.checkout("other")
            list(memory.messages())
            memory.tags()

        with pytest.raises(StoreError, match=f"{what} of session number 1 cannot be read: its checksum is wrong"):
            read()


def test_a_damaged_vector_is_made_again_and_said(path: Path) -> None:
    settings: dict[str, Any] = {"embedder": HashingEmbedder(), "max_tokens": 700}
    with InfiniteMemory(path, **settings) as memory:
        memory.add(history(20))
        memory.index()
        expected = [(hit.message.id, hit.score) for hit in memory.search("item7 gardens", 9)]
    change(path, "UPDATE vectors SET vector = zeroblob(length(vector)) WHERE depth = 7")
    change_all(path, "DELETE FROM snapshots")
    with InfiniteMemory(path, **settings) as memory:
        context = memory.context("item7 gardens")
        assert [(hit.message.id, hit.score) for hit in memory.search("item7 gardens", 9)] == expected
        assert DAMAGED in context.report.degraded
    with InfiniteMemory(path, **settings) as memory:
        assert memory.context("item7 gardens").report.degraded == ()


def change_all(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for sql in statements:
            connection.execute(sql)


def test_a_page_that_cannot_be_read_is_not_left_out_of_the_next_prompt(path: Path) -> None:
    with InfiniteMemory(path, embedder="words") as memory:
        memory.add(history(9))
    change(path, "UPDATE texts SET content = 'other' WHERE text = 9")
    with InfiniteMemory(path, embedder="words") as memory:
        for _ in range(2):
            with pytest.raises(StoreError, match="'m8'"):
                memory.context("and now?")


# Pure parts


def test_gaps_and_what_they_explain() -> None:
    assert gaps.runs([5, 1, 2, 3, 9, 2]) == [(1, 3), (5, 5), (9, 9)]
    assert gaps.missing([2, 3, 7], 1, 9) == [(1, 1), (4, 6), (8, 9)]
    assert gaps.missing([], 3, 2) == []
    assert gaps.without([(1, 9), (12, 12)], [(0, 2), (5, 5), (8, 10), (12, 20)]) == [(3, 4), (6, 7)]
    assert gaps.without([(4, 4)], []) == [(4, 4)]


def test_the_checksum_is_the_same_in_every_version() -> None:
    assert checksum_of((1, None, "Zoë", b"\xed\xa0\x80", "a\0b")) == checksum_of(
        [1, None, "Zoë", b"\xed\xa0\x80", "a\0b"]
    )
    assert checksum_of(("u1", 3)) == 1_273_782_870


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE messages SET turn_no = 7 WHERE id = 'm1'",
        "UPDATE texts SET content = CAST(x'ff41' AS TEXT) WHERE content LIKE '%item1 %'",
        "UPDATE messages SET id = CAST(x'ff6d31' AS TEXT) WHERE id = 'm1'",
        "UPDATE messages SET seq = 99 WHERE id = 'm1'",
        "DELETE FROM messages WHERE id = 'm1'",
    ],
)
@pytest.mark.parametrize("whom", ["session", "user"])
def test_a_session_with_a_damaged_message_can_be_forgotten(path: Path, damage: str, whom: str) -> None:
    def opened(session: str) -> InfiniteMemory:
        return InfiniteMemory(path, session_id=session, user_id="ann", embedder="words")

    for session in ("other", "damaged"):
        with opened(session) as memory:
            memory.add(history(4))
            memory.fork("side", at="m0")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"{damage} {'AND session = 2' if 'texts' not in damage else 'AND text > 4'}")
        connection.commit()
    with opened("damaged") as memory:
        with pytest.raises(StoreError):
            list(memory.messages())
        wanted = {whom: True}
        would = memory.forget(dry_run=True, **wanted)  # type: ignore[arg-type]
        assert memory.forget(**wanted).ids == would.ids  # type: ignore[arg-type]
        assert {"m0", "m2", "m3"} <= set(would.ids)
        assert not list(memory.messages())
        assert not memory.search("item1 gardens")
        memory.add(Message.user("A new beginning.", id="new"))
        assert [message.id for message in memory.messages()] == ["new"]
        assert memory.add(Message.user("item2", id="m2")) == []
    with opened("other") as memory:
        assert len(list(memory.messages())) == (0 if whom == "user" else 4)
    with closing(sqlite3.connect(path)) as connection:
        left = [row[0] for row in connection.execute("SELECT quote(content) FROM texts")]
    lost = damage.startswith("DELETE")  # the text of a row that is gone belongs to nobody
    assert sum("item" in text for text in left) == (0 if whom == "user" else 4) + lost


def test_a_message_before_numbers_that_were_passed_over_is_missed(path: Path, store: SQLiteStore) -> None:
    session = Session(store)
    session.append(MAIN, drafts("u1", "u2"))
    (last,) = store.get(session.key, ["u2"])
    new = replace(last, message=last.message.replace(id="u5"), position=Position(0, 2), seq=5)
    store.restore(session.key, Restored(records=(new,), branches=(Branch(MAIN, Position(0, 2)),), last_seq=8))
    store.append(session.key, MAIN, drafts("u9"))
    assert [record.seq for record in store.find(session.key, After(0, ALL))] == [1, 2, 5, 9]
    change(path, "DELETE FROM messages WHERE seq = 2")
    with pytest.raises(StoreError, match="after message 'u1'"):
        store.find(session.key, After(0, ALL))
    with pytest.raises(StoreError, match="after message 'u1'"):
        store.get(session.key, [Position(0, 1)])
