"""What the indexes of many sessions cost: memory through a bounded cache, and a search over all of a user's sessions.

    python benchmarks/workers.py

One process measures everything, so that the figures can be compared with each other. Times are of the processor.
"""

import argparse
import gc
import resource
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from shared_core import IndexCache, InfiniteMemory, Message, SessionPool, SQLiteStore
from shared_core.records import MAIN, Draft

WORDS = [
    "boat",
    "garden",
    "roof",
    "letter",
    "school",
    "market",
    "train",
    "doctor",
    "cousin",
    "winter",
    "salary",
    "guitar",
    "puppy",
    "recipe",
    "museum",
    "ticket",
    "neighbour",
    "passport",
    "kitchen",
    "holiday",
    "window",
    "teacher",
    "bridge",
    "engine",
]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def messages(session: int, count: int) -> list[Message]:
    """Return what is said in a session, a few of many words in each message."""
    said = []
    for number in range(count):
        at = 31 * session + 7 * number
        words = " ".join(WORDS[(at + step * step) % len(WORDS)] for step in range(6))
        said.append(
            Message.user(
                f"Note {at % 997}: the {words} of place{at % 4_999}", id=f"{session}-{number}", created_at=NOON
            )
        )
    return said


def resident() -> int:
    """Return the memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def processor_ms(call: Callable[[], object]) -> float:
    """Return the time of the processor that a call takes."""
    began = time.process_time()
    call()
    return 1_000 * (time.process_time() - began)


def bounded(folder: Path, sessions: int, held: int) -> None:
    """Ask each of many sessions through a cache that has room for a few of them."""
    with closing(SQLiteStore(folder / "bounded.db", durability="process")) as store:
        with SessionPool(store, embedder="words") as pool:
            for number in range(sessions):
                with pool.use(str(number), "ann") as memory:
                    memory.add(messages(number, 20))
        cache = IndexCache.of(store)
        cache.release()
        with SessionPool(store, embedder="words") as pool:
            for number in range(20):
                with pool.use(str(number), "ann") as memory:
                    memory.search("boat")
        each = cache.nbytes // 20
        cache.max_bytes = held * each
        with SessionPool(store, embedder="words") as pool:
            sizes = []
            for number in range(sessions):
                with pool.use(str(number), "ann") as memory:
                    memory.search("boat garden")
                if number % max(1, sessions // 10) == 0 or number == sessions - 1:
                    gc.collect()
                    sizes.append(f"{number + 1}: {len(cache)} kept, {resident() / 2**20:.1f} MB")
        print(f"{sessions} sessions of 20 messages, {each:,} bytes each, through a cache for {held}; resident after")
        print("  " + "\n  ".join(sizes))


def user_wide(folder: Path, sessions: int, count: int) -> None:
    """Compare a search over many sessions with one of a session that holds as many messages."""
    with closing(SQLiteStore(folder / "user.db", durability="process")) as store:
        with store.transaction():
            single = store.create_session("bob", "one")
            for number in range(sessions):
                said = [Draft(message) for message in messages(number, count)]
                store.append(single, MAIN, said)
                store.append(store.create_session("ann", str(number)), MAIN, said)
        one = InfiniteMemory(store, session_id="one", user_id="bob", embedder="words")
        wide = InfiniteMemory(store, session_id="asks", user_id="ann", scope="user", embedder="words")
        wide.add(Message.user("Hello"))
        first = [processor_ms(partial(memory.search, "hello")) for memory in (one, wide)]
        print(f"{sessions:,} sessions of {count} messages; milliseconds of one session of as many, of the user, ratio")
        report("the first question, which reads all", *first)
        asked = iter(f"the {word} and place{number}" for number, word in enumerate(WORDS * 9))
        for label, before in (("a question", None), ("after an exchange", "own"), ("after one elsewhere", "other")):
            times = []
            for memory in (one, wide):
                spent = []
                for number in range(9):
                    if before == "own":
                        memory.add(Message.user("And now?"))
                    elif before == "other":
                        other = one if memory is one else InfiniteMemory(store, session_id=str(number), user_id="ann")
                        other.add(Message.user("Something new"))
                    spent.append(processor_ms(partial(memory.search, next(asked))))
                times.append(median(spent))
            report(label, *times)


def report(label: str, one: float, wide: float) -> None:
    """Print two times and their ratio."""
    print(f"  {label:<36} {one:>9.1f} {wide:>9.1f} {wide / one:>6.2f}")


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=2_000, help="sessions that are asked one after the other")
    parser.add_argument("--held", type=int, default=100, help="how many of them the cache has room for")
    parser.add_argument("--wide", type=int, default=10_000, help="sessions of the user")
    parser.add_argument("--messages", type=int, default=20, help="messages in each of these")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="infinite-memory-") as folder:
        bounded(Path(folder), given.sessions, given.held)
        user_wide(Path(folder), given.wide, given.messages)


if __name__ == "__main__":
    main()
