"""The encoder of a BERT model as an ONNX graph, made from its weights."""

from collections.abc import Mapping

import numpy as np

from shared_core.base import Vectors
from shared_core.embedders.onnx_graph import Graph

__all__ = ["encoder"]

LEVELS = 63
"""Steps of an 8-bit weight to each side of 0. Half of what fits: where a processor adds two products in 16 bits, none
is cut off, so that every processor computes the same vectors."""


def encoder(weights: Mapping[str, Vectors], heads: int, *, quantized: bool = False) -> tuple[bytes, dict[str, Vectors]]:
    """Return the graph from the embeddings of one text's tokens to their encodings, and the arrays that go with it.

    Args:
        weights: by their names in the file of a `BertModel`.
        heads: of the attention in each layer.
        quantized: round weights to 8 bits, by row, and what is multiplied with them, by text.
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
