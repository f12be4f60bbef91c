"""The sliding window for those who hold their own list of messages; pure."""

from collections.abc import Callable, Sequence
from typing import Literal

from shared_core.arguments import one_of, whole_number
from shared_core.base import TokenCounter
from shared_core.messages import Message
from shared_core.prompt.assembly import Assembler
from shared_core.prompt.frame import Framer, GroundingOverflow, KeepGrounding, OnOverflow
from shared_core.prompt.turns import Entry, Turn, group_turns, tool_groups
from shared_core.prompt.window import Fill
from shared_core.records import Newest
from shared_core.tokens import as_counter, message_tokens
from shared_core.turn_ids import assign_turns

__all__ = ["entries_of", "sliding_window"]


def sliding_window(
    messages: Sequence[Message], *, max_tokens: int, reserve_tokens: int = 0,
    token_counter: TokenCounter | Callable[[str], int] | str | None = None, message_overhead: int = 4,
    unit: Literal["turn", "message"] = "turn", window_slack: float = 0.0, fill: Fill = "stop",
    keep_grounding: KeepGrounding = "newest", grounding_overflow: GroundingOverflow = "trim",
    on_overflow: OnOverflow = "raise",
) -> list[Message]:  # fmt: skip
    """Return the newest messages that fit, oldest first, ready to be sent; the list given is not changed.

    System and pinned messages stay. The newest user message and what answers it are there, with its grounding as far as
    that fits; older messages come without theirs.

    Args:
        messages: the conversation, oldest first.
        max_tokens: the model's limit.
        reserve_tokens: kept free for the reply.
        token_counter: as in `InfiniteMemory`.
        message_overhead: tokens of framing per message.
        unit: what is kept or dropped as a whole. With `"message"` the window may begin in the middle of an exchange,
            which some providers reject.
        window_slack: see `fit_window`.
        fill: see `fit_window`.
        keep_grounding: see `InfiniteMemory`.
        grounding_overflow: see `InfiniteMemory`.
        on_overflow: see `InfiniteMemory`.

    Raises:
        BudgetError: system and pinned messages alone do not fit.
        MessageTooLargeError: the newest user message and its newest tool group do not fit beside them.
        ValueError: an argument is out of range.
    """
    whole_number("max_tokens", max_tokens, least=1)
    whole_number("reserve_tokens", reserve_tokens, least=0)
    one_of("unit", unit, ("turn", "message"))
    framer = Framer(as_counter(token_counter), message_overhead, keep_grounding, grounding_overflow, on_overflow)
    assembler = Assembler(framer, slack=window_slack, fill=fill)
    entries = entries_of(messages, framer.counter, message_overhead)
    turns = group_turns(entries)
    newest = next((turn for turn in reversed(turns) if turn.asks), None)
    current = newest.whole(pending=True) if newest is not None else None
    pinned = {entry.message.turn_id for entry in entries if entry.message.pinned} - {newest and newest.turn_id}
    stays = [entry for entry in entries if entry.message.role == "system"]
    stays += [entry for turn in turns if turn.turn_id in pinned for entry in turn.whole().entries]
    asked = framer.frame(budget=max_tokens - reserve_tokens, tools=0, stays=stays, current=current)
    past = [turn for turn in reversed(turns) if turn is not newest and turn.turn_id not in pinned]
    older = [turn.whole() for turn in past if turn.asks] if unit == "turn" else _apart(past)
    frame, selection = assembler.settle(asked, older, (), shown=True)
    given = {entry.message.id: message for entry, message in zip(entries, messages, strict=True)}
    context = assembler.compose(frame, selection, reserve=reserve_tokens, shown=True)
    return [_as_given(message, given[message.id]) for message in context.messages]


def entries_of(messages: Sequence[Message], counter: TokenCounter, overhead: int) -> list[Entry]:
    """Return messages of a list with their sizes and turns; messages without an id are told apart by their place."""
    named = [message.replace(id=f"{place}") for place, message in enumerate(messages)]
    turns = assign_turns(named, Newest(None, -1), None)
    return [
        Entry(message.replace(turn_id=turn_id), message_tokens(message, counter, overhead), turn_no, place)
        for place, (message, (turn_id, turn_no)) in enumerate(zip(named, turns, strict=True))
    ]


def _apart(turns: Sequence[Turn]) -> list[Turn]:
    """Return every message as a turn of its own, newest first; a tool call keeps its results."""
    groups = [group for turn in turns for group in reversed(list(tool_groups(turn.whole().entries)))]
    return [Turn(group[0].message.id or "", group[0].order, group) for group in groups]


def _as_given(sent: Message, given: Message) -> Message:
    """Return a message as it is sent, with the id and turn of the caller's own."""
    return sent.replace(id=given.id, turn_id=given.turn_id)
