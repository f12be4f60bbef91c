"""Arguments in LangChain's words as the engine's."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_infinite_memory.embeddings import as_embedder
from langchain_infinite_memory.summarizing import SummarizerLike, as_summarizer
from langchain_infinite_memory.token_counters import TextCounter, as_token_counter
from shared_core.base import Embedder
from shared_core.engine import InfiniteMemory

__all__ = ["EmbeddingsLike", "engine_settings"]

EmbeddingsLike = Embedder | Embeddings | Callable[[list[str]], Any] | str | None


def engine_settings(
    *, embeddings: EmbeddingsLike = None, token_counter: TextCounter = None,
    summarizer: SummarizerLike | None = None, **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the arguments of `InfiniteMemory` and `SessionPool` that these stand for.

    An agent or a chain has to go on, so that a question that does not fit is sent all the same and the report says so:
    `on_overflow="keep"`, unless another is given.

    Args:
        embeddings: LangChain's `Embeddings` or what else `as_embedder` takes; the engine's `embedder` by another name.
        token_counter: what `as_token_counter` takes, such as a model.
        summarizer: what `as_summarizer` takes, such as a chat model.
        settings: the other arguments of `InfiniteMemory`, as they are.

    Raises:
        TypeError: an argument is unknown, or both `embeddings` and `embedder` are given; or as for `as_summarizer`.
        ValueError, ImportError: as for `as_embedder` and `as_token_counter`.
    """
    unknown = settings.keys() - _engine_arguments()
    if unknown:
        raise TypeError(f"unknown argument {', '.join(map(repr, sorted(unknown)))}: see InfiniteMemory for those known")
    if embeddings is not None:
        if settings.get("embedder") is not None:
            raise TypeError("embeddings and embedder are the same thing: pass one of them")
        settings["embedder"] = as_embedder(embeddings)
    if token_counter is not None:
        settings["token_counter"] = as_token_counter(token_counter)
    if summarizer is not None:
        settings["summarizer"] = as_summarizer(summarizer)
    return {"on_overflow": "keep", **settings}


@cache
def _engine_arguments() -> frozenset[str]:
    return frozenset(inspect.signature(InfiniteMemory).parameters) - {"store"}
