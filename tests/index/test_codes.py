"""Many vectors are searched through a shortlist, which is built in the background and loses hardly anything."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import InfiniteMemory
from shared_core import lifecycle as background
from shared_core.base import Vectors
from shared_core.index import vectors as faiss_index
from shared_core.index.exact_vectors import ExactVectorIndex
from shared_core.index.removal import Removed
from shared_core.index.vector_storage import HalfBlocks, ShortCodes
from shared_core.index.vectors import GONE_SHARE, FaissVectorIndex, _keys
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.testing.index_contract import IndexContract, IndexFactory
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


def talk(count: int, seed: int = 0, dimension: int = 64) -> tuple[Vectors, Vectors]:
    """Return vectors like those of texts, and of questions: words of a few topics, a few of them in most texts."""
    generator = np.random.default_rng(seed)
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


def filled(vectors: Vectors, order: npt.NDArray[np.int64] | None = None) -> FaissVectorIndex:
    index = FaissVectorIndex(vectors.shape[1])
    order = np.arange(len(vectors)) if order is None else order
    for part in np.array_split(order, 7):
        index.add(part, vectors[part])
    return index


class Coded(FaissVectorIndex):
    """Has its codes at every question."""

    def search(self, query: Vectors, top_k: int, allowed: Mask | None = None) -> tuple[npt.NDArray[np.int32], Vectors]:
        self.settle()
        return super().search(query, top_k, allowed)


class TestThroughAShortlistOfEverything(IndexContract):
    """The contract is exact, so that everything has to be on the list."""

    @pytest.fixture
    def index(self, monkeypatch: pytest.MonkeyPatch) -> IndexFactory:
        for name, value in {"SHORTLIST_FROM": 16, "SHORTLIST": 10**5, "SHARE": 0}.items():
            monkeypatch.setattr(faiss_index, name, value)
        return Coded


@pytest.mark.parametrize("dimension", [64, 256])
def test_nearly_all_of_the_nearest_are_found_with_their_exact_cosines(dimension: int) -> None:
    vectors, questions = talk(6_000, dimension=dimension)
    index, exact = filled(vectors), ExactVectorIndex(dimension)
    exact.add(np.arange(len(vectors)), vectors)
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
    index, exact, go = filled(vectors), ExactVectorIndex(64), threading.Event()
    exact.add(np.arange(len(vectors)), vectors)

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
    index, exact = filled(vectors), ExactVectorIndex(64)
    exact.add(np.arange(len(vectors)), vectors)
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


def test_an_index_that_nobody_holds_leaves_nothing_running() -> None:
    vectors, questions = talk(3_000)
    index = filled(vectors)
    index.search(questions[0], 5)
    assert len(threads()) == 1
    del index
    gc.collect()
    wait_for(lambda: not threads())


def test_stopping_ends_the_work_and_the_index_still_answers() -> None:
    vectors, questions = talk(3_000)
    index = filled(vectors)
    index.stop()
    index.search(questions[0], 5)
    index.stop()
    assert not threads()
    assert len(index.search(questions[0], 5)[0]) == 5
    background._stop_all()
    assert not threads()


def test_closing_ends_the_work_and_forgetting_drops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "SHORTLIST_FROM", 50)
    with InfiniteMemory(embedder=HashingEmbedder(8)) as memory:
        memory.add(history(100))
        memory.index()
        [before] = memory._prompts.searcher.sessions.opened()[0].every_vectors()
        assert before.vectors._codes is not None
        memory.forget(ids=["m3"])
        memory.search("item5")
        [after] = memory._prompts.searcher.sessions.opened()[0].every_vectors()
        assert after.vectors is not before.vectors
        memory._prompts.close(least=1)
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
    monkeypatch.setattr("shared_core.index.vector_storage.BLOCK", 64)
    vectors, questions = talk(1_000)
    index, exact = filled(vectors), ExactVectorIndex(64)
    exact.add(np.arange(len(vectors)), vectors)
    for start, stop in ((0, None), (0, 0), (0, 64), (64, 128), (130, 700), (960, 5_000), (999, 1_000)):
        np.testing.assert_array_equal(index.matrix(start, stop), exact.matrix(start, stop))
    masks = [None, np.arange(1_000) < 100, np.arange(1_000) % 3 == 0, np.arange(1_000) >= 999]
    for question in questions[:5]:
        for mask in masks:
            rows, cosines = index.search(question, 50, mask)
            expected, right = exact.search(question, 50, mask)
            np.testing.assert_array_equal(rows, expected)
            np.testing.assert_allclose(cosines, right, atol=1e-6)
        every = np.arange(1_000, dtype=np.int32)
        np.testing.assert_array_equal(index.cosines(question, every), exact.cosines(question, every))


def test_blocks_that_lose_nothing_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a forgetting copies one block of vectors, however many there are; and what is added later is not shared."""
    monkeypatch.setattr("shared_core.index.vector_storage.BLOCK", 64)
    vectors, _ = talk(300)
    blocks = HalfBlocks(64)
    blocks.add(vectors.astype(np.float16))
    left = blocks.without(np.array([3, 70, 80]))
    assert [one is other for one, other in zip(blocks._blocks, left._blocks, strict=True)] == [
        False,
        False,
        *[True] * 3,
    ]
    for one in (left, blocks):
        one.add(np.full((5, 64), len(one), dtype=np.float16))
    np.testing.assert_array_equal(left.between(294, 302), [*vectors[297:], *np.full((5, 64), 297)])
    np.testing.assert_array_equal(blocks.between(297, 305), [*vectors[297:], *np.full((5, 64), 300)])


def test_what_is_read_from_a_block_does_not_change_when_it_grows() -> None:
    blocks = HalfBlocks(4)
    blocks.add(np.eye(4, dtype=np.float16))
    kept = blocks.between(0, 4)
    for _ in range(10):
        blocks.add(np.full((50, 4), 0.5, dtype=np.float16))
    np.testing.assert_array_equal(kept, np.eye(4))
    np.testing.assert_array_equal(blocks.take(np.arange(4)), np.eye(4))
    assert len(blocks) == 504


class TestWithout:
    """Vectors are taken out of an index that goes on to be searched."""

    def without(self, index: FaissVectorIndex, rows: Sequence[int]) -> FaissVectorIndex:
        gone = np.array(sorted(rows), dtype=np.int32)
        return index.without(gone, Removed(1 + int(index.owners.max()), gone))

    def assert_same(self, ours: FaissVectorIndex, theirs: FaissVectorIndex, questions: Vectors) -> None:
        for question in questions:
            for one, other in zip(ours.search(question, 20), theirs.search(question, 20), strict=True):
                np.testing.assert_array_equal(one, other)

    @pytest.fixture
    def made(self, monkeypatch: pytest.MonkeyPatch) -> list[Vectors]:
        made: list[Vectors] = []

        def counted(sample: Vectors) -> ShortCodes:
            made.append(sample)
            return ShortCodes(sample)

        monkeypatch.setattr(faiss_index, "ShortCodes", counted)
        monkeypatch.setattr(faiss_index, "TRAINED_ON", 700)
        return made

    @pytest.mark.parametrize("which", ["not in the sample", "in the sample", "enters the sample", "too few are left"])
    def test_codes_stay_unless_an_index_built_anew_has_others(self, made: list[Vectors], which: str) -> None:
        vectors, questions = talk(2_600, seed=5)
        index = filled(vectors)
        index.settle()
        chosen = _keys(vectors) <= index._sampled
        first, after = chosen[:FROM], chosen[FROM:]
        assert not after[0], "the first one that moves up"
        gone = {
            "not in the sample": np.append(np.flatnonzero(~first)[3], FROM + np.flatnonzero(after)[-5:]),
            "in the sample": np.flatnonzero(first)[:1],
            "enters the sample": np.flatnonzero(~first)[: after.argmax() + 1],
            "too few are left": np.arange(0, 1_300, 2),
        }[which].tolist()
        left, kept = self.without(index, gone), np.delete(vectors, gone, axis=0)
        codes = left._codes
        assert (codes is None) == (which == "too few are left")
        left.search(questions[0], 20)  # what is made is made in the background
        left.settle()
        assert (left._codes is codes) == (which in ("not in the sample", "too few are left"))
        made.clear()
        anew = filled(kept)
        anew.settle()
        self.assert_same(left, anew, questions)
        assert len(made) == (which != "too few are left")

    def test_both_go_their_own_way(self, made: list[Vectors]) -> None:
        vectors, questions = talk(3_000)
        index, before = filled(vectors[:2_500]), filled(vectors[:2_500])
        index.settle()
        before.settle()
        gone = [2_001, 2_100, 2_300, 2_400]
        once = self.without(index, gone[1:2])
        twice = self.without(once, [gone[0], gone[2] - 1, gone[3] - 1])
        anew = filled(np.delete(vectors[:2_500], gone, axis=0))
        anew.settle()
        self.assert_same(index, before, questions)
        for one in (twice, index, anew, before):
            one.add(np.arange(len(one), len(one) + 300), vectors[2_700 if one in (twice, anew) else 2_500 :][:300])
            one.settle()
        self.assert_same(index, before, questions)
        self.assert_same(twice, anew, questions)
        assert len(made) == 3, "for those that were built"

    def test_codes_are_made_again_when_many_are_gone(self, made: list[Vectors]) -> None:
        vectors, _ = talk(2_600)
        index = filled(vectors)
        index.settle()
        last = np.arange(2_500, 2_500 + 2_600 // GONE_SHARE)
        left = self.without(index, last.tolist())
        left.settle()
        assert left._codes is not None
        assert left._codes.gone == len(last)
        left = self.without(left, [2_400])
        left.settle()
        assert left._codes is not None
        assert left._codes.gone == 0
        assert len(made) == 2


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40), st.sets(st.integers(0, 39)), st.sets(st.integers(0, 39)),
    st.integers(1, 40), st.integers(1, 9),
)  # fmt: skip
def test_what_is_left_is_as_if_built_anew(
    pieces: list[int], gone: set[int], stale: set[int], count: int, block: int
) -> None:
    """Rows without a vector and with several, forgotten ones and ones whose text lost a part, in blocks of any size."""
    generator = np.random.default_rng(len(pieces))
    owners = np.repeat(np.arange(len(pieces)), pieces).astype(np.int32)
    units = generator.standard_normal((len(owners), 8)).astype(np.float16)
    removed = Removed(count, np.array(sorted(row for row in gone if row < count), dtype=np.int32))
    rows = np.array(sorted(gone | stale), dtype=np.int32)
    kept = np.flatnonzero(~np.isin(owners, rows) & (owners < count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared_core.index.vector_storage.BLOCK", block)
        index, anew = FaissVectorIndex(8), FaissVectorIndex(8)
        index.add(owners, units)
        left = index.without(rows, removed)
        again = left.without(np.empty(0, np.int32), Removed(count, np.empty(0, np.int32)))
        anew.add(owners[kept] - np.searchsorted(removed.rows, owners[kept]), units[kept])
        for one in (index, left, again, anew):
            one.add([50, 50, 51], units[:1].repeat(3, axis=0) if len(units) else np.ones((3, 8), np.float16))
        for one in (left, again):
            np.testing.assert_array_equal(one.owners, anew.owners)
            np.testing.assert_array_equal(one.matrix(), anew.matrix())
            np.testing.assert_array_equal(one.has(60), anew.has(60))
            assert sorted(one._several.values) == sorted(anew._several.values)
            question, every = one.matrix(len(one) - 1)[0].astype(np.float32), np.arange(60, dtype=np.int32)
            np.testing.assert_array_equal(one.cosines(question, every), anew.cosines(question, every))
            for ours, theirs in zip(one.search(question, 9), anew.search(question, 9), strict=True):
                np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(index.matrix()[: len(units)], units)
