"""Arguments of `InfiniteMemory` in LlamaIndex's words: its tokenizer, embeddings and models."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, overload

import tiktoken
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.utils import get_tokenizer

from llama_index_infinite_memory import strippers as known_strippers
from llama_index_infinite_memory.content import MEDIA_ARGUMENTS, MEDIA_TOKENS
from llama_index_infinite_memory.embeddings import as_embedder
from llama_index_infinite_memory.strippers import Stripper
from shared_core.arguments import suggestion, whole_number
from shared_core.base import Embedder, SummarizerModel
from shared_core.interop.adapters import ModelSummarizer, memory_arguments
from shared_core.summaries.requests import AnySummarizer
from shared_core.summaries.wording import SUMMARY_PROMPT

__all__ = ["as_summarizer"]

Tokenizer = Callable[[str], Sized]
EmbedModel = Embedder | BaseEmbedding | Callable[[list[str]], Any] | str | None
SummarizerLike = BaseLLM | AnySummarizer
Given = TypeVar("Given", bound=AnySummarizer)

_FIXED = {
    "store", "session_id", "user_id", "max_tokens", "reserve_tokens", "token_counter", "message_overhead", "embedder",
}  # fmt: skip
"""Arguments of the engine that a buffer sets itself, or that have another name here."""

SEPARATOR = " "
"""What `ChatMemoryBuffer` puts between messages before it counts them as one text."""

TOKENIZED_CHARACTERS = 20_000
"""Characters given to tiktoken at once: it panics on a million of white space."""


# Counting


class TokenizerCounter:
    """Counts a text with the space before it, so that messages joined by spaces never count more than their sum.

    Counts are stored if the tokenizer is LlamaIndex's default; others cannot be identified.

    Args:
        tokenizer_fn: takes a text and returns its tokens.
    """

    def __init__(self, tokenizer_fn: Callable[[str], Sized]) -> None:
        self.tokenizer_fn = tokenizer_fn
        encoding = _default_encoding(tokenizer_fn)
        self.name = f"llama-index/{encoding}" if encoding else None

    def __call__(self, text: str, /) -> int:
        """Return the tokens of the text after a space, or alone if that is more: the first message has no space."""
        return max(self.tokens(SEPARATOR + text), self.tokens(text))

    def tokens(self, text: str) -> int:
        """Return the number of tokens of the text alone."""
        if self.name is None or len(text) <= TOKENIZED_CHARACTERS:
            return len(self.tokenizer_fn(text))
        return sum(
            len(self.tokenizer_fn(text[at : at + TOKENIZED_CHARACTERS]))
            for at in range(0, len(text), TOKENIZED_CHARACTERS)
        )


def _default_encoding(tokenizer_fn: Callable[[str], Sized]) -> str | None:
    if (
        not isinstance(tokenizer_fn, partial)
        or tokenizer_fn.args
        or tokenizer_fn.keywords != {"allowed_special": "all"}
    ):
        return None
    encoding = getattr(tokenizer_fn.func, "__self__", None)
    plain = isinstance(encoding, tiktoken.Encoding) and tokenizer_fn.func == encoding.encode
    return encoding.name if plain and isinstance(encoding, tiktoken.Encoding) else None


# Settings


@dataclass(frozen=True)
class Settings:
    """The settings of a conversation's memory.

    Attributes:
        tokenizer_fn: counts tokens.
        embed_model: finds older messages by meaning.
        strippers: set apart text that only served one turn; None: `DEFAULT_STRIPPERS`.
        media: what a block costs in tokens, by its type: one of `MEDIA_TOKENS`.
        engine: other arguments of `InfiniteMemory`, by name.
    """

    tokenizer_fn: Tokenizer = field(default_factory=get_tokenizer)
    embed_model: EmbedModel = None
    strippers: tuple[Stripper, ...] | None = None
    media: Mapping[str, int] = field(default_factory=lambda: MEDIA_TOKENS)
    engine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tokenizer_fn: Tokenizer | None,
        embed_model: EmbedModel,
        strippers: Iterable[Stripper] | None,
        engine: Mapping[str, Any],
    ) -> "Settings":
        """Return settings, with defaults for what is None."""
        chosen = None if strippers is None else tuple(strippers)
        others = dict(engine)
        media = {kind: others.pop(name, MEDIA_TOKENS[kind]) for kind, name in MEDIA_ARGUMENTS.items()}
        for kind, tokens in media.items():
            whole_number(MEDIA_ARGUMENTS[kind], tokens, least=0)
        return cls(tokenizer_fn or get_tokenizer(), embed_model, chosen, media, others)

    @property
    def counter(self) -> TokenizerCounter:
        """The token counter."""
        return TokenizerCounter(self.tokenizer_fn)

    @property
    def on_overflow(self) -> str:
        """What happens to a question that does not fit."""
        return str(self.engine.get("on_overflow", "keep"))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `InfiniteMemory`."""
        given = {name: value for name, value in self.engine.items() if name != "durability"}
        if given.get("summarizer") is not None:
            given["summarizer"] = as_summarizer(given["summarizer"])
        return {
            "placement": "messages",
            "on_overflow": "keep",
            **given,
            "reserve_tokens": 0,
            "token_counter": self.counter,
            "message_overhead": 0,
            "strippers": known_strippers.DEFAULT_STRIPPERS if self.strippers is None else self.strippers,
            "embedder": as_embedder(self.embed_model),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON data, without tokenizers, models and other objects."""
        data: dict[str, Any] = {}
        data |= {name: value for name, value in self.engine.items() if isinstance(value, str | int | float)}
        data |= {MEDIA_ARGUMENTS[kind]: tokens for kind, tokens in self.media.items() if tokens != MEDIA_TOKENS[kind]}
        if isinstance(self.embed_model, str):
            data["embed_model"] = self.embed_model
        if self.strippers is not None:
            data["strippers"] = [stripper.name for stripper in self.strippers]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], overrides: Mapping[str, Any]) -> "Settings":
        """Return the settings that `to_dict` was called on, as far as it holds them; `overrides` take precedence."""
        given = {**data, **overrides}
        chosen = given.pop("strippers", None)
        if chosen is not None:
            known = {value.name: value for value in vars(known_strippers).values() if isinstance(value, Stripper)}
            chosen = [known.get(one) if isinstance(one, str) else one for one in chosen]
            chosen = [one for one in chosen if one is not None]
        return cls.of(given.pop("tokenizer_fn", None), given.pop("embed_model", None), chosen, given)


def refuse_unknown(given: Mapping[str, Any], known: Sequence[str] = ()) -> None:
    """Raise the error of `ChatMemoryBuffer` if an argument is unknown."""
    accepted = memory_arguments() - _FIXED | set(MEDIA_ARGUMENTS.values()) | set(known)
    unknown = {name: value for name, value in given.items() if name not in accepted}
    if unknown:
        near = suggestion(next(iter(unknown)), accepted | {"token_limit", "tokenizer_fn", "embed_model", "session_id"})
        raise ValueError(f"Unexpected kwargs: {unknown}{near}")


# Summaries


@overload
def as_summarizer(llm: BaseLLM, *, prompt: str = ...) -> SummarizerModel: ...


@overload
def as_summarizer(llm: Given, *, prompt: str = ...) -> Given: ...


def as_summarizer(llm: SummarizerLike, *, prompt: str = SUMMARY_PROMPT) -> AnySummarizer:
    """Return a summarizer for `InfiniteMemory(summarizer=...)` and for `merge(..., summarizer=...)`.

    Args:
        llm: any `LLM`; or a function of the summary so far (or None) and messages of the engine, which is returned as
            it is.
        prompt: what the model is told; `{previous}` and `{messages}` are filled in. A merge asks a question of its own.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(llm, BaseLLM):
        return _model_summarizer(llm, prompt)
    if isinstance(llm, type) or not callable(llm):
        raise TypeError(f"summarizer must be an LLM or a function, not {llm!r}")
    return llm


def _model_summarizer(llm: BaseLLM, prompt: str) -> SummarizerModel:
    async def acomplete(text: str) -> str:
        return (await llm.acomplete(text)).text

    return ModelSummarizer(lambda text: llm.complete(text).text, acomplete, prompt)
