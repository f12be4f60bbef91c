"""What the benchmark of stores has found, in tables: ratios first, times after them; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from latency_clock import Figures
from latency_tables import head, line, short

__all__ = ["DIRECT", "RELAYED", "SQLITE", "Found", "aim_table", "before_table", "prompt_table", "user_table"]

SQLITE, DIRECT, RELAYED = "SQLite", "PostgreSQL", "PostgreSQL, 1 ms away"

Found = Mapping[str, Figures]
"""Part of the benchmark -> what it has measured."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure to stay below.

    Attributes:
        what: it is, in words.
        part: of the benchmark.
        name: of the figure there.
        most: that is wanted.
        unit: of it.
    """

    what: str
    part: str
    name: str
    most: float
    unit: str = "x"


TURN = [
    "p50 / p95 ms", "of processor", "of the server's", "round trips", "each, ms", "more, ms", "more by the clock, ms",
]  # fmt: skip

AIMS = [
    Aim("a turn, more than on SQLite", "turn", f"{RELAYED}, more", 8, "round trips of 1 ms"),
    Aim(
        "… by the clock, with all that ran beside it", "turn", f"{RELAYED}, more by the clock", 8, "round trips of 1 ms"
    ),
    *(
        Aim(f"first question after another worker forgot a message, {on}{kind}", "forgotten", f"{on}, ratio{kind}", 2)
        for on in (SQLITE, DIRECT, RELAYED)
        for kind in ("", " of processor")
    ),
    *(
        Aim(f'scope="user", {label}, {on}', "user", f"{on}, {label}, times one session, of processor", 3)
        for on in (SQLITE, DIRECT)
        for label in ("a question", "a question after a message", "a question after a message elsewhere")
    ),
    Aim("SQLite now and before, a turn", "before", "a turn, ratio", 1.05),
    Aim("SQLite now and before, a turn without recall", "before", "a turn without recall, ratio", 1.05),
    Aim("SQLite now and before, a turn in the store", "before", "what a turn does in the store, ratio", 1.05),
    Aim("statements with a plan that misses its index or partition", "plans", "wrong", 0, "statements"),
]


def aim_table(found: Found) -> Iterator[str]:
    """Yield what is wanted, what is reached, and whether that is enough."""
    yield from head(["aim", "at most", "found", "reached"])
    for aim in AIMS:
        value = found.get(aim.part, {}).get(aim.name)
        if value is not None:
            shown = f"{short(value)} {aim.unit}"
            yield line([aim.what, f"{short(aim.most)} {aim.unit}", shown, "yes" if value <= aim.most else "no"])


def turn_table(found: Found) -> Iterator[str]:
    """Yield what a turn takes, and a round trip."""
    turn = found.get("turn")
    if turn:
        yield from head(["a turn: add, prompt, add", *TURN])
        for on in (SQLITE, DIRECT, RELAYED):
            clock, worked = _times(turn, on)
            others = [short(turn[f"{on}, {name}"]) for name in ("server", "trips", "trip", "more", "more by the clock")]
            yield line([on, clock, worked, *others])


def forgotten_table(found: Found) -> Iterator[str]:
    """Yield what the first question after another worker forgot a message takes."""
    part = found.get("forgotten")
    if part:
        yield from head(["after a message was forgotten elsewhere", "ratio", "of processor", "usual ms", "first ms"])
        for on in (SQLITE, DIRECT, RELAYED):
            cells = [f"{part[f'{on}, ratio']:.2f} x", f"{part[f'{on}, ratio of processor']:.2f} x"]
            yield line([on, *cells, _times(part, f"{on}, usual")[0], _times(part, f"{on}, first")[0]])


def user_table(found: Found) -> Iterator[str]:
    """Yield what a question to all sessions of a user takes."""
    part = found.get("user")
    if part:
        yield from head(['scope="user"', "ratio", "of processor", "one session ms", "user ms"])
        for on in (SQLITE, DIRECT):
            for name in part:
                if name.startswith(f"{on}, ") and name.endswith(", times one session"):
                    label = name.removesuffix(", times one session")
                    cells = [f"{part[name]:.2f} x", f"{part[f'{name}, of processor']:.2f} x"]
                    times = [_times(part, f"{label}, {of},")[0] for of in ("one session", "user")]
                    yield line([label, *cells, *times])


def before_table(found: Found) -> Iterator[str]:
    """Yield what SQLite takes beside the other checkout."""
    part = found.get("before")
    if part:
        yield from head(["SQLite, of the processor", "now / before", "now ms", "before ms"])
        for name, value in part.items():
            if name.endswith(", ratio"):
                kind = name.removesuffix(", ratio")
                yield line([kind, f"{value:.3f} x", short(part[f"{kind}, now"]), short(part[f"{kind}, before"])])


def prompt_table(found: Found) -> Iterator[str]:
    """Yield what prompts take among many sessions and in a large one, as multiples of SQLite's, and in milliseconds."""
    part = found.get("prompts")
    if part:
        stores = [on for on in (SQLITE, DIRECT, RELAYED) if f"many, {on}, warm p50 ms" in part]
        yield from head(["prompt, ms, p50 / p95; times SQLite, p50", *stores])
        for of in ("many", "large"):
            for kind in ("warm", "cold", "process"):
                base = part.get(f"{of}, {SQLITE}, {kind} p50 ms", 0)
                names = [f"{of}, {on}, {kind}" for on in stores]
                ratios = [f" ({part[f'{name} p50 ms'] / base:.2f} x)" if base else "" for name in names]
                times = [_times(part, name)[0] for name in names]
                yield line([f"{of}, {kind}", *(shown + ratio for shown, ratio in zip(times, ratios, strict=True))])
                yield line([f"{of}, {kind}, of processor", *(_times(part, name)[1] for name in names)])


def _times(figures: Figures, name: str) -> tuple[str, str]:
    """Return the median and the 95th percentile, by the clock and of the processor."""
    clock, worked = (
        " / ".join(short(figures[f"{name} {which} ms{kind}"]) for which in ("p50", "p95"))
        for kind in ("", " of processor")
    )
    return clock, worked
