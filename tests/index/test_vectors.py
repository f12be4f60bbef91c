"""The contract of vector indexes: ours keeps it, and it finds out indexes that break it."""

import inspect

import numpy as np
import numpy.typing as npt
import pytest

from shared_core.index.vectors import PAIRED, Half, VectorIndex
from shared_core.plugins.base import Vectors
from tests.index.vector_contract import IndexFactory, VectorContract

TESTS = {
    name: test for name, test in inspect.getmembers(VectorContract, inspect.isfunction) if name.startswith("test_")
}

Mask = npt.NDArray[np.bool_]
Found = tuple[npt.NDArray[np.int32], Vectors]


class TestContract(VectorContract):
    @pytest.fixture
    def index(self) -> IndexFactory:
        return VectorIndex


class PostFilters(VectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        rows, cosines = super().search(query, top_k)
        kept = np.full(len(rows), True) if allowed is None else allowed[rows]
        return rows[kept], cosines[kept]


class ForgetsOwners(VectorIndex):
    """A row's number is taken for that of its vector."""

    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        super().add(np.arange(len(self), len(self) + len(vectors)), vectors)


class CutsAmongEquals(VectorIndex):
    """Sorts equals rightly, but only after as many were taken as are asked for; many of one row crowd others out."""

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        found = int(np.count_nonzero(np.ones(len(self), dtype=np.bool_) if allowed is None else allowed[self.owners]))
        return self._best_per_row(query, min(top_k, found), allowed, found)


class FirstPieceOnly(VectorIndex):
    def cosines(self, query: Vectors, rows: npt.NDArray[np.int32]) -> Vectors:
        first = {owner: number for number, owner in reversed(list(enumerate(self.owners.tolist())))}
        vectors = self.matrix(np.arange(len(self)))
        found = [vectors[first[row]] @ query if row in first else np.nan for row in rows.tolist()]
        return np.array(found, dtype=np.float32)


class RoundsByPosition(VectorIndex):
    """Multiplies by blocks of rows, whose rounding differs from that of the rows left over."""

    def cosines(self, query: Vectors, rows: npt.NDArray[np.int32]) -> Vectors:
        found = super().cosines(query, rows)
        found[::2] = np.nextafter(found[::2], np.float32(2))
        return found


class KeepsBytes(VectorIndex):
    """Keeps a byte for each number."""

    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        super().add(rows, (np.round(np.asarray(vectors, dtype=np.float32) * 16) / 16).astype(np.float16))


class SharesItsVectors(VectorIndex):
    shared: VectorIndex | None = None

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        cls = type(self)
        if cls.shared is not None and cls.shared.dimension == dimension:
            self._owners, self._blocks = cls.shared._owners, cls.shared._blocks
        cls.shared = self


class FailsWhenEmpty(VectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        assert len(self), "nothing to search"
        return super().search(query, top_k, allowed)


BROKEN: list[tuple[type[VectorIndex], str]] = [
    (PostFilters, "test_the_nearest_allowed_rows_come_best_first"),
    (ForgetsOwners, "test_the_nearest_allowed_rows_come_best_first"),
    (CutsAmongEquals, "test_of_equals_the_newer_row_comes_first"),
    (CutsAmongEquals, "test_many_vectors_of_a_row_crowd_nobody_out"),
    (FirstPieceOnly, "test_cosines_of_given_rows"),
    (RoundsByPosition, "test_equal_vectors_have_equal_cosines"),
    (KeepsBytes, "test_vectors_of_half_precision_lose_nothing"),
    (SharesItsVectors, "test_a_matrix_gives_the_same_index_again"),
    (FailsWhenEmpty, "test_an_empty_index_finds_nothing"),
]


def test_every_test_of_the_contract_finds_some_broken_index_out(subtests: pytest.Subtests) -> None:
    assert {name for _, name in BROKEN} == set(TESTS)
    for kind, name in BROKEN:
        with subtests.test(kind=kind, name=name), pytest.raises(AssertionError):
            TESTS[name](VectorContract(), index=kind)


@pytest.mark.parametrize("count", [40, 3_000])
def test_what_unrelated_rows_have_in_common_is_told_by_a_few(count: int) -> None:
    random, index, read = np.random.default_rng(3), VectorIndex(8), list[int]()
    vectors = random.normal(size=(count, 8)) + 0.5
    index.add(np.arange(count), (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))
    first = index.first

    def recording(rows: npt.NDArray[np.int32]) -> Vectors:
        read.extend(rows.tolist())
        return first(rows)

    index.first = recording  # type: ignore[method-assign]
    found = index.unrelated(np.arange(count, dtype=np.int32))
    assert len(read) == min(count, PAIRED)
    assert (read[0], read[-1]) == (0, count - 1)
    kept = index.matrix(np.array(read)).astype(np.float64)
    pairs = [float(kept[a] @ kept[b]) for a in range(len(read)) for b in range(a)]
    assert found == pytest.approx((np.mean(pairs), np.std(pairs)), abs=1e-6)


def test_searching_leaves_the_number_of_threads_as_it_was() -> None:
    faiss = pytest.importorskip("faiss")
    index = VectorIndex(4)
    index.add([0], np.eye(1, 4, dtype=np.float32))
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        index.search(np.eye(1, 4, dtype=np.float32)[0], 1)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)
