"""What telemetry adds to a turn: `python benchmarks/telemetry.py [--messages N] [--rounds N] [--blocks N]`.

A turn adds a question, builds the prompt, and adds the reply. Each round takes one turn each with

- no hook, twice, so that the ratio of the two shows how exact the others are;
- a hook that does nothing with its events;
- `OpenTelemetryEvents` and the API alone, which records nothing;
- the SDK, which keeps spans in memory, one at a time;
- the SDK, which keeps them in memory in batches, from a thread of its own;
- the SDK, which encodes them as OTLP in batches. This is the exporter's work, and is counted all the same.

Metrics are recorded wherever spans are.

All have a store of their own with the same messages, and the order changes from round to round. Of each block of rounds
the median turn of each way is compared with that of no hook, by the processor's time. Prints a Markdown table: the
median of the blocks' ratios, and the smallest and the largest.
"""

import argparse
import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from latency_clock import timed
from latency_talk import conversation, in_chunks, turns
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared_core import InfiniteMemory, Message
from shared_core.events import OnEvent
from shared_core.telemetry import OpenTelemetryEvents

__all__ = ["WAYS", "main", "measure", "ratios"]

NONE, AGAIN = "no hook", "no hook, again"


class _Encoding(SpanExporter):
    """Encodes spans as they would be sent."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Encode spans."""
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


def _with_api() -> OnEvent:
    return OpenTelemetryEvents(
        tracer_provider=trace.NoOpTracerProvider(), meter_provider=metrics.NoOpMeterProvider(), capture_content=False
    )


def _with_sdk(processor: SpanProcessor) -> OnEvent:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    meters = MeterProvider([InMemoryMetricReader()])
    return OpenTelemetryEvents(tracer_provider=provider, meter_provider=meters, capture_content=False)


WAYS: Mapping[str, Callable[[], OnEvent | None]] = {
    NONE: lambda: None,
    AGAIN: lambda: None,
    "a hook that does nothing": lambda: lambda event: None,
    "API alone": _with_api,
    "SDK, in memory": lambda: _with_sdk(SimpleSpanProcessor(InMemorySpanExporter())),
    "SDK, batches in memory": lambda: _with_sdk(BatchSpanProcessor(InMemorySpanExporter())),
    "SDK, batches as OTLP": lambda: _with_sdk(BatchSpanProcessor(_Encoding())),
}

Turns = dict[str, list[float]]
"""Way -> the milliseconds of the processor of each turn."""


def measure(messages: int, rounds: int, folder: Path) -> Turns:
    """Return what each turn took.

    Args:
        messages: how many are stored before.
        rounds: how many turns each way takes.
        folder: where the databases are written.
    """
    took: Turns = {name: [] for name in WAYS}
    with ExitStack() as opened:
        memories = {
            name: opened.enter_context(InfiniteMemory(folder / f"{number}.db", on_event=make(), durability="process"))
            for number, (name, make) in enumerate(WAYS.items())
        }
        for memory in memories.values():
            for chunk in in_chunks(conversation(messages)):
                memory.add(chunk)
            memory.index()
            memory.context("What was said first?")
        gc.disable()  # it would hit one way and not the others
        names = [*WAYS]
        for number, (question, reply) in enumerate(turns(rounds)):
            gc.collect()
            for name in names[number % len(names) :] + names[: number % len(names)]:
                took[name].append(timed(partial(_turn, memories[name], question, reply)).processor)
        gc.enable()
    return took


def _turn(memory: InfiniteMemory, question: Message, reply: Message) -> None:
    memory.add(question)
    memory.context()
    memory.add(reply)


def ratios(took: Turns, blocks: int) -> dict[str, list[float]]:
    """Return, for each way, the median turn of each block beside that of no hook."""
    size = len(took[NONE]) // blocks
    starts = range(0, size * blocks, size)
    medians = {name: [statistics.median(times[at : at + size]) for at in starts] for name, times in took.items()}
    return {name: [one / none for one, none in zip(medians[name], medians[NONE], strict=True)] for name in took}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--blocks", type=int, default=8)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        took = measure(given.messages, given.rounds, Path(folder))
    found = ratios(took, given.blocks)
    print(
        f"| {given.messages:,} messages, {given.rounds:,} turns | ms of processor, p50 | ratio | smallest | largest |"
    )
    print("|---|---|---|---|---|")
    for name, shares in found.items():
        middle = statistics.median(took[name])
        print(f"| {name} | {middle:.3f} | {statistics.median(shares):.3f} | {min(shares):.3f} | {max(shares):.3f} |")


if __name__ == "__main__":
    main()
