"""The README: its code works as shown, on a file that grows, and everything it points to is there."""

import re
import runpy
import tomllib
from pathlib import Path

from tests.support.documents import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://github.com/infinite-memory/infinite-memory"
HOMES = (f"{REPOSITORY}/blob/main/", "https://raw.githubusercontent.com/infinite-memory/infinite-memory/main/")
SITE = "https://infinite-memory.github.io/infinite-memory/"
BADGES = "https://img.shields.io/badge/"


def test_the_figures_are_those_that_were_measured() -> None:
    measured = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")

    def shares(text: str, row: str) -> list[str]:
        lines = [line for line in text.splitlines() if line.startswith(f"| {row} |")]
        return lines[0].split("|")[2:-1]

    rows = {"sliding window": "the newest messages (a sliding window)", "`context`": "infinite-memory"}
    for name, ours in rows.items():
        small, large = (shares(measured, f"{name}, {size}") for size in ("1,000", "4,000"))
        found = [[round(float(cell.split(",")[0])) for cell in (small[of], large[of])] for of in (0, 1, 3)]
        assert [[int(share) for share in cell.split("/")] for cell in shares(README, ours)] == found


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
    assert all(target.startswith((*HOMES, SITE, BADGES)) for target in targets(ROOT / "README.md"))


def test_its_badges_and_its_picture_are_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    said = re.findall(rf"{BADGES}([\w.+-]+)-blue", README)
    assert said == [f"python-{project['requires-python'].removeprefix('>=')}+", f"licence-{project['license']}"]
    pictures = runpy.run_path(str(ROOT / "docs" / "pictures.py"))
    assert (ROOT / "docs" / "bars.svg").read_text(encoding="utf-8") == pictures["bars"](pictures["prompt"]())


def test_what_documents_point_to_is_there() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    missing = {
        path.relative_to(ROOT): [one for one in targets(path) if not is_there(one, path.parent)] for path in documents
    }
    assert len(documents) > 40
    assert {name: found for name, found in missing.items() if found} == {}
