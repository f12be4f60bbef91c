"""Run the code that documents show as a reader would: each script in its own process and folder, without a network."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Ran", "python_blocks", "run", "run_block"]

ROOT = Path(__file__).parents[2]

OFFLINE = """
import runpy, sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise ConnectionError(f"no network here: {event} {args[-1]}")

sys.addaudithook(refuse)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


class Ran(NamedTuple):
    """What a script wrote."""

    out: str
    err: str


def python_blocks(document: str) -> list[str]:
    """Return the blocks of Python in a document, by its path in the repository."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run(script: Path, folder: Path) -> Ran:
    """Run a script in a folder; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", OFFLINE, str(script)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Ran(done.stdout, done.stderr)


def run_block(block: str, folder: Path) -> Ran:
    """Run a block of a document in a folder; it must succeed."""
    script = folder / "block.py"
    script.write_text(block, encoding="utf-8")
    return run(script, folder)
