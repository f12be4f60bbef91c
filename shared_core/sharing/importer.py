"""Import the lines of an export file into sessions of a store: all of them or nothing."""

import base64
import binascii
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from shared_core.errors import StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.messages import Message, short_repr
from shared_core.records import MAIN, Draft, Position, Record, Ref, Segment, Stretch
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
    read_header,
    read_lines,
)
from shared_core.sharing.session_import import SessionImport
from shared_core.sharing.transfer import pages
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
"""Messages that are looked up together."""

MAX_NAMED = 10
"""The number of conversations that an error lists."""


class Target(NamedTuple):
    """The session to import into."""

    user_id: str | None
    session_id: str


class Imported(NamedTuple):
    """An imported session: the result, and what the exporting memory had checked out (None: not known)."""

    result: ImportResult
    head: Head | None


class InsertionPoint(NamedTuple):
    """Where a list of messages goes: the end of a branch, or with `at`, a new branch that begins there."""

    branch: str = MAIN
    at: Position | None = None


class Job(NamedTuple):
    """What an import does with the conversations of a file.

    Attributes:
        store: the store to import into.
        target: returns the session to import into for the id of a conversation, and for its user, if the file says so.
        draft: returns a message ready to be stored, with or without a token count.
        progress: called with how many messages are done and how many there are.
        point: where a list, which has no branches, is added to its session.
        skip_invalid: whether conversations of other programs that are invalid are left out; their results have an
            `error`.
    """

    store: Store
    target: Callable[[str, str | None], Target]
    draft: Callable[[Message], Draft]
    progress: Progress | None = None
    point: InsertionPoint = InsertionPoint()
    skip_invalid: bool = False

    def advance(self, done: int, total: int) -> None:
        """Tell how many messages are done."""
        if self.progress is not None:
            self.progress(min(done, total), total)


class ExportFile(NamedTuple):
    """A file that `export` wrote: its name, its messages, and the ids of its sessions."""

    name: str
    messages: int
    ids: list[str]


def read_export(path: str | os.PathLike[str]) -> ExportFile:
    """Read all of a file, so that nobody waits for one that is invalid; InputFileError says what is wrong with it."""
    ids = [line.session_id for _, line in read_lines(path) if isinstance(line, SessionLine)]
    return ExportFile(os.fspath(path), read_header(path).messages, ids)


def import_export(job: Job, file: ExportFile, sessions: Collection[str] | None = None) -> list[Imported]:
    """Import the sessions of an export file, or some of them: all or nothing.

    All of it is one transaction, during which other writers wait.

    Raises:
        UnknownReferenceError: the file does not hold one of the sessions.
        InputFileError: the file is invalid; the store is unchanged.
    """
    unknown = sorted({*(sessions or ())} - {*file.ids})
    if unknown:
        raise UnknownReferenceError(f"{file.name!r} has no session {unknown[0]!r}", candidates=file.ids[:MAX_NAMED])
    done: list[Imported] = []
    targets: set[Target] = set()
    job.advance(0, file.messages)
    with job.store.transaction():
        for number, first, lines in _by_session(read_lines(file.name)):
            if sessions is not None and first.session_id not in sessions:
                continue
            target = job.target(first.session_id, first.user_id)
            if target in targets:
                raise file_error(file.name, number, LineError(f"is a second session for {target.session_id!r}"))
            targets.add(target)
            passed = sum(one.result.new + one.result.known + one.result.forgotten for one in done)
            done.append(_import_session(job, file, target, first.spaces, lines, passed))
    return done


def _by_session(lines: Iterable[NumberedLine]) -> Iterator[tuple[int, SessionLine, Iterator[NumberedLine]]]:
    """Yield the first line of each session, with its number, and the lines that follow."""
    count = 0

    def number_of(one: NumberedLine) -> int:
        nonlocal count
        count += isinstance(one.line, SessionLine)
        return count

    for _, group in groupby(lines, number_of):
        of_session = iter(group)
        number, first = next(of_session)
        assert isinstance(first, SessionLine)
        yield number, first, of_session


def _import_session(
    job: Job, file: ExportFile, target: Target, spaces: Sequence[str], lines: Iterable[NumberedLine], passed: int
) -> Imported:
    key = job.store.create_session(*target)
    session = SessionImport(job.store, key, f"import {os.path.basename(file.name)}", job.draft)
    last = 0
    for batch in pages(lines, BATCH):
        _add_lines(session, file.name, batch)
        last = batch[-1].number
        passed += sum(isinstance(one.line, MessageLine) for one in batch)
        job.advance(passed, file.messages)
    with _located(file.name, [last]):
        session.finish(spaces)
    return imported(session, target, FORMAT)


def _add_lines(session: SessionImport, name: str, lines: Sequence[NumberedLine]) -> None:
    read: list[int] = [lines[0].number]
    with _located(name, read):
        stored = session.look_up([one.line.id for one in lines if isinstance(one.line, MessageLine)])
        for number, line in lines:
            read.append(number)
            _add(session, line, stored)


@contextmanager
def _located(name: str, read: Sequence[int]) -> Iterator[None]:
    """Add the file and the line that was read last to an error. A name that is taken is an error of the file, too."""
    try:
        yield
    except (ValueError, UnknownReferenceError, RecursionError) as error:
        raise file_error(name, read[-1], error) from None
    except StoreError as error:
        kept = StoreUnavailableError if isinstance(error, StoreUnavailableError) else StoreError
        raise kept(f"{name!r}, line {read[-1]}: {error}") from error


def _add(session: SessionImport, line: Line, stored: Mapping[str, Record]) -> None:
    match line:
        case MessageLine():
            if session.branches:
                raise LineError("comes after the branches; messages come first")
            position = Position(*line.at)
            record = Record(line.message(), position, 0, line.turn_no, picked_from=line.picked_from, alone=line.alone)
            if record.message.created_at is None:
                raise LineError("has no created_at")
            vectors = {one.space: (position, one.hash, vector_of(one)) for one in line.vectors}
            session.message(record, [Stretch(*one) for one in line.covers], vectors, stored.get(line.id))
        case SegmentLine():
            parents = _position(line.parent), _position(line.merged)
            session.segment(Segment(line.segment, parents[0], line.tip, parents[1], line.base, line.turn_shift))
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
