"""Import a file of any known format into sessions of a store: all of it or nothing."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.messages import Message, content_of
from shared_core.paths import Head
from shared_core.records import MAIN, Draft, Position, VectorRows
from shared_core.sharing.export import Progress
from shared_core.sharing.format import (
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
    is_ours,
    read_header,
    read_lines,
)
from shared_core.sharing.readers import Foreign, read_foreign
from shared_core.sharing.session_merge import CountTokens, RefMerger, SessionMerger, other_id
from shared_core.store import Store


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of importing one session of a file.

    Attributes:
        format: the file's format: `"infinite-memory"`, `"chatgpt"`, `"openai"`, `"langchain"` or `"llama-index"`.
        session_id: the session that the messages were imported into.
        user_id: the user of that session.
        new: how many messages were stored.
        known: how many were stored before, with the same content after the same messages.
        forgotten: how many were not stored because they had been forgotten here.
        remapped: id in the file -> id here, for the new and known messages whose own id is stored with other content.
        branches: branch in the file -> branch here. The name differs if a branch of that name leads elsewhere.
        head: the branch that was checked out where the file was written. None: not known.
        created: whether the session was empty before.
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"remapped": dict(self.remapped), "branches": dict(self.branches)}


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
        importer = _Importer(store, _FileInfo(name, format, total), destination, count_tokens, progress)
        for numbered in lines:
            importer.add_line(numbered)
        importer.end_session()
    return importer.done


class _Importer:
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


@dataclass
class ListOutcome:
    """The outcome of importing a list, so far."""

    new: int = 0
    known: int = 0
    forgotten: int = 0
    renamed: dict[str, str] = field(default_factory=dict)


def add_list(
    store: Store, session: int, branch: str, messages: Sequence[Message], draft: Callable[[Message], Draft], *,
    at: Position | None = None, progress: Progress | None = None,
) -> ListOutcome:  # fmt: skip
    """Add messages to a branch, inside a transaction of the store.

    A message whose id is stored with other content gets another id, made by `other_id`.

    Args:
        store: the store that holds the session.
        session: the session's key.
        branch: the name of the branch.
        messages: messages with distinct ids.
        draft: returns a message ready to be stored.
        at: opens the branch, which must be new, at this position.
        progress: called with how many messages are done and how many there are.
    """
    listed = ListOutcome()
    for batch in _batches(messages):
        drafts = _with_free_ids(store, session, [draft(message) for message in batch], listed)
        appended = store.append(session, branch, drafts, at=at)
        at = None
        listed.new += len(appended.added)
        listed.forgotten += len(appended.forgotten)
        listed.known += len(batch) - len(appended.added) - len(appended.forgotten)
        if progress is not None:
            progress(listed.new + listed.known + listed.forgotten, len(messages))
    return listed


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    start = 0
    for index, message in enumerate(messages):
        if message.role == "user" and index - start >= BATCH:  # so that no turn is split
            yield messages[start:index]
            start = index
    if start < len(messages):
        yield messages[start:]


def _with_free_ids(store: Store, session: int, drafts: Sequence[Draft], listed: ListOutcome) -> list[Draft]:
    """Return the drafts with another id wherever their own is stored with other content."""
    stored = {record.message.id: record.message for record in store.get(session, [_id(draft) for draft in drafts])}
    found: list[Draft] = []
    before: str | None = None
    for one in drafts:
        id_, message = _id(one), one.message
        if id_ in stored and content_of(stored[id_]) != content_of(message):
            listed.renamed[id_] = other_id(message, before)
            one = Draft(message.replace(id=listed.renamed[id_]), one.counter, one.tokens)
        before = _id(one)
        found.append(one)
    return found


def _id(draft: Draft) -> str:
    assert draft.message.id is not None
    return draft.message.id


MAX_NAMED = 10
"""The number of sessions that an error lists."""


class InsertionPoint(NamedTuple):
    """Where a list of messages goes: the end of a branch, or with `at`, a new branch that begins there."""

    branch: str = MAIN
    at: Position | None = None


Route = Callable[[str | None, str, int], Target | None]
"""Returns the session to import into, or None to skip it.

The arguments are the user and the id in the file ("": none), and the number of sessions in the file.
"""


def import_into(
    store: Store, path: str | os.PathLike[str], route: Route, draft: Callable[[Message], Draft], *,
    insertion_point: InsertionPoint | None = None, progress: Progress | None = None,
) -> list[Imported]:  # fmt: skip
    """Import the sessions of a file into a store.

    Args:
        store: the store to import into.
        path: a file in the package's own format, or in a format that `read_foreign` knows.
        route: returns the session that each is imported into.
        draft: returns a message ready to be stored, with or without a token count.
        insertion_point: where a list, which has no branches, is added to its session. None: the end of `main`.
        progress: called with how many messages are done and how many there are.

    Returns:
        One result for each session that was not skipped.

    Raises:
        InputFileError: the file is invalid; the store is unchanged.
    """

    def count_tokens(message: Message) -> tuple[str, int] | None:
        done = draft(message)
        return None if done.counter is None or done.tokens is None else (done.counter, done.tokens)

    if is_ours(path):
        header = read_header(path)
        return import_lines(
            store, path, read_lines(path), lambda line: route(line.user_id, line.session_id, header.sessions),
            format="infinite-memory", total=header.messages, count_tokens=count_tokens, progress=progress,
        )  # fmt: skip
    foreign, point = read_foreign(path), insertion_point or InsertionPoint()
    with store.transaction():
        lists = [_import_list(store, foreign, key, route, draft, point, progress) for key in foreign.lists]
        trees = [_import_tree(store, foreign, key, route, count_tokens, progress) for key in foreign.trees]
    return [one for one in [*lists, *(one for some in trees for one in some)] if one is not None]


def _import_list(
    store: Store, foreign: Foreign, key: str, route: Route, draft: Callable[[Message], Draft], point: InsertionPoint,
    progress: Progress | None,
) -> Imported | None:  # fmt: skip
    target = route(None, key, len(foreign.sessions))
    if target is None:
        return None
    session = store.create_session(*target)
    created = not store.state(session).last_seq
    listed = add_list(store, session, point.branch, foreign.lists[key], draft, at=point.at, progress=progress)
    result = ImportResult(
        foreign.format, target.session_id, target.user_id, listed.new, listed.known, listed.forgotten, listed.renamed,
        head=point.branch, created=created,
    )  # fmt: skip
    return Imported(result, Head(point.branch) if foreign.lists[key] else None)


def _import_tree(
    store: Store, foreign: Foreign, key: str, route: Route,
    count_tokens: Callable[[Message], tuple[str, int] | None], progress: Progress | None,
) -> Sequence[Imported]:  # fmt: skip
    def destination(line: SessionLine) -> Target | None:
        return route(None, line.session_id, len(foreign.sessions))

    lines = (NumberedLine(number, line) for number, line in enumerate(foreign.lines(key), 1))
    return import_lines(
        store, foreign.name, lines, destination, format=foreign.format, total=len(foreign.trees[key]["mapping"]),
        count_tokens=count_tokens, progress=progress,
    )  # fmt: skip


def sessions_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the ids of the first `MAX_NAMED` sessions of a file, to be listed in an error."""
    if not is_ours(path):
        return read_foreign(path).sessions[:MAX_NAMED]
    found = []
    for _, line in read_lines(path):
        if isinstance(line, SessionLine):
            found.append(line.session_id)
        if len(found) == MAX_NAMED:
            break
    return found
