"""The cache of indexes: shared by all memories on a store, bounded, and right whoever uses it when."""

import gc
import random
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import IndexCache, InfiniteMemory, Message, SessionPool, SQLiteStore, UnknownReferenceError
from shared_core.index.cache import SharedIndex
from shared_core.index.session import SNAPSHOT, SessionIndex
from shared_core.records import SessionState
from shared_core.store import Store
from shared_core.testing import HashingEmbedder
from tests.support.histories import history

SETTINGS: dict[str, Any] = {"embedder": HashingEmbedder()}


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(SQLiteStore(":memory:")) as opened:
        yield opened


def of(store: Store, name: str = "s", **how: Any) -> InfiniteMemory:
    return InfiniteMemory(store, session_id=name, user_id="ann", **SETTINGS | how)


def talk(name: str, count: int = 6) -> list[Message]:
    """Return what is said in a session; each has a word of its own."""
    return [one.replace(id=f"{name} {one.id}", content=f"{one.content} in {name}") for one in history(count)]


def found(memory: InfiniteMemory, query: str, **how: Any) -> list[tuple[str | None, float]]:
    return [(hit.message.id, hit.score) for hit in memory.search(query, 30, **how)]


def anew(memory: InfiniteMemory) -> InfiniteMemory:
    """Return a memory that shares no index with others."""
    memory._prompts.searcher.indexes.cache = IndexCache()
    return memory


def fresh(store: Store, name: str, query: str, **how: Any) -> list[tuple[str | None, float]]:
    with anew(of(store, name, **how)) as memory:
        return found(memory, query)


def bounded(store: Store, max_bytes: int) -> IndexCache:
    cache = IndexCache.of(store)
    cache.max_bytes = max_bytes
    return cache


def indexes(memory: InfiniteMemory) -> list[SharedIndex]:
    return memory._prompts.searcher.indexes.opened()


def test_all_memories_on_a_store_share_the_index_of_a_session(store: Store) -> None:
    with SessionPool(store, **SETTINGS) as pool, of(store) as one, pool.use("s", "ann") as two, of(store) as three:
        one.add(talk("s", 40))
        two.fork("side", at="s m20")
        two.add(Message.user("gardens on the side", id="side"))
        three.checkout("side")
        for memory, last in ((one, "s m39"), (two, "side"), (three, "side")):
            memory.search("gardens")
            assert last in {id for id, _ in found(memory, "gardens item39")}
        assert len(IndexCache.of(store)) == 1
        assert indexes(one) == indexes(two) == indexes(three)
        rows = indexes(one)[0].rows
    with of(store) as memory:  # one that is closed leaves its index for the next
        memory.search("item3")
        assert indexes(memory)[0].rows is rows


def test_a_cache_ends_with_its_store() -> None:
    store = SQLiteStore(":memory:")
    with of(store) as memory:
        memory.add(talk("s"))
        memory.search("item3")
    gone = weakref.ref(IndexCache.of(store))
    store.close()
    del store, memory
    gc.collect()
    assert gone() is None
    with InfiniteMemory() as memory:
        cache = IndexCache.of(memory._store)
        memory.add(talk("s"))
        memory.search("item3")
        assert len(cache) == 1
        assert repr(cache) == f"<IndexCache: 1 indexes, {cache.nbytes:,} of 1,073,741,824 bytes>"
    assert (len(cache), cache.nbytes) == (0, 0)


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["ask", "add", "forget"])), max_size=40))
def test_answers_through_a_small_cache_are_those_of_a_fresh_object(uses: list[tuple[int, str]]) -> None:
    store = SQLiteStore(":memory:")
    cache = bounded(store, 100_000)
    with closing(store), SessionPool(store, size=6, **SETTINGS) as pool:
        for number in range(12):
            with pool.use(str(number), "ann") as memory:
                memory.add(talk(str(number)))
        for count, (number, what) in enumerate(uses):
            with pool.use(str(number), "ann") as memory:
                if what == "add":
                    memory.add(Message.user(f"item3 once more, {count}", id=f"more {count}"))
                elif what == "forget" and (said := memory.newest(1)):
                    memory.forget(ids=[said[0].id or ""])
                assert found(memory, "item3 gardens") == fresh(store, str(number), "item3 gardens")
            assert cache.nbytes <= cache.max_bytes
            assert cache.nbytes == sum(one.nbytes for one in cache._kept.values())


def test_those_used_least_recently_go_and_none_in_use(store: Store) -> None:
    cache = bounded(store, 150_000)
    with SessionPool(store, **SETTINGS) as pool, ExitStack() as held:
        kept = [held.enter_context(pool.use(f"kept {number}", "ann")) for number in range(3)]
        for memory in kept:
            memory.add(talk(memory.session_id))
            memory.search("item3")
        rows = [indexes(memory)[0].rows for memory in kept]
        for number in range(40):
            with pool.use(str(number), "ann") as memory:
                memory.add(talk(str(number)))
                memory.search("item3")
        assert len(cache) < 20
        assert list(cache._kept)[-1] == memory._checkout.live.key
        for memory in kept:
            memory.search("item3")
        assert [indexes(memory)[0].rows for memory in kept] == rows
    for one in kept:
        assert one._prompts.searcher.indexes.opened() == []


def test_a_pool_saves_a_snapshot_in_the_background(tmp_path: Path) -> None:
    with SessionPool(tmp_path / "chat.db", **SETTINGS) as pool:
        with pool.use("s", "ann") as memory:
            memory.add(talk("s", 255))
            memory.search("item3")
            key = memory._checkout.live.key or 0
        settle(IndexCache.of(pool.store))
        assert pool.store.snapshot(key, SNAPSHOT) is None
        with pool.use("s", "ann") as memory:
            memory.add(Message.user("and one more", id="last"))
            memory.search("item3")
            memory.add(Message.user("which is stored with what was searched", id="then"))
        settle(IndexCache.of(pool.store))
        assert pool.store.snapshot(key, SNAPSHOT) is not None
        again = SessionIndex(pool.store, key)
        again.refresh(SessionState(None, 0, 0))
        assert len(again) == 257


def settle(cache: IndexCache) -> None:
    for future, _ in list(cache._saving.values()):
        future.result()


def test_two_threads_that_begin_an_index_at_two_epochs_leave_each_other_its_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come upon an empty one; the second has its snapshot to read while the first one begins, and searches."""
    with of(store) as memory:
        memory.add(talk("s", 6))
        key = memory._checkout.live.key or 0
        older = store.state(key)
        memory.forget(ids=["s m3"])
        newer = store.state(key)
    shared, snapshot = SharedIndex(SessionIndex(store, key)), store.snapshot
    first = list[SessionIndex]()

    def reading(session: int, name: str) -> bytes | None:
        monkeypatch.undo()
        first.append(shared.refreshed(lambda rows: rows.refresh(older)))
        return snapshot(session, name)

    monkeypatch.setattr(store, "snapshot", reading)
    second = shared.refreshed(lambda rows: rows.refresh(newer))
    assert (len(second), second.epoch) == (5, newer.epoch)
    assert shared.rows is second is first[0], "what the first one searches is not emptied under its hands"


def test_an_object_that_lags_behind_does_not_bring_back_what_is_forgotten(store: Store) -> None:
    with of(store) as memory, of(store) as other:
        memory.add(talk("s", 30))
        key = memory._checkout.live.key or 0
        before = store.state(key)
        assert "s m3" in dict(found(other, "item3"))
        memory.forget(ids=["s m3"])
        assert "s m3" not in dict(found(memory, "item3"))
        index = indexes(memory)[0]
        assert index.refreshed(lambda rows: rows.refresh(before)) is index.rows
        assert index.rows.lexical.occurs("item3", index.rows.line(memory._checkout.live.path)) is False


def test_threads_share_indexes_while_messages_come_and_go(tmp_path: Path) -> None:
    """Threads ask, add, fork and forget on shared indexes: nothing forgotten is found, and in the end all is right."""
    store = SQLiteStore(tmp_path / "chat.db", durability="process")
    gone: list[str] = []
    failures: list[BaseException] = []
    with closing(store), SessionPool(store, **SETTINGS) as pool:
        bounded(store, 300_000)
        for name in "ab":
            with pool.use(name, "ann") as memory:
                memory.add(talk(name, 30))

        def work(seed: int) -> None:
            rng = random.Random(seed)
            try:
                for turn in range(12):
                    with pool.use(rng.choice("ab"), "ann") as memory:
                        use(memory, rng, f"{seed}x{turn}", gone)
            except BaseException as error:  # raised in the thread of the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert gone
        for name in "ab":
            check_all_branches(pool, name, gone)


def check_all_branches(pool: SessionPool, name: str, gone: Sequence[str]) -> None:
    """Compare what is found on each branch with what an object finds that begins anew."""
    for branch in opened_branches(pool.store, name):
        with pool.use(name, "ann") as memory, anew(of(pool.store, name)) as other:
            memory.checkout(branch)
            other.checkout(branch)
            for scope in ("session", "user"):
                now, expected = (found(one, "item3 zebra", scope=scope) for one in (memory, other))
                assert not {id for id, _ in now} & set(gone)
                assert {id: round(score, 4) for id, score in now} == {id: round(score, 4) for id, score in expected}


def opened_branches(store: Store, name: str) -> list[str]:
    return [one.name for one in store.branches(store.session("ann", name) or 0)]


def use(memory: InfiniteMemory, rng: random.Random, tag: str, gone: list[str]) -> None:
    what = rng.choice(["add", "add", "ask", "fork", "forget", "user"])
    before = list(gone)
    if what == "add":
        memory.add(Message.user(f"zebra {tag} item3", id=f"z{tag}"))
    elif what == "fork":
        memory.checkout("main")
        memory.fork(f"side {tag}")
        memory.add(Message.user(f"zebra on a side {tag}", id=f"f{tag}"))
    elif what == "forget":
        memory.checkout("main")
        ids = [one.id for one in memory.newest(5) if (one.id or "").startswith("z")]
        if ids:
            with suppress(UnknownReferenceError):  # another thread has forgotten it
                gone += memory.forget(ids=[ids[0] or ""]).ids
            before = list(gone)
    hits = memory.search("zebra item3", 30, scope="user" if what == "user" else "session")
    assert not {hit.message.id for hit in hits} & set(before)
    memory.context("What about the zebra?")
