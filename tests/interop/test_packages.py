"""Both adapter packages: their names, which are loaded late, and what they say without their framework."""

import os
import subprocess
import sys
from importlib import import_module

import pytest

from tests.support.documents import ROOT

PACKAGES = {
    "langchain_infinite_memory": ("langchain_core", 'langchain_core is not installed: pip install "{}[langchain]"'),
    "llama_index_infinite_memory": ("llama_index", 'llama_index.core is not installed: pip install "{}[llama-index]"'),
}

every_package = pytest.mark.parametrize("package", PACKAGES)

WITHOUT = """
import sys
sys.modules["{framework}"] = None
try:
    from {package} import {name}
except ImportError as error:
    print(type(error).__name__, error)
"""


def in_new_process(script: str, *arguments: str) -> str:
    """Return what a program writes; it must succeed."""
    run = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@every_package
def test_every_public_name_is_there(package: str) -> None:
    adapter = import_module(package)
    assert set(adapter.__all__) <= set(dir(adapter))
    for name in adapter.__all__:
        assert getattr(adapter, name) is not None
    for module, public in adapter._MODULES.items():
        assert import_module(f"{package}.{module}").__all__ == public
    with pytest.raises(AttributeError, match="no_such_name"):
        adapter.no_such_name  # noqa: B018


@every_package
def test_the_framework_is_loaded_late_and_without_it_the_extra_is_named(package: str) -> None:
    framework, remedy = PACKAGES[package]
    late = f"import sys, {package}; print({{'langchain_core', 'llama_index.core', 'numpy'}} & set(sys.modules))"
    assert in_new_process(late) == "set()"
    said = in_new_process(WITHOUT.format(framework=framework, package=package, name="to_message"))
    assert said == f"MissingExtraError {remedy.format('infinite-memory')}"


@pytest.mark.parametrize(("part", "name"), [("langchain", "InfiniteMemoryMiddleware"), ("langgraph", "InfiniteStore")])
def test_with_a_part_of_the_framework_alone_the_extra_is_named_too(part: str, name: str) -> None:
    said = in_new_process(WITHOUT.format(framework=part, package="langchain_infinite_memory", name=name))
    assert said == f'MissingExtraError {part} is not installed: pip install "infinite-memory[langchain]"'
