"""Read the JSON files of a zip archive. Nothing is written to disk, and every quantity is bounded."""

import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from shared_core.errors import InputFileError
from shared_core.sharing.format import BOM, LineError, open_file

MAX_MEMBERS = 100_000
"""The number of files in an archive. ChatGPT adds every picture of every chat."""

MAX_BYTES = 2 * 2**30
"""The size of all JSON files that are read, unpacked. Parsed JSON takes several times as much memory."""

MAX_RATIO = 200
"""How much a file may grow when it is unpacked. JSON grows five to fifteen times, a zip bomb a thousand times."""

RATIO_FROM = 2**20
"""Smaller files may grow as they like: a few repeated lines compress well, and do no harm."""

SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")
"""How a zip archive begins: with its first file, or, if it is empty, with its end."""

EXPORTED = re.compile(r"(?:.*/)?(?:conversations(?:-\d+)?|MyActivity)\.json", re.IGNORECASE)
"""The names of the files that hold chats. Others, such as what a user attached to a chat, may be anything."""

OF_MACOS = re.compile(r"__MACOSX/|(?:.*/)?\._")
"""How the files begin that macOS adds to an archive: they have the names of others, and hold no text."""

GZIP = b"\x1f\x8b"
"""How a file begins that gzip has compressed, such as a `.tgz` of Google Takeout."""


class Member(NamedTuple):
    """A JSON file of an archive. The name is used in messages only; it is never a path on disk."""

    name: str
    text: str


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like a zip archive; InputFileError if it cannot be read, or is another archive."""
    with open_file(path) as file:
        try:
            start = file.read(4)
        except OSError as error:  # a folder can be opened on some systems
            raise InputFileError(f"{os.fspath(path)!r} cannot be read ({error}); expected a file to import") from None
    if start.startswith(GZIP):
        raise InputFileError(f"{os.fspath(path)!r} is compressed with gzip; unpack it and import the JSON file inside")
    return start in SIGNATURES


def json_members(path: str | os.PathLike[str]) -> Iterator[Member]:
    """Yield the JSON files of an archive that may hold chats, in order of their names.

    These are the files with the names that exports have, or, if there are none, all JSON files.

    Raises:
        InputFileError: the archive is damaged, encrypted or too large, or holds no JSON file.
    """
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            for info in _wanted(archive):
                yield Member(info.filename, _text(archive, info))
    except LineError as error:
        raise InputFileError(f"{name!r} {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        raise InputFileError(f"{name!r} is a damaged zip archive ({error}); download it again") from None


def _wanted(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the JSON files, once it is sure that they can be unpacked."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise LineError(f"holds {len(members):,} files; at most {MAX_MEMBERS:,} are read")
    json_files = [one for one in members if one.filename.lower().endswith(".json") and not OF_MACOS.match(one.filename)]
    exported = [one for one in json_files if EXPORTED.fullmatch(one.filename)]
    found = sorted(exported or json_files, key=lambda one: one.filename)
    if not found:
        raise LineError(_without_json([one.filename for one in members]))
    if any(one.flag_bits & 1 for one in found):
        raise LineError("is encrypted; unpack it with its password and import the JSON file inside")
    if (size := sum(one.file_size for one in found)) > MAX_BYTES:
        raise LineError(f"holds {size:,} bytes of JSON; at most {MAX_BYTES:,} are read")
    for one in found:
        if one.file_size > RATIO_FROM and one.file_size > MAX_RATIO * one.compress_size:
            grown = one.file_size // max(one.compress_size, 1)
            raise LineError(f"holds {one.filename!r}, which is {grown:,} times its packed size, as in a zip bomb")
    return found


def _without_json(names: list[str]) -> str:
    if any(name.endswith("MyActivity.html") for name in names):
        return "holds Google's activity as HTML; in Google Takeout, choose the format JSON for My Activity"
    return f"holds no JSON file among its {len(names):,} files; expected an export of ChatGPT, Claude or Gemini"


def _text(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    with archive.open(info) as file:
        # zipfile stops at the size that the archive states, so what was checked is what is unpacked.
        data = file.read(info.file_size + 1)
    try:
        return data.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        raise LineError(f"holds {info.filename!r}, which is not text in UTF-8 (byte {error.start})") from None
