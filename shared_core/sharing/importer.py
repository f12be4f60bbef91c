"""Import the lines of an export file into sessions of a store: all of them or nothing."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from typing_extensions import override

from shared_core.errors import DuplicateError, InputFileError, StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.records import Position, Record, VectorRows
from shared_core.reprs import short_repr
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
from shared_core.sharing.session_tree import SessionTree
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
"""The messages of a file that is not imported in one transaction."""

ATTEMPTS = 3
"""How often a large file is imported without a lock, while others change what it meets; then one is held."""

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

    While a large file is read, others may write: what it adds is kept in stages, which nobody sees until the last line
    has been read. A transaction then makes them sessions, or parts of the sessions that are there. If others have
    stored one of its messages by then, or have forgotten something, all of it is done again.

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
    for _ in range(ATTEMPTS if is_large(total) else 0):
        importer = _StagedImporter(store, file, destination, count_tokens, progress)
        try:
            return importer.add_all(lines(), check)
        except NoStageError:
            break
        except MetOthersError:
            continue
        finally:
            store.unstage(importer.stages)
    with store.transaction():
        done = _Importer(store, file, destination, count_tokens, progress).add_lines(lines())
        check(done)
    return done


def is_large(total: int) -> bool:
    """Return whether so many messages are imported step by step."""
    return total >= LARGE


class NoStageError(Exception):
    """The store has no stages, or a session of the file exists and never held anything."""


class MetOthersError(Exception):
    """What others have stored or forgotten meanwhile changes what an import does."""


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
        self._merger = self._open(target)
        self._ref_merger = None
        self._spaces = line.spaces

    def _open(self, target: Target) -> SessionMerger:
        """Return the merger of the session to import into."""
        self._session = self._store.create_session(*target)
        return SessionMerger(self._store, self._session, self._count_tokens)

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
            raise _late_message()
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


class _Waiting(NamedTuple):
    """A session that is there already, whose messages have been read.

    Attributes:
        number: the index of its result.
        target: the session.
        session: its key.
        merger: the merger that added the messages to a stage.
        names: the lines of its branches, tags and stashes.
        spaces: its vector spaces.
    """

    number: int
    target: Target
    session: int
    merger: SessionMerger
    names: list[NumberedLine]
    spaces: Sequence[str]


class _StagedImporter(_Importer):
    """Imports sessions line by line into stages, outside of a transaction.

    The branches of a session that is there already are merged at the end, when nobody else can move them.

    Attributes:
        stages: the stages that were made.
    """

    def __init__(
        self,
        store: Store,
        file: _FileInfo,
        destination: Destination,
        count_tokens: CountTokens,
        progress: Progress | None,
    ) -> None:
        super().__init__(store, file, destination, count_tokens, progress)
        self.stages: list[int] = []
        self._created: dict[int, Target] = {}
        self._waiting: list[_Waiting] = []
        self._names: list[NumberedLine] = []
        self._trees: list[SessionTree] = []

    def add_all(self, lines: Iterable[NumberedLine], check: Check) -> list[Imported]:
        """Process all lines, publish the stages and return the results.

        Raises:
            NoStageError: this file cannot be imported by stages. Nothing is stored.
            MetOthersError: others changed what it meets. Nothing is stored.
        """
        try:
            done = self.add_lines(lines)
        except (InputFileError, UnknownReferenceError):
            if any(tree.outdated for tree in self._trees):  # what a line refers to may have been forgotten
                raise MetOthersError from None
            raise
        with self._store.transaction():
            moves = [self._graft(one, done) for one in self._waiting]
            check(done)
            if not self._store.publish(self._created):
                raise MetOthersError
        for one, moved in zip(self._waiting, moves, strict=True):
            one.merger.tree.move_vectors(moved)
            self._session, self._spaces = one.session, one.spaces
            self._use_spaces()
        return done

    @override
    def _open(self, target: Target) -> SessionMerger:
        session, stage = self._store.session(*target), self._store.stage()
        if stage is None:
            raise NoStageError
        self.stages.append(stage)
        if session is None:
            self._created[stage], self._session = target, stage
            return SessionMerger(self._store, stage, self._count_tokens)
        self._session, self._names = session, []
        merger = SessionMerger(self._store, session, self._count_tokens, stage)
        self._trees.append(merger.tree)
        if merger.tree.empty:
            raise NoStageError
        return merger

    @override
    def _add_line(self, merger: SessionMerger, numbered: NumberedLine, stored: Record | None) -> None:
        line = numbered.line
        waits = merger.tree.stage is not None and isinstance(
            line, BranchLine | TagLine | StashLine | MoveLine | HeadLine
        )
        if waits:
            self._names.append(numbered)
        elif merger.tree.stage is not None and self._names and isinstance(line, MessageLine):
            raise _late_message()
        else:
            super()._add_line(merger, numbered, stored)

    @override
    def end_session(self) -> None:
        """Keep the result of a session, or what will be it."""
        if self._merger is None or self._target is None or self._merger.tree.stage is None:
            return super().end_session()
        self._add_batch()
        self._merger.tree.flush()
        number = len(self.done)
        self._waiting.append(_Waiting(number, self._target, self._session, self._merger, self._names, self._spaces))
        self.done.append(Imported(ImportResult(self._file.format, self._target.session_id), None))
        self._merger = None

    def _graft(self, one: _Waiting, done: list[Imported]) -> Callable[[Position], Position]:
        """Make a stage a part of its session, with the branches; return where its positions are then."""
        tree = one.merger.tree
        if tree.outdated:
            raise MetOthersError
        self._session, self._merger, self._ref_merger = one.session, one.merger, None
        for self._number, line in one.names:
            with _LocatedErrors(self):
                self._structure(one.merger, line)
        refs = self._refs
        with _LocatedErrors(self):
            refs.finish()
        try:
            moved = tree.graft()
        except DuplicateError:
            raise MetOthersError from None
        with _LocatedErrors(self):
            refs.graft(moved)
        done[one.number] = self._result(one.target, one.merger, refs)
        return moved


def _late_message() -> LineError:
    return LineError("comes after the branches; messages come first")


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
