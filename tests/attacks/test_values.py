"""Values that the caller's own functions return: what cannot be stored is refused where it comes in, by name."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.tokens import CallableCounter

TOO_EARLY = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
TOO_LATE = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-12)))


class BrokenZone(tzinfo):
    def utcoffset(self, moment: datetime | None) -> timedelta:
        raise RuntimeError("no such zone")

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None


@pytest.mark.parametrize("moment", [TOO_EARLY, TOO_LATE])
@pytest.mark.parametrize(
    "door",
    [
        lambda moment: Message.user("Hello.", created_at=moment),
        lambda moment: InfiniteMemory(clock=lambda: moment).add(Message.user("Hello.")),
        lambda moment: InfiniteMemory().search("Hello.", since=moment),
        lambda moment: InfiniteMemory().search("Hello.", until=moment),
        lambda moment: InfiniteMemory().forget(before=moment),
    ],
    ids=["message", "clock", "since", "until", "forget"],
)
def test_a_time_that_utc_cannot_express_is_refused_at_every_door(
    door: Callable[[datetime], object], moment: datetime
) -> None:
    with pytest.raises(ValueError, match="outside the years 1 to 9999 in UTC"):
        door(moment)


def test_the_first_and_the_last_time_of_utc_are_stored_and_found() -> None:
    with InfiniteMemory() as memory:
        memory.add(
            [
                Message.user("First.", created_at=datetime(1, 1, 1, tzinfo=UTC)),
                Message.user("Last.", created_at=datetime.max.replace(tzinfo=UTC)),
            ]
        )
        assert {found.message.content for found in memory.search("first last")} == {"First.", "Last."}
        assert len(memory.forget(before=datetime(2, 1, 1, tzinfo=UTC)).ids) == 1


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        (lambda: None, "clock returned None"),
        (lambda: "now", "clock returned 'now'"),
        (lambda: datetime(2026, 1, 1, tzinfo=BrokenZone()), "clock returned .*RuntimeError: no such zone"),
    ],
)
def test_a_clock_that_returns_no_time_is_named(clock: Callable[[], Any], said: str) -> None:
    with InfiniteMemory(clock=clock) as memory, pytest.raises(ValueError, match=said):
        memory.add(Message.user("Hello."))


class Counter:
    """A `TokenCounter` that returns whatever it is given."""

    name = "odd"
    overhead = 4

    def __init__(self, count: Any) -> None:
        self._count = count

    def __call__(self, text: str, /) -> int:
        return self._count  # type: ignore[no-any-return]


def test_a_counter_that_returns_no_count_is_named(subtests: pytest.Subtests) -> None:
    rows: list[Any] = [-3, 2.5, "3", None, True, 2**70, float("nan"), float("inf")]
    for count in rows:
        with (
            subtests.test(count=count),
            InfiniteMemory(token_counter=Counter(count)) as memory,
            pytest.raises(ValueError, match="counter 'odd'"),
        ):
            memory.add(Message.user("Hello."))


@given(
    count=st.sampled_from([lambda text: 0, len, lambda text: 1, lambda text: len(text) // 7, lambda text: 50]),
    placement=st.sampled_from(["grounding", "messages", "system"]),
    share=st.integers(0, 60), most=st.integers(40, 300), overhead=st.integers(0, 9),
)  # fmt: skip
def test_any_counter_gives_a_prompt(
    count: Callable[[str], int], placement: Any, share: int, most: int, overhead: int
) -> None:
    memory = InfiniteMemory(
        token_counter=CallableCounter(count, overhead=overhead), placement=placement,
        recall_tokens=share, max_tokens=most, reserve_tokens=0,
        on_overflow="keep", recall="thorough", embedder="words",
    )  # fmt: skip
    with memory:
        said = [Message.user, Message.assistant]
        memory.add([said[number % 2](f"The code of locker {number} is {number * 7}.") for number in range(40)])
        report = memory.context("Which code has the locker 8?").report
    assert report.total_tokens == sum(line.tokens for line in report.included)
