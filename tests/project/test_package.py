"""The distribution: what the wheel holds, what importing costs, and that every public name is there."""

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

import langchain_infinite_memory
import llama_index_infinite_memory
import shared_core

ROOT = Path(__file__).parents[2]
IMPORT_PACKAGES = {"shared_core", "langchain_infinite_memory", "llama_index_infinite_memory"}
HEAVY = {
    "faiss",
    "httpx",
    "hypothesis",
    "langchain",
    "langchain_core",
    "llama_index",
    "mcp",
    "onnxruntime",
    "opentelemetry",
    "pytest",
    "rich",
    "sentence_transformers",
    "starlette",
    "tiktoken",
    "tokenizers",
    "torch",
    "transformers",
    "typer",
    "uvicorn",
    "wordllama",
}

WATCH_THE_IMPORT = """
import json, logging, sys

heavy = set(json.loads(sys.argv[1]))
written, connected = [], []

def watch(event, args):
    if event == "open" and not set("wax+").isdisjoint(str(args[1] or "")):
        written.append(str(args[0]))
    if event.startswith(("socket.connect", "sqlite3.connect", "subprocess.Popen")):
        connected.append(event)

sys.addaudithook(watch)
sys.dont_write_bytecode = True
before = set(sys.modules)
import shared_core
imported = set(sys.modules) - before
loggers = [logging.root, *(x for x in logging.root.manager.loggerDict.values() if isinstance(x, logging.Logger))]
print(json.dumps({
    "heavy": sorted(heavy & {name.partition(".")[0] for name in sys.modules}),
    "written": written,
    "connected": connected,
    "handlers": [x.name for x in loggers if x.name in ("root", "shared_core") and x.handlers],
    "imported": sorted(imported),
    "foreign": sorted({name.partition(".")[0] for name in imported} - sys.stdlib_module_names),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel built from this tree."""
    builder = WheelBuilder(str(ROOT))
    directory = str(tmp_path_factory.mktemp("dist"))
    (built,) = builder.build(directory=directory, versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_import_packages_and_nothing_else(wheel: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel}
    (info,) = {top for top in tops if top.endswith(".dist-info")}
    assert info.startswith("infinite_memory-")
    assert tops - {info} == {name for name in IMPORT_PACKAGES if (ROOT / name).is_dir()}


def test_the_wheel_holds_every_module_and_its_types(wheel: list[str]) -> None:
    sources = {path.relative_to(ROOT).as_posix() for name in IMPORT_PACKAGES for path in (ROOT / name).rglob("*.py")}
    inside = {name for name in wheel if ".dist-info/" not in name}
    typed = {f"{name}/py.typed" for name in IMPORT_PACKAGES if (ROOT / name).is_dir()}
    kinds = (".html", ".css", ".js")
    pages = [ROOT / "shared_core/doors/view", ROOT / "shared_core/doors/openai_proxy/inspector"]
    parts = {path.relative_to(ROOT).as_posix() for page in pages for path in page.iterdir() if path.suffix in kinds}
    assert {"page.html", "page.css", "conversation.js", "shell.js"} <= {Path(part).name for part in parts}
    stubs = {f"{name}/__init__.pyi" for name in IMPORT_PACKAGES if (ROOT / name / "__init__.pyi").exists()}
    assert inside - sources == typed | parts | stubs | {
        "shared_core/sharing/schema.json",
        "shared_core/evaluation/small_talk.json",
        "shared_core/languages/languages.toml",
        "shared_core/doors/openai_proxy/asides.json",
    }
    assert sources <= inside


def test_the_source_distribution_holds_what_a_packager_needs(tmp_path: Path) -> None:
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "Makefile", "pyproject.toml"}
    assert needed | {"mkdocs.yml", "constraints.txt", "docs/index.md", "tests/conftest.py"} <= names
    assert "examples/data/conversation.json" in names
    tops = {name.partition("/")[0] for name in names}
    assert tops <= needed | IMPORT_PACKAGES | {
        "deploy", "docs", "examples", "tests", "mkdocs.yml", "constraints.txt", "PKG-INFO", ".gitignore"
    }  # fmt: skip


def test_there_is_one_version_and_the_changelog_has_it() -> None:
    version = ProjectMetadata(str(ROOT), PluginManager()).version
    assert shared_core.__version__ == version
    assert langchain_infinite_memory.__version__ == llama_index_infinite_memory.__version__ == version
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].split()[0] == version


def test_importing_is_light_and_touches_nothing() -> None:
    command = [sys.executable, "-c", WATCH_THE_IMPORT, json.dumps(sorted(HEAVY))]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    seen = json.loads(run.stdout)
    assert seen["heavy"] == []
    assert seen["written"] == []
    assert seen["connected"] == []
    assert seen["handlers"] == []
    assert seen["foreign"] == ["lazy_loader", "shared_core"], "everything else is imported when it is first used"
    assert len(seen["imported"]) < 60, seen["imported"]


def test_every_public_name_is_there_and_shown() -> None:
    names = shared_core.__all__
    assert list(names) == sorted(names), "keep __all__ sorted"
    assert set(names) <= set(dir(shared_core))
    for name in names:
        assert getattr(shared_core, name) is not None


def test_every_public_name_is_in_a_document() -> None:
    """The top level holds what most programs need; everything else is one module below."""
    documents = "".join(
        path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    )
    missing = [name for name in shared_core.__all__ if not re.search(rf"\b{name}\b", documents)]
    assert missing == []
    assert len(shared_core.__all__) <= 34, "a new name needs a reason to stand at the top"
