"""An ONNX graph written node by node, as the bytes that onnxruntime reads, with its large arrays beside them."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Graph"]

Array = npt.NDArray[Any]
Value = int | float | bytes | str

IR_VERSION, OPSET = 9, 20
FLOAT, INT8, INT64 = 1, 3, 7
KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.int8): INT8, np.dtype(np.int64): INT64}
INLINE = 1024
"""Bytes up to which an array is written into the graph."""


class Graph:
    """A network of one input and one output, both matrices of float32 of `width` columns.

    The field numbers are those of `onnx.proto`. Writing the few kinds of message that are needed here takes less than
    loading the library that writes all of them.

    Args:
        width: columns of the input and the output.
    """

    INPUT = "rows"

    def __init__(self, width: int) -> None:
        self.large: dict[str, Array] = {}  # by name, for `SessionOptions.add_external_initializers`
        self._width = width
        self._arrays: list[bytes] = []
        self._nodes: list[bytes] = []

    def constant(self, array: Array) -> str:
        """Add an array of float32, int8 or int64 and return its name; a large one is not copied."""
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
        """Add a node and return the name of what it computes; an empty input is one left out."""
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
    """Describe a matrix of any number of rows."""
    shape = _message((1, _message((2, "length"))), (1, _message((1, width))))
    return _message((1, name), (2, _message((1, _message((1, FLOAT), (2, shape))))))


def _message(*fields: tuple[int, Value]) -> bytes:
    """Write a protocol buffer: numbers as varints or 32-bit floats, everything else after its length."""
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
