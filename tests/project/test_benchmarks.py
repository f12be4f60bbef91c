"""`benchmarks/recall.py` and the others report the figures worked out by hand for small conversations."""

import gzip
import json
from importlib import import_module
from math import log2
from pathlib import Path
from typing import Any

import pytest

from shared_core import Message
from shared_core.testing import HashingEmbedder
from shared_core.tokens import as_counter
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


@pytest.fixture
def talks(scripts: None, file: Path) -> Any:
    return import_module("recall_talks").read_talks(file, as_counter("o200k_base"))


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
def test_first_and_ablate(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(file, "--embedder", "none", "--first", "1", "--ablate")
    assert [row["conversation"] for row in found["rows"]] == ["assisted"]
    ablations = [one for one in import_module("recall_ablations").ABLATIONS if one.weight is None]
    for ablation in ablations:
        assert f"search without {ablation.name}" in found["rows"][0]["scores"]
    assert f"| {ablations[0].name} | +0.0 [+0.0, +0.0] |" in capsys.readouterr().out


@pytest.mark.usefixtures("scripts")
def test_prompts_without_an_ingredient_are_also_asked_what_has_no_answer(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(file, "--embedder", "none", "--only", "prompts", "--ablate", "--every", "2")["prompts"]
    assert [(row["conversation"], row["kind"]) for row in found] == [
        ("assisted", "its own questions"), ("assisted", "another conversation's"),
        ("between people", "its own questions"), ("between people", "another conversation's"),
    ]  # fmt: skip
    names = [f"without {one.name}" for one in import_module("recall_ablations").PROMPT_ABLATIONS]
    for row in found:
        assert list(row["gains"]) == ["without nothing", *names]
    assert list(found[0]["gains"]["without nothing"]) == ["1000", "4000"]
    assert list(found[1]["gains"]["without nothing"]) == ["4000"]
    head, line = capsys.readouterr().out.splitlines()[-len(names) - 3 :: 2][:2]
    assert head.endswith("| another conversation's, 4,000 |")
    assert line.startswith("| nothing | 100.0 [100.0, 100.0] |")


@pytest.mark.usefixtures("scripts")
def test_ablation_replaces_constants_for_a_while() -> None:
    module = import_module("recall_ablations")
    for ablation in (*module.ABLATIONS, *module.PROMPT_ABLATIONS):
        owners = {key: import_module(key[0]) for key in ablation.constants}
        before = {key: getattr(owner, key[1]) for key, owner in owners.items()}
        assert before != ablation.constants or not ablation.constants
        with ablation.applied():
            assert {key: getattr(owner, key[1]) for key, owner in owners.items()} == ablation.constants
        assert {key: getattr(owner, key[1]) for key, owner in owners.items()} == before
    with pytest.raises(AttributeError, match="NO_SUCH"), module.Ablation("x", {("math", "NO_SUCH"): 0}).applied():
        pass


def test_messages_keep_speaker_and_time(talks: Any) -> None:
    assisted, people = talks
    assert assisted.messages[3] == Message.assistant("zebra yes", id="d", created_at="2024-03-15T00:03:00Z")
    assert people.messages[0] == Message.user("good morning", name="Ann", id="1", created_at="2024-01-01T00:00:00Z")
    count = as_counter("o200k_base")
    assert people.tokens[1] == count("Bob: we bought a piano")
    assert [question.evidence for question in assisted.questions] == [{0, 3}]


def test_peers(talks: Any) -> None:
    rankers = import_module("recall_rankers")
    assisted, people = talks
    assert rankers.exchanges(assisted) == [(0, 1), (2, 3)]
    assert rankers.exchanges(people) == [(0, 1), (2,), (3, 4)]
    count = as_counter("o200k_base")
    found = rankers.peers(people, HashingEmbedder(), count)
    langchain = found["LangChain VectorStoreRetrieverMemory"].rank("we bought a piano")
    assert langchain[0] == ((0, 1), count("input: good morning\noutput: we bought a piano"))
    llama_index = found["LlamaIndex VectorMemory"].rank("we bought a piano")
    assert llama_index[0] == ((0, 1), people.tokens[0] + people.tokens[1])
    assert found["dense"].rank("good morning")[0].places == (0,)
    assert [piece.places for piece in found["BM25"].rank("Ann: good piano")] == [(0,), (1,)]
    assert {piece.places for piece in found["BM25, named"].rank("Ann")} == {(0,), (2,), (4,)}


def test_rank_fusion(talks: Any) -> None:
    rankers = import_module("recall_rankers")
    pieces = [import_module("recall_measures").Piece((place,), 1) for place in range(4)]
    words = rankers.BM25(pieces, ["zebra word word", "fine", "hello", "zebra"])
    assert [piece.places for piece in words.rank("zebra")] == [(3,), (0,)]
    # 1/61 + 1/61, 1/62 + 1/64, 1/62, 1/63
    fused = rankers.Fused(words, rankers.Window(pieces))
    assert [piece.places for piece in fused.rank("zebra")] == [(3,), (0,), (2,), (1,)]


@pytest.mark.usefixtures("scripts")
def test_texts_are_embedded_once(tmp_path: Path) -> None:
    rankers, inner = import_module("recall_rankers"), HashingEmbedder()
    embedder = rankers.Remembering(inner, tmp_path / "vectors.npz")
    rows = embedder.embed_documents(["a tower", "a river", "a tower"])
    assert (rows == HashingEmbedder().embed_documents(["a tower", "a river", "a tower"])).all()
    assert (embedder.embed_query("a tower") == embedder.embed_query("a tower")).all()
    embedder.weighing(0).embed_documents(["a river"])
    assert (inner.documents, inner.queries) == (["a tower", "a river"], ["a tower"])
    assert (embedder.weighing(0).fingerprint.weight, embedder.fingerprint.weight) == (0, 0.5)
    embedder.save()
    again = rankers.Remembering(HashingEmbedder(), tmp_path / "vectors.npz")
    assert (again.embed_documents(["a tower", "a river", "a tower"]) == rows).all()
    assert again.embedder.documents == []


@pytest.mark.usefixtures("scripts")
def test_budget_skips_what_does_not_fit() -> None:
    measures = import_module("recall_measures")
    ranking = [measures.Piece((0,), 6), measures.Piece((1, 2), 5), measures.Piece((3,), 4), measures.Piece((4,), 1)]
    assert measures.filled(ranking, 10) == {0, 3}
    assert measures.filled(ranking, 11) == {0, 1, 2}


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
def test_ours_finds_what_tantivy_does_without_neighbours(talks: Any, tmp_path: Path) -> None:
    pytest.importorskip("tantivy", reason="what it is compared with is not installed")
    module = import_module("lexical")
    for name, index in module.indexes(str(tmp_path)).items():
        index.add(module.said_in(talks[1]))
        assert index.finish() > 0
        # Of the neighbours the one after takes most, then those two after and one before, the newer first.
        assert index.best("who has the piano?", 4) == ([1, 2, 3, 0] if name == "ours" else [1])


def test_what_telemetry_costs(scripts: None, tmp_path: Path) -> None:
    telemetry = import_module("telemetry")
    took = {name: telemetry.Taken([2.0, 4.0, 4.0, 2.0], []) for name in telemetry.WAYS}
    took["API alone"] = telemetry.Taken([3.0, 3.0, 9.0, 5.0], [2.0, 2.0])
    found = telemetry.ratios(took, 2)
    assert found.pop("API alone") == [4 / 3, 8 / 3]
    assert set(map(tuple, found.values())) == {(1.0, 1.0)}
    measured = telemetry.measure(10, 2, 1, tmp_path)
    assert {name: (len(one.turns), len(one.later)) for name, one in measured.items()} == dict.fromkeys(
        telemetry.WAYS, (2, 2)
    )
