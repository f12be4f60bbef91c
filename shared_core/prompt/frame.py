"""What must be sent whatever else is left out: system messages, the question, its newest tool group; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from shared_core.base import TokenCounter
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.prompt.grounding import FittedGrounding, fit_grounding, with_grounding
from shared_core.prompt.turns import Entry, Turn, tool_groups
from shared_core.tokens import message_tokens

__all__ = ["Frame", "Framer", "GroundingOverflow", "KeepGrounding", "OnOverflow"]

KeepGrounding = Literal["newest", "all", "none"] | int
GroundingOverflow = Literal["trim", "error"]
OnOverflow = Literal["raise", "keep"]


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a prompt that is not chosen, and the room it leaves.

    Attributes:
        budget: tokens that may be sent.
        tools: tokens of the tool schemas.
        stays: system and pinned messages.
        question: the current question, None if there is none.
        bare: the question's size without grounding.
        grounding: what was retrieved for it, trimmed to fit.
        grounding_tokens: what that adds.
        groups: what answers the question so far and is sent, in order.
        left_out: older tool groups of this turn that do not fit.
    """

    budget: int
    tools: int
    stays: tuple[Entry, ...]
    question: Entry | None
    bare: int
    grounding: FittedGrounding
    grounding_tokens: int
    groups: tuple[Entry, ...] = ()
    left_out: tuple[Entry, ...] = ()

    @property
    def open(self) -> int:
        """Tokens that pinned text and tool schemas leave."""
        return self.budget - self.tools - sum(entry.tokens for entry in self.stays)

    @property
    def room(self) -> int:
        """Tokens left for recalled messages and the window; negative if the frame alone is too large."""
        groups = sum(entry.tokens for entry in self.groups)
        return self.open - self.bare - self.grounding_tokens - groups

    @property
    def rest(self) -> int:
        """The same, never negative."""
        return max(0, self.room)


@dataclass(frozen=True, slots=True)
class Framer:
    """Builds frames; its fields are the constructor arguments of the memory that bear on them."""

    counter: TokenCounter
    overhead: int
    keep_grounding: KeepGrounding = "newest"
    grounding_overflow: GroundingOverflow = "trim"
    on_overflow: OnOverflow = "raise"

    def frames(self, *, budget: int, tools: int, stays: Sequence[Entry], current: Turn | None) -> tuple[Frame, Frame]:
        """Return the frame as it was when the question was asked, and as it is now, with what answers it so far.

        Raises:
            BudgetError: system and pinned messages and tool schemas alone exceed the budget.
            MessageTooLargeError: the question and its newest tool group do not fit beside them.
        """
        empty = FittedGrounding("")
        frame = Frame(budget, tools, tuple(stays), None, 0, empty, 0)
        if frame.open < 0:
            needed = budget - frame.open
            raise BudgetError(
                f"system and pinned messages and tool schemas need {needed:,} tokens and the budget is {budget:,}: "
                "raise max_tokens, lower reserve_tokens, or shorten them",
                needed=needed,
                available=budget,
            )
        if current is None or not current.entries:
            return frame, frame
        question, *answers = current.entries
        asked = replace(frame, question=question, bare=question.tokens)
        now = self._with_groups(asked, list(tool_groups(answers)))
        return self._with_grounding(asked), self._with_grounding(now)

    def _with_groups(self, frame: Frame, groups: list[tuple[Entry, ...]]) -> Frame:
        """Add the newest group, then older ones while they fit."""
        kept: list[tuple[Entry, ...]] = []
        room = frame.open - frame.bare
        for group in reversed(groups):
            room -= sum(entry.tokens for entry in group)
            if kept and room < 0:
                break
            kept.insert(0, group)
        left_out = groups[: len(groups) - len(kept)]
        framed = replace(frame, groups=tuple(chain(*kept)), left_out=tuple(chain(*left_out)))
        self._check(framed)
        return framed

    def _check(self, frame: Frame) -> None:
        needed = frame.bare + sum(entry.tokens for entry in frame.groups)
        if needed > frame.open and self.on_overflow == "raise":
            raise MessageTooLargeError(
                f"the question and its newest tool group need {needed:,} tokens and {frame.open:,} are left for them: "
                'raise max_tokens, lower reserve_tokens, shorten it, or pass on_overflow="keep"',
                needed=needed,
                available=frame.open,
            )

    def _with_grounding(self, frame: Frame) -> Frame:
        assert frame.question is not None
        message = frame.question.message
        if message.grounding is None or self.keep_grounding in ("none", 0):
            return frame

        def size(text: str) -> int:
            return message_tokens(with_grounding(message, text), self.counter, self.overhead)

        available = frame.bare + frame.rest
        fitted = fit_grounding(message.grounding, lambda text: size(text) <= available)
        if fitted.trimmed and self.grounding_overflow == "error":
            needed = size("\n\n".join(item.text for item in message.grounding.items))
            raise MessageTooLargeError(
                f"the question with its grounding needs {needed:,} tokens and {available:,} are left for it: retrieve "
                'less, raise max_tokens, or pass grounding_overflow="trim"',
                needed=needed,
                available=available,
            )
        return replace(frame, grounding=fitted, grounding_tokens=size(fitted.text) - frame.bare if fitted.text else 0)
