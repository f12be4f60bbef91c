"""A summarizer that can read little at once, so that few messages are summed up in many calls."""

from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from shared_core import Message, SummarizerModel


class Reading(SummarizerModel):
    """A function as a summarizer that reads so many tokens at once."""

    def __init__(self, function: Callable[[str | None, Sequence[Message]], Any], input_tokens: int) -> None:
        self.function = function
        self.input_tokens = input_tokens

    @override
    def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> Any:
        return self.function(previous_summary, messages)
