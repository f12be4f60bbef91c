"""How long `get` takes beside `ChatMemoryBuffer`'s: `python benchmarks/llama_index_get.py [sizes …]`.

One run, one machine, processor time of one thread, both with the default tokenizer and the same messages and limit;
ours recalls with static word vectors. With `get(input)` every question is another one; `get() again` is asked without
one, over and over, as an agent does in each round of a tool loop, and finds the prompt that was built last. What
carries over to other machines is the ratio. `ChatMemoryBuffer` counts all that is left again for every message it
drops, so that its time grows with the square of the history: beyond `--longest` it is not run, and its time is
extrapolated from the largest size that was, which the table marks with "~".
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer

from llama_index_infinite_memory import InfiniteChatMemoryBuffer

WORDS = [
    "river", "tower", "garden", "market", "bridge", "station", "museum", "window", "letter", "summer", "winter",
    "morning", "evening", "coffee", "butter", "flour", "ticket", "train", "harbour", "island", "mountain", "forest",
    "village", "doctor", "teacher", "painter", "engine", "signal", "budget", "report", "answer",
]  # fmt: skip
QUESTIONS = 30


def conversation(count: int, seed: int = 7) -> list[ChatMessage]:
    """Return messages of about fifty tokens, in turns of two."""
    chance = random.Random(seed)
    return [
        ChatMessage(
            role="assistant" if number % 2 else "user", content=" ".join(chance.choices(WORDS, k=44)) + f". ref{number}"
        )
        for number in range(count)
    ]


def milliseconds(calls: Sequence[Callable[[], Any]]) -> float:
    """Return the median time of the calls on the processor, which what else runs on the machine changes little."""
    taken = []
    for call in calls:
        start = time.thread_time()
        call()
        taken.append((time.thread_time() - start) * 1_000)
    return statistics.median(taken)


def ours(messages: list[ChatMessage], limit: int) -> tuple[float, float, int]:
    """Return milliseconds for questions that are not stored, for the newest once more, and messages returned."""
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=limit, embed_budget_ms=60_000) as memory:
        memory.put_messages(messages)
        memory.put(ChatMessage(content="where is the tower by the river?"))
        count = len(memory.get(input="which museum has a garden?"))  # embeds what is older
        asked = [f"where did i see the {word} and the {other}?" for word, other in pairwise(WORDS)]
        with_question = milliseconds([lambda text=text: memory.get(input=text) for text in asked[:QUESTIONS]])  # type: ignore[misc]
        return with_question, milliseconds([memory.get] * QUESTIONS), count


def theirs(messages: list[ChatMessage], limit: int) -> float:
    """Return milliseconds; one call where it takes seconds."""
    memory = ChatMemoryBuffer.from_defaults(chat_history=messages, token_limit=limit)
    return milliseconds([memory.get] * (3 if len(messages) <= 1_000 else 1))


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=[100, 1_000, 10_000], help="messages in the history")
    parser.add_argument("--limit", type=int, default=4_000, help="token_limit")
    parser.add_argument("--longest", type=int, default=1_000, help="largest size to run ChatMemoryBuffer with")
    options = parser.parse_args()
    print("| messages | ChatMemoryBuffer ms | get(input) ms | ratio | get() again ms | ratio | messages returned |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    largest: tuple[int, float] | None = None
    for size in sorted(options.sizes):
        messages = conversation(size)
        with_question, without, count = ours(messages, options.limit)
        if size <= options.longest or largest is None:
            largest, mark = (size, theirs(messages, options.limit)), ""
            beside = largest[1]
        else:
            beside, mark = largest[1] * (size / largest[0]) ** 2, "~"
        ratios = [f"{mark}{beside / time_taken:,.0f} x" for time_taken in (with_question, without)]
        print(
            f"| {size:,} | {mark}{beside:,.1f} | {with_question:.2f} | {ratios[0]} | {without:.2f} | {ratios[1]} "
            f"| {count} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
