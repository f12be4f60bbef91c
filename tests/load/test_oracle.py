"""The oracle of the load notices whatever it is there for: each broken promise, in a load that keeps all others."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from shared_core.errors import StoreUnavailableError
from shared_core.records import MAIN
from tests.load.figures import table
from tests.load.journal import Call, Journal, calls_of
from tests.load.oracle import Found, faults

LINE = ("u1", "a1", "u2", "a2", "u4", "a4")
FOUND = Found([*LINE, "u5", "a5"], {MAIN: LINE, "side": (*LINE[:4], "u5", "a5")})


def call(at: int, verb: str, ids: str = "", seen: str | None = None, branch: str = MAIN, outcome: str = "done") -> Call:
    shown = ids if seen is None else seen
    return Call(0, verb, "s", branch, tuple(ids.split()), at, at + 5, tuple(shown.split()), 0.5, outcome)


CALLS = (
    call(0, "add", "u1 a1"),
    call(10, "add", "u2 a2"),
    call(20, "add", "u3 a3"),
    call(30, "messages", "", "u1 a1 u2 a2 u3 a3"),
    call(40, "context", "u1", "u3 a3 u1 a1"),
    call(50, "forget", "u3 a3"),
    call(60, "fork", "", "u1 a1 u2 a2", "side"),
    replace(call(70, "add", "u4 a4", "", outcome="killed"), ended=None),
    call(71, "add", "u5 a5", branch="side"),
    call(80, "messages", "", "u1 a1 u2 a2 u5 a5", "side"),
    call(90, "search", "u2", "u2 a2"),
    call(95, "branches", "", "main side"),
    call(100, "context", "u2", "u2 a2 u4"),
    call(110, "add", "u6 a6", "", outcome="unavailable"),
)


def changed(at: int, **changes: object) -> Sequence[Call]:
    return [replace(one, **changes) if one.began == at else one for one in CALLS]  # type: ignore[arg-type]


def test_a_load_that_keeps_its_promises_has_no_faults() -> None:
    assert faults(CALLS, {"s": FOUND}) == []


def test_what_was_in_flight_may_also_not_have_happened() -> None:
    line = LINE[:4]
    found = Found([*line, "u5", "a5"], {MAIN: line, "side": (*line, "u5", "a5")})
    seen = changed(100, seen=("u2", "a2"))
    assert faults(seen, {"s": found}) == []


def test_what_a_store_holds_wrongly_is_noticed(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str, str | None, str]] = [
        ("u1 a1 u2 u4 a4 u5 a5", "u1 a1 u2 u4 a4", "u1 a1 u2 u5 a5", "a2 was stored and is lost"),
        ("u1 a1 u2 a2 u4 a4 a4 u5 a5", "u1 a1 u2 a2 u4 a4 a4", "u1 a1 u2 a2 u5 a5", "a4 is stored 2 times"),
        ("u1 a1 u2 a2 u4 u5 a5", "u1 a1 u2 a2 u4", "u1 a1 u2 a2 u5 a5", "half done"),
        (
            "u1 a1 u2 a2 a3 u4 a4 u5 a5",
            "u1 a1 u2 a2 a3 u4 a4",
            "u1 a1 u2 a2 a3 u5 a5",
            "a3 was forgotten and is stored",
        ),
        ("u1 a1 u2 a2 u4 u5 a4 a5", "u1 a1 u2 a2 u4 a4", "u1 a1 u2 a2 u5 a5", "others came between"),
        ("u1 a1 u2 a2 u4 a4 u5 a5 x", "u1 a1 u2 a2 u4 a4 x", "u1 a1 u2 a2 u5 a5", "nobody sent x"),
        ("u2 a2 u1 a1 u4 a4 u5 a5", "u2 a2 u1 a1 u4 a4", "u2 a2 u1 a1 u5 a5", "no beginning of"),
        ("u2 a2 u1 a1 u4 a4 u5 a5", "u1 a1 u2 a2 u4 a4", "u1 a1 u2 a2 u5 a5", "not that of its numbers"),
        ("u1 a1 u2 a2 u4 a4 u5 a5", "u1 a1 u2 a2 u4 a4", None, "side was created and is lost"),
        ("u1 a1 u2 a2 u4 a4 u5 a5", "u1 a1 u2 a2 u4 a4", "u1 a1 u5 a5", "side lacks u2"),
        ("u1 a1 u2 a2 u4 a4 u5 a5", "u1 a1 u2 a2 u4 a4", "u1 a1 u2 a2", "does not hold what was sent to it"),
        ("u1 a1 u2 a2 u4 a4 u5 a5", "u1 a1 u2 a2 u4 a4 u5", "u1 a1 u2 a2 a5", "main is no continuation"),
    ]
    for stored, main, side, said in rows:
        with subtests.test(stored=stored, main=main, side=side, said=said):
            lines = {MAIN: main.split(), **({} if side is None else {"side": side.split()})}
            assert any(said in fault for fault in faults(CALLS, {"s": Found(stored.split(), lines)}))


def test_what_a_call_shows_wrongly_is_noticed(subtests: pytest.Subtests) -> None:
    rows: list[tuple[int, str, str]] = [
        (30, "u1 a1 u3 a3", "lacks ['a2', 'u2']"),
        (30, "u2 a2 u1 a1 u3 a3", "no beginning of"),
        (60, "u1 a1", "lacks ['a2', 'u2']"),
        (80, "u1 a1 u2 a2 u3 u5 a5", "showed u3, which was forgotten"),
        (90, "u3 u2", "showed u3, which was forgotten"),
        (90, "u1 a1", "lacks ['u2']"),
        (90, "u2 u5", "showed u5 of side"),
        (95, "main", "lacks side"),
        (100, "u2 a2 u3", "showed u3, which was forgotten"),
        (100, "a2 u4", "lacks ['u2']"),
        (40, "u1 a1 u2 a2", "lacks u3, the newest"),
        (40, "u1 u3 u4", "showed u4, which nobody had sent"),
    ]
    for at, seen, said in rows:
        with subtests.test(at=at, seen=seen, said=said):
            calls = changed(at, seen=tuple(seen.split()))
            # Of u3, nobody knows afterwards: what came before it may be the newest that is known.
            told = [one for one in calls if one.verb != "forget"] if "newest" in said else calls
            found = (
                Found(["u1", "a1", "u2", "a2", "u3", "a3", *LINE[4:], "u5", "a5"], FOUND.lines)
                if "newest" in said
                else FOUND
            )
            assert any(said in fault for fault in faults(told, {"s": found}))


def test_readers_who_saw_what_is_gone_in_two_orders_are_noticed() -> None:
    calls = [*CALLS[:4], call(36, "messages", "", "u1 a1 u2 a2 a3 u3"), *CALLS[4:]]
    assert any("different orders" in fault for fault in faults(calls, {"s": FOUND}))


def test_any_other_error_is_noticed() -> None:
    assert faults(changed(110, outcome="failed", said="KeyError: 1"), {"s": FOUND}) == ["add on s: KeyError: 1"]


def test_a_journal_tells_what_was_noted(tmp_path: Path) -> None:
    """Also of a worker that was killed in the middle of a line."""
    path = tmp_path / "w.journal"
    journal = Journal(path, 3)
    assert journal.call("add", "s", MAIN, ["u1"], lambda: ["u1"]) == ("u1",)

    def away() -> list[str]:
        raise StoreUnavailableError("away")

    assert journal.call("add", "s", MAIN, ["u2"], away) is None
    with pytest.raises(ZeroDivisionError):
        journal.call("context", "s", MAIN, [], lambda: [str(1 // 0)])
    with path.open("a") as file:
        file.write(
            '{"at": 5, "worker": 3, "verb": "forget", "session": "s", "branch": "main", "ids": ["u1"]}\n{"at": 6'
        )
    found = calls_of(tmp_path)
    assert [(one.worker, one.verb, one.ids, one.seen, one.outcome) for one in found] == [
        (3, "forget", ("u1",), (), "killed"),
        (3, "add", ("u1",), ("u1",), "done"),
        (3, "add", ("u2",), (), "unavailable"),
        (3, "context", (), (), "failed"),
    ]
    assert all(one.ended is None or one.ended > one.began for one in found)


def test_figures_are_by_verb() -> None:
    calls = [replace(call(number, "add"), took=number / 1_000) for number in range(1, 101)]
    assert table(calls, "a load").splitlines() == [
        "a load, 0.0 s; 100 done",
        "  add      961538461.5/s   p50    50.0 ms   p95    95.0 ms",
    ]
