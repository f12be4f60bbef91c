"""The embedders of the package: static word vectors, MiniLM and other models, and any function."""

import os
from collections.abc import Callable
from functools import lru_cache

from shared_core.errors import MissingExtraError, installed
from shared_core.plugins.base import Embedder
from shared_core.plugins.embedders.callable import CallableEmbedder
from shared_core.plugins.embedders.hub import confirm, full_name, unknown
from shared_core.plugins.embedders.minilm import FOR_ONNX, FOR_TORCH, MINILM, MINILM_INT8, on_this_machine
from shared_core.plugins.embedders.onnx import OnnxEmbedder, onnx_available
from shared_core.plugins.embedders.sentence_transformers import SentenceTransformerEmbedder
from shared_core.plugins.embedders.static import STATIC, StaticEmbedder, static_available

__all__ = [
    "DEFAULT",
    "MINILM",
    "MINILM_INT8",
    "STATIC",
    "CallableEmbedder",
    "OnnxEmbedder",
    "SentenceTransformerEmbedder",
    "StaticEmbedder",
    "as_embedder",
    "embedder_for_new",
    "embedder_named",
    "onnx_available",
    "static_available",
]

DEFAULT = "INFINITE_MEMORY_EMBEDDER"
"""The variable of the environment that names the embedder of new sessions, for programs that name none."""


def as_embedder(value: Embedder | str | Callable[..., object] | None) -> Embedder | None:
    """Return the embedder that `value` means.

    Args:
        value: an embedder, a name, or None. None and `"static"` mean the static embedder; for None, the result is None
            if it is not installed. Any other name is the name or the folder of a sentence-transformers model, for which
            the same object is returned every time. `"all-MiniLM-L6-v2"` is computed by onnxruntime if the extra `onnx`
            is installed, else by torch; the vectors are the same. Pass `OnnxEmbedder()` or
            `SentenceTransformerEmbedder()` to choose. `"all-MiniLM-L6-v2-int8"` is `OnnxEmbedder(int8=True)`.

    Raises:
        MissingExtraError: the package that the embedder needs is not installed.
        EmbedderError: the name is that of no model on this machine, and the hub does not answer at once that it has it.
        TypeError: `value` is something else, such as a function, which has no name that could identify its vectors.
    """
    if value is None:
        return StaticEmbedder() if static_available() else None
    if isinstance(value, Embedder):
        return value
    if isinstance(value, str):
        return StaticEmbedder() if value == "static" else _by_name(value)
    raise TypeError(
        f"embedder={value!r}: expected an Embedder, a model's name or None; "
        "wrap a function: CallableEmbedder(function, name='model and revision')"
    )


def embedder_for_new() -> Embedder | None:
    """Return the embedder of a session that has no vectors yet, if the program names none; nothing is downloaded.

    That is MiniLM, in 8 bits if the extra `onnx` is installed, where its weights are on this machine, and else the
    static embedder, if it is installed. The variable `INFINITE_MEMORY_EMBEDDER` names another one, or `words` for none.
    """
    if named := os.environ.get(DEFAULT):
        return None if named == "words" else as_embedder(named)
    if onnx_available() and on_this_machine(*FOR_ONNX):
        return _by_name(MINILM_INT8.name)
    if installed("sentence_transformers") and on_this_machine(*FOR_TORCH):
        return _by_name(MINILM.name)
    return as_embedder(None)


def embedder_named(key: str) -> Embedder | None:
    """Return the embedder with this `Fingerprint.key`, if the key alone says how to make its vectors (else None)."""
    name = {STATIC.key: "static", MINILM.key: MINILM.name, MINILM_INT8.key: MINILM_INT8.name}.get(key)
    try:
        return None if name is None else as_embedder(name)
    except MissingExtraError:
        return None


def _by_name(model: str) -> Embedder:
    name = "" if os.path.isdir(model) else full_name(model).lower()
    is_minilm = name == MINILM.name.lower()
    if name == MINILM_INT8.name.lower() or (is_minilm and onnx_available()):
        return _onnx_embedder(int8=not is_minilm)
    if installed("sentence_transformers"):
        return _library_embedder(model, is_minilm)
    remedy = 'pip install "infinite-memory[sentence-transformers]"'
    if not is_minilm:
        raise MissingExtraError(unknown(model, f"other models need: {remedy}"), name="sentence_transformers")
    raise MissingExtraError(
        f'embedder {model!r} needs onnxruntime: pip install "infinite-memory[onnx]"; or, with torch: {remedy}',
        name="onnxruntime",
    )


@lru_cache(maxsize=2)
def _onnx_embedder(*, int8: bool) -> OnnxEmbedder:
    return OnnxEmbedder(int8=int8)


@lru_cache(maxsize=4)
def _library_embedder(model: str, is_minilm: bool) -> SentenceTransformerEmbedder:
    if not is_minilm:
        confirm(model)  # so that a wrong name fails here, not at the first question
    return SentenceTransformerEmbedder(model)
