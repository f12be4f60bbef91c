"""Import the lines of an export file into sessions of a store: all of them or nothing."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shared_core.errors import StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.messages import short_repr
from shared_core.records import Record, VectorRows
from shared_core.session.paths import Head
from shared_core.sharing.export import Progress
from shared_core.sharing.format import (
    FORMAT,
    BranchLine,
    ForgottenLine,
    GoneLine,
    HeadLine,
    Line,
    LineError,
    MergeLine,
    MessageLine,
    MoveLine,
    NumberedLine,
    SessionLine,
    StashLine,
    TagLine,
    file_error,
    read_lines,
)
from shared_core.sharing.session_merge import CountTokens, RefMerger, SessionMerger
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


class _FileInfo(NamedTuple):
    """The name of the file, for errors, its format, and the number of its messages."""

    name: str
    format: str
    total: int


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
    """Import the sessions of an export file: all of them or nothing; see `import_lines`.

    Raises:
        InputFileError: the file is invalid; the store is unchanged.
    """
    deque(read_lines(path), maxlen=0)  # so that nobody waits for a file that is invalid
    return import_lines(
        store, path, lambda: read_lines(path), destination, format=FORMAT, total=total, count_tokens=count_tokens,
        progress=progress, check=check,
    )  # fmt: skip


def import_lines(
    store: Store,
    path: str | os.PathLike[str],
    lines: Callable[[], Iterable[NumberedLine]],
    destination: Destination,
    *,
    format: str,
    total: int,
    count_tokens: CountTokens,
    progress: Progress | None = None,
    check: Check = lambda done: None,
) -> list[Imported]:
    """Import the sessions that some lines describe into a store: all of them or nothing.

    All of it is one transaction, during which other writers wait; see `seconds_held`.

    Args:
        store: the store to import into.
        path: the file, for errors.
        lines: returns the lines: one session after the other, each beginning with a `SessionLine`.
        destination: returns the session that each is imported into.
        format: the file's format, for the results.
        total: the number of messages in the file.
        count_tokens: counts the tokens of a message.
        progress: called with how many messages are done and how many there are.
        check: called with the results at the end; nothing is stored if it raises.

    Raises:
        InputFileError: the file is invalid; the store is unchanged.
    """
    file = _FileInfo(os.fspath(path), format, total)
    if progress is not None:
        progress(0, total)
    with store.transaction():
        done = _Importer(store, file, destination, count_tokens, progress).add_lines(lines())
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
        file: _FileInfo,
        destination: Destination,
        count_tokens: CountTokens,
        progress: Progress | None,
    ) -> None:
        self._store = store
        self._file = file
        self._destination = destination
        self._count_tokens = count_tokens
        self._progress = progress
        self._passed = 0
        self._target: Target | None = None
        self._targets: set[Target] = set()
        self._session = -1
        self._spaces: Sequence[str] = ()
        self._merger: SessionMerger | None = None
        self._ref_merger: RefMerger | None = None
        self._batch: list[NumberedLine] = []
        self._number = 0
        self.done: list[Imported] = []

    def add_lines(self, lines: Iterable[NumberedLine]) -> list[Imported]:
        """Process all lines and return the results."""
        for numbered in lines:
            self.add_line(numbered)
        self.end_session()
        return self.done

    def add_line(self, numbered: NumberedLine) -> None:
        """Process the next line."""
        if isinstance(numbered.line, SessionLine):
            self.end_session()
            self._number = numbered.number
            self._begin(numbered.line)
        elif self._merger is not None:
            self._batch.append(numbered)
            if len(self._batch) >= BATCH:
                self._add_batch()

    def _begin(self, line: SessionLine) -> None:
        target = self._target = self._destination(line)
        if target is None:
            return
        if target in self._targets:
            raise file_error(self._file.name, self._number, LineError(f"is a second session for {target.session_id!r}"))
        self._targets.add(target)
        self._session = self._store.create_session(*target)
        self._merger = SessionMerger(self._store, self._session, self._count_tokens)
        self._ref_merger = None
        self._spaces = line.spaces

    def _add_batch(self) -> None:
        assert self._merger is not None
        batch, self._batch = self._batch, []
        stored = self._merger.look_up([one.line for one in batch if isinstance(one.line, MessageLine)])
        for number, line in batch:
            self._number = number
            with _LocatedErrors(self):
                known = stored.get(line.id) if isinstance(line, MessageLine) else None
                self._add_line(self._merger, NumberedLine(number, line), known)
        if self._progress is not None:
            self._progress(min(self._passed, self._file.total), self._file.total)

    def _add_line(self, merger: SessionMerger, numbered: NumberedLine, stored: Record | None) -> None:
        line = numbered.line
        if not isinstance(line, MessageLine):
            self._structure(merger, line)
            return
        if self._ref_merger is not None:
            raise LineError("comes after the branches; messages come first")
        merger.message(line, stored)
        self._passed += 1

    def _structure(self, merger: SessionMerger, line: Line) -> None:
        match line:
            case ForgottenLine():
                merger.forget(line)
            case MergeLine():
                merger.merge(line)
            case GoneLine():
                merger.gone(line)
            case BranchLine():
                self._refs.branch(line)
            case TagLine():
                self._refs.tag(line)
            case StashLine():
                self._refs.stash(line)
            case MoveLine():
                self._refs.move(line)
            case HeadLine():
                self._refs.set_head(line)
            case _:
                raise LineError("does not belong here")

    @property
    def _refs(self) -> RefMerger:
        if self._ref_merger is None:
            assert self._merger is not None
            self._merger.tree.flush()
            note = f"import {os.path.basename(self._file.name)}"
            self._ref_merger = RefMerger(self._store, self._session, self._merger, note)
        return self._ref_merger

    def end_session(self) -> None:
        """Write the rest of a session and keep its result."""
        if self._merger is None or self._target is None:
            return
        self._add_batch()
        refs = self._refs
        with _LocatedErrors(self):
            refs.finish()
            self._use_spaces()
        self.done.append(self._result(self._target, self._merger, refs))
        self._merger = self._ref_merger = None

    def _use_spaces(self) -> None:
        for space in self._spaces:
            self._store.keep(self._session, VectorRows(space, []))  # the one written last is in use

    def _result(self, target: Target, merger: SessionMerger, refs: RefMerger) -> Imported:
        result = ImportResult(
            format=self._file.format,
            session_id=target.session_id,
            user_id=target.user_id,
            new=merger.new,
            known=merger.known,
            forgotten=merger.forgotten,
            remapped=merger.renamed,
            branches=refs.branches,
            head=refs.head.branch if refs.head is not None else None,
            created=merger.tree.empty,
        )
        return Imported(result, refs.head)


class _LocatedErrors:
    """Adds the file and the line to an error. A name that is taken is an error of the file, too."""

    def __init__(self, importer: _Importer) -> None:
        self._importer = importer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | UnknownReferenceError | RecursionError):
            raise file_error(self._importer._file.name, self._importer._number, error) from None
        if isinstance(error, StoreError):
            kept = StoreUnavailableError if isinstance(error, StoreUnavailableError) else StoreError
            raise kept(f"{self._importer._file.name!r}, line {self._importer._number}: {error}") from error
