"""The turns in a snapshot are found without a dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from shared_core.index.arrays import TurnNumbers


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)), st.text(max_size=3))
def test_turns_have_numbers_in_the_order_they_are_met_also_on_from_a_snapshot(
    before: list[str], after: list[str], other: str
) -> None:
    turns = TurnNumbers()
    for turn in before:
        turns.number(turn)
    turns = TurnNumbers.from_arrays(turns.arrays())
    numbers = [turns.number(turn) for turn in [*before, *after]]
    met = list(dict.fromkeys([*before, *after]))
    assert numbers == [met.index(turn) for turn in [*before, *after]]
    again = TurnNumbers.from_arrays(turns.arrays())
    assert len(again) == len(turns) == len(met)
    for numbering in (turns, again):
        assert numbering.find(other) == (met.index(other) if other in met else -1)
