"""The figures as Markdown tables; pure."""

from collections.abc import Iterator, Mapping, Sequence

from latency_children import ADAPTED, BESIDE, EMBEDDERS, INGEST, OURS, OVER, PEERS, WITHOUT, Outcome

__all__ = [
    "Outcomes", "addition_table", "context_table", "head", "ingest_table", "line", "opening_table", "prompt_table",
    "ratio_table", "short", "sizes_of", "turn_table",
]  # fmt: skip

Outcomes = Mapping[tuple[str, int], Outcome]
"""What was measured and at which size -> what came of it."""

WAYS = (OURS, WITHOUT, ADAPTED, *PEERS)

TRIMMED, USUAL = "trim_messages, tiktoken", 10_000
"""What a prompt with recall is measured against: a peer at each size, and itself at this one."""


def sizes_of(outcomes: Outcomes) -> list[int]:
    """Return the sizes that ways were compared at, smallest first."""
    return sorted({size for what, size in outcomes if what in WAYS})


def turn_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each way: p50 / p95 of a turn at each size, by the clock and of the processor."""
    sizes = sizes_of(outcomes)
    yield from head(["turn: add, prompt, add; ms, p50 / p95", *(f"{size:,}" for size in sizes)])
    for way in WAYS:
        for kind in ("", " of processor"):
            cells = [_cell(outcomes.get((way, size)), f"turn p50 ms{kind}", f"turn p95 ms{kind}") for size in sizes]
            yield line([f"{way}{',' if kind else ''}{kind}", *cells])


def prompt_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each way: what a prompt costs alone, and the same one once more, of the processor."""
    sizes = sizes_of(outcomes)
    yield from head(["prompt / the same again; ms of processor, p50", *(f"{size:,}" for size in sizes)])
    names = ("prompt p50 ms of processor", "prompt again p50 ms of processor")
    for way in WAYS:
        yield line([way, *(_cell(outcomes.get((way, size)), *names) for size in sizes)])


def ratio_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each peer: how many times our turn its turn costs, with recall and without.

    Of the processor; where the peer was stopped, by the clock.
    """
    sizes = sizes_of(outcomes)
    yield from head(["turn beside ours, with / without recall", *(f"{size:,}" for size in sizes)])
    for peer in PEERS:
        yield line([peer, *(_ratios(outcomes, peer, size) for size in sizes)])


def context_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield what a prompt with recall costs at each size, and how many times as much others: of the processor, p50."""
    sizes = sizes_of(outcomes)

    def costs(way: str, size: int) -> float | None:
        outcome = outcomes.get((way, size))
        return outcome.figures.get("prompt p50 ms of processor") if outcome is not None else None

    def times(part: float | None, whole: float | None) -> str:
        return "-" if not part or whole is None else f"{short(whole / part)} x"

    yield from head(["prompt with recall, of the processor, p50", *(f"{size:,}" for size in sizes)])
    for way in (OURS, BESIDE):
        found = [costs(way, size) for size in sizes]
        if way == OURS or any(found):
            yield line([f"{way}, ms", *("-" if value is None else short(value) for value in found)])
            yield line([f"{way}, times {USUAL:,}", *(times(costs(way, USUAL), value) for value in found)])
    for other in (BESIDE, TRIMMED):
        if any(costs(other, size) for size in sizes):
            yield line([f"{other}: times ours", *(times(costs(OURS, size), costs(other, size)) for size in sizes)])


def _ratios(outcomes: Outcomes, peer: str, size: int) -> str:
    theirs = outcomes.get((peer, size))
    if theirs is None or not theirs.figures:
        return _why(theirs)
    stopped = OVER in theirs.figures
    name = "turn p50 ms" if stopped else "turn p50 ms of processor"
    cells = []
    for way in (OURS, WITHOUT):
        ours = outcomes.get((way, size))
        measured = ours.figures.get(name) if ours is not None else None
        share = theirs.figures[OVER if stopped else name] / measured if measured else None
        cells.append("-" if share is None else f"{'> ' if stopped else ''}{short(share)} x")
    return " / ".join(cells)


def opening_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each size: storing, indexing, opening, and memory."""
    columns = {
        "bulk add/s": "stored", "index/s": "stored", "MB of file": "stored", "peak MB": "stored",
        "first context p50 ms": "opened", "first context p50 ms of processor": "opened",
        "first context of a process ms": "opened", "resident MB": OURS,
    }  # fmt: skip
    yield from head(["messages", *columns])
    for size in sizes_of(outcomes):
        yield line([f"{size:,}", *(_cell(outcomes.get((what, size)), name) for name, what in columns.items())])


def addition_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each size: single messages made durable a second, beside the disk."""
    columns = ["fsync/s", "add full/s", "add process/s", "add full/s of processor", "add process/s of processor"]
    yield from head(["messages", *columns, "full of fsync"])
    for size in sizes_of(outcomes):
        outcome = outcomes.get(("additions", size))
        share = outcome.figures["add full/s"] / outcome.figures["fsync/s"] if outcome and outcome.figures else None
        cells = [_cell(outcome, name) for name in columns]
        yield line([f"{size:,}", *cells, "-" if share is None else f"{share:.0%}"])


def ingest_table(outcomes: Outcomes) -> Iterator[str]:
    """Yield a line for each embedder: messages stored, embedded and indexed a second."""
    columns = ["messages", "ingest/s", "ingest/s of processor", "resident MB"]
    yield from head(["embedder", *columns])
    for embedder in EMBEDDERS:
        found = next((outcome for (what, _), outcome in outcomes.items() if what == INGEST + embedder), None)
        yield line([embedder, *(_cell(found, name) for name in columns)])


def _cell(outcome: Outcome | None, *names: str) -> str:
    """Return the figures with these names, or why there are none."""
    if outcome is None or names[0] not in outcome.figures:
        return _why(outcome)
    return " / ".join(short(outcome.figures[name]) if name in outcome.figures else "-" for name in names)


def _why(outcome: Outcome | None) -> str:
    return outcome.why if outcome and outcome.why else "-"


def short(value: float) -> str:
    """Return three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def head(columns: Sequence[str]) -> Iterator[str]:
    """Yield the two lines above a table; the first column is text."""
    yield line(columns)
    yield "|" + " --- |" + " ---: |" * (len(columns) - 1)


def line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |"
