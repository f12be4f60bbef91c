"""What LangChain accepts as a token counter, as a counter of texts."""

from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages.utils import count_tokens_approximately

from shared_core.errors import warn
from shared_core.plugins.base import TokenCounter
from shared_core.tokens import (
    CallableCounter,
    ConservativeCounter,
    TiktokenCounter,
    TokenFallbackWarning,
    as_counter,
)

__all__ = ["as_token_counter"]

TextCounter = TokenCounter | Callable[[str], int] | BaseLanguageModel[Any] | str | None


def as_token_counter(counter: TextCounter) -> TokenCounter:
    """Return a token counter for `InfiniteMemory(token_counter=...)`.

    Args:
        counter: a model of OpenAI, whose texts are counted with its tiktoken table; any other model, for which tokens
            are over-estimated with a `TokenFallbackWarning`, as most would ask a server or download GPT-2's tokenizer;
            `"approximate"` or `count_tokens_approximately` for a quarter of the characters; or what
            the engine accepts: a `TokenCounter`, a `callable(str) -> int`, the name of a tiktoken encoding or model, or
            None for its default.

    Raises:
        TypeError: it is something else.
        ValueError: the name is unknown.
    """
    if isinstance(counter, BaseLanguageModel):
        return _counter_of_model(counter)
    if counter == "approximate" or counter is count_tokens_approximately:
        return CallableCounter(lambda text: -(-len(text) // 4), "langchain/approximate")
    return as_counter(counter)


def _counter_of_model(model: Any) -> TokenCounter:
    if model.custom_get_token_ids is not None:
        return CallableCounter(model.get_num_tokens)
    if type(model).get_token_ids.__module__.startswith("langchain_openai."):
        try:
            return TiktokenCounter(model.tiktoken_model_name or model.model_name or "")
        except ValueError:  # tiktoken does not know the model
            return TiktokenCounter()
    warn(
        f"{type(model).__name__} is not asked to count tokens, which may send a request for each text; they are "
        'over-estimated. Pass token_counter="o200k_base", "approximate" or a callable(str) -> int, such as '
        "model.get_num_tokens",
        TokenFallbackWarning,
    )
    return ConservativeCounter()
