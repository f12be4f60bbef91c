"""Read an export file line by line, and verify that it is complete and unchanged."""

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
    LineError,
    MessageLine,
    SessionLine,
    file_error,
    parse,
    read_line,
)
from shared_core.stores.sqlite.connection import is_database

__all__ = ["NumberedLine", "is_ours", "open_file", "read_header", "read_lines"]

BOM = b"\xef\xbb\xbf"
"""The byte order mark that some editors put at the beginning of a text."""

ADVICE = "nothing was stored: ask for a new copy of the file"


class NumberedLine(NamedTuple):
    """A line and its number in the file, from 1."""

    number: int
    line: Line


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading; InputFileError if that fails."""
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputFileError(f"{os.fspath(path)!r} cannot be read ({reason}); expected a file to import") from None


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like an export file. Only the beginning is read.

    Raises:
        InputFileError: the file cannot be read, or is a database.
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
    """Return the first line of an export file. Errors are those of `read_lines`."""
    with open_file(path) as file:
        return _header(os.fspath(path), file.readline(MAX_LINE + 2).removeprefix(BOM))


def _header(name: str, data: bytes) -> Header:
    try:
        value = parse(data)
        version = value.get("version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise InputFileError(
                f"{name!r} was written by a newer version of this package (format {version}, not {VERSION}); "
                "upgrade infinite-memory to import it"
            )
        line = read_line(value)
    except LineError as error:
        raise file_error(name, 1, error) from None
    if not isinstance(line, Header):
        raise file_error(name, 1, LineError("is not the header of an infinite-memory file"))
    return line


def read_lines(path: str | os.PathLike[str]) -> Iterator[NumberedLine]:
    """Yield the lines between header and end. They may be used only after the last one has been yielded.

    The checksum is in the last line, so a damaged file may show itself only there.

    Raises:
        InputFileError: the file is invalid. The error says in which line, why, and what to do.
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
                raise file_error(name, number, LineError("comes after the end"))
            if not data.endswith(b"\n") and len(data) <= MAX_LINE and not _is_whole(data):
                raise InputFileError(f"{name!r} breaks off in line {number}; {ADVICE}")
            try:
                line = read_line(parse(data))
            except LineError as error:
                raise file_error(name, number, error) from None
            if isinstance(line, EndLine):
                end = line
                continue
            digest.update(data)
            messages += isinstance(line, MessageLine)
            sessions += isinstance(line, SessionLine)
            if isinstance(line, Header):
                raise file_error(name, number, LineError("is a second header"))
            if not sessions:
                raise file_error(name, number, LineError("comes before the first session"))
            yield NumberedLine(number, line)
    _check_end(name, end, number, messages, digest.hexdigest())
    if sessions != header.sessions:
        raise InputFileError(f"{name!r} holds {sessions} sessions, but its header says {header.sessions}; {ADVICE}")


def _is_whole(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _check_end(name: str, end: EndLine | None, lines: int, messages: int, digest: str) -> None:
    if end is None:
        raise InputFileError(f"{name!r} breaks off after line {lines}: its end is missing; {ADVICE}")
    if end.lines != lines - 1:
        raise InputFileError(f"{name!r} holds {lines - 1} lines before its end, which says {end.lines}; {ADVICE}")
    if end.messages != messages:
        raise InputFileError(f"{name!r} holds {messages} messages, but its end says {end.messages}; {ADVICE}")
    if end.sha256 != digest:
        raise InputFileError(f"{name!r} was changed after it was written (its checksum differs); {ADVICE}")
