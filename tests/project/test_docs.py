"""The pages of the documentation: their tables are complete, and name what there is."""

import inspect
import re

from shared_core import InfiniteMemory
from tests.support.documents import ROOT

DOCS = ROOT / "docs"


def test_the_arguments_are_all_listed() -> None:
    page = (DOCS / "arguments.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| `.*$", page, flags=re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())))
    arguments = set(inspect.signature(InfiniteMemory).parameters)
    assert listed == arguments


def test_the_errors_that_have_a_cure_are_raised() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "shared_core").rglob("*.py"))
    page = (DOCS / "cures.md").read_text(encoding="utf-8").partition("## Without an error")[0]
    said = [
        one for row in page.splitlines() if row.startswith("| `") for one in re.findall("`(.+?)`", row.split("|")[1])
    ]
    assert len(said) > 12
    assert [one for one in said if one not in code] == []


def test_every_logger_is_listed() -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    packages = [ROOT / name for name in ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")]
    files = [path for package in packages for path in package.rglob("*.py")]
    named = re.compile(r'getLogger\((?:"([\w.]+)"|__name__)\)')
    for path in files:
        for name in named.findall(path.read_text(encoding="utf-8")):
            home = name or path.parent.relative_to(ROOT).as_posix().replace("/", ".")
            assert home == "httpx" or f"\n| `{home}` |" in page, home
