"""`trim_messages` whose windows a provider accepts, and which can bring back older turns that matter."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, Final, Literal, overload

from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, HumanMessage, MessageLikeRepresentation, trim_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_infinite_memory.embeddings import Function
from langchain_infinite_memory.repair import Group, Repaired, calls_of, repaired
from langchain_infinite_memory.similar import ranked, text_of
from langchain_infinite_memory.sizes import Size, size_of
from langchain_infinite_memory.token_counters import MessageCounter
from shared_core.arguments import whole_number
from shared_core.base import Embedder

__all__ = ["prune_messages"]

Kinds = str | type[BaseMessage] | Sequence[str | type[BaseMessage]]
Messages = Iterable[MessageLikeRepresentation] | PromptValue
Splitter = Callable[[str], list[str]] | Any  # or a `TextSplitter`, of a package that need not be installed
Embedding = Embedder | Embeddings | Function | str | None

BY_STRATEGY: Final = ("human",)
"""The default of `start_on`: this with `strategy="last"`, nothing with "first"; told by identity."""

TOP_K = 4
"""The default of `top_k` where there is a query."""

TRIES = 64
"""How many turns that match but do not fit are passed over."""


@overload
def prune_messages(
    messages: None = None, *, max_tokens: int, token_counter: MessageCounter,
    strategy: Literal["first", "last"] = "last", allow_partial: bool = False, end_on: Kinds | None = None,
    start_on: Kinds | None = BY_STRATEGY, include_system: bool | None = None, text_splitter: Splitter | None = None,
    query: str | None = None, top_k: int | None = None, embeddings: Embedding = None,
) -> Runnable[Messages, list[BaseMessage]]: ...  # fmt: skip


@overload
def prune_messages(
    messages: Messages, *, max_tokens: int, token_counter: MessageCounter,
    strategy: Literal["first", "last"] = "last", allow_partial: bool = False, end_on: Kinds | None = None,
    start_on: Kinds | None = BY_STRATEGY, include_system: bool | None = None, text_splitter: Splitter | None = None,
    query: str | None = None, top_k: int | None = None, embeddings: Embedding = None,
) -> list[BaseMessage]: ...  # fmt: skip


def prune_messages(
    messages: Messages | None = None, *, max_tokens: int, token_counter: MessageCounter,
    strategy: Literal["first", "last"] = "last", allow_partial: bool = False, end_on: Kinds | None = None,
    start_on: Kinds | None = BY_STRATEGY, include_system: bool | None = None, text_splitter: Splitter | None = None,
    query: str | None = None, top_k: int | None = None, embeddings: Embedding = None,
) -> list[BaseMessage] | Runnable[Messages, list[BaseMessage]]:  # fmt: skip
    """Return the messages that fit, oldest first, as a prompt that providers accept; without messages, a Runnable.

    Takes the arguments of LangChain's `trim_messages`, with the same meaning and errors, and differs in this:

    - The list is repaired first (`repair_messages`), so that calls and results stand together, and the window is cut
      between whole tool groups. All system messages stand at the front, and `include_system` keeps all of them.
    - By default a window begins with a person's message, after the system messages, and `include_system` is True. To
      cut between any two groups pass `start_on=None`, and to treat system messages like others `include_system=False`.
    - Where a window begins with a person's message, the newest one is always there, with the newest group of what
      answers it and as many older ones as fit: also if that exceeds `max_tokens`.
    - `end_on` takes off whole groups, with "ai" also a call that has results, and never system messages that stay.
      `start_on="tool"` finds no beginning.
    - `allow_partial` splits no message of a tool group.
    - A list counter is given lists in the order of the conversation, system messages included, with groups whole, and
      about as many messages as are returned, not the whole history; a counter of messages each message once.
    - `top_k` and `query` bring back older turns.

    Messages are the same objects as given, but those that `allow_partial` splits; nothing given is changed.

    Args:
        messages: oldest first; whatever LangChain takes for messages.
        max_tokens: the most that is returned, by `token_counter`.
        token_counter: as for `trim_messages`, or what `message_counter` takes. A model counts texts with its own
            tokenizer if it has one, else it is asked for whole lists, unless it would ask a server; see `ModelCounter`.
        strategy: keep the last or the first messages.
        allow_partial: whether to split the message at the cut.
        end_on: kinds of message to end on; those after the last of them do not count.
        start_on: kinds of message to start on; not with `strategy="first"`.
        include_system: whether system messages stay, and are paid first; not with `strategy="first"`.
        text_splitter: for `allow_partial`; by lines if None.
        query: bring back the turns most like this text; None with `top_k`: like the newest person's message.
        top_k: how many at most; 4 if there is a `query`. Of what system messages and the newest turn leave, half is for
            the turns just before, the rest for these, best first; what they do not use goes to the window. They stand
            in their place in time. Needs windows that begin with a person's message. No message is split then.
        embeddings: as for `as_embedder`; None: the static embedder, where it is installed.

    Raises:
        ValueError: arguments that do not go together, or an unknown one.
        EmbedderError: turns have to be compared, and there is no embedder, or it failed.
    """
    first = strategy == "first"
    options: dict[str, Any] = {
        "max_tokens": max_tokens, "strategy": strategy, "allow_partial": allow_partial, "end_on": end_on,
        "start_on": (None if first else "human") if start_on is BY_STRATEGY else start_on,
        "include_system": (not first) if include_system is None else include_system, "text_splitter": text_splitter,
    }  # fmt: skip
    recall = _Recall(query, top_k, embeddings) if query is not None or top_k is not None else None
    prune = partial(_pruned, options=options, counter=token_counter, recall=recall)
    return RunnableLambda(prune, name="prune_messages") if messages is None else prune(messages)


@dataclass(frozen=True)
class _Recall:
    query: str | None
    top_k: int | None
    embeddings: Embedding


def _pruned(
    messages: Messages, *, options: dict[str, Any], counter: MessageCounter, recall: _Recall | None
) -> list[BaseMessage]:
    trim_messages([], **options, token_counter=len)  # raises where arguments do not go together
    cut = _Cut(repaired(messages), size_of(counter), options)
    if options["strategy"] == "first":
        if recall is not None:
            raise ValueError("query and top_k bring back older turns, and strategy='first' keeps those: drop one")
        return cut.first()
    return cut.last() if recall is None else cut.with_recalled(recall)


class _Cut:
    """One list of messages, about to be cut.

    Attributes:
        head: system messages that stay.
        groups: what can be cut.
        asked: the places of the groups that are a person's message at which a window may begin.
    """

    def __init__(self, parts: Repaired, size: Size, options: dict[str, Any]) -> None:
        self._size = size
        self._options = options
        self._most: int = options["max_tokens"]
        self._start_on: Kinds | None = options["start_on"]
        self.head = parts.system if options["include_system"] else []
        self.groups = [*([] if self.head else [[message] for message in parts.system]), *parts.groups]
        if options["strategy"] == "last":
            self.groups = self._ended(self.groups)
        self.asked = [
            place
            for place, (message, *_) in enumerate(self.groups)
            if self._start_on and isinstance(message, HumanMessage) and _is(message, self._start_on)
        ]

    def first(self) -> list[BaseMessage]:
        """Return the longest beginning that fits."""
        count = _longest(len(self.groups), lambda n: self._fits(self.groups[:n]))
        kept, rest = self.groups[:count], self.groups[count:]
        return _flat(self._ended([*kept, *self._part(rest[:1], kept)]))

    def last(self) -> list[BaseMessage]:
        """Return the longest end that fits and begins as asked."""
        count = _longest(len(self.groups), lambda n: self._fits(self._newest(n)))
        rest, kept = self.groups[: len(self.groups) - count], self._newest(count)
        kept = [*self._part(rest[-1:], kept), *kept]
        if self._start_on:
            begins = (place for place, group in enumerate(kept) if _is(group[0], self._start_on))
            kept = kept[next(begins, len(kept)) :]
        if self.asked and len(kept) < len(self.groups) - self.asked[-1]:
            kept = self._current()
        return [*self.head, *_flat(kept)]

    def with_recalled(self, recall: _Recall) -> list[BaseMessage]:
        """Return what `last` does with older turns among it, in the order of the conversation."""
        top_k = whole_number("top_k", TOP_K if recall.top_k is None else recall.top_k, least=0)
        if not self._start_on or not _is(HumanMessage(""), self._start_on):
            raise ValueError("query and top_k bring back whole turns, which need start_on='human'")
        turns = [self.groups[start:end] for start, end in pairwise([*self.asked, len(self.groups)])]
        if len(turns) < 2 or not top_k or self._fits(*turns):
            return self.last()
        *past, current = turns
        query = recall.query if recall.query is not None else text_of(current[0][0])
        must = self._size([*self.head, *_flat(current)])
        if must >= self._most:
            return self.last()
        half = must + (self._most - must) // 2
        count = _longest(len(past), lambda n: self._fits(*past[len(past) - n :], current, most=half))
        outside, base = past[: len(past) - count], past[len(past) - count :]
        chosen: list[int] = []
        for place in ranked([_flat(turn) for turn in outside], query, recall.embeddings)[: top_k + TRIES]:
            if len(chosen) < top_k and self._fits(*(outside[i] for i in sorted([*chosen, place])), *base, current):
                chosen.append(place)

        def around(n: int) -> list[list[Group]]:
            start = len(past) - count - n
            return [*(outside[i] for i in sorted(chosen) if i < start), *past[start:], current]

        more = _longest(len(outside), lambda n: self._fits(*around(n)))
        return [*self.head, *_flat(chain(*around(more)))]

    def _current(self) -> list[Group]:
        """Return the newest question with the newest group of its turn, and older ones while they fit."""
        question, *answers = self.groups[self.asked[-1] :]
        count = _longest(len(answers), lambda n: self._fits([question, *answers[len(answers) - n :]]))
        return [question, *answers[len(answers) - max(1, count) :]] if answers else [question]

    def _newest(self, count: int) -> list[Group]:
        return self.groups[len(self.groups) - count :]

    def _fits(self, *parts: Iterable[Group], most: int | None = None) -> bool:
        size = self._size([*self.head, *_flat(chain(*parts))])
        return size <= (self._most if most is None else most)

    def _ended(self, groups: list[Group]) -> list[Group]:
        end_on, count = self._options["end_on"], len(groups)
        while end_on and count and not _is(groups[count - 1][-1], end_on):
            count -= 1
        return groups[:count]

    def _part(self, cut: list[Group], kept: list[Group]) -> list[Group]:
        """Return what of the group at the cut can stand beside those kept, as `trim_messages` splits it."""
        if not self._options["allow_partial"] or not cut or len(cut[0]) > 1 or calls_of(cut[0][0]):
            return []
        room = self._most - self._size([*self.head, *_flat(kept)])
        options = {**self._options, "start_on": None, "end_on": None, "include_system": False, "max_tokens": room}
        # Copies, since it changes what it has counted already.
        part = trim_messages(cut[0], **options, token_counter=lambda tried: self._size([m.model_copy() for m in tried]))
        return [part] if part else []


def _longest(count: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `count` that fits, given that all smaller ones do; 0 is not asked for.

    Numbers are tried from the small end, so that about as much is counted as fits.
    """
    low, high = 0, 1
    while high <= count and fits(high):
        low, high = high, 2 * high
    high = min(high, count + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _is(message: BaseMessage, kinds: Kinds) -> bool:
    listed = [kinds] if isinstance(kinds, str | type) else kinds
    return any(message.type == kind if isinstance(kind, str) else isinstance(message, kind) for kind in listed)


def _flat(groups: Iterable[Group]) -> list[BaseMessage]:
    return list(chain.from_iterable(groups))
