"""The embedders of the package: static word vectors, MiniLM, and any function."""

import os
from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache

from shared_core.errors import EmbedderError, MissingExtraError
from shared_core.plugins.base import Embedder
from shared_core.plugins.embedders.callable import CallableEmbedder
from shared_core.plugins.embedders.minilm import MINILM, MINILM_INT8, on_this_machine
from shared_core.plugins.embedders.onnx import OnnxEmbedder, onnx_available
from shared_core.plugins.embedders.static import STATIC, StaticEmbedder, static_available

__all__ = [
    "DEFAULT",
    "MINILM",
    "MINILM_INT8",
    "STATIC",
    "CallableEmbedder",
    "OnnxEmbedder",
    "StaticEmbedder",
    "as_embedder",
    "embedder_for_new",
    "embedder_named",
    "onnx_available",
    "static_available",
]

DEFAULT = "INFINITE_MEMORY_EMBEDDER"
"""The variable of the environment that names the embedder of new sessions, for programs that name none."""

NAMES = ("words", "static", "all-MiniLM-L6-v2", "all-MiniLM-L6-v2-int8")
"""The names of embedders; `words` is none."""

_INT8 = {MINILM.name.lower(): False, MINILM_INT8.name.lower(): True}


def as_embedder(value: Embedder | str | Callable[..., object] | None) -> Embedder | None:
    """Return the embedder that `value` means.

    Args:
        value: an embedder, a name, or None. None and `"static"` mean the static embedder; for None, the result is None
            if it is not installed. `"all-MiniLM-L6-v2"` is `OnnxEmbedder()`, and `"all-MiniLM-L6-v2-int8"` is
            `OnnxEmbedder(int8=True)`, the same object every time.

    Raises:
        MissingExtraError: the package that the embedder needs is not installed.
        EmbedderError: no embedder has this name.
        TypeError: `value` is something else, such as a function, which has no name that could identify its vectors.
    """
    if value is None:
        return StaticEmbedder() if static_available() else None
    if isinstance(value, Embedder):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"embedder={value!r}: expected an Embedder, a name or None; "
            "wrap a function: CallableEmbedder(function, name='model and revision')"
        )
    if value == "static":
        return StaticEmbedder()
    int8 = _INT8.get((value if "/" in value else f"sentence-transformers/{value}").lower())
    if int8 is None:
        raise EmbedderError(_unknown(value))
    return _minilm(int8=int8)


def embedder_for_new() -> Embedder | None:
    """Return the embedder of a session that has no vectors yet, if the program names none; nothing is downloaded.

    That is MiniLM in 8 bits, where the extra `onnx` is installed and its weights are on this machine, and else the
    static embedder, if it is installed. The variable `INFINITE_MEMORY_EMBEDDER` names another one, or `words` for none.
    """
    if named := os.environ.get(DEFAULT):
        return None if named == "words" else as_embedder(named)
    return _minilm(int8=True) if onnx_available() and on_this_machine() else as_embedder(None)


def embedder_named(key: str) -> Embedder | None:
    """Return the embedder with this `Fingerprint.key`, if the key alone says how to make its vectors (else None)."""
    name = {STATIC.key: "static", MINILM.key: MINILM.name, MINILM_INT8.key: MINILM_INT8.name}.get(key)
    try:
        return None if name is None else as_embedder(name)
    except MissingExtraError:
        return None


@lru_cache(maxsize=2)
def _minilm(*, int8: bool) -> OnnxEmbedder:
    return OnnxEmbedder(int8=int8)


def _unknown(name: str) -> str:
    similar = get_close_matches(name, NAMES, n=1)
    suggestion = f"Did you mean {similar[0]!r}? " if similar else ""
    return (
        f"embedder={name!r}: there is none of this name. {suggestion}Choose {', '.join(map(repr, NAMES))}, or wrap "
        "any model: CallableEmbedder(SentenceTransformer('org/model').encode, name='org/model')"
    )
