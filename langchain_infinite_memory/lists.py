"""prune_messages: a window of a list that providers accept, and older turns that matter."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import overload

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_infinite_memory.embeddings import EmbeddingsLike, as_embedder
from langchain_infinite_memory.messages import read_message
from langchain_infinite_memory.repair import Group, Messages, Repaired, repaired
from langchain_infinite_memory.token_counters import ListCounter, MessageCounter, list_counter
from langchain_infinite_memory.tool_calls import engine_calls
from shared_core.arguments import text_value, whole_number
from shared_core.errors import EmbedderError
from shared_core.lists import compared_text, rank_texts
from shared_core.plugins.embedders import as_embedder as as_own_embedder

__all__ = ["prune_messages"]

Turn = list[Group]

TOP_K = 4
"""The default of `top_k` if there is a query."""

TRIES = 64
"""How many turns that match but do not fit are skipped."""


@overload
def prune_messages(
    messages: None = None, *, max_tokens: int, token_counter: MessageCounter, query: str | None = None,
    top_k: int | None = None, embeddings: EmbeddingsLike = None,
) -> Runnable[Messages, list[BaseMessage]]: ...  # fmt: skip


@overload
def prune_messages(
    messages: Messages, *, max_tokens: int, token_counter: MessageCounter, query: str | None = None,
    top_k: int | None = None, embeddings: EmbeddingsLike = None,
) -> list[BaseMessage]: ...  # fmt: skip


def prune_messages(
    messages: Messages | None = None, *, max_tokens: int, token_counter: MessageCounter, query: str | None = None,
    top_k: int | None = None, embeddings: EmbeddingsLike = None,
) -> list[BaseMessage] | Runnable[Messages, list[BaseMessage]]:  # fmt: skip
    """Return the newest messages that fit, oldest first, as a prompt that providers accept; without any, a Runnable.

    The list is repaired first (`repair_messages`), so that calls and results stand together. All system messages are
    kept and stand at the front. After them, the window begins with a human message, and is cut between turns. Only if
    everything fits, messages before the first human one stay, such as a greeting, unless they call tools. The newest
    human message is always kept, with the newest group of its turn and as many older groups as fit, even if that
    exceeds `max_tokens`.

    The messages returned are the objects that were given, and nothing given is changed.

    Args:
        messages: oldest first; whatever LangChain accepts as messages.
        max_tokens: the limit, as counted by `token_counter`.
        token_counter: a function of a list of messages, as for `trim_messages`; `len` counts messages. Or, except for
            a function of a text, what `as_token_counter` takes, with 4 tokens for each message.
        query: bring back the turns most similar to this text; None with `top_k`: to the newest human message.
        top_k: how many turns to bring back, at most; 4 if there is a `query`. Half of what system messages and the
            newest turn leave is for the turns just before, the rest for these, best first; what they do not use goes to
            the window. They stand in the order of the conversation.
        embeddings: as for `as_embedder`; None: the static embedder, if it is installed.

    Raises:
        ValueError: an argument is out of range.
        EmbedderError: turns have to be compared, and there is no embedder, or it failed.
    """
    whole_number("max_tokens", max_tokens, least=0)
    if query is not None:
        text_value("query", query)
        top_k = TOP_K if top_k is None else top_k
    recalled = whole_number("top_k", top_k or 0, least=0)

    def prune(given: Messages) -> list[BaseMessage]:
        window = _Window(repaired(given), list_counter(token_counter), max_tokens)
        return window.with_recalled(query, recalled, embeddings) if recalled else window.newest()

    return RunnableLambda(prune, name="prune_messages") if messages is None else prune(messages)


class _Window:
    """Cuts one list of messages into the part before the first human message, and turns."""

    def __init__(self, parts: Repaired, counter: ListCounter, limit: int) -> None:
        self._tokens, self._limit = counter, limit
        self._system, groups = parts.system, parts.groups
        starts = [index for index, (first, *_) in enumerate(groups) if isinstance(first, HumanMessage)]
        self._opening = groups[: starts[0]] if starts else groups
        self._turns = [groups[start:end] for start, end in pairwise([*starts, len(groups)])]

    def newest(self) -> list[BaseMessage]:
        """Return the newest turns that fit, or everything."""
        turns = self._turns
        count = _longest(len(turns), lambda n: self._fits(*turns[len(turns) - n :]))
        if turns and not count:
            return self._sent(self._part(turns[-1]))
        acts = any(engine_calls(first) for first, *_ in self._opening)
        opening = self._opening if count == len(turns) and not acts and self._fits(self._opening, *turns) else []
        return self._sent(opening, *turns[len(turns) - count :])

    def with_recalled(self, query: str | None, top_k: int, embeddings: EmbeddingsLike) -> list[BaseMessage]:
        """Return the newest turns with older ones that match, in the order of the conversation."""
        if len(self._turns) < 2 or self._fits(*self._turns):
            return self.newest()
        *past, current = self._turns
        must = self._size(current)
        if must >= self._limit:
            return self.newest()
        query = read_message(current[0][0])[0].content if query is None else query
        half = must + (self._limit - must) // 2
        count = _longest(len(past), lambda n: self._size(*past[len(past) - n :], current) <= half)
        outside, base = past[: len(past) - count], past[len(past) - count :]
        chosen: list[int] = []
        for index in _ranked(outside, query, embeddings)[: top_k + TRIES]:
            if len(chosen) < top_k and self._fits(*(outside[i] for i in sorted([*chosen, index])), *base, current):
                chosen.append(index)

        def around(n: int) -> list[Turn]:
            start = len(outside) - n
            return [*(outside[i] for i in sorted(chosen) if i < start), *past[start:], current]

        return self._sent(*around(_longest(len(outside), lambda n: self._fits(*around(n)))))

    def _part(self, turn: Turn) -> Turn:
        """Return a question with the newest group of its turn, and as many older groups as fit."""
        question, *answers = turn
        count = _longest(len(answers), lambda n: self._fits([question, *answers[len(answers) - n :]]))
        return [question, *answers[len(answers) - max(1, count) :]] if answers else turn

    def _fits(self, *turns: Turn) -> bool:
        return self._size(*turns) <= self._limit

    def _size(self, *turns: Turn) -> int:
        return self._tokens(self._sent(*turns))

    def _sent(self, *turns: Turn) -> list[BaseMessage]:
        return [*self._system, *_flat(chain(*turns))]


def _longest(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `count` that fits, given that all smaller numbers do; 0 is taken to fit.

    Numbers are tried from small to large, so that not much more is counted than fits.
    """
    bound = 1
    while bound <= count and fits(bound):
        bound *= 2
    between = range(bound // 2 + 1, min(bound, count + 1))
    return bound // 2 + bisect_left(between, True, key=lambda number: not fits(number))


def _flat(groups: Iterable[Group]) -> list[BaseMessage]:
    return list(chain.from_iterable(groups))


def _ranked(turns: Sequence[Turn], question: str, embeddings: EmbeddingsLike) -> list[int]:
    """Return the indexes of the turns that match a question, best first; of equals, the newer first.

    A turn that says the same as a newer one is left out, and so is one below the embedder's floor.

    Raises:
        EmbedderError: there is no embedder, or it failed.
    """
    texts = [compared_text(read_message(message)[0] for message in _flat(turn)) for turn in turns]
    if not any(texts) or not question.strip():
        return []
    embedder = as_embedder(embeddings) if embeddings is not None else as_own_embedder(None)
    if embedder is None:
        raise EmbedderError("top_k compares meanings and no embedder is installed: pass embeddings=")
    return [index for index, cosine in rank_texts(texts, question, embedder) if cosine >= embedder.fingerprint.floor]
