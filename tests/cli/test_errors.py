"""What a user did wrong is said in one line, in the words of the command, and changes nothing."""

import io
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run

Call = Callable[..., tuple[int, str, str]]

PYTHON = re.compile(
    r"\b[a-z_]+=|\(\)|\bpass\b|Value error|Input should|Invalid value: |[a-z]_(tokens|id|k)\b|Errno|None|Callable"
)
"""What belongs to Python and to typer."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in a folder where chat.db holds two branches, and other files are what their names say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with InfiniteMemory("chat.db") as memory:
        memory.add([Message.user("one", id="aaaa"), Message.assistant("two", id="bbbb")])
        memory.fork("side")
        memory.add(Message.user("three", id="cccc"))
    Path("folder.db").mkdir()
    Path("junk.db").write_bytes(b"no database " * 100)
    Path("short.db").write_bytes(b"x")

    def call(*args: str) -> tuple[int, str, str]:
        code = run(args)
        return code, *capsys.readouterr()

    return call


WRONG = {
    "log --store folder.db": "folder.db' is a folder; give the path of a database file",
    "log --store junk.db": "is not a readable SQLite database (file is not a database)",
    "add x --store short.db": "is not a readable SQLite database (it is shorter than any database)",
    "add x --store none/a.db": "'none/a.db' cannot be created",
    "log --store redis://host/db": "knows SQLite and PostgreSQL; give a path, sqlite:///path, or postgresql://",
    "add x --branch none": "no branch or message 'none'; branches: 'main', 'side'",
    "search x --since tomorrow": "'tomorrow' is not a time: use ISO 8601",
    "forget --before 2026-13-01": "'2026-13-01' is not a time",
    "search x --top-k 0": "Invalid value for '--top-k' / '-n': expected at least 1",
    "explain x --max-tokens 0": "Invalid value for '--max-tokens': expected at least 1",
    "explain x --max-tokens many": "Invalid value for '--max-tokens': expected a whole number",
    "explain x --reserve-tokens -1": "Invalid value for '--reserve-tokens': expected at least 0",
    "explain x --max-tokens 100": "--max-tokens 100 is not larger than --reserve-tokens 500: nothing is left",
    "explain x --embedder none/such": "--embedder 'none/such': there is none of this name",
    "add x --session ''": "--session '': expected the name of the conversation; leave it out for 'default'",
    "add x --user ''": "--user '': expected the name of the user; leave it out if there is none",
    "explain x --max-tokens 502": "raise --max-tokens, lower --reserve-tokens, or shorten",
    "log --limit 0": "Invalid value for '--limit' / '-n': expected at least 1",
    "merge side --how sideways": "'sideways' is not one of 'auto', 'fast-forward', 'full', 'squash', 'three-way'",
    "merge side --how full --prompt x": "--how 'full' writes no answer: --prompt and --model are for 'squash' and",
    "fork side": "there is already a branch 'side'; choose a name other than 'main', 'side'",
    "fork ''": "'': a branch or a tag needs a name",
    "fork main@{1}": "'main@{1}': this is how an earlier end of a branch is written; choose another name",
    "rename main x": "'main' is where every memory begins and cannot be renamed",
    "delete-branch main": "'main' is where every memory begins and cannot be deleted",
    "stash pop": "there is no stash 0: nothing is stashed",
    "cherry-pick none": "no branch or message 'none'",
    "export x.jsonl --vectors --no-grounding": "--vectors: a text can be guessed from its vector; leave out --vec",
    "view --out chat.db": "'chat.db' is a file of a database: choose another file for the page",
    "forget aaaa --all": "choose what to forget: use exactly one of ID, --before, --all and --all-sessions",
    "--store chat.db log": "No such option: --store (options follow the command; see --help)",
    "stats --user ann": "stats counts all conversations: status counts one, and sessions lists a user's",
    "restore junk.db --yes": "'junk.db' is no backup, and nothing was restored; an export is brought in with import",
    "frk x": "No such command 'frk'. Did you mean 'fork'?",
}


@pytest.mark.parametrize(("line", "expected"), WRONG.items())
def test_a_mistake_is_one_line_in_the_words_of_the_command(call: Call, line: str, expected: str) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    code, out, err = call(*[word.strip("'") for word in line.split()])
    assert (code, out) == (2, "")
    assert expected in err
    assert (err.startswith("infinite-memory: "), err.count("\n")) == (True, 1)
    assert not PYTHON.search(err), err
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


def test_ctrl_c_says_that_the_command_was_interrupted(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InfiniteMemory, "log", interrupt)
    assert call("log", "--graph") == (130, "", "infinite-memory: interrupted\n")
    monkeypatch.undo()


def test_ctrl_c_at_the_question_forgets_nothing(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def readline(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    code, out, err = call("forget", "--all")
    assert (code, out) == (1, "")
    assert err.endswith("Forget for good? [y/N] \ninfinite-memory: nothing was forgotten\n")
    assert "one" in call("log")[1]


def test_a_store_that_is_locked_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    other = sqlite3.connect("chat.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("shared_core.stores.sqlite.connection._BUSY_SECONDS", 0.01)
    try:
        code, out, err = call("add", "x")
    finally:
        other.close()
    assert (code, out, err.count("\n")) == (2, "", 1)
