"""What the README and its example show works as shown."""

import inspect
import re
from pathlib import Path

import pytest

from shared_core import InfiniteMemory
from tests.support.documents import ROOT, python_blocks, run, run_block

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXPECTED = [
    "Casa Azul",
    "4471",
    "Refunds take five working days.",
    "'Noted.', 'What is my locker code?'",
    "The tokenizer never gets past a tab.",
    "I was shown 2",
    "My locker code is 4471.",
    " messages are in it",
]


@pytest.mark.parametrize(("block", "said"), list(zip(python_blocks("README.md"), EXPECTED, strict=True)))
def test_a_block_of_the_readme_runs(block: str, said: str, tmp_path: Path) -> None:
    assert said in run_block(block, tmp_path).out


def test_the_quickstart_recalls_what_was_said_once(tmp_path: Path) -> None:
    assert "the code is 4093" in run(ROOT / "examples" / "quickstart.py", tmp_path).out


def test_the_readme_lists_every_argument() -> None:
    rows = "\n".join(re.findall(r"^\| `.*$", README, flags=re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())))
    arguments = set(inspect.signature(InfiniteMemory).parameters)
    assert listed == arguments
