"""The doctor on both databases: each damage is found where it is, and what was made from messages is mended."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from shared_core import InfiniteMemory, Message, PostgresStore, SQLiteStore
from shared_core.doors.cli.app import run
from shared_core.index.arrays import pack
from shared_core.operations.store_check import StoreCheck, check_store
from shared_core.records import MAIN, Restored, Snapshot, Stretch, Summary
from shared_core.store import Store
from shared_core.stores.damages import DERIVED, Damage
from shared_core.stores.postgres.schema import MIGRATIONS
from shared_core.testing import HashingEmbedder
from shared_core.testing.store_contract.change_contract import Follower
from tests.stores.postgres_server import Server
from tests.support.histories import NOON, history
from tests.support.random_talk import RandomTalk

SCHEMA = "doctor"


class Place(NamedTuple):
    """A store that is not open, and the server it is on."""

    address: str
    server: Server | None

    @property
    def kind(self) -> str:
        return "sqlite" if self.server is None else "postgres"

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with closing(self._open()) as store:
            yield store

    def _open(self) -> Store:
        return SQLiteStore(self.address) if self.server is None else PostgresStore(self.address, schema=SCHEMA)

    def spoil(self, *statements: str) -> None:
        """Change rows past our code; each statement changes one at least."""
        for statement in statements:
            if self.server is not None:
                changed = self.server.run(statement.replace("{s}", SCHEMA) + " RETURNING 1")
                assert changed
                continue
            with closing(sqlite3.connect(self.address)) as connection, connection:
                connection.execute("PRAGMA foreign_keys = OFF")
                connection.execute("PRAGMA writable_schema = ON")
                assert connection.execute(statement.replace("{s}.", "")).rowcount

    def check(self, *, repair: bool = False) -> StoreCheck:
        if self.server is None:
            return check_store(self.address, repair=repair)
        with self.opened() as store:
            return check_store(store, repair=repair)


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
                memory.add(Message.user("a question", id="side"))
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
                store.keep(key, Snapshot(f"kept {number}", pack({}, {})))
                store.restore(key, Restored(covers=((record.position, Stretch(0, 0, 1)),)))


OF_ANN = "session = (SELECT min(session) FROM {s}.sessions)"
"""Ann's session is the older one."""


def changed(table: str, change: str, where: str = "true") -> str:
    return f"UPDATE {{s}}.{table} SET {change} WHERE {where} AND {OF_ANN}"


VECTOR = "segment = 0 AND depth = {}"
LOST = f"DELETE FROM {{s}}.messages WHERE id = 'm6' AND {OF_ANN}"

# What the doctor says, and the damage; first what can be mended.
DERIVED_DAMAGES = [
    ("what a message sums up 9: there is no such message", changed("covers", "segment = 9", "depth = 1")),
    ("a vector 9: it belongs to no message", changed("vectors", "segment = 9", VECTOR.format(1))),
    ("a vector 0, 2: its checksum is wrong", changed("vectors", "hash = 'other'", VECTOR.format(2))),
    ("a vector 0: it belongs to no space", changed("vectors", "space = 999", VECTOR.format(3))),
    ("a summary m2: its checksum is wrong", changed("summaries", "messages = 4", "last_id = 'm2'")),
    ("a summary m5: what it sums up is gone", changed("summaries", "last_id = 'm5'", "last_id = 'm1'")),
    ("a search index kept 1: a part of it is missing", changed("snapshots", "part = 1", "name = 'kept 1'")),
    ("a search index kept 2: its checksum is wrong", changed("snapshots", "data = {other}", "name = 'kept 2'")),
]
DERIVED_OF = {
    "sqlite": [
        ("a segment 0: it ends where nothing has ever been", changed("segments", "least_tip = 50", "segment = 0")),
        ("the number of the newest message 50: no message has ever had it", changed("sessions", "least_seq = 50")),
    ],
    "postgres": [
        ("a segment 0: it ends before its last message", changed("segments", "tip = 5", "segment = 0")),
        ("the number of the newest message 2: a message has a larger one", changed("sessions", "last_seq = 2")),
        ("the number of the next segment 1: a segment has it already", changed("sessions", "next_segment = 1")),
    ],
}
DAMAGES = [
    ("a branch side: it ends outside of the tree", changed("branches", "depth = 99", "name = 'side'")),
    ("a branch main: its checksum is wrong", changed("branches", "checksum = 1", "name = 'main'")),
    ("a segment 1: it grows out of what is not there", changed("segments", "parent_segment = 7", "segment = 1")),
    ("message m2: its checksum is wrong", changed("messages", "role = 'system'", "id = 'm2'")),
    ("a turn m6: its messages have different numbers for it", changed("messages", "turn_no = 7", "id = 'm7'")),
    ("message m4: it stands outside of its segment", changed("messages", "depth = -9", "id = 'm4'")),
    ("a tag, stash or move here: it points outside of the tree", changed("refs", "depth = 99", "name = 'here'")),
    (
        "message m5: it was forgotten, and is stored all the same; forget it again",
        changed("messages", "id = 'm5'", "id = 'm8'"),
    ),
]
LOSSES = {
    "sqlite": "messages None: 1 more are missing, and nothing else is known of them",
    "postgres": "messages 1: so many are missing, and nothing else is known of them",
}


def said(damage: Damage) -> str:
    """What was found, as the command says it, without the session."""
    return f"{damage.what} {damage.id}: {damage.why}"


def find(place: Place, words: str, statement: str) -> Damage:
    """Do a damage, and return what the doctor says of it; nothing else is the other session's."""
    place.spoil(statement.replace("{other}", "x'aa'" if place.server is None else "'other'::bytea"))
    found = place.check().damages
    named = [one for one in found if said(one) == words]
    assert named, (words, *map(said, found))
    assert all((one.user, one.session) in [("ann", "diary"), (None, None)] for one in found)
    return named[0]


def test_what_was_made_from_messages_is_found_where_it_is_and_mended(place: Place) -> None:
    fill(place)
    whole = place.check()
    assert (whole.damages, whole.messages, whole.sessions) == ((), 22, 2)
    for words, statement in [*DERIVED_DAMAGES, *DERIVED_OF[place.kind]]:
        damage = find(place, words, statement)
        assert damage.derived
        assert (damage.user, damage.session) == ("ann", "diary")
        mended = place.check(repair=True)
        assert damage in mended.mended
        assert mended.left == []
        assert place.check().damages == (), words


def test_other_damage_is_found_where_it_is_and_left_alone(place: Place) -> None:
    fill(place)
    for words, statement in [*DAMAGES, (LOSSES[place.kind], LOST)]:  # none hides what comes after it
        damage = find(place, words, statement)
        assert not damage.derived
        assert (damage.user, damage.session) == ("ann", "diary")
        assert damage in place.check(repair=True).left


FILE_OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL ORDER BY 1, 2"
SERVER_OBJECTS = (
    f"SELECT 'index', indexname::text, indexdef FROM pg_indexes WHERE schemaname = '{SCHEMA}' ORDER BY 1, 2"
)


def schema_of(place: Place) -> list[tuple[str, str, str]]:
    """Return the kinds, names and definitions of indexes, views and triggers."""
    if place.server is not None:
        return place.server.run(SERVER_OBJECTS)
    with closing(sqlite3.connect(place.address)) as connection:
        return connection.execute(FILE_OBJECTS).fetchall()


def drop(place: Place) -> set[tuple[str, str]]:
    """Drop whatever can be made again; return the kind and name of each."""
    if place.server is None:
        lost = {(kind, name) for kind, name, _ in schema_of(place)}
        with closing(sqlite3.connect(place.address)) as connection:
            for kind, name in lost:
                connection.execute(f"DROP {kind} {name}")
        return lost
    own = re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+) ", "\n".join(MIGRATIONS[0].statements))
    for name in own:
        place.server.run(f"DROP INDEX {SCHEMA}.{name}")
    return {("index", name) for name in own}


def test_indexes_views_and_triggers_that_are_missing_are_made_again(place: Place) -> None:
    """As they were, also in partitions; and what changed while a trigger was missing is told."""
    if place.server is not None:
        PostgresStore(place.address, schema=SCHEMA, partitions=2).close()
    fill(place)
    before, whole = schema_of(place), place.check()
    with place.opened() as store:
        reading = Follower(store, "ann")
        reading.ask()
        lost = drop(place)
        if place.server is None:
            place.spoil(changed("sessions", "changes = 9"))
    found = place.check()
    assert {(one.what, str(one.id)) for one in found.damages} == lost
    assert {(one.why, one.derived) for one in found.damages} == {("it is missing", True)}
    mended = place.check(repair=True)
    assert set(mended.mended) == set(found.damages)
    assert mended.left == []
    assert place.check() == whole
    assert schema_of(place) == before
    with place.opened() as reading.store:
        reading.check()


@pytest.mark.parametrize(
    ("index", "change", "equal"),
    [("messages_id", "id = 'm2'", "the id 'm2'"), ("messages_seq", "seq = 3", "the seq '3'")],
)
def test_what_equal_rows_forbid_to_make_again_holds_nothing_else_up(
    place: Place, index: str, change: str, equal: str
) -> None:
    fill(place)
    if place.server is None:
        with closing(sqlite3.connect(place.address)) as connection:
            for kind, name in (("INDEX", index), ("INDEX", "messages_turn"), ("TRIGGER", "sessions_news")):
                connection.execute(f"DROP {kind} {name}")
    else:
        place.server.run(f"DROP INDEX {SCHEMA}.{index}, {SCHEMA}.messages_turn")
    place.spoil(changed("messages", change, "id = 'm4'"))
    why = f"it is missing, and cannot be made again: several rows of messages have {equal}"
    trigger = {"sessions_news"} if place.server is None else set()
    for mended in ({"messages_turn"} | trigger, set()):
        found = place.check(repair=True)
        assert Damage("index", why, "diary", "ann", index) in found.left
        assert {one.id for one in found.mended} == mended


def test_rows_of_no_session_are_found(place: Place) -> None:
    fill(place)
    if place.server is None:
        place.spoil(f"DELETE FROM sessions WHERE {OF_ANN}".replace("{s}.", ""))
    else:
        place.spoil(f"DELETE FROM {{s}}.names WHERE {OF_ANN}")
    found = place.check(repair=True)
    assert {"rows of messages", "rows of vectors", "rows of snapshots"} <= {one.what for one in found.damages}
    assert {one.what for one in found.mended} == {f"rows of {name}" for name in DERIVED}
    assert {one.what for one in place.check().damages} == {one.what for one in found.left}


@pytest.mark.parametrize("seed", range(1))
def test_whatever_happened_nothing_is_damaged(place: Place, seed: int) -> None:
    with place.opened() as store:
        RandomTalk(store, Random(seed)).steps(30)
    assert place.check().damages == ()


# The command, and what cannot be checked


def test_the_command_explains_and_mends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(str(tmp_path / "a.db"), None)
    fill(place)
    place.spoil(f"UPDATE {{s}}.vectors SET hash = 'other' WHERE segment = 0 AND depth = 2 AND {OF_ANN}")
    store = ["--store", place.address]
    assert run(["doctor", *store]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{place.address}: 22 messages in 2 sessions can be read; damaged:",
        "  user ann, session diary: a vector 0, 2: its checksum is wrong (can be mended)",
        "--repair mends what is marked so",
    ]
    assert run(["doctor", *store, "--repair", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mended"][0]["what"] == "a vector"
    assert run(["doctor", *store, "--repair"]) == 0
    assert capsys.readouterr().out == f"{place.address}: 22 messages in 2 sessions and no damage\n"
