"""One call of `context`, and what is decided before anything is recalled or summed up; values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared_core.messages import Message
from shared_core.prompt.frame import Frame
from shared_core.prompt.selection import Candidate
from shared_core.prompt.turns import Entry, Turn
from shared_core.prompt.window import Window
from shared_core.records import Position, SessionState
from shared_core.summaries.kept import Summary
from shared_core.summaries.scene import Scene
from shared_core.tree import Path

__all__ = ["Ask", "Plan"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of `context`.

    Attributes:
        question: what is asked; None: the newest user message.
        max_tokens: the model's limit.
        reserve: tokens kept free for the reply.
        tools: schemas to charge.
        shown: whether the question, and what answers it so far, is part of the prompt.
    """

    question: Message | None
    max_tokens: int
    reserve: int
    tools: Sequence[Any] = ()
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What is decided before anything is recalled.

    Attributes:
        state: of the session, when this was decided.
        path: the line of conversation then; another thread may move on meanwhile.
        asked: `Framer.frame`.
        turns: past turns, newest first, more than fit or all there are.
        base: the window beside recalled messages; None if everything fits and nothing is to be found elsewhere.
        before: the question's place, None if it is not stored.
        alone: replies without their user message.
        fits: whether all past turns fit beside what must be sent.
        summaries: those of what came before, if some of that does not fit.
    """

    state: SessionState
    path: Path
    asked: Frame
    turns: tuple[Turn, ...]
    base: Window | None
    before: Position | None
    alone: tuple[Entry, ...]
    fits: bool
    summaries: tuple[Summary, ...]

    @property
    def end(self) -> int:
        """The place of the question, counted from the root."""
        return self.path.place(self.before) if self.before is not None else self.path.spans[-1].last + 1

    def scene(self, ask: Ask, candidates: Sequence[Candidate]) -> Scene:
        """Return what a summary is chosen for."""
        return Scene(self.path, self.state.epoch, self.asked, self.turns, candidates, self.end, ask.shown)
