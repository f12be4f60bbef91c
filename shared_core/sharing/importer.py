"""Import a file, whatever wrote it, into sessions of a store: all of it or nothing."""

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
    MergeLine,
    MessageLine,
    MoveLine,
    SessionLine,
    StashLine,
    TagLine,
    Wrong,
    refused,
)
from shared_core.sharing.read import NumberedLine, is_ours, read_header, read_lines
from shared_core.sharing.readers import Foreign, read_foreign
from shared_core.sharing.session_merge import Adding, Counted, Naming, other_id
from shared_core.store import Store

__all__ = [
    "Destination",
    "ImportResult",
    "Imported",
    "InsertionPoint",
    "Listed",
    "Route",
    "Target",
    "add_list",
    "bring",
    "import_lines",
    "sessions_in",
]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What became of one session of a file.

    Attributes:
        format: what the file was: `"infinite-memory"`, `"chatgpt"`, `"openai"`, `"langchain"` or `"llama-index"`.
        session_id: where it went.
        user_id: whose that is.
        new: how many messages were stored.
        known: how many were stored already, with the same content in the same place.
        forgotten: how many were not stored because they had been forgotten here.
        remapped: of the new and known ones, those that have another id here, because something else is stored under
            theirs: id in the file -> id here.
        branches: branch in the file -> branch here; another name where a branch of that name leads elsewhere.
        head: the branch, or the message, where whoever wrote the file stood; None: not known.
        created: whether nothing had been in the session.
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
                self._store.keep(self._session, VectorRows(space, []))  # the one written to last is the one in use
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


@dataclass
class Listed:
    """What became of a list so far."""

    new: int = 0
    known: int = 0
    forgotten: int = 0
    renamed: dict[str, str] = field(default_factory=dict)


def add_list(
    store: Store, session: int, branch: str, messages: Sequence[Message], draft: Callable[[Message], Draft], *,
    at: Position | None = None, progress: Progress | None = None,
) -> Listed:  # fmt: skip
    """Add messages to a branch, inside a transaction of the store.

    One whose id is stored with other content gets another id, always the same for what it says after the same one.

    Args:
        store: where the session is.
        session: its key.
        branch: which branch.
        messages: with ids, all different.
        draft: returns a message ready to be stored.
        at: where to open the branch, which is new then.
        progress: told how many are done.
    """
    listed = Listed()
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
    for place, message in enumerate(messages):
        if message.role == "user" and place - start >= BATCH:
            yield messages[start:place]
            start = place
    if start < len(messages):
        yield messages[start:]


def _with_free_ids(store: Store, session: int, drafts: Sequence[Draft], listed: Listed) -> list[Draft]:
    """Return drafts under ids that nothing else is stored under."""
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


NAMED = 10
"""Sessions that an error names."""


class InsertionPoint(NamedTuple):
    """Where a list of messages goes: a branch; with `at`, one that is opened there."""

    branch: str = MAIN
    at: Position | None = None


Route = Callable[[str | None, str, int], Target | None]
"""Says where a session goes: its user and its id in the file (none: ""), and how many there are; None: nowhere."""


def bring(
    store: Store, path: str | os.PathLike[str], route: Route, draft: Callable[[Message], Draft], *,
    spot: InsertionPoint | None = None, progress: Progress | None = None,
) -> list[Imported]:  # fmt: skip
    """Bring the sessions of a file into a store.

    Args:
        store: where they go.
        path: a file of our own format, or of one that `read_foreign` knows.
        route: says where each goes.
        draft: returns a message ready to be stored, counted or not.
        spot: where on its session a list goes, which has no branches of its own; None: the end of `main`.
        progress: told how many messages are done and how many there are.

    Returns:
        One for each session that went somewhere.

    Raises:
        InputFileError: the file is not what it should be; the store is as it was.
    """

    def counted(message: Message) -> tuple[str, int] | None:
        done = draft(message)
        return None if done.counter is None or done.tokens is None else (done.counter, done.tokens)

    if is_ours(path):
        header = read_header(path)
        return import_lines(
            store, path, read_lines(path), lambda line: route(line.user_id, line.session_id, header.sessions),
            format="infinite-memory", total=header.messages, counted=counted, progress=progress,
        )  # fmt: skip
    foreign = read_foreign(path)
    with store.transaction():
        lists = [
            _bring_list(store, foreign, key, route, draft, spot or InsertionPoint(), progress) for key in foreign.lists
        ]
        trees = [_bring_tree(store, foreign, key, route, counted, progress) for key in foreign.trees]
    return [one for one in [*lists, *(one for some in trees for one in some)] if one is not None]


def _bring_list(
    store: Store, foreign: Foreign, key: str, route: Route, draft: Callable[[Message], Draft], spot: InsertionPoint,
    progress: Progress | None,
) -> Imported | None:  # fmt: skip
    target = route(None, key, len(foreign.sessions))
    if target is None:
        return None
    session = store.create_session(*target)
    created = not store.state(session).last_seq
    listed = add_list(store, session, spot.branch, foreign.lists[key], draft, at=spot.at, progress=progress)
    result = ImportResult(
        foreign.format, target.session_id, target.user_id, listed.new, listed.known, listed.forgotten, listed.renamed,
        head=spot.branch, created=created,
    )  # fmt: skip
    return Imported(result, Head(spot.branch) if foreign.lists[key] else None)


def _bring_tree(
    store: Store, foreign: Foreign, key: str, route: Route,
    counted: Callable[[Message], tuple[str, int] | None], progress: Progress | None,
) -> Sequence[Imported]:  # fmt: skip
    def destination(line: SessionLine) -> Target | None:
        return route(None, line.session_id, len(foreign.sessions))

    lines = (NumberedLine(number, line) for number, line in enumerate(foreign.lines(key), 1))
    return import_lines(
        store, foreign.name, lines, destination, format=foreign.format, total=len(foreign.trees[key]["mapping"]),
        counted=counted, progress=progress,
    )  # fmt: skip


def sessions_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the ids of the sessions of a file, for an error that has to name them; at most some."""
    if not is_ours(path):
        return read_foreign(path).sessions[:NAMED]
    found = []
    for _, line in read_lines(path):
        if isinstance(line, SessionLine):
            found.append(line.session_id)
        if len(found) == NAMED:
            break
    return found
