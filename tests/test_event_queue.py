"""Events that are handled later: all of them, in order, in the context they came in, whatever happens meanwhile."""

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from contextvars import Context, ContextVar
from pathlib import Path

import pytest

from shared_core.event_queue import MOST, EventQueue
from shared_core.events import MemoryEvent

ROOT = Path(__file__).parents[1]


def numbered(number: int) -> MemoryEvent:
    return MemoryEvent(name="add", session_id="s", time_ns=0, seconds=0.0, count=number)


def test_events_wait_until_a_flush_and_keep_their_order_and_context() -> None:
    caller, seen = ContextVar[str]("caller"), list[tuple[int, str]]()
    queue = EventQueue(lambda event: seen.append((event.count, caller.get("nobody"))), 3_600)
    for number, name in enumerate(("ann", "ben")):
        token = caller.set(name)
        queue.put(numbered(number))
        caller.reset(token)
    assert seen == []
    queue.flush()
    assert seen == [(0, "ann"), (1, "ben")]
    queue.flush()
    assert len(seen) == 2


def test_a_thread_handles_them_and_ends() -> None:
    handled, threads = threading.Event(), list[threading.Thread]()

    def handle(event: MemoryEvent) -> None:
        threads.append(threading.current_thread())
        if event.count == 1:
            handled.set()

    queue = EventQueue(handle, 0.001)
    for number in range(2):
        queue.put(numbered(number))
    assert handled.wait(20)
    threads[-1].join(20)
    assert not threads[-1].is_alive()
    handled.clear()
    queue.put(numbered(1))
    assert handled.wait(20), "another thread begins"


def test_an_event_that_comes_as_the_thread_ends_is_handled() -> None:
    """The deque brings it in the moment in which the thread finds that nothing waits."""
    seen, handled = list[int](), threading.Event()

    def handle(event: MemoryEvent) -> None:
        seen.append(event.count)
        if event.count == 2:
            handled.set()

    queue, bringers, looks = EventQueue(handle, 0.001), list[threading.Thread](), list[int]()

    class Bringing(deque[tuple[Context, MemoryEvent]]):
        def __bool__(self) -> bool:
            if not len(self) and 1 in seen:
                looks.append(len(looks))
            if len(looks) == 2 and not bringers:  # it has handled all, and looks once more before it ends
                bringers.append(threading.Thread(target=queue.put, args=(numbered(2),)))
                bringers[0].start()
                bringers[0].join(0.2)
                return False
            return len(self) > 0

    queue._waiting = Bringing()
    queue.put(numbered(1))
    assert handled.wait(20)
    assert seen == [1, 2]


def test_without_delay_they_are_handled_at_once() -> None:
    seen: list[int] = []
    queue = EventQueue(lambda event: seen.append(event.count), 0)
    queue.put(numbered(5))
    assert seen == [5]


def test_no_more_wait_than_may() -> None:
    seen: list[int] = []
    queue = EventQueue(lambda event: seen.append(event.count), 3_600)
    for number in range(MOST + 1):
        queue.put(numbered(number))
    assert seen == list(range(MOST + 1))


def test_an_event_that_cannot_be_handled_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def handle(event: MemoryEvent) -> None:
        seen.append(event.count)
        raise RuntimeError(event.count)

    queue = EventQueue(handle, 3_600)
    with caplog.at_level(logging.INFO, "shared_core"):
        for number in range(3):
            queue.put(numbered(number))
        queue.flush()
    assert seen == [0, 1, 2]
    assert len(caplog.records) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_handles_its_own_events_only() -> None:
    code = """
import os, sys
from shared_core.event_queue import EventQueue
from shared_core.events import MemoryEvent

def numbered(number):
    return MemoryEvent(name="add", session_id="s", time_ns=0, seconds=0.0, count=number)

queue = EventQueue(lambda event: print(os.getpid() == parent, event.count, flush=True), 3_600)
parent = os.getpid()
queue.put(numbered(1))
if os.fork() == 0:
    queue.flush()
    queue.put(numbered(2))
    sys.exit()
os.wait()
queue.put(numbered(3))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines() == ["False 2", "True 1", "True 3"], "what waits is handled at the exit"
