"""The help of every command, the version, and what a shell completes."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from shared_core.doors.cli.command import app, run
from shared_core.doors.cli.command_list import COMMANDS
from tests.support.documents import ROOT

GROUP: Any = get_command(app)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test in a directory of its own, with help for 80 columns."""
    for name in ("INFINITE_MEMORY_STORE", "INFINITE_MEMORY_MODEL", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return tmp_path


def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([], ["-h"], ["--help"]):
        assert run(args) == 0
        listed = capsys.readouterr().out.partition("\nEveryday:\n")[2]
        assert re.findall(r"^(\w+):$", listed, flags=re.MULTILINE) == ["Branches", "Store", "Servers"]
        for name, (_, summary) in COMMANDS.items():
            assert re.search(rf"^  {name} +{re.escape(summary)}$", listed, flags=re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_fits_80_columns_and_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "-h"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines() if line not in examples(text))
    assert text.split("\n\n")[1].replace("\n ", "") == f"  {COMMANDS[name][1]}"
    assert examples(text)
    assert all(f"infinite-memory {name}" in line for line in examples(text))
    assert not re.search(r"<\w+( range)?>", text.partition("Options:")[2].replace("<str>", "")), (
        "an option needs a metavar"
    )


def examples(text: str) -> list[str]:
    """The command lines below the word Example or Examples."""
    return re.split(r"\n\n", re.split(r"\n  Examples?:\n", text)[1])[0].splitlines()


def test_an_example_is_a_valid_command_line(capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests) -> None:
    parents = GROUP.make_context("infinite-memory", [], resilient_parsing=True)
    for name in COMMANDS:
        run([name, "-h"])
        for line in examples(capsys.readouterr().out):
            with subtests.test(name=name, line=line):
                first, *words = shlex.split(line.partition("infinite-memory ")[2].partition(" >> ")[0])
                command = GROUP.get_command(parents, first)
                with command.make_context(name, words, parent=parents) as context:
                    assert not context.args


@pytest.mark.parametrize(
    ("line", "most", "without"),
    [
        ("--help", 10, {"numpy", "pydantic", "rich"}),
        ("log --help", 160, {"shared_core.doors.view", "shared_core.evaluation", "starlette"}),
    ],
)
def test_help_imports_next_to_nothing(line: str, most: int, without: set[str]) -> None:
    """Seconds differ between machines; what is imported does not."""
    code = "import sys; from shared_core.doors.cli.command import run; run(sys.argv[1:]); print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code, *line.split()], capture_output=True, text=True, cwd=ROOT, check=True
    )
    modules = ran.stdout.splitlines()[-1].split()
    assert sum(name.startswith("shared_core") for name in modules) <= most
    assert not without & {*modules}


# Completion


def test_a_shell_completes_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_INFINITE_MEMORY_COMPLETE", "complete_bash"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_WORDS", "infinite-memory fo")
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == ["forget", "fork"]
