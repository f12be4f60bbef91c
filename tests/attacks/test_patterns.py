"""Every regular expression of the packages takes linear time: steps are counted on its worst texts, by no clock."""

import ast
import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest

from shared_core.cli import error_words
from shared_core.index import text
from shared_core.languages import detection
from shared_core.languages.language import LANGUAGES, matcher
from shared_core.openai_proxy.asides import Asides
from shared_core.prompt import fence
from shared_core.sharing import redact
from tests.attacks.regex_steps import Counted, TooManyStepsError

PACKAGES = ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")
ROOT = Path(__file__).parents[2]
METHODS = {"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
ANCHORED = {"match", "fullmatch"}
FIRST, SECOND = (60, 120), (600, 1200)
"""Lengths of the texts in characters, about: for all patterns, and for those that fail then."""

LINEAR = 2.7
"""Linear time doubles the steps for twice the length; quadratic time makes them four times as many."""


def modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def inside(value: Any) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a value."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from inside(one)
    elif isinstance(value, dict | MappingProxyType):
        for one in value.values():
            yield from inside(one)


def trees() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def uses() -> Mapping[str, set[str]]:
    """Return the methods that are called on patterns, by the name of the pattern."""
    found: dict[str, set[str]] = {}
    for _, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
                found.setdefault(owner, set()).add(node.attr)
    return found


def module_patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Yield the patterns that modules hold: name, pattern, and whether it is only matched from the beginning."""
    used, seen = uses(), set[tuple[str, int]]()
    for module in modules():
        for name, value in vars(module).items():
            for pattern in inside(value):
                if (pattern.pattern, pattern.flags) not in seen and isinstance(pattern.pattern, str):
                    seen.add((pattern.pattern, pattern.flags))
                    anchored = isinstance(value, re.Pattern) and used.get(name, METHODS) <= ANCHORED
                    yield f"{module.__name__}.{name}", pattern, anchored


def sites() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of `re` inside of functions, each with the file and the name of the innermost function."""
    for path, tree in trees():
        inner: dict[ast.AST, str] = {}
        for function in ast.walk(tree):  # outer functions come first
            if isinstance(function, ast.FunctionDef):
                inner |= dict.fromkeys(ast.walk(function), f"{path}:{function.name}")
        for node, where in inner.items():
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "re":
                assert isinstance(node, ast.Call)
                yield where, node


def constant_patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Yield the patterns that functions spell out."""
    for where, call in sites():
        if isinstance(call.args[0], ast.Constant):
            assert isinstance(call.func, ast.Attribute)
            flags = re.DOTALL if "DOTALL" in ast.unparse(call) else re.RegexFlag(0)
            yield where, re.compile(str(call.args[0].value), flags), call.func.attr in ANCHORED


def _of_languages() -> list[re.Pattern[str]]:
    texts = {value for one in LANGUAGES for value in vars_of(one).values() if isinstance(value, str)}
    return [matcher(text) for text in sorted(texts) if "\\" in text or "(?" in text]


def vars_of(value: Any) -> Mapping[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


MADE: Mapping[str, Callable[[], list[re.Pattern[str]]]] = {
    "shared_core/prompt/fence.py:_fences": lambda: [
        pattern for _, pattern in fence._fences("<earlier_messages> </summary_of_earlier_talk> [old] <|im_start|>")
    ],
    "shared_core/prompt/fence.py:speaker": lambda: [re.compile(fence._UNSEEN)],
    "shared_core/recall/query.py:parse_query": lambda: [
        re.compile(r"(?<!\w)(?:Ann\ Lee|Zoe)(?:['\u2019]s?)?(?!\w)", re.IGNORECASE)
    ],
    "shared_core/languages/detection.py:script": lambda: [detection.script()],
    "shared_core/languages/detection.py:_written_in": lambda: list(inside([one for _, one in detection._written_in()])),
    "shared_core/languages/language.py:matcher": _of_languages,
    "shared_core/index/text.py:_stemming": lambda: [
        re.compile(ending) for one in LANGUAGES for ending, _ in one.endings
    ],
    "shared_core/index/text.py:_marks": lambda: [text._marks()[1]],
    "shared_core/sharing/redact.py:_as_word": lambda: [re.compile(f"[^\\W{text.UNSPACED}]")],
    "shared_core/sharing/redact.py:replace_names": lambda: [
        re.compile("|".join(map(redact._as_word, ["Ann Lee", "Zoe", "東京"])))
    ],
    "shared_core/summaries/wording.py:occurs_in": lambda: [re.compile(r"(?<!\w)as\ was\ said(?!\w)")],
    "shared_core/cli/serve_command.py:_patterns": list,  # who starts the server wrote them
    "shared_core/openai_proxy/asides.py:__init__": lambda: Asides()._patterns,
    "shared_core/cli/error_words.py:in_words": lambda: [re.compile(phrase) for phrase in error_words.PHRASES],
}
"""The functions that make patterns, each with patterns as it makes them."""


def made_patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    for where, make in MADE.items():
        for pattern in make():
            yield where, pattern, False


def test_no_function_makes_patterns_that_are_not_counted() -> None:
    making = {where for where, call in sites() if not isinstance(call.args[0], ast.Constant)}
    assert making == MADE.keys()


def growth(pattern: re.Pattern[str], sizes: tuple[int, int], *, anchored: bool) -> tuple[float, str]:
    """Return how much more the steps of the worst text become from one size to the other, which is twice as large."""
    counted, worst = Counted(pattern), (0.0, "")
    for attack in counted.attacks():
        try:
            small, large = (counted.count(attack(size), anchored=anchored) for size in sizes)
        except TooManyStepsError:
            return float("inf"), attack(24)
        worst = max(worst, (large / small, attack(24)))
    return worst


@pytest.mark.parametrize(
    ("text", "linear"),
    [
        (r"<(?=\s*/?\s*x)", False), (r"<(?=\s*+/?\s*+x)", True), (r"(a+)+b", False), (r"\w+@", False),
        (r"x.*y.*z", False), (r"<li\b[^<>]*>", True), (r"(?<!\w)\w++(?=:)", True),
    ],
)  # fmt: skip
def test_growth_tells_linear_patterns_from_others(text: str, linear: bool) -> None:
    assert (growth(re.compile(text), (60, 120), anchored=False)[0] < LINEAR) is linear


def check(where: str, pattern: re.Pattern[str], *, anchored: bool) -> None:
    ratio, text = growth(pattern, FIRST, anchored=anchored)
    if ratio >= LINEAR:  # a bounded repetition looks like an unbounded one in a short text
        ratio, text = growth(pattern, SECOND, anchored=anchored)
    assert ratio < LINEAR, f"{where}: {ratio:.1f} times the steps for twice the length of {text!r}: {pattern.pattern!r}"


@pytest.mark.soak
def test_every_pattern_takes_linear_time() -> None:
    for where, pattern, anchored in (*module_patterns(), *constant_patterns(), *made_patterns()):
        check(where, pattern, anchored=anchored)
