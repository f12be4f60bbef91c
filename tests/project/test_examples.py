"""The examples for the engine and LangChain, and the code in docs/langchain.md, work as shown."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import trim_messages

from langchain_infinite_memory import (
    HistoryRetriever,
    InfiniteChatMessageHistory,
    InfiniteMemoryMiddleware,
    InfiniteMemoryRunnable,
    infinite_memory_node,
    prune_messages,
    recall_tool,
    session_factory,
)
from tests.support.documents import ROOT

EXAMPLES = ROOT / "examples"


def test_every_example_is_listed() -> None:
    files = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    listed = re.findall(r"^\| \[`(.+?)`\]\((.+?)\) \|", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.M)
    assert [name for name, _ in listed] == [target for _, target in listed]
    assert {name for name, _ in listed} == files | {NOTEBOOK.name}


# The notebook


NOTEBOOK = EXAMPLES / "first_hour.ipynb"
RUN_NOTEBOOK = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""
NO_NETWORK = """
import sys

def refuse(event, args):
    if event == "socket.getaddrinfo" or (event == "socket.connect" and args[1][0] != "127.0.0.1"):
        raise ConnectionError(f"no network here: {event} {args[-1]}")

sys.addaudithook(refuse)
"""
SHOWN = [
    "402",
    "[user] <earlier_messages>\n",
    " of 500 tokens (",
    "['My locker code is 4471.']",
    "'I hope you stayed dry.'",
    "on main: []\non holiday: ['To Porto: it is warm by then.'",
    "['Where do we go in June?',",
    "[]\n",
]


def cells_of(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def texts_of(outputs: Sequence[dict[str, Any]]) -> list[str]:
    """What the outputs of a cell show. A busy kernel sends what is printed in several parts, which are one text."""
    texts: list[str] = []
    for kind, group in groupby(outputs, key=lambda output: output["output_type"]):
        parts = ["".join(one.get("text") or one["data"].get("text/html") or one["data"]["text/plain"]) for one in group]
        texts += ["".join(parts)] if kind == "stream" else parts
    return texts


def test_the_notebook_is_committed_without_outputs() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells_of(NOTEBOOK))


def test_the_notebook_runs_without_a_network(tmp_path: Path) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(NO_NETWORK)
    folder = tmp_path / "work"
    folder.mkdir()
    places = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    done = subprocess.run(
        [sys.executable, "-c", RUN_NOTEBOOK, str(NOTEBOOK), str(folder), str(tmp_path / "out.ipynb")],
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"),
             "INFINITE_MEMORY_EMBEDDER": "static", **places},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [text for cell in cells_of(tmp_path / "out.ipynb") for text in texts_of(cell["outputs"])]
    assert len(shown) == len(SHOWN)
    for expected, text in zip(SHOWN, shown, strict=True):
        assert expected in text
    assert list(folder.iterdir()) == []


def test_the_page_names_every_argument(subtests: pytest.Subtests) -> None:
    rows: list[Any] = [
        InfiniteMemoryMiddleware,
        infinite_memory_node,
        InfiniteMemoryRunnable,
        InfiniteChatMessageHistory,
        session_factory,
        prune_messages,
        recall_tool,
        HistoryRetriever,
    ]
    for made in rows:
        with subtests.test(made=made):
            known = {"self", "runnable", "settings", "tags", "metadata"} | set(
                inspect.signature(trim_messages).parameters
            )
            named = set(re.findall(r"`[^`]*`", (ROOT / "docs" / "langchain_reference.md").read_text(encoding="utf-8")))
            words = {word for code in named for word in re.findall(r"\w+", code)}
            called = vars(made).get("__init__") if isinstance(made, type) else made
            arguments = vars(made)["__annotations__"] if called is None else inspect.signature(called).parameters
            assert set(arguments) <= words | known
