"""Spans and metrics of a memory as the SDK records them: names, attributes, parents, and nothing that was said."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from shared_core import AsyncInfiniteMemory, BudgetError, InfiniteMemory, Message
from shared_core.events import MemoryEvent, Stage
from shared_core.events.telemetry import CAPTURE, DURATION_BUCKETS, MOST_IDS, OpenTelemetryEvents, captures_content
from shared_core.prompt.hits import Kind
from shared_core.testing import HashingEmbedder
from tests.events.test_events import SECRET, SMALL, talk
from tests.support.scripted_embedder import ScriptedEmbedder

ROOT = Path(__file__).parents[2]


class Recorded:
    """What the SDK records: `hook` makes it."""

    def __init__(self, **settings: Any) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self._meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.hook = OpenTelemetryEvents(tracer_provider=self.tracers, meter_provider=self._meters, **settings)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    @property
    def metrics(self) -> dict[tuple[str, str], Any]:
        """The points by the metric and the operation."""
        data = self._reader.get_metrics_data()
        assert data is not None
        (resource,) = data.resource_metrics
        return {
            (metric.name, str((point.attributes or {}).get("infinite_memory.operation", ""))): point
            for metric in resource.scope_metrics[0].metrics
            for point in metric.data.data_points
        }


def everything(spans: Sequence[ReadableSpan]) -> str:
    """Return all that spans say, as one text."""
    return "".join(span.to_json() for span in spans)


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span without times, which differ."""
    return {name: value for name, value in (span.attributes or {}).items() if ".seconds." not in name}


def test_the_spans_of_storing_searching_and_erasing() -> None:
    recorded = Recorded(stages_from=float("inf"))
    with InfiniteMemory(on_event=recorded.hook, session_id="s", user_id="ann", embedder="words") as memory:
        memory.add([Message.user(f"hello {SECRET}", id="u1"), Message.assistant("Hi!", id="a1")])
        hits = memory.search("hello", 1)
        memory.forget(ids=["a1"])
        memory.forget(session=True)
        memory.fork("other")
    common = {
        "gen_ai.memory.store.id": "s", "gen_ai.conversation.id": "s", "user.id": "ann",
        "infinite_memory.branch": "main",
    }  # fmt: skip
    names = ["upsert_memory", "search_memory", "delete_memory", "delete_memory", "infinite_memory.fork"]
    assert [(span.name, span.kind) for span in recorded.spans] == [(name, SpanKind.INTERNAL) for name in names]
    added, searched, erased, erased_all, forked = map(attributes, recorded.spans)
    assert added == common | {
        "gen_ai.operation.name": "upsert_memory", "infinite_memory.operation": "add",
        "gen_ai.memory.record.count": 2, "infinite_memory.records": '["u1", "a1"]',
    }  # fmt: skip
    assert searched.pop("infinite_memory.rows.read") > 0
    assert searched == common | {
        "gen_ai.operation.name": "search_memory", "infinite_memory.operation": "search",
        "gen_ai.memory.record.count": 1, "infinite_memory.records": json.dumps({"u1": round(float(hits[0].score), 3)}),
        "infinite_memory.candidates": 2, "infinite_memory.index.cached": False,
    }  # fmt: skip
    assert erased == common | {
        "gen_ai.operation.name": "delete_memory", "infinite_memory.operation": "forget",
        "gen_ai.memory.record.count": 1, "gen_ai.memory.record.id": "a1", "infinite_memory.records": '["a1"]',
    }  # fmt: skip
    assert erased_all["gen_ai.memory.record.count"] == 1
    assert forked == common | {"infinite_memory.operation": "fork", "infinite_memory.branch": "other"}
    assert SECRET not in everything(recorded.spans)


def test_the_span_of_a_prompt_and_its_stages() -> None:
    recorded = Recorded(stages_from=0)
    with InfiniteMemory(on_event=recorded.hook, embedder=HashingEmbedder(), **SMALL) as memory:
        talk(memory)
        report = memory.context(f"What is the code {SECRET}?").report
    *_, plan, question, messages, recall, compose, prompt = recorded.spans
    names = [span.name for span in (plan, question, messages, recall, compose, prompt)]
    assert names == [f"infinite_memory.{name}" for name in ("plan", "embed", "embed", "recall", "compose")] + [
        "search_memory"
    ]
    parents = [span.parent and span.parent.span_id for span in (plan, recall, question, messages, compose, prompt)]
    assert parents == [*[id_of(prompt)] * 5, None]
    assert attributes(question) == {"infinite_memory.texts": 1}
    found = prompt.attributes or {}
    assert {name: found[f"infinite_memory.tokens.{name}"] for name in ("question", "recalled", "window")} == {
        kind.value: tokens for kind, tokens in report.totals.items() if tokens
    }
    assert (found["infinite_memory.tokens.total"], found["infinite_memory.tokens.budget"]) == (report.total_tokens, 800)
    recalled = {line.id: line.score for line in report.included if line.kind.value == "recalled" and line.id}
    assert json.loads(str(found["infinite_memory.records"])) == {
        id_: round(score or 0, 3) for id_, score in recalled.items()
    }
    assert found["gen_ai.memory.record.count"] == len(recalled)
    assert found["infinite_memory.embedder"] == report.embedder
    seconds = [float(found[f"infinite_memory.seconds.{name}"]) for name in ("plan", "recall", "compose")]  # type: ignore[arg-type]
    assert prompt.end_time is not None
    assert prompt.start_time is not None
    assert sum(seconds) * 1e9 <= prompt.end_time - prompt.start_time
    assert all(span.start_time >= prompt.start_time and span.end_time <= prompt.end_time + 1  # type: ignore[operator]
               for span in (plan, recall, question, messages, compose))  # fmt: skip
    assert SECRET not in everything(recorded.spans)


def test_what_was_said_is_recorded_only_if_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    wanted, unwanted = Recorded(), Recorded(capture_content=False)
    for recorded in (wanted, unwanted):
        with InfiniteMemory(on_event=recorded.hook, embedder=HashingEmbedder(), **SMALL) as memory:
            talk(memory)
            memory.context(f"What is the code {SECRET}?")
            memory.search(SECRET, 1)
    assert SECRET not in everything(unwanted.spans)
    added = wanted.spans[0].attributes or {}
    assert json.loads(str(added["gen_ai.memory.records"])) == [
        {"id": "u1", "content": f"The code is {SECRET}."}, {"id": "a1", "content": "Noted."},
    ]  # fmt: skip
    prompt, search = [span.attributes or {} for span in wanted.spans if span.name == "search_memory"]
    assert prompt["gen_ai.memory.query.text"] == f"What is the code {SECRET}?"
    assert search["gen_ai.memory.query.text"] == SECRET
    (record,) = json.loads(str(search["gen_ai.memory.records"]))
    assert (record["id"], record["content"]) == ("u1", f"The code is {SECRET}.")
    assert isinstance(record["score"], float)


@pytest.mark.parametrize(
    ("value", "captured"), [("", False), ("EVENT_ONLY", False), ("True", True), ("SPAN_ONLY", True)]
)
def test_the_variable_of_the_convention(monkeypatch: pytest.MonkeyPatch, value: str, captured: bool) -> None:
    monkeypatch.setenv(CAPTURE, value)
    assert captures_content() is OpenTelemetryEvents().wants_content is captured


def test_errors_and_degradations() -> None:
    recorded = Recorded(stages_from=0)
    embedder = ScriptedEmbedder({})
    with InfiniteMemory(on_event=recorded.hook, embedder=embedder, **SMALL) as memory:
        talk(memory)
        memory.context("What is the code?")
        embedder.failing = RuntimeError(f"cannot embed {SECRET!r}")
        with pytest.warns(RuntimeWarning, match="by words alone"):
            memory.context(f"Where is {SECRET}?")
        memory.add(Message.system("word " * 200))
        with pytest.raises(BudgetError):
            memory.context("hello")
    degraded, failed = [span for span in recorded.spans if span.name == "search_memory"][-2:]
    assert (degraded.attributes or {})["infinite_memory.degradations"] == ("words_alone", "embedder_failed")
    assert degraded.status.status_code is StatusCode.UNSET
    (embed,) = [span for span in recorded.spans if (span.attributes or {}).get("infinite_memory.outcome") == "failed"]
    assert embed.status.status_code is StatusCode.ERROR
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "BudgetError"
    assert SECRET not in everything(recorded.spans)
    counted = recorded.metrics[("infinite_memory.degradations", "context")]
    assert counted.value == 1


def test_the_metrics() -> None:
    recorded = Recorded()
    with InfiniteMemory(on_event=recorded.hook, embedder=HashingEmbedder(), **SMALL) as memory:
        talk(memory)
        reports = [memory.context(f"What is the code {SECRET}?").report for _ in range(2)]
    metrics = recorded.metrics
    assert {name for name, _ in metrics} == {"infinite_memory.operation.duration", "infinite_memory.recalled.tokens"}
    added, prompts = (metrics[("infinite_memory.operation.duration", name)] for name in ("add", "context"))
    assert (added.count, prompts.count) == (9, 2)
    assert tuple(prompts.explicit_bounds) == DURATION_BUCKETS
    spans = [span for span in recorded.spans if span.name == "search_memory"]
    took = sum((span.end_time or 0) - (span.start_time or 0) for span in spans) / 1e9
    assert prompts.sum == pytest.approx(took, abs=1e-6)
    recalled = metrics[("infinite_memory.recalled.tokens", "")]
    assert (recalled.count, recalled.sum) == (2, sum(report.totals[Kind.RECALLED] for report in reports))
    assert SECRET not in str(metrics)


def test_the_caller_s_span_is_the_parent_also_in_threads() -> None:
    recorded = Recorded(stages_from=float("inf"))
    tracer = recorded.tracers.get_tracer("program")

    async def turn(memory: AsyncInfiniteMemory, name: str) -> int:
        with tracer.start_as_current_span(name) as span:
            await memory.add(Message.user("hello"))
            await memory.context("hello")
            return span.get_span_context().span_id

    async def main() -> list[int]:
        async with AsyncInfiniteMemory(on_event=recorded.hook, embedder=HashingEmbedder()) as memory:
            return list(await asyncio.gather(turn(memory, "one"), turn(memory, "two")))

    callers = asyncio.run(main())
    found = [(span.name, span.parent.span_id) for span in recorded.spans if span.parent is not None]
    assert sorted(found) == sorted((name, one) for name in ("search_memory", "upsert_memory") for one in callers)


def test_stages_that_took_long_have_spans_of_their_own() -> None:
    recorded = Recorded(stages_from=0.5)
    stages = (Stage("embed", 1.0, 1.0, 2), Stage("rerank", 2.0, 0.4), Stage("recall", 0.5, 2.5))
    recorded.hook(MemoryEvent(name="context", session_id="s", time_ns=1_000, seconds=4.0, stages=stages))
    assert [(span.name, span.start_time, span.end_time) for span in recorded.spans] == [
        ("infinite_memory.embed", 1_000_001_000, 2_000_001_000),
        ("infinite_memory.recall", 500_001_000, 3_000_001_000),
        ("search_memory", 1_000, 4_000_001_000),
    ]


def test_a_span_names_a_bounded_number_of_messages() -> None:
    recorded = Recorded(capture_content=True)
    ids = tuple(f'm"{number}' for number in range(1_000))
    recorded.hook(MemoryEvent(name="add", session_id="s", time_ns=0, seconds=0.0, count=1_000, ids=ids, texts=ids))
    found = recorded.spans[0].attributes or {}
    assert json.loads(str(found["infinite_memory.records"])) == list(ids[:MOST_IDS])
    assert len(json.loads(str(found["gen_ai.memory.records"]))) == MOST_IDS
    assert found["gen_ai.memory.record.count"] == 1_000


WITHOUT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from shared_core import InfiniteMemory, Message, SessionPool
from shared_core.doors.cli.serve_commands import telemetry_hook
from shared_core.errors import MissingExtraError

with SessionPool(on_event=telemetry_hook(), embedder="words") as pool, pool.use("s") as memory:
    memory.add(Message.user("hello"))
    assert memory.context("hello").messages
try:
    import shared_core.events.telemetry
except MissingExtraError as error:
    print(error)
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_without_opentelemetry_nothing_is_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout == 'opentelemetry.trace is not installed: pip install "infinite-memory[otel]"\n[]\n'
