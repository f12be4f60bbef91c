"""The contract of vector indexes: ours keeps it, and it finds out indexes that break it."""

import inspect

import numpy as np
import numpy.typing as npt
import pytest

from shared_core.index.exact_vectors import ExactVectorIndex
from shared_core.index.vector_storage import Half
from shared_core.index.vectors import PAIRED, FaissVectorIndex, VectorIndex
from shared_core.plugins.base import Vectors
from shared_core.testing.index_contract import IndexContract, IndexFactory

TESTS = {name: test for name, test in inspect.getmembers(IndexContract, inspect.isfunction) if name.startswith("test_")}

Mask = npt.NDArray[np.bool_]
Found = tuple[npt.NDArray[np.int32], Vectors]
Nearest = tuple[npt.NDArray[np.int64], Vectors]


class TestExact(IndexContract):
    @pytest.fixture
    def index(self) -> IndexFactory:
        return ExactVectorIndex


class TestFaiss(IndexContract):
    @pytest.fixture
    def index(self) -> IndexFactory:
        return FaissVectorIndex


class PostFilters(ExactVectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        rows, cosines = super().search(query, top_k)
        kept = np.full(len(rows), True) if allowed is None else allowed[rows]
        return rows[kept], cosines[kept]


class PostFiltersInFaiss(FaissVectorIndex):
    def _nearest(self, query: Vectors, top_k: int, allowed: Mask | None) -> Nearest:
        numbers, cosines = super()._nearest(query, top_k, None)
        kept = np.full(len(numbers), True) if allowed is None else allowed[self.owners[numbers]]
        return numbers[kept], cosines[kept]


class ForgetsOwners(ExactVectorIndex):
    """A row's number is taken for that of its vector."""

    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        super().add(np.arange(len(self), len(self) + len(vectors)), vectors)


class WorstFirst(ExactVectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        rows, cosines = super().search(query, top_k, allowed)
        return rows[::-1], cosines[::-1]


class DropsTheMask(ExactVectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        return super().search(query, top_k)


class OldestOfEquals(ExactVectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        rows, cosines = super().search(query, len(self), allowed)
        order = np.lexsort((rows, -cosines))[:top_k]
        return rows[order], cosines[order]


class CutsAmongEquals(FaissVectorIndex):
    """Sorts equals rightly, but only after as many were taken as are asked for."""

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        vectors = np.full(len(self), True) if allowed is None else allowed[self.owners]
        found = int(np.count_nonzero(vectors))
        ask = top_k
        while True:
            rows, cosines = self._best_per_row(query, min(ask, found), allowed)
            if len(rows) >= top_k or ask >= found:
                return rows[:top_k], cosines[:top_k]
            ask *= 4


class CrowdsOut(FaissVectorIndex):
    """Takes the best vectors where the best rows are asked for."""

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        vectors = np.full(len(self), True) if allowed is None else allowed[self.owners]
        ask = min(4 * top_k, int(np.count_nonzero(vectors)))
        rows, cosines = self._best_per_row(query, ask, allowed)
        return rows[:top_k], cosines[:top_k]


class FirstPieceOnly(ExactVectorIndex):
    def cosines(self, query: Vectors, rows: npt.NDArray[np.int32]) -> Vectors:
        first = {owner: number for number, owner in reversed(list(enumerate(self.owners.tolist())))}
        found = [self.matrix()[first[row]] @ query if row in first else np.nan for row in rows.tolist()]
        return np.array(found, dtype=np.float32)


class ZeroForUnknown(ExactVectorIndex):
    def cosines(self, query: Vectors, rows: npt.NDArray[np.int32]) -> Vectors:
        known: Vectors = np.nan_to_num(super().cosines(query, rows))
        return known


class SortsWhatIsAsked(ExactVectorIndex):
    def cosines(self, query: Vectors, rows: npt.NDArray[np.int32]) -> Vectors:
        return super().cosines(query, np.sort(rows))


class RoundsByPosition(ExactVectorIndex):
    """Multiplies by blocks of rows, whose rounding differs from that of the rows left over."""

    def cosines(self, query: Vectors, rows: npt.NDArray[np.int32]) -> Vectors:
        found = super().cosines(query, rows)
        found[::2] = np.nextafter(found[::2], np.float32(2))
        return found


class KeepsBytes(ExactVectorIndex):
    """Keeps a byte for each number."""

    def _keep(self, vectors: Half) -> None:
        super()._keep((np.round(vectors * 16) / 16).astype(np.float16))


class SharesItsVectors(ExactVectorIndex):
    shared: ExactVectorIndex | None = None

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        cls = type(self)
        if cls.shared is not None and cls.shared.dimension == dimension:
            self._owners, self._flat = cls.shared._owners, cls.shared._flat
        cls.shared = self


class FailsWhenEmpty(ExactVectorIndex):
    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> Found:
        assert len(self), "nothing to search"
        return super().search(query, top_k, allowed)


class AppendsInOrderOnly(ExactVectorIndex):
    def add(self, rows: npt.ArrayLike, vectors: Vectors | Half) -> None:
        super().add(np.sort(np.asarray(rows, dtype=np.int32)), vectors)


BROKEN: list[tuple[type[VectorIndex], str]] = [
    (PostFilters, "test_only_allowed_rows_are_searched"),
    (PostFiltersInFaiss, "test_only_allowed_rows_are_searched"),
    (ForgetsOwners, "test_a_row_scores_by_the_best_of_its_vectors"),
    (ForgetsOwners, "test_a_mask_may_know_rows_without_a_vector"),
    (WorstFirst, "test_the_nearest_rows_come_best_first"),
    (DropsTheMask, "test_only_allowed_rows_are_searched"),
    (OldestOfEquals, "test_of_equals_the_newer_row_comes_first"),
    (CutsAmongEquals, "test_of_equals_the_newer_row_comes_first"),
    (CrowdsOut, "test_many_vectors_of_a_row_crowd_nobody_out"),
    (FirstPieceOnly, "test_cosines_of_given_rows"),
    (ZeroForUnknown, "test_cosines_of_given_rows"),
    (SortsWhatIsAsked, "test_cosines_of_given_rows"),
    (RoundsByPosition, "test_equal_vectors_have_equal_cosines"),
    (KeepsBytes, "test_vectors_of_half_precision_lose_nothing"),
    (SharesItsVectors, "test_a_matrix_gives_the_same_index_again"),
    (FailsWhenEmpty, "test_an_empty_index_finds_nothing"),
    (AppendsInOrderOnly, "test_a_row_scores_by_the_best_of_its_vectors"),
]


def run(kind: IndexFactory, name: str) -> None:
    TESTS[name](IndexContract(), index=kind)


def test_a_broken_index_is_found_out(subtests: pytest.Subtests) -> None:
    for kind, name in BROKEN:
        with subtests.test(kind=kind, name=name), pytest.raises(AssertionError):
            run(kind, name)


def test_every_test_of_the_contract_finds_some_index_out() -> None:
    assert {name for _, name in BROKEN} == set(TESTS)


def test_faiss_agrees_with_the_exact_index_on_arbitrary_vectors() -> None:
    generator = np.random.default_rng(0)
    count, dimension = 1_500, 48
    vectors = generator.standard_normal((count, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kept = vectors.astype(np.float16).astype(np.float32)
    exact, faiss = ExactVectorIndex(dimension), FaissVectorIndex(dimension)
    for index in (exact, faiss):
        index.add(np.arange(count) // 2, kept)
    for left_out in (0, 1, count // 4, count // 2 - 1):
        allowed = np.full(count // 2, True)
        allowed[generator.choice(count // 2, left_out, replace=False)] = False
        query = kept[generator.integers(count)]
        (rows, cosines), (expected_rows, expected) = (index.search(query, 50, allowed) for index in (faiss, exact))
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_allclose(cosines, expected, atol=1e-6)
    np.testing.assert_array_equal(faiss.matrix(), exact.matrix())


@pytest.mark.parametrize(("kind", "count"), [(ExactVectorIndex, 40), (FaissVectorIndex, 3_000)])
def test_what_unrelated_rows_have_in_common_is_told_by_a_few(kind: type[VectorIndex], count: int) -> None:
    random, index, read = np.random.default_rng(3), kind(8), list[int]()
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
    kept = index.matrix()[read].astype(np.float64)
    pairs = [float(kept[a] @ kept[b]) for a in range(len(read)) for b in range(a)]
    assert found == pytest.approx((np.mean(pairs), np.std(pairs)), abs=1e-6)


def test_searching_leaves_the_number_of_threads_as_it_was() -> None:
    faiss = pytest.importorskip("faiss")
    index = FaissVectorIndex(4)
    index.add([0], np.eye(1, 4, dtype=np.float32))
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        index.search(np.eye(1, 4, dtype=np.float32)[0], 1)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)
