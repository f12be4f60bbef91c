"""Processes to be killed while they index: `kill_indexer.py embed|code|keep FILE`; each says when to kill it."""

import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

from shared_core import InfiniteMemory
from shared_core.index import session_vectors
from shared_core.index import vectors as faiss_index
from shared_core.plugins.base import Vectors
from shared_core.testing import HashingEmbedder
from tests.support.histories import history

QUESTIONS = ("what of item3?", "what concerns seven gardens?", "item41 and item77", "nothing of the kind")
SMALL_PART = 64


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def opened(path: str | None) -> InfiniteMemory:
    return InfiniteMemory(path, embedder=HashingEmbedder(), max_tokens=300, reserve_tokens=50)


def embed(path: str) -> None:
    """Index a conversation and say so after each batch."""
    with opened(path) as memory:
        memory.add(history(2_000))
        memory.index(lambda done, total: say(done))


def code(path: str) -> None:
    """Have short codes made, and take for ever."""

    def never(sample: Vectors) -> None:
        say("coding")
        time.sleep(600)

    vars(faiss_index).update(SHORTLIST_FROM=100, ShortCodes=never)
    with opened(path) as memory:
        memory.add(history(200))
        memory.search(QUESTIONS[0])
        time.sleep(600)


def keep(path: str) -> None:
    """Add a little, and keep snapshots of several parts, again and again."""
    session_vectors.PART = SMALL_PART
    with opened(path) as memory:
        for start in count(len(list(memory.messages())), 30):
            memory.add(history(30, start))
            memory.index()
            say(start)


def main(arguments: Sequence[str]) -> None:
    what, path = arguments
    work: dict[str, Callable[[str], None]] = {"embed": embed, "code": code, "keep": keep}
    work[what](path)


if __name__ == "__main__":
    main(sys.argv[1:])
