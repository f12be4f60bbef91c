"""Which messages a question may find: by place, time, role and use of tools, decided before anything is ranked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared_core.index.lines import LinePrefix
from shared_core.index.session_index import ROLES, SessionIndex
from shared_core.messages import Role
from shared_core.recall.rules import RecallTools
from shared_core.recall.scope import Scope
from shared_core.records import Position
from shared_core.tree import Path

__all__ = ["Eligible", "eligible_places", "speakers"]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Eligible:
    """Which messages may be found.

    Attributes:
        path: the line of conversation; None: the one the object stands on.
        before: the question's place on the path; None: all of the path.
        without: turns that are in the prompt anyway.
        since, until: seconds since 1970, inclusive.
        role: only what this role said; None: what the conversation itself says, tools as `recall_tools` has it.
        repeats: how often the same is looked at, the newest first; None: however often.
    """

    path: Path | None = None
    before: Position | None = None
    without: tuple[str, ...] = ()
    since: float = -np.inf
    until: float = np.inf
    role: Role | None = None
    repeats: int | None = None


def eligible_places(index: SessionIndex, line: LinePrefix, wanted: Eligible, tools: RecallTools) -> Mask:
    """Return which places of a line may be found; `wanted.path` and `wanted.before` have made the line already."""
    eligible = _speaks(index, line, wanted.role, tools)
    if wanted.since != -np.inf or wanted.until != np.inf:
        times = line.along(index.column("times"))
        eligible &= (times >= wanted.since) & (times <= wanted.until)
    for turn in wanted.without:
        places = [place for place in line.line.of_turn(index.turns.find(turn)) if place < line.upto]
        eligible[places] = False
    return eligible


def _speaks(index: SessionIndex, line: LinePrefix, role: Role | None, tools: RecallTools) -> Mask:
    """Return which places say something that may be recalled."""
    roles = line.along(index.column("roles"))
    if role is not None:
        said: Mask = np.equal(roles, ROLES.index(role))
        said &= line.along(index.column("characters")) > 0
        return said
    tool, speaks = roles == ROLES.index("tool"), line.along(index.column("speaks"))
    speaks = np.greater(speaks, tool) if tools != "all" else speaks.copy()
    if tools == "none":
        turns = line.along(index.column("turns"))
        speaks &= ~np.isin(turns, np.unique(turns[tool]))
    return speaks


def speakers(scopes: Sequence[Scope]) -> list[str]:
    """Return the participants' names as far as they speak in what is searched."""
    found: dict[str, None] = {}
    for scope in scopes:
        found |= dict.fromkeys(name for code, name in enumerate(scope.index.names) if scope.line.has_said(code))
    return list(found)
