"""The standing facts of a session as columns, a few among many messages; they can be rebuilt at any time."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.index.arrays import GrowingArray
from shared_core.index.lexical import Postings
from shared_core.index.removal import postings_without, renumbered
from shared_core.index.standing import Statement
from shared_core.index.standing_rules import KINDS

FACT_COLUMNS = {
    "rows": np.int32,
    "kinds": np.int8,
    "tasks": np.int32,
    "conditional": np.bool_,
    "codes": np.int64,
    "starts": np.int32,
    "ends": np.int32,
}

WORDS = "words "
"""Begins the names of a snapshot's arrays that hold the words of the facts."""


class StandingFacts:
    """The standing facts of a session, numbered from 0 in the order of their messages.

    `words` holds the stems of what each is about, by its number.
    """

    def __init__(self) -> None:
        self.words = Postings()
        self._columns: dict[str, GrowingArray[Any]] = {
            name: GrowingArray(dtype) for name, dtype in FACT_COLUMNS.items()
        }

    def __len__(self) -> int:
        return len(self._columns["rows"])

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one of `FACT_COLUMNS`, with a value per fact."""
        return self._columns[name].values

    def add(self, row: int, speaker: str | None, statements: Iterable[Statement]) -> None:
        """Append the facts of a message. Rows must ascend."""
        for said in statements:
            self.words.add(len(self), dict.fromkeys(said.words, 1))
            values = {
                "rows": row, "kinds": KINDS.index(said.kind), "tasks": said.tasks, "conditional": said.conditional,
                "codes": said.code(speaker), "starts": said.start, "ends": said.end,
            }  # fmt: skip
            for name, value in values.items():
                self._columns[name].extend([value])

    def without(self, numbers: npt.NDArray[np.int64]) -> "StandingFacts":
        """Return the facts of the messages that are left; `numbers` has the new row of each message, -1 for none."""
        rows = numbers[self.column("rows")]
        kept = rows >= 0
        arrays = {name: self.column(name)[kept] for name in FACT_COLUMNS} | {"rows": rows[kept].astype(np.int32)}
        words = postings_without(self.words.arrays(), renumbered(len(self), np.flatnonzero(~kept)))
        return StandingFacts.from_arrays(arrays | {f"{WORDS}{name}": values for name, values in words.items()})

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the facts as plain arrays for a snapshot."""
        return {name: self.column(name) for name in FACT_COLUMNS} | {
            f"{WORDS}{name}": values for name, values in self.words.arrays().items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> "StandingFacts":
        """Return the facts that `arrays` was made from, without copying."""
        facts = cls()
        facts._columns = {name: GrowingArray.of(arrays[name]) for name in FACT_COLUMNS}
        own = {name.removeprefix(WORDS): values for name, values in arrays.items() if name.startswith(WORDS)}
        facts.words = Postings.from_arrays(own)
        return facts
