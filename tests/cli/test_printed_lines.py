"""Lists on a terminal: one line each, never wider than it, and whole in a pipe."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run
from shared_core.doors.cli.printing import Lines, message_line

ID = "0123456789abcdef0123456789abcdef"
LONG = "The tokenizer never gets past a tab.\n" * 3

Call = Callable[..., list[str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command on a terminal of 60 columns, where chat.db holds two branches, a merge, a tag and a stash."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "60"}.items():
        monkeypatch.setenv(name, value)
    with InfiniteMemory("chat.db") as memory:
        memory.add([Message.user(LONG, id=ID), Message.assistant(LONG * 2, id="answer")])
        memory.fork("a branch\nwith a name " + "that is long " * 5)
        memory.add(Message.user("日本語の長い文です。" * 9, id="nihongo"))
        memory.checkout("main")
        memory.add(Message.user("x"))
        memory.stash(note=LONG)
        memory.add(Message.user(LONG))
        memory.merge("nihongo")
        memory.tag("a tag")

    def call(*args: str) -> list[str]:
        assert run(args) == 0
        return capsys.readouterr().out.splitlines()

    return call


LISTS = [
    ["log"], ["log", "--graph"], ["branches"], ["tag"], ["search", "tokenizer tab"], ["stash", "list"], ["reflog"],
    ["diff", ID],
]  # fmt: skip


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_lines_are_as_wide_as_the_terminal(call: Call, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cut, whole = call(*command), call(*command, "--full")
    assert max(map(cell_len, cut)) <= 60
    assert any(line.endswith("…") for line in cut)
    assert max(map(cell_len, whole)) > 60
    assert len(cut) == len(whole)
    monkeypatch.delenv("FORCE_COLOR")
    assert call(*command) == whole


def test_a_terminal_shows_what_fits_on_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with InfiniteMemory("chat.db") as memory:
        memory.add([Message.user(f"more {number}") for number in range(30)])
    monkeypatch.setenv("LINES", "16")
    log = call("log")
    assert log[0] == "… 22 earlier messages: --limit N shows more, --full everything"
    assert [line.rsplit(maxsplit=1)[-1] for line in log[1:]] == [str(number) for number in range(18, 30)]
    assert len([line for line in call("log", "--graph") if "*" in line]) == 12
    assert len(call("log", "--limit", "20")) == 20
    assert len(call("log", "--full")) == 34
    monkeypatch.delenv("FORCE_COLOR")
    assert len(call("log")) == 34


def test_a_terminal_shows_the_beginning_of_a_random_id_and_takes_it(call: Call) -> None:
    first = call("log")[0]
    assert f"  {ID[:8]}  The tokenizer" in first
    assert f"  {ID}  The tokenizer" in call("log", "--full")[0]
    assert call("log", "--branch", ID[:8]) == [first]
    assert call("diff", ID)[0] == f"both: up to {ID[:8]}"
    assert call("diff", ID, "--full")[0] == f"both: up to {ID}"


@given(st.text(), st.integers(2, 40))
def test_a_line_is_cut_to_the_cell_and_only_if_it_must_be(text: str, width: int) -> None:
    line = message_line(Message.user(text, id="m"))
    cut = Lines(width).cut(line)
    assert cell_len(cut) <= width
    assert cut == line if cell_len(line) <= width else line.startswith(cut.removesuffix("…").rstrip())
