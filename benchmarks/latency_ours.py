"""What our memory costs: storing and indexing, the first question, turns, and additions beside what the disk allows."""

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from latency_clock import Figures, Span, fsync_times, p50, resident, summary, timed
from latency_peers import chat_message, tokenizer
from latency_talk import conversation, in_chunks
from latency_turns import MAX_TOKENS, PROMPT_TOKENS, TOKENIZER, Plan, Way, take_turns

from shared_core import InfiniteMemory, Message, SQLiteStore, Store
from shared_core.plugins.embedders import as_embedder

__all__ = ["MINILM", "adapted", "additions", "asked", "asked_without_recall", "ingest", "opened", "stored"]

DATABASE = "session.db"
OPENINGS = 3
MINILM = "all-MiniLM-L6-v2"


class Ours(Way):
    """Our memory on the file that `stored` has written."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        self.memory = open_memory(folder / DATABASE, **arguments)

    def add(self, made: Any) -> None:
        """Add it, durably."""
        self.memory.add(made)

    def prompt(self) -> int:
        """Build the prompt for the newest user message."""
        return len(self.memory.context().messages)

    def settle(self) -> None:
        """Wait for the short codes that each opening of a large session makes."""
        self.memory.index()

    def close(self) -> None:
        """Close the file."""
        self.memory.close()


class Adapted(Way):
    """Our memory in the place of LlamaIndex's `ChatMemoryBuffer`, on the same file."""

    def __init__(self, folder: Path) -> None:
        from llama_index_infinite_memory import InfiniteChatMemoryBuffer

        self.memory = InfiniteChatMemoryBuffer.from_defaults(
            store=folder / DATABASE, session_id="default", token_limit=PROMPT_TOKENS, tokenizer_fn=tokenizer()
        )

    def made(self, message: Message) -> Any:
        """Return LlamaIndex's message."""
        return chat_message(message)

    def add(self, made: Any) -> None:
        """Put it, durably."""
        self.memory.put(made)

    def prompt(self) -> int:
        """Get the prompt for the newest user message."""
        return len(self.memory.get())

    def settle(self) -> None:
        """See `Ours.settle`."""
        self.memory.conversation.engine.index()

    def close(self) -> None:
        """Close the file."""
        self.memory.close()


def open_memory(store: Path | Store | None, **arguments: Any) -> InfiniteMemory:
    """Return a memory with the defaults, which are written down where the others are given the same."""
    limits: dict[str, Any] = {"max_tokens": MAX_TOKENS, "reserve_tokens": MAX_TOKENS - PROMPT_TOKENS}
    return InfiniteMemory(store, **limits, token_counter=TOKENIZER, **arguments)


def stored(size: int, folder: Path, _plan: Plan) -> Figures:
    """Store a session of `size` messages in a file, a thousand in each transaction, and index it."""
    with open_memory(folder / DATABASE) as memory:
        adding = [_added(memory, chunk) for chunk in in_chunks(conversation(size))]
        indexing = timed(memory.index)
    figures = _rates("bulk add", size, adding) | _rates("index", size, [indexing])
    return figures | {"MB of file": (folder / DATABASE).stat().st_size / 1e6, "peak MB": resident(peak=True)}


def _added(memory: InfiniteMemory, messages: Sequence[Message]) -> Span:
    return timed(lambda: memory.add(messages))


def _rates(name: str, number: int, spans: list[Span]) -> Figures:
    clock, worked = sum(span.clock for span in spans), sum(span.processor for span in spans)
    return {f"{name}/s": 1_000 * number / clock, f"{name}/s of processor": 1_000 * number / max(worked, 1e-9)}


def opened(_size: int, folder: Path, _plan: Plan) -> Figures:
    """Return how long it takes from a path to the first prompt: first in a process, and once libraries are loaded."""
    cold = _opening(folder, "what did we say first?")
    warm = [_opening(folder, f"what did we say {number} times?") for number in range(OPENINGS)]
    return {
        "first context of a process ms": cold.clock,
        "first context of a process ms of processor": cold.processor,
    } | summary("first context", warm)


def _opening(folder: Path, question: str) -> Span:
    made: list[InfiniteMemory] = []

    def first() -> None:
        made.append(open_memory(folder / DATABASE))
        made[0].context(question)

    span = timed(first)
    made[0].close()
    return span


def asked(_size: int, folder: Path, plan: Plan) -> Figures:
    """Return what a turn costs with the defaults."""
    return _turns(Ours(folder), plan)


def asked_without_recall(_size: int, folder: Path, plan: Plan) -> Figures:
    """Return what a turn costs where only the newest messages are sent."""
    return _turns(Ours(folder, recall_tokens=0), plan)


def adapted(_size: int, folder: Path, plan: Plan) -> Figures:
    """Return what a turn costs in the place of `ChatMemoryBuffer`."""
    return _turns(Adapted(folder), plan)


def _turns(way: Way, plan: Plan) -> Figures:
    way.prompt()
    way.settle()
    figures = take_turns(way, plan) | {"resident MB": resident()}
    way.close()
    return figures


def additions(_size: int, folder: Path, plan: Plan) -> Figures:
    """Return how many single messages are made durable a second, beside what the disk does in the same seconds."""
    numbers = count()

    def add(durability: str, times: int) -> list[Span]:
        with closing(SQLiteStore(folder / DATABASE, durability=durability)) as store, open_memory(store) as memory:
            memory.add(Message.user("warm up"))
            return [_added(memory, [Message.user(f"one more, the {next(numbers)}th")]) for _ in range(times)]

    spans: dict[str, list[Span]] = {"fsync": [], "add full": [], "add process": []}
    for times in [plan.adds // 4] * 4:
        spans["fsync"] += fsync_times(folder / "fsync", times)
        spans["add full"] += add("full", times)
        spans["add process"] += add("process", times)
    figures = {f"{name}/s": 1_000 / p50([span.clock for span in taken]) for name, taken in spans.items()}
    return figures | {
        f"{name}/s of processor": 1_000 / max(p50([span.processor for span in taken]), 1e-9)
        for name, taken in spans.items()
    }


def ingest(embedder: str) -> Callable[[int, Path, Plan], Figures]:
    """Return a measurement of how many messages a second are stored and indexed with an embedder, or `"none"`."""

    def measure(_size: int, folder: Path, plan: Plan) -> Figures:
        arguments = {"embedder": "words"} if embedder == "none" else {"embedder": as_embedder(embedder)}
        number = plan.sample if embedder != MINILM else plan.sample // 10
        with open_memory(None, **arguments) as memory:
            memory.add(list(conversation(2)))
            memory.index()
        chunks = list(in_chunks(conversation(number)))
        with open_memory(folder / f"ingest {embedder}.db", **arguments) as memory:
            spans = [_added(memory, chunk) for chunk in chunks]
            spans.append(timed(memory.index))
        return {"messages": float(number), **_rates("ingest", number, spans), "resident MB": resident()}

    return measure
