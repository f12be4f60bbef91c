"""A trace of a long chat: what the memory did for each turn, as a tree, and as a file of OpenTelemetry's own format.

Run it from the repository: `python examples/tracing.py [trace.json]`. It needs the SDK, `pip install
opentelemetry-sdk opentelemetry-exporter-otlp-proto-common`, no network and no collector. A program that has one sets an
`OTLPSpanExporter` in place of the exporter used here, or runs under `opentelemetry-instrument`.
"""

import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared_core import InfiniteMemory, Message
from shared_core.events.telemetry import OpenTelemetryEvents
from shared_core.sharing.readers.openai import read_messages

CONVERSATION = Path(__file__).parent / "data" / "conversation.json"

ASKED = ("What was the code of my locker at the climbing hall?", "Which nuts am I allergic to?")

SHOWN = ("gen_ai.memory.record.count", "infinite_memory.tokens.total", "infinite_memory.candidates")
"""Attributes that the tree shows."""


def main() -> None:
    """Store nine weeks of chat, ask about them, and show the trace."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "chat"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("chat")
    traced = OpenTelemetryEvents(tracer_provider=provider, stages_from=0)

    with tempfile.TemporaryDirectory() as folder, InfiniteMemory(Path(folder) / "chat.db", on_event=traced) as memory:
        with tracer.start_as_current_span("store"):
            memory.add(read_messages(CONVERSATION))
            memory.index()
        for question in ASKED:
            with tracer.start_as_current_span("turn"):
                memory.add(Message.user(question))
                memory.context()
                memory.add(Message.assistant("It is in your notes."))
        with tracer.start_as_current_span("erase"):
            memory.forget(ids=[memory.newest(1)[0].id or ""])

    spans = exporter.get_finished_spans()
    print("\n".join(tree(spans, None)))
    trace = otlp_json(spans)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(trace, indent=1), encoding="utf-8")
    (scope, *_) = [scope for resource in trace["resourceSpans"] for scope in resource["scopeSpans"]]
    print(f"\n{len(spans)} spans; the first trace is {scope['spans'][0]['traceId']}")
    assert not any(question in json.dumps(trace) for question in ASKED), "nothing that was said is in the trace"


def tree(spans: Sequence[ReadableSpan], parent: int | None, indent: str = "") -> Iterator[str]:
    """Yield a line for each span below another one, in the order in which they began."""
    for span in sorted(spans, key=lambda one: one.start_time or 0):
        if (span.parent.span_id if span.parent is not None else None) == parent and span.context is not None:
            took = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
            found = {name: (span.attributes or {}).get(name) for name in SHOWN}
            shown = [f"{name.rpartition('memory.')[2]} {value}" for name, value in found.items() if value is not None]
            yield f"{indent}{span.name} {took:.1f} ms{': ' if shown else ''}{', '.join(shown)}"
            yield from tree(spans, span.context.span_id, f"{indent}  ")


def otlp_json(spans: Sequence[ReadableSpan]) -> Any:
    """Return spans as OTLP has them in JSON: with numbers for enums and, unlike Protobuf alone, hexadecimal ids."""
    trace = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in trace["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    span[name] = base64.b64decode(span[name]).hex()
    return trace


if __name__ == "__main__":
    main()
