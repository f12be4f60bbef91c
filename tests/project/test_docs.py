"""The pages of the documentation: their code runs and prints what they show, and the tables are complete."""

import inspect
import re

import shared_core
from shared_core import AsyncInfiniteMemory, InfiniteMemory
from tests.support.documents import ROOT

DOCS = ROOT / "docs"
# The tables


def test_the_arguments_are_all_listed() -> None:
    page = (DOCS / "arguments.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| `.*$", page, flags=re.MULTILINE))
    listed = set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in rows.splitlines())))
    arguments = set(inspect.signature(InfiniteMemory).parameters)
    assert listed == arguments


# What they say of the package


def test_what_is_said_of_us_beside_others_is_so() -> None:
    page = (DOCS / "beside.md").read_text(encoding="utf-8")
    rows = (row.split("|")[1:3] for row in page.splitlines() if row.startswith("| "))
    ours = {name.strip(): said.strip() for name, said in rows}
    assert (ours["reranking"] != "no") == ("reranker" in inspect.signature(InfiniteMemory).parameters)
    assert all(store in shared_core.__all__ for store in ("SQLiteStore", "PostgresStore"))
    assert all(name in ours["where it runs"] for name in ("proxy", "MCP", "SQLite", "PostgreSQL"))
    for verb in ("branches", "merge", "cherry_pick", "stash", "export"):
        assert hasattr(InfiniteMemory, verb)
    assert "no reranker" not in page
    assert "no multi-user" not in page


def test_the_methods_of_the_asynchronous_memory_are_coroutines_but_for_one_iterator() -> None:
    methods = dict(inspect.getmembers(AsyncInfiniteMemory, inspect.isfunction))
    public = {name: method for name, method in methods.items() if not name.startswith("_")}
    assert [name for name, method in public.items() if not inspect.iscoroutinefunction(method)] == ["messages"]
    assert inspect.isasyncgenfunction(public["messages"])


def test_every_logger_is_listed() -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    packages = [ROOT / name for name in ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")]
    files = [path for package in packages for path in package.rglob("*.py")]
    named = re.compile(r'getLogger\((?:"([\w.]+)"|__name__)\)')
    for path in files:
        for name in named.findall(path.read_text(encoding="utf-8")):
            home = name or path.parent.relative_to(ROOT).as_posix().replace("/", ".")
            assert home == "httpx" or f"\n| `{home}` |" in page, home
