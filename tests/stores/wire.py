"""What is sent to a PostgreSQL server: statements, and how often the sender waits for an answer."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from shared_core.stores.postgres.address import Address
from shared_core.stores.postgres.connections import Connection


class Sent(NamedTuple):
    """What was sent since one last looked.

    Attributes:
        waits: how often the sender waited for an answer, each time after a Sync or a simple Query.
        statements: how many statements were executed.
    """

    waits: int
    statements: int


class Wire:
    """Reads the protocol that libpq notes for each connection of a store that is opened meanwhile.

    Args:
        monkeypatch: puts the notes in.
        folder: where they are.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._notes = folder / "protocol"
        self._notes.touch()
        self._read = 0
        connect: Callable[..., Connection] = Address.connect

        def noted(address: Address, *, prepare: bool) -> Connection:
            connection = connect(address, prepare=prepare)
            handle = os.open(self._notes, os.O_WRONLY | os.O_APPEND)
            connection.pgconn.trace(handle)
            connection.pgconn.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
            return connection

        monkeypatch.setattr(Address, "connect", noted)

    def sent(self) -> Sent:
        """Return what was sent since this was last asked."""
        lines = self._notes.read_text().splitlines()
        sent = [line.split("\t")[2] for line in lines[self._read :] if line.startswith("F\t")]
        self._read = len(lines)
        return Sent(sent.count("Sync") + sent.count("Query"), sent.count("Execute") + sent.count("Query"))
