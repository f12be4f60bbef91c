"""Run the code that documents show as a reader would: each script in a folder of its own, without a network."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Ran", "blocks_of", "run", "run_in"]

ROOT = Path(__file__).parents[2]

# All scripts run in one process, because importing LangChain or LlamaIndex takes longer than what most of them do.
RUN = """
import contextlib, io, json, os, runpy, sys

def refuse(event, args):
    hosts = {"socket.connect": lambda: args[1][0], "socket.getaddrinfo": lambda: args[0]}
    if event in hosts and hosts[event]() != "127.0.0.1":  # a script may talk to a server of its own
        raise ConnectionError(f"no network here: {event} {args[-1]}")

sys.addaudithook(refuse)
ran = []
for script, folder in json.loads(sys.argv.pop()):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    sys.path[0] = folder  # a script imports what lies beside it
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        runpy.run_path(script, run_name="__main__")
    ran.append((out.getvalue(), err.getvalue(), os.listdir()))
print(json.dumps(ran))
"""


class Ran(NamedTuple):
    """What a script wrote, and the names of the files that it left in its folder."""

    out: str
    err: str
    files: list[str]


def blocks_of(document: str, folder: Path) -> list[Path]:
    """Write each block of Python in a document, given by its path in the repository, to a file in a folder."""
    text = (ROOT / document).read_text(encoding="utf-8")
    scripts = []
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        scripts.append(folder / f"block {number}.py")
        scripts[-1].write_text(block, encoding="utf-8")
    return scripts


def run(scripts: Sequence[Path], folder: Path, *, together: bool = False) -> list[Ran]:
    """Run scripts in turn, each in a new folder inside this one, or all `together` in it; all must succeed."""
    return run_in([(script, folder if together else folder / f"run {n}") for n, script in enumerate(scripts)])


def run_in(given: Sequence[tuple[Path, Path]]) -> list[Ran]:
    """Run scripts in turn, each in the folder beside it; all must succeed."""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", RUN, json.dumps([(str(script), str(folder)) for script, folder in given])],
        env={"PYTHONPATH": str(ROOT), "INFINITE_MEMORY_EMBEDDER": "static", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [Ran(*ran) for ran in json.loads(done.stdout)]
