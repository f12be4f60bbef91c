"""How many facts reach the prompt, and what is recalled for nothing: `python benchmarks/recall_cases.py`.

`recall_cases.json` holds 40 short questions that point back to the newest messages, 40 facts that changed, and 40
wishes and constraints, each with what must be in the prompt, and 40 lines that need nothing. They were written before
anything was fitted, by somebody who had not seen the code. What was said is spread over a long talk
(`examples/data/conversation.json`), ten cases at a time, none of it among the newest messages.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from shared_core import InfiniteMemory, Message
from shared_core.prompt.hits import Kind

HERE = Path(__file__).parent
TALK = HERE.parent / "examples" / "data" / "conversation.json"
EXCHANGES = 160
NEWEST = 30
TOGETHER = 10
TOKENS = 1_500

Case = dict[str, Any]


def exchanges() -> list[list[Message]]:
    """Return what the user says in the talk, each with the reply."""
    rows = [row for row in json.loads(TALK.read_text("utf-8")) if row["role"] in ("user", "assistant")]
    spoken = [(row["role"], row["content"]) for row in rows if row.get("content")]
    pairs = [
        [Message.user(asked), Message.assistant(reply)]
        for (role, asked), (other, reply) in pairwise(spoken)
        if (role, other) == ("user", "assistant")
    ]
    return pairs[:EXCHANGES]


def memory_of(statements: Sequence[str], **settings: Any) -> InfiniteMemory:
    """Return a memory of the talk with some statements spread over it, none among the newest exchanges."""
    talk = exchanges()
    step = (len(talk) - NEWEST) / (len(statements) + 1)
    for number, text in reversed(list(enumerate(statements, 1))):
        talk.insert(int(number * step) + 1, [Message.user(text), Message.assistant("Okay.")])
    memory = InfiniteMemory(max_tokens=TOKENS, reserve_tokens=0, **settings)
    memory.add([message for exchange in talk for message in exchange])
    memory.index()
    return memory


@contextmanager
def after(memory: InfiniteMemory, recent: Sequence[Sequence[str]]) -> Iterator[None]:
    """Enter a block in which some exchanges are the newest."""
    if not recent:
        yield
        return
    memory.fork("aside")
    memory.checkout("aside")
    for asked, reply in recent:
        memory.add([Message.user(asked), Message.assistant(reply)])
    memory.index()
    yield
    memory.checkout("main")
    memory.delete_branch("aside")


def facts(cases: Sequence[Case], **settings: Any) -> Iterator[tuple[bool, int]]:
    """Yield for each case whether the fact is in the prompt, and the tokens recalled."""
    for start in range(0, len(cases), TOGETHER):
        some = cases[start : start + TOGETHER]
        said = [case[key] for case in some for key in ("said", "old", "new") if key in case]
        with memory_of(said, **settings) as memory:
            for case in some:
                with after(memory, case.get("recent", ())):
                    context = memory.context(case["asked"])
                prompt = "\n".join(message.content for message in context.messages)
                yield case["value"].lower() in prompt.lower(), context.report.totals.get(Kind.RECALLED, 0)


def measure(cases: dict[str, Any], name: str, **settings: Any) -> None:
    """Print a row of the table."""
    cells = []
    for kind in ("follow_ups", "changes", "wishes"):
        found = list(facts(cases[kind], **settings))
        cells.append(f"{sum(there for there, _ in found)} of {len(found)}, {mean(spent for _, spent in found):,.0f}")
    with memory_of([case["said"] for case in cases["wishes"][:TOGETHER]], **settings) as memory:
        spent = [memory.context(line).report.totals.get(Kind.RECALLED, 0) for line in cases["nothing"]]
    print(f"| {name} |", " | ".join(cells), f"| {sum(map(bool, spent))} of {len(spent)}, {mean(spent):,.0f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embedder", nargs="+", default=["static"], help="static, all-MiniLM-L6-v2 or another name")
    parser.add_argument("--recall", nargs="+", default=["balanced"], choices=["precise", "balanced", "thorough"])
    arguments = parser.parse_args()
    cases = json.loads((HERE / "recall_cases.json").read_text("utf-8"))
    print("| facts in the prompt, tokens recalled | follow-ups | changes | wishes | recalled for nothing, tokens |")
    print("|---|---|---|---|---|")
    for embedder in arguments.embedder:
        for recall in arguments.recall:
            measure(cases, f"{embedder}, {recall}", embedder=embedder, recall=recall)


if __name__ == "__main__":
    main()
