"""The code in docs/openai.md works as shown."""

import re

import pytest

from tests.support.documents import ROOT, Ran, blocks_of, run

PAGE = [
    "Noted.\nNoted.\nIt was said: My locker code is 4471.\n",
    "It is sunny {}.\n['user', 'assistant', 'tool', 'assistant']\n",
    "{'role': 'user', 'content': 'What is my locker code?'}]\n3\n",
    "Which boat is this? 85\nTrue\n",
    "Noted.\nIt was said: My locker code is 4471.\n",
    "Noted.\nIt was said: My locker code is 4471.\n",
]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    folder = tmp_path_factory.mktemp("blocks")
    return run(blocks_of("docs/openai.md", folder), folder)


def test_every_block_has_an_expected_output(blocks: list[Ran]) -> None:
    assert len(blocks) == len(PAGE)


@pytest.mark.parametrize("number", range(len(PAGE)))
def test_a_block_of_the_page_runs(number: int, blocks: list[Ran]) -> None:
    assert blocks[number].out.endswith(PAGE[number])
    assert blocks[number].err == ""


def test_the_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!#)([^)]+)\)", (ROOT / "docs" / "openai.md").read_text(encoding="utf-8"))
    assert links
    assert all((ROOT / "docs" / link).exists() for link in links)
