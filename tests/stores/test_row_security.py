"""Row security: with another's session key, another user set or none set, nothing is read and nothing is written."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shared_core.stores.postgres.migrations as steps
from shared_core import PostgresStore, SQLiteStore
from shared_core.errors import InfiniteMemoryError, StoreError
from shared_core.queries import After, Line, Pinned, State
from shared_core.records import (
    MAIN,
    Branch,
    Create,
    Move,
    Position,
    Put,
    Restored,
    Segment,
    Snapshot,
    Stretch,
    Summary,
    VectorRows,
)
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.store import Store
from shared_core.stores.postgres.postgres_schema import MIGRATIONS, TABLES, Migration
from shared_core.testing.oracle import ALL, Session, drafts, of_texts
from tests.stores.postgres_server import Server

pytestmark = pytest.mark.server

FIRST, LAST = Position(0, 0), Position(0, 3)


class Guarded(NamedTuple):
    """A database under row security, and the same one as its owner sees it."""

    server: Server
    database: str
    owner: PostgresStore
    guarded: PostgresStore
    keys: dict[str | None, int]
    before: list[Any]

    def others(self) -> list[Store]:
        """The store as those see it who are not bob: another user, nobody, and one for whom no user was set."""
        return [self.guarded.for_user("ann"), self.guarded.for_user(None), self.guarded]

    def rows(self, user: str | None) -> list[Any]:
        """Everything that the tables hold of a user."""
        mine = "SELECT session FROM infinite_memory.names WHERE user_id = $1"
        tables = [
            f"SELECT '{table}', t::text FROM infinite_memory.{table} AS t WHERE t.session IN ({mine})"
            for table in ("names", *TABLES)
        ]
        sql = f"{' UNION ALL '.join(tables)} ORDER BY 1, 2".replace("$1", f"'{user}'")
        return self.server.run(sql, database=self.database)


def fill(session: Session) -> None:
    """Put something into every table."""
    store, key = session.store, session.key
    session.append(MAIN, drafts("s1", "u1", "a1", "u2", "a2"))
    session.append("side", drafts("u3", "a3"), at=Position(0, 1))
    store.keep(key, VectorRows("space", [(FIRST, "h", b"v")]))
    session.forget([Position(0, 4)])
    sealed = datetime(2024, 1, 1, tzinfo=UTC)
    store.keep(key, Summary("a summary", LAST, LAST, "u2", 3, sealed))
    store.keep(key, Snapshot("index", b"data"))
    store.change(key, [Put("tag", "t", FIRST)])
    store.restore(key, Restored(covers=((LAST, Stretch(0, 0, 1)),)))


@pytest.fixture(scope="module")
def guarded(server: Server) -> Iterator[Guarded]:
    server.run("CREATE DATABASE guarded TEMPLATE template0 ENCODING 'UTF8'")
    server.run('CREATE ROLE "the app\'s" LOGIN')
    with closing(PostgresStore(server.address("guarded"), partitions=3)) as owner:
        owner.grant("the app's")
        # Keys that are no other number of a session, see `without_numbers`.
        server.run("ALTER SEQUENCE infinite_memory.numbers RESTART 1000", database="guarded")
        keys: dict[str | None, int] = {}
        for user in ("ann", "bob", None):
            keys[user] = owner.create_session(user, "s")
            fill(Session(owner, "s", user))
        with closing(PostgresStore(server.address("guarded", user="the%20app's"), row_security=True)) as guarded:
            found = Guarded(server, "guarded", owner, guarded, keys, [])
            yield found._replace(before=found.rows("bob"))
    server.run("DROP DATABASE guarded WITH (FORCE)")
    server.run('DROP ROLE "the app\'s"')


# With the key of a session. In this order, each call finds or changes something where it may.
WITH_KEY: dict[str, Callable[[Store, int], object]] = {
    "state": lambda store, key: store.state(key, MAIN),
    "read": lambda store, key: store.read(key, State(MAIN), After(0, ALL), Pinned(), Line(MAIN, ALL)),
    "stats": lambda store, key: {**store.stats(key), "bytes": 0},
    "main_news": lambda store, key: store.main_news({key: (0, ALL)}, "space"),
    "segment": lambda store, key: store.segment(key, 0),
    "segments": lambda store, key: store.segments(key, -1, ALL),
    "branches": lambda store, key: store.branches(key),
    "refs": lambda store, key: store.refs(key, "tag"),
    "get": lambda store, key: (store.get(key, ["u1"]), store.get(key, [FIRST])),
    "at": lambda store, key: store.at({key: [FIRST]}, {}),
    "stored": lambda store, key: store.stored(key),
    "check_absent": lambda store, key: store.check_absent(key, ["none"]),
    "count": lambda store, key: store.count(key, [Stretch(0, 0, 9)]),
    "newest": lambda store, key: store.newest(key, LAST, ALL),
    "session_keys": lambda store, key: key in store.session_keys(),
    "find": lambda store, key: store.find(key, After(0, ALL)),
    "covers": lambda store, key: store.covers(key, [0]),
    "vectors": lambda store, key: (
        list(store.vectors(key, "space")),
        list(store.vectors(key, "space", [FIRST])),
        of_texts(store, key, "space", ["h"]),
    ),
    "known_vectors": lambda store, key: store.known_vectors(key, "space", {FIRST: "h"}),
    "spaces": lambda store, key: store.spaces(key),
    "snapshot": lambda store, key: store.snapshot(key, "index"),
    "summaries": lambda store, key: store.summaries(key, LAST, ALL),
    "forgotten": lambda store, key: store.forgotten(key, None, ALL),
    "forgotten_since": lambda store, key: store.forgotten_since(key, 0),
    "are_forgotten": lambda store, key: store.are_forgotten(key, ["a2"]),
    "watch": lambda store, key: (store.watch(key)(), store.state(key).epoch),
    "keep": lambda store, key: (
        store.keep(key, VectorRows("space", [(FIRST, "i", b"w")])),
        store.keep(key, Snapshot("index", b"other")),
        store.keep(key, Summary("another", LAST, LAST, "u2", 3, datetime(2024, 1, 2, tzinfo=UTC))),
    ),
    "keep_vectors": lambda store, key: store.keep_vectors("space", {key: [(FIRST, "i", b"w")]}, {key: 1}),
    "change": lambda store, key: store.change(
        key, [Create("new", FIRST), Move("side", FIRST, ""), Put("tag", "x", FIRST)]
    ),
    "append": lambda store, key: store.append(key, MAIN, drafts("u8", "a8")),
    "restore": lambda store, key: store.restore(
        key, Restored(segments=(Segment(7, None, 0),), branches=(Branch("old", FIRST),), forgotten=("u9",))
    ),
    "transaction": lambda store, key: in_transaction(store, key),
    "forget": lambda store, key: (
        store.forget(key, [FIRST], stale=[LAST]), store.forget(key, [], branches=True)
    ),
    "rename_session": lambda store, key: store.rename_session(key, "renamed"),
}  # fmt: skip

# With the name of a user: what is returned where that user is another. An error is a StoreError.
REFUSED = "refused"
WITH_USER: dict[str, tuple[Callable[[Store, str | None], object], object]] = {
    "session": (lambda store, user: store.session(user, "s"), None),
    "create_session": (lambda store, user: store.create_session(user, "s"), REFUSED),
    "sessions": (lambda store, user: store.sessions(user), []),
    "sessions_with": (lambda store, user: store.sessions_with(user, "u1"), []),
    "overview": (lambda store, user: store.overview(user), []),
    "main_changes": (lambda store, user: store.main_changes(user).states, []),
}

# What names neither, and has tests of its own here or elsewhere.
WITHOUT = {"sessions_named", "size", "scrub", "backup", "faults", "close", "for_user", "identity"}


def in_transaction(store: Store, key: int) -> object:
    with store.transaction():
        return store.find(key, After(0, ALL)), store.branches(key), store.keep(key, Snapshot("index", b"third"))


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except InfiniteMemoryError as error:
        return type(error)


def test_every_method_of_a_store_is_among_these() -> None:
    methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert WITH_KEY.keys() | WITH_USER.keys() | WITHOUT == methods


@pytest.mark.parametrize("method", WITH_KEY)
def test_with_the_key_of_another_nothing_is_read_or_written(guarded: Guarded, method: str) -> None:
    """The key of a session of another user is like one that no session has."""
    key, call = guarded.keys["bob"], WITH_KEY[method]
    for store in guarded.others():
        unknown = outcome(partial(call, store, 10**9))
        assert without_numbers(outcome(partial(call, store, key)), key) == without_numbers(unknown, 10**9)
    assert guarded.rows("bob") == guarded.before


@pytest.mark.parametrize("method", WITH_USER)
def test_with_the_name_of_another_nothing_is_read_or_written(guarded: Guarded, method: str) -> None:
    call, expected = WITH_USER[method]
    for store in guarded.others():
        found = outcome(partial(call, store, "bob"))
        assert found == (StoreError if expected is REFUSED else expected)
    assert guarded.rows("bob") == guarded.before


def test_what_names_nobody_finds_ones_own(guarded: Guarded) -> None:
    for user, store in (("ann", guarded.guarded.for_user("ann")), (None, guarded.guarded.for_user(None))):
        for found in (store.sessions(), store.sessions_named("s"), [one for one, _ in store.main_changes(user).states]):
            assert [(one.key, one.user_id) for one in found] == [(guarded.keys[user], user)]
        assert [one.user_id for one in store.overview()] == [user]
    nothing = guarded.guarded
    assert (nothing.sessions(), nothing.sessions_named("s"), nothing.overview(), nothing.main_changes(None).states) == (
        [],
    ) * 4
    with pytest.raises(StoreError, match="row-level security"):
        nothing.create_session("ann", "other")
    assert "owner" in str(nothing.scrub())


def test_with_ones_own_key_everything_is_as_for_the_owner(guarded: Guarded) -> None:
    """What each method returns of a session of one's own is what the owner of the tables is told of an equal one."""
    zoe = guarded.guarded.for_user("zoe")
    stores, names = (zoe, guarded.owner), ("mine", "equal")
    for store, name in zip(stores, names, strict=True):
        fill(Session(store, name, "zoe"))
    keys = [guarded.owner.create_session("zoe", name) for name in names]
    for method, call in WITH_KEY.items():
        asked = [*zip(stores, keys, strict=True), (zoe, 10**9)]
        mine, reference, unknown = (without_numbers(outcome(partial(call, *one)), one[1]) for one in asked)
        assert mine == reference or method == "rename_session"
        assert mine != unknown or method in SILENT, f"{method} finds nothing"


SILENT = {"check_absent", "forget"}
"""Methods that return the same whether there is such a session or not."""


def without_numbers(value: object, key: int) -> str:
    """A result as a text, without what differs between two equal sessions of one database."""
    return re.sub(rf"number=\d+|created_at='[^']*'|\b{key}\b", "", repr(value))


def test_a_transaction_joins_what_is_done_for_several_users(guarded: Guarded) -> None:
    """Each sees its own, also after a part was undone."""
    ann, bob, keys = guarded.guarded.for_user("ann"), guarded.guarded.for_user("bob"), guarded.keys
    before = {user: guarded.rows(user) for user in ("ann", "bob")}
    with suppress(KeyboardInterrupt), guarded.guarded.transaction():
        assert guarded.guarded.sessions() == []
        assert [one.user_id for one in ann.sessions()] == ["ann"]
        ann.keep(keys["ann"], Snapshot("joint", b"a"))
        with pytest.raises(StoreError):
            bob.create_session("ann", "not mine")
        bob.keep(keys["bob"], Snapshot("joint", b"b"))
        assert (ann.snapshot(keys["ann"], "joint"), ann.snapshot(keys["bob"], "joint")) == (b"a", None)
        assert (bob.snapshot(keys["bob"], "joint"), bob.snapshot(keys["ann"], "joint")) == (b"b", None)
        assert guarded.guarded.sessions() == []
        raise KeyboardInterrupt
    assert {user: guarded.rows(user) for user in ("ann", "bob")} == before


def test_a_user_is_exported_and_imported_alone(guarded: Guarded, tmp_path: Path) -> None:
    file = tmp_path / "ann.jsonl"
    export_sessions(guarded.guarded.for_user("ann"), file)
    with closing(SQLiteStore(":memory:")) as copy:
        import_sessions(copy, file)
        assert [one.user_id for one in copy.sessions()] == ["ann"]
    assert [one.known for one in import_sessions(guarded.guarded.for_user("ann"), file)] == [6]
    with pytest.raises(StoreError, match="another user's"):
        import_sessions(guarded.guarded.for_user("fay"), file)


# Who may open what


def test_row_security_is_refused_where_it_does_not_hold(guarded: Guarded) -> None:
    address = guarded.server.address("guarded", user="the%20app's")
    for wrong, what in (
        ({"address": guarded.server.address("guarded"), "row_security": True}, "keeps the role 'postgres'"),
        ({"address": address}, "sees only the rows of one user"),
        ({"address": address, "row_security": True, "schema": "none"}, r"grant\(\)"),
    ):
        with pytest.raises(StoreError, match=what):
            PostgresStore(**wrong)
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'none'"
    assert guarded.server.run(schemas, database="guarded") == [(0,)]
    with pytest.raises(StoreError, match="nowhere"):
        guarded.owner.grant("nowhere")
    with pytest.raises(StoreError, match=r"owner|permission"):
        guarded.guarded.grant("the app's")


def test_rights_come_with_a_new_table(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration of the owner gives the roles what they had, and the store of the role goes on."""
    more = Migration(
        "a table", 1,
        ("CREATE TABLE {s}.hues (session bigint PRIMARY KEY) {by_session}",
         "CREATE POLICY of_the_user ON {s}.hues USING (true)"),
    )  # fmt: skip
    monkeypatch.setattr(steps, "MIGRATIONS", [*MIGRATIONS, more])
    monkeypatch.setattr(steps, "TABLES", (*TABLES, "hues"))
    monkeypatch.setattr("shared_core.stores.postgres.row_security.TABLES", (*TABLES, "hues"))
    with pytest.raises(StoreError, match="owner"):
        PostgresStore(guarded.server.address("guarded", user="the%20app's"), row_security=True)
    PostgresStore(guarded.server.address("guarded")).close()
    with closing(PostgresStore(guarded.server.address("guarded", user="the%20app's"), row_security=True)) as store:
        with store.database.reading("uann") as rows:
            assert rows.run("SELECT * FROM {s}.hues", None) == []
        assert [one.user_id for one in store.for_user("ann").sessions()] == ["ann"]
