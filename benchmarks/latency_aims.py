"""What we want to reach, and how much of it is reached; pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from latency_children import OURS, WITHOUT
from latency_tables import Outcomes, head, line, short, sizes_of

__all__ = ["Aim", "aim_table", "aims"]

PROCESSOR = " of processor"

Place = tuple[str, int, str]
"""Where a figure stands: a measurement, its size (0: each, and the worst one counts), and the figure's name."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure to reach.

    Attributes:
        what: it is, in words.
        wanted: how much, and at most, unless `least`.
        unit: of it.
        found: what is measured.
        over: by what it is divided, if by anything.
        least: at least so much is wanted.
        waits: for the disk, so that the processor's time does not tell.
    """

    what: str
    wanted: float
    unit: str
    found: Place
    over: Place | None = None
    least: bool = False
    waits: bool = False

    def at(self, size: int) -> "Aim":
        """Return the same aim for one size."""
        what = f"{self.what} at {size:,}"
        over = self.over and (self.over[0], size, self.over[2])
        return replace(self, what=what, found=(self.found[0], size, self.found[2]), over=over)

    def measured(self, outcomes: Outcomes, kind: str = "") -> float | None:
        """Return what is reached, by the clock or, if `kind` is `PROCESSOR`, of it; None if it was not measured."""
        if kind and self.waits:
            return None
        value = _figure(outcomes, self.found, kind)
        if self.over is None or value is None:
            return value
        beside = _figure(outcomes, self.over, kind)
        return value / beside if beside else None


def _figure(outcomes: Outcomes, place: Place, kind: str) -> float | None:
    what, size, name = place
    outcome = outcomes.get((what, size))
    return outcome.figures.get(name + kind) if outcome else None


def _worst(aim: Aim, outcomes: Outcomes) -> Aim:
    """Return the aim for the size at which it is missed most, where it holds for any."""
    if aim.found[1]:
        return aim
    found = [(aim.at(size).measured(outcomes), aim.at(size)) for size in sizes_of(outcomes)]
    measured = [(value, each) for value, each in found if value is not None]
    pick = min if aim.least else max
    return pick(measured, key=lambda pair: pair[0])[1] if measured else aim


def aims() -> list[Aim]:
    """Return what is wanted."""
    prompt, first, stored = "prompt p50 ms", "first context p50 ms", "stored"
    trim, buffer = ("trim_messages, tiktoken", 10_000, prompt), ("ChatMemoryBuffer.get", 1_000, prompt)
    ours = (OURS, 10_000, prompt)
    return [
        Aim("prompt without recall, worst of all,", 0.5, "ms", (WITHOUT, 0, prompt)),
        Aim("… beside trim_messages with tiktoken at 10,000", 500, "x", trim, (WITHOUT, 10_000, prompt), least=True),
        Aim("… beside ChatMemoryBuffer.get at 1,000", 2_000, "x", buffer, (WITHOUT, 1_000, prompt), least=True),
        Aim("prompt with recall beside trim_messages with tiktoken at 10,000", 100, "x", trim, ours, least=True),
        Aim("… at 1,000,000 beside itself at 10,000", 2, "x", (OURS, 1_000_000, prompt), ours),
        Aim("prompt with recall at 10,000", 5, "ms", (OURS, 10_000, prompt)),
        Aim("prompt with recall at 100,000", 12, "ms", (OURS, 100_000, prompt)),
        Aim("prompt with recall at 1,000,000", 60, "ms", (OURS, 1_000_000, prompt)),
        Aim(
            "durable add as a share of the disk's fsync rate, worst of all,", 0.8, "",
            ("additions", 0, "add full/s"), ("additions", 0, "fsync/s"), least=True, waits=True,
        ),
        Aim(
            'add with durability="process", worst of all,', 3_000, "/s", ("additions", 0, "add process/s"),
            least=True,
        ),
        Aim("bulk add, worst of all,", 20_000, "/s", (stored, 0, "bulk add/s"), least=True),
        Aim("first prompt after opening 100,000", 1_000, "ms", ("opened", 100_000, first)),
        Aim("first prompt after opening 1,000,000", 3_000, "ms", ("opened", 1_000_000, first)),
        Aim("memory at 1,000,000", 1_500, "MB", (OURS, 1_000_000, "resident MB")),
    ]  # fmt: skip


def aim_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each aim that was measured: aim, measured, and their ratio; in brackets of the processor."""
    yield from head(["what", "aim", "measured (of the processor)", "measured / aim"])
    for aim in (_worst(each, outcomes) for each in aims()):
        value, worked = aim.measured(outcomes), aim.measured(outcomes, PROCESSOR)
        if value is None:
            continue
        more, times = (f" ({short(worked)})", f" ({short(worked / aim.wanted)})") if worked is not None else ("", "")
        wanted = f"{'≥' if aim.least else '≤'} {short(aim.wanted)} {aim.unit}".rstrip()
        yield line([aim.what, wanted, short(value) + more, short(value / aim.wanted) + times])
