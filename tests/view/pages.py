"""Chats for the tests of the page, and pages written from them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared_core.doors.view import page
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message

__all__ = ["NOON", "SETTINGS", "Written", "store_a_tree"]

SETTINGS: dict[str, Any] = {"embedder": "words", "max_tokens": 120, "reserve_tokens": 20, "token_counter": len}
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def said(text: str, **fields: Any) -> list[Message]:
    """A question and its answer, with the ids `q-text` and `a-text`."""
    name = text.split()[0]
    return [
        Message.user(text, id=f"q-{name}", created_at=NOON, **fields),
        Message.assistant(f"{name} it is", id=f"a-{name}", created_at=NOON),
    ]


def store_a_tree(path: Path) -> None:
    """Store a session with two branches, a squash, a full merge, copies, a tag and a stash."""
    with InfiniteMemory(path, clock=lambda: NOON, **SETTINGS) as memory:
        memory.add([Message.system("Be short.", id="sys", created_at=NOON), *said("red or blue")])
        memory.fork("side")
        memory.add(said("green then", name="ann"))
        memory.tag("v1")
        memory.checkout("main")
        memory.add(said("yellow now"))
        memory.merge("side", "squash", prompt="what was it?")
        memory.merge("side")
        memory.add(said("black last"))
        memory.add(said("white aside"))
        memory.stash(note="for later")
        memory.checkout("side")
        memory.cherry_pick(["q-yellow", "a-yellow"])


class Written:
    """A page, where it is, and the data in it."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        path.write_text(page(data), encoding="utf-8")

    def row(self, id: str) -> int:
        """Return the row of a message."""
        return next(row for row, node in enumerate(self.data["nodes"]) if node.get("id") == id)
