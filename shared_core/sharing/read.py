"""Read a file to share line by line, checking that all of it is there and as it was written."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from shared_core.errors import InputFileError
from shared_core.sharing.format import (
    FORMAT,
    MAX_LINE,
    VERSION,
    EndLine,
    Header,
    Line,
    MessageLine,
    SessionLine,
    Wrong,
    parse,
    read_line,
    refused,
)
from shared_core.stores.sqlite.connection import is_database

__all__ = ["NumberedLine", "is_ours", "open_file", "read_header", "read_lines"]

BOM = b"\xef\xbb\xbf"
"""What some editors put before a text."""

COPY = "nothing was stored: ask for a new copy of the file"


class NumberedLine(NamedTuple):
    """A line and where it is, from 1."""

    number: int
    line: Line


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to read; InputFileError if that cannot be done."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputFileError(f"{os.fspath(path)!r} cannot be read ({reason}); expected a file to import") from None


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as one of this format does; what else is wrong with it is not looked at.

    Raises:
        InputFileError: it cannot be read, or is a database.
    """
    if is_database(Path(path)):
        raise InputFileError(f"{os.fspath(path)!r} is a database, not a file to import; export from it first")
    with open_file(path) as file:
        try:
            start = file.read(300)
        except OSError as error:  # a folder can be opened on some systems
            raise InputFileError(f"{os.fspath(path)!r} cannot be read ({error}); expected a file to import") from None
    return start.removeprefix(BOM).lstrip().replace(b" ", b"").startswith(f'{{"format":"{FORMAT}"'.encode())


def read_header(path: str | os.PathLike[str]) -> Header:
    """Return the first line of a file; errors are those of `read_lines`."""
    with open_file(path) as file:
        return _header(os.fspath(path), file.readline(MAX_LINE + 2).removeprefix(BOM))


def _header(name: str, data: bytes) -> Header:
    try:
        value = parse(data)
        version = value.get("version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise InputFileError(
                f"{name!r} was written by a newer version of this package (format {version}, known here: {VERSION}); "
                "upgrade infinite-memory to import it"
            )
        line = read_line(value)
    except Wrong as wrong:
        raise refused(name, 1, wrong) from None
    if not isinstance(line, Header):
        raise refused(name, 1, Wrong("is not the header of an infinite-memory file"))
    return line


def read_lines(path: str | os.PathLike[str]) -> Iterator[NumberedLine]:
    """Yield the lines of a file between header and end; what was yielded counts only if the last one has been.

    Raises:
        InputFileError: the file is not what it should be; the message says where, what is wrong and what to do.
    """
    name = os.fspath(path)
    with open_file(path) as file:
        first = file.readline(MAX_LINE + 2).removeprefix(BOM)
        header = _header(name, first)
        digest = hashlib.sha256(first)
        number, messages, sessions = 1, 0, 0
        end: EndLine | None = None
        while data := file.readline(MAX_LINE + 2):
            if end is not None and not data.strip():
                continue
            number += 1
            if end is not None:
                raise refused(name, number, Wrong("comes after the end"))
            if not data.endswith(b"\n") and len(data) <= MAX_LINE and not _is_whole(data):
                raise InputFileError(f"{name!r} breaks off in line {number}; {COPY}")
            try:
                line = read_line(parse(data))
            except Wrong as wrong:
                raise refused(name, number, wrong) from None
            if isinstance(line, EndLine):
                end = line
                continue
            digest.update(data)
            messages += isinstance(line, MessageLine)
            sessions += isinstance(line, SessionLine)
            if isinstance(line, Header):
                raise refused(name, number, Wrong("is a second header"))
            if not sessions:
                raise refused(name, number, Wrong("stands before the first session"))
            yield NumberedLine(number, line)
    _check_end(name, end, number, messages, digest.hexdigest())
    if sessions != header.sessions:
        raise InputFileError(f"{name!r} holds {sessions} sessions, but its header says {header.sessions}; {COPY}")


def _is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _check_end(name: str, end: EndLine | None, lines: int, messages: int, digest: str) -> None:
    if end is None:
        raise InputFileError(f"{name!r} breaks off after line {lines}: its end is missing; {COPY}")
    if end.lines != lines - 1:
        raise InputFileError(f"{name!r} holds {lines - 1} lines before its end, which says {end.lines}; {COPY}")
    if end.messages != messages:
        raise InputFileError(f"{name!r} holds {messages} messages, but its end says {end.messages}; {COPY}")
    if end.sha256 != digest:
        raise InputFileError(f"{name!r} is not what was written (its checksum differs); {COPY}")
