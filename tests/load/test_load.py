"""Many workers on one store, some of which are killed, while its server restarts or is replaced."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack, closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, export_sessions
from shared_core.operations.store_check import check_store
from shared_core.records import After
from shared_core.store import ALL, Store
from shared_core.stores import open_store
from tests.load import worker
from tests.load.figures import table
from tests.load.journal import Call, calls_of
from tests.load.oracle import Found, faults
from tests.load.worker import marks_in, text_of
from tests.stores.installed_servers import installed_server, standby_of
from tests.stores.postgres_server import running_server

SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))
SESSIONS = 200
KILL_EVERY = 2.0
"""Seconds."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

Record = Callable[[str, object], None]
"""Pytest's `record_property`."""


class Crew:
    """The worker processes of one load, forked from one that has imported all they need.

    Args:
        address: of the store.
        folder: for their journals and complaints.
        size: how many there are at a time.
        stack: ends them.
    """

    def __init__(self, address: str, folder: Path, size: int, stack: ExitStack) -> None:
        self._address = address
        self._folder = folder
        self._stack = stack
        self._lives = [0] * size
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([worker.__name__])
        self.kills = 0
        self._workers = [self._start(number) for number in range(size)]
        while len(list(folder.glob("*.journal"))) < size * worker.THREADS:
            assert all(one.is_alive() for one in self._workers), self.complaints()
            time.sleep(0.05)

    def _start(self, number: int) -> ForkServerProcess:
        given = (self._address, self._folder, number, len(self._lives), self._lives[number], SESSIONS)
        started = self._context.Process(target=worker.work, args=given)
        started.start()
        self._stack.callback(started.join)
        self._stack.callback(started.kill)
        return started

    def kill(self, number: int) -> None:
        """Kill a worker wherever it is, and start its successor."""
        victim = self._workers[number]
        victim.kill()
        victim.join()
        assert victim.exitcode == -signal.SIGKILL, f"it had ended by itself: {self.complaints()}"
        self.kills += 1
        self._lives[number] += 1
        self._workers[number] = self._start(number)

    def finish(self) -> None:
        """Tell all to end, and wait; none has anything to complain of."""
        (self._folder / "stop").touch()
        for one in self._workers:
            one.join()
        assert ({one.exitcode for one in self._workers}, self.complaints()) == ({0}, "")

    def complaints(self) -> str:
        """Return the end of what the workers complained of."""
        return (self._folder / "complaints").read_text(encoding="utf-8")[-4000:]


def work(address: str, folder: Path, size: int, events: Sequence[Callable[[], object]] = ()) -> tuple[list[Call], int]:
    """Let workers work, kill one every two seconds, and let events happen at equal distances; return all calls."""
    chance = random.Random(size)
    with ExitStack() as stack:
        crew = Crew(address, folder, size, stack)
        began = time.monotonic()
        due = [(began + SECONDS * (n + 1) / (len(events) + 1), event) for n, event in enumerate(events)]
        while time.monotonic() + KILL_EVERY < began + SECONDS:
            time.sleep(KILL_EVERY)
            crew.kill(chance.randrange(size))
            while due and due[0][0] < time.monotonic():
                due.pop(0)[1]()
        crew.finish()
        return calls_of(folder), crew.kills


def found_in(store: Store) -> dict[str, Found]:
    """Return what a store holds, by session; every message says what was sent under its id."""
    found = {}
    for info in store.sessions():
        with InfiniteMemory(store, session_id=info.session_id, user_id=info.user_id) as memory:
            lines = {}
            for branch in memory.branches():
                memory.checkout(branch.name)
                lines[branch.name] = [message.id or "" for message in memory.messages()]
        records = store.find(info.key, After(0, ALL))
        assert all(record.message.content == text_of(record.message.id or "") for record in records)
        found[info.session_id] = Found([record.message.id or "" for record in records], lines)
    return found


def check(address: str, folder: Path, calls: Sequence[Call], forgotten: Set[str]) -> None:
    """Judge the store and all calls, and look for damages and for forgotten words in an export."""
    with closing(open_store(address)) as store:
        wrong = faults(calls, found_in(store))
        assert not wrong, f"{len(wrong)} faults:\n" + "\n".join(wrong[:20])
        export_sessions(store, folder / "all.jsonl")
        exported = set(marks_in((folder / "all.jsonl").read_text(encoding="utf-8")))
        assert exported & forgotten == set()
        damages = check_store(store).damages
        assert not damages


def judged(
    title: str, address: str, folder: Path, size: int, record: Record, events: Sequence[Callable[[], object]] = ()
) -> set[str]:
    """Run a load, record its figures, and check what came of it; return the ids that were forgotten for sure."""
    calls, kills = work(address, folder, size, events)
    record("load", table(calls, f"{title}: {size} workers, {kills} killed"))
    assert kills > SECONDS / KILL_EVERY / 2
    forgotten = {id_ for call in calls if call.verb == "forget" and call.outcome == "done" for id_ in call.ids}
    assert forgotten
    check(address, folder, calls, forgotten)
    return forgotten


@pytest.mark.server
def test_a_server_that_restarts_twice(tmp_path: Path, record_property: Record) -> None:
    """Calls give up before it is back."""
    with running_server() as server:

        def restart() -> None:
            server.control("restart", "-m", "immediate")

        title = "PostgreSQL, restarted twice at once"
        judged(title, f"{server.address()}&retry_seconds=0.2", tmp_path, 8, record_property, [restart, restart])


@pytest.mark.server
def test_a_standby_that_is_promoted(tmp_path: Path, record_property: Record) -> None:
    with installed_server() as primary, standby_of(primary) as standby:

        def promote() -> None:
            primary.control("stop", "-m", "immediate")
            standby.control("promote")

        address = f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}"
        title = "PostgreSQL, a synchronous standby promoted"
        judged(title, f"{address}&target_session_attrs=read-write", tmp_path, 8, record_property, [promote])


def test_one_file(tmp_path: Path, record_property: Record) -> None:
    """Of the forgotten words, no byte is left."""
    path = tmp_path / "chat.db"
    forgotten = judged("One SQLite file", str(path), tmp_path, 4, record_property)
    with closing(open_store(path)) as store:
        assert store.scrub() is None
    assert set(marks_in(path.read_bytes().decode("latin-1"))) & forgotten == set()
