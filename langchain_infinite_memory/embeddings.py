"""What LangChain accepts as embeddings, as an embedder for the engine."""

import inspect
from collections.abc import Awaitable, Callable

from langchain_core.embeddings import Embeddings

from shared_core.doors.interop.packages import require_framework
from shared_core.plugins.base import Embedder
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.plugins.embedders import as_embedder as as_own_embedder

__all__ = ["as_embedder"]

Rows = list[list[float]]
EmbeddingsLike = (
    Embedder | Embeddings | Callable[[list[str]], Rows] | Callable[[list[str]], Awaitable[Rows]] | str | None
)

MODEL_FIELDS = ("model", "model_name", "model_id", "deployment", "repo_id")
"""The attributes in which embeddings classes keep the name of their model."""


def as_embedder(embed: EmbeddingsLike, *, name: str | None = None) -> Embedder | None:
    """Return an embedder for `InfiniteMemory(embedder=...)`.

    Documents are embedded with `embed_documents` and questions with `embed_query`; asynchronous code awaits
    `aembed_documents` and `aembed_query`. One short text is embedded at first use to learn the dimension. Vectors of
    any length are normalized. Whatever the model raises becomes an `EmbedderError`, and so do vectors that are not
    finite or have another shape.

    Args:
        embed: an `Embeddings`; a function, sync or async, from a list of texts to as many vectors;
            `"provider:model"`, as for LangChain's `init_embeddings`; or what the engine accepts: an `Embedder`, the
            name of one of its own, or None, which is returned.
        name: identifies the vectors in the store. By default, the class and the model and deployment that it names;
            or the module and name of a function. Two models must not share a name, such as deployments of one name on
            two servers.

    Raises:
        MissingExtraError: `"provider:model"` needs the package `langchain`.
        ImportError: the provider's package is not installed.
        TypeError: it is none of these.
        ValueError: the function has no name of its own, such as a lambda, and no `name` is given.
    """
    if embed is None or isinstance(embed, Embedder):
        return embed
    if isinstance(embed, str):
        if ":" not in embed:
            return as_own_embedder(embed)
        require_framework("langchain", distribution="langchain", extra="langchain")
        from langchain.embeddings import init_embeddings

        embed = init_embeddings(embed)
    if not isinstance(embed, Embeddings):
        if isinstance(embed, type) or not callable(embed):
            raise TypeError(f"embeddings must be Embeddings, a function, 'provider:model' or None, not {embed!r}")
        return CallableEmbedder(embed, name=name or _name_of_callable(embed))
    return CallableEmbedder(
        embed.embed_documents,
        name=name or _name_of_object(embed),
        query=embed.embed_query,
        adocuments=embed.aembed_documents,
        aquery=embed.aembed_query,
    )


def _name_of_object(embedder: object) -> str:
    inner = getattr(embedder, "underlying_embeddings", None)  # a cache returns the vectors of what it caches
    if isinstance(inner, Embeddings):
        return _name_of_object(inner)
    is_azures = any(cls.__name__.startswith("Azure") for cls in type(embedder).__mro__)
    # It is Azure's deployment that decides which model answers.
    deployment = getattr(embedder, "deployment", None) if is_azures else None
    return "/".join(filter(None, (type(embedder).__qualname__, _model_of(embedder), deployment)))


def _model_of(embedder: object) -> str:
    """Return the name of a model of embeddings; the empty text if it has none."""
    named = (getattr(embedder, field, None) for field in MODEL_FIELDS)
    return next((value for value in named if isinstance(value, str) and value), "")


def _name_of_callable(function: object) -> str | None:
    """Return a name for a callable that belongs to embeddings; None for any other function."""
    if inspect.ismethod(function) and _model_of(function.__self__):
        return f"{_name_of_object(function.__self__)}.{function.__name__}"
    return _name_of_object(function) if _model_of(function) and not inspect.isroutine(function) else None
