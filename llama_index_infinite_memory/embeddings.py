"""LlamaIndex's embeddings as embedders for the engine."""

from collections.abc import Awaitable, Callable

from llama_index.core.base.embeddings.base import BaseEmbedding

from shared_core.plugins.base import Embedder
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.plugins.embedders import as_embedder as as_own_embedder

__all__ = ["as_embedder"]

Rows = list[list[float]]
Function = Callable[[list[str]], Rows] | Callable[[list[str]], Awaitable[Rows]]
EmbedModel = Embedder | BaseEmbedding | Function | str | None

NO_MODEL = "unknown"
"""The default of `BaseEmbedding.model_name`."""


def as_embedder(embed_model: EmbedModel, *, name: str | None = None) -> Embedder | None:
    """Return an embedder for `InfiniteMemory(embedder=...)`; `Settings.embed_model` is never used.

    Stored messages are embedded with `get_text_embedding_batch` and questions with `get_query_embedding`; asynchronous
    code awaits their asynchronous versions, if the model has its own. One short text is embedded at first use to learn
    the dimension. Vectors of any length are normalized. Whatever the model raises becomes an `EmbedderError`, and so do
    vectors that are not finite or have another shape.

    Args:
        embed_model: a `BaseEmbedding`; a function, sync or async, from a list of texts to as many vectors; or what
            else the engine accepts: an `Embedder`, a name such as `"static"`, or None, which is returned.
        name: identifies the vectors in the store. By default, the class and the model that it names, or the module and
            name of a function. Two models must not share a name.

    Raises:
        TypeError: it is none of these.
        ValueError: `"default"`, which LlamaIndex would resolve to a model that needs a key; or a function has no name
            of its own, such as a lambda, and no `name` is given.
    """
    if embed_model is None or isinstance(embed_model, Embedder):
        return embed_model
    if isinstance(embed_model, str):
        if embed_model == "default":
            raise ValueError('embed_model="default" is OpenAI\'s for LlamaIndex: pass the object, or "static"')
        return as_own_embedder(embed_model)
    if isinstance(embed_model, BaseEmbedding):
        return _of_embedding(embed_model, name)
    if isinstance(embed_model, type) or not callable(embed_model):
        raise TypeError(f"embed_model must be a BaseEmbedding, a function, a name or None, not {embed_model!r}")
    return CallableEmbedder(embed_model, name=name)


def _of_embedding(model: BaseEmbedding, name: str | None) -> Embedder:
    return CallableEmbedder(
        model.get_text_embedding_batch,
        name=name or _name_of_model(model),
        query=model.get_query_embedding,
        adocuments=model.aget_text_embedding_batch if _is_asynchronous(type(model)) else None,
        aquery=model.aget_query_embedding,
    )


def _is_asynchronous(model: type[BaseEmbedding]) -> bool:
    """Return whether a model has asynchronous methods of its own; those of `BaseEmbedding` block the event loop."""
    return (
        model._aget_text_embedding is not BaseEmbedding._aget_text_embedding
        or model._aget_text_embeddings is not BaseEmbedding._aget_text_embeddings
    )


def _name_of_model(model: BaseEmbedding) -> str:
    own = model.class_name()
    known = own if own != BaseEmbedding.class_name() else type(model).__qualname__  # the class does not name itself
    return f"{known}/{model.model_name}" if model.model_name not in ("", NO_MODEL) else known
