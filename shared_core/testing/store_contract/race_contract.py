"""The store contract on sharing: threads, several objects on one database at the same time, forks, and the end."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from threading import Barrier, Event

import pytest

from shared_core.errors import StoreError
from shared_core.queries import After, State
from shared_core.records import MAIN, Position, Record, Snapshot, Summary, VectorRows
from shared_core.store import Store
from shared_core.testing.oracle import ALL, NOON, Session, draft, drafts
from shared_core.testing.store_contract.change_contract import Follower
from shared_core.testing.store_contract.message_contract import RICH

__all__ = ["RaceContract"]

WRITERS = 4
TURNS = 6


class RaceContract:
    """What holds when threads, or two objects on one database, write at once, as the workers of a service do."""

    @pytest.fixture
    def reopen(self) -> Callable[[], Store]:
        """Skip the tests that need a second object; override this fixture if the store outlives its object."""
        pytest.skip("this store cannot be opened twice")

    def test_threads_share_a_store(self, store: Store) -> None:
        """Appends from several threads get one gapless order, and none is lost."""
        key = Session(store).key
        _at_once([partial(_write, store, key, name) for name in range(WRITERS)])
        _check_order(store.find(key, After(0, ALL)))

    def test_everything_is_there_after_reopening(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Another object on the same database sees all of it, may change it, and says that it is the same."""
        session = Session(store)
        session.append(MAIN, [*drafts("s1", "u1"), draft("a1", "assistant", **RICH)])
        session.append("side", drafts("u2"), at=Position(0, 1))
        session.forget([Position(0, 1)])
        store.keep(session.key, VectorRows("space", [(Position(0, 0), "h", b"v")]))
        store.keep(session.key, Snapshot("a", b"data"), 1)
        with closing(reopen()) as other:
            assert other.identity() == store.identity()
            again = Session(other)
            again.tree = session.tree
            again.append(MAIN, drafts("u1", "a3"))
            again.check()
            assert list(other.vectors(again.key, "space")) == [(Position(0, 0), "h", b"v")]
            assert other.snapshot(again.key, "a") == b"data"
        session.check()

    def test_a_closed_store_says_so(self, store: Store) -> None:
        """Closing it twice is fine; using it afterwards raises StoreError."""
        key = Session(store).key
        store.close()
        store.close()
        for use in (lambda: store.state(key), lambda: store.append(key, MAIN, drafts("u1"))):
            with pytest.raises(StoreError, match="closed"):
                use()

    def test_any_appends_of_two_objects_are_one_order(self, store: Store, reopen: Callable[[], Store]) -> None:
        """No number is left out or used twice, each turn stays together, and who tails by number skips nothing."""
        key = Session(store).key
        seen: list[Record] = []

        def tail() -> list[Record]:
            records: list[Record]
            _, records = reader.read(key, State(MAIN), After(seen[-1].seq if seen else 0, 3))
            seen.extend(records)
            return records

        with closing(reopen()) as other, closing(reopen()) as reader:
            with _meanwhile(tail):
                _at_once([partial(_write, (store, other)[name % 2], key, name) for name in range(WRITERS)])
            while tail():
                pass
        assert seen == store.find(key, After(0, ALL))
        _check_order(seen)

    def test_any_changes_of_two_objects_are_told_to_whoever_asks(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """One that asks only for what has changed ends with what there is, in whatever order others were committed."""
        keys = [Session(store, f"{name}", "ann").key for name in range(WRITERS)]
        with closing(reopen()) as other, closing(reopen()) as reader:
            follower = Follower(reader, "ann")
            with _meanwhile(follower.ask):
                _at_once([partial(_write, (store, other)[name % 2], key, name) for name, key in enumerate(keys)])
            follower.check()
        assert {state.last_seq for state in follower.states.values()} == {2 * TURNS}

    def test_any_two_objects_create_one_session(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Both get the same key, and its branch `main` is there once."""
        with closing(reopen()) as other:
            for name in ("a", "b", "c"):
                keys: list[int] = []
                _at_once([partial(_create, one, name, keys) for one in (store, other, store, other)])
                assert keys == [store.session("u", name)] * 4
                assert [branch.name for branch in store.branches(keys[0])] == [MAIN]

    def test_any_what_is_derived_goes_with_what_it_is_made_from(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """What one object keeps while another forgets is of the newest epoch, or is not there."""
        session = Session(store)
        key, end = session.key, Position(0, 9)
        session.append(MAIN, drafts(*(f"u{number}" for number in range(10))))
        with closing(reopen()) as other:
            for forgotten in range(4):
                with _meanwhile(partial(_keep, other, key, end)):
                    session.forget([Position(0, forgotten)])
                epoch = store.state(key).epoch
                assert store.snapshot(key, "a") in (None, f"{epoch}".encode())
                assert {summary.text for summary in store.summaries(key, end, ALL)} <= {f"{epoch}"}
                assert [row[0].depth for row in store.vectors(key, "space")] == list(range(forgotten + 1, 10))
        session.check()

    def test_a_store_goes_on_after_a_fork(self, store: Store, reopen: Callable[[], Store]) -> None:
        """The process that was forked off uses the object it got, and so does the one that it came from."""
        if not hasattr(os, "fork"):
            pytest.skip("this system has no fork")
        session = Session(store)
        session.append(MAIN, drafts("u1"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are not copied; none holds a lock
            child = os.fork()
        if not child:
            _leave(partial(store.append, session.key, MAIN, drafts("u2", "a2")))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the process that was forked off could not use the store"
        session.tree.append(MAIN, drafts("u2", "a2"), 0)
        session.append(MAIN, drafts("u3"))
        session.check()
        with closing(reopen()) as reopened:
            assert reopened.find(session.key, After(0, ALL)) == session.tree.records


def _check_order(records: Sequence[Record]) -> None:
    """Check that what `_write` has stored is in one order, without a gap, each answer in the turn of its question."""
    assert [record.seq for record in records] == list(range(1, 2 * WRITERS * TURNS + 1))
    assert [record.position for record in records] == [Position(0, record.seq - 1) for record in records]
    assert all(record.message.turn_id == f"u{str(record.message.id)[1:]}" for record in records)


def _leave(act: Callable[[], object]) -> None:
    """Do something in a process that was forked off, and end it without the tests' own end."""
    try:
        act()
    except BaseException:
        os._exit(1)
    os._exit(0)


def _at_once(acts: Sequence[Callable[[], None]]) -> None:
    """Do several things, each in a thread that waits until all are ready; raise what one of them raises."""
    ready = Barrier(len(acts))

    def run(act: Callable[[], None]) -> None:
        ready.wait()
        act()

    with ThreadPoolExecutor(len(acts)) as threads:
        list(threads.map(run, acts))


def _write(store: Store, key: int, name: int) -> None:
    for number in range(TURNS):
        store.append(key, MAIN, drafts(f"u{name}-{number}", f"a{name}-{number}"))


def _create(store: Store, name: str, keys: list[int]) -> None:
    keys.append(store.create_session("u", name))


def _keep(store: Store, key: int, end: Position) -> None:
    """Keep vectors, a summary and a snapshot of this epoch."""
    epoch = store.state(key).epoch
    there = [record.position for record in store.newest(key, end, ALL)]
    store.keep(key, VectorRows("space", [(position, f"{epoch}", b"v") for position in there]), epoch)
    store.keep(key, Summary(f"{epoch}", end, end, "u9", 9, NOON), epoch)
    store.keep(key, Snapshot("a", f"{epoch}".encode()), epoch)


@contextmanager
def _meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in a thread while the block runs, once before it begins; raise what it raises."""
    begun, ended = Event(), Event()

    def run() -> None:
        try:
            while not ended.is_set():
                act()
                begun.set()
        finally:
            begun.set()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(run)
        begun.wait()
        try:
            yield
        finally:
            ended.set()
        running.result()
