"""Parts that both adapter packages share: the memory's arguments, and a model as summarizer."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cache

from typing_extensions import override

from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.base import INPUT_TOKENS, SummarizerModel
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
