"""What a user gets, as Markdown tables; pure."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from recall_measures import SHOWN_BUDGETS, Gain
from recall_prompts import EQUAL, FOREIGN, NEAR, OWN, WAYS, Asked
from recall_tables import head, line

from shared_core.evaluation.figures import bootstrap, percent, points

__all__ = ["gain_lead_table", "gain_table", "kind_table", "silence_table", "without_table"]

Figure = Callable[[Gain], float | None]

FIGURES: dict[str, Figure] = {
    "evidence": lambda gain: gain.evidence,
    "rare facts": lambda gain: gain.facts,
    "recalled": lambda gain: gain.recalled,
    "prompt": lambda gain: gain.tokens,
}
"""The first two are shares, the others tokens."""

SHARES = ("evidence", "rare facts")


def gain_table(rows: Sequence[Asked]) -> Iterator[str]:
    """Yield a line for each way: the share of the evidence and of the facts with their intervals, and the tokens."""
    own = _of(rows, OWN)
    yield from head(["way", *(f"{name}, {budget:,}" for budget in SHOWN_BUDGETS for name in FIGURES)])
    for way in own[0].gains:
        cells = [
            _percent(own, way, budget, figure) if name in SHARES else _tokens(own, way, budget, figure)
            for budget in SHOWN_BUDGETS
            for name, figure in FIGURES.items()
        ]
        yield line([way, *cells])


def gain_lead_table(rows: Sequence[Asked], ours: str = "context") -> Iterator[str]:
    """Yield a line for each other way: our lead over it in points, with its interval."""
    own = _of(rows, OWN)
    yield from head([f"{ours} over", *(f"{name}, {budget:,}" for budget in SHOWN_BUDGETS for name in SHARES)])
    for way in own[0].gains:
        if way != ours:
            cells = [_lead(own, ours, way, budget, FIGURES[name]) for budget in SHOWN_BUDGETS for name in SHARES]
            yield line([way, *cells])


def without_table(rows: Sequence[Asked]) -> Iterator[str]:
    """Yield a line for each ingredient: the points gained by switching it off, with their intervals, and the tokens.

    The last column has the tokens recalled for questions about another conversation.
    """
    most = SHOWN_BUDGETS[-1]
    columns = [f"{name}, {budget:,}" for budget in SHOWN_BUDGETS for name in (*SHARES, "recalled")]
    yield from head(["without", *columns, f"{FOREIGN}, {most:,}"])
    foreign, rows = _of(rows, FOREIGN, NEAR), _of(rows, OWN)
    full, *ways = rows[0].gains
    for way in (full, *ways):
        cells = []
        for budget in SHOWN_BUDGETS:
            figures = [FIGURES[name] for name in SHARES]
            cells += [
                _percent(rows, way, budget, one) if way == full else _lead(rows, way, full, budget, one)
                for one in figures
            ]
            cells.append(_tokens(rows, way, budget, FIGURES["recalled"]))
        cells.append(_tokens(foreign, way, most, FIGURES["recalled"]) if foreign else "")
        yield line([way.removeprefix("without "), *cells])


def kind_table(rows: Sequence[Asked], rival: str = EQUAL) -> Iterator[str]:
    """Yield a line for each category: evidence / rare facts / tokens recalled, and the lead in rare facts."""
    own, ways = _of(rows, OWN), ["context", "context, thorough", rival]
    columns = [f"{way}, {budget:,}" for budget in SHOWN_BUDGETS for way in ways]
    leads = [f"lead in rare facts over {rival}, {budget:,}" for budget in SHOWN_BUDGETS]
    yield from head(["evidence / rare facts / recalled", "questions", *columns, *leads])
    for category in sorted({row.category for row in own}):
        asked = [row for row in own if row.category == category]
        cells = [_three(asked, way, budget) for budget in SHOWN_BUDGETS for way in ways]
        cells += [_lead(asked, "context", rival, budget, FIGURES["rare facts"]) for budget in SHOWN_BUDGETS]
        yield line([category, f"{len(asked)}", *cells])


def silence_table(rows: Sequence[Asked]) -> Iterator[str]:
    """Yield a line for each kind of line: how often anything is recalled, with its interval, and the tokens of it."""
    columns = [f"{way}, {budget:,}" for budget in SHOWN_BUDGETS for way in WAYS]
    yield from head(["anything recalled, tokens of it", "lines", *columns])
    small = [kind for kind in dict.fromkeys(row.kind for row in rows) if kind not in (OWN, FOREIGN, NEAR)]
    for name, kinds in {
        OWN: [OWN],
        FOREIGN: [FOREIGN],
        NEAR: [NEAR],
        "small talk": small,
        **{kind: [kind] for kind in small},
    }.items():
        if said := _of(rows, *kinds):
            cells = [_silence(said, way, budget) for budget in SHOWN_BUDGETS for way in WAYS]
            yield line([name, f"{len(said):,}", *cells])


def _of(rows: Sequence[Asked], *kinds: str) -> list[Asked]:
    return [row for row in rows if row.kind in kinds]


def _values(rows: Sequence[Asked], way: str, budget: int, figure: Figure) -> tuple[list[float], list[str]]:
    """Return a figure of every line that has it, and what conversation each is about."""
    found = [(figure(row.gains[way][budget]), row.conversation) for row in rows]
    return [value for value, _ in found if value is not None], [talk for value, talk in found if value is not None]


def _percent(rows: Sequence[Asked], way: str, budget: int, figure: Figure) -> str:
    values, talks = _values(rows, way, budget, figure)
    return percent(bootstrap(values, talks)) if values else ""


def _tokens(rows: Sequence[Asked], way: str, budget: int, figure: Figure) -> str:
    return f"{fmean(_values(rows, way, budget, figure)[0]):,.0f}"


def _lead(rows: Sequence[Asked], ours: str, theirs: str, budget: int, figure: Figure) -> str:
    values, talks = _values(rows, ours, budget, figure)
    gains = [one - other for one, other in zip(values, _values(rows, theirs, budget, figure)[0], strict=True)]
    return points(bootstrap(gains, talks)) if values else ""


def _three(rows: Sequence[Asked], way: str, budget: int) -> str:
    shares = [_values(rows, way, budget, FIGURES[name])[0] for name in SHARES]
    cells = [f"{100 * fmean(values):.1f}" if values else "-" for values in shares]
    return " / ".join([*cells, _tokens(rows, way, budget, FIGURES["recalled"])])


def _silence(rows: Sequence[Asked], way: str, budget: int) -> str:
    often = _percent(rows, way, budget, lambda gain: float(gain.recalled > 0))
    return f"{often}, {_tokens(rows, way, budget, FIGURES['recalled'])}"
