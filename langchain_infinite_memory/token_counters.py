"""Whatever LangChain takes for a token counter, as one of the engine's."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_infinite_memory.messages import read_message
from shared_core.base import TokenCounter
from shared_core.tokens import ConservativeCounter, TokenFallbackWarning, as_counter, message_tokens

__all__ = ["FRAMING", "ApproximateCounter", "ModelCounter", "as_token_counter", "message_counter"]

FRAMING = 4
"""Tokens of framing per message where the caller's counter counts texts; the engine's default `message_overhead`."""

ASK_A_SERVER = ("langchain_google_genai", "langchain_google_vertexai", "langchain_cohere", "langchain_ibm")
"""Packages whose models count by a request for each text."""

TextCounter = TokenCounter | Callable[[str], int] | BaseLanguageModel[Any] | str | None
MessageCounter = (
    TextCounter | Callable[[BaseMessage], int] | Callable[[list[BaseMessage]], int] | Callable[[Sequence[Any]], int]
)


class ApproximateCounter:
    """A quarter of the number of characters, rounded up, as `count_tokens_approximately` has it by default."""

    name: str | None = "langchain/approximate"

    def __call__(self, text: str, /) -> int:
        """Return the number of characters over four, rounded up."""
        return -(-len(text) // 4)


class ModelCounter:
    """Counts with a model's `get_num_tokens`, without network.

    Where the model has no tokenizer of its own (LangChain would download GPT-2's), or asks a server, or raises, as
    OpenAI's do for the name of a special token in a text, `ConservativeCounter` counts instead, and the first time a
    `TokenFallbackWarning` is given. The counts have no name, so they are not stored.

    Args:
        model: any LangChain model.
    """

    name: str | None = None

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self._model = model
        self._instead = ConservativeCounter()
        self._warned = False
        self._why = _why_not(model)
        if self._why:
            self._warn(self._why)

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of `text`; never raises."""
        if self._why:
            return self._instead(text)
        try:
            return self._model.get_num_tokens(text)
        except Exception as error:  # a counter never raises, and what a model's tokenizer raises is not known
            self._warn(f"raised {type(error).__name__}: {error}")
            return self._instead(text)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the token counter of {type(self._model).__name__} {why}; tokens are over-estimated where it is not "
                'used. Pass token_counter="o200k_base", "approximate" or a callable(str) -> int',
                TokenFallbackWarning,
                stacklevel=4,
            )


def _why_not(model: BaseLanguageModel[Any]) -> str:
    """Return why a model's counter cannot be used; empty if it can."""
    own = type(model)
    if own.get_num_tokens.__module__.partition(".")[0] in ASK_A_SERVER:
        return "asks a server for each text"
    plain = (
        own.get_num_tokens is BaseLanguageModel.get_num_tokens and own.get_token_ids is BaseLanguageModel.get_token_ids
    )
    return "is GPT-2's, which would have to be downloaded" if plain and model.custom_get_token_ids is None else ""


def as_token_counter(counter: TextCounter) -> TokenCounter:
    """Return the token counter meant, for `InfiniteMemory(token_counter=...)`.

    Args:
        counter: a LangChain model (see `ModelCounter`); `"approximate"` or `count_tokens_approximately` for a quarter
            of the characters; or what the engine takes: a `TokenCounter`, a `callable(str) -> int`, the name of a
            tiktoken encoding or model, or None for its default.

    Raises:
        TypeError: it is something else, such as a function of messages: that is for `message_counter`.
        ValueError: the name is unknown.
    """
    if isinstance(counter, BaseLanguageModel):
        return ModelCounter(counter)
    if counter == "approximate" or counter is count_tokens_approximately:
        return ApproximateCounter()
    if _takes_a_message(counter):
        raise TypeError(f"token_counter must count a text, and {counter!r} counts a message; use message_counter")
    return as_counter(counter)


def message_counter(counter: MessageCounter) -> Callable[[BaseMessage], int]:
    """Return a function from a message to its size, by the rule of `trim_messages`.

    Args:
        counter: `len` (each message counts 1); a function whose first parameter is annotated `BaseMessage`; any other
            function, which is given a list of one message; `"approximate"`; or a model, a `TokenCounter`, the name of a
            tiktoken encoding or None, by which text, tool calls and media are counted as the engine counts them, with
            4 tokens of framing. A model's `get_num_tokens_from_messages` is not used: it may ask a server, fetch images
            and raise.

    Raises:
        TypeError: it is none of these.
        ValueError: the name is unknown.
    """
    if counter is len:
        return lambda message: 1
    if counter == "approximate":
        return lambda message: count_tokens_approximately([message])
    if counter is None or isinstance(counter, str | BaseLanguageModel | TokenCounter):
        of_text = as_token_counter(counter)
        return lambda message: message_tokens(read_message(message)[0], of_text, FRAMING)
    if not callable(counter):
        raise TypeError(f"token_counter must be a function, a model, a str or None, not {counter!r}")
    function: Callable[[Any], int] = counter
    return function if _takes_a_message(function) else lambda message: function([message])


def _takes_a_message(counter: object) -> bool:
    if not callable(counter):
        return False
    try:
        parameters = inspect.signature(counter).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    return next((parameter.annotation is BaseMessage for parameter in parameters), False)
