"""Write sessions, or one branch, to an export file. The file appears whole or not at all."""

import base64
import hashlib
import io
import os
import pathlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, Any, NamedTuple

from typing_extensions import override

from shared_core.errors import StoreError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import MAIN, ROOT, Branch, Position, Record, Ref, Segment, Stretch
from shared_core.session.paths import Head, Path, read, walk
from shared_core.sharing.format import FORMAT, VERSION, encode
from shared_core.sharing.redact import Redact, redacted
from shared_core.sharing.transfer import Page, Tree, forgotten_of, pages_of, read_tree
from shared_core.store import Store
from shared_core.stores.sqlite.database_file import is_database

Progress = Callable[[int, int], None]
"""Called with how many messages are done and how many there are."""

LEFTOVER_SECONDS = 86_400
"""A file that another writer left unfinished is removed after a day."""

_LEFTOVER = re.compile(r"\..{1,50}\.[a-z0-9_]{8}\.part")

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
            return _write(views, file, vectors=vectors, rules=rules, progress=progress)
    raise StoreError(
        f"{os.fspath(path)!r} was not written: messages were forgotten during all {ATTEMPTS} attempts; try again"
    )


class _ForgottenError(Exception):
    """Messages were forgotten while they were written."""


def _view(store: Store, source: Source) -> "_View":
    tree = read_tree(store, source.session)
    refs = [ref for ref in tree.refs if ref.kind != "head"]
    if source.branch is not None:
        return _branch_view(store, source, replace(tree, refs=refs), source.branch)
    return _View(store, source, replace(tree, refs=refs), store.stats(source.session)["messages"])


def branch_end(branches: Sequence[Branch], name: str) -> Position:
    """Return where a branch ends; UnknownReferenceError if there is none of this name."""
    for branch in branches:
        if branch.name == name:
            return branch.head
    names = [branch.name for branch in branches]
    raise UnknownReferenceError(f"no branch {name!r}; branches: {', '.join(map(repr, names))}", candidates=names)


def _branch_view(store: Store, source: Source, tree: Tree, name: str) -> "_View":
    """Return a view of one branch: what is on its path, the tags there, and its own stashes and moves along it."""
    head = branch_end([Branch(*one) for one in tree.branches.items()], name)
    path = walk(head, tree.segments.__getitem__)

    def on_path(ref: Ref) -> Ref | None:
        if ref.kind in ("stash", "move") and ref.name != name:
            return None
        here = ref._replace(position=_normalized(ref.position, tree), base=_normalized(ref.base, tree))
        return here if all(one is None or path.covers(one) for one in (here.position, here.base)) else None

    segments = {ROOT.segment: Segment(ROOT.segment, None, ROOT.depth)}
    segments |= {number: tree.segments[number]._replace(tip=upto) for number, upto in sorted(path.upto.items())}
    refs = [here for ref in tree.refs if (here := on_path(ref)) is not None]
    messages = store.count(source.session, [span.stretch for span in path.spans])
    part = replace(tree, segments=segments, branches={name: head}, refs=refs)
    return _View(store, source._replace(head=Head(name)), part, messages, path)


def _normalized(position: Position | None, tree: Tree) -> Position | None:
    """Return the same position outside of empty segments: an empty segment ends where its parent ends."""
    while position is not None:
        segment = tree.segments[position.segment]
        if position.depth >= segment.start or segment.parent is None:
            return position
        position = segment.parent
    return None


def _write(
    views: Sequence["_View"], file: IO[bytes], *, vectors: bool, rules: Sequence[Redact], progress: Progress | None
) -> int:
    total = sum(view.messages for view in views)
    header = {"format": FORMAT, "version": VERSION, "type": "header", "sessions": len(views), "messages": total}
    header |= ({"vectors": True} if vectors else {}) | ({"redacted": True} if rules else {})
    digest, lines, messages = hashlib.sha256(), 0, 0
    for line in chain([header], *(view.lines(vectors=vectors, rules=rules) for view in views)):
        try:
            data = encode(line)
        except ValueError as error:
            raise StoreError(str(error)) from error
        digest.update(data)
        file.write(data)
        lines += 1
        if line["type"] == "message":
            messages += 1
            if progress is not None:
                progress(min(messages, total), total)
    if any(view.has_forgotten() for view in views):
        raise _ForgottenError
    if progress is not None:
        progress(total, total)
    file.write(encode({"type": "end", "lines": lines, "messages": messages, "sha256": digest.hexdigest()}))
    return messages


@dataclass(frozen=True, slots=True)
class _View:
    """A session, or one of its branches, at one moment.

    Only forgetting can change what it holds later, and that raises the epoch.

    Attributes:
        store: where the session is.
        source: the session.
        tree: what is written of its tree.
        messages: how many messages there are, before redaction.
        path: the path of the branch to write. None: all of the session is written.
    """

    store: Store
    source: Source
    tree: Tree
    messages: int
    path: Path | None = None

    def holds(self, position: Position) -> bool:
        """Return whether a position is written."""
        return self.path is None or self.path.covers(position)

    def has_forgotten(self) -> bool:
        """Return whether messages were forgotten since."""
        return self.store.state(self.source.session).epoch != self.tree.state.epoch

    def lines(self, *, vectors: bool, rules: Sequence[Redact]) -> Iterator[dict[str, Any]]:
        """Yield the lines of the session."""
        session, spaces = self.source.session, self._spaces() if vectors else []
        line: dict[str, Any] = {"type": "session", "session_id": self.source.session_id}
        line |= {} if self.source.user_id is None else {"user_id": self.source.user_id}
        yield line | ({"spaces": spaces} if spaces else {})
        if self.path is None:  # nobody knows which branch a forgotten message was on
            for ids in forgotten_of(self.store, session):
                yield {"type": "forgotten", "ids": ids}
        for _, segment in sorted(self.tree.segments.items()):
            yield _segment_line(segment)
        for page in pages_of(self.store, session, spaces, 0, self.tree.state.last_seq):
            yield from self._messages(page.only([one for one in page.records if self.holds(one.position)]), rules)
        for name, end in self.tree.branches.items():
            yield {"type": "branch", "name": name, "at": end}
        for ref in self.tree.refs:
            if ref.kind != "title" or not rules:  # rules are for messages alone
                yield _ref_line(ref)
        branch, at = self.source.head
        yield {"type": "head"} | ({"at": at} if branch is None else {"branch": branch})

    def _spaces(self) -> list[str]:
        """Return the vector spaces, the one in use last."""
        session = self.source.session
        spaces = self.store.spaces(session)[::-1]
        if self.path is None:
            return spaces
        # The vector of a whole turn, marked by a "#", may stand for messages of another branch, too.
        positions = [record.position for record in read(self.store, session, self.path.spans)]
        return [one for one in spaces if "#" not in one and any(self.store.vectors(session, one, positions))]

    def _messages(self, page: Page, rules: Sequence[Redact]) -> Iterator[dict[str, Any]]:
        origins, covers = self._origins(page.records), self._covers(page)
        vectors: dict[Position, list[dict[str, str]]] = {}
        for rows in page.vectors:
            for position, hash_, data in rows.rows:
                value = {"space": rows.space, "hash": hash_, "data": base64.b64encode(data).decode()}
                vectors.setdefault(position, []).append(value)
        for record in page.records:
            message = redacted(record.message, rules)
            if message is None:
                continue
            fields = _fields(message, record)
            if record.picked_from in origins:
                fields["picked_from"] = record.picked_from
            if record.position in covers:
                fields["covers"] = covers[record.position]
            if record.position in vectors:
                fields["vectors"] = vectors[record.position]
            yield fields

    def _covers(self, page: Page) -> dict[Position, list[Stretch]]:
        """Return what messages sum up, as far as it is written."""
        covers: dict[Position, list[Stretch]] = {}
        for position, stretch in page.covers:
            ends = self.path.upto if self.path is not None else {stretch.segment: stretch.upto}
            part = stretch._replace(upto=min(stretch.upto, ends.get(stretch.segment, -2)))
            if part.start <= part.upto:
                covers.setdefault(position, []).append(part)
        return covers

    def _origins(self, records: Sequence[Record]) -> set[str | None]:
        """Return the ids that some messages were copied from and that may be written."""
        ids = {record.picked_from for record in records if record.picked_from is not None}
        if self.path is None or not ids:
            return {*ids}
        return {one.message.id for one in self.store.get(self.source.session, sorted(ids)) if self.holds(one.position)}


def _segment_line(segment: Segment) -> dict[str, Any]:
    line = {"type": "segment", "segment": segment.segment, "tip": segment.tip}
    fields = {"parent": segment.parent, "merged": segment.merged, "base": segment.base}
    shift = {"turn_shift": segment.turn_shift} if segment.turn_shift else {}
    return line | {name: value for name, value in fields.items() if value is not None} | shift


def _ref_line(ref: Ref) -> dict[str, Any]:
    places = {"at": ref.position, "base": ref.base}
    line = {"type": "ref", "kind": ref.kind, "name": ref.name, **{k: v for k, v in places.items() if v is not None}}
    return line | ({"note": ref.note} if ref.note else {}) | {"created_at": ref.created_at}


def _fields(message: Message, record: Record) -> dict[str, Any]:
    """Return the line of a message."""
    fields: dict[str, Any] = {"type": "message", "id": message.id, "at": record.position, "role": message.role}
    fields |= message.model_dump(exclude=_WRITTEN_APART, exclude_defaults=True)
    if message.created_at is not None:
        fields["created_at"] = message.created_at.isoformat()
    if message.turn_id != message.id:
        fields["turn_id"] = message.turn_id
    fields["turn_no"] = record.turn_no
    if record.alone and message.role != "system":
        fields["alone"] = True
    return fields


_WRITTEN_APART = {"id", "role", "created_at", "turn_id"}
