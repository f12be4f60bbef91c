"""Every regular expression of the packages takes linear time: on a long text of the worst kind, no other would end."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")
ROOT = Path(__file__).parents[2]
SIZE = 100_000
"""Characters: quadratic time is 5,000,000,000 steps then, of which a processor does a hundred million a second."""

PIECES = ("a", "A", "1", " ", "\n", ".", "-", "'", "<", "[", "(", "\u0301", "東", "a ", "a.", "<a", "</", "a,", "1:")
ENDS = ("", "\0")


def patterns() -> Iterator[tuple[re.Pattern[str], bool]]:
    """Yield the patterns that modules hold, each once, and whether each is only matched from the beginning."""
    sources = "".join(path.read_text(encoding="utf-8") for one in PACKAGES for path in (ROOT / one).rglob("*.py"))
    seen: set[re.Pattern[str]] = set()
    for package in PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            module = vars(importlib.import_module(found.name)) if not found.name.endswith("__main__") else {}
            for name, value in module.items():
                for pattern in {*inside(value)} - seen if not name.startswith("__") else ():
                    seen.add(pattern)
                    called = set(re.findall(rf"\b{name}\.(\w+)\(", sources))
                    yield pattern, bool(called) and called <= {"match", "fullmatch"}


def inside(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, list | tuple | set | frozenset | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from inside(one)


def worst(pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield long texts of one piece, also of those that the pattern spells out."""
    spelled = re.findall(r"[a-z<>\[\]/|_-]{2,}", pattern.pattern)
    for piece, end in product({*PIECES, *spelled}, ENDS):
        yield piece * (SIZE // len(piece)) + end


@pytest.mark.soak
@pytest.mark.timeout(60)
def test_every_pattern_takes_linear_time() -> None:
    found = list(patterns())
    assert len(found) > 40
    for pattern, anchored in found:
        for text in worst(pattern):
            pattern.match(text) if anchored else pattern.sub("", text)
