"""What runs in public is a valid workflow, and calls what is in the Makefile."""

import re
from pathlib import Path

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_are_valid() -> None:
    assert [path.stem for path in WORKFLOWS] == ["checks", "release"]
    result = CliRunner().invoke(check_jsonschema, ["--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci" / "run"], ids=lambda path: path.stem)
def test_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = re.findall(r"\bmake (?:--\S+ )*([a-z ]+)(?: [A-Z]+=\S+)?$", path.read_text(encoding="utf-8"), re.MULTILINE)
    called = {name for line in lines for name in line.split()}
    assert called
    assert called <= targets


def test_the_formatter_is_the_one_that_is_pinned() -> None:
    """Otherwise a commit hook and `make check` disagree."""
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    hook = re.search(r"rev: v(.+)$", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    assert pinned is not None
    assert hook is not None
    assert pinned[1] == hook[1]
