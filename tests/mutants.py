"""Break each law of the prompt on purpose and show that its test notices: `python tests/mutants.py`.

Every mutant is one small change of the source, made in a temporary copy. Exits with 1 if one survives, if the laws do
not hold in the copy without it, or if the source has changed so that a mutant no longer applies.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "shared_core"
COPIED_TESTS = ("__init__.py", "conftest.py", "support", "test_laws.py")
WORKERS = 2

# The same examples every time, found and not made smaller.
PROFILE = """
from hypothesis import Phase

settings.register_profile(
    "mutants", max_examples=400, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
settings.load_profile("mutants")
"""


class Mutant(NamedTuple):
    """A change that breaks a law: in `file`, `snippet` becomes `replacement`."""

    name: str
    file: str
    snippet: str
    replacement: str


MUTANTS: dict[int, tuple[Mutant, ...]] = {
    1: (
        Mutant(
            "tool schemas are free",
            "prompt/frame.py",
            "return self.budget - self.tools - _size(self.stays)",
            "return self.budget - _size(self.stays)",
        ),
        Mutant(
            "a system message of recalled text has no framing",
            "prompt/assembler.py",
            "self._size_with(Message.system(text), entries), text)",
            "self.framer.counter(text), text)",
        ),
        Mutant(
            "the summary is free",
            "prompt/frame.py",
            "summary = self.summary.tokens if self.summary is not None else 0",
            "summary = 0",
        ),
        Mutant("stubs are free", "prompt/abridged.py", "Entry(sent, tokens, ", "Entry(sent, 0, "),
        Mutant(
            "the window may take one token more",
            "prompt/window.py",
            "if used + turn.tokens <= budget and not",
            "if used + turn.tokens <= budget + 1 and not",
        ),
    ),
    2: (
        Mutant(
            "a question that just fits is refused",
            "prompt/frame.py",
            'if needed > frame.open and self.on_overflow == "raise":',
            'if needed >= frame.open and self.on_overflow == "raise":',
        ),
        Mutant(
            "an older group is kept behind one that was dropped",
            "prompt/abridged.py",
            "if must or (not left_out and tokens(given) <= room):",
            "if must or tokens(given) <= room:",
        ),
        Mutant(
            "an older group is whole behind one with stubs",
            "prompt/abridged.py",
            "whole = whole and (must or tokens(group) + min(older, reserve) <= room)",
            "whole = must or tokens(group) + min(older, reserve) <= room",
        ),
        Mutant(
            "a call that still waits is dropped",
            "pipeline.py",
            "with_results(turn.whole(pending=True), self.assembler.size)",
            "with_results(turn.whole(), self.assembler.size)",
        ),
    ),
    3: (
        Mutant(
            "a pinned group of the current turn may go",
            "prompt/frame.py",
            "must = [group is groups[-1] or any(entry.message.pinned for entry in group) for group in groups]",
            "must = [group is groups[-1] for group in groups]",
        ),
        Mutant(
            "of a pinned turn only its question stays",
            "session.py",
            "stays += turn.whole().entries if turn else ()",
            "stays += turn.whole().entries[:1] if turn else ()",
        ),
        Mutant("what just fits is refused", "prompt/frame.py", "if frame.open < 0:", "if frame.open <= 0:"),
    ),
    4: (
        Mutant(
            "broken tool groups are sent",
            "turns.py",
            "held = [turn.whole() for turn in past",
            "held = [turn for turn in past",
        ),
        Mutant("a greeting stands before a gap", "prompt/window.py", " and not (turn.greets and too_large)", ""),
        Mutant(
            "results stand where they came, not with their call",
            "turns.py",
            "start = first_of.get((turn, message.tool_call_id), entry.order)",
            "start = entry.order",
        ),
        Mutant(
            "a question that is not returned leaves its answers behind",
            "prompt/assembler.py",
            "        messages = insert_summary(frame, ",
            "        entries += () if shown else frame.groups\n        messages = insert_summary(frame, ",
        ),
    ),
    5: (
        Mutant(
            "what is in the window may be recalled",
            "prompt/assembler.py",
            "        kept = _turn_ids(window.kept)",
            "        kept = _turn_ids(window.kept[:1])",
        ),
        Mutant(
            "what stands in the summary is recalled as well",
            "summaries/rolling.py",
            "candidates = _without_summarized(normalized(frame.summary.said), prompt.candidates)",
            "candidates = prompt.candidates",
        ),
        Mutant(
            "late replies stand where they came, not in their turn",
            "turns.py",
            "keys.append((turn, start, entry.order))",
            "keys.append((0, start, entry.order))",
        ),
    ),
    6: (
        Mutant(
            "the question before keeps its grounding",
            "prompt/assembler.py",
            "left = reach - (frame.question is not None)",
            "left = reach",
        ),
        Mutant(
            "the best passages go first",
            "prompt/frame.py",
            "return sorted(grounding.filled, key=strength, reverse=True)",
            "return sorted(grounding.filled, key=strength)",
        ),
        Mutant(
            "the footer is trimmed with the passages",
            "messages.py",
            "return join(self.header, *texts, note, self.footer)",
            'return join(self.header, *texts, note, "" if omitted else self.footer)',
        ),
    ),
    7: (
        Mutant(
            "the object that stores a system message forgets that it stays",
            "session.py",
            "            self._keep_staying(staying)",
            "            pass",
        ),
        Mutant(
            "what was asked before decides between equals",
            "recall/ranking.py",
            "order = np.lexsort((-signals.indices, -score))",
            "order = np.lexsort((np.random.default_rng().permutation(len(score)), -score))",
        ),
    ),
    8: (
        Mutant("every message of a tool loop moves the window", "prompt/assembler.py", "if room < 0:", "if True:"),
        Mutant(
            "once the budget is used up, every message of a tool loop moves the window",
            "prompt/assembler.py",
            "frame, known = self.framer.answered(asked, count, slack=self.slack), count",
            "frame, known = self.framer.answered(asked, len(asked.answers), slack=self.slack), len(asked.answers)",
        ),
        Mutant(
            "the window gives up more than its slack",
            "prompt/window.py",
            "enough = range(bisect_left(sums, (1 - slack) * sums[allowed - 1]), allowed) if sums else ()",
            "enough = range(allowed) if sums else ()",
        ),
        Mutant(
            "words of other branches count",
            "index/lexical.py",
            "idf_of(size, count)",
            "idf_of(size, len(self))",
        ),
        Mutant(
            "an older question loses its grounding one prompt late",
            "prompt/assembler.py",
            "left = reach - (frame.question is not None)",
            "left = reach",
        ),
    ),
}


def copy_with(mutant: Mutant | None, folder: Path) -> str | None:
    """Put the package, changed, and the laws into a folder; return what is in the way, if anything."""
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    for name in COPIED_TESTS:
        copied = ROOT / "tests" / name
        if copied.is_dir():
            shutil.copytree(copied, folder / "tests" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(copied, folder / "tests")
    conftest = folder / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text(encoding="utf-8") + PROFILE, encoding="utf-8")
    if mutant is not None:
        path = folder / PACKAGE / mutant.file
        source = path.read_text(encoding="utf-8")
        if source.count(mutant.snippet) != 1:
            return f"found {source.count(mutant.snippet)} times in {mutant.file}: {mutant.snippet}"
        path.write_text(source.replace(mutant.snippet, mutant.replacement), encoding="utf-8")
    return None


def run(law: int | None, mutant: Mutant | None) -> tuple[bool, str]:
    """Run a law's tests (None: all) in a changed copy; return whether all is as it should be, and what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem = copy_with(mutant, folder)
        if problem is not None:
            return False, problem
        chosen = "law_" if law is None else f"law_{law}_"
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen, "tests"]
        environment = {key: value for key, value in os.environ.items() if key != "SOAK"}
        environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    failed = re.search(r"^FAILED \S+::(\w+)", done.stdout, re.MULTILINE)
    if mutant is None:
        return done.returncode == 0, "all laws hold" if done.returncode == 0 else done.stdout[-3000:]
    if done.returncode == 1 and failed is not None:
        return True, failed.group(1)
    return False, "SURVIVED" if done.returncode == 0 else done.stdout[-3000:] + done.stderr[-3000:]


def main() -> int:
    """Run every mutant and print the table; return the exit code."""
    rows: list[tuple[int | None, Mutant | None]] = [(None, None)]
    rows += [(law, mutant) for law, mutants in MUTANTS.items() for mutant in mutants]
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda row: run(*row), rows))
    width = max(len(mutant.name) for _, mutant in rows if mutant is not None)
    sys.stdout.write(f"law  {'mutant':<{width}}  caught by\n")
    for (law, mutant), (_, outcome) in zip(rows, results, strict=True):
        sys.stdout.write(f"{law or '-':>3}  {mutant.name if mutant else '(none)':<{width}}  {outcome}\n")
    return 0 if all(fine for fine, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
