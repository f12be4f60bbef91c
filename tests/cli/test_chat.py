"""`infinite-memory chat`: a terminal chat that remembers, with a model that needs no key."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.cli.app import run
from shared_core.cli.chat_loop import ChatLoop
from tests.langchain.random_histories import needs_providers

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


def test_it_answers_from_what_was_said_long_ago(chat: Chat, path: str) -> None:
    code, out, err = chat("what is my locker code?")
    assert code == 0
    assert out == "You said: my locker code is 4471\n"
    assert "82 messages known" in err
    with InfiniteMemory(path, session_id="s") as memory:
        asked, answer = memory.newest(2)
    assert (asked.content, answer.turn_id) == ("what is my locker code?", asked.id)
    assert answer.content == "You said: my locker code is 4471"


def test_the_store_may_come_before_the_command(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("/search locker code\n"))
    assert run(["--store", path, "--session", "s", "chat"]) == 0
    assert "my locker code is 4471" in capsys.readouterr().out


def test_a_failing_model_does_not_end_the_chat(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(question: str) -> Iterator[str]:
        yield "half an\x1b "
        raise OSError("out\x07 of order")

    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n/report\n"))
    with InfiniteMemory(path, session_id="s") as memory:
        ChatLoop(memory).run(path, reply)
    out, err = capsys.readouterr()
    assert out == "half an\\x1b \nnothing has been asked yet\n"
    assert "the model failed: out\\x07 of order; your message is stored" in err


def test_it_tells_why_and_searches_and_forgets(chat: Chat, path: str) -> None:
    _, out, _ = chat(
        "/report",
        "what is my code?",
        "/report",
        "/report --full",
        "/search locker code",
        "/help",
        "",
        "/quit",
        "not said",
    )
    assert out.startswith("nothing has been asked yet\n")
    short, full = out.split("Recalled, best first", 1)[1].split("every line: /report --full\n", 1)
    assert re.search(r"^> .*my locker code is 4471$", short, re.MULTILINE)
    assert "recalled " not in short
    assert "matches the question" in full
    assert "/forget ID" in out
    _, out, err = chat("/forget code", "/forget code", "/search 4471", "/nonsense")
    assert "forgot 1 message" in out
    assert "'code'" in err
    assert "no command /nonsense" in err
    with InfiniteMemory(path, session_id="s") as memory:
        assert "not said" not in [message.content for message in memory.newest(9)]
        assert "code" not in [message.id for message in memory.messages()]


@pytest.mark.parametrize(
    ("model", "named"),
    [
        pytest.param("openai:gpt-4o", "api_key", marks=needs_providers),
        ("nobody:none", "nobody"),
        ("gibberish", "gibberish"),
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
