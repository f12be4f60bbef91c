"""The code in the README works as shown, and its table lists every argument."""

import inspect
import re

import pytest

from shared_core import InfiniteMemory
from tests.support.documents import ROOT, Ran, blocks_of, run

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


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    folder = tmp_path_factory.mktemp("blocks")
    return run(blocks_of("README.md", folder), folder)


def test_every_block_has_an_expected_output(blocks: list[Ran]) -> None:
    assert len(blocks) == len(EXPECTED)


@pytest.mark.parametrize("number", range(len(EXPECTED)))
def test_a_block_of_the_readme_runs(number: int, blocks: list[Ran]) -> None:
    assert EXPECTED[number] in blocks[number].out


def test_the_readme_lists_every_argument() -> None:
    rows = "\n".join(re.findall(r"^\| `.*$", README, flags=re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())))
    arguments = set(inspect.signature(InfiniteMemory).parameters)
    assert listed == arguments
