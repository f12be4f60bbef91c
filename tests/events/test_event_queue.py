"""Events that are handled later: all of them, in order, in the context they came in, whatever happens meanwhile."""

import logging
import os
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import pytest

from shared_core.events import MemoryEvent
from shared_core.events.telemetry import MOST_WAITING, EventQueue

ROOT = Path(__file__).parents[2]


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
    queue.flush()
    assert seen == [(0, "ann"), (1, "ben")]


def test_a_thread_handles_them_time_and_again() -> None:
    handled, seen = threading.Event(), list[int]()

    def handle(event: MemoryEvent) -> None:
        seen.append(event.count)
        handled.set()

    queue = EventQueue(handle, 0.001)
    for number in range(3):
        handled.clear()
        queue.put(numbered(number))
        assert handled.wait(20)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize(("delay", "count"), [(0, 1), (3_600, MOST_WAITING + 1)])
def test_without_delay_or_room_they_are_handled_at_once(delay: float, count: int) -> None:
    seen: list[int] = []
    queue = EventQueue(lambda event: seen.append(event.count), delay)
    for number in range(count):
        queue.put(numbered(number))
    assert seen == list(range(count))


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
from shared_core.events import MemoryEvent
from shared_core.events.telemetry import EventQueue

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
