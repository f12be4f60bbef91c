"""100,000 messages copied to a server and back, with kills, while the source is written to: equal to the last row."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shared_core.operations.store_check import check_store
from shared_core.operations.store_comparison import differences
from shared_core.operations.store_copy import copy_store
from shared_core.stores import open_store
from tests.stores import busy_writer
from tests.stores.postgres_server import Server
from tests.stores.test_store_copy import filled, killed_copy
from tests.support.documents import ROOT

pytestmark = [
    pytest.mark.server,
    pytest.mark.soak,
]

MESSAGES = int(os.environ.get("COPIED", "100000"))
KILLS = 6
LARGE = 3
"""Sessions of which each holds as many of the messages."""


@contextmanager
def written_to(address: str, seed: int) -> Iterator[None]:
    """Have another process write to a store until the block ends."""
    command = [sys.executable, "-m", busy_writer.__name__, address, str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "writing\n"
            yield
            process.stdin.close()
            steps = int(process.stdout.readline())
            assert process.wait() == 0
        finally:
            process.kill()
    say(f"  {steps} steps were written meanwhile")


def command(*words: str) -> str:
    """Run the command, and return the last line that it prints."""
    ran = subprocess.run(
        [sys.executable, "-m", "shared_core", *words], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    say(*(f"  {line}" for line in ran.stdout.splitlines()))
    return ran.stdout.splitlines()[-1]


def say(*lines: str) -> None:
    """Show what happens, with `-s`."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def moved(source: str, target: str, seed: int) -> None:
    """Copy while another process writes: killed, then to the end; then once more, and compare all rows."""
    with written_to(source, seed):
        for kill in range(KILLS):
            killed_copy(source, target, 2 + 3 * kill)
            with closing(open_store(target)) as there:
                stored = sum(there.stats(one.key)["messages"] for one in there.sessions())
            say(f"  killed; {stored:,} messages are there")
        command("copy", source, target, "--jobs", "2")
    assert command("copy", source, target, "--jobs", "2", "--verify") == "both hold the same"
    with closing(open_store(source)) as one, closing(open_store(target)) as other:
        assert list(differences(other, one)) == []
        assert copy_store(one, other).to_dict() | {"sessions": 0} == dict.fromkeys(
            ("sessions", "messages", "forgotten", "vectors"), 0
        )
    assert check_store(target).damages == ()


@pytest.mark.timeout(3_600)
def test_a_large_store_moves_to_a_server_and_back_while_it_is_written_to(tmp_path: Path, server: Server) -> None:
    server.run("CREATE DATABASE moved TEMPLATE template0 ENCODING 'UTF8'")
    here, back = tmp_path / "here.db", tmp_path / "back.db"
    filled(here, MESSAGES, sessions=LARGE)
    say("", f"{MESSAGES:,} messages, to the server:")
    moved(str(here), server.address("moved"), 1)
    say("and back:")
    moved(server.address("moved"), str(back), 2)
    with closing(open_store(back)) as store:
        assert sum(store.stats(one.key)["messages"] for one in store.sessions()) > MESSAGES - 1_000
    server.run("DROP DATABASE moved WITH (FORCE)")
