"""The size of a list of messages, with whatever `trim_messages` takes for a token counter."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableBinding

from langchain_infinite_memory.token_counters import ASK_A_SERVER, MessageCounter, message_counter
from shared_core.base import TokenCounter
from shared_core.tokens import TokenFallbackWarning

__all__ = ["Size", "size_of"]

Size = Callable[[Sequence[BaseMessage]], int]

LISTS_BY_A_SERVER = (*ASK_A_SERVER, "langchain_anthropic")
"""Packages whose models count a list by a request."""


def size_of(counter: MessageCounter) -> Size:
    """Return a function from a list of messages to its tokens.

    A counter of one message is asked once for each; one of a list is given lists in the order of the conversation, with
    tool groups whole, and never an empty one.

    Args:
        counter: what `prune_messages` takes.

    Raises:
        ValueError: it is none of that.
    """
    whole = _of_lists(counter := _unbound(counter))
    if whole is not None:
        return lambda messages: whole(list(messages)) if messages else 0
    try:
        return _Added(message_counter("approximate" if counter is count_tokens_approximately else counter))
    except (TypeError, ValueError):
        trim_messages([], max_tokens=0, token_counter=counter)  # type: ignore[arg-type]  # raises what it raises
        raise


def _unbound(counter: Any) -> Any:
    while isinstance(counter, RunnableBinding):  # a model with settings
        counter = counter.bound
    return counter


class _Added:
    """Adds up the sizes of single messages, each counted once."""

    def __init__(self, counter: Callable[[BaseMessage], int]) -> None:
        self._counter = counter
        self._known: dict[int, tuple[int, BaseMessage]] = {}  # the message, so that its id is not another's

    def __call__(self, messages: Sequence[BaseMessage]) -> int:
        return sum(map(self._one, messages))

    def _one(self, message: BaseMessage) -> int:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (self._counter(message), message)
        return known[0]


class _ModelSize:
    """Counts with a model's `get_num_tokens_from_messages`, and without it from the first time that it raises."""

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self._model = model
        self._instead: _Added | None = None

    def __call__(self, messages: Sequence[BaseMessage]) -> int:
        if self._instead is None:
            try:
                return self._model.get_num_tokens_from_messages(list(messages))
            except Exception as error:  # what a model's tokenizer raises is not known
                self._instead = _Added(message_counter("conservative"))
                warnings.warn(
                    f"get_num_tokens_from_messages of {type(self._model).__name__} raised {type(error).__name__}: "
                    f'{error}; tokens are over-estimated instead. Pass token_counter="approximate" or a function',
                    TokenFallbackWarning,
                    stacklevel=2,
                )
        return self._instead(messages)


def _of_lists(counter: Any) -> Callable[[list[BaseMessage]], int] | None:
    """Return the function that counts a whole list; None for counters of a message or of a text."""
    if counter is len or counter is count_tokens_approximately or isinstance(counter, str | None):
        return None
    if isinstance(counter, BaseLanguageModel):
        return _ModelSize(counter) if _counts_only_lists(type(counter)) else None
    if callable(own := getattr(counter, "get_num_tokens_from_messages", None)):
        return lambda messages: int(own(messages))
    if isinstance(counter, TokenCounter) or not callable(counter) or message_counter(counter) is counter:
        return None
    return lambda messages: int(counter(messages))


def _counts_only_lists(model: type[BaseLanguageModel[Any]]) -> bool:
    """Return whether a model has a counter of its own for lists, and none for texts, and asks no server for it."""
    base = BaseLanguageModel
    if model.get_num_tokens is not base.get_num_tokens or model.get_token_ids is not base.get_token_ids:
        return False
    lists = model.get_num_tokens_from_messages
    return (
        lists is not base.get_num_tokens_from_messages and lists.__module__.partition(".")[0] not in LISTS_BY_A_SERVER
    )
