"""The pages of the documentation: their code runs and prints what they show, and the tables are complete."""

import contextlib
import inspect
import io
import re
import shlex
from pathlib import Path

import pytest

from shared_core import InfiniteMemory
from shared_core.cli.app import run as run_command
from tests.support.documents import ROOT, Ran, blocks_of, run

DOCS = ROOT / "docs"
EXPECTED = {
    "index.md": [
        "['You are a helpful travel agent.', 'We loved the Casa Azul by the river.', 'Noted.', 'Which hotel",
        "You said: We loved the Casa Azul by the river.\n",
        "You said: My locker code is 4471.\n",
    ],
    "python.md": [
        "Be brief. It is 9 o'clock.\nBe brief. It is 10 o'clock.\nAnswer in verse.\n4 messages are stored\n",
        "4471",
        "From the handbook:\n\nRefunds take five working days.",
        "'Noted.', 'What is my locker code?'",
        "['user', 'assistant', 'tool']\n",
        "['My locker code is 4471.'",
    ],
    "explain.md": ["['My locker code is 4471."],
    "branches.md": ["The tokenizer never gets past a tab."],
    "summaries.md": [" messages are in it"],
    "operations.md": ["My locker code is 4471.\n"],
    "format.md": ["2 ['A. here: it hangs at a tab.', 'Then it never moves on.']\n"],
}
ELSEWHERE = {"tutorial.md", "langchain.md", "llama_index.md"}
"""Pages whose blocks are run by other tests."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Ran]]:
    """What the blocks of each page did."""
    folder = tmp_path_factory.mktemp("pages")
    scripts = {}
    for page in EXPECTED:
        (folder / page).mkdir()
        scripts[page] = blocks_of(f"docs/{page}", folder / page)
    done = iter(run([script for blocks in scripts.values() for script in blocks], folder))
    return {page: [next(done) for _ in blocks] for page, blocks in scripts.items()}


def test_every_block_of_every_page_is_run(pages: dict[str, list[Ran]]) -> None:
    with_code = {path.name for path in DOCS.glob("*.md") if "```python\n" in path.read_text(encoding="utf-8")}
    assert with_code == set(EXPECTED) | ELSEWHERE
    assert {page: len(blocks) for page, blocks in pages.items()} == {page: len(n) for page, n in EXPECTED.items()}


@pytest.mark.parametrize("page", EXPECTED)
def test_the_blocks_of_a_page_run(page: str, pages: dict[str, list[Ran]]) -> None:
    for expected, block in zip(EXPECTED[page], pages[page], strict=True):
        assert expected in block.out
        assert block.err == ""


# The tutorial


def test_the_first_hour_goes_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs, one after the other on one file, print what it shows; then its commands succeed."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    programs = blocks_of("docs/tutorial.md", tmp_path)
    programs[0] = programs[0].rename(tmp_path / "chat.py")  # as the tutorial says
    shown = re.findall(r"^```text\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    ran = run(programs, tmp_path, together=True)
    assert len(ran) == len(shown)
    for program, output in zip(ran, shown, strict=True):
        assert program.out.startswith(output)
        assert program.err == ""
    assert "- user: My locker code is 4471.\n" in ran[2].out
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ infinite-memory (.+)$", text, flags=re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert run_command(shlex.split(command)) == 0, command
        assert out.getvalue()
    assert (tmp_path / "page.html").is_file()


# The tables


def test_the_arguments_are_all_listed() -> None:
    page = (DOCS / "arguments.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| `.*$", page, flags=re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())))
    arguments = set(inspect.signature(InfiniteMemory).parameters)
    assert listed == arguments
