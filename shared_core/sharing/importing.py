"""Bring a file to share into a store: every session of it in one transaction, all or nothing."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.sharing.adding import Adding, Counted
from shared_core.sharing.format import (
    BranchLine,
    ForgottenLine,
    GoneLine,
    HeadLine,
    Line,
    MergeLine,
    MessageLine,
    MoveLine,
    SessionLine,
    StashLine,
    TagLine,
)
from shared_core.sharing.jsonl import Wrong, refused
from shared_core.sharing.naming import Naming
from shared_core.sharing.reading import NumberedLine
from shared_core.sharing.result import ImportResult
from shared_core.sharing.writing import Progress
from shared_core.store import Store
from shared_core.tree import Head

__all__ = ["Destination", "Imported", "Target", "import_lines"]

BATCH = 500
"""Lines that are looked up together."""


class Target(NamedTuple):
    """Where a session goes."""

    user_id: str | None
    session_id: str


Destination = Callable[[SessionLine], Target | None]
"""Says where a session of a file goes; None: nowhere."""


class Imported(NamedTuple):
    """A session that was brought: what became of it, and where whoever wrote the file stood."""

    result: ImportResult
    head: Head | None


class _Names(NamedTuple):
    """The file, for errors, and the kind of file."""

    file: str
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
    counted: Counted,
    progress: Progress | None = None,
) -> list[Imported]:
    """Bring the sessions that some lines describe into a store, in one transaction.

    Args:
        store: where they go.
        path: the file, for errors.
        lines: of one session after the other, each beginning with a `SessionLine`.
        destination: says where each goes.
        format: what the file is, for the results.
        total: how many messages there are, for `progress`.
        counted: counts a message.
        progress: told how far it is.

    Raises:
        InputFileError: the file is not what it should be; the store is as it was.
    """
    name = os.fspath(path)
    with store.transaction():
        importer = _Importer(store, _Names(name, format, total), destination, counted, progress)
        for numbered in lines:
            importer.take(numbered)
        importer.end_session()
    return importer.done


class _Importer:
    def __init__(
        self, store: Store, names: _Names, destination: Destination, counted: Counted, progress: Progress | None
    ) -> None:
        self._store = store
        self._names = names
        self._destination = destination
        self._counted = counted
        self._progress = progress
        self._passed = 0
        self._target: Target | None = None
        self._targets: set[Target] = set()
        self._session = -1
        self._spaces: Sequence[str] = ()
        self._adding: Adding | None = None
        self._naming: Naming | None = None
        self._batch: list[NumberedLine] = []
        self._number = 0
        self.done: list[Imported] = []

    def take(self, numbered: NumberedLine) -> None:
        """Take the next line."""
        if isinstance(numbered.line, SessionLine):
            self.end_session()
            self._number = numbered.number
            self._begin(numbered.line)
        elif self._adding is not None:
            self._batch.append(numbered)
            if len(self._batch) >= BATCH:
                self._do_batch()

    def _begin(self, line: SessionLine) -> None:
        target = self._target = self._destination(line)
        if target is None:
            return
        if target in self._targets:
            raise refused(self._names.file, self._number, Wrong(f"is a second session for {target.session_id!r}"))
        self._targets.add(target)
        self._session = self._store.create_session(*target)
        self._adding = Adding(self._store, self._session, self._counted)
        self._naming = None
        self._spaces = line.spaces

    def _do_batch(self) -> None:
        assert self._adding is not None
        batch, self._batch = self._batch, []
        stored = self._adding.look_up([one.line for one in batch if isinstance(one.line, MessageLine)])
        for number, line in batch:
            self._number = number
            with _Located(self):
                if isinstance(line, MessageLine):
                    if self._naming is not None:
                        raise Wrong("comes after the branches; messages come first")
                    self._adding.message(line, stored.get(line.id))
                    self._passed += 1
                else:
                    self._structure(self._adding, line)
        if self._progress is not None:
            self._progress(min(self._passed, self._names.total), self._names.total)

    def _structure(self, adding: Adding, line: Line) -> None:
        match line:
            case ForgottenLine():
                adding.forget(line)
            case MergeLine():
                adding.merge(line)
            case GoneLine():
                adding.gone(line)
            case BranchLine():
                self._named.branch(line)
            case TagLine():
                self._named.tag(line)
            case StashLine():
                self._named.stash(line)
            case MoveLine():
                self._named.move(line)
            case HeadLine():
                self._named.stand(line)
            case _:
                raise Wrong("does not belong here")

    @property
    def _named(self) -> Naming:
        if self._naming is None:
            assert self._adding is not None
            self._adding.tree.flush()
            note = f"import {os.path.basename(self._names.file)}"
            self._naming = Naming(self._store, self._session, self._adding, note)
        return self._naming

    def end_session(self) -> None:
        """Write what is left of a session, and note what became of it."""
        if self._adding is None or self._target is None:
            return
        self._do_batch()
        adding, naming = self._adding, self._named
        with _Located(self):
            naming.finish()
            for space in self._spaces:
                self._store.put_vectors(self._session, space, [])  # the one written to last is the one in use
        head = naming.head
        self.done.append(
            Imported(
                ImportResult(
                    format=self._names.format,
                    session_id=self._target.session_id,
                    user_id=self._target.user_id,
                    new=adding.new,
                    known=adding.known,
                    forgotten=adding.forgotten,
                    remapped=adding.renamed,
                    branches=naming.branches,
                    head=head.branch if head is not None else None,
                    created=adding.tree.empty,
                ),
                head,
            )
        )
        self._adding = self._naming = None


class _Located:
    """Says in an error which line of the file it is about; that a name is taken is an error of the file, too."""

    def __init__(self, importer: _Importer) -> None:
        self._importer = importer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | UnknownReferenceError | RecursionError):
            raise refused(self._importer._names.file, self._importer._number, error) from None
        if isinstance(error, StoreError):
            raise StoreError(f"{self._importer._names.file!r}, line {self._importer._number}: {error}") from error
