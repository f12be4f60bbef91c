"""The code in docs/openai.md works as shown."""

import pytest

from tests.support.documents import Ran, blocks_of, run

PAGE = [
    "Noted. I was shown 2 messages.\nNoted. I was shown 4 messages.\nYou said: My locker code is 4471.\n",
    "It is sunny {}.\n['user', 'assistant', 'tool', 'assistant']\n",
    "{'role': 'user', 'content': 'What is my locker code?'}]\n3\n",
    "Which boat is this? 85\nTrue\n",
    "Noted. I was shown 2 messages.\nYou said: My locker code is 4471.\n",
    "Noted. I was shown 2 messages.\nYou said: My locker code is 4471.\n",
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
