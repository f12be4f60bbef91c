"""A process that does verbs forever, to be killed: `kill_verbs.py FILE SEED`; prints a line for each that is done."""

import random
import sys
from itertools import count

from shared_core.stores import SQLiteStore
from tests.tree.verbs_twin import Twin

__all__ = ["begin"]


def begin(path: str, seed: int) -> tuple[Twin, random.Random]:
    """Return a session and the chance that decides on its verbs: the same for the same seed."""
    return Twin(SQLiteStore(path, durability="process")), random.Random(seed)


if __name__ == "__main__":
    twin, chance = begin(sys.argv[1], int(sys.argv[2]))
    for number in count():
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        twin.step(chance)
