"""The figures as Markdown tables and as rows for a file; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from recall_measures import ASSISTANT_BUDGET, BUDGETS, SHOWN_BUDGETS, Score

from shared_core.evaluation.figures import bootstrap, points

__all__ = ["Row", "ablation_table", "as_json", "category_table", "head", "lead_table", "line", "method_table"]

SHOWN = [BUDGETS.index(budget) for budget in SHOWN_BUDGETS]


@dataclass(frozen=True, slots=True)
class Row:
    """One question.

    Attributes:
        dataset: what it belongs to.
        conversation: its name there.
        question: its number there, from 0, among those that have any evidence.
        category: what kind it is.
        evidence: how many messages answer it.
        scores: by method.
    """

    dataset: str
    conversation: str
    question: int
    category: str
    evidence: int
    scores: Mapping[str, Score]


def as_json(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Return plain JSON data of dataclasses."""
    return [asdict(row) for row in rows]


def method_table(rows: Sequence[Row], methods: Sequence[str]) -> Iterator[str]:
    """Yield a line for each method: the share of the evidence, how often any and all of it is kept, and the ranks."""
    budgets = [f"{budget:,}" for budget in BUDGETS]
    assistant = any(score.assistant is not None for row in rows for score in row.scores.values())
    extra = [f"assistant's at {ASSISTANT_BUDGET:,}"] if assistant else []
    yield from head(["fraction / any / all, %", *budgets, "R@5", "R@10", "NDCG@10", *extra])
    for method in methods:
        scores = [row.scores[method] for row in rows]
        kept = [_kept([score.kept[at] for score in scores]) for at in range(len(BUDGETS))]
        ranks = [_mean(score.recall_5 for score in scores), _mean(score.recall_10 for score in scores)]
        more = [_mean(score.assistant for score in scores)] if assistant else []
        yield line([method, *kept, *ranks, _mean(score.ndcg_10 for score in scores), *more])


def _kept(shares: Sequence[float]) -> str:
    some, whole = fmean(share > 0 for share in shares), fmean(share == 1 for share in shares)
    return f"{100 * fmean(shares):.1f} / {100 * some:.1f} / {100 * whole:.1f}"


def category_table(rows: Sequence[Row], methods: Sequence[str]) -> Iterator[str]:
    """Yield a line for each category: the share of the evidence within 1,000 and within 4,000 tokens."""
    yield from head(["category", "questions", *methods])
    for category in sorted({row.category for row in rows}):
        asked = [row for row in rows if row.category == category]
        yield line([category, f"{len(asked)}", *(_at_shown(asked, method) for method in methods)])


def _at_shown(rows: Sequence[Row], method: str) -> str:
    return " / ".join(f"{100 * fmean(row.scores[method].kept[at] for row in rows):.1f}" for at in SHOWN)


def lead_table(rows: Sequence[Row], pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each pair of methods: the first one's lead over the second, in points, and its 95 % interval."""
    yield from head(["lead", *(f"{budget:,}" for budget in BUDGETS)])
    for ours, theirs in pairs:
        cells = [_lead(rows, ours, theirs, lambda score, at=at: score.kept[at]) for at in range(len(BUDGETS))]  # type: ignore[misc]
        yield line([f"{ours} over {theirs}", *cells])


def ablation_table(rows: Sequence[Row], ours: Sequence[str], without: Sequence[str]) -> Iterator[str]:
    """Yield a line for each ingredient: what is gained by switching it off, in points, and the 95 % interval.

    Args:
        rows: all questions.
        ours: our methods, the first one ranked.
        without: what was switched off; the scores are under `{method} without {ingredient}`.
    """
    columns = [f"{method}, {BUDGETS[at]:,}" for method in ours for at in SHOWN]
    yield from head(["without", *columns, "NDCG@10"])
    for ingredient in without:
        cells = [
            _lead(rows, f"{method} without {ingredient}", method, lambda score, at=at: score.kept[at])  # type: ignore[misc]
            for method in ours
            for at in SHOWN
        ]
        ranks = _lead(rows, f"{ours[0]} without {ingredient}", ours[0], lambda score: score.ndcg_10 or 0.0)
        yield line([ingredient, *cells, ranks])


def _lead(rows: Sequence[Row], ours: str, theirs: str, figure: Callable[[Score], float]) -> str:
    leads = [figure(row.scores[ours]) - figure(row.scores[theirs]) for row in rows]
    return points(bootstrap(leads, [row.conversation for row in rows]))


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * fmean(known):.1f}" if known else ""


def head(columns: Sequence[str]) -> Iterator[str]:
    """Yield the first two lines of a table: the first column is text, the others are numbers."""
    yield line(columns)
    yield "|" + " --- |" + " ---: |" * (len(columns) - 1)


def line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |"
