"""Many vectors are searched through a shortlist, which is built in the background and loses hardly anything."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from shared_core import InfiniteMemory
from shared_core.index import vectors as faiss_index
from shared_core.index.vectors import ShortCodes, VectorIndex
from shared_core.plugins.base import Vectors
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.index.vector_contract import Exact, IndexFactory, VectorContract
from tests.support.histories import history

Mask = npt.NDArray[np.bool_]
FROM = 2_000


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "infinite-memory index"]


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def talk(count: int) -> tuple[Vectors, Vectors]:
    """Return vectors like those of texts, and of questions: words of a few topics, a few of them in most texts."""
    generator, dimension = np.random.default_rng(0), 64
    words = np.random.default_rng(99).standard_normal((3_000, dimension)) * np.linspace(2, 0.3, dimension)

    def texts(many: int, size: int) -> Vectors:
        topics = generator.integers(60, size=(many, 1)) * 40
        common = generator.integers(2_400, 2_450, size=(many, size // 3))
        own = topics + generator.integers(120, size=(many, size - size // 3))
        sums = words[np.concatenate([common, own], axis=1)].sum(axis=1)
        units: Vectors = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)
        return units

    return texts(count, 12), texts(40, 6)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make shortlists of what a test can hold; and leave nothing running."""
    monkeypatch.setattr(faiss_index, "SHORTLIST_FROM", FROM)
    monkeypatch.setattr(faiss_index, "SHORTLIST", 300)
    monkeypatch.setattr(faiss_index, "SHARE", 5)
    yield
    gc.collect()
    wait_for(lambda: not threads())


def filled(vectors: Vectors, order: npt.NDArray[np.int64] | None = None) -> VectorIndex:
    index = VectorIndex(vectors.shape[1])
    order = np.arange(len(vectors)) if order is None else order
    for part in np.array_split(order, 7):
        index.add(part, vectors[part])
    return index


class Coded(VectorIndex):
    """Has its codes at every question."""

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> tuple[npt.NDArray[np.int32], Vectors]:
        self.settle()
        return super().search(query, top_k, allowed)


class TestThroughAShortlistOfEverything(VectorContract):
    """The contract is exact, so that everything has to be on the list."""

    @pytest.fixture
    def index(self, monkeypatch: pytest.MonkeyPatch) -> IndexFactory:
        for name, value in {"SHORTLIST_FROM": 16, "SHORTLIST": 10**5, "SHARE": 0}.items():
            monkeypatch.setattr(faiss_index, name, value)
        return Coded


def test_nearly_all_of_the_nearest_are_found_with_their_exact_cosines() -> None:
    vectors, questions = talk(6_000)
    index, exact = filled(vectors), Exact(vectors)
    index.settle()
    generator = np.random.default_rng(1)
    for allowed in (None, np.arange(6_000) < 5_900, generator.random(6_000) < 0.5):
        shared = []
        for question in questions[:15]:
            rows, cosines = index.search(question, 20, allowed)
            expected, _ = exact.search(question, 20, allowed)
            shared.append(np.isin(expected, rows).mean())
            np.testing.assert_array_equal(cosines, exact.cosines(question, rows))
            np.testing.assert_array_equal(index.cosines(question, rows), cosines)
            assert len(rows) == 20
            assert np.all(np.diff(cosines) <= 0)
            assert allowed is None or allowed[rows].all()
        assert np.mean(shared) >= 0.98


def test_what_is_asked_before_the_codes_are_made_is_answered_exactly_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, questions = talk(4_000)
    index, exact, go = filled(vectors), Exact(vectors), threading.Event()

    def slowly(sample: Vectors) -> ShortCodes:
        assert go.wait(30)
        return ShortCodes(sample)

    monkeypatch.setattr(faiss_index, "ShortCodes", slowly)
    for question in questions:
        rows, _ = index.search(question, 20)
        np.testing.assert_array_equal(rows, exact.search(question, 20)[0])
    assert len(threads()) == 1, "one thread, however often is asked"
    go.set()
    index.settle()
    assert index._codes is not None
    assert not threads()


@pytest.mark.parametrize("few", ["vectors", "allowed", "of the kind asked for"])
def test_few_are_searched_exactly(few: str) -> None:
    vectors, questions = talk(4_000 if few != "vectors" else FROM - 1)
    index, exact = filled(vectors), Exact(vectors)
    index.settle()
    assert (index._codes is None) == (few == "vectors")
    allowed = np.ones(len(vectors), dtype=np.bool_)
    for question in questions[:10]:
        if few == "allowed":
            allowed = np.random.default_rng(2).random(len(vectors)) < 0.4
        if few == "of the kind asked for":
            allowed = vectors @ question < np.median(vectors @ question)
        rows, cosines = index.search(question, 30, allowed)
        np.testing.assert_array_equal(rows, exact.search(question, 30, allowed)[0])
        np.testing.assert_allclose(cosines, exact.cosines(question, rows), atol=1e-6)


def test_new_vectors_join_and_twice_as_many_have_codes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, questions = talk(8_000)
    made: list[int] = []

    def counted(sample: Vectors) -> ShortCodes:
        made.append(len(sample))
        return ShortCodes(sample)

    monkeypatch.setattr(faiss_index, "ShortCodes", counted)
    index = filled(vectors[:3_000])
    for size in (3_000, 3_001, 3_500, 4_500, 8_000):
        index.add(np.arange(len(index), size), vectors[len(index) : size])
        index.settle()
        assert index._codes is not None
        assert len(index._codes) == size
        new = vectors[size - 1]
        assert index.search(new, 1)[1][0] == index.cosines(new, np.array([size - 1], dtype=np.int32))[0]
    assert made == [2_000, 4_000, 8_000]
    again = filled(vectors)
    again.settle()
    for question in questions:
        for ours, theirs in zip(index.search(question, 20), again.search(question, 20), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_same_rows_have_the_same_codes_in_whichever_order_they_came() -> None:
    vectors, questions = talk(5_000)
    first, second = filled(vectors), filled(vectors, np.random.default_rng(3).permutation(5_000))
    first.settle()
    second.settle()
    for question in questions:
        for ours, theirs in zip(first.search(question, 20), second.search(question, 20), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_work_ends_when_it_is_stopped_or_nobody_holds_the_index() -> None:
    vectors, questions = talk(3_000)
    index = filled(vectors)
    index.search(questions[0], 5)
    index.stop()
    assert not threads()
    assert len(index.search(questions[0], 5)[0]) == 5
    del index  # nobody holds it
    gc.collect()
    wait_for(lambda: not threads())


def test_closing_ends_the_work_and_forgetting_keeps_the_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "SHORTLIST_FROM", 50)
    with InfiniteMemory(embedder=HashingEmbedder(8)) as memory:
        memory.add(history(100))
        memory.index()
        [vectors] = memory._prompts.searcher.indexes.opened()[0].vectors
        codes = vectors.vectors._codes
        assert codes is not None
        memory.forget(ids=["m3"])
        assert "m3" not in [hit.message.id for hit in memory.search("item3", 100)]
        assert vectors.vectors._codes is codes
        memory._prompts.close()
        assert not threads()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_makes_its_own_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, questions = talk(3_000)
    index, go = filled(vectors), threading.Event()

    def slowly(sample: Vectors) -> ShortCodes:
        assert go.wait(30)
        return ShortCodes(sample)

    monkeypatch.setattr(faiss_index, "ShortCodes", slowly)
    index.search(questions[0], 5)
    child = os.fork()
    if not child:
        status = 1
        try:
            go.set()
            index.search(questions[0], 5)
            index.settle()
            status = 0 if index._codes is not None else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    index.settle()
    assert index._codes is not None


def test_blocks_are_searched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.index.vectors.BLOCK", 64)
    vectors, questions = talk(1_000)
    index, exact = filled(vectors), Exact(vectors)
    for numbers in (range(1_000), range(0), range(64), range(64, 128), range(700, 130, -1), [999, 3, 3]):
        some = np.array(numbers, dtype=np.int64)
        np.testing.assert_array_equal(index.matrix(some), vectors[some])
    masks = [None, np.arange(1_000) < 100, np.arange(1_000) % 3 == 0, np.arange(1_000) >= 999]
    for question in questions[:5]:
        for mask in masks:
            rows, cosines = index.search(question, 50, mask)
            expected, right = exact.search(question, 50, mask)
            np.testing.assert_array_equal(rows, expected)
            np.testing.assert_allclose(cosines, right, atol=1e-6)
        every = np.arange(1_000, dtype=np.int32)
        np.testing.assert_array_equal(index.cosines(question, every), exact.cosines(question, every))
