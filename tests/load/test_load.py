"""Many workers on one store, some of which are killed, while its server restarts or is replaced."""

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from shared_core import export_sessions
from shared_core.operations.store_check import check_store
from shared_core.queries import After
from shared_core.records import ALL, Record
from shared_core.store import Store
from shared_core.stores import open_store
from tests.load import worker
from tests.load.worker import changes_in, marks_in, text_of
from tests.stores.installed_servers import installed_server, standby_of
from tests.stores.postgres_server import running_server

SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))
KILL_EVERY = 2.0
"""Seconds."""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]


class Crew:
    """The worker processes of one load, forked from one that has imported all they need.

    Args:
        address: of the store.
        folder: for their journals and complaints.
        size: how many there are at a time.
        stack: ends them.
    """

    def __init__(self, address: str, folder: Path, size: int, stack: ExitStack) -> None:
        self._address, self._folder, self._stack = address, folder, stack
        self._lives = [0] * size
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([worker.__name__])
        self.kills = 0
        self._workers = [self._start(number) for number in range(size)]
        while len(list(folder.glob("*.journal"))) < size:
            assert all(one.is_alive() for one in self._workers), self.complaints()
            time.sleep(0.05)

    def _start(self, number: int) -> ForkServerProcess:
        given = (self._address, self._folder, number, self._lives[number])
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


def work(address: str, folder: Path, size: int, events: Sequence[Callable[[], object]]) -> None:
    """Let workers work, kill one every two seconds, and let events happen at equal distances."""
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
        assert crew.kills > SECONDS / KILL_EVERY / 2


def faults(folder: Path, records: dict[str, Record]) -> Iterator[str]:
    """Yield what a store holds otherwise than it told its workers."""
    changes = [change for path in folder.glob("*.journal") for change in changes_in(path)]
    forgetting = {id_ for verb, ids, _ in changes if verb == "forget" for id_ in ids}
    for verb, ids, done in changes:
        there = [id_ for id_ in ids if id_ in records]
        kept = [id_ for id_ in ids if id_ not in forgetting]
        if verb == "forget" and there and (done or there != ids):
            yield f"{there} of {ids} are stored, although they were forgotten"
        elif verb == "add" and done and not set(kept) <= set(there):
            yield f"{ids} were stored, and of these only {there} are there"
        elif (
            verb == "add"
            and kept == ids
            and (
                len(there) not in (0, len(ids)) or any(records[b].seq != records[a].seq + 1 for a, b in pairwise(there))
            )
        ):
            yield f"{ids} are stored by half, or others came between"


def records_in(store: Store) -> dict[str, Record]:
    """Return what a store holds, by id; nothing is there twice, and every message says what was sent."""
    held = [record for one in store.sessions() for record in store.find(one.key, After(0, ALL))]
    assert all(record.message.content == text_of(str(record.message.id)) for record in held)
    assert set(Counter(record.message.id for record in held).values()) == {1}
    return {str(record.message.id): record for record in held}


def judged(address: str, folder: Path, size: int, events: Sequence[Callable[[], object]] = ()) -> set[str]:
    """Run a load, and check what came of it; return the ids that were forgotten for sure."""
    work(address, folder, size, events)
    journals = [change for path in folder.glob("*.journal") for change in changes_in(path)]
    forgotten = {id_ for verb, ids, done in journals if verb == "forget" and done for id_ in ids}
    assert forgotten
    with closing(open_store(address)) as store:
        wrong = list(faults(folder, records_in(store)))
        assert not wrong, f"{len(wrong)} faults:\n" + "\n".join(wrong[:20])
        export_sessions(store, folder / "all.jsonl")
        assert not forgotten & set(marks_in((folder / "all.jsonl").read_text(encoding="utf-8")))
        assert not check_store(store).damages
    return forgotten


@pytest.mark.server
def test_a_server_that_restarts_twice(tmp_path: Path) -> None:
    """Calls give up before it is back."""
    with running_server() as server:

        def restart() -> None:
            server.control("restart", "-m", "immediate")

        judged(f"{server.address()}&retry_seconds=0.2", tmp_path, 8, [restart, restart])


@pytest.mark.server
def test_a_standby_that_is_promoted(tmp_path: Path) -> None:
    with installed_server() as primary, standby_of(primary) as standby:

        def promote() -> None:
            primary.control("stop", "-m", "immediate")
            standby.control("promote")

        address = f"postgresql://postgres@/postgres?host={primary.folder},{standby.folder}"
        judged(f"{address}&target_session_attrs=read-write", tmp_path, 8, [promote])


def test_one_file(tmp_path: Path) -> None:
    """Of the forgotten words, no byte is left."""
    path = tmp_path / "chat.db"
    forgotten = judged(str(path), tmp_path, 4)
    with closing(open_store(path)) as store:
        assert store.scrub() is None
    assert not forgotten & set(marks_in(path.read_bytes().decode("latin-1")))
