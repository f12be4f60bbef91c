"""Connections to one PostgreSQL server: made when they are needed, at most so many, and never shared with a fork."""

import os
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.runtime.forks import Depth, fork_safe_lock

Connection = psycopg.Connection[tuple[object, ...]]

_inherited: "list[list[Connection]]" = []
"""Connections that a forked process has inherited: they belong to its parent, and closing them would end those."""


class Connections:
    """Lends connections to one thread each.

    There is no thread that keeps them alive, as a pool usually has: a process with threads must not be forked.

    Args:
        connect: makes a connection; raises psycopg.Error.
        size: the most at a time.
        seconds: how long to wait for one that is free.
    """

    def __init__(self, connect: Callable[[], Connection], *, size: int, seconds: float) -> None:
        self._connect = connect
        self._size = size
        self._seconds = seconds
        self._lock = fork_safe_lock(Depth.MOMENT)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._free = threading.Semaphore(self._size)

    def take(self) -> Connection:
        """Return a connection that nobody else uses until it is given back.

        Raises:
            StoreError: the store is closed.
            StoreUnavailableError: none became free in time.
            psycopg.Error: there is no connection to the server.
        """
        with self._lock:
            if self._pid != os.getpid():
                _inherited.append(self._idle)
                self._begin()
            free = self._free
        if not free.acquire(timeout=self._seconds):
            raise StoreUnavailableError(
                f"all {self._size} connections of this store were in use for {self._seconds:g} s; try again, or open "
                "it with a larger pool_size"
            )
        try:
            with self._lock:
                if self._closed:
                    raise StoreError("the store is closed; open a new one")
                found = self._idle.pop() if self._idle else None
            return self._connect() if found is None else found
        except BaseException:
            free.release()
            raise

    def give_back(self, connection: Connection) -> None:
        """Take a connection back; one that broke, or is in the middle of a transaction, is closed."""
        if self._pid != os.getpid():
            _inherited.append([connection])
            return
        with self._lock:
            idle = connection.info.transaction_status == TransactionStatus.IDLE and not self._closed
            if idle:
                self._idle.append(connection)
        if not idle:
            connection.close()
        self._free.release()

    def drop_idle(self) -> None:
        """Close the connections that nobody uses: when one broke, the others to that server most likely did, too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle if self._pid == os.getpid() else ():
            connection.close()

    def close(self) -> None:
        """Close all connections, those that are in use when they are given back."""
        self._closed = True
        self.drop_idle()


def adapt(connection: Connection) -> None:
    """Set what does not depend on the server's defaults: how isolated transactions are, and the type of numbers.

    Every integer is sent as a bigint, so that a statement has the same types whatever its values, and one plan.
    """
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    connection.adapters.register_dumper(int, Int8Dumper)


def pauses(seconds: float) -> "Pauses":
    """Return growing pauses for so many seconds."""
    return Pauses(time.monotonic() + seconds)


class Pauses:
    """Waits longer and longer, until a time has come.

    Args:
        end: that time, of `time.monotonic`.
    """

    def __init__(self, end: float) -> None:
        self._end = end
        self._next = 0.01

    def wait(self) -> bool:
        """Wait for the next pause; return False, and do not wait, if the time is over."""
        if time.monotonic() + self._next > self._end:
            return False
        time.sleep(self._next)
        self._next = min(2 * self._next, 1.0)
        return True
