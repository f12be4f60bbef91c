"""One measurement in a process of its own, so that its memory is its own, and that it can be stopped."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import latency_ours
import latency_peers
from latency_clock import Figures
from latency_turns import STOPPED, Plan

__all__ = [
    "ADAPTED", "BESIDE", "EMBEDDERS", "INGEST", "MEASUREMENTS", "OURS", "OVER", "PEERS", "WITHOUT", "Outcome",
    "in_child",
]  # fmt: skip

Measurement = Callable[[int, Path, Plan], Figures]
"""Takes how many messages there are, a folder that all measurements of this size share, and how much to measure."""

OURS, WITHOUT, ADAPTED = "infinite-memory", "infinite-memory, no recall", "InfiniteChatMemoryBuffer"

PEERS: dict[str, Measurement] = {
    "trim_messages, tiktoken": latency_peers.tiktoken_trim,
    "trim_messages, approximate": latency_peers.approximate,
    "ChatMemoryBuffer.get": latency_peers.buffer,
    "Memory.aget": latency_peers.queue,
    "Memory.aget, other index": latency_peers.queue_by_session,
}

BESIDE = "infinite-memory, other checkout"
"""Another state of this project, measured in the same run."""

INGEST = "ingest, "
EMBEDDERS = ("none", "static", latency_ours.MINILM)

MEASUREMENTS: dict[str, Measurement] = {
    "stored": latency_ours.stored,
    "opened": latency_ours.opened,
    OURS: latency_ours.asked,
    WITHOUT: latency_ours.asked_without_recall,
    ADAPTED: latency_ours.adapted,
    "additions": latency_ours.additions,
    **PEERS,
    **{INGEST + embedder: latency_ours.ingest(embedder) for embedder in EMBEDDERS},
}
"""By name; `stored` comes first, as our others ask what it has stored."""

OVER = "turn over ms"
"""What a turn costs at least, by the clock, of what was stopped in the middle of it."""

ABSENT = 69
"""What a process exits with that lacks a package."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one measurement.

    Attributes:
        what: its name in `MEASUREMENTS`.
        size: how many messages.
        figures: what was measured; nothing if it was not.
        why: why it was not measured: short enough for a table.
        stopped: it took too long.
    """

    what: str
    size: int
    figures: Figures = field(default_factory=dict)
    why: str = ""
    stopped: bool = False


def in_child(what: str, size: int, folder: Path, plan: Plan, root: Path | None = None) -> Outcome:
    """Return what a measurement in a fresh process comes to; what goes wrong there is written on standard error.

    Args:
        what: its name in `MEASUREMENTS`.
        size: how many messages.
        folder: shared by all measurements of this size.
        plan: how much to measure.
        root: the checkout whose code is measured; None: this one.
    """
    script = Path(__file__) if root is None else root / "benchmarks" / Path(__file__).name
    environment = None if root is None else {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, str(script), what, str(size), str(folder), json.dumps(asdict(plan))]
    patience = None if plan.loading is None or plan.limit is None else plan.loading + plan.limit
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=patience, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return Outcome(what, size, why=f"loads for over {plan.loading or 0:g} s", stopped=True)
    if done.returncode == 0:
        return Outcome(what, size, json.loads(done.stdout))
    if done.returncode == STOPPED:
        limit = plan.limit or 0
        return Outcome(what, size, {OVER: limit * 1_000}, why=f"over {limit:g} s", stopped=True)
    if done.returncode == ABSENT:
        return Outcome(what, size, why=done.stdout.strip())
    return Outcome(what, size, why=f"failed with {done.returncode}")


def main(what: str, size: str, folder: str, plan: str) -> None:
    """Measure here, and print the figures as JSON."""
    try:
        print(json.dumps(MEASUREMENTS[what](int(size), Path(folder), Plan(**json.loads(plan)))))
    except ImportError as error:
        print(f"{error.name or error} is not installed")
        sys.exit(ABSENT)


if __name__ == "__main__":
    main(*sys.argv[1:])
