"""The doctor on both databases: what cannot be read is listed, and the rest goes into a new store."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from shared_core import InfiniteMemory, Message, PostgresStore, SQLiteStore
from shared_core.doors.cli.command import run
from shared_core.errors import DuplicateError, StoreError, StoreUnavailableError
from shared_core.operations import StoreCheck, check_store, differences, recover_store, salvage
from shared_core.queries import Query
from shared_core.records import MAIN, Restored, Stretch, Summary
from shared_core.store import Store
from shared_core.testing import HashingEmbedder
from tests.stores.postgres_server import Server
from tests.support.histories import NOON, history
from tests.support.random_talk import RandomTalk

SCHEMA = "doctor"


class Place(NamedTuple):
    """A store that is not open, and the server it is on."""

    address: str
    server: Server | None

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with closing(self._open()) as store:
            yield store

    def _open(self) -> Store:
        return SQLiteStore(self.address) if self.server is None else PostgresStore(self.address, schema=SCHEMA)

    def spoil(self, statement: str) -> None:
        """Change rows past our code."""
        if self.server is not None:
            self.server.run(statement.replace("{s}", SCHEMA))
            return
        with closing(sqlite3.connect(self.address)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(statement.replace("{s}.", ""))

    def check(self) -> StoreCheck:
        if self.server is None:
            return check_store(self.address)
        with self.opened() as store:
            return check_store(store)

    def recovered(self) -> tuple[StoreCheck, SQLiteStore]:
        """Return what was found, and all that can be read in a store in memory."""
        target = SQLiteStore(":memory:")
        if self.server is None:
            return recover_store(self.address, target), target
        with self.opened() as store:
            return recover_store(store, target), target


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(str(tmp_path / "a.db"), None)
        return
    server: Server = request.getfixturevalue("server")
    yield Place(server.address(), server)
    server.run(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def fill(place: Place) -> None:
    """Store two sessions with everything that a store may hold."""
    with place.opened() as store:
        for user, name in (("ann", "diary"), (None, "other")):
            with InfiniteMemory(store, session_id=name, user_id=user, embedder=HashingEmbedder()) as memory:
                memory.add(history(9))
                memory.fork("side", "m3")
                memory.checkout("side")
                memory.add(Message.user("Über uns \ud800", id="side"))
                memory.checkout(MAIN)
                memory.merge("side", how="full")
                memory.add([Message.user("after the merge", id="after"), Message.assistant("Yes.", id="reply")])
                memory.tag("here")
                memory.forget(ids=["m5"])
                memory.index()
            key = store.session(user, name) or 0
            for number in (1, 2):
                (record,) = store.get(key, [f"m{number}"])
                store.keep(key, Summary("all", record.position, record.position, f"m{number}", 3, NOON))
                store.restore(key, Restored(covers=((record.position, Stretch(0, 0, 1)),)))


OF_ANN = "session = (SELECT min(session) FROM {s}.sessions)"
"""Ann's session is the older one."""


def changed(table: str, change: str, where: str) -> str:
    return f"UPDATE {{s}}.{table} SET {change} WHERE {where} AND {OF_ANN}"


WRONG = "its checksum is wrong"
ALL_OF_ANN = {*(f"m{number}" for number in range(9) if number != 5), "side", "after", "reply"}

LOST = f"DELETE FROM {{s}}.messages WHERE id = 'm6' AND {OF_ANN}"

DAMAGES = [
    # What happened, what the doctor says of it, and which messages are lost.
    (changed("messages", "role = 'system'", "id = 'm2'"), ("message 'm2'", WRONG), {"m2"}),
    (LOST, ("messages of session 'diary'", "missing after "), {"m6"}),
    (changed("branches", "checksum = 1", "name = 'main'"), ("branch 'main' of session number 1", WRONG), set()),
    (changed("segments", "turn_shift = 7", "segment = 1"), ("segment 1 of session number 1", WRONG), set()),
    (changed("refs", "note = 'other'", "name = 'here'"), ("tag 'here' of session number 1", WRONG), set()),
    (changed("summaries", "messages = 4", "last_id = 'm2'"), ("the summary up to message 'm2'", WRONG), set()),
    (
        changed("vectors", "hash = 'other', checksum = NULL", "depth = 2"),
        ("a vector of ", f"{WRONG}; it is made again"), set(),
    ),
]  # fmt: skip


def test_a_whole_store_has_no_damage_and_all_of_it_is_recovered(place: Place) -> None:
    fill(place)
    found, target = place.recovered()
    with closing(target), place.opened() as store:
        assert (found.damages, found.messages, found.sessions) == ((), 22, 2)
        assert list(differences(store, target)) == []
        with pytest.raises(DuplicateError, match="'diary'"):
            recover_store(store, target)


@pytest.mark.parametrize(("statement", "said", "lost"), DAMAGES)
def test_a_damage_is_named_and_the_rest_recovered(
    place: Place, statement: str, said: tuple[str, str], lost: set[str]
) -> None:
    fill(place)
    place.spoil(statement)
    found, target = place.recovered()
    assert [one for one in found.damages if one.what.startswith(said[0]) and one.why.startswith(said[1])]
    assert {(one.user, one.session) for one in found.damages} <= {("ann", "diary"), (None, None)}
    assert place.check() == found
    with closing(target):
        key = target.session("ann", "diary") or 0
        assert {id_ for _, id_ in target.stored(key)} == ALL_OF_ANN - lost
        assert MAIN in {branch.name for branch in target.branches(key)}
        assert check_store(target).damages == ()
        with InfiniteMemory(target, session_id="diary", user_id="ann", embedder="words") as memory:
            assert {message.id for message in memory.messages()} >= ALL_OF_ANN - lost - {"side"}
            memory.add(Message.user("and on"))
            assert memory.newest(1)[0].content == "and on"


def test_a_session_whose_name_is_no_text_any_more_is_recovered_under_another(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "chat.db"), None)
    fill(place)
    place.spoil("UPDATE sessions SET session_id = CAST(x'64ff' AS TEXT) WHERE user_id = 'ann'")
    found, target = place.recovered()
    assert place.check() == found
    ((what, name),) = [(one.what, one.session) for one in found.damages]
    assert what.startswith("the name of session number")
    with closing(target):
        assert {id_ for _, id_ in target.stored(target.session(None, str(name)) or 0)} == ALL_OF_ANN


def test_a_session_whose_name_is_lost_is_recovered_under_another(place: Place) -> None:
    fill(place)
    with place.opened() as store:
        ann = store.session("ann", "diary")
        InfiniteMemory(store, session_id=f"recovered-{ann}", embedder="words").add(Message.user("taken", id="taken"))
    place.spoil(f"DELETE FROM {{s}}.{'sessions' if place.server is None else 'names'} WHERE session = {ann}")
    found, target = place.recovered()
    assert (found.messages, found.sessions) == (23, 3)
    assert [(one.what, one.session) for one in found.damages if one.session is not None] == [
        (f"the name of session number {ann}", f"recovered-{ann}-2")
    ]
    with closing(target):
        key = target.session(None, f"recovered-{ann}-2") or 0
        assert {id_ for _, id_ in target.stored(key)} == ALL_OF_ANN
        assert [branch.name for branch in target.branches(key)] == ["main", "side"]
        assert [ref.name for ref in target.refs(key, "tag")] == ["here"]
        (taken,) = target.stored(target.session(None, f"recovered-{ann}") or 0)
        assert taken[1] == "taken"


def fork(place: Place) -> None:
    """Store a session whose newest message is on a branch."""
    with place.opened() as store, InfiniteMemory(store, session_id="diary", user_id="ann", embedder="words") as memory:
        memory.add(history(6))
        memory.fork("side", "m2")
        memory.checkout("side")
        memory.add(Message.user("the newest", id="side"))


def branches_of(store: Store, user: str | None, name: str) -> dict[str, list[str]]:
    """Return branch -> the ids of the messages on it."""
    found: dict[str, list[str]] = {}
    with InfiniteMemory(store, session_id=name, user_id=user, embedder="words") as memory:
        for branch in memory.branches():
            memory.checkout(branch.name)
            found[branch.name] = [message.id or "" for message in memory.messages()]
    return found


def test_a_branch_whose_segment_is_lost_keeps_its_messages(place: Place) -> None:
    fill(place)
    place.spoil(f"DELETE FROM {{s}}.segments WHERE segment = 1 AND {OF_ANN}")
    found, target = place.recovered()
    assert ("segment 1", "it is lost") in {(one.what, one.why) for one in found.damages if one.session == "diary"}
    assert place.check() == found
    with closing(target):
        assert branches_of(target, "ann", "diary")["side"] == ["side"]


@pytest.mark.parametrize("segment", [0, 1])
def test_what_grows_out_of_a_segment_that_is_lost_still_does(place: Place, segment: int) -> None:
    fill(place)
    with place.opened() as store:
        whole = branches_of(store, "ann", "diary")["main"]
    place.spoil(f"DELETE FROM {{s}}.segments WHERE segment = {segment} AND {OF_ANN}")
    _, target = place.recovered()
    with closing(target):
        found = branches_of(target, "ann", "diary")
        assert (sorted(found), found["main"]) == (["main", "side"], whole)
        assert check_store(target).damages == ()


def test_messages_on_a_segment_that_is_lost_with_its_branch_get_another(place: Place) -> None:
    fork(place)
    place.spoil("DELETE FROM {s}.segments WHERE segment = 1")
    place.spoil("DELETE FROM {s}.branches WHERE name = 'side'")
    _, target = place.recovered()
    with closing(target):
        found = branches_of(target, "ann", "diary")
        assert (sorted(found), found["recovered-1"]) == (["main", "recovered-1"], ["side"])


def test_a_branch_that_was_moved_is_missed_by_its_name_and_a_deleted_one_is_not(place: Place) -> None:
    fork(place)
    with place.opened() as store, InfiniteMemory(store, session_id="diary", user_id="ann", embedder="words") as memory:
        memory.checkout("side")
        memory.fork("gone")
        memory.add(Message.user("deleted", id="gone"))
        memory.checkout("side")
        memory.delete_branch("gone")
        memory.reset("m2")
        memory.add(Message.user("and back", id="back"))
    place.spoil("DELETE FROM {s}.branches WHERE name = 'side'")
    found, target = place.recovered()
    assert [(one.what, one.why) for one in found.damages] == [("branch 'side'", "it is lost")]
    with closing(target):
        branches = branches_of(target, "ann", "diary")
        assert (sorted(branches), branches["side"][-1]) == (["main", "recovered-2", "side"], "m2")
        assert branches["recovered-2"][-1] == "back"


def test_main_that_is_lost_ends_with_the_newest_message(place: Place) -> None:
    fill(place)
    place.spoil(f"DELETE FROM {{s}}.branches WHERE name = 'main' AND {OF_ANN}")
    found, target = place.recovered()
    assert ("branch 'main'", "it is lost", "diary") in {(one.what, one.why, one.session) for one in found.damages}
    with closing(target):
        assert branches_of(target, "ann", "diary")["main"][-2:] == ["after", "reply"]


def test_main_that_is_lost_is_what_no_other_branch_leads_to(place: Place) -> None:
    fork(place)
    place.spoil("DELETE FROM {s}.branches WHERE name = 'main'")
    _, target = place.recovered()
    with closing(target):
        found = branches_of(target, "ann", "diary")
        assert sorted(found) == ["main", "side"]
        assert (found["side"][-1], found["main"]) == ("side", [f"m{number}" for number in range(6)])


@pytest.mark.parametrize(
    "method", ["session_keys", "sessions", "segments", "stored", "get", "branches", "refs", "summaries"]
)
def test_a_store_that_is_locked_is_not_damaged(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Also where less is read after a damage."""
    calls: list[object] = []

    def locked(*args: object, **_: object) -> object:
        calls.append(args)
        if len(calls) == 1 and method in ("refs", "summaries"):
            raise StoreError("damaged")
        raise StoreUnavailableError("locked")

    def damaged(*_: object) -> object:
        raise StoreError("damaged")

    with closing(SQLiteStore(":memory:")) as store:
        InfiniteMemory(store, embedder="words").add(Message.user("hello"))
        if method in ("segments", "branches", "refs"):
            monkeypatch.setattr(salvage, "read_tree", damaged)
        monkeypatch.setattr(store, method, locked)
        with pytest.raises(StoreUnavailableError, match="locked"):
            check_store(store)


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.db", tmp_path):
        with pytest.raises(StoreError, match="there is no file"):
            check_store(path)


def test_an_index_that_is_missing_is_named(place: Place) -> None:
    fill(place)
    place.spoil("DROP INDEX {s}.messages_turn")
    (damage,) = place.check().damages
    assert (damage.what, damage.session) == ("the database", None)
    assert "index messages_turn is missing" in damage.why


def test_whatever_happened_nothing_is_damaged(place: Place) -> None:
    with place.opened() as store:
        RandomTalk(store, Random(0)).steps(30)
    assert place.check().damages == ()


@pytest.mark.parametrize("seed", range(4))
def test_what_others_do_meanwhile_is_no_damage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two of its reads: a server goes on while it is looked at."""
    with closing(SQLiteStore(":memory:")) as store:
        talk = RandomTalk(store, Random(seed))
        talk.steps(20)
        read, talking = store.read, [False]

        def interrupted(session: int, *queries: Query) -> list[Any]:
            if not talking[0]:
                talking[0] = True
                talk.steps(1)
                talking[0] = False
            return read(session, *queries)

        monkeypatch.setattr(store, "read", interrupted)
        assert check_store(store).damages == ()


# Files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with InfiniteMemory(tmp_path / "chat.db", embedder="words") as memory:
        memory.add(history(600))
    return tmp_path / "chat.db"


def test_a_damaged_page_is_read_around(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    page = data.find(b"item300 concerns") // size * size
    data[page : page + size] = bytes(size)
    path.write_bytes(data)
    with closing(SQLiteStore(":memory:")) as target:
        found = recover_store(path, target)
        saved = {id_ for _, id_ in target.stored(1)}
    lost = [number for number in range(600) if f"m{number}" not in saved]
    assert 0 < len(lost) < 80
    assert 300 in lost
    assert found.messages == 600 - len(lost)
    assert f"messages {lost[0]} to {lost[-1]} of segment 0" in {one.what for one in found.damages}
    assert path.read_bytes() == data


def test_the_names_of_sessions_are_read_around(path: Path) -> None:
    with closing(SQLiteStore(path)) as store, store.transaction():
        for number in range(300):
            store.create_session("ann", f"session {number} with a name of some length")
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        sql = "SELECT pageno FROM dbstat WHERE name = 'sessions' AND pagetype = 'leaf'"
        page = connection.execute(sql).fetchall()[1][0] - 1
    data = bytearray(path.read_bytes())
    data[page * size : (page + 1) * size] = bytes(size)
    path.write_bytes(data)
    with closing(SQLiteStore(":memory:")) as target:
        found = recover_store(path, target)
        names = {one.session_id for one in target.sessions()}
    assert (found.messages, found.sessions, len(names)) == (600, 301, 301)
    assert 0 < len([name for name in names if name.startswith("recovered-")]) < 100
    assert "default" in names


def test_what_numbers_do_not_lead_to_is_found_by_its_position(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        sql = "SELECT pageno FROM dbstat WHERE name = 'messages_seq' AND pagetype = 'leaf'"
        with suppress(sqlite3.OperationalError):
            page = connection.execute(sql).fetchone()[0] - 1
    data = bytearray(path.read_bytes())
    data[page * size : (page + 1) * size] = bytes(size)
    path.write_bytes(data)
    with closing(SQLiteStore(":memory:")) as target:
        assert recover_store(path, target).messages == 600
        assert len(target.stored(1)) == 600


@pytest.mark.parametrize("name", ["messages_turn", "messages_seq", "branches_ordinal", "sessions_news", "gaps"])
def test_a_part_of_the_schema_that_is_gone_is_named(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_master WHERE name = ?", (name,))
    found = check_store(path)
    assert any(one.why.endswith(f" {name} is missing") for one in found.damages)
    assert found.messages == 600


def test_a_part_of_the_schema_that_belongs_to_nothing_is_named(path: Path) -> None:
    """A memory cannot be opened then; all of it is read nevertheless."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET tbl_name = 'message' WHERE name = 'messages_turn'")
    with pytest.raises(StoreError, match="infinite-memory doctor"):
        InfiniteMemory(path).messages()
    found = check_store(path)
    assert [one.why for one in found.damages] == ["index messages_turn is not defined as it was made"]
    assert found.messages == 600


def test_a_damaged_log_is_named_and_what_is_before_it_is_read(tmp_path: Path) -> None:
    path, copy = tmp_path / "chat.db", tmp_path / "copy.db"
    with InfiniteMemory(path, embedder="words") as memory:
        for number in range(9):
            memory.add(Message.user(f"message {number}", id=f"m{number}"))
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
    data = bytearray(Path(f"{copy}-wal").read_bytes())
    data[len(data) // 2] ^= 1
    Path(f"{copy}-wal").write_bytes(data)
    with pytest.raises(StoreError, match="infinite-memory doctor"):
        InfiniteMemory(copy).messages()
    found = check_store(copy)
    assert found.damages[0].why.startswith("the write-ahead log cannot be read from frame ")
    assert Path(f"{copy}-wal").read_bytes() == data


def test_the_log_of_a_killed_process_lacks_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """It leaves the end of a transaction; the same without a living process, or with a frame less, is a loss."""
    path, copy = tmp_path / "chat.db", tmp_path / "copy.db"
    wal = Path(f"{path}-wal")
    with InfiniteMemory(path, embedder="words") as memory:
        for number in range(3):
            memory.add(Message.user(f"message {number}", id=f"m{number}"))
        whole = wal.read_bytes()
        wal.write_bytes(whole + whole[-4120:])
        assert warned(path) == ""
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
        assert "ends with a transaction that cannot be read" in warned(copy)
        wal.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        assert "ends with a transaction that cannot be read" in warned(path)
        wal.write_bytes(whole)


def warned(path: Path) -> str:
    """Return what another process is warned of that opens a database."""
    script = "import sys; from shared_core.stores import SQLiteStore; SQLiteStore(sys.argv[1])"
    return subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True).stderr


def test_one_moment_of_a_file_is_seen(path: Path) -> None:
    told: list[tuple[int, int]] = []
    with InfiniteMemory(path, embedder="words") as memory:

        def write(done: int, total: int) -> None:
            told.append((done, total))
            memory.forget(ids=["m3"])
            memory.add(Message.user("meanwhile"))

        found = check_store(path, progress=write)
    assert (found.damages, found.messages, told) == ((), 600, [(600, 600)])
    assert (check_store(path).damages, check_store(path).messages) == ((), 600)


def test_the_command_lists_damage_and_saves_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(str(tmp_path / "a.db"), None)
    fill(place)
    store, saved = ["--store", place.address], str(tmp_path / "saved.db")
    assert run(["doctor", *store]) == 0
    assert capsys.readouterr().out == f"{place.address}: 22 messages in 2 sessions and no damage\n"
    place.spoil(DAMAGES[0][0])
    assert run(["doctor", *store, "--json", "--recover", saved]) == 1
    answer = json.loads(capsys.readouterr().out)
    damage = {"what": "message 'm2'", "why": WRONG, "session": "diary", "user": "ann"}
    assert (answer["messages"], answer["damages"], answer["recovered"]) == (21, [damage], saved)
    assert run(["doctor", *store]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{place.address}: 21 messages in 2 sessions can be read; damaged:",
        f"  user ann, session diary: message 'm2': {WRONG}",
    ]
    assert run(["doctor", *store, "--recover", saved]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(["doctor", "--store", saved]) == 0
