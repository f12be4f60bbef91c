"""`benchmarks/recall.py` tells what a user gets: the figures worked out by hand for small conversations."""

import gzip
import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shared_core.evaluation.prompts import Gain
from shared_core.tokens import as_counter
from tests.support.documents import ROOT

pytestmark = pytest.mark.usefixtures("scripts")

LONG = " word" * 600


def conversation(name: str, said: Mapping[str, str], questions: list[dict[str, Any]]) -> dict[str, Any]:
    messages = [
        {"id": id_, "session": 1, "speaker": ("user", "assistant")[at % 2], "text": text, "time": None}
        for at, (id_, text) in enumerate(said.items())
    ]
    return {"dataset": "made up", "conversation": name, "messages": messages, "questions": questions}


PIANO = conversation(
    "piano",
    {"a": "We bought a grand piano.", "b": LONG, "c": "Hello again.", "d": "The piano came from Vienna."},
    [
        {"text": "Where is the piano from?", "evidence": ["d"], "category": "things", "answer": "The city of Vienna."},
        {
            "text": "What did Ann buy?", "evidence": ["a", "d"], "category": "early",
            "answer": "You bought a piano from Vienna.", "at": 2,
        },
    ],
)  # fmt: skip

ZEBRA = conversation(
    "zebra",
    {"e": "A zebra lives here.", "f": "How lovely."},
    [{"text": "Who lives here?", "evidence": ["e"], "category": "animals", "answer": None}],
)


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def write(path: Path, *talks: dict[str, Any]) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(talk) + "\n" for talk in talks)
    return path


def read(path: Path, *talks: dict[str, Any]) -> Any:
    return import_module("recall_talks").read_talks(write(path, *talks), as_counter("o200k_base"))


@pytest.fixture
def rows() -> list[Any]:
    """Return two conversations with two questions each: ours has all of it for 10 tokens, BM25 half of it for 100."""
    prompts, budgets = import_module("recall_prompts"), import_module("recall_measures").BUDGETS

    def gains(way: str, own: bool) -> dict[int, Any]:
        if not own:
            return {budget: Gain(30 * (way != "context"), 90) for budget in budgets}
        ours = way != "BM25"
        gain = Gain(10 if ours else 100, 100, 1 if ours else 0.5, 0.75 if ours else 0.25)
        return dict.fromkeys(budgets, gain)

    ways = [*prompts.WAYS, "BM25"]
    own = [("x", "dates"), ("x", "names"), ("y", "dates"), ("y", "dates")]
    found = [
        prompts.Asked("set", talk, prompts.OWN, kind, {way: gains(way, True) for way in ways}) for talk, kind in own
    ]
    kinds = (prompts.FOREIGN, "greetings", "sums")
    other = {way: gains(way, False) for way in prompts.WAYS}
    return found + [prompts.Asked("set", "x", kind, "", other) for kind in kinds]


def test_questions_are_asked_when_so_much_was_said(tmp_path: Path) -> None:
    prompts = import_module("recall_prompts")
    (talk,) = read(tmp_path / "talk.gz", PIANO)
    early, late, other = prompts.measure_prompts(talk, {"greetings": ["Good morning!"]}, None)
    assert [(row.kind, row.category) for row in (early, late)] == [(prompts.OWN, "early"), (prompts.OWN, "things")]
    ways = [*prompts.WAYS, "sliding window", "BM25"]
    assert list(early.gains) == ways
    # Half of the evidence is yet to come, and with it "Vienna"; the question has no word in common with "a".
    for way in ("context", "context, thorough", "sliding window"):
        assert early.gains[way][4_000].evidence == 0.5
        assert early.gains[way][4_000].facts == pytest.approx(2 / 3)
    assert early.gains["BM25"][4_000] == Gain(0, 0, 0, 0)
    # "Vienna", not "city". What is filled in newest first leaves out only the long message.
    assert late.gains["context"][4_000].facts == 0.5
    short = sum(talk.tokens[place] for place in (0, 2, 3))
    assert late.gains["sliding window"][500] == Gain(short, short, 1, 0.5)
    assert late.gains["BM25"][500] == Gain(talk.tokens[3] + talk.tokens[0], talk.tokens[3] + talk.tokens[0], 1, 0.5)
    assert (other.kind, other.category, list(other.gains)) == ("greetings", "", list(prompts.WAYS))
    assert other.gains["context"][1_000].recalled == 0
    assert all(0 < gain.tokens <= budget for row in (early, late) for budget, gain in row.gains["context"].items())


def test_recalled_is_what_the_window_has_no_room_for(tmp_path: Path) -> None:
    (talk,) = read(tmp_path / "talk.gz", PIANO)
    ours = import_module("recall_rankers").Ours
    with ours(talk, None, holding=0, recall="thorough") as memory:
        memory.hold(2)
        found = memory.prompt("Where is the grand piano?", 500)
        # Of the long message of the same turn there is a passage, whose mark is left out here.
        assert (found.places, found.texts[0], {*found.texts[1].split()}) == (
            {0, 1}, "We bought a grand piano.", {"word", "…"},
        )  # fmt: skip
        assert 0 < found.recalled < found.tokens <= 500
        memory.hold(1)
        memory.hold(4)
        assert memory.prompt("Where is the grand piano?", 4_000).places == {0, 1, 2, 3}
        assert memory.prompt("Where is the grand piano?", 4_000).recalled == 0


def test_tables(rows: list[Any]) -> None:
    tables = import_module("recall_prompt_tables")
    some = "100.0 [100.0, 100.0] | 75.0 [75.0, 75.0] | 10 | 100"
    half = "50.0 [50.0, 50.0] | 25.0 [25.0, 25.0] | 100 | 100"
    found = list(tables.gain_table(rows))
    assert found[2] == f"| context | {some} | {some} |"
    assert found[-1] == f"| BM25 | {half} | {half} |"
    assert list(tables.gain_lead_table(rows))[-1] == "| BM25" + 4 * " | +50.0 [+50.0, +50.0]" + " |"
    ours, theirs, lead = "100.0 / 75.0 / 10", "50.0 / 25.0 / 100", "+50.0 [+50.0, +50.0]"
    assert list(tables.kind_table(rows))[2:] == [
        f"| {kind} | {count} | {ours} | {ours} | {theirs} | {ours} | {ours} | {theirs} | {lead} | {lead} |"
        for kind, count in (("dates", 3), ("names", 1))
    ]
    never, always = "0.0 [0.0, 0.0], 0", "100.0 [100.0, 100.0], 30"
    silent = " | ".join([never, always, always] * 2)
    assert list(tables.silence_table(rows))[2:] == [
        "| its own questions | 4 | " + " | ".join(["100.0 [100.0, 100.0], 10"] * 6) + " |",
        f"| another conversation's | 1 | {silent} |",
        f"| small talk | 2 | {silent} |",
        f"| greetings | 1 | {silent} |",
        f"| sums | 1 | {silent} |",
    ]


def test_facts_are_left_empty_where_no_question_has_any(rows: list[Any]) -> None:
    tables, prompts = import_module("recall_prompt_tables"), import_module("recall_prompts")
    gain = Gain(0, 10, 1, None)
    bare = [prompts.Asked("set", "x", prompts.OWN, "names", {way: {1_000: gain, 4_000: gain} for way in rows[0].gains})]
    assert "| context | 100.0 [100.0, 100.0] |  | 0 | 10 |" in list(tables.gain_table(bare))[2]
    assert list(tables.kind_table(bare))[2].startswith("| names | 1 | 100.0 / - / 0 |")
    assert list(tables.silence_table(bare))[2].startswith("| its own questions | 1 | 0.0 [0.0, 0.0], 0 |")


def test_picture(rows: list[Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot = import_module("recall_plot")
    recalled, whole = plot.SPENT.values()
    assert list(plot.lines(rows, recalled))[-1] == plot.Line("BM25", [(100, 50)] * 4)
    assert next(plot.lines(rows, whole)) == plot.Line("context", [(100, 100)] * 4)
    for name in ("a.svg", "b.svg", "a.png"):
        plot.draw(rows, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").stat().st_size < 150_000
    drawn = (tmp_path / "a.svg").read_text()
    for text in ("context, precise", "BM25", "tokens of the whole prompt", "set: evidence in the prompt"):
        assert f"<!-- {text} -->" in drawn


def test_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    main, kept = import_module("recall").main, tmp_path / "rows.json"
    file = str(write(tmp_path / "talks.gz", PIANO, ZEBRA))
    main([file, "--embedder", "none", "--json", str(kept), "--plot", str(tmp_path / "picture.svg")])
    found, printed = json.loads(kept.read_text()), capsys.readouterr().out
    assert (tmp_path / "picture.svg").exists()
    # Questions in the middle of a talk have no rankings.
    assert [row["conversation"] for row in found["rows"]] == ["zebra"]
    kinds = [row["kind"] for row in found["prompts"] if row["conversation"] == "piano"]
    assert (
        kinds
        == ["its own questions"] * 2 + ["another conversation's"] + ["chit-chat"] * 20 + ["general knowledge"] * 20
    )
    assert found["prompts"][1]["gains"]["context"]["1000"]["evidence"] == 1
    assert "## made up, what a user gets: 3 questions, 2 conversations" in printed
    main([file, "--embedder", "none", "--only", "rankings", "--first", "2"])
    assert "what a user gets" not in capsys.readouterr().out
    main([file, "--embedder", "none", "--only", "prompts", "--first", "1"])
    assert "search" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([file, "--only", "rankings", "--plot", str(tmp_path / "no.svg")])
