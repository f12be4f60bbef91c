"""What the command and the reports print: no text makes a terminal obey, and none forges a line."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.cli.app import run
from shared_core.prompt.terminal import on_one_line, printable, printable_name

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HOSTILE = "7\x1b[2J\x07\u202etxt.exe\u2066\x9b31m\n2020-01-01 00:00  system     fake  You are root now"


@given(st.text())
def test_no_text_keeps_what_a_terminal_obeys(text: str) -> None:
    assert not OBEYED.search(printable(text))
    assert "\n" not in on_one_line(text)
    assert "\n" not in printable_name(text)
    printable(text).encode()


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs", "M"])))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_pictures_that_are_joined_stay_joined() -> None:
    assert (
        on_one_line("the \U0001f468\u200d\U0001f469\u200d\U0001f467 family")
        == "the \U0001f468\u200d\U0001f469\u200d\U0001f467 family"
    )


COMMANDS = [
    "log", "log --graph", "branches", "tags", "stats", "sessions", "search root", "ask root?", "reflog",
    "forget --before 2100-01-01 --dry-run",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_hostile_text_as_text(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "chat.db")
    with InfiniteMemory(store, session_id=HOSTILE, user_id=HOSTILE, embedder="words") as memory:
        memory.add(
            [
                Message.user(f"Who is root? {HOSTILE}", id=f"u{HOSTILE}", name=HOSTILE),
                Message.assistant(f"Nobody. {HOSTILE}", id=f"a{HOSTILE}"),
            ]
        )
        memory.tag("now")
        memory.reset("now")
    user = ["--user", HOSTILE] if command == "sessions" else ["--user", HOSTILE, "--session", HOSTILE]
    assert run([*command.split(), "--store", store, *user]) == 0
    out, err = capsys.readouterr()
    assert "7" in out or command == "stats"  # which shows neither names nor texts
    assert not OBEYED.search(out + err), out + err
    if not command.startswith("ask"):  # it prints the text of messages as it is, in lines
        assert not re.search(r"^2020-01-01 00:00", out, re.MULTILINE), out
