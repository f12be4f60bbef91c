"""What a hook is told: an event after each verb, without anything that was said unless the hook wants it."""

import asyncio
import json
import logging
import threading
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from shared_core import AsyncInfiniteMemory, BudgetError, InfiniteMemory, Message, SessionPool, UnknownReferenceError
from shared_core.events import MemoryEvent, as_hook, log_event, with_content
from shared_core.testing import HashingEmbedder
from shared_core.tokens import CallableCounter
from tests.support.scripted_embedder import ScriptedEmbedder

SECRET = "xyzzy4471"
SMALL: dict[str, Any] = {"max_tokens": 810, "reserve_tokens": 10, "token_counter": CallableCounter(len, overhead=0)}
"""A window so small that an older message must be recalled; tokens are characters."""


def talk(memory: InfiniteMemory) -> None:
    """Store a fact, and more than fits after it."""
    memory.add([Message.user(f"The code is {SECRET}.", id="u1"), Message.assistant("Noted.", id="a1")])
    for number in range(8):
        said = f"{number} good weather today and tomorrow, " * 3
        memory.add([Message.user(said, id=f"w{number}"), Message.assistant("Yes.", id=f"y{number}")])


def test_each_verb_tells_what_it_did() -> None:
    events: list[MemoryEvent] = []
    with InfiniteMemory(on_event=events.append, session_id="s", user_id="ann", embedder="words") as memory:
        memory.add([Message.user("hello", id="u1"), Message.assistant("Hi!", id="a1")])
        memory.follow(
            [Message.user("hello", id="u1"), Message.assistant("Hi!", id="a1"), Message.user("okay", id="u2")]
        )
        memory.search("hello", 1)
        memory.fork("other", at="a1")
        memory.add(Message.user("aside", id="u3"))
        memory.checkout("main")
        memory.merge("other")
        memory.index()
        memory.forget(ids=["u2"], dry_run=True)
        memory.forget(ids=["u2"])
    assert [(event.name, event.count, event.ids, event.branch) for event in events] == [
        ("add", 2, ("u1", "a1"), "main"),
        ("follow", 1, ("u2",), "main"),
        ("search", 1, ("u1",), "main"),
        ("fork", 0, (), "other"),
        ("add", 1, ("u3",), "other"),
        ("merge", 0, (), "main"),
        ("snapshot", 4, (), "main"),
        ("index", 0, (), "main"),
        ("forget", 1, ("u2",), "main"),
    ]
    assert {(event.session_id, event.user_id, event.error) for event in events} == {("s", "ann", None)}
    assert all(event.seconds >= 0 and event.at.year > 2000 for event in events)


def test_a_prompt_is_told_as_its_report_says() -> None:
    events: list[MemoryEvent] = []
    with InfiniteMemory(on_event=events.append, embedder=HashingEmbedder(), **SMALL) as memory:
        talk(memory)
        memory.context("What is the code?")
        context = memory.context("What is the code?")
        event = events[-1]
        with pytest.raises(AttributeError):
            object.__getattribute__(context.report, "lines")  # not made: nobody has looked
        report = context.report
    assert event.tokens == {kind.value: tokens for kind, tokens in report.totals.items() if tokens}
    assert event.budget == report.budget == 800
    recalled = [line for line in report.included if line.kind.value == "recalled" and line.id is not None]
    assert event.ids == tuple(line.id for line in recalled)
    assert event.scores == tuple(line.score for line in recalled)
    assert (event.embedder, event.pending, event.degraded) == (report.embedder, 0, ())
    assert event.candidates >= event.count >= 1
    assert event.ids[0] == "u1"
    assert (event.rows_read, event.index_cached) == (0, True)
    assert event.rows_cached > 0
    assert [stage.name for stage in event.stages] == ["plan", "embed", "recall", "compose"]
    plan, embed, recall, compose = event.stages
    assert plan.began == 0
    assert recall.began <= embed.began <= embed.began + embed.seconds <= recall.began + recall.seconds
    assert sum(stage.seconds for stage in (plan, recall, compose)) <= event.seconds
    assert (embed.texts, embed.outcome) == (1, "")


def test_the_first_prompt_reads_and_embeds() -> None:
    events: list[MemoryEvent] = []
    embedder = HashingEmbedder()
    with InfiniteMemory(on_event=events.append, embedder=embedder, **SMALL) as memory:
        talk(memory)
        memory.context("What is the code?")
    event = events[-1]
    count = len(embedder.documents)
    assert (event.index_cached, event.embedded) == (False, count)
    assert event.rows_read >= 18
    assert [(stage.name, stage.texts) for stage in event.stages if stage.texts] == [("embed", 1), ("embed", 16)]


def test_nothing_said_is_told_unless_it_is_wanted() -> None:
    events: list[MemoryEvent] = []
    told_all: list[MemoryEvent] = []
    for hook in (events.append, with_content(told_all.append)):
        with InfiniteMemory(on_event=hook, embedder=HashingEmbedder(), **SMALL) as memory:
            talk(memory)
            memory.context(f"What is the code {SECRET}?")
            memory.search(SECRET)
            memory.forget(ids=["u1"])
    assert len(events) == len(told_all) == 12
    assert SECRET not in repr(events) + json.dumps([event.to_dict() for event in events])
    assert told_all[0].texts == (f"The code is {SECRET}.", "Noted.")
    prompt, search = told_all[9:11]
    assert (prompt.query, prompt.texts[0]) == (f"What is the code {SECRET}?", f"The code is {SECRET}.")
    assert len(prompt.texts) == len(prompt.ids)
    assert (search.query, search.texts[0]) == (SECRET, f"The code is {SECRET}.")


def test_an_embedder_that_fails_is_told_without_its_words() -> None:
    events: list[MemoryEvent] = []
    embedder = ScriptedEmbedder({})
    with InfiniteMemory(on_event=events.append, embedder=embedder, **SMALL) as memory:
        talk(memory)
        memory.context("What is the code?")
        embedder.failing = RuntimeError(f"cannot embed {SECRET!r}")
        with pytest.warns(RuntimeWarning, match="by words alone"):
            memory.context(f"Where is {SECRET}?")
    assert events[-1].degraded == ("words_alone", "embedder_failed")
    assert [(stage.name, stage.outcome) for stage in events[-1].stages if stage.name == "embed"] == [
        ("embed", "failed")
    ]
    assert SECRET not in repr(events)
    assert events[-1].embedder is None


def test_an_error_is_told_and_raised() -> None:
    events: list[MemoryEvent] = []
    with InfiniteMemory(on_event=events.append, max_tokens=50, reserve_tokens=10) as memory:
        memory.add(Message.system("word " * 100))
        with pytest.raises(BudgetError):
            memory.context("hello")
        with pytest.raises(UnknownReferenceError):
            memory.forget(ids=["nobody"])
    assert [(event.name, event.error) for event in events] == [
        ("add", None), ("context", "BudgetError"), ("forget", "UnknownReferenceError"),
    ]  # fmt: skip


def test_a_prompt_over_the_budget_is_told() -> None:
    events: list[MemoryEvent] = []
    with InfiniteMemory(on_event=events.append, on_overflow="keep", max_tokens=50, reserve_tokens=10) as memory:
        memory.context("word " * 100)
    assert events[-1].degraded == ("over_budget",)


def test_what_a_hook_raises_fails_no_verb_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def failing(event: MemoryEvent) -> None:
        raise RuntimeError(SECRET)

    with caplog.at_level(logging.INFO, "shared_core"), SessionPool(on_event=failing) as pool:
        for name in ("a", "b"):
            with pool.use(name) as memory:
                assert [message.content for message in memory.add(Message.user("hello"))] == ["hello"]
                assert memory.context("hello").messages
                with pytest.raises(UnknownReferenceError):
                    memory.forget(ids=["nobody"])
    assert [record.getMessage() for record in caplog.records] == [
        "on_event failed at 'add', which is not logged again: RuntimeError"
    ]
    with InfiniteMemory(on_event=lambda event: None) as memory:
        assert as_hook(None) is None
        memory.add(Message.user("hello"))


def test_a_hook_may_use_the_memory() -> None:
    counts: list[int] = []
    with InfiniteMemory(on_event=lambda event: counts.append(len(memory.messages()))) as memory:
        memory.add(Message.user("hello"))
        memory.add(Message.assistant("hello"))
    assert counts == [1, 2]


def test_the_asynchronous_memory_tells_in_the_context_of_its_caller() -> None:
    caller: ContextVar[str] = ContextVar("caller")
    seen: list[tuple[str, str, bool]] = []

    def hook(event: MemoryEvent) -> None:
        seen.append((event.name, caller.get("nobody"), threading.current_thread() is threading.main_thread()))

    async def one(memory: AsyncInfiniteMemory, name: str) -> None:
        caller.set(name)
        await memory.add(Message.user("hello"))
        await memory.context("hello")
        await memory.search("hello")
        await memory.index()

    async def main() -> None:
        async with AsyncInfiniteMemory(on_event=hook, embedder=HashingEmbedder()) as memory:
            await asyncio.gather(one(memory, "ann"), one(memory, "ben"))

    asyncio.run(main())
    verbs = ("add", "context", "search", "index")
    assert sorted(one for one in seen if one[0] in verbs) == sorted(
        (verb, name, False) for verb in verbs for name in ("ann", "ben")
    )


def test_a_snapshot_in_the_background_is_told(tmp_path: Path) -> None:
    events: list[MemoryEvent] = []
    with SessionPool(tmp_path / "chat.db", on_event=events.append, embedder="words") as pool, pool.use("s") as memory:
        memory.add(Message.user("hello"))
        memory.add([Message.user(f"message {number}") for number in range(300)])
        memory.search("hello")
    assert [(event.name, event.count, event.session_id) for event in events] == [
        ("add", 1, "s"),
        ("add", 300, "s"),
        ("search", 4, "s"),
        ("snapshot", 301, "s"),
    ]


def test_the_past_and_a_summary() -> None:
    events: list[MemoryEvent] = []

    def summarizer(previous: str | None, messages: Sequence[Message]) -> str:
        return "They talked."

    with InfiniteMemory(on_event=events.append, summarizer=summarizer, embedder="words", **SMALL) as memory:
        for number in range(4):
            memory.add([Message.user("long ago " * 30, id=f"u{number}"), Message.assistant("Yes.")])
        events.clear()
        memory.summarize()
        memory.context("what?", as_of="u1")
    summarized, past = events
    assert [(stage.name, stage.texts) for stage in summarized.stages] == [("summarize", 4)]
    assert (past.name, past.rows_read, past.error) == ("context", 3, None)


def test_a_line_of_log_for_each_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "shared_core.events"):
        log_event(MemoryEvent(name="add", session_id="s", time_ns=0, seconds=0.0012, count=2))
        log_event(
            MemoryEvent(
                name="context", session_id="s", time_ns=0, seconds=0.01, tokens={"window": 7, "recalled": 5},
                degraded=("words_alone",), error="BudgetError",
            )
        )  # fmt: skip
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "add of session 's' took 1.2 ms: 2 messages, 0 tokens"),
        ("WARNING", "context of session 's' took 10.0 ms: 0 messages, 12 tokens, words_alone, BudgetError"),
    ]


def test_an_event_as_plain_data() -> None:
    event = MemoryEvent(name="search", session_id="s", time_ns=5, seconds=0.5, ids=("a",), index_cached=False)
    assert event.to_dict() == {
        "name": "search", "session_id": "s", "time_ns": 5, "seconds": 0.5, "ids": ["a"], "index_cached": False,
        "tokens": {},
    }  # fmt: skip
    assert repr(event).startswith("MemoryEvent(name='search', session_id='s', time_ns=5, seconds=0.5, ids=('a',)")
