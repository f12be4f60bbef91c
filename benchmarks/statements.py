"""What reaches a prompt of what people say of themselves, and of what has changed: `python benchmarks/statements.py`.

`statements.json` holds 40 wishes and facts that hold from then on, 30 plain sentences that do not, and 40 changes told
in other words, each with a question. They are spread over a long talk (`examples/data/conversation.json`).
"""

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from shared_core import InfiniteMemory, Message
from shared_core.prompt.hits import Kind

HERE = Path(__file__).parent
TALK = HERE.parent / "examples" / "data" / "conversation.json"
EXCHANGES = 160
NEWEST = 30
FOREIGN = ("What is the capital of Peru?", "How does a heat pump work?", "Translate 'good night' into French")


def exchanges() -> list[list[Message]]:
    """Return what the user says in the talk, each with the reply."""
    said = [(row["role"], row["content"]) for row in json.loads(TALK.read_text("utf-8")) if row.get("content")]
    spoken = [(role, text) for role, text in said if role in ("user", "assistant")]
    pairs = [
        [Message.user(asked), Message.assistant(reply)]
        for (role, asked), (other, reply) in pairwise(spoken)
        if (role, other) == ("user", "assistant")
    ]
    return pairs[:EXCHANGES]


def memory_of(statements: Sequence[str], max_tokens: int, embedder: str) -> InfiniteMemory:
    """Return a memory of the talk with some statements spread over it, none among the newest exchanges."""
    talk = exchanges()
    step = (len(talk) - NEWEST) / (len(statements) + 1)
    for number, text in reversed(list(enumerate(statements, 1))):
        talk.insert(int(number * step) + 1, [Message.user(text), Message.assistant("Okay.")])
    memory = InfiniteMemory(max_tokens=max_tokens, embedder=embedder)
    memory.add([message for exchange in talk for message in exchange])
    memory.index()
    return memory


def measure(embedder: str) -> None:
    """Print a row for wishes, one for changes, and one for foreign questions."""
    cases = json.loads((HERE / "statements.json").read_text("utf-8"))
    wishes, changes = cases["standing"], cases["changes"]
    with memory_of([*(case["said"] for case in wishes), *cases["plain"]], 1_500, embedder) as memory:
        there = [case["said"] in _text(memory, case["asked"]) for case in wishes]
        foreign = [memory.context(question).report.totals.get(Kind.RECALLED, 0) for question in FOREIGN]
    in_prompt, first = [], []
    for start in range(0, len(changes), 10):
        some = changes[start : start + 10]
        with memory_of([case[key] for key in ("old", "new") for case in some], 600, embedder) as memory:
            for case in some:
                in_prompt.append(case["new"] in _text(memory, case["asked"]))
                hits = [hit.message.content for hit in memory.search(case["asked"], 10)]
                found = [hits.index(case[key]) if case[key] in hits else len(hits) for key in ("new", "old")]
                first.append(found[0] < found[1])
    print(f"| {embedder} | {sum(there)} of {len(wishes)} | {sum(in_prompt)} of {len(changes)} |", end="")
    print(f" {sum(first)} of {len(changes)} | {sum(foreign)} |")


def _text(memory: InfiniteMemory, question: str) -> str:
    return "\n".join(message.content for message in memory.context(question).messages)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embedder", nargs="+", default=["static"], help="static, all-MiniLM-L6-v2 or another name")
    print("| embedder | wish in the prompt | new value in the prompt | new before old in `search` | foreign tokens |")
    print("|---|---|---|---|---|")
    for name in parser.parse_args().embedder:
        measure(name)
