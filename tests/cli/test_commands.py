"""The command, as a person and as a script meet it: real processes for the main paths, real files everywhere."""

import io
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_core.__main__ import main
from shared_core.doors.cli.command import run
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.hits import Reason

ROOT = Path(__file__).parents[2]
CALL = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"nights": 3}'}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You plan journeys.", "created_at": "2025-03-01T09:00:00Z"},
    {"role": "user", "content": "My favourite landmark is the Belém Tower.", "created_at": "2025-03-01T09:01:00Z"},
    {"role": "assistant", "content": "Noted: the Belém Tower in Lisbon.", "created_at": "2025-03-01T09:02:00Z"},
    {"role": "user", "content": "Book three nights in Porto.", "created_at": "2025-03-02T10:00:00Z"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "created_at": "2025-03-02T10:01:00Z"},
    {"role": "tool", "tool_call_id": "c1", "content": "booked", "created_at": "2025-03-02T10:02:00Z"},
    {"role": "assistant", "content": "Booked.", "created_at": "2025-03-02T10:03:00Z"},
    {"role": "user", "content": "ok", "id": "ok-1", "created_at": "2025-03-05T10:00:00Z"},
    {"role": "user", "content": "ok", "id": "ok-2", "created_at": "2025-03-05T10:00:30Z"},
]
READERS = [["explain", "x"], ["log"], ["forget", "--all", "--yes"]]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test in a directory of its own, with a plain terminal."""
    for name in ("INFINITE_MEMORY_STORE", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command in this process: exit code, stdout, stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(args)
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def talk(here: Path) -> str:
    """A file with a conversation."""
    (here / "talk.json").write_text(json.dumps(TALK), encoding="utf-8")
    return "talk.json"


@pytest.fixture
def stored(talk: str, call: Call) -> str:
    """The same, imported into chat.db."""
    assert call("import", talk)[0] == 0
    return "chat.db"


def process(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shared_core", *args],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
    )


def lines_of(file: Path, count: int) -> str:
    rows = [{"role": ("user", "assistant")[i % 2], "content": f"remark number {i}"} for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def is_one_line(text: str) -> bool:
    return text.startswith("infinite-memory: ") and text.endswith("\n") and text.count("\n") == 1


def test_the_main_path_begins_in_a_real_process(talk: str, call: Call) -> None:
    first = process("import", talk, "--store", "a.db")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[1] == "default: 9 new messages"

    code, asked, err = call("explain", "What is my favourite landmark?", "--store", "a.db", "--max-tokens", "2000")
    assert (code, err) == (0, "")
    assert asked.startswith("[S")
    assert "tokens (" in asked

    _, prompt, _ = call("explain", "What is my favourite landmark?", "--store", "a.db", "--prompt")
    assert prompt.startswith("[system]\n")
    assert "[user]\n" in prompt
    assert prompt.endswith("What is my favourite landmark?\n\n")

    code, found, err = call("search", "favourite landmark", "--store", "a.db", "--top-k", "1")
    assert (code, err) == (0, "")
    assert "Belém Tower" in found

    _, log, _ = call("log", "--store", "a.db", "--limit", "2")
    assert [row.split() for row in log.splitlines()] == [
        ["2025-03-05", "10:00", "user", "ok-1", "ok"],
        ["2025-03-05", "10:00", "user", "ok-2", "ok"],
    ]
    assert call("forget", "ok-1", "--yes", "--store", "a.db")[1] == "forgot 1 message\n"
    assert call("status", "--store", "a.db")[0] == 0
    assert "\x1b" not in first.stdout + asked + found + log


def test_an_error_is_one_line_and_exit_code_2_in_a_real_process(here: Path) -> None:
    failed = process("import", "nothing.json")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert is_one_line(failed.stderr)
    assert "'nothing.json' cannot be read (No such file or directory)" in failed.stderr
    assert list(here.iterdir()) == []


def test_the_entry_point_answers_for_both(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["infinite-memory", "--help"])
    assert main() == 0
    monkeypatch.delitem(sys.modules, "shared_core.doors.cli.command")
    monkeypatch.setitem(sys.modules, "typer", None)
    assert main() == 2
    assert is_one_line(capsys.readouterr().err)


def test_importing_twice_adds_nothing(talk: str, call: Call) -> None:
    told = json.loads(call("import", talk, "--json")[1])
    assert told["seconds"] >= 0
    (first,) = told["sessions"]
    log = call("log", "--json")[1]
    (again,) = json.loads(call("import", talk, "--json")[1])["sessions"]
    assert (first["new"], first["known"], first["forgotten"]) == (9, 0, 0)
    assert (again["new"], again["known"], again["forgotten"]) == (0, 9, 0)
    assert call("log", "--json")[1] == log


def test_explain_gives_a_request_and_a_report_and_stores_nothing(stored: str, call: Call) -> None:
    before = call("log", "--json")[1]
    question = "What is my favourite landmark?"
    code, out, err = call(
        "explain", question, "--json", "--top-k", "3", "--embedder", "words", "--placement", "messages"
    )
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer.keys() == {"messages", "report"}
    assert answer["messages"][0] == {"role": "system", "content": "You plan journeys."}
    assert answer["messages"][-1] == {"role": "user", "content": question}
    assert {"role": "assistant", "content": None, "tool_calls": [CALL]} in answer["messages"]
    assert {"role": "tool", "content": "booked", "tool_call_id": "c1"} in answer["messages"]
    assert 0 < answer["report"]["total_tokens"] <= answer["report"]["budget"]
    lines = answer["report"]["lines"]
    assert all(line["why"] == Reason(line["reason"]).why for line in lines)
    assert {"always_sent", "question", "newest"} <= {line["reason"] for line in lines}
    assert call("log", "--json")[1] == before


@pytest.mark.parametrize("colour", [True, False])
def test_explain_draws_panels_on_a_terminal(
    stored: str, call: Call, monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    out = call("explain", "What is my favourite landmark?", "--prompt")[1]
    assert "╭─ system" in re.sub(r"\x1b\[[0-9;]*m", "", out)
    assert ("\x1b[" in out) is colour
    assert "calls book(" in out


def test_explain_marks_what_it_found(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("import", lines_of(here / "many.jsonl", 200))[0] == 0
    asked = ["explain", "which remark was number 7?", "--max-tokens", "800"]
    short, full, both = call(*asked)[1], call(*asked, "--full")[1], call(*asked, "--prompt", "--full")[1]
    report = json.loads(call(*asked, "--json")[1])["report"]
    recalled = [line for line in report["lines"] if line["included"] and line["score"] is not None]
    best = max(recalled, key=lambda line: float(line["score"]))
    marked = [line for line in short.splitlines() if line.startswith(">")]
    assert best["band"] == "strong"
    assert marked[0].startswith("> strong  ")
    assert best["preview"] in marked[0]
    assert len(short.splitlines()) <= 20 < len(report["lines"])
    table = [line for line in full.splitlines() if line.startswith(("+", "-"))]
    assert len(table) == len(report["lines"])
    assert both.endswith(full)
    assert both.startswith("[user]\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    prompt = call(*asked, "--prompt")[1]
    assert "\x1b[1;32m" in prompt


def test_search_is_ranked_and_can_be_narrowed(stored: str, call: Call) -> None:
    hits = json.loads(call("search", "Belém Tower landmark", "--json")[1])
    assert hits[0]["content"] == TALK[1]["content"]
    assert hits[0].keys() >= {"score", "source", "id", "created_at", "role"}
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert len(json.loads(call("search", "tower", "--top-k", "1", "--json")[1])) == 1
    replies = json.loads(call("search", "Belém Tower", "--role", "assistant", "--json")[1])
    assert {hit["role"] for hit in replies} == {"assistant"}
    words = "tower Belém ticket night"
    code, out, err = call("search", words)
    assert (code, "weak" in out) == (0, False)
    assert err == "infinite-memory: note: 1 weak match left out; --weak lists them\n"
    assert call("search", words, "--weak")[1].splitlines()[:-1] == out.splitlines()
    assert call("search", *words.split()) == (code, out, err), "quoted or not"
    alone = call("search", words, "--since", "2025-03-02T09:00", "--until", "2025-03-02T10:01")
    assert (alone[1].split()[0], alone[1].count("\n"), alone[2]) == ("weak", 1, ""), "there is no other"
    late = json.loads(call("search", "Belém Tower booked nights", "--since", "2025-03-02", "--json")[1])
    assert all(hit["created_at"] >= "2025-03-02" for hit in late)
    early = json.loads(call("search", "Belém Tower", "--until", "2025-03-01T09:01:30Z", "--json")[1])
    assert TALK[2]["content"] not in [hit["content"] for hit in early]


def test_a_message_is_shown_whole_and_the_status_says_where_one_is(stored: str, call: Call) -> None:
    assert call("show") == (0, "id       ok-2\nrole     user\nsaid at  2025-03-05T10:00:30+00:00\n\nok\n", "")
    assert json.loads(call("show", "ok-1", "--json")[1])["id"] == "ok-1"
    code, _, err = call("show", "nothing")
    assert (code, "no branch or message 'nothing'" in err) == (2, True)
    call("fork", "side", "--at", "ok-1")
    told = json.loads(call("status", "--json")[1])
    assert (told["store"], told["session"], told["branch"], told["newest"]) == ("chat.db", "default", "side", "ok-1")
    assert (told["messages"], told["title"]) == (9, TALK[1]["content"])
    assert call("status")[1].endswith("2025-03-05 10:00  user       ok-1  ok\n")


def test_explain_takes_what_a_program_sets(stored: str, call: Call) -> None:
    request = json.loads(call("explain", "Which tower?", "--system", "Be brief.", "--recall", "precise", "--json")[1])
    assert request["messages"][0]["content"].startswith("Be brief.")
    assert call("explain", "Which tower?", "--recall", "sometimes")[0] == 2


def test_a_user_without_a_session_means_all_of_the_users_conversations(call: Call) -> None:
    for session, said in (("old", "My locker code is 4471."), ("new", "Good morning.")):
        with InfiniteMemory("chat.db", session_id=session, user_id="ann") as memory:
            memory.add([Message.user(said), Message.assistant("Noted.")])
    question = ("explain", "What is my locker code?", "--prompt", "--user", "ann")
    code, prompt, err = call(*question)
    assert (code, "4471" in prompt) == (0, True)
    assert err.startswith("infinite-memory: note: asked in 'new', and all conversations of user 'ann' are searched")
    assert "4471" in call(*question, "--session", "new", "--scope", "user")[1]
    assert "4471" not in call(*question, "--session", "new")[1]
    assert call("search", "locker code", "--user", "ann")[1].split()[1] == "old"
    code, _, err = call(*question, "--scope", "user", "--branch", "main")
    assert (code, "leave out --branch" in err) == (2, True)
    assert call("explain", "x", "--user", "eve")[0] == 1


def test_log_and_its_json_can_be_imported_again(stored: str, here: Path, call: Call) -> None:
    log = json.loads(call("log", "--json")[1])
    assert log["branch"] == "main"
    assert [message["content"] for message in log["messages"]] == [entry["content"] for entry in TALK]
    (here / "log.json").write_text(json.dumps(log))
    (again,) = json.loads(call("import", "log.json", "--json")[1])["sessions"]
    assert (again["new"], again["known"]) == (0, 9)


def test_a_conversation_with_a_damaged_message_can_be_forgotten(call: Call, here: Path) -> None:
    with InfiniteMemory("chat.db") as memory:
        memory.add([Message.user("My code is 4471.", id="m1"), Message.assistant("Noted.", id="m2")])
    stored = (here / "chat.db").read_bytes()
    (here / "chat.db").write_bytes(stored.replace(b"My code is 4471.", b"My code is 4472."))
    status, out, err = call("sessions")
    assert (status, len(out.splitlines())) == (0, 2)
    assert "message 'm1' cannot be read" in err
    status, out, _ = call("forget", "--all", "--dry-run")
    assert (status, out.splitlines()[:2]) == (0, ["would forget 2 messages", "m1  damaged, its text cannot be read"])
    assert call("forget", "--all", "--yes")[:2] == (0, "forgot 2 messages\n")
    assert b"My code is" not in (here / "chat.db").read_bytes()


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_without_the_session_those_there_are_are_named(command: list[str], stored: str, call: Call) -> None:
    code, out, err = call(*command, "--session", "other")
    assert (code, out) == (1, "")
    assert err == "infinite-memory: no session 'other' in 'chat.db'; there is 'default'\n"


def test_a_warning_is_one_line(stored: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def context(self: InfiniteMemory, question: str, **limits: object) -> None:
        warnings.warn("the model\nis broken", RuntimeWarning, stacklevel=2)
        raise ValueError("and so\nis the rest")

    monkeypatch.setattr(InfiniteMemory, "context", context)
    code, out, err = call("explain", "x")
    assert (code, out) == (2, "")
    assert err == "infinite-memory: warning: the model is broken\ninfinite-memory: and so is the rest\n"


def test_an_option_is_stronger_than_a_variable(stored: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINITE_MEMORY_STORE", "env.db")
    assert "no store at 'env.db'" in call("log")[2]
    assert call("log", "--store", stored)[0] == 0


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_a_store_that_does_not_exist_is_not_made(command: list[str], here: Path, call: Call) -> None:
    code, out, err = call(*command, "--store", "none.db")
    assert (code, out) == (2, "")
    assert is_one_line(err)
    assert "no store at 'none.db': create one with infinite-memory chat, add or import" in err
    assert list(here.iterdir()) == []


def test_forget_shows_what_would_go_and_asks(stored: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, out, err = call("forget", "--before", "2025-03-02")
    assert (code, out) == (1, "")
    assert "would forget " in err
    assert "Belém Tower" in err
    assert err.endswith("infinite-memory: nothing was forgotten\n")
    assert "Belém Tower" in call("log")[1]

    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, _ = call("forget", "--before", "2025-03-02")
    assert code == 0
    assert out.startswith("forgot ")
    assert "Belém Tower" not in call("log")[1]


def test_forget_everything(stored: str, call: Call) -> None:
    result = json.loads(call("forget", "--all", "--yes", "--json")[1])
    assert result["dry_run"] is False
    assert len(result["ids"]) == 9
    for again in (["log"], ["forget", "--all"]):
        code, out, err = call(*again)
        assert (code, out) == (1, "")
        assert err.startswith("infinite-memory: no session 'default' in 'chat.db': chat, add and import begin one, ")
    assert call("log", "--user", "ann")[2].startswith("infinite-memory: no session of user 'ann' in 'chat.db': chat, ")


def test_text_cannot_command_the_terminal(here: Path, call: Call) -> None:
    bad = [{"role": "user", "content": "a\x1b[2Jb\r\nc\x07", "name": "eve\x1b", "id": "id\x1b"}]
    (here / "bad.json").write_text(json.dumps(bad))
    assert call("import", "bad.json")[0] == 0
    for command in (["log"], ["search", "b c"], ["explain", "b c"], ["forget", "--all", "--dry-run"]):
        code, out, err = call(*command)
        assert code == 0
        assert not {"\x1b", "\x07", "\r"} & set(out + err)
    assert json.loads(call("log", "--json")[1])["messages"][0]["content"] == bad[0]["content"]


# Branches


@pytest.fixture
def parted(here: Path) -> None:
    """A store in which main says a b c, and side a b d."""
    with InfiniteMemory("chat.db", embedder="words") as memory:
        memory.add([Message.user("one", id="aaaa"), Message.assistant("two", id="bbbb")])
        memory.fork("side")
        memory.add(Message.user("four", id="dddd"))
        memory.checkout("main")
        memory.add(Message.user("three", id="cccc"))


@pytest.mark.usefixtures("parted")
@pytest.mark.parametrize(
    ("args", "text", "data"),
    [
        (["branches"], "* main  ", [
            {"name": "main", "newest": "cccc", "checked_out": True},
            {"name": "side", "newest": "dddd", "checked_out": False},
        ]),
        (["fork", "new", "--at", "bbbb"], "'new' at bbbb and checked it out; to go back: checkout main", {
            "branches": ["main", "side", "new"], "tags": []
        }),
        (["rename", "side", "aside"], "renamed 'side' to 'aside'", {"branches": ["main", "aside"], "tags": []}),
        (["delete-branch", "side"], "to take it back: undo --branch main", {"branches": ["main"], "tags": []}),
        (["tag", "v1"], "tagged main as 'v1'", {"branches": ["main", "side"], "tags": ["v1"]}),
        (["tag"], "", []),
        (["reset", "bbbb"], "to take it back: undo --branch main", {"branches": ["main", "side"], "tags": []}),
        (["reflog"], "", []),
        (["diff", "side"], "both: up to bbbb\nonly side: 1 message\n<", {
            "base": "bbbb", "only_a": ["dddd"], "only_b": ["cccc"]
        }),
        (["stash", "push"], "stashed 1 message", None),
        (["stash", "list"], "", []),
        (["merge", "side"], "merged side into main (full)", {
            "how": "full", "source": "side", "base": "bbbb", "added": [], "ours": [], "theirs": [], "conflicts": []
        }),
        (["merge", "bbbb"], "nothing to merge: main already has all of bbbb", None),
        (["merge", "side", "--how", "squash"], "From the branch 'side':\nuser: four", None),
        (["cherry-pick", "dddd", "aaaa"], "copied 1 message; on the branch already: aaaa", None),
        (["rebase", "main", "--branch", "side"], "copied 1 message", None),
    ],
)  # fmt: skip
def test_a_command_for_branches_answers_in_words_and_in_json(
    call: Call, tmp_path: Path, args: list[str], text: str, data: Any
) -> None:
    (tmp_path / "copy.db").write_bytes((tmp_path / "chat.db").read_bytes())
    code, out, _ = call(*args)
    assert code == 0
    assert text in out
    code, out, _ = call(*args, "--json", "--store", "copy.db")
    assert code == 0
    assert json.loads(out) == data if data is not None else json.loads(out)


@pytest.mark.usefixtures("parted")
def test_a_stash_goes_and_comes_back(call: Call) -> None:
    assert call("stash", "push", "--note", "for later")[1] == "stashed 1 message\nto take it back: undo --branch main\n"
    assert "main  1 message  for later" in call("stash", "list")[1]
    assert call("stash", "apply")[1] == "copied 1 message\nto take it back: undo --branch main\n"
    assert call("stash", "pop", "--branch", "side")[1] == "copied 1 message\nto take it back: undo --branch side\n"
    assert call("stash", "pop")[0] == 2
    call("stash", "push")
    assert call("stash", "drop")[1] == "dropped stash 0\n"
    moves = call("reflog", "--branch", "main")[1].splitlines()
    assert [move.count("->") for move in moves] == [1, 0, 1]  # stash, stash apply, stash
    assert "main@{1}" in moves[0]
    assert call("reset", "main@{9}")[0] == 2
    call("tag", "v1")
    assert call("tag", "v1", "--delete")[1] == "deleted 'v1'\n"


@pytest.mark.usefixtures("parted")
def test_the_tree_is_drawn(call: Call) -> None:
    call("merge", "side")
    call("tag", "v1", "--at", "bbbb")
    lines = [re.sub(r" 20..-..-.. ..:..", "", line) for line in call("log", "--graph")[1].splitlines()]
    assert lines == [
        "o (main) merge",
        "|\\",
        "* |  user       cccc  three",
        "| * (side)  user       dddd  four",
        "|/",
        "* (tag v1)  assistant  bbbb  two",
        "*  user       aaaa  one",
    ]
    nodes = json.loads(call("log", "--graph", "--json")[1])
    assert [node["message"] and node["message"]["id"] for node in nodes] == [None, "cccc", "dddd", "bbbb", "aaaa"]
    assert call("log", "--graph", "--branch", "side")[0] == 2


def test_search_lists_what_other_branches_say_with_their_names(call: Call, here: Path) -> None:
    with InfiniteMemory(here / "memory.db") as memory:
        memory.add([Message.user("The boat leaves at nine.")])
        memory.fork("early")
        memory.add([Message.user("The boat leaves at five.")])
    told = call("search", "boat", "--store", str(here / "memory.db"), "--all-branches")[1].splitlines()
    assert [("early" in line, "five" in line) for line in told] == [(False, False), (True, True)]
    assert "five" not in call("search", "boat", "--store", str(here / "memory.db"))[1]
