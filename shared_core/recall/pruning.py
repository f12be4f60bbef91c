"""Semantic top-K pruning for those who hold their own list: the messages most like the question, and the last turn."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from shared_core.arguments import one_of, whole_number
from shared_core.base import Embedder
from shared_core.embedders import as_embedder
from shared_core.errors import EmbedderError
from shared_core.index.vector_index import ExactVectorIndex
from shared_core.messages import Message
from shared_core.prompt.turns import Entry, Turn, tool_groups
from shared_core.records import Newest
from shared_core.turn_ids import assign_turns

__all__ = ["prune"]

Unit = tuple[Entry, ...]


def prune(
    messages: Sequence[Message], query: str | Message, *, top_k: int = 2, unit: Literal["message", "turn"] = "message",
    embedder: Embedder | str | None = None,
) -> list[Message]:  # fmt: skip
    """Return the old messages most like a question, the last turn and the question, in order; the list is not changed.

    System messages and pinned turns stay. A tool call and its results are kept or left out together; a call without all
    its results, and a result without its call, are left out. Where old messages repeat each other, only the newest can
    be chosen.

    Args:
        messages: the conversation, oldest first, without the question.
        query: the question.
        top_k: how many old messages or turns to keep.
        unit: compare and keep single messages, or whole turns.
        embedder: as in `InfiniteMemory`; needed as soon as something has to be left out.

    Raises:
        ValueError: `top_k` is negative.
        EmbedderError: there is no embedder, or it failed.
    """
    whole_number("top_k", top_k, least=0)
    one_of("unit", unit, ("message", "turn"))
    question = Message.user(query) if isinstance(query, str) else query
    stays, old = _parted(_entries(messages))
    units = _by_turn(old) if unit == "turn" else old
    kept = units if len(units) <= top_k else _nearest(units, question.content, top_k, embedder)
    chosen = sorted(entry.order for group in [*stays, *kept] for entry in group)
    return [*(messages[place] for place in chosen), question]


def _entries(messages: Sequence[Message]) -> list[Entry]:
    named = [message.replace(id=f"{place}") for place, message in enumerate(messages)]
    turns = assign_turns(named, Newest(None, -1), None)
    return [
        Entry(message.replace(turn_id=turn.turn_id), 0, turn.turn_no, place)
        for place, (message, turn) in enumerate(zip(named, turns, strict=True))
    ]


def _parted(entries: Sequence[Entry]) -> tuple[list[Unit], list[Unit]]:
    """Return the tool groups that stay, which are system messages, pinned turns and the last turn, and all others."""
    said = [entry.message.turn_id for entry in entries if entry.message.role != "system"]
    turns = {*said[-1:], *(entry.message.turn_id for entry in entries if entry.message.stays)}
    stays: list[Unit] = []
    old: list[Unit] = []
    for group in tool_groups(entries):
        if Turn("", 0, group).whole().entries:
            staying = any(entry.message.turn_id in turns for entry in group)
            (stays if staying else old).append(group)
    return stays, old


def _by_turn(groups: Sequence[Unit]) -> list[Unit]:
    turns: dict[str | None, Unit] = {}
    for group in groups:
        turn_id = group[0].message.turn_id
        turns[turn_id] = (*turns.get(turn_id, ()), *group)
    return list(turns.values())


def _text(unit: Unit) -> str:
    """Return what is compared: what was said, and what tools were asked, but not what they answered."""
    said = [entry.message for entry in unit if entry.message.role != "tool"]
    calls = (f"{call.name} {call.arguments}" for message in said for call in message.tool_calls)
    return " ".join(filter(None, (*(message.content for message in said), *calls))).strip()


def _nearest(units: Sequence[Unit], question: str, top_k: int, embedder: Embedder | str | None) -> list[Unit]:
    newest: dict[str, Unit] = {}
    for unit in units:
        text = _text(unit)
        newest.pop(text, None)  # so that the order is that of the newest
        newest[text] = unit
    newest.pop("", None)
    candidates = list(newest.values())
    if len(candidates) <= top_k or not top_k:
        return candidates[:top_k]
    chosen = as_embedder(embedder)
    if chosen is None:
        raise EmbedderError("prune compares meanings and no embedder is installed: pass embedder=")
    pieces = [chosen.split(text) for text in newest]
    index = ExactVectorIndex(chosen.fingerprint.dimension)
    vectors = chosen.embed_documents([piece for split in pieces for piece in split])
    index.add(np.repeat(np.arange(len(pieces)), [len(split) for split in pieces]), vectors)
    rows, _ = index.search(chosen.embed_query(question), len(candidates))
    return [candidates[row] for row in rows[:top_k]]
