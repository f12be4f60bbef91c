"""docs/cli.md: its commands run in their order and answer as it says, and it names every command."""

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_core.doors.cli.command import run
from shared_core.doors.cli.command_list import COMMANDS
from tests.support.documents import ROOT

DOCUMENT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
TYPED = re.compile(r"[\w-]+> (.*)")
"""What a user types in a chat."""
CHANCE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|\b[0-9a-f]{8}\b|\b\d\.\d s\b")
"""Times, seconds and random IDs, which are other ones in each run."""


def calls() -> Iterator[tuple[str, list[str]]]:
    """Every command line of the document, and the lines that follow it."""
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *answer = part.splitlines()
            yield line, answer


def comparable(lines: list[str]) -> list[str]:
    return [CHANCE.sub(lambda found: "." * len(found[0].strip()), line).strip() for line in lines]


def test_every_command_answers_as_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}.items():
        monkeypatch.setenv(name, value)
    for name in ("INFINITE_MEMORY_STORE", "INFINITE_MEMORY_MODEL"):
        monkeypatch.delenv(name, raising=False)
    (file,) = re.findall(r"```json\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    Path("trip.json").write_text(file, encoding="utf-8")
    for line, answer in calls():
        piped, _, command = line.rpartition("| ")
        typed = [found[1] for found in map(TYPED.fullmatch, answer) if found]
        stdin = "\n".join([*shlex.split(piped)[1:], *typed])
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        name, *args = shlex.split(command, comments=True)
        assert (name, run(args)) == ("infinite-memory", 0), line
        out, err = capsys.readouterr()
        shown = [said for said in answer if not TYPED.fullmatch(said)]
        given = (err if typed else "").splitlines() + out.splitlines()
        assert not shown or comparable(given) == comparable(shown), line


def test_the_document_names_every_command() -> None:
    missing = [name for name in COMMANDS if not re.search(rf"(infinite-memory |`){name}\b", DOCUMENT)]
    assert missing == []
