"""The pages of the documentation: their code runs and prints what they show, and the tables are complete."""

import contextlib
import inspect
import io
import re
import shlex
from pathlib import Path

import pytest

import shared_core
from shared_core import AsyncInfiniteMemory, InfiniteMemory
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
        "garden 2 When do I prune the roses?\nholiday 2 Where to in June\n['When do I prune the roses?',",
        "4471.', 'Noted.', 'What is my locker code?']\n['user', 'assistant']\n",
        "From the handbook:\n\nRefunds take five working days.",
        "1.0 The hotel in Porto takes €90 a night.\n0.0 The hotel in Porto ",
        "'Noted.', 'What is my locker code?'",
        "['Hello!']\n",
        "['user', 'assistant', 'tool']\n",
        "['My locker code is 4471.'",
    ],
    "prompt.md": [
        "Compose at scale\nHow a team of forty moved two hundred screens to Compose, and what it would do again.\n\n"
        "Kotlin on the server\n\nWhich talks are there?\n"
        "('1 of 2 retrieved passages given in less detail: they do not fit whole',)\n"
    ],
    "evaluate.md": ["\n1.0\nrecall=precise not worth it it changes nothing for these questions\n"],
    "explain.md": [
        "['My locker code is 4471.",
        '["I\'m vegan."]\n[("I\'m no longer vegan", False), ("I\'m vegan", True)]\n',
    ],
    "branches.md": [
        "The tokenizer never gets past a tab.",
        "main ['To Porto or to Faro?', 'To Porto.']\nmain-2 main-3\n",
        " 2\n",
    ],
    "summaries.md": [" messages are in it"],
    "telemetry.md": [
        "add 2 ('u1', 'a1') {} ()\nsearch 2 ('u1', 'a1') {} ()\ncontext 0 () {'question': 10, 'window': 19} ()\n",
        "upsert_memory trip 1\nsearch_memory trip 1\n",
        "",
    ],
    "operations.md": ["My locker code is 4471.\n", "2 messages\n[]\n"],
}
ELSEWHERE = {
    "tutorial.md", "server.md", "openai.md", "import.md", "format.md", "langchain.md", "llama_index.md", "scaling.md",
    "serve.md", "clients.md", "recipes.md",
}  # fmt: skip
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
    assert with_code - ELSEWHERE == set(EXPECTED)
    assert {page: len(blocks) for page, blocks in pages.items()} == {page: len(n) for page, n in EXPECTED.items()}


@pytest.mark.parametrize("page", EXPECTED)
def test_the_blocks_of_a_page_run(page: str, pages: dict[str, list[Ran]]) -> None:
    for expected, block in zip(EXPECTED[page], pages[page], strict=True):
        assert expected in block.out
        assert block.err == ""


# The pages that are one story


DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
"""What differs from day to day."""


def story(page: str, folder: Path, first: str) -> list[Ran]:
    """Run the programs of a page, one after the other in one folder, and compare what each prints with what it shows.

    The first one is saved under the name that the page gives it.
    """
    programs = blocks_of(f"docs/{page}", folder)
    programs[0] = programs[0].rename(folder / first)
    text = (DOCS / page).read_text(encoding="utf-8")
    ran = run(programs, folder, together=True)
    blocks = re.findall(r"^```(python|text)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    number = -1
    for kind, block in blocks:
        number += kind == "python"
        if kind == "text":
            assert DATE.sub("DATE", ran[number].out) == DATE.sub("DATE", block)
    assert all(program.err == "" for program in ran)
    return ran


def test_the_server_tells_each_user_their_own_code(tmp_path: Path) -> None:
    ran = story("server.md", tmp_path, "server.py")
    assert ran[1].out.count("\n") == 6


def test_the_first_hour_goes_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs print what it shows, and then its commands succeed."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    ran = story("tutorial.md", tmp_path, "chat.py")
    assert len(ran) == text.count("```text\n") == 5
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


def test_lists_are_in_utc_and_json_has_the_zone_that_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with InfiniteMemory("chat.db") as memory:
        memory.add({"role": "user", "content": "Hello!", "created_at": "2026-03-02T03:00:00+09:00"})
    assert run_command(["log"]) == run_command(["log", "--json"]) == 0
    shown = capsys.readouterr().out
    assert "2026-03-01 18:00  user" in shown
    assert '"created_at": "2026-03-02T03:00:00+09:00"' in shown
