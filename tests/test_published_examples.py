"""The published examples that this package grew out of decide as they did there."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import Context, InfiniteMemory, Message, prune
from shared_core.prompt.hits import Kind
from tests.support.scripted_embedder import ScriptedEmbedder, minilm

CASES = Path(__file__).parents[2] / "shared" / "spec" / "seed_cases.json"

MAX_TOKENS = 700
"""Room for all three exchanges of the example, as recalled text, but not for the small talk that follows them."""

SMALL_TALK = [
    ("my bicycle has a flat tyre", "The front or the rear one? For the rear you have to take the chain off."),
    ("how long do eggs boil", "Six minutes for a soft yolk, nine for a firm one, and then cold water."),
    ("the printer says paper jam", "Open the flap at the back and pull the sheet out slowly with both hands."),
    ("rhyme with orange?", "Nothing in common use does, though poets have tried with door hinge."),
    ("set theory homework again", "Write down both inclusions; equality of two sets is nothing else."),
    ("i slept badly", "Sorry to hear that. Was it the heat, or the neighbours' dog once more?"),
] * 5


@pytest.fixture(scope="module")
def seeds() -> dict[str, Any]:
    if not CASES.exists():
        pytest.skip("shared/spec/seed_cases.json is not beside this checkout")
    cases: dict[str, Any] = json.loads(CASES.read_text(encoding="utf-8"))
    return cases


def fleet_history(seeds: dict[str, Any]) -> list[Message]:
    return [Message(role=role, content=text) for role, text in seeds["fleet"]["history"]]


class TestFleet:
    @pytest.mark.parametrize("number", [0, 1])
    def test_injected_scores_give_the_kept_messages(self, seeds: dict[str, Any], number: int) -> None:
        case, history = seeds["fleet"]["cases"][number], fleet_history(seeds)
        texts = [message.content for message in history]
        embedder = ScriptedEmbedder(dict(zip(texts, case["scores"], strict=False)))
        kept = prune(history, case["prompt"], top_k=seeds["fleet"]["top_k"], embedder=embedder)
        assert kept == [*(history[place] for place in case["kept"]), Message.user(case["prompt"])]

    @pytest.mark.model
    @pytest.mark.parametrize("number", [0, 1])
    def test_minilm_scores_and_keeps_as_measured(self, seeds: dict[str, Any], number: int) -> None:
        case, history = seeds["fleet"]["cases"][number], fleet_history(seeds)
        model = minilm()
        archived = [message.content for message in history[: len(case["scores"])]]
        scores = model.embed_documents(archived) @ model.embed_query(case["prompt"])
        np.testing.assert_allclose(scores, case["scores"], atol=0.002)
        kept = prune(history, case["prompt"], top_k=seeds["fleet"]["top_k"], embedder=model)
        assert kept == [*(history[place] for place in case["kept"]), Message.user(case["prompt"])]
        by_turn = seeds["fleet"]["by_turn"]
        kept = prune(history, case["prompt"], top_k=by_turn["top_k"], unit="turn", embedder=model)
        assert kept == [*(history[place] for place in by_turn["kept"]), Message.user(case["prompt"])]


# The other process has no part in how the store was filled: all it knows is the file, the settings and the question.
REOPEN = textwrap.dedent("""
    import json, sys
    from shared_core import InfiniteMemory

    answers = []
    for path, question, settings in json.loads(sys.stdin.read()):
        with InfiniteMemory(path, embedder="all-MiniLM-L6-v2", **settings) as memory:
            before = memory.stats()["vectors"]
            report = memory.context(question).report
            recalled = [line.id for line in report.lines if line.kind == "recalled" and line.included and line.id]
            answers.append([sorted(recalled), memory.stats()["vectors"] - before, list(report.degraded)])
    sys.stdout.write(json.dumps(answers))
""")


@pytest.mark.model
class TestLandmarks:
    """Eiffel: what was said of Paris answers for Paris. Sydney: it does not, but the question about Paris does."""

    def settings(self, seeds: dict[str, Any]) -> dict[str, Any]:
        threshold = seeds["landmarks"]["threshold"]
        return {"recall_unit": "turn", "min_score": threshold, "max_tokens": MAX_TOKENS,
                "reserve_tokens": 0}  # fmt: skip

    def fill(self, memory: InfiniteMemory, seeds: dict[str, Any], stored: Sequence[str]) -> None:
        for name in stored:
            question, reply = seeds["landmarks"]["exchanges"][name]
            memory.add([Message.user(question, id=f"{name}-0"), Message.assistant(reply, id=f"{name}-1")])
        for question, reply in SMALL_TALK:
            memory.add([Message.user(question), Message.assistant(reply)])

    def check(self, context: Context, seeds: dict[str, Any], wanted: Sequence[str]) -> None:
        lines = [line for line in context.report.lines if line.kind is Kind.RECALLED and line.included and line.id]
        assert {line.id for line in lines} == {f"{name}-{part}" for name in wanted for part in (0, 1)}
        for name, texts in seeds["landmarks"]["exchanges"].items():
            shown = [text for text in texts if any(text in message.content for message in context.messages)]
            assert shown == (texts if name in wanted else [])

    def test_the_named_exchanges_are_recalled_also_by_a_new_process(
        self, seeds: dict[str, Any], tmp_path: Path
    ) -> None:
        asked, expected = [], []
        for number, case in enumerate(seeds["landmarks"]["cases"]):
            path, settings = str(tmp_path / f"{number}.db"), self.settings(seeds)
            with InfiniteMemory(path, embedder=minilm(), **settings) as memory:
                self.fill(memory, seeds, case["stored"])
                context = memory.context(case["prompt"])
                assert not context.report.pending
                assert not context.report.degraded
                self.check(context, seeds, case["recalled"])
            asked.append([path, case["prompt"], settings])
            expected.append([sorted(f"{name}-{part}" for name in case["recalled"] for part in (0, 1)), 0, []])
        command = [sys.executable, "-W", "error", "-c", REOPEN]
        run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout) == expected
