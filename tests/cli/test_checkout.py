"""Working on branches from a shell: add, checkout, fork, and --branch."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run
from shared_core.doors.cli.options import read_head, write_head
from shared_core.errors import UnknownReferenceError
from tests.support.histories import texts

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = run(args)
        return code, *capsys.readouterr()

    return call


def said(call: Call, *args: str) -> list[str]:
    return [message["content"] for message in json.loads(call("log", "--json", *args)[1])["messages"]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_not_added(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (["add", ""], ["add", "-"], ["add"]):
        code, out, err = call(*args)
        assert (code, out, err) == (2, "", "infinite-memory: there is nothing to add: the text is empty (see --help)\n")
    monkeypatch.setattr("sys.stdin", Terminal())
    assert run(["add"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_checkout_is_of_one_session_and_not_of_programs(call: Call) -> None:
    for session in ("a", "b"):
        call("add", session, "--session", session)
        call("fork", "side", "--session", session)
    call("checkout", "main", "--session", "b")
    call("add", "x", "--session", "a")
    call("add", "x", "--session", "b")
    assert said(call, "--session", "a", "--branch", "main") == ["a"]
    assert said(call, "--session", "b", "--branch", "main") == ["b", "x"]
    with InfiniteMemory("chat.db", session_id="a") as memory:
        assert (memory.branch, texts(memory.messages()), len(memory.reflog())) == ("main", ["a"], 0)
        memory.export("a.jsonl")
    call("import", "a.jsonl", "--session", "copy")
    assert said(call, "--session", "copy") == ["a"]


def test_a_branch_that_is_checked_out_may_be_renamed_and_must_not_be_deleted(call: Call) -> None:
    call("add", "one")
    call("fork", "side")
    call("rename", "side", "aside")
    assert "* aside" in call("branches")[1]
    code, _, err = call("delete-branch", "aside")
    assert (code, err) == (
        2, "infinite-memory: 'aside' is checked out; check out another branch before you delete it\n"
    )  # fmt: skip
    with InfiniteMemory("chat.db") as memory:
        memory.delete_branch("aside")
    assert call("branches")[1].startswith("* main  ")


def test_only_a_branch_can_be_checked_out(call: Call) -> None:
    with InfiniteMemory("chat.db") as memory:
        memory.add([Message.user("one", id="aaaa"), Message.user("two", id="bbbb")])
    assert call("checkout", "aaaa")[::2] == (
        2, "infinite-memory: 'aaaa' is not a branch; to go on from there: fork NAME --at aaaa\n"
    )  # fmt: skip
    assert call("checkout", "none")[::2] == (2, "infinite-memory: no branch or message 'none'; branches: 'main'\n")
    call("fork", "retry", "--at", "aaaa")
    call("add", "again")
    assert said(call) == ["one", "again"]


def test_a_message_is_forgotten_by_the_beginning_of_its_id(call: Call) -> None:
    with InfiniteMemory("chat.db") as memory:
        memory.add(
            [Message.user(text, id=id_) for text, id_ in (("one", "abcd1"), ("two", "abcd2"), ("three", "main"))]
        )
    assert "'abcd' is the beginning of several messages: 'abcd1', 'abcd2'" in call("forget", "abcd")[2]
    assert call("forget", "abcd2", "main", "--yes")[1] == "forgot 2 messages\n"
    assert said(call) == ["one"]
    assert call("forget", "abc", "--yes")[::2] == (2, "infinite-memory: no message 'abc' in this session\n")
    assert call("forget", "abcd", "--yes")[1] == "forgot 1 message\n"


def test_without_anything_to_take_nothing_is_stashed(call: Call) -> None:
    call("add", "--role", "system", "Be brief.")
    assert call("stash", "push") == (0, "nothing to stash\n", "")
    assert call("stash", "push", "--json")[1] == "null\n"
    for args, none in (("stash list", "nothing is stashed"), ("tag", "there are no tags yet"), ("reflog", "no branch")):
        code, out, err = call(*args.split())
        assert (code, out, err.startswith(f"infinite-memory: note: {none}")) == (0, "", True)
        assert call(*args.split(), "--json")[1:] == ("[]\n", "")


def test_a_branch_that_is_gone_meanwhile_is_not_checked_out(call: Call) -> None:
    call("add", "one")
    with pytest.raises(UnknownReferenceError, match="'side'"):
        write_head("chat.db", None, "default", "side")
    assert read_head("chat.db", None, "default") == read_head("chat.db", None, "none") == "main"


def test_a_speaker_is_known_by_other_names(call: Call) -> None:
    assert call("add", "--role", "ai", "The tower is in Lisbon.")[0] == 0
    assert call("add", "--role", "HUMAN", "Which tower?")[0] == 0
    code, out, _ = call("search", "tower", "--role", "agent", "--json")
    assert (code, [hit["role"] for hit in json.loads(out)]) == (0, ["assistant"])
    code, _, err = call("add", "--role", "boss", "Go!")
    assert code == 2
    assert "unknown role 'boss'" in err
    code, _, err = call("add", "--role", "tool", "12")
    assert (code, "a tool's result belongs to a call" in err) == (2, True)
