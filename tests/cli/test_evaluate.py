"""`infinite-memory evaluate`: its tables and JSON, its mistakes in one line, and its page in the documentation."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run
from tests.support.documents import ROOT

Call = Callable[..., tuple[int, str, str]]

MASKED = re.compile(r"\d[\d,.]*")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in a folder where chat.db holds two branches, and mine.jsonl a question about each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFINITE_MEMORY_STORE", raising=False)
    with InfiniteMemory("chat.db") as memory:
        memory.add([Message.user("My locker code is 4093.", id="m1"), Message.assistant("Noted.", id="m2")])
        memory.fork("side")
        memory.add(Message.user("We moved to Porto.", id="s1"))
    asked = [
        {"question": "What is my locker code?", "ids": ["m1"]},
        {"question": "What did you say?", "text": "noted", "at": "m2"},
    ]
    Path("mine.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))

    def call(*args: str) -> tuple[int, str, str]:
        code = run(["evaluate", *args])
        return code, *capsys.readouterr()

    return call


def test_tables_for_people(call: Call) -> None:
    before = Path("chat.db").read_bytes()
    code, out, err = call("mine.jsonl", "--try", "recall=precise", "--embedder", "static")
    assert (code, err) == (0, "")
    first, *lines = out.splitlines()
    assert first == "2 questions to 1 session of 2 messages; prompts of at most 3,596 tokens"
    # The window holds the whole conversation: nothing is recalled, and the prompt is the same in both settings.
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[3:5]]
    assert [row[2:5] for row in cells] == [["100.0 [100.0, 100.0]", more, "0"] for more in ("", "+0.0 [+0.0, +0.0]")]
    assert "| chit-chat         |    20 |  0.0, 0 |         0.0, 0 |" in lines
    few = "Intervals are 95 %, of 2 resampled questions, so few that they are rough."
    assert out.endswith(f"\n{few} An excerpt counts as its message.\n")
    assert Path("chat.db").read_bytes() == before


def test_json_for_programs(call: Call) -> None:
    code, out, err = call("mine.jsonl", "--json", "--with", "embedder=words")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["settings"][0]["all"]["evidence"]["mean"] == 1
    assert found["settings"][0]["embedder"] is None
    assert [row["where"] for row in found["settings"][0]["rows"][:2]] == ["line 1", "line 2"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "Missing argument 'FILE'. (see --help)"),
        ("none.jsonl", "'none.jsonl' cannot be read: No such file or directory"),
        (
            "--store none.db mine.jsonl",
            "no store at 'none.db': create one with infinite-memory chat, add or",
        ),
        ("mine.jsonl --session other", "line 1: no session 'other' with a branch 'main'"),
        ("mine.jsonl --try recal=precise", "did you mean 'recall'?"),
        ("mine.jsonl --try clock=1", "clock=1: expected a function, () -> datetime"),
        ("mine.jsonl --try top_k=many", "--top-k 'many': expected a whole number of at least 0"),
        ("mine.jsonl --try recall=x", "recall='x': choose one of 'balanced', 'thorough', 'precise'"),
        ("mine.jsonl --try store=other.db", "--try 'store=…': no setting of the library"),
        ("mine.jsonl --with session_id=x", "--with 'session_id=…': no setting of the library"),
        ("mine.jsonl --try precise", "--try 'precise': expected NAME=VALUE, such as recall=precise"),
        ("mine.jsonl --try recall_tokens=2.5", "recall_tokens=2.5: expected a number from 0 to 1"),
        ("mine.jsonl --try scope=user", "scope=user searches all sessions of a user: say whose, with --us"),
        ("mine.jsonl --try embedder=no/such", "--embedder 'no/such': there is none of this name"),
        ("mine.jsonl --max-tokens 100", "--max-tokens 100 is not larger than --reserve-tokens 500"),
    ],
)
def test_a_mistake_is_one_line(call: Call, line: str, expected: str) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir()}
    code, out, err = call(*line.split())
    assert (code, out) == (2, "")
    assert expected in err
    assert (err.startswith("infinite-memory: "), err.count("\n")) == (True, 1)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_on_a_terminal_bars_show_the_time_that_is_left(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    code, _, err = call("mine.jsonl")
    assert code == 0
    assert re.search(r"asking .*42/42 0:00:00", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", err))


def test_the_page_works_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its commands succeed, and print the lines that it shows, apart from the numbers."""
    page = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFINITE_MEMORY_STORE", raising=False)
    shutil.copytree(ROOT / "examples" / "data", "examples/data")
    (file,) = re.findall(r"```json\n(.*?)```", page, flags=re.DOTALL)
    Path("mine.jsonl").write_text(file, encoding="utf-8")
    for block in re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *answer = part.splitlines()
            assert run(shlex.split(line, comments=True)[1:]) == 0, line
            printed = [_masked(said) for said in capsys.readouterr().out.splitlines()]
            assert [said for said in map(_masked, answer) if said not in (*printed, "...")] == []


def _masked(line: str) -> str:
    return re.sub(r"[ -]+", " ", MASKED.sub("N", line))
