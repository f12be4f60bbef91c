"""What telemetry adds to a turn: `python benchmarks/telemetry.py [--messages N] [--rounds N] [--blocks N] [--batch N]`.

A turn adds a question, builds the prompt, and adds the reply. Each round takes one turn each with

- no hook, twice, so that the ratio of the two shows how exact the others are;
- a hook that does nothing with its events;
- `OpenTelemetryEvents` and the API alone, which records nothing;
- the SDK, which keeps spans in memory, and metrics;
- the same, with spans that are encoded as OTLP. This is the exporter's work, and is counted all the same.

All have a store of their own with the same messages, and each round has another order. The time is the processor's: of
the turn, in its thread, and a share of what is done later, which is done and timed here after every `--batch` turns:
spans are exported. Of each block of rounds, the median turn of each way is compared with that of no
hook.

Prints a Markdown table: the median turn, what is done later for a turn, and of the blocks' ratios to no hook the
median, the smallest and the largest.
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from latency_talk import conversation, in_chunks, turns
from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared_core import InfiniteMemory, Message, SQLiteStore
from shared_core.events import OnEvent
from shared_core.events.telemetry import OpenTelemetryEvents

__all__ = ["WAYS", "Taken", "main", "measure", "ratios"]

NONE, AGAIN = "no hook", "no hook, again"

NEVER = 3_600
"""Seconds after which nothing is measured any more."""


class _Encoding(SpanExporter):
    """Encodes spans as they would be sent."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Encode spans."""
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


class Way(NamedTuple):
    """A hook, and what is done later for it."""

    hook: OnEvent | None
    later: Callable[[], object] = lambda: None


def _with_api() -> Way:
    hook = OpenTelemetryEvents(
        tracer_provider=trace.NoOpTracerProvider(), meter_provider=metrics.NoOpMeterProvider(), capture_content=False
    )
    return Way(hook)


def _with_sdk(exporter: SpanExporter) -> Way:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=NEVER * 1000))
    meters = MeterProvider([InMemoryMetricReader()])
    hook = OpenTelemetryEvents(tracer_provider=provider, meter_provider=meters, capture_content=False)
    return Way(hook, provider.force_flush)


WAYS: Mapping[str, Callable[[], Way]] = {
    NONE: lambda: Way(None),
    AGAIN: lambda: Way(None),
    "a hook that does nothing": lambda: Way(lambda event: None),
    "API alone": _with_api,
    "SDK, in memory": lambda: _with_sdk(InMemorySpanExporter()),
    "SDK, as OTLP": lambda: _with_sdk(_Encoding()),
}


class Taken(NamedTuple):
    """The milliseconds of the processor that turns took: each in its own thread, and what was done later."""

    turns: list[float]
    later: list[float]

    @property
    def share(self) -> float:
        """What is done later for one turn."""
        return sum(self.later) / len(self.turns)


def measure(messages: int, rounds: int, batch: int, folder: Path) -> dict[str, Taken]:
    """Return what the turns of each way took.

    Args:
        messages: how many are stored before.
        rounds: how many turns each way takes.
        batch: after how many turns the rest is done.
        folder: where the databases are written.
    """
    ways = {name: make() for name, make in WAYS.items()}
    took = {name: Taken([], []) for name in WAYS}
    chance = random.Random(3)
    with ExitStack() as opened:
        memories = {}
        for number, (name, way) in enumerate(ways.items()):
            store = opened.enter_context(closing(SQLiteStore(folder / f"{number}.db", durability="process")))
            memories[name] = opened.enter_context(InfiniteMemory(store, on_event=way.hook, embedder="static"))
        for name, memory in memories.items():
            for chunk in in_chunks(conversation(messages)):
                memory.add(chunk)
            memory.index()
            memory.context("What was said first?")
            ways[name].later()
        gc.disable()  # it would hit one way and not the others
        for number, (question, reply) in enumerate(turns(rounds), start=1):
            gc.collect()
            for name in chance.sample([*WAYS], len(WAYS)):
                turn = partial(_turn, memories[name], question, reply)
                took[name].turns.append(_worked(time.thread_time, turn))
                if number % batch == 0:
                    took[name].later.append(_worked(time.process_time, ways[name].later))
        gc.enable()
    return took


def _turn(memory: InfiniteMemory, question: Message, reply: Message) -> None:
    memory.add(question)
    memory.context()
    memory.add(reply)


def _worked(clock: Callable[[], float], action: Callable[[], object]) -> float:
    """Return the milliseconds that a call takes by a clock of the processor."""
    began = clock()
    action()
    return (clock() - began) * 1_000


def ratios(took: Mapping[str, Taken], blocks: int) -> dict[str, list[float]]:
    """Return, for each way, the median turn of each block, with what is done later, beside that of no hook."""
    size = len(took[NONE].turns) // blocks
    medians = {
        name: [statistics.median(one.turns[at * size : (at + 1) * size]) + one.share for at in range(blocks)]
        for name, one in took.items()
    }
    return {name: [one / none for one, none in zip(medians[name], medians[NONE], strict=True)] for name in took}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--batch", type=int, default=50, help="turns whose spans are exported together")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        took = measure(given.messages, given.rounds, given.batch, Path(folder))
    print(
        f"| {given.messages:,} messages, {given.rounds:,} turns | turn, ms | later, ms | ratio | smallest | largest |"
    )
    print("|---|---|---|---|---|---|")
    for name, shares in ratios(took, given.blocks).items():
        figures = [statistics.median(took[name].turns), took[name].share]
        figures += [statistics.median(shares), min(shares), max(shares)]
        print(f"| {name} | {' | '.join(f'{figure:.3f}' for figure in figures)} |")


if __name__ == "__main__":
    main()
