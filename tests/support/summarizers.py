"""A summarizer that can read little at once, so that few messages are summed up in many calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from shared_core import Message, SummarizerModel


@dataclass(frozen=True)
class Reading(SummarizerModel):
    """A function as a summarizer that reads so many tokens at once."""

    function: Callable[[str | None, Sequence[Message]], Any]
    input_tokens: int = 4_000

    @override
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> Any:
        return self.function(previous_summary, messages)
