"""Windowing and pruning for callers who hold their own list of messages: `sliding_window` and `prune`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from shared_core.arguments import one_of, prompt_budget, user_message, whole_number
from shared_core.errors import EmbedderError
from shared_core.index.vectors import dot
from shared_core.messages import Message, MessageLike, message_list
from shared_core.plugins.base import Embedder, TokenCounter
from shared_core.plugins.embedders import as_embedder
from shared_core.plugins.embedding import evenly
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.fixed_part import FixedPartBuilder, KeepGrounding, OnOverflow
from shared_core.prompt.window import Fill
from shared_core.records import Newest
from shared_core.session.turns import Entry, Size, Turn, assign_turns, group_turns, tool_groups, turns_before
from shared_core.tokens import as_counter


def sliding_window(
    messages: Sequence[MessageLike], *, max_tokens: int, reserve_tokens: int = 0,
    token_counter: TokenCounter | Callable[[str], int] | str | None = None,
    unit: Literal["turn", "message"] = "turn", window_turns: int | None = None, fill: Fill = "stop",
    keep_grounding: KeepGrounding = "newest", on_overflow: OnOverflow = "raise",
) -> list[Message]:  # fmt: skip
    """Return the newest messages that fit, oldest first, ready to be sent. The given list is not changed.

    System and pinned messages always stay. So do the newest user message and what answers it, with as much of its
    grounding as fits. Older messages lose their grounding.

    Args:
        messages: the conversation, oldest first. OpenAI's dicts are accepted.
        max_tokens: the context limit of your model, in tokens.
        reserve_tokens: the tokens kept free for the reply.
        token_counter: counts the tokens of a text, as in `InfiniteMemory`.
        unit: what is kept or dropped as a whole: a `"turn"` or a `"message"`. With `"message"`, the window may begin in
            the middle of an exchange, which some providers reject.
        window_turns: the largest number of units beside the newest turn, as in `InfiniteMemory`.
        fill: how units fill the window, as in `InfiniteMemory`.
        keep_grounding: which user messages keep their grounding, as in `InfiniteMemory`.
        on_overflow: what happens to a question that does not fit, as in `InfiniteMemory`.

    Raises:
        BudgetError: system and pinned messages alone do not fit.
        MessageTooLargeError: the newest user message and its newest tool group do not fit beside them.
        ValueError: an argument is out of range.
    """
    prompt_budget(max_tokens, reserve_tokens)
    listed = message_list(messages)
    one_of("unit", unit, ("turn", "message"))
    builder = FixedPartBuilder(as_counter(token_counter), keep_grounding, on_overflow)
    assembler = Assembler(builder, fill=fill, recall_tokens=0, window_turns=window_turns)
    size = builder.size
    entries = _entries_of(listed, size)
    turns = group_turns(entries)
    newest = next((turn for turn in reversed(turns) if turn.asks), None)
    current = newest.whole(size, pending=True) if newest is not None else None
    pinned = {entry.message.turn_id for entry in entries if entry.message.pinned} - {newest and newest.turn_id}
    stays = [entry for entry in entries if entry.message.role == "system"]
    stays += [entry for turn in turns if turn.turn_id in pinned for entry in turn.whole(size).entries]
    asked = builder.fixed_part(budget=max_tokens - reserve_tokens, tools=0, stays=stays, current=current)
    past = [turn for turn in reversed(turns) if turn is not newest and turn.turn_id not in pinned]
    older = turns_before(past, current, size)[0] if unit == "turn" else _single_messages(past, size)
    fixed, selection = assembler.settle(asked, older, ())
    given = {entry.message.id: message for entry, message in zip(entries, listed, strict=True)}
    context = assembler.compose(fixed, selection, reserve=reserve_tokens)
    return [_as_given(message, given[message.id]) for message in context.messages]


def _entries_of(messages: Sequence[Message], size: Size) -> list[Entry]:
    """Return the messages of a list with their sizes and turns. Their indexes serve as ids: not all have one."""
    named = [message.replace(id=f"{index}") for index, message in enumerate(messages)]
    turns = assign_turns(named, Newest(None, -1), None)
    return [
        Entry(message.replace(turn_id=turn_id), size(message), turn_no, index)
        for index, (message, (turn_id, turn_no)) in enumerate(zip(named, turns, strict=True))
    ]


def _single_messages(turns: Sequence[Turn], size: Size) -> list[Turn]:
    """Return every message as a turn of its own, newest first. A tool call keeps its results."""
    groups = [group for turn in turns for group in reversed(list(tool_groups(turn.whole(size).entries)))]
    return [Turn(group[0].message.id or "", group[0].order, group) for group in groups]


def _as_given(sent: Message, given: Message) -> Message:
    """Return a message as it is sent, with the id and the turn that the caller gave it."""
    return sent.replace(id=given.id, turn_id=given.turn_id)


Unit = tuple[Entry, ...]


def prune(
    messages: Sequence[MessageLike], query: str | MessageLike, *, top_k: int = 2,
    unit: Literal["message", "turn"] = "message", embedder: Embedder | str | None = None,
) -> list[Message]:  # fmt: skip
    """Return the old messages most similar to a question, then the last turn and the question.

    The order is kept and the given list is not changed. System messages and pinned turns always stay. A tool call and
    its results are kept or dropped together; a call without a result, and a result without its call, are dropped. If
    old messages have the same text, only the newest of them can be kept.

    Args:
        messages: the conversation, oldest first, without the question. OpenAI's dicts are accepted.
        query: the question.
        top_k: how many old messages or turns to keep.
        unit: what is compared and kept: single messages or whole turns.
        embedder: makes the vectors, as in `InfiniteMemory`. It is needed only if something has to be dropped.

    Raises:
        ValueError: `top_k` is negative.
        EmbedderError: there is no embedder, or it failed.
    """
    whole_number("top_k", top_k, least=0)
    one_of("unit", unit, ("message", "turn"))
    if embedder is not None and not isinstance(embedder, str):
        embedder = as_embedder(embedder)  # a wrong one fails even if nothing has to be dropped
    question = user_message("query", query)
    listed = message_list(messages)
    stays, old = _split_off_kept(_entries_of(listed, lambda message: 0))
    units = _by_turn(old) if unit == "turn" else old
    kept = units if len(units) <= top_k else _nearest(units, question.content, top_k, embedder)
    sent = {entry.order: entry.message for group in [*stays, *kept] for entry in group}
    return [*(_without_calls_of(sent[index], listed[index]) for index in sorted(sent)), question]


def _without_calls_of(sent: Message, given: Message) -> Message:
    return given if sent.tool_calls == given.tool_calls else _as_given(sent, given)


def _split_off_kept(entries: Sequence[Entry]) -> tuple[list[Unit], list[Unit]]:
    """Return the groups that always stay (system messages, pinned turns, the last turn), and all other groups."""
    said = [entry.message.turn_id for entry in entries if entry.message.role != "system"]
    turns = {*said[-1:], *(entry.message.turn_id for entry in entries if entry.message.stays)}
    stays: list[Unit] = []
    old: list[Unit] = []
    for group in tool_groups(entries):
        if sent := Turn("", 0, group).whole(lambda message: 0).entries:
            staying = any(entry.message.turn_id in turns for entry in group)
            (stays if staying else old).append(sent)
    return stays, old


def _by_turn(groups: Sequence[Unit]) -> list[Unit]:
    turns: dict[str | None, Unit] = {}
    for group in groups:
        turn_id = group[0].message.turn_id
        turns[turn_id] = (*turns.get(turn_id, ()), *group)
    return list(turns.values())


def compared_text(messages: Iterable[Message]) -> str:
    """Return the text of messages that is compared with a question: what is said and called, without tool results."""
    said = [message for message in messages if message.role != "tool"]
    calls = (f"{call.name} {call.arguments}" for message in said for call in message.tool_calls)
    return " ".join(filter(None, (*(message.content for message in said), *calls))).strip()


def _nearest(units: Sequence[Unit], question: str, top_k: int, embedder: Embedder | str | None) -> list[Unit]:
    texts = [compared_text(entry.message for entry in unit) for unit in units]
    different = set(texts) - {""}
    if len(different) <= top_k or not top_k:
        newest = {text: unit for text, unit in zip(texts, units, strict=True) if text}
        return list(newest.values())[:top_k]
    chosen = as_embedder(embedder)
    if chosen is None:
        raise EmbedderError("prune needs an embedder, and none is installed: pass embedder=")
    return [units[index] for index, _ in rank_texts(texts, question, chosen)[:top_k]]


def rank_texts(texts: Sequence[str], question: str, embedder: Embedder) -> list[tuple[int, float]]:
    """Return the index of each text with its cosine, most similar to the question first. Among equals, later is first.

    Empty texts are left out, and so are texts that are repeated later. A text longer than the model can read gets the
    cosine of its most similar piece; of very long ones, `MOST_PIECES` pieces are compared.

    Args:
        texts: the texts to compare.
        question: the text to compare them with.
        embedder: makes the vectors. It is not called if there is nothing to compare.

    Raises:
        EmbedderError: the embedder failed.
    """
    last: dict[str, int] = {}
    for index, text in enumerate(texts):
        last.pop(text, None)  # keeps the texts in the order of their last occurrence
        last[text] = index
    last.pop("", None)
    if not last:
        return []
    pieces = [evenly(embedder.split(text)) for text in last]
    vectors = embedder.embed_documents([piece for split in pieces for piece in split])
    owners = np.repeat(list(last.values()), [len(split) for split in pieces])
    best: dict[int, float] = {}
    for index, cosine in zip(owners.tolist(), dot(vectors, embedder.embed_query(question)).tolist(), strict=True):
        best[index] = max(cosine, best.get(index, cosine))
    return sorted(best.items(), key=lambda one: (one[1], one[0]), reverse=True)
