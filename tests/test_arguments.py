"""A wrong argument fails at the call, with a message of one or two lines that says what to pass instead.

All that the messages say stands in one table, `errors.txt`.
"""

import asyncio
import inspect
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import (
    AsyncInfiniteMemory,
    BudgetError,
    Grounding,
    InfiniteMemory,
    Message,
    SessionPool,
    ToolCall,
    prune,
    sliding_window,
)
from shared_core.arguments import moment
from shared_core.errors import InfiniteMemoryError
from shared_core.messages import GroundingItem

HI = Message.user("hello")

NAMES = {
    "AsyncInfiniteMemory": AsyncInfiniteMemory, "Grounding": Grounding, "GroundingItem": GroundingItem, "HI": HI,
    "InfiniteMemory": InfiniteMemory, "Message": Message, "SessionPool": SessionPool,
    "ToolCall": ToolCall, "prune": prune, "sliding_window": sliding_window,
}  # fmt: skip
"""What the calls of the table refer to, besides a `memory` with a message `u1` and its answer `a1`."""

TABLE = re.findall(
    r"^>>> (.+)\n((?:.+\n)+)", Path(__file__).with_name("errors.txt").read_text(encoding="utf-8"), flags=re.MULTILINE
)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InfiniteMemory]:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("once upon a time\n" * 100)
    monkeypatch.chdir(tmp_path)
    with InfiniteMemory() as memory:
        memory.add([Message.user("hello", id="u1"), Message.assistant("hi", id="a1")])
        yield memory
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "text"}, "what fails leaves no file"


def test_what_the_errors_say(memory: InfiniteMemory) -> None:
    assert len(TABLE) > 100
    for call, shown in TABLE:
        with pytest.raises((InfiniteMemoryError, ValueError, TypeError, AttributeError)) as caught:
            eval(call, {**NAMES, "memory": memory})
        said = str(caught.value).replace("\\\\", "/").replace(Path.cwd().as_posix(), "/home")
        pattern = re.escape(shown).replace(re.escape("[...]"), ".+")
        assert re.fullmatch(pattern, f"{caught.type.__name__}: {said}\n"), (call, said)
        assert len(said) <= 320, call
        hidden = type(caught.value.__context__).__module__.startswith("pydantic")
        assert caught.value.__suppress_context__ or not hidden, call
        assert [message.id for message in memory.messages()] == ["u1", "a1"], "and nothing is stored"


@pytest.mark.parametrize(
    "call", ["context(5)", "search('x', since='yesterday')", "forget(before='soon')", "checkout(None)"]
)
def test_the_async_memory_says_the_same(memory: InfiniteMemory, call: str) -> None:
    async def wrong() -> None:
        await eval(f"memory.{call}", {"memory": AsyncInfiniteMemory(memory)})

    with pytest.raises((TypeError, ValueError)) as expected:
        eval(f"memory.{call}", {"memory": memory})
    with pytest.raises(expected.type) as caught:
        asyncio.run(wrong())
    assert str(caught.value) == str(expected.value)


def test_a_limit_that_was_changed_to_nonsense_is_named(memory: InfiniteMemory) -> None:
    memory.max_tokens = 500  # as large as the reserve
    with pytest.raises(BudgetError) as error:
        memory.context("hi")
    assert (error.value.needed, error.value.available) == (1, 0)
    memory.max_tokens = -5
    with pytest.raises(ValueError, match="max_tokens=-5"):
        memory.context("hi")


# What each setting of a memory may be

NO_NUMBER: st.SearchStrategy[Any] = st.one_of(st.text(), st.booleans(), st.binary(), st.just([]))


def below(least: int) -> st.SearchStrategy[Any]:
    """What is no whole number of at least so much."""
    return st.one_of(NO_NUMBER, st.integers(max_value=least - 1), st.floats())


def outside(low: float, high: float = float("inf")) -> st.SearchStrategy[Any]:
    """What is no number within these bounds."""
    return st.one_of(NO_NUMBER, st.floats(max_value=low, exclude_max=True), st.just(float("nan"))) | (
        st.nothing() if high == float("inf") else st.floats(min_value=high, exclude_min=True)
    )


def none_of(*choices: str) -> st.SearchStrategy[Any]:
    return st.one_of(st.text().filter(lambda text: text not in choices), st.binary(), st.booleans(), st.just([]))


WRONG: dict[str, st.SearchStrategy[Any]] = {
    "scope": none_of("session", "user"),
    "session_id": st.sampled_from(["", 5, None]),
    "user_id": st.sampled_from(["", 5]),
    "max_tokens": below(1),
    "reserve_tokens": below(0),
    "window_turns": below(0),
    "recall": none_of("balanced", "thorough", "precise"),
    "recall_unit": none_of("message", "turn"),
    "top_k": below(0),
    "recall_tokens": st.one_of(NO_NUMBER, st.integers(max_value=-1), outside(0, 1)),
    "min_score": outside(-1, 1),
    "placement": none_of("grounding", "messages", "system"),
    "keep_grounding": st.one_of(st.integers(max_value=-1), none_of("newest", "all", "none")),
    "on_overflow": none_of("raise", "keep"),
    "fill": none_of("steady", "stop", "skip"),
}
"""Values that a setting must not have."""


@given(st.sampled_from(sorted(WRONG)).flatmap(lambda name: st.tuples(st.just(name), WRONG[name])))
def test_a_setting_out_of_its_range_is_named(wrong: tuple[str, Any]) -> None:
    name, value = wrong
    with pytest.raises((ValueError, TypeError), match=f"^{name}="):
        InfiniteMemory(**{name: value})


def test_every_setting_that_has_a_range_is_tried() -> None:
    free = {"store", "token_counter", "embedder", "embed_text", "recall_template", "reranker", "clock"}
    free |= {"summarizer", "system", "strippers", "on_event"}
    assert set(WRONG) == set(inspect.signature(InfiniteMemory).parameters) - free


# Times


@pytest.mark.parametrize(
    ("given", "beginning", "end"),
    [
        ("2026-01-31", (2026, 1, 31), (2026, 1, 31, 23, 59, 59, 999_999)),
        (" 2026-01-31 ", (2026, 1, 31), (2026, 1, 31, 23, 59, 59, 999_999)),
        (date(2026, 1, 31), (2026, 1, 31), (2026, 1, 31, 23, 59, 59, 999_999)),
        ("2026-01-31T10:00", (2026, 1, 31, 10), (2026, 1, 31, 10)),
        ("2026-01-31T10:00Z", (2026, 1, 31, 10), (2026, 1, 31, 10)),
        ("2026-01-31T10:00+01:00", (2026, 1, 31, 9), (2026, 1, 31, 9)),
        (datetime(2026, 1, 31, 10), (2026, 1, 31, 10), (2026, 1, 31, 10)),
        (datetime(2026, 1, 31, tzinfo=UTC), (2026, 1, 31), (2026, 1, 31)),
    ],
)
def test_a_time_may_be_a_datetime_a_date_or_text(given: Any, beginning: tuple[int, ...], end: tuple[int, ...]) -> None:
    assert moment("since", given) == datetime(*beginning, tzinfo=UTC)  # type: ignore[misc, arg-type]
    assert moment("until", given, end=True) == datetime(*end, tzinfo=UTC)  # type: ignore[misc, arg-type]
