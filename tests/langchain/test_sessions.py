"""Memories that are lent: what waits for what."""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from langchain_infinite_memory.budget import Budget
from langchain_infinite_memory.followed_lists import FollowedLists
from langchain_infinite_memory.identity import Newest
from langchain_infinite_memory.sessions import Locks, open_pool
from shared_core import InfiniteMemory
from shared_core.stores import open_store

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
multi_threaded = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@forks
@multi_threaded
@pytest.mark.parametrize("owner", [FollowedLists, Budget, Locks])
def test_a_process_forked_while_a_thread_holds_a_lock_finds_it_free(owner: Any) -> None:
    given: Any = {FollowedLists: [open_store(None)]}
    made = owner(*given.get(owner, []))
    lock: Any = made._lock if owner is not Locks else made.hold("t")
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(0.05)  # the other thread is in `fork` then, and cannot say so

    def take() -> None:
        own = made._lock if owner is not Locks else made.hold("t")
        assert own.acquire(timeout=10)

    holding = threading.Thread(target=hold)
    holding.start()
    assert held.wait(30)
    assert in_child(take) == 0
    holding.join(30)


def in_child(work: Callable[[], None]) -> int:
    """Do something in a forked process, which is ended after 20 seconds, and return its status."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        signal.alarm(20)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_of_entries_that_weigh_too_much_those_that_were_set_last_are_kept() -> None:
    newest: Newest[str, int] = Newest(6, weight=lambda value: value)
    for key, weight in [("a", 1), ("b", 2), ("a", 3), ("c", 3)]:
        newest[key] = weight
    assert list(newest.items()) == [("a", 3), ("c", 3)]
    del newest["a"]
    newest["d"] = 3
    assert list(newest) == ["c", "d"]
    newest["e"] = 9
    assert list(newest) == ["e"], "one is kept whatever it weighs"


def test_what_an_agent_can_store_in() -> None:
    with InfiniteMemory() as memory, pytest.raises(TypeError, match="serves one session only"):
        open_pool(memory)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="store must be a path"):
        open_pool(3)  # type: ignore[arg-type]
    with open_pool(None, max_tokens=900) as pool:
        assert pool.settings["on_overflow"] == "keep"
        assert open_pool(pool) is pool
        with pytest.raises(TypeError, match="max_tokens: the store given has its own"):
            open_pool(pool, max_tokens=9)
