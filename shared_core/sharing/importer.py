"""Import the lines of an export file into sessions of a store: all of them or nothing."""

import base64
import binascii
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shared_core.errors import StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.messages import short_repr
from shared_core.records import Position, Record, Ref, Segment, Stretch
from shared_core.session.paths import Head
from shared_core.sharing.export import Progress
from shared_core.sharing.format import (
    FORMAT,
    BranchLine,
    ForgottenLine,
    HeadLine,
    Line,
    LineError,
    MessageLine,
    NumberedLine,
    RefLine,
    SegmentLine,
    SessionLine,
    VectorValue,
    file_error,
    read_lines,
)
from shared_core.sharing.session_import import CountTokens, SessionImport
from shared_core.store import Store


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of importing one session of a file.

    Attributes:
        format: the file's format: `"infinite-memory"`, or one of those in `docs/import.md`.
        session_id: the session that the messages were imported into.
        user_id: the user of that session.
        new: how many messages were stored.
        known: how many were stored before, with the same content after the same messages.
        forgotten: how many were not stored because they had been forgotten here.
        remapped: id in the file -> id here, for the new and known messages whose own id is stored with other content.
        branches: branch in the file -> branch here. The name differs if a branch of that name leads elsewhere.
        head: the branch that was checked out where the file was written. None: not known.
        created: whether the session was empty before.
        title: the title that the other program gave the conversation. "": none.
        left_out: what of the conversation is not stored, in words, for example `"3 images"`.
        error: why the conversation was skipped. None: it was not.
    """

    format: str
    session_id: str
    user_id: str | None = None
    new: int = 0
    known: int = 0
    forgotten: int = 0
    remapped: Mapping[str, str] = field(default_factory=dict)
    branches: Mapping[str, str] = field(default_factory=dict)
    head: str | None = None
    created: bool = False
    title: str = ""
    left_out: tuple[str, ...] = ()
    error: str | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        lists = {"remapped": dict(self.remapped), "branches": dict(self.branches), "left_out": list(self.left_out)}
        return fields | lists


BATCH = 500
"""Lines that are looked up together."""

SECONDS = 5e-5
"""How long other writers wait for each message of an import; a machine of 2024 takes somewhat less."""


class Target(NamedTuple):
    """The session to import into."""

    user_id: str | None
    session_id: str


Destination = Callable[[SessionLine], Target | None]
"""Returns the session that a session of the file is imported into. None: it is skipped."""


class Imported(NamedTuple):
    """An imported session: the result, and what the exporting memory had checked out (None: not known)."""

    result: ImportResult
    head: Head | None


Check = Callable[[list[Imported]], None]
"""Called with the results before anything is stored; raises if it must not be."""


def import_export(
    store: Store,
    path: str | os.PathLike[str],
    destination: Destination,
    *,
    total: int,
    count_tokens: CountTokens,
    progress: Progress | None = None,
    check: Check = lambda done: None,
) -> list[Imported]:
    """Import the sessions of an export file: all of them or nothing.

    All of it is one transaction, during which other writers wait; see `seconds_held`.

    Args:
        store: the store to import into.
        path: the file.
        destination: returns the session that each is imported into.
        total: the number of messages in the file.
        count_tokens: counts the tokens of a message.
        progress: called with how many messages are done and how many there are.
        check: called with the results at the end; nothing is stored if it raises.

    Raises:
        InputFileError: the file is invalid; the store is unchanged.
    """
    deque(read_lines(path), maxlen=0)  # so that nobody waits for a file that is invalid
    if progress is not None:
        progress(0, total)
    with store.transaction():
        done = _Importer(store, os.fspath(path), total, destination, count_tokens, progress).add_lines(read_lines(path))
        check(done)
    return done


def seconds_held(messages: int) -> float:
    """Estimate for how long an import of so many messages keeps other writers waiting."""
    return messages * SECONDS


class _Importer:
    """Imports sessions line by line, in a transaction of the store."""

    def __init__(
        self,
        store: Store,
        name: str,
        total: int,
        destination: Destination,
        count_tokens: CountTokens,
        progress: Progress | None,
    ) -> None:
        self._name = name
        self._number = 0
        self._store = store
        self._total = total
        self._destination = destination
        self._count_tokens = count_tokens
        self._progress = progress
        self._passed = 0
        self._target: Target | None = None
        self._targets: set[Target] = set()
        self._spaces: Sequence[str] = ()
        self._session: SessionImport | None = None
        self._batch: list[NumberedLine] = []
        self._done: list[Imported] = []

    def add_lines(self, lines: Iterable[NumberedLine]) -> list[Imported]:
        """Process all lines and return the results."""
        for numbered in lines:
            if isinstance(numbered.line, SessionLine):
                self._end_session()
                self._number = numbered.number
                self._begin(numbered.line)
            elif self._session is not None:
                self._batch.append(numbered)
                if len(self._batch) >= BATCH:
                    self._add_batch(self._session)
        self._end_session()
        return self._done

    def _begin(self, line: SessionLine) -> None:
        target = self._target = self._destination(line)
        if target is None:
            return
        if target in self._targets:
            raise file_error(self._name, self._number, LineError(f"is a second session for {target.session_id!r}"))
        self._targets.add(target)
        key, note = self._store.create_session(*target), f"import {os.path.basename(self._name)}"
        self._session = SessionImport(self._store, key, note, self._count_tokens)
        self._spaces = line.spaces

    def _add_batch(self, session: SessionImport) -> None:
        batch, self._batch = self._batch, []
        with self._located():
            stored = session.look_up([one.line.id for one in batch if isinstance(one.line, MessageLine)])
            for self._number, line in batch:
                self._add(session, line, stored)
        if self._progress is not None:
            self._progress(min(self._passed, self._total), self._total)

    def _add(self, session: SessionImport, line: Line, stored: Mapping[str, Record]) -> None:
        match line:
            case MessageLine():
                if session.branches:
                    raise LineError("comes after the branches; messages come first")
                position = Position(*line.at)
                record = Record(
                    line.message(), position, 0, line.turn_no, picked_from=line.picked_from, alone=line.alone
                )
                if record.message.created_at is None:
                    raise LineError("has no created_at")
                vectors = {one.space: (position, one.hash, vector_of(one)) for one in line.vectors}
                session.message(record, [Stretch(*one) for one in line.covers], vectors, stored.get(line.id))
                self._passed += 1
            case SegmentLine():
                session.segment(
                    Segment(
                        line.segment, _position(line.parent), line.tip, _position(line.merged), line.base,
                        line.turn_shift,
                    )
                )  # fmt: skip
            case ForgottenLine():
                session.forget(line.ids)
            case BranchLine():
                session.branch(line.name, Position(*line.at))
            case RefLine():
                at, base = _position(line.at), _position(line.base)
                session.ref(Ref(0, line.kind, line.name, at, base, line.note, line.created_at))
            case HeadLine():
                session.set_head(line.branch, _position(line.at))
            case _:
                raise LineError("does not belong here")

    def _end_session(self) -> None:
        """Write the rest of a session and keep its result."""
        session, target = self._session, self._target
        if session is None or target is None:
            return
        self._add_batch(session)
        with self._located():
            session.finish(self._spaces)
        self._done.append(imported(session, target, FORMAT))
        self._session = None

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Add the file and the line to an error. A name that is taken is an error of the file, too."""
        try:
            yield
        except (ValueError, UnknownReferenceError, RecursionError) as error:
            raise file_error(self._name, self._number, error) from None
        except StoreError as error:
            kept = StoreUnavailableError if isinstance(error, StoreUnavailableError) else StoreError
            raise kept(f"{self._name!r}, line {self._number}: {error}") from error


def imported(session: SessionImport, target: Target, format: str) -> Imported:
    """Return the result of importing a session."""
    result = ImportResult(
        format=format,
        session_id=target.session_id,
        user_id=target.user_id,
        new=session.new,
        known=session.known,
        forgotten=session.forgotten,
        remapped=session.renamed,
        branches=session.branches,
        head=session.head.branch if session.head is not None else None,
        created=session.empty,
    )
    return Imported(result, session.head)


def vector_of(value: VectorValue) -> bytes:
    """Return the bytes of one or more vectors.

    Raises:
        LineError: they are not vectors of the space's dimension.
    """
    found = re.fullmatch(r".+/(\d{1,6})(?:#.*)?", value.space, re.DOTALL)
    try:
        data = base64.b64decode(value.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LineError(f"has a vector that is not base64 ({error})") from None
    if found is None or not data or int(found[1]) == 0 or len(data) % (2 * int(found[1])):
        raise LineError(f"has a vector of {len(data)} bytes, which does not fit the space {value.space!r}")
    if not np.isfinite(np.frombuffer(data, dtype="<f2")).all():
        raise LineError("has a vector with a number that is NaN or infinite")
    return data


def _position(value: tuple[int, int] | None) -> Position | None:
    return None if value is None else Position(*value)
