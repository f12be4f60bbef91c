"""Parts that both adapter packages share: the memory's arguments, a model as summarizer, and answers of echo models."""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache

from typing_extensions import override

from shared_core.base import SummarizerModel
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.template import RecallTemplate
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
    """

    def __init__(
        self, complete: Callable[[str], str], acomplete: Callable[[str], Awaitable[str]], prompt: str = SUMMARY_PROMPT
    ) -> None:
        self._complete = complete
        self._acomplete = acomplete
        self._prompt = prompt

    @override
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return self._complete(instruction(previous_summary, messages, self._prompt))

    @override
    async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
        return await self._acomplete(instruction(previous_summary, messages, self._prompt))


Shown = Sequence[tuple[str, str]]
"""Role and text of each message in the prompt."""

OPENING = "I was shown"

_CHUNK = re.compile(r"\S+\s*|\s+")
_KEYWORD = re.compile(r"\w{5,}")


def words(text: str) -> list[str]:
    """Return a text in pieces, as a model would stream it."""
    return _CHUNK.findall(text)


def recalled_lines(shown: Shown) -> str:
    """Return an answer that lists the recalled messages in front of the newest user message."""
    template = RecallTemplate()
    question = next((text for role, text in reversed(shown) if role == "user"), "")
    _, fence, rest = question.partition(template.header)
    if fence:
        return "\n".join(["Earlier it was said:", *rest.partition(template.footer)[0].strip("\n").split("\n")])
    return f"{OPENING} {len(shown)} messages, and nothing from before them matches."


def matching_line(shown: Shown) -> str:
    """Return an answer that quotes the line that shares most words with the newest user message."""
    asked = next((index for index in reversed(range(len(shown))) if shown[index][0] == "user"), None)
    keywords = _keywords(shown[asked][1]) if asked is not None else set()
    lines = [line for index, (_, text) in enumerate(shown) if index != asked for line in _statements(text)]
    best = max(reversed(lines), key=lambda line: len(keywords & _keywords(line)), default="")
    if not keywords & _keywords(best):
        return f"{OPENING} {len(shown)} messages, and nothing in them matches."
    return f"{OPENING} {len(shown)} messages. In one it says: {best}"


def _keywords(text: str) -> set[str]:
    return set(_KEYWORD.findall(text.lower()))


def _statements(text: str) -> list[str]:
    """Return the lines of a message that can answer a question: no questions, and no answers of this function."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(OPENING) and not line.endswith("?")]
