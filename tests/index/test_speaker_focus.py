"""Of whom a message speaks."""

import pytest

from shared_core.index.text import LOOKED_AT, of_whom


@pytest.mark.parametrize(
    ("text", "whom"),
    [
        ("I went there", 1),
        ("i'm fine", 1),
        ("that is MINE, you know", 1),
        ("Our boat and yours", 1),
        ("Did you like it?", -1),
        ("You're right", -1),
        ("Enjoy yourselves", -1),
        ("Nice!", 0),
        ("", 0),
        ("immense youth", 0),
        ("ich war dort", 0),
        ("x" * (LOOKED_AT - 2) + " I", 1),
        ("x" * (LOOKED_AT - 1) + " I", 0),
    ],
)
def test_who_speaks_of_himself_is_told_from_who_speaks_of_the_hearer(text: str, whom: int) -> None:
    assert of_whom(text) == whom
