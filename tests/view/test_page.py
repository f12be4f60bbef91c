"""The page as a file, and the command that writes it."""

import base64
import hashlib
import json
import re
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.doors.cli.command import run
from shared_core.doors.view import gather, page, write_page
from shared_core.stores import SQLiteStore
from tests.view.pages import SETTINGS, store_a_tree


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A session with all that a tree may have."""
    store_a_tree(tmp_path / "chat.db")
    return tmp_path / "chat.db"


def inside(html: str, opening: str) -> str:
    found = re.search(re.escape(opening) + r"(.*?)</s", html, re.DOTALL)
    assert found is not None
    return found[1]


def embedded(html: str) -> Any:
    return json.loads(inside(html, '<script type="application/json" id="data">'))


@given(st.text(st.characters(), max_size=40))
def test_any_text_is_in_the_page_as_it_was_said(text: str) -> None:
    html = page({"text": text})
    assert embedded(html) == {"text": text}
    assert html.count("<") == page({}).count("<")
    html.encode()


def test_only_what_the_page_came_with_may_run() -> None:
    html = page({"session": "x"})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"script-src {digest(inside(html, '<script>'))}",
        f"style-src {digest(inside(html, '<style>'))}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", html)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\son\w+=", html)


def test_the_file_appears_whole_and_is_its_owners(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")
    assert write_page(store, out, **SETTINGS) == out
    assert out.read_text(encoding="utf-8") == page(gather(store, **SETTINGS))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    names = {path.name for path in tmp_path.iterdir()} - {"chat.db", "chat.db-reserve", "chat.db-wal", "chat.db-shm"}
    assert names == {"page.html"}


def test_a_path_that_cannot_hold_a_page_is_refused_before_anything_is_done(store: Path, tmp_path: Path) -> None:
    before = store.read_bytes()
    for end in ("", "-wal", "-shm", "-journal"):
        with pytest.raises(ValueError, match="is a file of a database"):
            write_page(f"sqlite:///{store}", tmp_path / "." / f"chat.db{end}")
    with closing(SQLiteStore(store)) as opened, pytest.raises(ValueError, match="is a file of a database"):
        write_page(opened, store)
    with pytest.raises(FileNotFoundError, match="no directory"):
        write_page(store, tmp_path / "no" / "page.html")
    with pytest.raises(IsADirectoryError, match="is a directory"):
        write_page(store, tmp_path)
    assert store.read_bytes() == before


# The command

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.delenv("INFINITE_MEMORY_STORE", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(("view", *args))
        return code, *capsys.readouterr()

    return call


def test_the_command_writes_the_page(store: Path, call: Call) -> None:
    code, out, err = call("--out", "page.html", "--questions", "all")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"page\.html \(0\.\d MiB\)\n", out)
    data = embedded(Path("page.html").read_text(encoding="utf-8"))
    assert data["questions"] is None
    assert len(data["reports"]) == sum(node["role"] == "user" for node in data["nodes"])


@pytest.mark.parametrize("there_is_a_browser", [True, False])
def test_without_a_file_the_page_is_opened(
    store: Path, call: Call, monkeypatch: pytest.MonkeyPatch, there_is_a_browser: bool
) -> None:
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return there_is_a_browser

    monkeypatch.setattr("webbrowser.open", open_page)
    code, out, err = call()
    path = Path(out.rpartition(" (")[0])
    assert (code, opened) == (0, [path.as_uri()])
    assert embedded(path.read_text(encoding="utf-8"))["nodes"]
    assert err == ("" if there_is_a_browser else f"infinite-memory: note: no browser was found; open {path} in yours\n")


def test_the_command_answers_with_the_data(store: Path, call: Call) -> None:
    code, out, err = call("--store", "chat.db", "--json", "--questions", "1", "--max-tokens", "900")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(json.dumps(gather(store, questions=1, max_tokens=900)))


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--out", "p.html", "--json"], "--json writes the page's data to stdout"),
        (["--out", "p.html", "--questions", "some"], "give a number, or all"),
        (["--out", "p.html", "--store", "none.db"], "no store at 'none.db'"),
        (["--out", "chat.db"], "is a file of a database"),
        (["--out", "no/p.html"], "infinite-memory: there is no directory 'no'\n"),
        (["--out", "."], "infinite-memory: '.' is a directory: give the name of a file\n"),
    ],
)
def test_a_wrong_argument_is_one_line(store: Path, call: Call, args: list[str], why: str) -> None:
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert why in err
    assert err.count("\n") == 1
    assert not Path("p.html").exists()
