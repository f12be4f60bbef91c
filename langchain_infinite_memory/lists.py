"""prune_messages: like `trim_messages`, with windows that providers accept, and older turns that matter."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, Final, Literal, overload

from langchain_core.messages import BaseMessage, HumanMessage, trim_messages
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

Kinds = str | type[BaseMessage] | Sequence[str | type[BaseMessage]]
Splitter = Callable[[str], list[str]] | Any  # or a `TextSplitter`, whose package need not be installed

BY_STRATEGY: Final = ("human",)
"""The default of `start_on`: this with `strategy="last"`, nothing with "first"; compared by identity."""

TOP_K = 4
"""The default of `top_k` if there is a query."""

TRIES = 64
"""How many turns that match but do not fit are skipped."""


@overload
def prune_messages(
    messages: None = None, *, max_tokens: int, token_counter: MessageCounter,
    strategy: Literal["first", "last"] = "last", allow_partial: bool = False, end_on: Kinds | None = None,
    start_on: Kinds | None = BY_STRATEGY, include_system: bool | None = None, text_splitter: Splitter | None = None,
    query: str | None = None, top_k: int | None = None, embeddings: EmbeddingsLike = None,
) -> Runnable[Messages, list[BaseMessage]]: ...  # fmt: skip


@overload
def prune_messages(
    messages: Messages, *, max_tokens: int, token_counter: MessageCounter,
    strategy: Literal["first", "last"] = "last", allow_partial: bool = False, end_on: Kinds | None = None,
    start_on: Kinds | None = BY_STRATEGY, include_system: bool | None = None, text_splitter: Splitter | None = None,
    query: str | None = None, top_k: int | None = None, embeddings: EmbeddingsLike = None,
) -> list[BaseMessage]: ...  # fmt: skip


def prune_messages(
    messages: Messages | None = None, *, max_tokens: int, token_counter: MessageCounter,
    strategy: Literal["first", "last"] = "last", allow_partial: bool = False, end_on: Kinds | None = None,
    start_on: Kinds | None = BY_STRATEGY, include_system: bool | None = None, text_splitter: Splitter | None = None,
    query: str | None = None, top_k: int | None = None, embeddings: EmbeddingsLike = None,
) -> list[BaseMessage] | Runnable[Messages, list[BaseMessage]]:  # fmt: skip
    """Return the messages that fit, oldest first, as a prompt that providers accept; without messages, a Runnable.

    The arguments of LangChain's `trim_messages` have the same meaning and raise the same errors. The differences are:

    - The list is repaired first (`repair_messages`), so that calls and results stand together, and the window is cut
      between whole tool groups. All system messages stand at the front, and `include_system` keeps all of them.
    - By default, `include_system` is True, and a window begins with a human message, after the system messages; only
      if everything fits, messages before the first human one stay, such as a greeting, unless they call tools. Pass
      `start_on=None` to cut between any two groups, and `include_system=False` to treat system messages like others.
    - If a window begins with a human message, the newest one is always kept, with the newest group of its turn and as
      many older groups as fit, even if that exceeds `max_tokens`.
    - `end_on` removes whole groups, with "ai" also a call that has results, and never system messages that are kept.
      `start_on="tool"` never matches.
    - `allow_partial` does not split messages of a tool group.
    - A counter of lists is given lists in the order of the conversation, with system messages and whole groups, and
      with about as many messages as are returned, not the whole history. A counter of messages is called once for each.
    - `top_k` and `query` bring back older turns.

    The messages returned are the objects that were given, except one that `allow_partial` splits; nothing given is
    changed.

    Args:
        messages: oldest first; whatever LangChain accepts as messages.
        max_tokens: the limit, as counted by `token_counter`.
        token_counter: as for `trim_messages`, or what `as_token_counter` takes, with 4 tokens for each message. A model
            that counts lists with code of its own, and neither texts nor with requests, is given lists; any other
            counts as in `as_token_counter`.
        strategy: keep the last or the first messages.
        allow_partial: whether to split the message at the cut.
        end_on: the kinds of message to end on; messages after the last of them are dropped.
        start_on: the kinds of message to start on; not with `strategy="first"`.
        include_system: whether system messages are kept and counted first; not with `strategy="first"`.
        text_splitter: for `allow_partial`; None: by lines.
        query: bring back the turns most similar to this text; None with `top_k`: to the newest human message.
        top_k: how many turns to bring back, at most; 4 if there is a `query`. Half of what system messages and the
            newest turn leave is for the turns just before, the rest for these, best first; what they do not use goes to
            the window. They stand in the order of the conversation. Windows must begin with a human message. No message
            is split.
        embeddings: as for `as_embedder`; None: the static embedder, if it is installed.

    Raises:
        ValueError: an argument is unknown, or does not go with another.
        EmbedderError: turns have to be compared, and there is no embedder, or it failed.
    """
    first = strategy == "first"
    whole_number("max_tokens", max_tokens, least=0)
    if query is not None:
        text_value("query", query)
    options: dict[str, Any] = {
        "max_tokens": max_tokens, "strategy": strategy, "allow_partial": allow_partial, "end_on": end_on,
        "start_on": (None if first else "human") if start_on is BY_STRATEGY else start_on,
        "include_system": (not first) if include_system is None else include_system, "text_splitter": text_splitter,
    }  # fmt: skip

    def prune(given: Messages) -> list[BaseMessage]:
        trim_messages([], **options, token_counter=len)  # raises if arguments do not go together
        window = _Window(repaired(given), list_counter(token_counter), options, greeting=start_on is BY_STRATEGY)
        recalls = query is not None or top_k is not None
        if first and recalls:
            raise ValueError("query and top_k bring back older turns, and strategy='first' keeps those: drop one")
        if recalls:
            return window.with_recalled(query, TOP_K if top_k is None else top_k, embeddings)
        return window.first() if first else window.last()

    return RunnableLambda(prune, name="prune_messages") if messages is None else prune(messages)


class _Window:
    """Cuts one list of messages.

    Attributes:
        head: the system messages that are kept.
        groups: the groups that can be cut off.
        questions: the indexes of the groups at which a window may begin: human messages.
    """

    def __init__(self, parts: Repaired, counter: ListCounter, options: dict[str, Any], *, greeting: bool) -> None:
        self._tokens = counter
        self._greeting = greeting
        self._options = options
        self._limit: int = options["max_tokens"]
        self._start_on: Kinds | None = options["start_on"]
        self.head = parts.system if options["include_system"] else []
        self.groups = [*([] if self.head else [[message] for message in parts.system]), *parts.groups]
        if options["strategy"] == "last":
            self.groups = self._ended(self.groups)
        self.questions = [
            index
            for index, (message, *_) in enumerate(self.groups)
            if self._start_on and isinstance(message, HumanMessage) and _is(message, self._start_on)
        ]

    def first(self) -> list[BaseMessage]:
        """Return the longest beginning that fits."""
        count = _longest(len(self.groups), lambda n: self._fits(self.groups[:n]))
        kept, rest = self.groups[:count], self.groups[count:]
        return _flat(self._ended([*kept, *self._part(rest[:1], kept)]))

    def last(self) -> list[BaseMessage]:
        """Return the longest end that fits and begins with `start_on`, or everything, with a greeting, if that fits."""
        count = _longest(len(self.groups), lambda n: self._fits(self._newest(n)))
        opening = self.groups[: self.questions[0] if self.questions else None]
        if self._greeting and count == len(self.groups) and not any(engine_calls(group[0]) for group in opening):
            return [*self.head, *_flat(self.groups)]
        rest, kept = self.groups[: len(self.groups) - count], self._newest(count)
        kept = [*self._part(rest[-1:], kept), *kept]
        if self._start_on:
            begins = (index for index, group in enumerate(kept) if _is(group[0], self._start_on))
            kept = kept[next(begins, len(kept)) :]
        if self.questions and len(kept) < len(self.groups) - self.questions[-1]:
            kept = self._current()
        return [*self.head, *_flat(kept)]

    def with_recalled(self, query: str | None, top_k: int, embeddings: EmbeddingsLike) -> list[BaseMessage]:
        """Return what `last` returns, with older turns that match, in the order of the conversation."""
        whole_number("top_k", top_k, least=0)
        if not self._start_on or not _is(HumanMessage(""), self._start_on):
            raise ValueError("query and top_k bring back whole turns: pass start_on='human' with them")
        turns = [self.groups[start:end] for start, end in pairwise([*self.questions, len(self.groups)])]
        if len(turns) < 2 or not top_k or self._fits(*turns):
            return self.last()
        *past, current = turns
        query = read_message(current[0][0])[0].content if query is None else query
        must = self._tokens([*self.head, *_flat(current)])
        if must >= self._limit:
            return self.last()
        half = must + (self._limit - must) // 2
        count = _longest(len(past), lambda n: self._fits(*past[len(past) - n :], current, most=half))
        outside, base = past[: len(past) - count], past[len(past) - count :]
        chosen: list[int] = []
        for index in _ranked(outside, query, embeddings)[: top_k + TRIES]:
            if len(chosen) < top_k and self._fits(*(outside[i] for i in sorted([*chosen, index])), *base, current):
                chosen.append(index)

        def around(n: int) -> list[list[Group]]:
            start = len(past) - count - n
            return [*(outside[i] for i in sorted(chosen) if i < start), *past[start:], current]

        more = _longest(len(outside), lambda n: self._fits(*around(n)))
        return [*self.head, *_flat(chain(*around(more)))]

    def _current(self) -> list[Group]:
        """Return the newest question with the newest group of its turn, and as many older groups as fit."""
        question, *answers = self.groups[self.questions[-1] :]
        count = _longest(len(answers), lambda n: self._fits([question, *answers[len(answers) - n :]]))
        return [question, *answers[len(answers) - max(1, count) :]] if answers else [question]

    def _newest(self, count: int) -> list[Group]:
        return self.groups[len(self.groups) - count :]

    def _fits(self, *parts: Iterable[Group], most: int | None = None) -> bool:
        size = self._tokens([*self.head, *_flat(chain(*parts))])
        return size <= (self._limit if most is None else most)

    def _ended(self, groups: list[Group]) -> list[Group]:
        end_on, count = self._options["end_on"], len(groups)
        while end_on and count and not _is(groups[count - 1][-1], end_on):
            count -= 1
        return groups[:count]

    def _part(self, cut: list[Group], kept: list[Group]) -> list[Group]:
        """Return the part of the group at the cut that fits beside those kept, as `trim_messages` splits it."""
        if not self._options["allow_partial"] or not cut or len(cut[0]) > 1 or engine_calls(cut[0][0]):
            return []
        room = self._limit - self._tokens([*self.head, *_flat(kept)])
        options = {**self._options, "start_on": None, "end_on": None, "include_system": False, "max_tokens": room}
        # Copies, because `trim_messages` changes messages that are counted already.
        part = trim_messages(
            cut[0], **options, token_counter=lambda tried: self._tokens([m.model_copy() for m in tried])
        )
        return [part] if part else []


def _longest(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `count` that fits, given that all smaller numbers do; 0 is taken to fit.

    Numbers are tried from small to large, so that not much more is counted than fits.
    """
    bound = 1
    while bound <= count and fits(bound):
        bound *= 2
    between = range(bound // 2 + 1, min(bound, count + 1))
    return bound // 2 + bisect_left(between, True, key=lambda number: not fits(number))


def _is(message: BaseMessage, kinds: Kinds) -> bool:
    listed = [kinds] if isinstance(kinds, str | type) else kinds
    return any(message.type == kind if isinstance(kind, str) else isinstance(message, kind) for kind in listed)


def _flat(groups: Iterable[Group]) -> list[BaseMessage]:
    return list(chain.from_iterable(groups))


def _ranked(turns: Sequence[list[Group]], question: str, embeddings: EmbeddingsLike) -> list[int]:
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
