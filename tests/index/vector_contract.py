"""What a vector index must do, compared with arithmetic in whole numbers over all vectors."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shared_core.index.vectors import VectorIndex
from shared_core.plugins.base import Vectors

__all__ = ["Exact", "IndexFactory", "VectorContract"]

IndexFactory = Callable[[int], VectorIndex]
"""Returns a new, empty index for vectors of this dimension."""

_DIMENSIONS = (5, 16, 67)

_SIXTEENTHS = [
    (16,), (8, 8, 8, 8), (12, 8, 4, 4, 4), (15, 5, 2, 1, 1), (14, 6, 4, 2, 2), (13, 7, 5, 3, 2), (11, 9, 7, 2, 1),
    (10, 10, 6, 4, 2),
]  # fmt: skip
"""Numbers whose squares add up to 256: in sixteenths, vectors of unit length that half precision holds exactly."""

_Rows = Mapping[int, Sequence[Vectors]]


def _vector(generator: np.random.Generator, dimension: int) -> Vectors:
    """Return a unit vector of a few sixteenths: its products are exact in single precision, and often equal."""
    numbers = _SIXTEENTHS[generator.integers(len(_SIXTEENTHS))]
    vector = np.zeros(dimension, dtype=np.float32)
    chosen = generator.choice(dimension, len(numbers), replace=False)
    vector[chosen] = np.array(numbers, dtype=np.float32) / 16 * generator.choice([-1, 1], len(numbers))
    return vector


def _cosine(query: Vectors, pieces: Sequence[Vectors]) -> float:
    """Return the best of the pieces' products with a question, in whole numbers, so that nothing is rounded."""
    return int(np.max(np.rint(np.array(pieces) * 16).astype(int) @ np.rint(query * 16).astype(int))) / 256


def _nearest(
    rows: _Rows, query: Vectors, top_k: int, allowed: npt.NDArray[np.bool_] | None
) -> tuple[list[int], list[float]]:
    """Return what `VectorIndex.search` has to, by looking at everything."""
    cosines = {row: _cosine(query, pieces) for row, pieces in rows.items() if allowed is None or allowed[row]}
    best = sorted(cosines, key=lambda row: (-cosines[row], -row))[:top_k]
    return best, [cosines[row] for row in best]


def _fill(index: VectorIndex, rows: _Rows, order: Sequence[int], batch: int) -> None:
    """Add vectors in batches, which may end between those of a row."""
    owners, pieces = [row for row in order for _ in rows[row]], np.array([one for row in order for one in rows[row]])
    for start in range(0, len(owners), batch):
        index.add(owners[start : start + batch], pieces[start : start + batch])


def _check(
    index: VectorIndex, rows: _Rows, query: Vectors, top_k: int, allowed: npt.NDArray[np.bool_] | None = None
) -> None:
    """Compare one search, rows and cosines, with the oracle."""
    found, cosines = index.search(query, top_k, allowed)
    expected_rows, expected_cosines = _nearest(rows, query, top_k, allowed)
    np.testing.assert_array_equal(found, expected_rows)
    np.testing.assert_array_equal(cosines, expected_cosines)


class Exact:
    """One vector for each row, all of which are compared."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors.astype(np.float16).astype(np.float32)

    def cosines(self, query: Vectors, rows: npt.NDArray[np.integer]) -> Vectors:
        found: Vectors = np.einsum("ij,j->i", self._vectors[rows], query)
        return found

    def search(
        self, query: Vectors, top_k: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[npt.NDArray[np.int64], Vectors]:
        rows = np.flatnonzero(np.ones(len(self._vectors)) if allowed is None else allowed)
        cosines = self.cosines(query, rows)
        best = np.lexsort((-rows, -cosines))[:top_k]
        return rows[best], cosines[best]


class VectorContract:
    """What `VectorIndex` must do, compared with whole-number arithmetic over all vectors.

    Subclasses define a fixture `index`: a callable that returns a new, empty index for vectors of a given dimension.
    The vectors are such that half precision holds them exactly, so rows and cosines have to be exact too.
    """

    def test_the_nearest_allowed_rows_come_best_first(self, index: IndexFactory) -> None:
        """By the best vector of each, in whichever order they were added; many rows have none, and no mask is late."""
        for dimension in _DIMENSIONS:
            generator = np.random.default_rng(dimension)
            sizes = generator.choice([1, 1, 2, 5, 40], 300)
            rows = {3 * row: [_vector(generator, dimension) for _ in range(size)] for row, size in enumerate(sizes)}
            built = index(dimension)
            _fill(built, rows, [3 * row for row in generator.permutation(300).tolist()], 70)
            assert len(built) == sizes.sum(), "one vector for each piece"
            for count in (4, 900, 1_000):
                np.testing.assert_array_equal(built.has(np.arange(count)), np.isin(np.arange(count), list(rows)))
            for share in (0.0, 0.01, 0.2, 0.8, 0.99, 1.0):
                query, allowed = _vector(generator, dimension), generator.random(1_000) < share
                for top_k in (0, 1, 3, 40, 299, 300, 1_000):
                    _check(built, rows, query, top_k)
                    _check(built, rows, query, top_k, allowed)
                allowed[_nearest(rows, query, 100, None)[0]] = False
                _check(built, rows, query, 10, allowed)

    def test_of_equals_the_newer_row_comes_first(self, index: IndexFactory) -> None:
        """Also where only some of the equal rows are asked for, and in whichever order they were added."""
        generator = np.random.default_rng(1)
        near, far, query = (np.array(v, dtype=np.float32) for v in ([1, 0, 0], [0, 1, 0], [1, 0, 0]))
        for order in ("oldest", "newest", "any"):
            rows = {row: [far if row % 7 == 3 else near] for row in range(300)}
            added = list(rows) if order == "oldest" else list(rows)[::-1]
            built = index(3)
            _fill(built, rows, generator.permutation(300).tolist() if order == "any" else added, 100)
            for top_k in (1, 2, 10, 100, 257, 258, 300):
                _check(built, rows, query, top_k)
                _check(built, rows, query, top_k, np.arange(300) % 2 == 0)
                _check(built, rows, np.zeros(3, dtype=np.float32), top_k)

    def test_many_vectors_of_a_row_crowd_nobody_out(self, index: IndexFactory) -> None:
        """The second best row is found although hundreds of vectors of the best are nearer."""
        near, far = np.eye(2, dtype=np.float32)
        rows = {4: [near] * 600, 2: [far], 9: [far], 7: [-near]}
        built = index(2)
        _fill(built, rows, [4, 2, 9, 7], 4)
        for top_k in (1, 2, 3, 4):
            _check(built, rows, near, top_k)
            _check(built, rows, near, top_k, np.arange(10) != 9)

    def test_cosines_of_given_rows(self, index: IndexFactory) -> None:
        """In the order asked, by the best vector of each, NaN for a row that has none."""
        generator = np.random.default_rng(4)
        rows = {row: [_vector(generator, 16) for _ in range(1 + row % 3)] for row in range(0, 100, 2)}
        built = index(16)
        query = _vector(generator, 16)
        np.testing.assert_array_equal(built.cosines(query, np.array([3, 0], dtype=np.int32)), [np.nan, np.nan])
        _fill(built, rows, generator.permutation(list(rows)).tolist(), 9)
        for asked in ([], [4], [5], [98, 99, 0, 1, 500], generator.permutation(120).tolist(), [6, 5, 6]):
            expected = [_cosine(query, rows[row]) if row in rows else np.nan for row in asked]
            np.testing.assert_array_equal(built.cosines(query, np.array(asked, dtype=np.int32)), expected)

    def test_equal_vectors_have_equal_cosines(self, index: IndexFactory) -> None:
        """To the last bit, wherever they stand: otherwise the newer of two equal texts would not come first."""
        for dimension in (3, 64, 256, 384):
            generator = np.random.default_rng(dimension)
            vector, query, other = (v / np.linalg.norm(v) for v in generator.standard_normal((3, dimension)))
            rows = np.arange(45, dtype=np.int32)
            built = index(dimension)
            built.add(rows, np.where(rows[:, None] % 4 == 3, other, vector).astype(np.float32))
            equal = rows[rows % 4 != 3]
            for asked in (equal, equal[:3], rows):
                cosines = built.cosines(query.astype(np.float32), asked)
                assert len(np.unique(cosines[asked % 4 != 3])) == 1, "equal vectors, one cosine"
            found, _ = built.search(query.astype(np.float32), 45, rows % 4 != 3)
            np.testing.assert_array_equal(found, equal[::-1])

    def test_vectors_of_half_precision_lose_nothing(self, index: IndexFactory) -> None:
        """They are what a store keeps: cosines are right but for the rounding of sums, and the same in both methods."""
        generator = np.random.default_rng(5)
        vectors = generator.standard_normal((400, 64))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        kept = vectors.astype(np.float16).astype(np.float32)
        built = index(64)
        built.add(np.arange(400), kept)
        np.testing.assert_array_equal(built.matrix(np.arange(400)), kept)
        query = vectors[7].astype(np.float32)
        found, cosines = built.search(query, 400)
        assert sorted(found) == list(range(400)), "each row once"
        assert found[0] == 7, "a vector is nearest to itself"
        np.testing.assert_allclose(cosines, kept[found].astype(np.float64) @ query.astype(np.float64), atol=2e-6)
        np.testing.assert_allclose(built.cosines(query, found), cosines, atol=2e-6)
        assert np.all(np.diff(cosines) <= 0), "best first"

    def test_an_empty_index_finds_nothing(self, index: IndexFactory) -> None:
        """Nor does one that was given nothing."""
        built = index(4)
        for _ in range(2):
            assert len(built) == 0, "nothing was added"
            for allowed in (None, np.ones(3, dtype=np.bool_)):
                _check(built, {}, np.eye(1, 4, dtype=np.float32)[0], 5, allowed)
            np.testing.assert_array_equal(built.has(np.arange(-1, 3)), [False] * 4)
            assert built.matrix(np.arange(0)).shape == (0, 4), "no rows, but four columns"
            built.add([], np.empty((0, 4), dtype=np.float32))

    def test_a_matrix_gives_the_same_index_again(self, index: IndexFactory) -> None:
        """The vectors that a snapshot keeps, with their owners, make an index that finds the same."""
        generator = np.random.default_rng(6)
        rows = {row: [_vector(generator, 16) for _ in range(1 + row % 2)] for row in range(50)}
        built, again = index(16), index(16)
        order = generator.permutation(50).tolist()
        _fill(built, rows, order, 20)
        owners = [row for row in order for _ in rows[row]]
        matrix = built.matrix(np.arange(len(built)))
        assert matrix.dtype == np.float16, "half precision"
        np.testing.assert_array_equal(built.owners, owners)
        np.testing.assert_array_equal(built.matrix(np.array([7, 0, 7])), matrix[[7, 0, 7]])
        np.testing.assert_array_equal(matrix, np.array([piece for row in order for piece in rows[row]]))
        again.add(built.owners, matrix.astype(np.float32))
        for _ in range(5):
            _check(again, rows, _vector(generator, 16), 20)
        again.add([77], np.eye(1, 16, dtype=np.float32))
        _check(again, {**rows, 77: [np.eye(1, 16, dtype=np.float32)[0]]}, np.eye(1, 16, dtype=np.float32)[0], 3)
        np.testing.assert_array_equal(built.owners, owners)
        assert len(built) == len(owners), "the first index is not the second"
