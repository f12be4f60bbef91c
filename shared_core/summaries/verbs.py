"""The verbs of a memory that sum up what has left the window."""

from shared_core.asking import Asker, SummarySteps
from shared_core.branches.merging import Merging
from shared_core.plan import Ask
from shared_core.requests import drive
from shared_core.summaries.kept import Summary

__all__ = ["Summarizing"]


class Summarizing(Merging):
    """The verbs, over the parts that the memory has set."""

    max_tokens: int
    reserve_tokens: int
    _asker: Asker

    def summary(self) -> Summary | None:
        """Return the summary of this branch that reaches farthest from its beginning; None: there is none."""
        with self._lock:
            self._live.sync()
            return self._asker.rolling.newest(self._live.path)

    def summarize(self) -> Summary | None:
        """Sum up all that has left the window, so that no question need wait for it, and return `summary()`.

        What is sent for the newest user message if nothing is recalled decides what has left.

        Raises:
            ValueError: this memory has no summarizer, or it returned nothing. What it raises is passed on.
        """
        return drive(self.summary_steps())

    def summary_steps(self) -> SummarySteps:
        """Return the steps of `summarize`."""
        if self._asker.rolling.rules.summarizer is None:
            raise ValueError("summarize: pass summarizer= where this memory is made")
        return self._asker.summary_steps(Ask(None, self.max_tokens, self.reserve_tokens))
