"""Context-weighted BM25 agrees with its formulas, written out slowly, along any path through any rows."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.index.lexical import (
    BLOCK,
    CELLS,
    FADE_TERMS,
    FIRST,
    K1,
    MAX_FREQUENCY,
    MAX_ROWS,
    NEIGHBOURS,
    B,
    LexicalIndex,
)
from shared_core.index.lines import SITTING_GAP, Line, LinePrefix

VOCABULARY = ("boat", "tower", "river", "東京")


@dataclass(frozen=True)
class Case:
    """Rows, a line through some of them with the time of each message, how much of it counts, and the question."""

    documents: Sequence[Mapping[str, int]]
    rows: Sequence[int]
    times: Sequence[float]
    upto: int
    query: Sequence[str]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    frequency = st.one_of(st.integers(1, 3), st.sampled_from([20, 255, 256, 300]))
    document = st.dictionaries(st.sampled_from(VOCABULARY), frequency, max_size=3)
    documents = draw(st.lists(document, max_size=12))
    rows = draw(st.lists(st.sampled_from(range(len(documents))), unique=True)) if documents else []
    gaps = draw(st.lists(st.sampled_from([0.0, 60.0, SITTING_GAP, SITTING_GAP + 1]), min_size=12, max_size=12))
    times = np.cumsum(gaps)[: len(rows)].tolist()
    upto = draw(st.integers(0, len(rows)))
    query = draw(st.lists(st.sampled_from([*VOCABULARY, "unsaid"]), max_size=4))
    return Case(documents, rows, times, upto, query)


def index_of(documents: Sequence[Mapping[str, int]]) -> LexicalIndex:
    index = LexicalIndex()
    index.add(documents)
    return index


def line_of(index: LexicalIndex, rows: Sequence[int], times: Sequence[float], upto: int) -> LinePrefix:
    """Return a line through rows of an index with the time of each."""
    line, nothing = Line(), np.zeros(len(index), dtype=np.int32)
    columns = {"turns": np.arange(len(index), dtype=np.int32), "speakers": nothing, "languages": nothing}
    said_at = np.zeros(len(index))
    said_at[list(rows)] = times
    line.extend(np.array(rows, dtype=np.int32), columns | {"times": said_at, "lengths": index.lengths})
    return LinePrefix(line, upto)


def line_in(case: Case) -> LinePrefix:
    return line_of(index_of(case.documents), case.rows, case.times, case.upto)


def one_sitting(index: LexicalIndex) -> LinePrefix:
    return line_of(index, range(len(index)), [0.0] * len(index), len(index))


def score(case: Case) -> tuple[list[float], float]:
    found = index_of(case.documents).score(case.query, line_in(case))
    return found.values.tolist(), found.ceiling


def oracle(case: Case) -> tuple[list[float], float]:
    """The formulas of the docstrings, message by message."""
    said = [case.documents[row] for row in case.rows[: case.upto]]
    lengths = [sum(document.values()) for document in said]
    mean = max(sum(lengths) / len(lengths), 1.0) if lengths else 1.0
    sitting = [sum(b - a > SITTING_GAP for a, b in zip(case.times[:i], case.times[1 : i + 1], strict=True))
               for i in range(len(said))]  # fmt: skip
    values, ceiling = [0.0] * len(said), 0.0
    for term in set(case.query):
        own = [
            min(document.get(term, 0), 255) / (1 - B + B * length / mean)
            for document, length in zip(said, lengths, strict=True)
        ]
        matching = sum(term in document for document in said)
        idf = math.log(1 + (len(said) - matching + 0.5) / (matching + 0.5)) if said else 0.0
        ceiling += idf
        for index in range(len(said)):
            lent = sum(
                share * own[index - offset]
                for offset, share in NEIGHBOURS.items()
                if 0 <= index - offset < len(said) and sitting[index - offset] == sitting[index]
            )
            frequency = own[index] + lent * min(1.0, FADE_TERMS / max(lengths[index], 1))
            values[index] += idf * frequency * (K1 + 1) / (frequency + K1)
    return values, ceiling


@given(cases())
def test_scores_are_those_of_the_formulas(case: Case) -> None:
    values, ceiling = score(case)
    expected, expected_ceiling = oracle(case)
    np.testing.assert_allclose(values, expected, atol=1e-4)
    assert ceiling == pytest.approx(expected_ceiling)


@given(cases(), st.lists(st.dictionaries(st.sampled_from(VOCABULARY), st.integers(1, 300)), max_size=5))
def test_what_is_not_on_the_line_changes_nothing(case: Case, others: Sequence[Mapping[str, int]]) -> None:
    """To the last bit: neither other branches, nor what was said after the question, nor what was stored since."""
    only = Case([case.documents[row] for row in case.rows[: case.upto]], range(case.upto), case.times[: case.upto],
                case.upto, case.query)  # fmt: skip
    alone = score(only)
    assert score(case) == alone
    index = index_of(case.documents)
    line = line_in(case)
    index.add(others)
    found = index.score(case.query, line)
    assert (found.values.tolist(), found.ceiling) == alone


@given(cases())
def test_a_snapshot_scores_alike_and_goes_on_alike(case: Case) -> None:
    half = len(case.documents) // 2
    index = LexicalIndex.from_arrays(index_of(case.documents[:half]).arrays())
    assert len(index) == half
    index.add(case.documents[half:])
    whole, again = index_of(case.documents).arrays(), index.arrays()
    assert whole.keys() == again.keys()
    for name, values in whole.items():
        np.testing.assert_array_equal(again[name], values)
        assert again[name].dtype == values.dtype
    line = line_in(case)
    np.testing.assert_array_equal(index.score(case.query, line).values, score(case)[0])


def expected_best(values: Sequence[float], count: int, allowed: Sequence[bool]) -> list[int]:
    found = [index for index, value in enumerate(values) if value > 0 and allowed[index]]
    return sorted(found, key=lambda index: (-values[index], -index))[:count]


@given(cases(), st.integers(1, 12), st.sampled_from([3, 4, 16]), st.sampled_from([1, 2, 32]), st.data())
def test_the_best_rows_are_found_among_all(
    case: Case, count: int, block: int, levels: int, data: st.DataObject
) -> None:
    """To the last bit, whatever else is worked out before, in blocks of any size."""
    values, _ = score(case)
    allowed = data.draw(st.lists(st.booleans(), min_size=case.upto, max_size=case.upto))
    indices = data.draw(st.lists(st.integers(0, case.upto - 1), max_size=3)) if case.upto else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared_core.index.lexical.BLOCK", block)
        patch.setattr("shared_core.index.lexical.SHORT", 0)
        patch.setattr("shared_core.index.lexical.FIRST", 1)
        patch.setattr("shared_core.index.lexical.LEVELS", levels)
        line = line_in(case)
        scores = index_of(case.documents).score(case.query, line)
        assert scores.at(np.array(indices, dtype=np.int64))[0].tolist() == [values[index] for index in indices]
        found = scores.best(count, np.array(allowed, dtype=np.bool_))
        assert found.tolist() == expected_best(values, count, allowed)
        assert scores.values.tolist() == values


@pytest.mark.parametrize("count", [1, 5])
def test_the_best_rows_of_a_long_path_are_found_among_all(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.index.lexical.SHORT", 0)
    chance, size = np.random.default_rng(7), 50 * FIRST * BLOCK * count
    words = np.minimum(chance.zipf(1.3, (size, 6)), 1000)
    index = index_of([Counter(f"w{word}" for word in said) for said in words.tolist()])
    times = np.cumsum(chance.exponential(SITTING_GAP / 20, size)).tolist()
    line = line_of(index, range(size), times, size - 5)
    allowed = chance.random(line.upto) < 0.8
    for query in (["w1"], ["w3", "w4", "w500", "w900"], ["w990", "w1"], ["unsaid"], []):
        values = index.score(query, line).values.tolist()
        assert index.score(query, line).best(count, allowed).tolist() == expected_best(values, count, allowed.tolist())


def test_a_word_said_a_thousand_times_counts_as_often_as_one_byte_holds() -> None:
    for often in (MAX_FREQUENCY, MAX_FREQUENCY + 1, 1000):
        index = index_of([{"boat": often}, {"boat": 1}])
        assert index.arrays()["postings"].tolist() == [0 << 8 | 255, 1 << 8 | 1]
        assert index.lengths.tolist() == [often, 1]


def test_a_session_has_no_more_rows_than_a_posting_can_name() -> None:
    index = LexicalIndex.from_arrays({**index_of([]).arrays(), "lengths": np.zeros(MAX_ROWS - 1, dtype=np.int32)})
    index.add([{"boat": 2}])
    assert index.arrays()["postings"].tolist() == [(MAX_ROWS - 1) << 8 | 2]
    with pytest.raises(OverflowError, match="16,777,216"):
        index.add([{"boat": 1}])


def test_many_terms_score_what_each_scores_alone() -> None:
    """To the last bit, in the order of the terms, also where they are too many to be spread together."""
    count, vocabulary = 3_000, [f"w{number:03}" for number in range(200)]
    assert count * len(vocabulary) > CELLS
    index = index_of([{vocabulary[row % 200]: 1, vocabulary[row * row % 199]: 2} for row in range(count)])
    line = one_sitting(index)
    expected = np.zeros(count, dtype=np.float32)
    for term in vocabulary:
        expected += index.score([term], line).values
    np.testing.assert_array_equal(index.score(vocabulary[::-1], line).values, expected)
