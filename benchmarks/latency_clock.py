"""How long calls take, by the clock and of the processor, and how much memory a process holds."""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

__all__ = ["Figures", "Span", "fsync_times", "p50", "p95", "resident", "summary", "summed", "timed"]

Figures = dict[str, float]
"""What is measured, with its unit -> how much."""


class Span(NamedTuple):
    """How long something took, in milliseconds: by the clock, and of the processor in all threads."""

    clock: float
    processor: float


def timed(action: Callable[[], object]) -> Span:
    """Return how long a call takes."""
    start, worked = time.perf_counter(), time.process_time()
    action()
    return Span((time.perf_counter() - start) * 1_000, (time.process_time() - worked) * 1_000)


def summed(spans: Sequence[Span]) -> Span:
    """Return how long several calls took together."""
    return Span(sum(span.clock for span in spans), sum(span.processor for span in spans))


def p50(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    """Return the smallest value that 95 % of the values do not exceed."""
    return sorted(values)[ceil(0.95 * len(values)) - 1]


def summary(name: str, spans: Sequence[Span]) -> Figures:
    """Return the median and the 95th percentile of both times."""
    clock, worked = [span.clock for span in spans], [span.processor for span in spans]
    return {
        f"{name} p50 ms": p50(clock),
        f"{name} p95 ms": p95(clock),
        f"{name} p50 ms of processor": p50(worked),
        f"{name} p95 ms of processor": p95(worked),
    }


def fsync_times(file: Path, times: int) -> list[Span]:
    """Return how long it takes to append 4 KB to a file and have them durable, each time."""
    with file.open("ab", buffering=0) as out:

        def write() -> None:
            out.write(b"x" * 4096)
            os.fsync(out.fileno())

        return [timed(write) for _ in range(times)]


def resident(peak: bool = False) -> float:
    """Return the memory of this process in megabytes: what it holds now, or held at most.

    What it holds now is read where Linux tells it; elsewhere it is what it held at most.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM" if peak else "VmRSS"].split()[0]) * 1024 / 1e6
    import resource  # not on Windows, where none of this is measured

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if sys.platform == "darwin" else 1024) / 1e6
