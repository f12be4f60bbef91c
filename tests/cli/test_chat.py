"""`infinite-memory chat`: a terminal chat that remembers, with a model that needs no key."""

import io
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from langchain_infinite_memory.chat import chat_model as langchain_model
from langchain_infinite_memory.testing import EchoChatModel
from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.chat import ChatLoop
from shared_core.doors.cli.command import run
from shared_core.doors.cli.models import ChatModel
from tests.langchain.random_histories import needs_providers
from tests.support.documents import ROOT

SETTINGS = ["--session", "s", "--max-tokens", "900"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A conversation that has outgrown the window."""
    path = str(tmp_path / "chat.db")
    with InfiniteMemory(path, session_id="s") as memory:
        memory.add([Message.user("my locker code is 4471", id="code"), Message.assistant("Noted.", id="noted")])
        for number in range(40):
            memory.add([Message.user(f"what about item {number}?"), Message.assistant("It is on its way. " * 2)])
    return path


Chat = Callable[..., tuple[int, str, str]]


@pytest.fixture
def chat(path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Chat:
    def say(*lines: str, model: str = "echo") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = run(["chat", "--store", path, "--model", model, *SETTINGS])
        return code, *capsys.readouterr()

    return say


Talk = Callable[..., tuple[list[str], str]]


@pytest.fixture
def talk(path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    def say(model: ChatModel, *lines: str) -> tuple[list[str], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        with InfiniteMemory(path, session_id="s") as memory:
            ChatLoop(memory, model, lambda name, words: "main").run(path)
        out, err = capsys.readouterr()
        return out.splitlines(), err

    return say


def test_it_answers_from_what_was_said_long_ago(chat: Chat, path: str) -> None:
    code, out, err = chat("what is my locker code?")
    assert code == 0
    assert out == "You said: my locker code is 4471\n"
    assert "82 messages known" in err
    with InfiniteMemory(path, session_id="s") as memory:
        asked, answer = memory.newest(2)
    assert (asked.content, answer.turn_id) == ("what is my locker code?", asked.id)
    assert answer.content == "You said: my locker code is 4471"


def test_a_failing_model_does_not_end_the_chat(talk: Talk, path: str) -> None:
    def model(prompt: Sequence[Message]) -> Iterator[str]:
        yield "half an\x1b "
        raise OSError("out\x07 of order")

    out, err = talk(model, "hello")
    assert out == ["half an\\x1b "]
    with InfiniteMemory(path, session_id="s") as memory:
        assert [message.content for message in memory.newest(2)] == ["hello", "half an\x1b "]
    assert "the model failed: out\\x07 of order; what was written is stored" in err


def test_a_question_without_an_answer_is_stored_once(talk: Talk, path: str) -> None:
    answers = iter(["", "Now."])

    def model(prompt: Sequence[Message]) -> Iterator[str]:
        yield next(answers) or str(1 / 0)

    _, err = talk(model, "hello", "hello")
    assert "the model failed: division by zero; your message is stored" in err
    with InfiniteMemory(path, session_id="s") as memory:
        assert [message.content for message in memory.newest(3)][1:] == ["hello", "Now."]


def test_ctrl_c_stops_an_answer_and_keeps_what_was_written(talk: Talk, path: str) -> None:
    def model(prompt: Sequence[Message]) -> Iterator[str]:
        yield "Once upon"
        raise KeyboardInterrupt

    out, err = talk(model, "a story", "/report --full")
    assert out[0] == "Once upon"
    assert "a story" in "".join(out[1:])
    assert "stopped; what was written is stored" in err
    with InfiniteMemory(path, session_id="s") as memory:
        assert memory.newest(1)[0].content == "Once upon"


class Terminal:
    """Lines typed at a terminal; an empty one is Ctrl-C."""

    def __init__(self, *lines: str) -> None:
        self._lines = iter(lines)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        line = next(self._lines)
        if not line:
            raise KeyboardInterrupt
        return f"{line}\n"


def test_the_prompt_shows_the_branch_and_ctrl_c_how_to_leave(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("/fork side", "", "/quit"))
    assert run(["chat", "--store", path, "--session", "s"]) == 0
    prompts = capsys.readouterr().err.partition("lists the commands\n")[2]
    assert prompts == "main> side> \nto end the chat: /quit or Ctrl-D\nside> "


def test_a_fork_is_talked_on_and_the_store_remembers_it(chat: Chat, path: str) -> None:
    code, out, err = chat("/fork side --at code", "on the side", "/branches", "/checkout main", "/log -n 1")
    assert (code, err.count("\n")) == (0, 1)
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if " side  20" in line] == ["*"]
    assert lines[-1].endswith("It is on its way. It is on its way.")
    with InfiniteMemory(path, session_id="s") as memory:
        memory.checkout("side")
        assert [message.content for message in memory.messages()][:2] == ["my locker code is 4471", "on the side"]
    chat("/checkout side")
    assert "Noted." in chat("/log -n 1")[1]
    chat("/checkout main")
    assert "It is on its way" in chat("/log -n 1")[1]


def test_branches_are_merged_and_stashed_in_the_chat(chat: Chat) -> None:
    chat("/fork side", "on the side", "/checkout main")
    out = chat(
        "/merge side --how squash", "/merge main", "/stash", "/stash list", "/stash pop", "/undo", "/stash pop",
        "/log --graph -n 2",
    )[1].splitlines()  # fmt: skip
    assert out[:2] == ["merged side into main (squash)", "From the branch 'side':"]
    assert "nothing to merge: main is the branch to merge into: check out another one first" in out
    assert "stashed 2 messages" in out
    assert [line for line in out if line.endswith("  main  2 messages")]
    assert "copied 2 messages" in out
    assert [line.partition(":")[0] for line in out if "again" in line] == ["undo stash pop"]
    assert sum(line.startswith("*") for line in out) == 2


WRONG = {
    "/fork": "Missing argument 'NAME'",
    "/fork a b c": "Got unexpected extra argument(s) (b c)",
    "/fork main": "there is already a branch 'main'",
    "/checkout none": "no branch or message 'none'; branches: 'main'",
    "/checkout code": "'code' is not a branch; to go on from there: fork NAME --at code",
    "/merge main --how sideways": "'sideways' is not one of 'auto', 'fast-forward', 'full', 'squash', 'three-way'",
    "/merge none": "no branch or message 'none'",
    "/stash pop": "there is no stash 0: nothing is stashed",
    "/log -n many": "expected a whole number",
    "/forget": "choose what to forget",
    "/serve": "no command /serve; /help lists the commands",
}


def test_a_wrong_command_is_one_line_and_the_chat_goes_on(chat: Chat) -> None:
    code, _, err = chat(*WRONG, "/quit")
    said = err.splitlines()[1:]
    assert (code, len(said)) == (0, len(WRONG))
    for expected, line in zip(WRONG.values(), said, strict=True):
        assert expected in line


def test_what_needs_a_message_says_so_in_a_chat_that_has_none(chat: Chat) -> None:
    chat("/forget --all --yes")
    code, out, err = chat("/log", "/log --help", "/add hello", "/log")
    assert (code, err.splitlines()[1:]) == (0, ["/log needs a message: say something first"])
    assert "hello" in out.splitlines()[-1]


def test_it_tells_why_and_searches_and_forgets(chat: Chat, path: str) -> None:
    asked = ("/report", "what is my code?", "/report", "/report --full", "/search what's my code", "/help", "", "/quit")
    _, out, _ = chat(*asked, "not said")
    assert out.startswith("nothing has been asked yet\n")
    short, full = out.split("Recalled, best first", 1)[1].split("every line: /report --full\n", 1)
    assert re.search(r"^> .*my locker code is 4471$", short, re.MULTILINE)
    assert "recalled " not in short
    assert "matches the question" in full
    assert "/forget         Erase messages for good, on all branches." in out
    assert re.search(r"^strong .*my locker code is 4471$", out, re.MULTILINE)
    _, out, err = chat("/forget code", "yes", "/forget code", "/search 4471", "/nonsense")
    assert "forgot 1 message" in out
    assert "'code'" in err
    assert "no command /nonsense" in err
    with InfiniteMemory(path, session_id="s") as memory:
        assert "not said" not in [message.content for message in memory.newest(9)]
        assert "code" not in [message.id for message in memory.messages()]


# Models


def install(folder: Path, distribution: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Write the entry points of a distribution as an installation has them."""
    info = folder / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")
    lines = [line for group, names in groups.items() for line in (f"[{group}]", *map(" = ".join, names.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry points of this tree, and those of a package with models of its own."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    install(tmp_path, "infinite-memory", ours)
    install(tmp_path, "counting", {"infinite_memory.models": {"counting": "counting_models:model"}})
    (tmp_path / "counting_models.py").write_text(
        "def model(name):\n    return lambda prompt: iter([name, ' was given ', prompt[-1].content])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("model", "named"),
    [
        pytest.param("openai:gpt-4o", "api_key", marks=needs_providers),
        ("nobody:none", "nobody"),
        ("gibberish", "gibberish"),
        pytest.param("foo", "='foo'; write its provider before it, as in openai:gpt-4o-mini\n", marks=needs_providers),
    ],
)
def test_a_model_that_cannot_be_used_is_said_in_one_line(
    chat: Chat, model: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, out, err = chat("hello", model=model)
    assert (code, out) == (2, "")
    assert err.startswith("infinite-memory: ")
    assert err.count("\n") == 1
    assert named in err


@pytest.mark.usefixtures("installed")
def test_another_package_offers_models_to_chats_and_merges(
    chat: Chat, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = chat("hello", "/fork side", "aside", "/checkout main", "/merge side --how three-way", model="counting:7")[1]
    assert out.splitlines()[0] == "counting:7 was given hello"
    merged = out.partition("merged side into main (three-way)\n")[2]
    assert merged.startswith("counting:7 was given ")
    assert "user: aside\nassistant: counting:7 was given aside" in merged
    merge = ["merge", "side", "--store", path, "--session", "s", "--how", "squash", "--model", "counting:8"]
    chat("/checkout side", "more", "/checkout main")
    assert run([*merge, "--prompt", "What now?"]) == 0
    said = capsys.readouterr().out
    assert "counting:8 was given user: more\n\nassistant: " in said
    assert said.endswith("The above is a record. What now?\nto take it back: undo --branch main\n")


def test_ctrl_c_ends_a_chat_that_is_not_typed(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pipe:
        def isatty(self) -> bool:
            return False

        def readline(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Pipe())
    assert run(["chat", "--store", path]) == 130
    assert capsys.readouterr().err.endswith("\ninfinite-memory: interrupted\n")


@pytest.mark.usefixtures("installed")
def test_without_langchain_a_model_says_what_to_install(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("langchain_infinite_memory")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("shared_core.errors.find_spec", lambda name: None)
    code, out, err = chat("hello", model="openai:gpt-4o")
    assert (code, out) == (2, "")
    assert err == 'infinite-memory: langchain_core is not installed: pip install "infinite-memory[langchain]"\n'


def test_a_model_of_langchain_is_given_the_prompt_and_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []

    class Noting(EchoChatModel):
        def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            sent.append([f"{message.type}: {message.text}" for message in messages])
            yield from super()._stream(messages, *args, **kwargs)

    monkeypatch.setattr("langchain.chat_models.init_chat_model", lambda name: Noting())
    pieces = list(langchain_model("any:model")([Message.user("hi"), Message.system("Be brief.")]))
    assert sent == [["system: Be brief.", "human: hi"]]
    assert "".join(pieces) == "Noted. I was shown 2 messages."
    assert len(pieces) > 5
