"""A process killed during a verb leaves the state before or after that verb, as the model has it."""

import os
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from shared_core.stores import SQLiteStore
from tests.tree.two_branches import Rows, rows
from tests.tree.verbs_twin import Twin, begin

SCRIPT = Path(__file__).with_name("verbs_twin.py")
KILLS = 200 if os.environ.get("SOAK") else 3
AT_ONCE = 4
VERBS = 40
"""How many verbs the longest-lived does, about."""


def start(path: Path, seed: int, stack: ExitStack) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[2]), *sys.path])}
    command = [sys.executable, str(SCRIPT), str(path), str(seed)]
    child = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
    stack.callback(child.kill)
    return child


def kill(child: "subprocess.Popen[str]", chance: random.Random) -> int:
    """Kill a process at any moment; return how many verbs it has acknowledged."""
    assert child.stdout is not None
    done = [child.stdout.readline() for _ in range(1 + chance.randrange(VERBS))]
    time.sleep(chance.uniform(0, 0.005))
    child.kill()
    return int([*done, *child.stdout][-1])


def content(twin: Twin) -> Rows:
    """Return what the verbs decide: all rows, without the moments at which they were written."""
    assert isinstance(twin.store, SQLiteStore)
    return rows(twin.store, without=("created_at", "applied_at"))


def check(path: Path, seed: int, done: int) -> bool:
    """Compare a killed process's file with the model; return whether the verb in flight was done, too."""
    expected, chance = begin(":memory:", seed)
    for _ in range(done):
        expected.step(chance)
    found = SQLiteStore(path)
    in_flight = rows(found, without=("created_at", "applied_at")) != content(expected)
    if in_flight:
        expected.step(chance)
        assert rows(found, without=("created_at", "applied_at")) == content(expected), f"after {done} verbs of {seed}"
    expected.store.close()
    # The model says what the new process must see, and both go on from there.
    expected.store = found
    expected.open()
    expected.look_closely()
    for _ in range(10):
        expected.step(chance)
    expected.look_closely()
    found.close()
    return in_flight


@pytest.mark.timeout(3600)
def test_a_killed_verb_is_done_or_not_done(tmp_path: Path) -> None:
    in_flight = 0
    for first in range(0, KILLS, AT_ONCE):
        with ExitStack() as stack:
            # Started together, because most of their time goes by before their first verb.
            children = {
                seed: start(tmp_path / f"{seed}.db", seed, stack) for seed in range(first, min(first + AT_ONCE, KILLS))
            }
            done = {seed: kill(child, random.Random(seed)) for seed, child in children.items()}
        for seed, verbs in done.items():
            in_flight += check(tmp_path / f"{seed}.db", seed, verbs)
    assert KILLS < 100 or 0 < in_flight < KILLS
