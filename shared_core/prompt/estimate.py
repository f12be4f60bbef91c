"""What recalled messages cost in a prompt, about, without writing them down; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property

from shared_core.base import TokenCounter
from shared_core.messages import Message
from shared_core.prompt.grounding import BLANK_LINE
from shared_core.prompt.template import RecallTemplate
from shared_core.prompt.turns import Entry

__all__ = ["RecallEstimate"]

SAMPLE = 4
"""Lines among which it is measured what one costs: some counters round."""


@dataclass(frozen=True)
class RecallEstimate:
    """Adds up what is known of each message; with the tokenizers of today's models it is right to 1 %, mostly above.

    Args:
        template: how messages are written.
        counter: counts tokens.
        overhead: tokens of framing in a message's size.
    """

    template: RecallTemplate
    counter: TokenCounter
    overhead: int

    def lines(self, entries: Sequence[Entry]) -> int:
        """Return what the lines of some messages cost."""
        line, joined = self._line
        messages = [entry.message for entry in entries]
        fewer = sum(
            (message.name is not None) + (joined and not message.content[-1:].isalnum()) for message in messages
        )
        return sum(entry.tokens for entry in entries) + (line - self.overhead) * len(messages) - fewer

    @cached_property
    def _line(self) -> tuple[int, bool]:
        """What a line costs beside its text, and whether one less after the end of a sentence.

        To most models what ends a sentence and the new line after it are one token. A speaker's name is counted with
        the message; without one the role is written.
        """
        said, ended = (self._each(self._sample(text)) for text in ("A", "A."))
        return said - self.counter("A"), said == ended

    def _sample(self, text: str) -> str:
        return self.template.render_line(Message.assistant(text, created_at=datetime.max))

    @cached_property
    def day(self) -> int:
        """What the line before the messages of one day costs."""
        return self._each(self.template.day.replace("{date}", date.max.isoformat())) if self.template.day else 0

    @cached_property
    def wording(self) -> int:
        """What stands before and after the lines, and between them and the question."""
        return self.counter(self.template.separator.join([self.template.header, self.template.footer]) + BLANK_LINE)

    def _each(self, line: str) -> int:
        return -(-self.counter((line + self.template.separator) * SAMPLE) // SAMPLE)
