"""The README: its code works as shown, on a file that grows, and everything it points to is there."""

import re
from pathlib import Path

import pytest

from shared_core import InfiniteMemory
from tests.support.documents import ROOT, Ran, blocks_of, run

README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://github.com/infinite-memory/infinite-memory"
HOMES = (f"{REPOSITORY}/blob/main/", "https://raw.githubusercontent.com/infinite-memory/infinite-memory/main/")
SITE = "https://infinite-memory.github.io/infinite-memory/"
RUNS = 5


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Ran], Path]:
    """The only block, run again and again on one file, and that file."""
    folder = tmp_path_factory.mktemp("readme")
    blocks = blocks_of("README.md", folder)
    return run(blocks * RUNS, folder, together=True), folder / "chat.db"


def test_the_block_runs_and_prints_the_report(ran: tuple[list[Ran], Path]) -> None:
    runs, _ = ran
    assert len(runs) == RUNS, "the README has one block"
    for one in runs:
        assert re.search(r"\d+ of 3,596 tokens", one.out)
        assert one.err == ""


def test_runs_of_the_block_on_one_file_send_one_system_prompt(ran: tuple[list[Ran], Path]) -> None:
    _, path = ran
    with InfiniteMemory(path, session_id="alice", system="You are a helpful travel agent.") as memory:
        assert len(memory.messages()) == 4 * RUNS
        sent = memory.context("Which hotel did we like so much?").messages
    assert [message.content for message in sent if message.role == "system"] == ["You are a helpful travel agent."]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 100
    assert "$ make demo" in README
    assert "$ make test" in README


def targets(path: Path) -> list[str]:
    """Return where the links and pictures of a document lead."""
    return re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))


def is_there(target: str, folder: Path) -> bool:
    """Return whether a target is a file of this repository, or outside of it."""
    for home in HOMES:
        if target.startswith(home):
            return (ROOT / target.removeprefix(home)).is_file()
    return "://" in target or (folder / target.partition("#")[0]).exists()


def test_the_links_of_the_readme_are_absolute_because_a_package_index_shows_it_too() -> None:
    assert len(targets(ROOT / "README.md")) > 15
    assert all(target.startswith((*HOMES, SITE)) for target in targets(ROOT / "README.md"))


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_what_a_document_points_to_is_there(path: Path) -> None:
    assert [target for target in targets(path) if not is_there(target, path.parent)] == []
