"""What the README and the examples show works as shown."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shared_core import InfiniteMemory

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
EXPECTED = [
    "Casa Azul",
    "4471",
    "Refunds take five working days.",
    "'Noted.', 'What is my locker code?'",
    "I was shown 2",
]


def run(path: Path, folder: Path) -> str:
    command = [sys.executable, "-X", "utf8", str(path)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("block", "said"), list(zip(BLOCKS, EXPECTED, strict=True)))
def test_a_block_of_the_readme_runs(block: str, said: str, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block, encoding="utf-8")
    assert said in run(script, tmp_path)


def test_the_quickstart_recalls_what_was_said_once(tmp_path: Path) -> None:
    assert "the code is 4093" in run(ROOT / "examples" / "quickstart.py", tmp_path)


def test_the_readme_lists_every_argument() -> None:
    rows = "\n".join(re.findall(r"^\| `.*$", README, flags=re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())))
    arguments = set(inspect.signature(InfiniteMemory).parameters)
    assert listed == arguments
