"""Import the lines of an export file into sessions of a store: all of them or nothing."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.paths import Head
from shared_core.records import VectorRows
from shared_core.reprs import short_repr
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


LARGE = 5_000
"""The messages of a file that is not imported in one transaction, if all of its sessions are new."""

BATCH = 500
"""Lines that are looked up together."""


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


class _FileInfo(NamedTuple):
    """The name of the file, for errors, its format, and the number of its messages."""

    name: str
    format: str
    total: int


def import_lines(
    store: Store,
    path: str | os.PathLike[str],
    lines: Iterable[NumberedLine],
    destination: Destination,
    *,
    format: str,
    total: int,
    count_tokens: CountTokens,
    progress: Progress | None = None,
) -> list[Imported]:
    """Import the sessions that some lines describe into a store, in one transaction.

    Args:
        store: the store to import into.
        path: the file, for errors.
        lines: one session after the other, each beginning with a `SessionLine`.
        destination: returns the session that each is imported into.
        format: the file's format, for the results.
        total: the number of messages in the file, for `progress`.
        count_tokens: counts the tokens of a message.
        progress: called with how many messages are done and how many there are.

    Raises:
        InputFileError: the file is invalid; the store is unchanged.
    """
    name = os.fspath(path)
    with store.transaction():
        return _Importer(store, _FileInfo(name, format, total), destination, count_tokens, progress).add_lines(lines)


def import_export(
    store: Store,
    path: str | os.PathLike[str],
    destination: Destination,
    *,
    total: int,
    count_tokens: CountTokens,
    progress: Progress | None = None,
    check: Callable[[list[Imported]], None] = lambda done: None,
) -> list[Imported]:
    """Import the sessions of an export file: all of them or nothing.

    Other writers wait for a large file no longer than for a part of it, if its sessions are new: they are filled as
    stages, which nobody sees until the last line has been read. Any other file is imported in one transaction.

    Args:
        store: the store to import into.
        path: the file.
        destination: returns the session that each of the file is imported into.
        total: the number of messages in the file.
        count_tokens: counts the tokens of a message.
        progress: called with how many messages are done and how many there are.
        check: called with the results at the end; nothing is stored if it raises.

    Raises:
        InputFileError: the file is invalid; the store is unchanged.
    """
    file = _FileInfo(os.fspath(path), FORMAT, total)
    if total >= LARGE:
        done = _import_staged(store, file, destination, count_tokens, progress, check)
        if done is not None:
            return done
    with store.transaction():
        importer = _Importer(store, file, destination, count_tokens, progress)
        done = importer.add_lines(read_lines(path))
        check(done)
    return done


def _import_staged(
    store: Store, file: _FileInfo, destination: Destination, count_tokens: CountTokens, progress: Progress | None,
    check: Callable[[list[Imported]], None],
) -> list[Imported] | None:  # fmt: skip
    """Import a file by stages; None, and nothing is stored, if one of its sessions is not new."""
    importer = _Importer(store, file, destination, count_tokens, progress, staged={})
    assert importer.staged is not None
    try:
        done = importer.add_lines(read_lines(file.name))
        check(done)
        return done if store.publish(importer.staged) else None
    except _NotNewError:
        return None
    finally:
        store.unstage(importer.staged)


class _NotNewError(Exception):
    """A session of the file is not new, or the store has no stages."""


class _Importer:
    def __init__(
        self,
        store: Store,
        file: _FileInfo,
        destination: Destination,
        count_tokens: CountTokens,
        progress: Progress | None,
        staged: dict[int, Target] | None = None,
    ) -> None:
        self.staged = staged
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
        self._session = self._store.create_session(*target) if self.staged is None else self._stage(target)
        self._merger = SessionMerger(self._store, self._session, self._count_tokens)
        self._ref_merger = None
        self._spaces = line.spaces

    def _stage(self, target: Target) -> int:
        stage = self._store.stage() if self._store.session(*target) is None else None
        if stage is None or self.staged is None:
            raise _NotNewError
        self.staged[stage] = target
        return stage

    def _add_batch(self) -> None:
        assert self._merger is not None
        batch, self._batch = self._batch, []
        stored = self._merger.look_up([one.line for one in batch if isinstance(one.line, MessageLine)])
        for number, line in batch:
            self._number = number
            with _LocatedErrors(self):
                if isinstance(line, MessageLine):
                    if self._ref_merger is not None:
                        raise LineError("comes after the branches; messages come first")
                    self._merger.message(line, stored.get(line.id))
                    self._passed += 1
                else:
                    self._structure(self._merger, line)
        if self._progress is not None:
            self._progress(min(self._passed, self._file.total), self._file.total)

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
        merger, refs = self._merger, self._refs
        with _LocatedErrors(self):
            refs.finish()
            for space in self._spaces:
                self._store.keep(self._session, VectorRows(space, []))  # the one written last is in use
        head = refs.head
        self.done.append(
            Imported(
                ImportResult(
                    format=self._file.format,
                    session_id=self._target.session_id,
                    user_id=self._target.user_id,
                    new=merger.new,
                    known=merger.known,
                    forgotten=merger.forgotten,
                    remapped=merger.renamed,
                    branches=refs.branches,
                    head=head.branch if head is not None else None,
                    created=merger.tree.empty,
                ),
                head,
            )
        )
        self._merger = self._ref_merger = None


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
            raise StoreError(f"{self._importer._file.name!r}, line {self._importer._number}: {error}") from error
