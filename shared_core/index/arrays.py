"""A NumPy array that grows at its end in amortised constant time."""

from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Growing"]

Scalar = TypeVar("Scalar", bound=np.generic)


class Growing(Generic[Scalar]):
    """An append-only array of one dtype.

    Args:
        dtype: of the elements.
        values: what it begins with.
    """

    def __init__(self, dtype: type[Scalar], values: npt.ArrayLike = ()) -> None:
        self._buffer: npt.NDArray[Scalar] = np.array(values, dtype=dtype)
        self._size = len(self._buffer)

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> npt.NDArray[Scalar]:
        """The elements: a view, valid until the next `extend`."""
        return self._buffer[: self._size]

    def extend(self, values: npt.ArrayLike) -> None:
        """Append elements."""
        added = np.asarray(values, dtype=self._buffer.dtype)
        needed = self._size + len(added)
        if needed > len(self._buffer):
            grown = np.empty(max(16, needed, 2 * len(self._buffer)), dtype=self._buffer.dtype)
            grown[: self._size] = self.values
            self._buffer = grown
        self._buffer[self._size : needed] = added
        self._size = needed
