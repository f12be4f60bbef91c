"""The picture of what a turn costs as the history grows: ours in colour, the others in grey; needs matplotlib."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10
from pathlib import Path
from typing import Any

import matplotlib as mpl
from latency_children import OURS, OVER, PEERS, WITHOUT
from latency_tables import Outcomes
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["Line", "draw", "lines", "spread"]

COLOUR, GREY, FAINT = "#e0561b", "#737b85", "#737b8550"
"""Each can be told from white and from black."""

FIGURE, HIGHER = "turn p50 ms of processor", "turn p95 ms of processor"
LIMIT_MS = 120_000
STYLES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
TICKS = {0.1: "0.1 ms", 1: "1 ms", 10: "10 ms", 100: "100 ms", 1_000: "1 s", 10_000: "10 s", LIMIT_MS: "2 min"}
APART = 0.24
"""Between the middles of two labels, in powers of ten."""


@dataclass(frozen=True, slots=True)
class Line:
    """One way to build prompts.

    Attributes:
        label: what is written at its end.
        points: messages, and milliseconds of processor time a turn, median and 95th percentile.
        stopped: with how many messages a turn took too long; 0: never.
    """

    label: str
    points: Sequence[tuple[int, float, float]]
    stopped: int = 0


def lines(outcomes: Outcomes, ways: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each way that was measured anywhere."""
    for way in ways:
        found = sorted((size, outcome) for (what, size), outcome in outcomes.items() if what == way)
        points = [
            (size, outcome.figures[FIGURE], outcome.figures[HIGHER])
            for size, outcome in found
            if FIGURE in outcome.figures
        ]
        stopped = [outcome for _, outcome in found if outcome.stopped]
        if points and stopped and OVER in stopped[0].figures:
            yield Line(f"{way}, stopped", points, stopped[0].size)
        elif points:
            yield Line(f"{way}, {stopped[0].why}" if stopped else way, points)


def spread(heights: Sequence[float], apart: float = APART) -> list[float]:
    """Return heights at least `apart`, in their order and as near to the given ones as pushing both ways allows."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = list(heights)
    for _ in range(100):
        for below, above in pairwise(order):
            missing = apart - (placed[above] - placed[below])
            if missing > 1e-9:
                placed[below] -= missing / 2
                placed[above] += missing / 2
    return placed


def draw(outcomes: Outcomes, path: Path) -> None:
    """Write the picture, the same bytes for the same figures: an SVG without a background, or a PNG on white."""
    ours, peers = list(lines(outcomes, [OURS, WITHOUT])), list(lines(outcomes, list(PEERS)))
    vector = path.suffix == ".svg"
    settings: Any = {"svg.hashsalt": "latency", "font.size": 10.5, "text.color": GREY, "axes.edgecolor": FAINT}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots()
        for line, style in zip(peers, STYLES, strict=False):
            _plot(axes, line, GREY, {"linestyle": style, "linewidth": 1.4})
        for line, width in zip(ours, (3, 1.6), strict=False):
            _plot(axes, line, COLOUR, {"linewidth": width})
        _label(axes, [(line, GREY) for line in peers] + [(line, COLOUR) for line in ours])
        _frame(axes)
        figure.savefig(path, transparent=vector, metadata={"Date": None} if vector else {"Software": None})


def _plot(axes: Axes, line: Line, colour: str, style: dict[str, Any]) -> None:
    sizes, times, higher = zip(*line.points, strict=True)
    axes.plot(sizes, times, color=colour, marker="o", markersize=4 if colour == GREY else 5, zorder=3, **style)
    if colour == COLOUR:
        axes.fill_between(sizes, times, higher, color=colour, alpha=0.18, linewidth=0)
    if line.stopped:
        axes.plot([sizes[-1], line.stopped], [times[-1], LIMIT_MS], color=colour, alpha=0.6, zorder=2, **style)
        axes.plot([line.stopped], [LIMIT_MS], color=colour, marker="x", markersize=9, markeredgewidth=2, zorder=4)


def _label(axes: Axes, drawn: Sequence[tuple[Line, str]]) -> None:
    """Write what each line is at its end, apart from the others; those that were stopped, where they were."""
    ends = [(line, colour) for line, colour in drawn if not line.stopped]
    heights = spread([log10(line.points[-1][1]) for line, _ in ends])
    for (line, colour), height in zip(ends, heights, strict=True):
        bold = "bold" if line.label == OURS else "normal"
        axes.annotate(
            line.label, (line.points[-1][0], 10**height), (10, 0), textcoords="offset points", va="center",
            color=colour, weight=bold, annotation_clip=False,
        )  # fmt: skip
    for line, colour in drawn:
        if line.stopped:
            axes.annotate(
                line.label, (line.stopped, LIMIT_MS), (-9, 4), textcoords="offset points", ha="right", va="bottom",
                color=colour,
            )  # fmt: skip


def _frame(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    lowest, highest = axes.get_ylim()
    axes.set_ylim(lowest, max(highest, 2.4 * LIMIT_MS))
    axes.axhline(LIMIT_MS, color=FAINT, linewidth=1, linestyle=(0, (3, 3)), zorder=1)
    shown = {height: text for height, text in TICKS.items() if height >= lowest}
    axes.set_yticks(list(shown), list(shown.values()))
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:,.0f}")
    axes.minorticks_off()
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=GREY, length=0, pad=6)
    axes.set_xlabel("messages in the conversation", color=GREY)
    axes.set_title(
        "Processor time of one turn: add the question, build the prompt, add the reply", loc="left", fontsize=11.5
    )
