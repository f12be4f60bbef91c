"""The picture of how much evidence is in the prompt for the tokens that were spent; needs matplotlib."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from recall_measures import BUDGETS, Gain
from recall_prompts import OWN, WAYS, Asked

__all__ = ["SPENT", "Line", "draw", "lines"]

COLOUR, GREY, FAINT = "#e0561b", "#737b85", "#737b8550"
"""Each can be told from white and from black."""

STYLES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))

SPENT: dict[str, Callable[[Gain], int]] = {
    "tokens recalled; context adds the newest turns": lambda gain: gain.recalled,
    "tokens of the whole prompt": lambda gain: gain.tokens,
}
"""What is spent, and how it is told; the figure has a row for each."""


@dataclass(frozen=True, slots=True)
class Line:
    """One way to fill a prompt.

    Attributes:
        label: what it is.
        points: for each budget the mean of the tokens spent, and the share of the evidence in per cent.
    """

    label: str
    points: Sequence[tuple[float, float]]


def lines(rows: Sequence[Asked], spent: Callable[[Gain], int]) -> Iterator[Line]:
    """Yield a line for each way."""
    own = [row for row in rows if row.kind == OWN]
    for way in own[0].gains:
        gains = [[row.gains[way][budget] for row in own] for budget in BUDGETS]
        yield Line(way, [(fmean(map(spent, each)), 100 * fmean(gain.evidence or 0 for gain in each)) for each in gains])


def draw(rows: Sequence[Asked], path: Path) -> None:
    """Write the picture, the same bytes for the same figures: an SVG without a background, or a PNG on white."""
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    vector = path.suffix == ".svg"
    settings: Any = {"svg.hashsalt": "recall", "font.size": 10.5, "text.color": GREY, "axes.edgecolor": FAINT}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(2 + 3.6 * len(datasets), 7.5), layout="constrained")
        panels = figure.subplots(len(SPENT), len(datasets), sharey=True, squeeze=False)
        for number, (label, spent) in enumerate(SPENT.items()):
            for axes, dataset in zip(panels[number], datasets, strict=True):
                _plot(axes, list(lines([row for row in rows if row.dataset == dataset], spent)))
                _frame(axes, label, "" if number else dataset)
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=1 + 2 * len(datasets), handlelength=3.5, frameon=False
        )
        figure.savefig(path, transparent=vector, metadata={"Date": None} if vector else {"Software": None})


def _plot(axes: Axes, drawn: Sequence[Line]) -> None:
    ours = [line for line in drawn if line.label in WAYS]
    peers = [line for line in drawn if line.label not in WAYS]
    for group, colour in ((ours, COLOUR), (peers, GREY)):
        for line, style in zip(group, STYLES, strict=False):
            tokens, evidence = zip(*line.points, strict=True)
            axes.plot(tokens, evidence, color=colour, linestyle=style, marker="o", markersize=4, label=line.label)


def _frame(axes: Axes, spent: str, title: str) -> None:
    axes.set_xlim(0, 1.05 * max(BUDGETS))
    axes.set_ylim(0, 100)
    axes.set_xticks(range(0, max(BUDGETS) + 1, 1_000))
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.0f}")
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0f} %")
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=GREY, length=0, pad=6)
    axes.set_xlabel(spent, color=GREY)
    if title:
        axes.set_title(f"{title}: evidence in the prompt", loc="left", fontsize=11.5)
