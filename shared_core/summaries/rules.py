"""The constructor arguments of a memory that bear on summaries, checked."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from shared_core.arguments import one_of, whole_number
from shared_core.messages import Message
from shared_core.prompt.summing import SummaryPlacement
from shared_core.summaries.wording import SummaryTemplate

__all__ = ["AnySummarizer", "SummaryRules"]

AnySummarizer = Callable[[str | None, Sequence[Message]], str | Awaitable[str]]
"""A `Summarizer`, or for the async face an `AsyncSummarizer`."""


@dataclass(frozen=True)
class SummaryRules:
    """See the arguments of `InfiniteMemory`; `call_tokens` is `summarizer_tokens`.

    Raises:
        TypeError: the summarizer cannot be called.
        ValueError: a value is out of range.
    """

    summarizer: AnySummarizer | None = None
    tokens: int = 500
    call_tokens: int = 4_000
    placement: SummaryPlacement = "system"
    template: SummaryTemplate = field(default_factory=SummaryTemplate)

    def __post_init__(self) -> None:
        if self.summarizer is not None and (isinstance(self.summarizer, type) or not callable(self.summarizer)):
            raise TypeError(
                f"summarizer={self.summarizer!r}: expected a callable(previous_summary, messages) -> str; "
                "as_summarizer of the LangChain or LlamaIndex package makes one of a model"
            )
        whole_number("summary_tokens", self.tokens, least=1)
        whole_number("summarizer_tokens", self.call_tokens, least=1)
        if self.call_tokens < 2 * self.tokens:
            raise ValueError(
                f"summarizer_tokens={self.call_tokens!r}: a call is given the summary so far and at least as much of "
                f"what came since; with summary_tokens={self.tokens!r} that is {2 * self.tokens!r}"
            )
        one_of("summary_placement", self.placement, get_args(SummaryPlacement))
