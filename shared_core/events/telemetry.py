"""OpenTelemetryEvents: a hook that makes spans and metrics of a memory's events; needs the extra `otel`.

The names are those of OpenTelemetry's semantic conventions for generative AI, version 0.1, as far as they have any: its
section on memory. The others begin with `infinite_memory.`. `docs/telemetry.md` lists them all.
"""

import json
import os
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from shared_core.arguments import in_range
from shared_core.errors import require
from shared_core.events import EventHook, EventName, MemoryEvent

require("opentelemetry.trace", 'pip install "infinite-memory[otel]"')

from opentelemetry import metrics, trace  # noqa: E402
from opentelemetry.trace import Span, SpanKind, StatusCode  # noqa: E402
from opentelemetry.util.types import AttributeValue  # noqa: E402

__all__ = ["CAPTURE", "DURATION_BUCKETS", "TOKEN_BUCKETS", "OpenTelemetryEvents", "captures_content"]

SCOPE = "infinite_memory"
"""The name of the instrumentation scope, and what our own names begin with."""

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable of the convention that lets spans hold what was said."""

CAPTURES = ("true", "1", "span_only", "span_and_event")
"""Its values that do, in small letters."""

OPERATIONS: Mapping[EventName, str] = {
    "context": "search_memory", "search": "search_memory", "add": "upsert_memory", "follow": "upsert_memory",
    "import_file": "upsert_memory", "forget": "delete_memory",
}  # fmt: skip
"""What the convention calls a verb. The others, such as a merge, it does not know."""

DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds. A turn takes one to fifty milliseconds, and seconds if it waits for an embedder or a summarizer."""

TOKEN_BUCKETS = (0, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536)
"""Tokens. Nothing recalled has a bucket of its own."""

MOST_IDS = 64
"""Ids and scores on one span. A prompt seldom recalls more, and `forget` may erase any number."""

NANOSECONDS = 1e9


@runtime_checkable
class _Exporting(Protocol):
    """A provider that exports; those of the API alone do not."""

    def force_flush(self, timeout_millis: int = ...) -> bool: ...


class OpenTelemetryEvents(EventHook):
    """Makes a span of each event, with a child for each of its stages, and records how long turns take.

    Pass it as `on_event=`; one object may serve any number of memories. A span is made after its verb has ended, with
    the times of the verb; its parent is the span that was current for the caller, also where the asynchronous memory
    works in a thread. With the API alone, nothing is recorded.

    Args:
        tracer_provider: makes the spans. None: the global one.
        meter_provider: makes the metrics. None: the global one.
        capture_content: whether spans hold questions, queries and the texts of messages. None: as the variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, which is no if it is not set.
        stages_from: how many seconds a part of a verb, such as embedding, must take to get a span of its own, as child
            of the verb's. By default, only the slow ones do: each costs about 20 µs, which is little of 10 ms. 0: all.
    """

    def __init__(
        self, *, tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None, capture_content: bool | None = None,
        stages_from: float = 0.01,
    ) -> None:  # fmt: skip
        super().__init__(self._tell, wants_content=captures_content() if capture_content is None else capture_content)
        self._stages_from = in_range("stages_from", stages_from, 0, float("inf"))
        self._providers = tracer_provider, meter_provider
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            "infinite_memory.operation.duration", "s", "How long a verb of a memory took.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )  # fmt: skip
        self._recalled = meter.create_histogram(
            "infinite_memory.recalled.tokens", "{token}", "The tokens of what a prompt recalls.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )  # fmt: skip
        self._degraded = meter.create_counter(
            "infinite_memory.degradations", "{degradation}", "What prompts and searches could not have."
        )

    def export(self) -> None:
        """Export what was recorded, before a signal ends the process."""
        spans, figures = self._providers
        for provider in (spans or trace.get_tracer_provider(), figures or metrics.get_meter_provider()):
            if isinstance(provider, _Exporting):
                provider.force_flush()

    def _tell(self, event: MemoryEvent) -> None:
        """Make the span of an event, and record its metrics."""
        self._record(event)
        operation = OPERATIONS.get(event.name)
        first: dict[str, AttributeValue] = {"infinite_memory.operation": event.name}
        if operation is not None:
            first["gen_ai.operation.name"] = operation
        span = self._tracer.start_span(
            operation or f"infinite_memory.{event.name}", kind=SpanKind.INTERNAL, attributes=first,
            start_time=event.time_ns,
        )  # fmt: skip
        if span.is_recording():
            span.set_attributes(attributes_of(event))
            if event.error is not None:
                span.set_status(StatusCode.ERROR)
            self._add_stages(span, event)
        span.end(event.time_ns + int(event.seconds * NANOSECONDS))

    def _record(self, event: MemoryEvent) -> None:
        labels = {"infinite_memory.operation": event.name}
        took = labels if event.error is None else {**labels, "error.type": event.error}
        self._duration.record(event.seconds, took)
        if event.name == "context" and event.error is None:
            self._recalled.record(event.tokens.get("recalled", 0))
        for code in event.degraded:
            self._degraded.add(1, {**labels, "infinite_memory.degradation": code})

    def _add_stages(self, span: Span, event: MemoryEvent) -> None:
        """Make a child for each stage that took long enough."""
        parent = trace.set_span_in_context(span)
        for stage in event.stages:
            if stage.seconds < self._stages_from:
                continue
            told = {"infinite_memory.texts": stage.texts, "infinite_memory.outcome": stage.outcome}
            start = event.time_ns + int(stage.began * NANOSECONDS)
            child = self._tracer.start_span(
                f"infinite_memory.{stage.name}", parent, start_time=start,
                attributes={name: value for name, value in told.items() if value},
            )  # fmt: skip
            if stage.outcome == "failed":
                child.set_status(StatusCode.ERROR)
            child.end(start + int(stage.seconds * NANOSECONDS))


def captures_content() -> bool:
    """Return whether the environment lets spans hold what was said."""
    return os.environ.get(CAPTURE, "").strip().lower() in CAPTURES


def attributes_of(event: MemoryEvent) -> dict[str, AttributeValue]:
    """Return the attributes of the span of an event. A number that is 0 and a text that is empty is left out."""
    found: dict[str, AttributeValue | None] = {
        "gen_ai.memory.store.id": event.session_id,
        "gen_ai.conversation.id": event.session_id,
        "gen_ai.memory.record.id": event.ids[0] if len(event.ids) == 1 and not event.scores else None,
        "user.id": event.user_id,
        "error.type": event.error,
        "infinite_memory.branch": event.branch,
        "infinite_memory.records": _ids(event),
        "infinite_memory.tokens.total": sum(event.tokens.values()),
        "infinite_memory.tokens.budget": event.budget,
        "infinite_memory.candidates": event.candidates,
        "infinite_memory.pending": event.pending,
        "infinite_memory.embedder": event.embedder,
        "infinite_memory.embedded": event.embedded,
        "infinite_memory.rows.read": event.rows_read,
        "infinite_memory.rows.cached": event.rows_cached,
        "infinite_memory.degradations": event.degraded,
        "gen_ai.memory.query.text": event.query,
        "gen_ai.memory.records": _records(event) if event.texts else None,
        "infinite_memory.notes": event.notes,
    }
    attributes: dict[str, AttributeValue] = {name: value for name, value in found.items() if value}
    seconds: dict[str, float] = {}
    attributes |= {f"infinite_memory.tokens.{kind}": tokens for kind, tokens in event.tokens.items()}
    for stage in event.stages:
        name = f"infinite_memory.seconds.{stage.name}"
        attributes[name] = seconds[name] = seconds.get(name, 0.0) + stage.seconds
    if event.index_cached is not None:
        attributes["infinite_memory.index.cached"] = event.index_cached
    if event.name in OPERATIONS:
        attributes["gen_ai.memory.record.count"] = event.count
    elif event.count:
        attributes["infinite_memory.count"] = event.count
    return attributes


def _ids(event: MemoryEvent) -> str:
    """Return ids as a JSON list or, with scores, as an object of id -> score.

    One text costs the SDK and an exporter a twentieth of an array, each of whose items they check and wrap.
    """
    ids = event.ids[:MOST_IDS]
    scored = {id_: round(score, 3) for id_, score in zip(ids, event.scores, strict=False)}
    return json.dumps(scored or ids, ensure_ascii=False) if ids else ""


def _records(event: MemoryEvent) -> str:
    """Return messages as JSON, in the schema of the convention."""
    records = [{"id": id_, "content": text} for id_, text in zip(event.ids, event.texts, strict=True)]
    scored = [{"score": score} for score in event.scores] or [{}] * len(records)
    return json.dumps([record | score for record, score in zip(records[:MOST_IDS], scored, strict=False)])
