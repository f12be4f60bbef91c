"""Parts that both adapter packages share: the memory's arguments, a model as summarizer, and an order as reranker."""

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from itertools import pairwise

from typing_extensions import override

from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.base import INPUT_TOKENS, RerankerModel, SummarizerModel
from shared_core.summaries.wording import SUMMARY_PROMPT, instruction


@cache
def memory_arguments() -> frozenset[str]:
    """Return the names of the arguments of `InfiniteMemory`."""
    return frozenset(inspect.signature(InfiniteMemory).parameters)


class ModelSummarizer(SummarizerModel):
    """Summarizes with a language model. Asynchronous code awaits the model.

    Args:
        complete: takes a prompt and returns the model's answer.
        acomplete: `complete` as a coroutine function.
        prompt: the instruction for the model; `{previous}` and `{messages}` are replaced.
        input_tokens: the largest input of one call, as in `SummarizerModel`.
    """

    def __init__(
        self, complete: Callable[[str], str], acomplete: Callable[[str], Awaitable[str]], prompt: str = SUMMARY_PROMPT,
        input_tokens: int = INPUT_TOKENS,
    ) -> None:  # fmt: skip
        self.input_tokens = input_tokens
        self._complete = complete
        self._acomplete = acomplete
        self._prompt = prompt

    @override
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return self._complete(instruction(previous_summary, messages, self._prompt))

    @override
    async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return await self._acomplete(instruction(previous_summary, messages, self._prompt))


Kept = Sequence[tuple[int, float | None]]
"""What is kept of some texts, best first: the index of each, and its score if it has one."""


class OrderReranker(RerankerModel):
    """Reranks with what returns some of the texts in an order of its own, as rerankers of frameworks do.

    What it drops goes to the end, in the order in which it was given: recall alone decides what is worth its tokens.
    If it returns scores that fall from text to text, they are the scores; else the first of n texts has n, and the last
    one has 1.

    Args:
        order: takes a question and texts and returns what is kept.
        aorder: `order` as a coroutine function.
    """

    def __init__(
        self, order: Callable[[str, Sequence[str]], Kept], aorder: Callable[[str, Sequence[str]], Awaitable[Kept]]
    ) -> None:
        self._order = order
        self._aorder = aorder

    @override
    def __call__(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        return scores_of(self._order(query, texts), len(texts))

    @override
    async def rerank(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        return scores_of(await self._aorder(query, texts), len(texts))


def scores_of(kept: Kept, count: int) -> list[float]:
    """Return a score for each of `count` texts: minus infinity for those that were dropped.

    Of a text that was kept several times, such as in parts, the first time counts.

    Raises:
        IndexError: something was kept that was not given.
    """
    first = dict(reversed(kept))
    order = list(dict.fromkeys(index for index, _ in kept))
    values = [math.nan if first[index] is None else float(first[index] or 0.0) for index in order]
    falls = not any(map(math.isnan, values)) and all(one > other for one, other in pairwise(values))
    scores = [-math.inf] * count
    for rank, index in enumerate(order):
        if not 0 <= index < count:
            raise IndexError(f"text {index} was kept, but only {count} were given")
        scores[index] = values[rank] if falls else float(len(order) - rank)
    return scores
