"""Zip archives: read in memory, within bounds, and refused in one line where they are broken or dangerous."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, import_sessions
from shared_core.errors import InfiniteMemoryError, InputFileError
from shared_core.sharing.readers import archive, read_foreign
from shared_core.stores import SQLiteStore

DATA = Path(__file__).parent / "data"
CHATS = (DATA / "chatgpt.json").read_bytes()


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.zip"


def test_the_chats_of_an_export_are_found_among_its_files(path: Path) -> None:
    zipped(path, {
        "chat.html": b"<html>", "user.json": b'{"id": "u", "email": "a@b.c"}', "message_feedback.json": b"[]",
        "../../conversations.json": b"\xef\xbb\xbf" + CHATS, "file-1.png": b"\x89PNG",
    })  # fmt: skip
    with InfiniteMemory(session_id="mine") as memory:
        assert memory.import_file(path, session="c2").new == 1
    assert [entry.id for entry in read_foreign(path).entries] == ["c1", "c2"]
    assert sorted(one.name for one in path.parent.iterdir()) == ["export.zip"]


def test_what_was_attached_to_a_chat_may_be_anything(path: Path) -> None:
    attached = [b"", b"{not json", b'{"a": "\xe9"}', b"<html>", CHATS, b"[" + b"0," * 2**20 + b"0]", b"[" * 5000]
    for folder in ("", "export/", "../"):
        files = {f"{folder}file-{number}-my-conversations.json": data for number, data in enumerate(attached)}
        zipped(path, {
            "__MACOSX/._conversations.json": b"\x00\x05\x16\x07\xff", f"{folder}._conversations.json": b"\x00\xff",
            f"{folder}conversations.json": CHATS, **files,
        })  # fmt: skip
        assert [entry.id for entry in read_foreign(path).entries] == ["c1", "c2"], folder


def bomb() -> bytes:
    return b'[{"mapping": {}}' + b" " * 100 * 2**20 + b"]"


def test_a_zip_bomb_is_not_unpacked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(path, {"conversations.json": bomb()})
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # nothing may be read
    with pytest.raises(InputFileError, match=r"'conversations.json'"):
        read_foreign(path)


def test_a_size_that_is_too_small_does_not_help(path: Path) -> None:
    """The size in the directory is a lie: no more than it says is unpacked, and the checksum then differs."""
    zipped(path, {"conversations.json": CHATS})
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (20).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(InputFileError, match=r"is a damaged zip archive \(Bad CRC-32"):
        read_foreign(path)


WITHOUT_CHATS: list[tuple[dict[str, bytes], str]] = [
    ({}, "holds no JSON file among its 0 files; expected an export of ChatGPT, Claude or Gemini"),
    ({"a.png": b""}, "holds no JSON file among its 1 files"),
    ({"My Activity/Gemini Apps/MyActivity.html": b""}, "as HTML; in Google Takeout, choose the format JSON"),
    (
        {"user.json": b"{}", "x.json": b"[]"},
        "holds no conversations in its JSON files 'user.json', 'x.json'; expected",
    ),
    ({"a.json": CHATS, "b.json": (DATA / "claude.json").read_bytes()}, "in several formats; choose one of chatgpt"),
    ({"a.json": b"\xff"}, "holds 'a.json', which is not text in UTF-8 (byte 0)"),
    ({"a.json": b"[" * 100_000}, "nested too deeply"),
]


def test_an_archive_without_chats_is_refused(path: Path, subtests: pytest.Subtests) -> None:
    for files, expected in WITHOUT_CHATS:
        with subtests.test(expected):
            with pytest.raises(InputFileError) as caught:
                read_foreign(zipped(path, files))
            assert expected in str(caught.value)
            assert str(caught.value).startswith(f"'{path}")


def test_what_is_too_much_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zipped(path, {"a.json": CHATS, "b.png": b""})
    monkeypatch.setattr(archive, "MAX_BYTES", len(CHATS) - 1)
    with pytest.raises(
        InputFileError, match=f"holds {len(CHATS):,} bytes of JSON; at most {len(CHATS) - 1:,} are read"
    ):
        read_foreign(path)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 1)
    with pytest.raises(InputFileError, match="holds 2 files; at most 1 are read"):
        read_foreign(path)


def test_another_kind_of_file_is_refused(path: Path) -> None:
    for data, expected in (
        (b"\x1f\x8b\x08\x00", "is compressed with gzip; unpack it and import the JSON file inside"),
        (b"<!DOCTYPE html><html>", "is a web page; choose JSON when you export"),
        (b"PK\x03\x04", "is a damaged zip archive (File is not a zip file); download it again"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputFileError) as caught:
            read_foreign(path)
        assert str(caught.value).startswith(f"'{path}' {expected}")


@given(data=st.data())
def test_a_damaged_archive_is_imported_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = zipped(tmp_path_factory.getbasetemp() / "damaged.zip", {"conversations.json": CHATS})
    whole = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(4, len(whole))) :]
    else:
        for at in data.draw(st.lists(st.integers(4, len(whole) - 1), min_size=1, max_size=4)):
            whole[at] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    store = SQLiteStore(":memory:")
    try:
        assert [one.new for one in import_sessions(store, path)] == [4, 1]
    except (InfiniteMemoryError, ValueError):
        assert store.sessions() == []
    finally:
        store.close()
