"""The pages of the documentation: their code runs and prints what they show, and the tables are complete."""

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime

import shared_core
from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message
from shared_core.plugins.embedders import CallableEmbedder
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


def kept() -> bool:
    """Every message is kept as it was said, without a model, and is found by its words alone."""
    with InfiniteMemory(embedder="words") as memory:
        memory.add(Message.user("My locker  code is 4471!"))
        found = memory.search("locker code", top_k=1)[0].message.content
        return found == memory.newest(1)[0].content == "My locker  code is 4471!"


def meant() -> bool:
    """A vector alone is enough to find a message."""
    near = CallableEmbedder(lambda texts: [[1.0, 0.0] for _ in texts], name="near", dimension=2)
    with InfiniteMemory(embedder=near) as memory:
        memory.add(Message.user("The combination is 4471."))
        memory.index()
        return [hit.source for hit in memory.search("locker")] == ["dense"]


def within_budget() -> bool:
    with InfiniteMemory(max_tokens=300, reserve_tokens=100, embedder="words") as memory:
        memory.add([Message.user(f"Day {day} was dry.") for day in range(90)])
        report = memory.context("What of day 3?").report
        return report.total_tokens <= report.budget == 200 and {line.id for line in report.lines if line.id} != set()


def both_dated() -> bool:
    with InfiniteMemory(max_tokens=300, reserve_tokens=50, embedder="words", recall="thorough") as memory:
        for year, budget in ((2024, "2,800"), (2025, "3,200")):
            memory.add(Message.user(f"The kitchen budget is {budget}.", created_at=datetime(year, 1, 1, tzinfo=UTC)))
        memory.add([Message.user(f"Day {day} was sunny and dry, and long.") for day in range(60)])
        text = memory.context("What is the kitchen budget?").messages[-1].content
        return all(said in text for said in ("2024-01-01", "2,800", "2025-01-01", "3,200"))


def follows_the_branch() -> bool:
    with InfiniteMemory(embedder="words") as memory:
        memory.add(Message.user("hello"))
        memory.fork("side")
        memory.add(Message.user("The code is 4471."))
        there = memory.search("code")
        memory.checkout("main")
        before = memory.search("code")
        memory.merge("side")
        return bool(there) and not before and bool(memory.search("code"))


def leaves() -> bool:
    formats = inspect.signature(InfiniteMemory.export).parameters
    return "branch" in formats and "markdown" in str(inspect.getdoc(InfiniteMemory.export)).lower()


CLAIMS: dict[str, tuple[str, Callable[[], bool]]] = {
    "what is kept": ("every message, as it was said", kept),
    "a model is needed to store": ("no", kept),
    "what you get for a question": ("a prompt within a token budget", within_budget),
    "search by meaning": ("yes", meant),
    "search by words": ("yes, BM25", kept),
    "reranking": (
        "by a cross-encoder or a function of yours, if you pass one",
        lambda: "reranker" in inspect.signature(InfiniteMemory).parameters,
    ),
    "facts that change": ("both statements stay, with their dates; the newest holds", both_dated),
    "forks": ("branches, merges, cherry-picks, stashes", follows_the_branch),
    "search follows the branch": ("yes", follows_the_branch),
    "why was it found": ("a line for every message considered", within_budget),
    "where it runs": (
        "in your process, or as a proxy or MCP server; SQLite, PostgreSQL",
        lambda: all(store in shared_core.__all__ for store in ("SQLiteStore", "PostgresStore")),
    ),
    "out of it again": ("a file with all branches; Markdown", leaves),
}
"""What each row of the table says of us, and what shows it."""


def test_what_is_said_of_us_beside_others_is_so() -> None:
    page = (DOCS / "beside.md").read_text(encoding="utf-8")
    rows = (row.split("|")[1:3] for row in page.splitlines() if row.startswith("| "))
    ours = {name.strip(): said.strip() for name, said in rows if name.strip()}
    assert ours == {name: said for name, (said, _) in CLAIMS.items()}
    assert [name for name, (_, holds) in CLAIMS.items() if not holds()] == []
    for verb in ("branches", "merge", "cherry_pick", "stash", "export"):
        assert hasattr(InfiniteMemory, verb)
    assert "no reranker" not in page
    assert "no multi-user" not in page


def test_the_errors_that_have_a_cure_are_raised() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "shared_core").rglob("*.py"))
    page = (DOCS / "cures.md").read_text(encoding="utf-8").partition("## Without an error")[0]
    said = [
        one for row in page.splitlines() if row.startswith("| `") for one in re.findall("`(.+?)`", row.split("|")[1])
    ]
    assert len(said) > 12
    assert [one for one in said if one not in code] == []


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
