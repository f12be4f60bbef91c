"""Random histories with hostile text in every field: no forged block, no raw control byte, no crash, no overrun."""

import io
import json
import logging
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.cli.command import run
from shared_core.doors.cli.command_list import COMMANDS
from tests.attacks.hostile_history import OBEYED, Attacker, check_prompt, named_errors

SOAK = bool(os.environ.get("SOAK"))
HISTORIES = 10_000 if SOAK else 20
ON_DISK = 5
"""One history in so many is a file, on which the command is run."""


def tell(memory: InfiniteMemory, attacker: Attacker) -> None:
    """Hold a hostile conversation with branches, merges, tags, stashes and moves."""
    chance = attacker.chance
    memory.add(Message.system("Be brief.\x1b[2J"))
    for _ in range(chance.randrange(3, 14)):
        with named_errors():
            memory.add(attacker.turn())
        name = attacker.id(4)
        with named_errors():
            match chance.randrange(9):
                case 0:
                    memory.fork(name)
                case 1:
                    memory.checkout("main")
                case 2:
                    memory.tag(name)
                case 3:
                    other = chance.choice([one.name for one in memory.branches()] or ["main"])
                    memory.merge(other, chance.choice(["auto", "squash", "full"]))
                case 4:
                    memory.stash(note=name)
                case 5:
                    memory.reset(f"{memory.branch}@{{1}}")
                case 6:
                    memory.forget(ids=[one.id or "" for one in memory.newest(1)])
                case 7:
                    memory.rename_branch(memory.branch or "", name)


def ask(memory: InfiniteMemory, attacker: Attacker, settings: dict[str, object]) -> int:
    """Ask hostile questions; check the prompts, and what the reports print. Return how many prompts there were."""
    prompts = 0
    for _ in range(2):
        with named_errors():
            about = attacker.chance.choice([one.content + " " for one in memory.newest(40)] or [""])
            question = attacker.message("user", about, grounding=attacker.grounding()).replace(id=None)
            tools = attacker.chance.choice([[], [attacker.text()]])
            prompt = memory.context(question, tools=tools)
            check_prompt(prompt, question, tools, memory, settings)
            prompts += 1
            for shown in (prompt.report.render(), prompt.report.full(), str(prompt.report)):
                assert not OBEYED.search(shown), shown
        with named_errors():
            memory.search(attacker.text() or "x", attacker.chance.choice([1, 9]))
    return prompts


def commands(attacker: Attacker, folder: Path) -> list[list[str]]:
    """Return command lines with hostile arguments, of all commands in turn."""
    one, other = attacker.text(4), attacker.text(4)
    (folder / "questions.jsonl").write_text(json.dumps({"question": one, "answer": other}) + "\n")
    (folder / "talk.json").write_text(json.dumps([{"role": "user", "content": one, "name": other}]))
    page, copy = str(folder / "page.html"), str(folder / f"copy-{attacker.chance.random()}.db")
    lines = [
        *(["log"], ["log", "--graph"], ["show", one], ["stats"], ["status"], ["branches"], ["tag"]),
        *(["sessions"], ["sessions", "--all-users"]),
        *(["reflog"], ["stash", "list"], ["stash", "push", "--note", one], ["stash", "pop"]),
        *(["stash", "apply"], ["stash", "drop"], ["view", "--out", page], ["doctor"], ["backup", copy]),
        ["restore", copy], ["copy", copy, f"{copy}.2"],
        *(["search", one], ["explain", one], ["explain", one, "--full"], ["add", one, "--name", other]),
        ["diff", one, other],
        *(["fork", one], ["checkout", one], ["tag", one], ["tag", one, "--delete"], ["rename", one, other]),
        ["merge", one],
        *(["delete-branch", one], ["cherry-pick", one], ["rebase", one], ["reset", one], ["undo"]),
        *(["forget", one, "--dry-run"], ["forget", "--before", "2100-01-01", "--dry-run"]),
        *(["download"], ["rename-session", one, other], ["title", one]),
        *(["import", str(folder / "talk.json"), "--session", one], ["import", str(folder / "exported.jsonl")]),
        *(["export", str(folder / "exported.jsonl"), "--vectors"], ["export", str(folder / "talk.md")], ["chat"]),
        ["evaluate", str(folder / "questions.jsonl")],
        *(["mcp", "--http", "--host", one], ["serve", "--host", one]),  # refused: other machines may reach it
    ]  # fmt: skip
    assert {line[0] for line in lines} == {*COMMANDS}
    return lines


def command(line: list[str], store: Path, attacker: Attacker) -> None:
    """Run the command, with hostile names at times; what it prints holds nothing that a terminal obeys."""
    out, err = io.StringIO(), io.StringIO()
    said = io.StringIO(f"{attacker.text()}\n{attacker.text()}\n")
    own = ["--store", str(store)]
    own += ["--model", "echo"] if line[0] == "chat" else []
    own += ["--user", attacker.text(3) or "x"] if attacker.chance.random() < 0.1 else []
    with patch("sys.stdin", said), redirect_stdout(out), redirect_stderr(err), suppress(SystemExit):
        run([*line, *own])
    assert not OBEYED.search(out.getvalue() + err.getvalue()), (line, out.getvalue(), err.getvalue())
    assert "Traceback" not in err.getvalue()
    if line[0] in ("log", "show", "branches", "stats", "status", "search", "sessions", "reflog") or line == ["tag"]:
        with patch("sys.stdin", said), redirect_stdout(out := io.StringIO()), redirect_stderr(err):
            if run([*line, "--json", *own]) == 0:
                json.loads(out.getvalue())


def live_through(seed: int, folder: Path) -> int:
    """Tell and ask one history; return how many prompts were checked."""
    attacker = Attacker(seed)
    on_disk = seed % ON_DISK == 0
    settings = attacker.settings()
    store = folder / f"{seed}.db" if on_disk else None
    session, user = attacker.id(3) or "s", attacker.chance.choice([None, attacker.id(3) or "u"])
    with warnings.catch_warnings(), InfiniteMemory(store, session_id=session, user_id=user, **settings) as memory:
        warnings.simplefilter("ignore", RuntimeWarning)
        tell(memory, attacker)
        prompts = ask(memory, attacker, settings)
    if store is not None:
        lines = commands(attacker, folder)
        first = seed // ON_DISK * 3
        for line in (lines[(first + number) % len(lines)] for number in range(3)):
            own = ["--session", session] if line[0] != "import" else []
            command([*line, *own, *(["--user", user] if user else [])], store, attacker)
        for path in folder.iterdir():
            path.unlink()
    return prompts


def test_no_history_forges_a_block_crashes_or_commands_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = 0
    for seed in range(HISTORIES):
        with caplog.at_level(logging.DEBUG, logger="shared_core"):
            try:
                prompts += live_through(seed, tmp_path)
            except BaseException as error:
                error.add_note(f"history {seed}")
                raise
        assert not OBEYED.search(caplog.text.replace("\n", "")), seed
        caplog.clear()
    sys.stdout.write(f"{HISTORIES} histories, {prompts} prompts checked\n")
    assert prompts > HISTORIES
