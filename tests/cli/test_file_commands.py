"""The commands export and import: files to share, whole stores, and clear words for what cannot be done."""

import json
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run
from tests.support.documents import ROOT
from tests.support.histories import history, texts

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in a folder where chat.db holds a conversation with a branch."""
    monkeypatch.chdir(tmp_path)
    with InfiniteMemory("chat.db") as memory:
        memory.add([*history(4), Message.user("Ann asks", id="x", name="Ann", grounding="a secret")])
        memory.fork("side", at="m1")
        memory.add(Message.user("aside", id="y"))

    def command(*args: str) -> tuple[int, str, str]:
        code = run(args)
        return code, *capsys.readouterr()

    return command


def test_a_conversation_goes_from_store_to_store(call: Call) -> None:
    code, out, err = call("export", "chat.jsonl")
    assert (code, out.startswith("chat.db -> chat.jsonl: 6 messages, "), err) == (0, True, "")
    code, out, _ = call("import", "chat.jsonl", "--store", "new.db", "--session", "mine", "--json")
    (told,) = json.loads(out)["sessions"]
    assert (code, told["format"], told["new"], told["remapped"]) == (0, "infinite-memory", 6, {})
    assert (told["session_id"], told["branches"]) == ("mine", {"main": "main", "side": "side"})
    again = call("import", "chat.jsonl", "--store", "new.db", "--session", "mine")[1]
    assert again.splitlines()[1:] == ["nothing new in 1 session"]
    call("export", "again.jsonl", "--store", "new.db", "--session", "mine")
    assert Path("again.jsonl").read_text().splitlines()[2:-1] == Path("chat.jsonl").read_text().splitlines()[2:-1]


def test_one_branch_goes_alone(call: Call) -> None:
    code, out, _ = call("export", "side.jsonl", "--branch", "side", "--json")
    assert (code, json.loads(out)["messages"]) == (0, 3)
    assert ("a secret" in Path("side.jsonl").read_text(), "Ann" in Path("side.jsonl").read_text()) == (False, False)
    (told,) = json.loads(call("import", "side.jsonl", "--store", "new.db", "--json")[1])["sessions"]
    assert (told["new"], told["branches"]) == (3, {"side": "side"})
    assert call("log", "--store", "new.db")[1] == call("log", "--branch", "side")[1]
    assert call("export", "side.md", "--branch", "side")[1].startswith("chat.db -> side.md: 3 messages, ")


def test_what_is_not_to_be_told_is_left_out(call: Call) -> None:
    assert call("export", "all.jsonl")[0] == 0
    assert call("export", "less.jsonl", "--no-grounding", "--no-tool-results", "--rename", "Ann=Eve", "--json")[0] == 0
    assert ("a secret" in Path("all.jsonl").read_text(), "Ann" in Path("all.jsonl").read_text()) == (True, True)
    less = Path("less.jsonl").read_text()
    assert ("a secret" in less, "Ann" in less, "Eve asks" in less) == (False, False, True)
    assert call("export", "chat.md")[0] == 0
    assert call("export", "chat.pdf")[2].endswith("note: 'chat.pdf' holds jsonl; --format chooses another form\n")
    assert Path("chat.md").read_text().startswith("# default\n\n## user, 2024-05-01 12:00\n")
    call("title", "Ann's trip")
    call("export", "titled.md")
    call("export", "less.md", "--rename", "Ann=Eve")
    assert (Path("titled.md").read_text()[:14], Path("less.md").read_text()[:11]) == (
        "# Ann's trip\n\n",
        "# default\n\n",
    )


def test_a_whole_store_is_one_file(call: Call) -> None:
    for session, user in (("a", "ann"), ("b", "ann"), ("b", "bob")):
        with InfiniteMemory("chat.db", session_id=session, user_id=user) as memory:
            memory.add(Message.user(f"{user} in {session}"))
    assert json.loads(call("export", "all.jsonl", "--all", "--json")[1])["messages"] == 9
    code, out, _ = call("import", "all.jsonl", "--store", "new.db")
    assert (code, out.splitlines()[0][:-7]) == (0, "all.jsonl -> new.db: 9 new messages in 4 sessions")
    assert sorted(out.splitlines()[1:-2]) == [
        "a: 1 new message", "b: 1 new message", "b: 1 new message", "default: 6 new messages",
    ]  # fmt: skip
    again = call("import", "all.jsonl", "--store", "new.db")[1].splitlines()
    assert (again[0][:-7], again[1:]) == (
        "all.jsonl -> new.db: 0 new messages in 0 sessions", ["nothing new in 4 sessions"],
    )  # fmt: skip
    assert json.loads(call("export", "ann.jsonl", "--all", "--user", "ann", "--json")[1])["messages"] == 2
    told = json.loads(call("import", "ann.jsonl", "--store", "other.db", "--json")[1])
    assert [(one["user_id"], one["session_id"], one["new"]) for one in told["sessions"]] == [
        ("ann", "a", 1), ("ann", "b", 1),
    ]  # fmt: skip
    code, _, err = call("import", "ann.jsonl", "--store", "third.db", "--session", "x")
    assert (code, "holds 2 conversations: choose one with --chat" in err, "it has 'a', 'b'" in err) == (2, True, True)
    assert call("import", "ann.jsonl", "--store", "third.db", "--session", "default", "--chat", "b")[0] == 0
    with InfiniteMemory("third.db") as memory:
        assert texts(memory.messages()) == ["ann in b"]


DATA = Path(__file__).parents[1] / "sharing" / "data"


def test_an_export_of_chats_is_many_sessions(call: Call) -> None:
    with zipfile.ZipFile("chats.zip", "w") as file:
        file.write(DATA / "chatgpt.json", "conversations.json")
    code, out, err = call("import", "chats.zip", "--store", "new.db")
    assert (code, err) == (0, "")
    assert out.splitlines()[0][:-7] == "chats.zip -> new.db: 5 new messages in 2 sessions"
    assert out.splitlines()[1:-2] == [
        "c1 Ferries: 4 new messages; left out: 1 image, 1 attachment without text, 1 step of reasoning",
        "c2 Hello: 1 new message",
    ]
    assert set(out.splitlines()[1:-2]) <= set((ROOT / "docs" / "import.md").read_text(encoding="utf-8").splitlines())
    assert call("import", "chats.zip", "--store", "new.db")[1].splitlines()[1:] == ["nothing new in 2 sessions"]
    out = call("import", "chats.zip", "--store", "new.db", "--chat", "Ferries", "--session", "mine")[1]
    assert out.splitlines()[0][:-7] == "chats.zip -> new.db: 4 new messages in 1 session"
    assert out.splitlines()[1].startswith("mine Ferries: 4 new messages; left out: 1 image")
    (told,) = json.loads(call("import", "chats.zip", "--store", "new.db", "--chat", "c2", "--json")[1])["sessions"]
    assert (told["session_id"], told["title"], told["known"]) == ("c2", "Hello", 1)
    code, _, err = call("import", "chats.zip", "--store", "new.db", "--session", "mine")
    assert (code, "it has 'c1' (Ferries), 'c2' (Hello)" in err, "session=" in err) == (2, True, False)
    chosen = ("--embedder", "static", "--chat", "c1", "--chat", "c2")
    assert call("import", "chats.zip", "--store", "third.db", *chosen)[0] == 0
    assert json.loads(call("status", "--store", "third.db", "--session", "c1", "--json")[1])["embedders"]


@pytest.mark.parametrize(
    "where", [(), ("--user", "ann's"), ("--session", "a b"), ("--store", "new db"), ("--chat", "c1")]
)
def test_an_import_says_what_to_type_next_and_it_works(call: Call, where: tuple[str, ...]) -> None:
    out = call("import", str(DATA / "chatgpt.json"), *where, *(("--chat", "c1") if "--session" in where else ()))[1]
    lines = [line.removeprefix("next: ") for line in out.splitlines() if line.startswith("next: ")]
    assert len(lines) == 2
    for line in lines:
        program, *words = shlex.split(line)
        code, out, err = call(*words)
        assert (program, code) == ("infinite-memory", 0)
        assert err == "" or err.endswith("left out; --weak lists them\n")
        assert out


def test_an_invalid_chat_is_skipped_if_that_is_wanted(call: Call) -> None:
    data = json.loads((DATA / "claude.json").read_text())
    data[0]["chat_messages"][0]["sender"] = "nobody"
    Path("chats.json").write_text(json.dumps(data))
    code, _, err = call("import", "chats.json", "--store", "new.db")
    assert (code, "conversation 1: message 1: unknown role 'nobody'" in err, Path("new.db").exists()) == (2, True, True)
    code, out, _ = call("import", "chats.json", "--store", "new.db", "--skip-invalid")
    _, skipped, stored, rest, *_ = out.splitlines()
    assert (code, stored.endswith("002: 2 new messages"), rest) == (1, True, "nothing new in 1 session")
    assert skipped.startswith(
        "skipped 7d1f6c1e-0000-4000-9000-000000000001 Ferries to Brac: 'chats.json', conversation 1"
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("export", "x.jsonl", "--store", "none.db"), "no store at 'none.db'"),
        (("export", "x.jsonl", "--branch", "none"), "no branch 'none'; branches: 'main', 'side'"),
        (("export", "x.md", "--branch", "none"), "no branch 'none'; branches: 'main', 'side'"),
        (("export", "no/x.jsonl"), "'no/x.jsonl' cannot be written"),
        (("export", "x.md", "--all"), "--all writes whole sessions"),
        (("export", "x.jsonl", "--all", "--branch", "side"), "--all writes whole sessions"),
        (("export", "x.json", "--all", "--format", "openai"), "--all writes whole sessions"),
        (("export", "x.jsonl", "--all", "--store", "none.db"), "no store at 'none.db'"),
        (("export", "x.md", "--vectors"), "--vectors: only JSONL holds vectors"),
        (("export", "x.jsonl", "--rename", "Ann"), "--rename 'Ann': expected NAME=OTHER"),
        (("export", "x.jsonl", "--vectors", "--no-grounding"), "a text can be guessed from its vector"),
        (("import", "x.jsonl", "--store", "new.db"), "'x.jsonl' cannot be read"),
        (("import", "x.jsonl", "--session", "s", "--chat", "a", "--chat", "b"), "--session takes one conversation"),
        (("import", "x.jsonl", "--format", "word"), "format"),
        (("import", ".", "--store", "new.db"), "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(call: Call, args: tuple[str, ...], expected: str) -> None:
    before = sorted(path.name for path in Path().iterdir())
    code, out, err = call(*args)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.splitlines()[-1].startswith("infinite-memory: ")
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_damaged_file_is_one_line_and_changes_nothing(call: Call) -> None:
    call("export", "chat.jsonl")
    whole = Path("chat.jsonl").read_bytes()
    Path("chat.jsonl").write_bytes(whole[: len(whole) // 2])
    code, out, err = call("import", "chat.jsonl", "--session", "new")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nothing was stored: ask for a new copy of the file" in err
    code, _, err = call("status", "--session", "new")
    assert (code, "no session 'new' in 'chat.db'; there is 'default'" in err) == (1, True)
