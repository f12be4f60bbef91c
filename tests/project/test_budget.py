"""How large the project may be, and how much a question may do: whoever raises a number says why beside it."""

import ast
import io
import os
import sys
import tokenize
from pathlib import Path
from types import FrameType
from typing import Any

from shared_core import InfiniteMemory, Message
from tests.support.documents import ROOT

PACKAGES = ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")

CODE_LINES = 32_500
"""Lines of the packages without blanks, comments and docstrings. It was 44,959 before the engine was made small."""

CALLS = 1_700
"""Calls of Python functions for a warm question to 1,000 messages."""

FILES = 48
"""Files of the packages that these calls pass."""

NO_CODE = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)


def code_lines(path: Path) -> int:
    """Return how many lines of a file hold code."""
    source = path.read_text(encoding="utf-8")
    words = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    strings = [node for node in words if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    said = {line for node in strings for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    tokens = (one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type not in NO_CODE)
    return len({line for one in tokens for line in range(one.start[0], one.end[0] + 1)} - said)


def test_the_packages_stay_small() -> None:
    found = {path: code_lines(path) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert len(found) > 100
    assert sum(found.values()) <= CODE_LINES


def test_a_warm_question_makes_few_calls_in_few_files() -> None:
    files: list[str] = []
    of_ours = tuple(f"{ROOT / package}{os.sep}" for package in PACKAGES)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(of_ours):
            files.append(frame.f_code.co_filename)

    with InfiniteMemory(max_tokens=2_000, embedder="static") as memory:
        for number in range(500):
            said = (
                f"The lighthouse of harbour {number} is {number} metres high." if number % 9 == 0 else f"Day {number}."
            )
            memory.add([Message.user(said), Message.assistant("I see.")])
        memory.index()
        for number in (9, 18):
            memory.context(f"How high is the lighthouse of harbour {number}?")
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            memory.context("How high is the lighthouse of harbour 27?")
        finally:
            sys.setprofile(before)
    assert 1_000 < len(files) <= CALLS
    assert len(set(files)) <= FILES
