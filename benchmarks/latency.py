"""What a turn costs as the history grows, beside others: `python benchmarks/latency.py [sizes …]`.

A turn adds a question, builds the prompt, and adds the reply. One run, one machine, the same messages, questions, token
counter and limit for all, each at each size in a fresh process, whose memory is therefore its own:

- ours with its defaults (SQLite, durable, static word vectors), without recall, and as LlamaIndex's buffer;
- LangChain's `trim_messages`, counting with tiktoken or approximately, LlamaIndex's `ChatMemoryBuffer.get` and
  `Memory.aget`, which keep the messages in memory and recall nothing.

What takes over two minutes for one turn or so is stopped, shown as such, and not tried with more messages. Absolute
times hold for one machine only; what carries over are ratios, and sooner of the processor's time, which what else runs
there changes less, but which does not include waiting for the disk. Also measured: storing and indexing, the first
prompt after opening (in a new process, and once libraries are loaded; the file is in the system's cache), single
additions beside the disk's own `fsync`, and embedders.

`--only NAME` measures one way instead of all, and may be repeated; `--beside FOLDER` also measures ours as another
checkout of this project has it, with a file of its own.

Prints Markdown tables; `--json FILE` writes all figures, `--plot FILE` draws them, `--from FILE` takes such figures
instead of measuring.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from latency_aims import aim_table
from latency_children import BESIDE, EMBEDDERS, INGEST, MEASUREMENTS, OURS, Outcome, in_child
from latency_clock import p50, p95
from latency_tables import (
    Outcomes,
    addition_table,
    context_table,
    ingest_table,
    opening_table,
    prompt_table,
    ratio_table,
    turn_table,
)
from latency_talk import conversation
from latency_turns import Plan

__all__ = ["conversation", "main", "measure", "p50", "p95", "print_tables"]

SIZES = [100, 1_000, 10_000, 100_000, 1_000_000]
PLAN = Plan()

Run = Callable[[str, int, Path, Plan], Outcome]
"""Runs one measurement."""


def measure(
    sizes: Sequence[int], plan: Plan, folder: Path | None = None, run: Run = in_child, *,
    only: Collection[str] = tuple(MEASUREMENTS), beside: Run | None = None,
) -> Iterator[Outcome]:  # fmt: skip
    """Yield what comes of each measurement at each size, smallest first, then of each embedder.

    Args:
        sizes: numbers of messages.
        plan: how much to measure.
        folder: where the files are written meanwhile; None: where the system has such files.
        run: runs one.
        only: the names of those that are run, besides storing.
        beside: runs one with another checkout; None: there is none.
    """
    stopped: set[str] = set()
    for size in sorted(sizes):
        with TemporaryDirectory(dir=folder) as name:
            for what in ("stored", *_wanted(only)):
                if what in stopped:
                    yield Outcome(what, size, why="stopped before", stopped=True)
                    continue
                if what == OURS and beside is not None:
                    yield replace(_asked_of(beside, size, plan, folder), what=BESIDE)
                outcome = run(what, size, Path(name), plan)
                if outcome.stopped:
                    stopped.add(what)
                yield outcome
    for embedder in (embedder for embedder in EMBEDDERS if INGEST + embedder in only):
        with TemporaryDirectory(dir=folder) as name:
            yield run(INGEST + embedder, plan.sample, Path(name), plan)


def _asked_of(other: Run, size: int, plan: Plan, folder: Path | None) -> Outcome:
    """Return what another checkout comes to with a file of its own: each may have another schema."""
    with TemporaryDirectory(dir=folder) as name:
        kept = other("stored", size, Path(name), plan)
        return kept if kept.why else other(OURS, size, Path(name), plan)


def _wanted(only: Collection[str]) -> list[str]:
    """Return the names of what is measured at each size after storing."""
    return [what for what in MEASUREMENTS if what in only and what != "stored" and not what.startswith(INGEST)]


def print_tables(outcomes: Outcomes) -> None:
    """Print what was found."""
    tables = (
        turn_table, ratio_table, prompt_table, context_table, opening_table, addition_table, ingest_table, aim_table,
    )  # fmt: skip
    for table in tables:
        print(*table(outcomes), "", sep="\n")


def as_json(about: str, found: Sequence[Outcome]) -> str:
    """Return what `--from` takes: a word on the machine, and everything that was measured."""
    return json.dumps({"machine": about, "outcomes": [asdict(outcome) for outcome in found]}, indent=1) + "\n"


def machine() -> str:
    """Return what was measured on, as far as it matters."""
    load = f", {os.getloadavg()[0]:.1f} processes waiting or running" if hasattr(os, "getloadavg") else ""
    return f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} processors{load}"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--turns", type=int, default=PLAN.turns, help="at most, for each way and size")
    parser.add_argument("--seconds", type=float, default=PLAN.seconds, help="after which no new turn is begun")
    parser.add_argument("--sample", type=int, default=PLAN.sample, help="messages to compare embedders with")
    parser.add_argument("--only", action="append", choices=list(MEASUREMENTS), metavar="NAME", help="may be repeated")
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another checkout of this project")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    parser.add_argument("--json", type=Path, help="write all figures")
    parser.add_argument("--from", type=Path, dest="source", help="take the figures that --json has written")
    parser.add_argument("--plot", type=Path, action="append", default=[], help=".svg or .png")
    given = parser.parse_args(argv)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("INFINITE_MEMORY_EMBEDDER", "static")  # whatever weights this machine has
    if given.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    if given.source:
        kept = json.loads(given.source.read_text())
        about, found = kept["machine"], [Outcome(**outcome) for outcome in kept["outcomes"]]
    else:
        start, about, found = time.monotonic(), machine(), []
        plan = Plan(turns=given.turns, seconds=given.seconds, sample=given.sample)
        beside = partial(in_child, root=given.beside) if given.beside else None
        for outcome in measure(given.sizes, plan, given.folder, only=given.only or tuple(MEASUREMENTS), beside=beside):
            said = outcome.why or "measured"
            print(f"{time.monotonic() - start:.0f} s: {outcome.what}, {outcome.size:,}: {said}", file=sys.stderr)
            found.append(outcome)
    if given.json:
        given.json.write_text(as_json(about, found))
    outcomes = {(outcome.what, outcome.size): outcome for outcome in found}
    print(about, "\n")
    print_tables(outcomes)
    for path in given.plot:
        from latency_plot import draw

        draw(outcomes, path)


if __name__ == "__main__":
    main()
