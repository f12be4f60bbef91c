"""Processes for the store's tests: `kill_writer.py append|exchange|create|hold FILE [NAME] [COUNT]`."""

import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from threading import Thread

from shared_core.messages import Message
from shared_core.records import MAIN, Draft
from shared_core.stores import SQLiteStore

THREADS = 4


def draft(id_: str, role: str = "user") -> Draft:
    return Draft(Message.model_validate({"id": id_, "role": role, "content": f"{id_} " * 40, "created_at": now()}))


def now() -> datetime:
    return datetime.now(UTC)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def append(path: str, name: str, size: int) -> None:
    """Append forever, `size` messages a call, and print each id once it is acknowledged."""
    store = SQLiteStore(path, durability="process")
    key = store.create_session(None, "s")
    say("ready")
    for number in count():
        ids = [f"{name}-{number}-{part}" for part in range(size)]
        store.append(key, MAIN, [draft(id_) for id_ in ids])
        for id_ in ids:
            say(id_)


def exchange(path: str, name: str, times: int) -> None:
    """Have several threads hold conversations: a question, and then its answer, by its turn."""
    store = SQLiteStore(path, durability="process")
    key = store.create_session(None, "s")

    def talk(thread: int) -> None:
        for number in range(times):
            id_ = f"{name}-{thread}-{number}"
            store.append(key, MAIN, [draft("u" + id_)])
            store.append(key, MAIN, [draft("a" + id_, "assistant")], turn="u" + id_)

    threads = [Thread(target=talk, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()


def create(path: str, name: str, _: int) -> None:
    """Open a file, at the same moment as others, and leave a message."""
    say("ready")
    sys.stdin.readline()
    store = SQLiteStore(path)
    store.append(store.create_session(None, "s"), MAIN, [draft(name)])
    store.close()


def hold(path: str, name: str, _: int) -> None:
    """Read, and keep reading until told to stop."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM messages").fetchone()
    say("ready")
    sys.stdin.readline()
    connection.close()


if __name__ == "__main__":
    what, file, *rest = sys.argv[1:]
    who, how_many = (*rest, "1")[:2] if rest else ("", "1")
    work: dict[str, Callable[[str, str, int], None]] = {
        "append": append,
        "exchange": exchange,
        "create": create,
        "hold": hold,
    }
    work[what](file, who, int(how_many))
