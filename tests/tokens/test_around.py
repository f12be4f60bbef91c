"""The tokens of a text that holds texts of known sizes are exact, and little of it is read."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared_core.tokens import TiktokenCounter, tokens_around
from shared_core.tokens.tiktoken import WORTH_CUTTING

ENCODINGS = ("o200k_base", "cl100k_base")

characters = st.characters(codec="utf-8") | st.sampled_from("aA1 \n\t./-'\u2019\x85\x1c\xa0\u3000日本語🙂e\u0301")
short = st.text(characters, max_size=12)
long = st.lists(st.text(characters, max_size=25), min_size=4, max_size=12).map(" ".join)


def counter_of(name: str) -> TiktokenCounter:
    counter = TiktokenCounter(name)
    if counter.name != f"tiktoken/{name}":
        pytest.skip(f"the table of {name} is not on this machine")
    return counter


@pytest.mark.parametrize("name", ENCODINGS)
@given(st.lists(st.tuples(short, long | short), min_size=1, max_size=4), short)
@example([("- user: ", "It's  here.\n" * 12), ("/", "a " + "/ " * 60 + "b")], "\n")
@example([("- user: ", "a" + " b" * 40), ("", "c" + " d" * 40)], "")
def test_the_count_is_exact(name: str, parts: Sequence[tuple[str, str]], end: str) -> None:
    counter = counter_of(name)
    text = "".join(before + inner for before, inner in parts) + end
    known = [(inner, counter(inner)) for _, inner in parts]
    assert counter.around(text, known) == tokens_around(text, counter, known) == counter(text)


def test_texts_that_do_not_occur_are_no_help() -> None:
    counter = counter_of(ENCODINGS[0])
    said = "the lamp of the lighthouse is green, as it was last year in the spring"
    assert len(said) >= WORTH_CUTTING
    assert counter.around("Is it green?", [(said, counter(said))]) == counter("Is it green?")
    twice = f"{said}. {said}."
    assert counter.around(twice, [(said, counter(said))] * 3) == counter(twice)


def test_without_its_table_parts_do_not_add_up_and_all_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.tokens.tiktoken._encoding", lambda name: None)
    counter, said = TiktokenCounter(), "word " * 40 + "end"
    assert tokens_around(f"- {said}", counter, [(said, 0)]) == counter(f"- {said}") > 0


def test_a_counter_of_the_callers_own_counts_all() -> None:
    class Letters:
        name: str | None = None
        overhead = 4

        def __call__(self, text: str, /) -> int:
            return len(text)

    said = "word " * 40 + "end"
    assert tokens_around(f"- {said}", Letters(), [(said, 0)]) == len(said) + 2
