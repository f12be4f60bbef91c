"""The embedders that come with the package: static word vectors, sentence-transformers models, any function."""

from collections.abc import Callable
from functools import lru_cache

from shared_core.base import Embedder
from shared_core.embedders.checks import installed
from shared_core.embedders.function import CallableEmbedder
from shared_core.embedders.sentence import MINILM, SentenceTransformerEmbedder
from shared_core.embedders.static import STATIC, StaticEmbedder, static_available

__all__ = [
    "MINILM",
    "STATIC",
    "CallableEmbedder",
    "SentenceTransformerEmbedder",
    "StaticEmbedder",
    "as_embedder",
    "embedder_named",
    "static_available",
]


def as_embedder(value: Embedder | str | Callable[..., object] | None) -> Embedder | None:
    """Return the embedder that `value` stands for.

    Args:
        value: an embedder; `"static"`; the name or folder of a sentence-transformers model, for which the same object
            is returned every time; or None for the static embedder, where it is installed.

    Raises:
        MissingExtraError: the package it needs is not installed.
        TypeError: it is something else, such as a bare function, which has no name to tell its vectors by.
    """
    if value is None:
        return StaticEmbedder() if static_available() else None
    if isinstance(value, Embedder):
        return value
    if isinstance(value, str):
        return StaticEmbedder() if value == "static" else _by_name(value)
    raise TypeError(
        f"an embedder is an Embedder, a model's name or None, not {value!r}; "
        "wrap a function: CallableEmbedder(function, name='model and revision')"
    )


def embedder_named(key: str) -> Embedder | None:
    """Return the embedder with this `Fingerprint.key` if its vectors can be made here without being told more."""
    if key == STATIC.key and static_available():
        return StaticEmbedder()
    if key == MINILM.key and installed("sentence_transformers"):
        return _by_name(MINILM.name)
    return None


@lru_cache(maxsize=4)
def _by_name(model: str) -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(model)
