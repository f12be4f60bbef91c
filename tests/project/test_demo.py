"""`make demo` shows three answers, each on one screen with the line that was found marked, and then a merge."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from shared_core.doors.cli.command import run
from shared_core.tokens import tiktoken
from tests.support.documents import ROOT

SCREEN = 24
COLUMNS = 80
ANSWERS = ["4093", "3,200", "trumpet"]
MARKED = re.compile(r"^>.*\n(?: {20}.*\n)*", re.MULTILINE)
TOOLS = {"import", "explain", "fork", "add", "merge", "log"}

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def commands(store: Path) -> list[list[str]]:
    """The arguments of each command that `make demo` runs, as make prints them."""
    dry = ["make", "--dry-run", "--always-make", "demo", f"DEMO_STORE={store}"]
    printed = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = [shlex.split(line) for line in printed.splitlines() if "/bin/infinite-memory" in line]
    assert {arguments[1] for arguments in lines} == TOOLS
    return [arguments[1:] for arguments in lines]


@needs_make
@pytest.mark.parametrize("counter", ["exact", "conservative"])
def test_the_demo(
    counter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if counter == "conservative":  # on a machine without a network, tiktoken has no table
        monkeypatch.setattr(tiktoken, "_encoding", lambda name: None)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("INFINITE_MEMORY_STORE", str(tmp_path / "chat.db"))
    shown: dict[str, list[str]] = {}
    for arguments in commands(tmp_path / "chat.db"):
        assert run(arguments) == 0
        shown.setdefault(arguments[0], []).append(capsys.readouterr().out)
    assert len(shown["explain"]) == len(ANSWERS)
    for answer, said in zip(ANSWERS, shown["explain"], strict=True):
        lines = said.splitlines()
        assert len(lines) <= SCREEN - 3, "make prints the command, and the shell its prompt"
        assert all(len(line) <= COLUMNS for line in lines)
        marked = " ".join(MARKED.findall(said)).split()
        assert answer in " ".join(marked)
    (tree,) = shown["log"]
    assert len(tree.splitlines()) <= SCREEN - 3
    assert "merge" in tree.splitlines()[0]
    assert "(azores)" in tree
