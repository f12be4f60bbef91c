"""All vectors in plain NumPy: the reference that every other index must agree with, and enough for a short list."""

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from shared_core.index.arrays import GrowingArray
from shared_core.index.vector_storage import Half, Mask
from shared_core.index.vectors import VectorIndex, dot
from shared_core.plugins.base import Vectors


class ExactVectorIndex(VectorIndex):
    """All vectors in half precision, compared one by one."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self._flat: GrowingArray[np.float16] = GrowingArray(np.float16)

    @override
    def _keep(self, vectors: Half) -> None:
        self._flat.extend(vectors.ravel())

    @override
    def matrix(self, start: int = 0, stop: int | None = None) -> Half:
        return self._flat.values.reshape(-1, self.dimension)[start:stop]

    @override
    def _vectors(self, numbers: npt.NDArray[np.int64]) -> Vectors:
        return self.matrix()[numbers].astype(np.float32)

    @override
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> tuple[npt.NDArray[np.int64], Vectors]:
        numbers = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed[self.owners])
        cosines = dot(self._vectors(numbers), query)
        best = np.argsort(-cosines, kind="stable")[:top_k]
        return numbers[best], cosines[best]
