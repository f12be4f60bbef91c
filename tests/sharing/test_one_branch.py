"""One branch alone as a file: nothing that was said only on others, and nothing that refers to it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, ToolCall, UnknownReferenceError
from shared_core.messages import Payload
from shared_core.sharing.redact import drop_tool_results
from shared_core.testing import HashingEmbedder
from tests.support.histories import NOON, history, ids, texts

WORD = "xyzzyplugh"
"""Said or written only where the branch `debug` does not lead."""


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def summed(previous: str | None, messages: Any) -> str:
    return "in short"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "debug.jsonl"


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    """A conversation with a branch `debug`, beside which there is all that a session can hold."""
    with InfiniteMemory(session_id="work", embedder=HashingEmbedder(8)) as memory:
        memory.add(history(4))
        memory.tag("shared", "m1")
        memory.fork("debug", at="m3")
        memory.checkout("main")
        memory.add([Message.user(f"{WORD} 1", id="secret"), Message.assistant(f"{WORD} 2", id="secret-2")])
        memory.tag(f"tag-{WORD}")
        memory.add([Message.user(f"{WORD} 3", id="put-aside")])
        memory.stash(note=WORD)
        memory.add([Message.user(f"{WORD} 4", id="forgotten-secret")])
        memory.forget(ids=["forgotten-secret"])
        memory.fork(f"branch-{WORD}")
        memory.checkout("debug")
        memory.add(history(2, start=4))
        yield memory


def test_nothing_of_other_branches_is_in_the_file(memory: InfiniteMemory, file: Path) -> None:
    memory.index()
    memory.checkout("main")
    assert memory.export(file, branch="debug", vectors=True) == 6
    text = file.read_text()
    assert [found for found in (WORD, "secret", "put-aside", "forgotten", '"main"') if found in text] == []
    header, session, *lines = told(file)
    assert (header["messages"], header["sessions"], session["session_id"]) == (6, 1, "work")
    assert [line["type"] for line in lines] == ["segment"] * 2 + ["message"] * 6 + ["branch", "ref", "head", "end"]
    lines = lines[2:]
    assert lines[6:9] == [
        {"type": "branch", "name": "debug", "at": lines[5]["at"]},
        {"type": "ref", "kind": "tag", "name": "shared", "created_at": lines[7]["created_at"], "at": lines[1]["at"]},
        {"type": "head", "branch": "debug"},
    ]
    assert session["spaces"] == memory.stats()["embedders"] != []
    assert all("vectors" in line for line in lines[:6])
    assert memory.branch == "main", "it stays checked out"


def test_a_colleague_reads_the_branch_and_goes_on(memory: InfiniteMemory, file: Path, tmp_path: Path) -> None:
    memory.export(file, branch="debug")
    path = tmp_path / "theirs.db"
    with InfiniteMemory(path, session_id="from Ann") as other:
        result = other.import_file(file)
        assert (result.new, dict(result.branches), result.head, other.branch) == (
            6,
            {"debug": "debug"},
            "debug",
            "debug",
        )
        assert list(other.messages()) == list(memory.messages())
    with InfiniteMemory(path, session_id="from Ann") as later:
        assert (later.branch, list(later.messages())) == ("main", list(memory.messages()))
    with InfiniteMemory(path, session_id="has main") as other:
        memory.export(tmp_path / "main.jsonl", branch="main")
        other.import_file(tmp_path / "main.jsonl")
        result = other.import_file(file)
        assert (result.new, result.known, dict(result.branches)) == (2, 4, {"debug": "debug"})
        assert ids(other.messages()) == ["m0", "m1", "m2", "m3", "secret", "secret-2"]


def test_copies_and_summaries_refer_to_what_is_there(memory: InfiniteMemory, file: Path) -> None:
    memory.cherry_pick(["secret", "m4"])
    memory.add(Message.user("and now", id="now"))
    memory.cherry_pick("now")
    memory.fork("aside", at="m5")
    memory.add(Message.user("aside", id="aside"))
    memory.cherry_pick("m5")
    memory.checkout("debug")
    summary = memory.merge("aside", "squash", summarizer=summed).messages[-1].id
    lines = {line["id"]: line for line in _messages(memory, file, "debug")}
    copies = [line for line in lines.values() if line["content"] == f"{WORD} 1"]
    assert [line.get("picked_from") for line in copies] == [None], "its source is on main"
    assert "covers" not in lines[summary], "what it sums up is on the branch aside"
    whole = {line["id"]: line for line in _messages(memory, file, None)}
    assert whole[copies[0]["id"]]["picked_from"] == "secret"
    number, depth = whole["aside"]["at"]
    assert whole[summary]["covers"][0] == [number, depth, depth]
    aside = _messages(memory, file, "aside")
    assert [line.get("picked_from") for line in aside] == [None] * len(aside)


def test_a_copy_names_its_source_by_the_id_that_an_import_gave_it(memory: InfiniteMemory, file: Path) -> None:
    """Its own id was taken by something else there."""
    memory.checkout("main")
    (copy,) = memory.cherry_pick("m4").messages
    memory.merge("debug")
    memory.export(file, branch="main")
    with InfiniteMemory() as other:
        other.add(Message.user("something else", id="m4"))
        other.import_file(file)
        (source,) = other.sources(copy.id or "")
        assert source != "m4"
        assert other.get(source).content == copy.content


def _messages(memory: InfiniteMemory, file: Path, branch: str | None) -> list[dict[str, Any]]:
    memory.export(file, branch=branch)
    return [line for line in told(file) if line["type"] == "message"]


def test_only_its_own_moves_along_it_are_told(memory: InfiniteMemory, file: Path) -> None:
    memory.reset("m4")
    memory.add(Message.user("again", id="again"))
    memory.reset("m4")
    memory.checkout("main")
    memory.reset("m3")
    memory.export(file, branch="debug")
    assert [line for line in told(file) if line.get("kind") == "move"] == []
    memory.export(file, branch="main")
    assert [line for line in told(file) if line.get("kind") == "move"] == []
    memory.merge("debug")
    memory.export(file, branch="main")
    at = {tuple(line["at"]): line["id"] for line in _messages(memory, file, "main")}
    moves = [(one["name"], at[(*one["base"],)], at[(*one["at"],)]) for one in told(file) if one.get("kind") == "move"]
    assert moves == [("main", "m3", "m4")], "the reset dropped messages, and the file does not say which"


def test_a_space_without_vectors_on_the_branch_is_not_named(file: Path) -> None:
    with InfiniteMemory(embedder=HashingEmbedder(8)) as memory:
        memory.fork("side")
        memory.checkout("main")
        memory.add(history(2))
        memory.index()
        memory.checkout("side")
        memory.add(Message.user("aside", id="aside"))
        memory.export(file, branch="main", vectors=True)
        assert told(file)[1]["spaces"] == memory.stats()["embedders"]
        memory.export(file, branch="side", vectors=True)
        assert "spaces" not in told(file)[1]


def test_an_empty_branch_is_a_file_of_no_messages(file: Path) -> None:
    with InfiniteMemory() as memory:
        memory.fork("empty")
        memory.checkout("main")
        memory.add(Message.user("hello"))
        assert memory.export(file, branch="empty") == 0
        assert memory.export(file, branch="empty", format="openai") == 0
        assert file.read_text() == "[]\n"
        assert memory.export(file, branch="main") == 1


def test_rules_apply_to_one_branch_too(memory: InfiniteMemory, file: Path) -> None:
    memory.add(Message.assistant(id="call", tool_calls=(ToolCall(id="c", name="look"),)))
    memory.add(Message.tool("4471", "c", id="result"))
    assert memory.export(file, branch="debug", redact=drop_tool_results) == 8
    assert "4471" not in file.read_text()
    memory.export(file, branch="debug", redact=lambda message: None if message.id == "m3" else message)
    with InfiniteMemory() as other:
        other.import_file(file)
        assert ids(other.messages()) == ["m0", "m1", "m2", "m4", "m5", "call", "result"]


def test_a_branch_that_does_not_exist_is_refused(memory: InfiniteMemory, file: Path) -> None:
    formats: list[Any] = ["jsonl", "markdown", "openai", "jsonl"]
    for name, format in zip(("none", "shared", "m3", ""), formats, strict=True):
        with pytest.raises(UnknownReferenceError, match=f"no branch '{name}'; branches: 'main', 'debug'") as error:
            memory.export(file, branch=name, format=format)
        assert error.value.candidates[:2] == ("main", "debug")
    assert not file.exists()


# Documents


TALK = [
    Message.system("Be brief.", id="s", created_at=NOON),
    Message.user("Where? \ud800 \x00 שלום", id="u", name="Ann", created_at=NOON, grounding="of Ann"),
    Message.assistant(id="a", created_at=NOON, tool_calls=(ToolCall(id="c", name="look", arguments='{"who":"A"}'),)),
    Message.tool("four", "c", id="t", created_at=NOON),
    Message.assistant("There.", id="b", created_at=NOON, payload=Payload(format="x/1", data=1)),
]


def test_a_list_of_openai_s_messages_holds_the_current_system_prompt_alone(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    with InfiniteMemory() as memory:
        for number in range(3):
            memory.add([Message.system(f"It is {number}."), Message.user(f"question {number}")])
        assert memory.export(path, format="openai") == 4
    contents = [item["content"] for item in json.loads(path.read_text(encoding="utf-8"))]
    assert contents == ["question 0", "question 1", "It is 2.", "question 2"]


def test_a_branch_is_a_list_of_openai_s_messages(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    with InfiniteMemory() as memory:
        memory.add(TALK)
        memory.fork("side")
        memory.add(Message.user("aside"))
        memory.checkout("main")
        assert memory.export(path, format="openai") == 5
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"who":"A"}'}}
        expected: list[dict[str, Any]] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where? \ufffd \ufffd שלום", "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "four", "tool_call_id": "c"},
            {"role": "assistant", "content": "There."},
        ]
        assert json.loads(path.read_text(encoding="utf-8")) == expected
        assert memory.export(path, format="openai", branch="side") == 6
        assert json.loads(path.read_text(encoding="utf-8")) == [*expected, {"role": "user", "content": "aside"}]
    with InfiniteMemory() as other:
        result = other.import_file(path)
        assert (result.format, result.new) == ("openai", 6)
        assert texts(other.messages()) == [*texts(TALK), "aside"]
        again = tmp_path / "again.json"
        other.export(again, format="openai")
        assert again.read_bytes() == path.read_bytes()


def test_what_openai_has_no_form_for_is_named(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    with InfiniteMemory() as memory:
        memory.add(Message.user("hi", id="odd", payload=Payload(format="openai/1", data={"score": float("nan")})))
        with pytest.raises(ValueError, match="'odd'"):
            memory.export(path, format="openai")
        assert not path.exists()
        with pytest.raises(ValueError, match="format='json'"):
            memory.export(path, format="json")  # type: ignore[arg-type]
