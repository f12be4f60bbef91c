"""What the command and the reports print: no text makes a terminal obey, and none forges a line."""

import re

from hypothesis import given
from hypothesis import strategies as st

from shared_core.display import on_one_line, printable, printable_name

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@given(st.text())
def test_no_text_keeps_what_a_terminal_obeys(text: str) -> None:
    assert not OBEYED.search(printable(text))
    assert "\n" not in on_one_line(text)
    assert "\n" not in printable_name(text)
    printable(text).encode()


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs", "M"])))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
