"""Write sessions, or one branch, to an export file. The file appears whole or not at all."""

import base64
import hashlib
import io
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import IO, Any, NamedTuple

from typing_extensions import override

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import MAIN, After, Branch, Position, Record, Ref, Stretch
from shared_core.session.paths import Head, Path, read, walk
from shared_core.sharing.format import FORMAT, VERSION, encode
from shared_core.sharing.position_writer import PositionWriter
from shared_core.sharing.redact import Redact, redacted
from shared_core.store import Store
from shared_core.stores.sqlite.database_file import is_database

Progress = Callable[[int, int], None]
"""Called with how many messages are done and how many there are."""

LEFTOVER_SECONDS = 86_400
"""A file that another writer left unfinished is removed after a day."""

_LEFTOVER = re.compile(r"\..{1,50}\.[a-z0-9_]{8}\.part")

PAGE = 500
"""Messages read at a time."""

ATTEMPTS = 5
"""How often an export starts over because messages were forgotten while it ran."""


class Source(NamedTuple):
    """A session to export.

    Attributes:
        session: its key.
        user_id: its user.
        session_id: its name.
        head: what the exporting memory has checked out.
        branch: the only branch to write, with nothing that is not on its path. None: all of the session.
    """

    session: int
    user_id: str | None
    session_id: str
    head: Head = Head(MAIN)
    branch: str | None = None


class _SessionView(NamedTuple):
    """A session, or one of its branches, at one moment.

    Only forgetting can change what it holds later, and that raises the epoch.

    Attributes:
        source: the session.
        branches: the branches to write.
        refs: tags, stashes and moves to write, oldest first.
        messages: how many messages there are, before redaction.
        segments: how many segments the session has.
        last_seq: the number of the newest message.
        epoch: the session's.
        path: the path of the branch to write. None: all of the session is written.
    """

    source: Source
    branches: list[Branch]
    refs: list[Ref]
    messages: int
    segments: int
    last_seq: int
    epoch: int
    path: Path | None = None

    def holds(self, position: Position) -> bool:
        """Return whether a position is written."""
        return self.path is None or self.path.covers(position)

    def clipped(self, stretches: Iterable[Stretch]) -> list[Stretch]:
        """Return the parts of some stretches that are written."""
        if self.path is None:
            return list(stretches)
        ends = self.path.upto
        parts = (one._replace(upto=min(one.upto, ends[one.segment])) for one in stretches if one.segment in ends)
        return [part for part in parts if part.start <= part.upto]


class _PartFile(io.FileIO):
    """A file that is written under a temporary name. Errors show its final name."""

    def __init__(self, handle: int, path: str) -> None:
        super().__init__(handle, "wb")
        self._path = path

    @override
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise StoreError(f"{self._path!r} cannot be written: {error}; check the disk space") from error


@contextmanager
def atomically(path: str | os.PathLike[str], *, keep_mode: bool = True) -> Iterator[IO[bytes]]:
    """Write a file that appears when the block ends, whole and flushed to disk, or not at all.

    Only its owner can read it, as with the store. A database is never replaced.

    Args:
        path: the file to write; an existing file is replaced.
        keep_mode: keep the permissions of the file that is replaced.

    Raises:
        StoreError: the file cannot be written.
    """
    target = pathlib.Path(path)
    if target.is_dir():
        raise StoreError(f"{os.fspath(path)!r} is a folder; give the path of a file in it")
    if is_database(target):
        raise StoreError(f"{os.fspath(path)!r} is a database, which this would replace; choose another name")
    _remove_leftovers(target.parent)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.", suffix=".part")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StoreError(f"{os.fspath(path)!r} cannot be written: {reason}; check its folder") from error
    try:
        with io.BufferedWriter(_PartFile(handle, os.fspath(path))) as file:
            yield file
            try:
                file.flush()
                os.fsync(file.fileno())
                if keep_mode and target.exists():
                    os.chmod(name, target.stat().st_mode & 0o777)
                os.replace(name, target)
            except OSError as error:
                raise StoreError(f"{os.fspath(path)!r} cannot be written: {error}; check the disk space") from error
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _remove_leftovers(folder: pathlib.Path) -> None:
    """Remove what writers that were killed left in a folder long ago."""
    with suppress(OSError):
        for path in folder.glob(".*.part"):
            if _LEFTOVER.fullmatch(path.name):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                        path.unlink()


def write_sessions(
    store: Store,
    sources: Sequence[Source],
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    rules: Sequence[Redact] = (),
    progress: Progress | None = None,
) -> int:
    """Write sessions to a file, and return the number of messages. An older file is replaced only by a complete one.

    Raises:
        StoreError: the file cannot be written, or messages were forgotten during every attempt.
        ValueError: `vectors` and `rules` are combined, or a rule changed what identifies a message.
    """
    if vectors and rules:
        raise ValueError("vectors=True: a text can be guessed from its vector; leave out vectors or redact")
    for _ in range(ATTEMPTS):
        views = [_view(store, source) for source in sources]
        with suppress(_ForgottenError), atomically(path) as file:
            return _write(store, views, file, vectors=vectors, rules=rules, progress=progress)
    raise StoreError(
        f"{os.fspath(path)!r} was not written: messages were forgotten during all {ATTEMPTS} attempts; try again"
    )


class _ForgottenError(Exception):
    """Messages were forgotten while they were written."""


def _view(store: Store, source: Source) -> _SessionView:
    session = source.session
    while True:  # until nothing changed between the reads
        before = store.state(session)
        branches = store.branches(session)
        refs = sorted(
            (ref for kind in ("tag", "stash", "move") for ref in store.refs(session, kind)),
            key=lambda ref: ref.number,
        )
        stats = store.stats(session)
        after = store.state(session)
        if before == after:
            view = _SessionView(
                source, branches, refs, stats["messages"], stats["segments"], after.last_seq, after.epoch
            )
            return view if source.branch is None else _branch_view(store, view, source.branch)


def branch_end(branches: Sequence[Branch], name: str) -> Position:
    """Return where a branch ends; UnknownReferenceError if there is none of this name."""
    for branch in branches:
        if branch.name == name:
            return branch.head
    names = [branch.name for branch in branches]
    raise UnknownReferenceError(f"no branch {name!r}; branches: {', '.join(map(repr, names))}", candidates=names)


def _branch_view(store: Store, view: _SessionView, name: str) -> _SessionView:
    """Return a view of one branch: what is on its path, the tags there, and its own stashes and moves along it."""
    head, segment_of = branch_end(view.branches, name), partial(store.segment, view.source.session)
    path, writer = walk(head, segment_of), PositionWriter(store, view.source.session)

    def is_there(position: Position | None) -> bool:
        here = writer.normalized(position)
        return here is None or path.covers(here)

    refs = [
        ref
        for ref in view.refs
        if (ref.kind == "tag" or ref.name == name) and is_there(ref.position) and is_there(ref.base)
    ]
    messages = store.count(view.source.session, [span.stretch for span in path.spans])
    source = view.source._replace(head=Head(name))
    return view._replace(source=source, branches=[Branch(name, head)], refs=refs, messages=messages, path=path)


def _write(
    store: Store, views: Sequence[_SessionView], file: IO[bytes], *, vectors: bool, rules: Sequence[Redact],
    progress: Progress | None,
) -> int:  # fmt: skip
    total = sum(view.messages for view in views)
    header = {"format": FORMAT, "version": VERSION, "type": "header", "sessions": len(views), "messages": total}
    header |= ({"vectors": True} if vectors else {}) | ({"redacted": True} if rules else {})
    digest, lines, messages = hashlib.sha256(), 0, 0

    def put(line: Mapping[str, Any]) -> None:
        nonlocal lines, messages
        try:
            data = encode(line)
        except ValueError as error:
            raise StoreError(str(error)) from error
        digest.update(data)
        file.write(data)
        lines += 1
        messages += line["type"] == "message"

    put(header)
    done = 0
    for view in views:
        writer = _SessionWriter(store, view, vectors=vectors, rules=rules)
        for line in writer.lines():
            put(line)
            if progress is not None and writer.passed and line["type"] == "message":
                progress(done + writer.passed, total)
        done += view.messages
        if store.state(view.source.session).epoch != view.epoch:
            raise _ForgottenError
    if progress is not None:
        progress(total, total)
    end = {"type": "end", "lines": lines, "messages": messages, "sha256": digest.hexdigest()}
    file.write(encode(end))
    return messages


class _SessionWriter:
    """Yields the lines of one session."""

    def __init__(self, store: Store, view: _SessionView, *, vectors: bool, rules: Sequence[Redact]) -> None:
        self._store = store
        self._view = view
        self._session = view.source.session
        self._rules = rules
        spaces = store.spaces(self._session)[::-1] if vectors else []
        if view.path is not None:
            # The vector of a whole turn, marked by a "#", may stand for messages of another branch, too.
            spaces = [space for space in spaces if "#" not in space and self._has_vectors(space, view.path)]
        self._spaces = spaces
        self._writer = PositionWriter(store, self._session)
        self.passed = 0

    def _has_vectors(self, space: str, path: Path) -> bool:
        """Return whether any message of a path has a vector in a space."""
        records = read(self._store, self._session, path.spans)
        while page := [record.position for record in islice(records, PAGE)]:
            if next(self._store.vectors(self._session, space, page), None) is not None:
                return True
        return False

    def lines(self) -> Iterator[dict[str, Any]]:
        source = self._view.source
        whose = {} if source.user_id is None else {"user_id": source.user_id}
        spaces = {"spaces": self._spaces} if self._spaces else {}
        yield {"type": "session", "session_id": source.session_id, **whose, **spaces}
        if self._view.path is None:  # nobody knows which branch a forgotten message was on
            yield from self._forgotten()
        yield from self._messages()
        for branch in self._view.branches:
            yield from self._ref_line({"type": "branch", "name": branch.name}, at=branch.head)
        for ref in self._view.refs:
            yield from self._ref_lines(ref)
        if source.head.branch is not None:
            yield {"type": "head", "branch": source.head.branch}
        else:
            yield from self._ref_line({"type": "head"}, at=source.head.at)

    def _forgotten(self) -> Iterator[dict[str, Any]]:
        after: str | None = None
        while ids := self._store.forgotten(self._session, after, PAGE):
            yield {"type": "forgotten", "ids": ids}
            after = ids[-1]

    def _pages(self) -> Iterator[list[Record]]:
        """Yield the messages to write, in order of storing."""
        seq = 0
        while self.passed < self._view.messages and (records := self._store.find(self._session, After(seq, PAGE))):
            seq = records[-1].seq
            yield [one for one in records if one.seq <= self._view.last_seq and self._view.holds(one.position)]

    def _messages(self) -> Iterator[dict[str, Any]]:
        covers: dict[Position, list[Stretch]] = {}
        for position, stretch in self._store.covers(self._session, range(self._view.segments)):
            covers.setdefault(position, []).append(stretch)
        for records in self._pages():
            vectors = self._vectors([record.position for record in records])
            origins = self._origins(records)
            for record in records:
                self.passed += 1
                message = redacted(record.message, self._rules)
                if message is not None:
                    fields = _fields(message, record)
                    if record.picked_from in origins:
                        fields["picked_from"] = record.picked_from
                    stretches = self._view.clipped(covers.get(record.position, ()))
                    if stretches:
                        yield from self._covers(stretches, fields)
                    if record.position in vectors:
                        fields["vectors"] = vectors[record.position]
                    yield from self._writer.message_lines(record, fields)

    def _origins(self, records: Sequence[Record]) -> set[str | None]:
        """Return the ids that some messages were copied from and that may be written."""
        ids = {record.picked_from for record in records if record.picked_from is not None}
        if self._view.path is None or not ids:
            return {*ids}
        return {one.message.id for one in self._store.get(self._session, sorted(ids)) if self._view.holds(one.position)}

    def _covers(self, stretches: Sequence[Stretch], fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        covers = []
        for stretch in stretches:
            ends = [Position(stretch.segment, depth) for depth in (stretch.start, stretch.upto)]
            yield from self._writer.lines_upto(ends[1])
            covers.append([self._writer.ref(end) for end in ends])
        fields["covers"] = covers

    def _vectors(self, positions: Sequence[Position]) -> dict[Position, list[dict[str, str]]]:
        found: dict[Position, list[dict[str, str]]] = {}
        for space in self._spaces:
            for position, hash_, data in self._store.vectors(self._session, space, positions):
                value = {"space": space, "hash": hash_, "data": base64.b64encode(data).decode()}
                found.setdefault(position, []).append(value)
        return found

    def _ref_line(self, line: dict[str, Any], **positions: Position | None) -> Iterator[dict[str, Any]]:
        """Yield a line that refers to positions, after the lines of those positions."""
        for position in positions.values():
            yield from self._writer.lines_upto(position)
        yield line | {key: self._writer.ref(position) for key, position in positions.items()}

    def _ref_lines(self, ref: Ref) -> Iterator[dict[str, Any]]:
        about = {"note": ref.note} if ref.note else {}
        about["created_at"] = ref.created_at
        if ref.kind == "tag":
            yield from self._ref_line({"type": "tag", "name": ref.name, **about}, at=ref.position)
            return
        line = {"type": ref.kind, "branch": ref.name, **about}
        if ref.kind == "move" and ref.position is None:
            yield from self._ref_line(line | {"deleted": True}, base=ref.base)
            return
        yield from self._ref_line(line, base=ref.base, at=ref.position)


def _fields(message: Message, record: Record) -> dict[str, Any]:
    """Return the line of a message, with an empty list of parents."""
    fields: dict[str, Any] = {"type": "message", "id": message.id, "parents": [], "role": message.role}
    fields |= message.model_dump(exclude=_WRITTEN_APART, exclude_defaults=True)
    if message.created_at is not None:
        fields["created_at"] = message.created_at.isoformat()
    if message.turn_id != message.id:
        fields["turn_id"] = message.turn_id
    fields["turn_no"] = record.turn_no
    return fields


_WRITTEN_APART = {"id", "role", "created_at", "turn_id"}
