"""The commands about whole conversations: which there are, new names, a search in all, and erasing them."""

import io
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run
from tests.support.histories import NOON, texts

Call = Callable[..., tuple[int, str, str]]
TALKS = [
    (None, "default", "My locker code is 4471."),
    (
        None,
        "trip\nto \x1b[31mPorto",
        "Book three nights in Porto, near the river, on a quiet street, with breakfast.",
    ),
    ("ann", "work", "Who reviews the code?"),
    ("bob", "7b0c4d6e8f1a4c2b9d3e5f6a7b8c9d0e", "漢字" * 60),
]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command in a folder where chat.db holds conversations of several users, one a day."""
    monkeypatch.chdir(tmp_path)
    for day, (user, session, question) in enumerate(TALKS):
        with InfiniteMemory("chat.db", session_id=session, user_id=user) as memory:
            when = NOON + timedelta(days=day)
            memory.add([Message.user(question, created_at=when), Message.assistant("Noted.", created_at=when)])

    def command(*args: str) -> tuple[int, str, str]:
        code = run(args)
        return code, *capsys.readouterr()

    return command


def test_the_conversations_of_nobody_or_of_a_user_are_listed(call: Call) -> None:
    assert call("sessions") == (
        0,
        "SESSION                 MESSAGES  BRANCHES  FIRST       LAST              TITLE\n"
        "trip\\nto \\x1b[31mPorto         2         1  2024-05-02  2024-05-02 12:00  Book three nights in Porto, near "
        "the river, on a quiet street, with breakfast.\n"
        "default                        2         1  2024-05-01  2024-05-01 12:00  My locker code is 4471.\n",
        "",
    )
    assert call("sessions", "--user", "ann")[1].splitlines()[1:] == [
        "work            2         1  2024-05-03  2024-05-03 12:00  Who reviews the code?"
    ]
    assert len(call("sessions", "--limit", "1")[1].splitlines()) == 2
    assert call("sessions", "--user", "eve") == (
        0, "", "infinite-memory: note: 'chat.db' holds no conversations of user 'eve'; --all-users lists those of "
        "everybody\n",
    )  # fmt: skip


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_on_a_terminal_no_line_is_wider(call: Call, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    whole = call("sessions", "--all-users")[1].splitlines()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    rows = call("sessions", "--all-users")[1].splitlines()
    assert len(rows) == len(whole) == 5
    assert max(map(cell_len, rows)) <= columns < max(map(cell_len, whole))
    assert call("sessions", "--all-users", "--full")[1].splitlines() == whole


def test_a_terminal_shows_the_beginning_of_a_random_session_and_takes_it(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = TALKS[3][1]
    bob = ("--user", "bob", "--session", whole[:8])
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert call("sessions", "--user", "bob")[1].splitlines()[1].startswith(f"{whole[:8]}         2 ")
    assert call("search", "Noted", "--scope", "user", *bob)[1].split()[1] == whole[:8]
    assert call("add", "Where?", *bob)[0] == 0
    assert json.loads(call("view", "--json", *bob)[1])["session"] == whole
    assert json.loads(call("rename-session", whole[:8], "work", "--user", "bob", "--json")[1])["was"] == whole
    code, _, err = call("log", *bob)
    assert (code, f"no session '{whole[:8]}'" in err) == (1, True)


def test_all_conversations_of_a_user_are_searched(call: Call) -> None:
    with InfiniteMemory("chat.db", session_id="gym") as memory:
        memory.add(Message.user("Which locker is mine?", created_at=NOON))
    for where in ([], ["--session", "gym"], ["--session", "nope"]):
        code, out, err = call("search", "locker code 4471", "--scope", "user", *where)
        # "Noted." beside it holds none of the words.
        assert (code, err) == (0, "infinite-memory: note: 1 weak match left out; --weak lists them\n")
        assert out.splitlines()[0].endswith("My locker code is 4471.")
        assert {row.split()[1] for row in out.splitlines()} <= {"default", "gym", "trip"}
        assert "reviews" not in out
    told = json.loads(call("search", "who reviews code", "--user", "ann", "--json")[1])
    assert (told[0]["session"], told[0]["content"]) == ("work", "Who reviews the code?")
    assert json.loads(call("search", "code", "--scope", "user", "--role", "tool", "--json")[1]) == []
    assert call("search", "code", "--user", "eve")[:2] == (1, "")


def test_all_conversations_of_a_user_are_erased(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    with InfiniteMemory("chat.db", session_id="home", user_id="ann") as memory:
        memory.add(Message.user("Feed the cat.", created_at=NOON))
    code, out, _ = call("forget", "--all-sessions", "--user", "ann", "--dry-run")
    assert (code, out.splitlines()[0]) == (0, "would forget 3 messages of 2 conversations")
    assert [row.split()[0] for row in out.splitlines()[1:]] == ["SESSION", "work", "home"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    code, out, err = call("forget", "--all-sessions", "--user", "ann")
    assert (code, out) == (1, "")
    assert "would forget 3 messages of 2 conversations" in err
    told = json.loads(call("forget", "--all-sessions", "--user", "ann", "--yes", "--json")[1])
    assert (told["sessions"], len(told["ids"]), told["scrubbed"]) == (["work", "home"], 3, True)
    assert call("forget", "--all-sessions", "--user", "ann", "--yes")[1] == "forgot 0 messages of 0 conversations\n"
    with InfiniteMemory("chat.db", session_id="default") as memory:
        assert texts(memory.messages()) == ["My locker code is 4471.", "Noted."]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("forget", "--all-sessions"), "say whose, with --user ID"),
        (("forget", "--all-sessions", "--all"), "exactly one of ID, --before, --all and --all-sessions"),
        (("sessions", "--store", "none.db"), "no store at 'none.db'"),
        (("sessions", "--limit", "0"), "--limit"),
        (("search", "x", "--scope", "user", "--store", "none.db"), "no store at 'none.db'"),
        (("forget", "--all-sessions", "--user", "u", "--store", "none.db"), "no store at 'none.db'"),
    ],
)
def test_what_cannot_be_done_is_one_line(call: Call, args: tuple[str, ...], expected: str) -> None:
    code, out, err = call(*args)
    assert (code, out, expected in err, err.count("\n")) == (2, "", True, 1)
    assert sorted(path.name for path in Path().glob("*.db")) == ["chat.db"]
