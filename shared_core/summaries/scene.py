"""A question whose prompt may show a summary, and what came of it; values."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared_core.prompt.frame import Frame
from shared_core.prompt.selection import Candidate
from shared_core.prompt.turns import Turn
from shared_core.tree import Path

__all__ = ["Scene", "Summed"]


@dataclass(frozen=True, slots=True)
class Scene:
    """A question, and what its prompt is chosen from.

    Attributes:
        path: the line of conversation.
        epoch: of the session, when this was read.
        asked: `Framer.frame`.
        turns: past turns, newest first.
        candidates: what may be recalled, best first.
        end: the place of the question, counted from the root.
        shown: whether the question is part of the prompt.
    """

    path: Path
    epoch: int
    asked: Frame
    turns: Sequence[Turn]
    candidates: Sequence[Candidate]
    end: int
    shown: bool


@dataclass(frozen=True, slots=True)
class Summed:
    """A scene with its summary.

    Attributes:
        frame: with the summary in it, if there is one.
        candidates: without what stands in the summary.
        start: where the window begins, counted from the root.
        notes: what could not be done.
    """

    frame: Frame
    candidates: Sequence[Candidate]
    start: int = 0
    notes: tuple[str, ...] = ()
