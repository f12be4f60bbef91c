"""Arguments of `InfiniteMemory` in LlamaIndex's words: its tokenizer, embeddings and models."""

from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any

import tiktoken
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.utils import get_tokenizer

from llama_index_infinite_memory.embeddings import EmbedModel, as_embedder
from llama_index_infinite_memory.strippers import DEFAULT_STRIPPERS
from shared_core.arguments import suggestion
from shared_core.display import shown
from shared_core.doors.interop.adapters import ModelSummarizer, memory_arguments
from shared_core.plugins.base import INPUT_TOKENS, Embedder, SummarizerModel
from shared_core.summaries.wording import SUMMARY_PROMPT
from shared_core.tokens.tiktoken import TiktokenCounter

__all__ = ["as_summarizer"]

Tokenizer = Callable[[str], Sized]

_FIXED = {
    "store", "session_id", "user_id", "max_tokens", "reserve_tokens", "token_counter", "embedder",
}  # fmt: skip
"""Arguments of the engine that a buffer sets itself, or that have another name here."""

SEPARATOR = " "
"""What `ChatMemoryBuffer` puts between messages before it counts them as one text."""


# Counting


class TokenizerCounter:
    """Counts a text with the space before it, so that messages joined by spaces never count more than their sum.

    Counts are stored if the tokenizer is one of tiktoken's, as LlamaIndex makes it; others cannot be identified.

    Args:
        tokenizer_fn: takes a text and returns its tokens.
    """

    def __init__(self, tokenizer_fn: Tokenizer) -> None:
        self.overhead = 0
        encoding = _encoding(tokenizer_fn)
        self.name = f"llama-index/{encoding}" if encoding else None
        self._count = TiktokenCounter(encoding) if encoding else lambda text: len(tokenizer_fn(text))

    def __call__(self, text: str, /) -> int:
        """Return the tokens of the text after a space, or alone if that is more: the first message has no space."""
        return max(self._count(SEPARATOR + text), self._count(text))


def _encoding(tokenizer_fn: Tokenizer) -> str | None:
    """Return the name of the encoding if a tokenizer is made as LlamaIndex makes its default one."""
    encoding = getattr(tokenizer_fn.func, "__self__", None) if isinstance(tokenizer_fn, partial) else None
    if not isinstance(tokenizer_fn, partial) or not isinstance(encoding, tiktoken.Encoding):
        return None
    made_so = (tokenizer_fn.func, tokenizer_fn.args, tokenizer_fn.keywords)
    return encoding.name if made_so == (encoding.encode, (), {"allowed_special": "all"}) else None


# Settings


class Settings:
    """How messages of a conversation are counted and recalled.

    Args:
        given: arguments of `from_defaults`, by name; None is the default of each.

    Raises:
        TypeError, ValueError: `tokenizer_fn` is no function, or an argument is unknown.
    """

    def __init__(self, **given: Any) -> None:
        self.given = {name: value for name, value in given.items() if value is not None}
        if "strippers" in self.given:
            self.given["strippers"] = tuple(self.given["strippers"])
        _refuse_unknown(self.given)
        check_tokenizer(self.given.get("tokenizer_fn"))
        self.tokenizer_fn: Tokenizer = self.given.get("tokenizer_fn") or get_tokenizer()
        self.counter = TokenizerCounter(self.tokenizer_fn)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `InfiniteMemory`."""
        given = {"placement": "messages", "on_overflow": "keep", "strippers": DEFAULT_STRIPPERS, **self.given}
        given.pop("tokenizer_fn", None)
        given["embedder"] = engine_embedder(given.pop("embed_model", None))
        given["summarizer"] = engine_summarizer(given.get("summarizer"))
        return given | {"reserve_tokens": 0, "token_counter": self.counter}

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON data, without tokenizers, models and other objects."""
        return {name: value for name, value in self.given.items() if isinstance(value, str | int | float)}

    def unwritten(self) -> list[str]:
        """Return the names of the arguments that `to_dict` cannot write."""
        return sorted(self.given.keys() - self.to_dict().keys())


def engine_embedder(embed_model: EmbedModel) -> Embedder | str | None:
    """Return the argument `embedder` of `InfiniteMemory`."""
    return "words" if embed_model == "words" else as_embedder(embed_model)


def engine_summarizer(summarizer: Any) -> Any:
    """Return the argument `summarizer` of `InfiniteMemory`."""
    return as_summarizer(summarizer) if isinstance(summarizer, BaseLLM) else summarizer


def check_tokenizer(tokenizer_fn: object) -> None:
    """Raise TypeError unless it can be called, or is None."""
    if tokenizer_fn is not None and not callable(tokenizer_fn):
        raise TypeError(f"{shown('tokenizer_fn', tokenizer_fn)}: expected a function from a text to a list of tokens")


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    """Raise the error of `ChatMemoryBuffer` if an argument is unknown."""
    accepted = memory_arguments() - _FIXED | {"tokenizer_fn", "embed_model"}
    unknown = {name: value for name, value in given.items() if name not in accepted}
    if unknown:
        near = suggestion(next(iter(unknown)), accepted | {"token_limit", "session_id", "store"})
        raise ValueError(f"Unexpected kwargs: {unknown}{near}")


# Summarizers


def as_summarizer(llm: BaseLLM, *, prompt: str = SUMMARY_PROMPT, input_tokens: int = INPUT_TOKENS) -> SummarizerModel:
    """Return a summarizer for `InfiniteMemory(summarizer=...)` and for `merge(..., summarizer=...)`.

    Args:
        llm: any `LLM`.
        prompt: what the model is told; `{previous}` and `{messages}` are filled in. A merge asks a question of its own.
        input_tokens: the largest input of one call of the model, in tokens. The summary may take an eighth of it.
    """

    async def acomplete(text: str) -> str:
        return (await llm.acomplete(text)).text

    return ModelSummarizer(lambda text: llm.complete(text).text, acomplete, prompt, input_tokens)
