"""What LangChain accepts as a token counter, as a counter of texts or of lists of messages."""

from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages.utils import count_tokens_approximately

from shared_core.errors import warn
from shared_core.plugins.base import OVERHEAD, TokenCounter
from shared_core.tokens import (
    CallableCounter,
    ConservativeCounter,
    TiktokenCounter,
    TokenFallbackWarning,
    as_counter,
)

__all__ = ["as_token_counter"]

REMOTE = (
    "langchain_anthropic", "langchain_google_genai", "langchain_google_vertexai", "langchain_cohere", "langchain_ibm",
)  # fmt: skip
"""Packages whose models send a request for each text or list that they count."""

TextCounter = TokenCounter | Callable[[str], int] | BaseLanguageModel[Any] | str | None

_unreachable: set[type] = set()
"""Models whose tokenizers could not be reached; the network is tried once per process."""


class ModelCounter:
    """Counts with a model's `get_num_tokens`. What that refuses is over-estimated; a `TokenFallbackWarning` says so.

    The counter has no name, so its counts are not stored.
    """

    name: str | None = None
    overhead = OVERHEAD

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self._model = model
        self._fallback = ConservativeCounter()
        self._warned = False

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of `text`; never raises."""
        kind = type(self._model)
        if kind in _unreachable:
            return self._fallback(text)
        try:
            return self._model.get_num_tokens(text)
        except Exception as error:  # a counter never raises, and a tokenizer may raise anything
            if isinstance(error, OSError):
                _unreachable.add(kind)
            if not self._warned:
                self._warned = True
                _warn(kind, f"raised {type(error).__name__}: {error}")
            return self._fallback(text)


def as_token_counter(counter: TextCounter) -> TokenCounter:
    """Return a token counter for `InfiniteMemory(token_counter=...)`.

    Texts for a model of OpenAI are counted with its tiktoken table, and for any other with the model's own tokenizer.
    If that would send a request, or if the model has none and would download GPT-2's, tokens are over-estimated, and a
    `TokenFallbackWarning` says so.

    Args:
        counter: a LangChain model; `"approximate"` or `count_tokens_approximately` for a quarter of the characters; or
            what the engine accepts: a `TokenCounter`, a `callable(str) -> int`, the name of a tiktoken encoding or
            model, or None for its default.

    Raises:
        TypeError: it is something else.
        ValueError: the name is unknown.
    """
    if isinstance(counter, BaseLanguageModel):
        return _counter_of_model(counter)
    if counter == "approximate" or counter is count_tokens_approximately:
        return CallableCounter(lambda text: -(-len(text) // 4), "langchain/approximate")
    return as_counter(counter)


def _counter_of_model(model: BaseLanguageModel[Any]) -> TokenCounter:
    kind = type(model)
    if model.custom_get_token_ids is not None:
        return ModelCounter(model)
    if _package(kind.get_token_ids) == "langchain_openai":
        # Its own method waits for the network at every text, and refuses texts that name a special token.
        named: Any = model
        try:
            return TiktokenCounter(named.tiktoken_model_name or named.model_name or "")
        except ValueError:  # tiktoken does not know the model
            return TiktokenCounter()
    if _package(kind.get_num_tokens) in REMOTE:
        _warn(kind, "asks a server for each text")
    elif _counts_texts(kind):
        return ModelCounter(model)
    else:
        _warn(kind, "is GPT-2's, which would have to be downloaded")
    return ConservativeCounter()


def _counts_texts(model: type[BaseLanguageModel[Any]]) -> bool:
    base = BaseLanguageModel
    return model.get_num_tokens is not base.get_num_tokens or model.get_token_ids is not base.get_token_ids


def _package(function: Callable[..., Any]) -> str:
    return function.__module__.partition(".")[0]


def _warn(model: type, reason: str) -> None:
    warn(
        f"the token counter of {model.__name__} {reason}; it is not used, and tokens are over-estimated. "
        'Pass token_counter="o200k_base", "approximate" or a callable(str) -> int',
        TokenFallbackWarning,
    )
