"""Write sessions to an export file, or a branch as Markdown: line by line, whole or not at all."""

import base64
import hashlib
import io
import os
import re
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC
from pathlib import Path
from typing import IO, Any, NamedTuple

from typing_extensions import override

from shared_core.errors import StoreError
from shared_core.messages import Message
from shared_core.paths import Head
from shared_core.records import MAIN, After, Branch, Position, Record, Ref, Segment, Stretch
from shared_core.redact import Redact, redacted
from shared_core.sharing.format import FORMAT, VERSION, encode
from shared_core.store import Store
from shared_core.stores.sqlite.connection import is_database

__all__ = ["Places", "Progress", "Source", "atomically", "markdown", "write_sessions"]

_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$-])")


def markdown(title: str, messages: Iterable[Message]) -> Iterator[str]:
    """Yield a document in parts: a heading for each message, with who and when (UTC), and its text in a fence.

    A fence is longer than any run of backticks in what it holds, so that no text ends it.
    """
    yield f"# {_plain(title)}\n"
    for message in messages:
        yield f"\n## {_heading(message)}\n"
        if message.content:
            yield _fenced("text", message.content)
        for call in message.tool_calls:
            yield f"\nCalls {_plain(call.name)}:\n"
            yield _fenced("json", call.arguments)
        if message.grounding is not None:
            passages = [message.grounding.header, *(item.text for item in message.grounding.items)]
            said = "\n\n".join(text for text in [*passages, message.grounding.footer] if text)
            if said:
                yield "\nFound for it:\n"
                yield _fenced("text", said)


def _heading(message: Message) -> str:
    who = message.role if message.name is None else f"{message.role} ({_plain(message.name)})"
    if message.created_at is None:
        return who
    with suppress(OverflowError):  # UTC has no year 0 and no year 10000
        return f"{who}, {message.created_at.astimezone(UTC):%Y-%m-%d %H:%M}"
    return f"{who}, {message.created_at.isoformat()}"


def _plain(text: str) -> str:
    """Return a text on one line, with what Markdown would take for more than text escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _fenced(kind: str, text: str) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"\n{fence}{kind}\n{lines}{'' if lines.endswith(chr(10)) else chr(10)}{fence}\n"


class _Run(NamedTuple):
    """Places without a message, one after the other in a segment: the first one's depth and number, and how many."""

    start: int
    number: int
    size: int


class Places:
    """Writes the places of one session.

    A message is named by its id. A merge, and a place whose message was forgotten or is not to be told, has a number.

    Args:
        store: where the session is.
        session: its key.
    """

    def __init__(self, store: Store, session: int) -> None:
        self._store = store
        self._session = session
        self._segments: dict[int, Segment] = {}
        self._written: dict[int, int] = {}
        self._newest: dict[int, str | int | None] = {}
        self._runs: dict[int, list[_Run]] = {}
        self._numbers = 0

    def segment(self, segment: int) -> Segment:
        """Return a segment whose parents are right; its tip may be old."""
        if segment not in self._segments:
            self._segments[segment] = self._store.segment(self._session, segment)
        return self._segments[segment]

    def before(self, place: Position) -> Position | None:
        """Return the place before one, by first parents; None: the root."""
        segment = self.segment(place.segment)
        return self.real(place._replace(depth=place.depth - 1) if place.depth > segment.start else segment.parent)

    def real(self, place: Position | None) -> Position | None:
        """Return a place as the place it stands for: an empty segment ends where its parent does; None: the root."""
        while place is not None:
            segment = self.segment(place.segment)
            if place.depth >= segment.start:
                return place
            place = segment.parent
        return None

    def message(self, record: Record, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the line of a message, after those of the places before it that have not been written yet."""
        segment, depth = record.position
        previous = self.before(record.position)
        yield from self.upto(previous)
        opens = segment not in self._written
        parent = self._newest[segment] if not opens else self.name(previous)
        fields["parents"] = [] if parent is None else [parent]
        if opens and self.segment(segment).parent is not None:
            fields["fork"] = True
        self._written[segment], self._newest[segment] = depth, record.message.id
        yield fields

    def upto(self, place: Position | None) -> Iterator[dict[str, Any]]:
        """Yield the lines of a place and of those before it, as far as they have not been written yet.

        What has no message here is written as gone: the messages of the session are written in order, so that a place
        that is passed over has none.
        """
        waiting = [place]
        while waiting:
            here = self.real(waiting[-1])
            if here is None or self._written.get(here.segment, -1) >= here.depth:
                waiting.pop()
                continue
            segment = self.segment(here.segment)
            if here.segment not in self._written:
                missing = [one for one in (segment.parent, segment.merged) if not self._is_written(one)]
                if missing:
                    waiting += missing[::-1]
                    continue
            if segment.base is not None and here.segment not in self._written:
                yield self._merge(segment)
                continue
            yield self._gone(here, segment)

    def name(self, place: Position | None) -> str | int | None:
        """Return how a place that has been written is named; None: the root."""
        here = self.real(place)
        if here is None:
            return None
        if self._written[here.segment] == here.depth:
            return self._newest[here.segment]
        runs = self._runs.get(here.segment, [])
        at = bisect_right(runs, here.depth, key=lambda run: run.start) - 1
        if at >= 0 and here.depth < runs[at].start + runs[at].size:
            return runs[at].number + here.depth - runs[at].start
        (record,) = self._store.get(self._session, [here])
        return record.message.id

    def _is_written(self, place: Position | None) -> bool:
        here = self.real(place)
        return here is None or self._written.get(here.segment, -1) >= here.depth

    def _merge(self, segment: Segment) -> dict[str, Any]:
        assert segment.base is not None
        parents = [self.name(segment.parent), self.name(segment.merged)]
        number = self._number(Position(segment.segment, segment.base), 1)
        line: dict[str, Any] = {"type": "merge", "place": number, "parents": parents}
        return line | ({"turn_shift": segment.turn_shift} if segment.turn_shift else {})

    def _gone(self, upto: Position, segment: Segment) -> dict[str, Any]:
        opens = upto.segment not in self._written
        first = segment.start if opens else self._written[upto.segment] + 1
        parent = self.name(segment.parent) if opens else self._newest[upto.segment]
        count = upto.depth - first + 1
        number = self._number(Position(upto.segment, first), count)
        line: dict[str, Any] = {"type": "gone", "place": number, "parents": [] if parent is None else [parent]}
        line |= {"count": count} if count > 1 else {}
        return line | ({"fork": True} if opens and segment.parent is not None else {})

    def _number(self, first: Position, count: int) -> int:
        number = self._numbers
        self._numbers += count
        self._runs.setdefault(first.segment, []).append(_Run(first.depth, number, count))
        self._written[first.segment] = first.depth + count - 1
        self._newest[first.segment] = number + count - 1
        return number


Progress = Callable[[int, int], None]
"""Called with how many messages are done and how many there are."""

PAGE = 500
"""Messages read at a time."""

ATTEMPTS = 5
"""How often an export begins anew because something was forgotten meanwhile."""


class Source(NamedTuple):
    """A session to be written: its key, whose and which it is, and where the one who writes stands."""

    session: int
    user_id: str | None
    session_id: str
    head: Head = Head(MAIN)


class _View(NamedTuple):
    """A session at one moment: nothing of it is changed later but by forgetting, which raises the epoch."""

    source: Source
    branches: list[Branch]
    refs: list[Ref]
    messages: int
    segments: int
    last_seq: int
    epoch: int


class _Part(io.FileIO):
    """A file that is being written under another name; an error names the one it is to have."""

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
    """Write a file that appears whole, with its bytes on the disk, when the block ends, or not at all.

    It is readable by its owner only, as the store is. A database is never replaced.

    Args:
        path: the file; an existing file is replaced.
        keep_mode: give it the permissions of the file that it replaces.

    Raises:
        StoreError: it cannot be written.
    """
    target = Path(path)
    if is_database(target):
        raise StoreError(f"{os.fspath(path)!r} is a database, which an export would replace; give another name")
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.", suffix=".part")
    except (OSError, ValueError) as error:
        raise StoreError(f"{os.fspath(path)!r} cannot be written: {error}; check the folder") from error
    try:
        with io.BufferedWriter(_Part(handle, os.fspath(path))) as file:
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


def write_sessions(
    store: Store,
    sources: Sequence[Source],
    path: str | os.PathLike[str],
    *,
    vectors: bool = False,
    rules: Sequence[Redact] = (),
    progress: Progress | None = None,
) -> int:
    """Write sessions to a file, which replaces an older one only when all is there; return the number of messages.

    Raises:
        StoreError: the file cannot be written, or messages are forgotten all the time.
        ValueError: vectors are to be told of what is not; or a rule is wrong.
    """
    if vectors and rules:
        raise ValueError("vectors=True: a text can be guessed from its vector; leave out vectors or redact")
    for _ in range(ATTEMPTS):
        views = [_view(store, source) for source in sources]
        with suppress(_ForgottenError), atomically(path) as file:
            return _write(store, views, file, vectors=vectors, rules=rules, progress=progress)
    raise StoreError(f"{os.fspath(path)!r} was not written: messages are being forgotten all the time; try again")


class _ForgottenError(Exception):
    """Something was forgotten while it was written."""


def _view(store: Store, source: Source) -> _View:
    session = source.session
    while True:
        before = store.state(session)
        branches = store.branches(session)
        refs = sorted(
            (ref for kind in ("tag", "stash", "move") for ref in store.refs(session, kind)),
            key=lambda ref: ref.number,
        )
        stats = store.stats(session)
        after = store.state(session)
        if before == after:
            return _View(source, branches, refs, stats["messages"], stats["segments"], after.last_seq, after.epoch)


def _write(
    store: Store, views: Sequence[_View], file: IO[bytes], *, vectors: bool, rules: Sequence[Redact],
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
    """The lines of one session."""

    def __init__(self, store: Store, view: _View, *, vectors: bool, rules: Sequence[Redact]) -> None:
        self._store = store
        self._view = view
        self._session = view.source.session
        self._rules = rules
        self._spaces = store.spaces(self._session)[::-1] if vectors else []
        self._places = Places(store, self._session)
        self.passed = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        source = self._view.source
        whose = {} if source.user_id is None else {"user_id": source.user_id}
        spaces = {"spaces": self._spaces} if self._spaces else {}
        yield {"type": "session", "session_id": source.session_id, **whose, **spaces}
        after: str | None = None
        while ids := self._store.forgotten(self._session, after, PAGE):
            yield {"type": "forgotten", "ids": ids}
            after = ids[-1]
        yield from self._messages()
        for branch in self._view.branches:
            yield from self._named({"type": "branch", "name": branch.name}, at=branch.head)
        for ref in self._view.refs:
            yield from self._ref(ref)
        if source.head.branch is not None:
            yield {"type": "head", "branch": source.head.branch}
        else:
            yield from self._named({"type": "head"}, at=source.head.at)

    def _messages(self) -> Iterator[dict[str, Any]]:
        covers: dict[Position, list[Stretch]] = {}
        for position, stretch in self._store.covers(self._session, range(self._view.segments)):
            covers.setdefault(position, []).append(stretch)
        seq = 0
        while records := self._store.find(self._session, After(seq, PAGE)):
            seq = records[-1].seq
            vectors = self._vectors([record.position for record in records])
            for record in records:
                if record.seq > self._view.last_seq:
                    return
                self.passed += 1
                told = redacted(record.message, self._rules)
                if told is not None:
                    fields = _fields(told, record)
                    if record.position in covers:
                        yield from self._covers(covers[record.position], fields)
                    if record.position in vectors:
                        fields["vectors"] = vectors[record.position]
                    yield from self._places.message(record, fields)

    def _covers(self, stretches: Sequence[Stretch], fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        covers = []
        for stretch in stretches:
            ends = [Position(stretch.segment, depth) for depth in (stretch.start, stretch.upto)]
            yield from self._places.upto(ends[1])
            covers.append([self._places.name(end) for end in ends])
        fields["covers"] = covers

    def _vectors(self, positions: Sequence[Position]) -> dict[Position, list[dict[str, str]]]:
        found: dict[Position, list[dict[str, str]]] = {}
        for space in self._spaces:
            for position, hash_, data in self._store.vectors(self._session, space, positions):
                value = {"space": space, "hash": hash_, "data": base64.b64encode(data).decode()}
                found.setdefault(position, []).append(value)
        return found

    def _named(self, line: dict[str, Any], **places: Position | None) -> Iterator[dict[str, Any]]:
        """Yield a line that names places, after those of the places."""
        for place in places.values():
            yield from self._places.upto(place)
        yield line | {key: self._places.name(place) for key, place in places.items()}

    def _ref(self, ref: Ref) -> Iterator[dict[str, Any]]:
        about = {"note": ref.note} if ref.note else {}
        about["created_at"] = ref.created_at
        if ref.kind == "tag":
            yield from self._named({"type": "tag", "name": ref.name, **about}, at=ref.position)
            return
        line = {"type": ref.kind, "branch": ref.name, **about}
        if ref.kind == "move" and ref.position is None:
            yield from self._named(line | {"deleted": True}, base=ref.base)
            return
        yield from self._named(line, base=ref.base, at=ref.position)


def _fields(message: Message, record: Record) -> dict[str, Any]:
    """Return the line of a message, without its parents."""
    fields: dict[str, Any] = {"type": "message", "id": message.id, "parents": [], "role": message.role}
    fields |= message.model_dump(exclude=_WRITTEN, exclude_defaults=True)
    if message.created_at is not None:
        fields["created_at"] = message.created_at.isoformat()
    if message.turn_id != message.id:
        fields["turn_id"] = message.turn_id
    fields["turn_no"] = record.turn_no
    if record.picked_from is not None:
        fields["picked_from"] = record.picked_from
    return fields


_WRITTEN = {"id", "role", "created_at", "turn_id"}
