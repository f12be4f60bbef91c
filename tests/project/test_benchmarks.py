"""Each script of `benchmarks` runs at a small size; that of recall reports the figures worked out by hand."""

import gzip
import json
from importlib import import_module
from math import log2
from pathlib import Path
from typing import Any

import pytest

from tests.stores.conftest import server  # noqa: F401
from tests.support.documents import ROOT

LONG = "zebra" + " word" * 600

ASSISTED = {
    "dataset": "made up",
    "conversation": "assisted",
    "messages": [
        {"id": "a", "session": 1, "speaker": "user", "text": LONG, "time": "2024-03-15T00:00:00"},
        {"id": "b", "session": 1, "speaker": "assistant", "text": "fine", "time": "2024-03-15T00:01:00"},
        {"id": "c", "session": 1, "speaker": "user", "text": "hello", "time": "2024-03-15T00:02:00"},
        {"id": "d", "session": 1, "speaker": "assistant", "text": "zebra yes", "time": "2024-03-15T00:03:00"},
    ],
    "questions": [
        {"text": "Where is the zebra?", "evidence": ["a", "d"], "category": "animals"},
        {"text": "What did nobody ever say?", "evidence": [], "category": "animals"},
    ],
}

BETWEEN_PEOPLE = {
    "dataset": "made up",
    "conversation": "between people",
    "messages": [
        {"id": "1", "session": 1, "speaker": "Ann", "text": "good morning", "time": None},
        {"id": "2", "session": 1, "speaker": "Bob", "text": "we bought a piano", "time": None},
        {"id": "3", "session": 1, "speaker": "Ann", "text": "how lovely", "time": None},
        {"id": "4", "session": 2, "speaker": "Bob", "text": "goodbye now", "time": None},
        {"id": "5", "session": 2, "speaker": "Ann", "text": "see you", "time": None},
    ],
    "questions": [{"text": "Who has the piano?", "evidence": ["2"], "category": "things"}],
}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talks.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(talk) + "\n" for talk in (ASSISTED, BETWEEN_PEOPLE))
    return path


def run(file: Path, *options: str) -> dict[str, Any]:
    rows = file.with_suffix(".json")
    import_module("recall").main([str(file), "--json", str(rows), *options])
    return json.loads(rows.read_text())  # type: ignore[no-any-return]


@pytest.mark.usefixtures("scripts")
def test_whole_run_reports_the_figures_worked_out_by_hand(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(file, "--embedder", "none")
    first, second = found["rows"]
    assert [row["conversation"] for row in found["rows"]] == ["assisted", "between people"]
    assert [row["evidence"] for row in found["rows"]] == [2, 1]
    # Within 500 tokens there is no room for the long message, except as an excerpt.
    assert first["scores"]["search"]["kept"] == [0.5, 1, 1, 1]
    assert first["scores"]["search, excerpts"]["kept"] == [1, 1, 1, 1]
    assert first["scores"]["context"]["kept"][1:] == [1, 1, 1]
    assert first["scores"]["context"]["ndcg_10"] is None
    bm25 = {"kept": [0.5, 1, 1, 1], "assistant": 1.0, "recall_5": 1.0, "recall_10": 1.0, "ndcg_10": 1.0}
    assert first["scores"]["BM25"] == bm25
    assert second["scores"]["BM25"] == bm25 | {"kept": [1, 1, 1, 1], "assistant": None}
    # Newest first, the evidence stands in places 1 and 4, and in place 4 of the other conversation.
    assert first["scores"]["sliding window"]["ndcg_10"] == pytest.approx((1 + 1 / log2(5)) / (1 + 1 / log2(3)))
    assert second["scores"]["sliding window"]["ndcg_10"] == pytest.approx(1 / log2(5))
    printed = capsys.readouterr().out
    assert "## made up: 2 questions over 2 conversations of 9 messages" in printed
    some = "75.0 / 100.0 / 50.0 | 100.0 / 100.0 / 100.0 | 100.0 / 100.0 / 100.0 | 100.0 / 100.0 / 100.0"
    assert f"| BM25 | {some} | 100.0 | 100.0 | 100.0 | 100.0 |" in printed
    assert f"| sliding window | {some} | 100.0 | 100.0 | 65.4 | 100.0 |" in printed
    assert "| search over BM25 | +0.0 [+0.0, +0.0] |" in printed
    assert "dense" not in printed


@pytest.mark.usefixtures("scripts")
def test_prompts(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    found = run(file, "--embedder", "none", "--plot", str(tmp_path / "picture.svg"))["prompts"]
    kinds = [row["kind"] for row in found if row["conversation"] == "between people"]
    assert kinds == ["its own questions", "another conversation's", *["chit-chat"] * 20, *["general knowledge"] * 20]
    assert found[0]["gains"]["context"]["1000"]["evidence"] == 1
    assert "## made up, what a user gets: 2 questions, 2 conversations" in capsys.readouterr().out
    assert (tmp_path / "picture.svg").exists()


@pytest.mark.usefixtures("scripts")
def test_a_fact_is_rare_new_and_in_the_evidence() -> None:
    measures = import_module("recall_measures")
    evidence = "The piano is black, after soup."
    rare = measures.rare_words([evidence, *["We had soup again."] * 30])
    assert measures.rare_facts("A black piano, soup, in Porto", "Where is the piano?", [evidence], rare) == {"black"}


@pytest.mark.usefixtures("scripts")
def test_bm25_gets_the_window_and_the_tokens_of_what_it_stands_in_for(file: Path) -> None:
    gains = run(file, "--embedder", "none", "--only", "prompts")["prompts"][0]["gains"]
    ours, theirs = gains["context"]["1000"], gains["BM25 in its place"]["1000"]
    assert ours["evidence"] == theirs["evidence"] == 1
    assert theirs["recalled"] <= ours["recalled"]


@pytest.mark.usefixtures("scripts")
def test_latency(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("langchain_core", reason="langchain_core is not installed")
    latency, children = import_module("latency"), import_module("latency_children")
    plan = import_module("latency_turns").Plan(turns=2, seconds=5, limit=None, loading=None, sample=20, adds=8)
    ways = ("infinite-memory", "trim_messages, tiktoken", "stored", "additions")
    outcomes = [children.Outcome(way, 30, children.MEASUREMENTS[way](30, tmp_path, plan)) for way in ways]
    assert all(figure > 0 for one in outcomes for figure in one.figures.values())
    kept, again, picture = (tmp_path / name for name in ("figures.json", "again.json", "turns.svg"))
    kept.write_text(latency.as_json("a machine", outcomes))
    latency.main(["--from", str(kept), "--plot", str(picture), "--json", str(again)])
    printed = capsys.readouterr().out
    assert printed.startswith("a machine")
    assert "| infinite-memory, of processor |" in printed
    assert again.read_text() == kept.read_text()
    assert "<!-- trim_messages, tiktoken -->" in picture.read_text()


@pytest.mark.usefixtures("scripts")
def test_every_verb_on_branches_is_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, file = import_module("tree"), tmp_path / "figures.json"
    monkeypatch.setattr(module, "QUESTIONS", 1)
    sizes = {"messages": 40, "forks": 3, "merges": 2, "long": 50, "times": 1}
    module.main([*(f"--{name}={size}" for name, size in sizes.items()), "--json", str(file)])
    figures = json.loads(file.read_text())
    assert list(figures) == [
        "context before", "context after", *module.VERBS, "context at 50", "fork at 50",
        "first context after a merge at 50",
    ]  # fmt: skip
    assert all(0 < figure["p50 ms"] <= figure["max ms"] for figure in figures.values())
    assert all(figure["p50 ms of processor"] > 0 for figure in figures.values())
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "40 messages, 3 forks, 2 merges"
    assert [line.split(" | ")[0] for line in printed[4:]] == [f"| {name}" for name in figures]


@pytest.mark.usefixtures("scripts")
def test_words_are_searched_beside_tantivy(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tantivy", reason="what it is compared with is not installed")
    figures = tmp_path / "figures.json"
    import_module("lexical").main([str(file), "--sizes", "20", "--json", str(figures)])
    found = json.loads(figures.read_text())
    methods = ["ours", "ours, no neighbours", "tantivy", "tantivy, our stems"]
    assert [(size, method) for size, method, _ in found["times"]] == [("20", method) for method in methods]
    quality = {method: values for _, method, values in found["quality"]}
    # Both find by one word of each question what holds it.
    assert quality["ours, no neighbours"] == quality["tantivy, our stems"]
    assert quality["ours"]["in 4,000"] == 100
    assert "| made up | tantivy | 100.0 | 100.0 | 100.0 |" in capsys.readouterr().out


@pytest.mark.usefixtures("scripts")
def test_what_telemetry_costs(tmp_path: Path) -> None:
    telemetry = import_module("telemetry")
    measured = telemetry.measure(10, 2, 1, tmp_path)
    assert {name: len(one.turns) for name, one in measured.items()} == dict.fromkeys(telemetry.WAYS, 2)
    assert telemetry.ratios(measured, 2).keys() == measured.keys()
