"""Arguments in LlamaIndex's words as the engine's."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.utils import get_tokenizer

from llama_index_infinite_memory import strippers as known_strippers
from llama_index_infinite_memory.counting import TokenizerCounter
from llama_index_infinite_memory.embeddings import as_embedder
from llama_index_infinite_memory.strippers import Stripper
from llama_index_infinite_memory.summarizing import as_summarizer
from shared_core.base import Embedder
from shared_core.engine import InfiniteMemory

__all__ = ["EmbedModel", "Settings", "Tokenizer", "known_settings", "refuse_unknown"]

Tokenizer = Callable[[str], Sized]
EmbedModel = Embedder | BaseEmbedding | Callable[[list[str]], Any] | str | None

NO_LIMIT = 2**40
"""The engine's limit; each call gets its own, because handles of one memory may have limits of their own."""

_FIXED = {
    "store",
    "session_id",
    "user_id",
    "max_tokens",
    "reserve_tokens",
    "token_counter",
    "message_overhead",
    "embedder",
}
"""Arguments of the engine that have another name here, or none."""


@dataclass(frozen=True)
class Settings:
    """What the memory behind a buffer is made with, besides its place.

    Attributes:
        tokenizer_fn: counts.
        embed_model: finds older messages by meaning.
        strippers: set text apart that only served one turn; None: `DEFAULT_STRIPPERS`.
        engine: other arguments of `InfiniteMemory`, by name.
    """

    tokenizer_fn: Tokenizer = field(default_factory=get_tokenizer)
    embed_model: EmbedModel = None
    strippers: tuple[Stripper, ...] | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        tokenizer_fn: Tokenizer | None,
        embed_model: EmbedModel,
        strippers: Iterable[Stripper] | None,
        engine: Mapping[str, Any],
    ) -> "Settings":
        """Return the settings meant, with defaults for what is None."""
        chosen = None if strippers is None else tuple(strippers)
        return cls(tokenizer_fn or get_tokenizer(), embed_model, chosen, dict(engine))

    @property
    def counter(self) -> TokenizerCounter:
        """The token counter."""
        return TokenizerCounter(self.tokenizer_fn)

    @property
    def on_overflow(self) -> str:
        """What becomes of a question that does not fit."""
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
            "max_tokens": NO_LIMIT,
            "reserve_tokens": 0,
            "token_counter": self.counter,
            "message_overhead": 0,
            "embedder": as_embedder(self.embed_model),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return as JSON data what can be written down: not a tokenizer, a model or other objects."""
        data: dict[str, Any] = {}
        data |= {name: value for name, value in self.engine.items() if isinstance(value, str | int | float)}
        if isinstance(self.embed_model, str):
            data["embed_model"] = self.embed_model
        if self.strippers is not None:
            data["strippers"] = [stripper.name for stripper in self.strippers]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], overrides: Mapping[str, Any]) -> "Settings":
        """Return what `to_dict` was made of, as far as it was written down; `overrides` come first."""
        given = {**data, **overrides}
        chosen = given.pop("strippers", None)
        if chosen is not None:
            known = {value.name: value for value in vars(known_strippers).values() if isinstance(value, Stripper)}
            chosen = [known.get(one) if isinstance(one, str) else one for one in chosen]
            chosen = [one for one in chosen if one is not None]
        return cls.of(given.pop("tokenizer_fn", None), given.pop("embed_model", None), chosen, given)


@cache
def known_settings() -> frozenset[str]:
    """Return the engine's arguments that may be given by name."""
    return frozenset(inspect.signature(InfiniteMemory).parameters) - _FIXED


def refuse_unknown(given: Mapping[str, Any], known: Sequence[str] = ()) -> None:
    """Raise what `ChatMemoryBuffer` raises if there is an argument that is not known."""
    unknown = {name: value for name, value in given.items() if name not in known_settings() and name not in known}
    if unknown:
        raise ValueError(f"Unexpected kwargs: {unknown}")
