"""Change the core at random places and count what the tests notice: `python tests/mutants.py [--number 300]`.

The places and changes are those of cosmic-ray, except in annotations and decorators; at each place one change is drawn,
and the same seed draws the same. One run of the suite, or that of `--record FOLDER`, tells which tests reach a
statement. These run with the change, the quickest first, for as long as a minute of that run holds; those of
PostgreSQL are left out. Each change that no test notices is printed: a test is missing, or nothing needs the code.
Exits with 1 above 15 % of them.
"""

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from cosmic_ray.commands.init import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec
from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shared_core", "langchain_infinite_memory", "llama_index_infinite_memory")
TARGETS = ("tree", "prompt", "recall", "stores/tree_rules.py", "history")
PLUGINS = [word for plugin in ("xdist", "pytest_cov", "timeout", "hypothesispytest") for word in ("-p", plugin)]
PYTEST = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", *PLUGINS, "-q"]
DURATION = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(.+?) *$", re.M)
MOST_SECONDS = 60
WORKERS = 2


class Mutant(NamedTuple):
    """A change of `file`: its source afterwards, the lines of the statements around it, and a line that shows it."""

    file: str
    source: str
    statements: list[range]
    change: str


def _python(target: str) -> list[Path]:
    path = ROOT / "shared_core" / target
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _spared(tree: ast.Module, line: int, column: int) -> bool:
    """Whether a place is in an annotation, in a decorator or at a bare star, where a change does nothing to notice."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            values = [*node.args.defaults, *node.args.kw_defaults] if not isinstance(node, ast.ClassDef) else []
            first = min(one.lineno for one in (node, *node.decorator_list))
            if (first, 0) <= (line, column) < (node.body[0].lineno, node.body[0].col_offset):
                return not any(one and _within(one, line, column) for one in values)
        if isinstance(node, ast.AnnAssign) and _within(node.annotation, line, column):
            return True
    return False


def _within(node: ast.expr, line: int, column: int) -> bool:
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return (node.lineno, node.col_offset) <= (line, column) < end


def _statements(tree: ast.Module, line: int) -> list[range]:
    """Return the lines of the statements around a line, innermost first, each without those of its body."""
    around = [s for s in ast.walk(tree) if isinstance(s, ast.stmt) and s.lineno <= line <= (s.end_lineno or s.lineno)]
    around.sort(key=lambda one: one.lineno, reverse=True)
    return [range(s.lineno, s.body[0].lineno if hasattr(s, "body") else (s.end_lineno or s.lineno) + 1) for s in around]


def drawn(number: int, seed: int) -> list[Mutant]:
    """Return that many changes, each at another place."""
    files = [path for target in TARGETS for path in _python(target)]
    trees = {path: ast.parse(path.read_text()) for path in files}
    places: dict[tuple[Path, int, int], list[MutationSpec]] = {}
    with tempfile.TemporaryDirectory() as folder, use_db(str(Path(folder) / "items"), WorkDB.Mode.create) as items:
        init(files, items, {})
        for item in items.work_items:
            (one,) = item.mutations
            if not _spared(trees[one.module_path], *one.start_pos):
                places.setdefault((one.module_path, *one.start_pos), []).append(one)
    chance = random.Random(seed)
    mutants = []
    for path, line, column in chance.sample(sorted(places), number):
        one = chance.choice(sorted(places[path, line, column], key=lambda one: (one.operator_name, one.occurrence)))
        before = path.read_text()
        after = mutate_code(before, get_operator(one.operator_name)(), one.occurrence)
        lines = list(unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[3:]
        shown = "  ->  ".join(text[1:].strip() for text in lines)
        mutants.append(Mutant(str(path.relative_to(ROOT)), after, _statements(trees[path], line), f"{line}: {shown}"))
    return mutants


class Record:
    """Which tests reach a line, and the seconds each of them takes, as one run of the suite left them in a folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self.data = CoverageData(str(folder / "coverage"))
        self.data.read()
        self.lines: dict[str, dict[int, list[str]]] = {}
        self.seconds: dict[str, float] = {}
        for seconds, test in DURATION.findall((folder / "durations").read_text()):
            self.seconds[test] = self.seconds.get(test, 0.0) + float(seconds)

    def reaching(self, file: str, statements: list[range]) -> list[str]:
        """Return the tests that reach the innermost of some statements that any test reaches, the quickest first."""
        if file not in self.lines:
            self.lines[file] = self.data.contexts_by_lineno(str(self.root / file))
        lines = self.lines[file]
        everywhere = range(max(lines, default=0) + 1)
        for statement in [*statements, everywhere]:
            names = {name for line in statement for name in lines.get(line, ()) if name.endswith("|run")}
            tests = {name.removesuffix("|run") for name in names if "postgres" not in name}
            if tests:
                break
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))


def recorded(folder: Path) -> None:
    """Run the suite once and leave its record in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    where = {"COVERAGE_FILE": str(folder / "coverage")}
    command = [*PYTEST, "-n2", "--dist=loadfile", "-vv", "--durations=0", "--timeout=900", "--cov-context=test"]
    command += ["--cov-report=", *(f"--cov={package}" for package in PACKAGES)]
    with (folder / "durations").open("w") as report:
        subprocess.run(command, cwd=ROOT, env=os.environ | where, stdout=report, check=True)


def noticed(mutant: Mutant, record: Record, copy: Path) -> bool:
    """Run the tests that reach a change in a copy of the project, and return whether one fails."""
    total, tests = 0.0, []
    for test in record.reaching(mutant.file, mutant.statements):
        total += record.seconds.get(test, 0.0)
        if total > MOST_SECONDS:
            break
        tests.append(test)
    if not tests:
        return False
    before = (copy / mutant.file).read_text()
    (copy / mutant.file).write_text(mutant.source)
    try:
        return not _pass(tests, copy, 60 + 3 * total)
    finally:
        (copy / mutant.file).write_text(before)


def _pass(tests: list[str], copy: Path, seconds: float) -> bool:
    """Run some tests in a copy of the project; return whether they pass in time."""
    (copy / "build").mkdir(exist_ok=True)
    (copy / "build" / "tests").write_text("\n".join(tests))
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
    command = [*PYTEST, "-x", "--no-header", "--tb=line", f"@{copy}/build/tests"]
    try:
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    functions = list(dict.fromkeys(test.split("[")[0] for test in tests))
    if b"ERROR: not found" in ended.stderr and functions != tests:  # a constant is changed that a test's name holds
        return _pass(functions, copy, 2 * seconds)
    return ended.returncode == 0


def main() -> int:
    """Draw changes, try them in copies of the project, and print those that live."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--record", type=Path, help="a folder with the record of a run (default: make one)")
    parser.add_argument("--recorded-in", type=Path, default=ROOT, help="the tree that the record was made in")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.record or Path(scratch) / "record"
        if arguments.record is None:
            recorded(folder)
        record = Record(folder, arguments.recorded_in)
        copies: SimpleQueue[Path] = SimpleQueue()
        for worker in range(WORKERS):
            copy = Path(scratch) / str(worker)
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
            copies.put(copy)

        def tried(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                return noticed(mutant, record, copy)
            finally:
                copies.put(copy)

        mutants = drawn(arguments.number, arguments.seed)
        same = mutants[0]._replace(source=(ROOT / mutants[0].file).read_text())
        if tried(same):
            parser.error(f"the tests of {same.file} fail without a change, or are not those of the record")
        with ThreadPoolExecutor(WORKERS) as pool:
            killed = 0
            for number, (mutant, dead) in enumerate(zip(mutants, pool.map(tried, mutants), strict=True), 1):
                killed += dead
                sys.stderr.write(f"\r{killed} of {number} killed")
                if not dead:
                    tests = len(record.reaching(mutant.file, mutant.statements))
                    sys.stdout.write(f"{mutant.file}:{mutant.change}  ({tests} tests)\n")
                    sys.stdout.flush()
    sys.stdout.write(f"{killed} of {len(mutants)} killed ({killed / len(mutants):.0%})\n")
    return int(killed < 0.85 * len(mutants))


if __name__ == "__main__":
    sys.exit(main())
