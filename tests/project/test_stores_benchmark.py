"""`benchmarks/stores.py` stores what the engine would, finds wrong plans, and prints what it has found."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, PostgresStore
from shared_core.records import After
from shared_core.stores import SQLiteStore
from tests.stores.conftest import server  # noqa: F401
from tests.stores.postgres_server import Server
from tests.support.documents import ROOT

pytestmark = pytest.mark.usefixtures("scripts")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[SQLiteStore, SQLiteStore]]:
    with closing(SQLiteStore(tmp_path / "a.db")) as one, closing(SQLiteStore(tmp_path / "b.db")) as other:
        yield one, other


def held(store: SQLiteStore, user: str, session: str) -> Any:
    key = store.session(user, session)
    assert key is not None
    spaces = store.spaces(key)
    return store.find(key, After(0, 1_000)), spaces, [list(store.vectors(key, space)) for space in spaces]


def test_what_is_loaded_at_once_is_what_a_memory_stores(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    pytest.importorskip("wordllama", reason="wordllama is not installed")
    load = import_module("stores_load")
    sessions = load.Sessions("s", 3, 5, users=2)
    assert [sessions.key(number) for number in range(3)] == [("s-user0", "s0"), ("s-user1", "s1"), ("s-user0", "s2")]
    load.fill([stores[0]], sessions)
    for part in load.parts(sessions, range(3)):
        with InfiniteMemory(stores[1], session_id=part.session, user_id=part.user) as memory:
            memory.add(part.messages)
            memory.index()
    loaded = [held(stores[0], *sessions.key(number)) for number in range(3)]
    assert loaded == [held(stores[1], *sessions.key(number)) for number in range(3)]
    load.fill(stores, load.Sessions("s", 4, 5, users=2))
    assert [held(stores[0], *sessions.key(number)) for number in range(3)] == loaded, "what is there stays as it is"
    assert held(stores[0], "s-user1", "s3") == held(stores[1], "s-user1", "s3")


def test_relay_hands_everything_on_both_ways() -> None:
    relay = import_module("stores_relay")
    (client, entry), (exit_, server_end) = socket.socketpair(), socket.socketpair()
    ways = [(entry, exit_), (exit_, entry)]
    threads = [threading.Thread(target=relay.relay, args=(*way, 0.0)) for way in ways]
    for thread in threads:
        thread.start()
    with client, entry, exit_, server_end:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert server_end.makefile("rb").read() == b"question"
        server_end.sendall(b"answer")
        server_end.shutdown(socket.SHUT_WR)
        assert client.makefile("rb").read() == b"answer"
        for thread in threads:
            thread.join()


def test_statements_are_prepared_with_numbers() -> None:
    numbered = import_module("stores_plans").numbered
    sql = "SELECT %(b)s::text[], a %% 2 FROM t WHERE x = %(a)s AND y = %(b)s AND z = %(c)b"
    assert numbered(sql) == ("SELECT $1::text[], a % 2 FROM t WHERE x = $2 AND y = $1 AND z = $3", ["b", "a", "c"])


def test_faults_of_plans() -> None:
    faults = import_module("stores_plans").faults

    def scan(kind: str, table: str, **more: str) -> dict[str, Any]:
        return {"Node Type": kind, "Relation Name": table} | {name.replace("_", " "): to for name, to in more.items()}

    good = scan("Index Scan", "messages_1", Index_Name="key", Index_Cond="(session = 5)")
    other = scan("Index Scan", "vectors_2", Index_Name="key", Index_Cond="(depth = 5)")
    pages = {"covers_1": 8, "messages_1": 9}
    whole = {"Node Type": "Nested Loop", "Plans": [good, other, scan("Seq Scan", "covers_1")]}
    assert faults({"Node Type": "Result", "Plans": [good]}, pages) == []
    assert faults(whole, pages) == ["partitions ['_1', '_2']", "key without the session"]
    assert faults(scan("Seq Scan", "messages_1"), pages) == ["all of messages_1"]


@pytest.mark.server
def test_plans_of_a_server(server: Server) -> None:  # noqa: F811
    plans = import_module("stores_plans")
    with closing(PostgresStore(server.address(), schema="planned", partitions=2)) as store:
        with plans.recording() as ran:
            key = store.create_session(None, "s")
            store.state(key)
        assert store.state(key).last_seq == 0
        assert plans.wrong_plans(server.address(), ran) == {}
        assert any("last_seq" in sql for sql in ran)
        missing = {"all": plans.Ran("SELECT count(*) FROM planned.segments WHERE tip > %(tip)s", {"tip": 3})}
        assert plans.wrong_plans(server.address(), missing)["all"][0] == "with its values: partitions ['_0', '_1']"


def figures(name: str, clock: float) -> dict[str, float]:
    clocks = import_module("latency_clock")
    return clocks.summary(name, [clocks.Span(clock, clock / 2)])  # type: ignore[no-any-return]


def test_tables_of_figures_that_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = import_module("stores_tables")
    turn: dict[str, float] = {}
    for on, clock, more in ((tables.SQLITE, 10, 0), (tables.DIRECT, 12, 2), (tables.RELAYED, 20, 9)):
        turn |= figures(on, clock)
        turn |= {f"{on}, {name}": more for name in ("server", "trips", "trip", "more", "more by the clock")}
    before = {"a turn, ratio": 1.01, "a turn, now": 5.05, "a turn, before": 5}
    prompts: dict[str, float] = {}
    for of in ("many", "large"):
        for on, clock in ((tables.SQLITE, 2), (tables.DIRECT, 5)):
            for kind in ("warm", "cold", "process"):
                prompts |= figures(f"{of}, {on}, {kind}", clock)
    file = tmp_path / "kept.json"
    kept = {"turn": turn, "before": before, "prompts": prompts, "plans": {"statements": 40, "wrong": 0}}
    file.write_text(json.dumps({"machine": "a machine", "figures": kept}))
    import_module("stores").main(["--from", str(file), "--json", str(tmp_path / "again.json")])
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(file.read_text())
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "a machine "
    assert "| a turn, more than on SQLite | 8 round trips of 1 ms | 9 round trips of 1 ms | no |" in printed
    assert "| SQLite now and before, a turn | 1.05 x | 1.01 x | yes |" in printed
    assert "| PostgreSQL | 12 / 12 | 6 / 6 | 2 | 2 | 2 | 2 | 2 |" in printed
    assert "| large, cold | 2 / 2 (1.00 x) | 5 / 5 (2.50 x) |" in printed
    assert "| large, cold, of processor | 1 / 1 | 2.5 / 2.5 |" in printed


def test_distance_of_a_turn() -> None:
    turns = import_module("stores_turns")
    span = import_module("latency_clock").Span(clock=90, processor=10)
    assert turns.Turn(span, server=2, trips=4).distant(1.5) == 18
    assert turns.more([5, 7, 9], [1, 5, 6]) == 3
