"""The examples for the engine and LangChain, and the code in docs/langchain.md, work as shown."""

import inspect
import re
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
    assert {name for name, _ in listed} == files | {"first_hour.ipynb"}


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
