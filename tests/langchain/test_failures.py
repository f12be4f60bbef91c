"""A memory that fails: the agent answers all the same, and the log says what happened."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteMemoryMiddleware, MemoryFailedWarning, with_infinite_memory
from shared_core import BudgetError, StoreError
from shared_core.errors import MessageTooLargeError
from shared_core.stores import SQLiteStore
from tests.langchain.agents import Model, agent, ask, calls, config, memory, noting, size, stored
from tests.langchain.random_histories import objections

Break = Callable[[InfiniteMemoryMiddleware, Path], Any]


def close(middleware: InfiniteMemoryMiddleware, path: Path) -> None:
    middleware.close()


def overwrite(middleware: InfiniteMemoryMiddleware, path: Path) -> None:
    for file in path.iterdir():
        file.write_bytes(b"no database at all" * 1000)


def lock(middleware: InfiniteMemoryMiddleware, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path / "memory.db", isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def drop(middleware: InfiniteMemoryMiddleware, path: Path) -> None:
    with closing(sqlite3.connect(path / "memory.db")) as connection:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        tables = [name for (name,) in connection.execute(named)]
        connection.execute("PRAGMA foreign_keys = OFF")
        for name in tables:
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        connection.commit()


@pytest.fixture(params=[close, overwrite, lock, drop], ids=lambda function: function.__name__)
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Break:
    monkeypatch.setattr("langchain_infinite_memory.middleware.WAIT", 0.05)
    return request.param  # type: ignore[no-any-return]


class TestStores:
    def test_the_agent_goes_on_with_the_newest_turns(
        self, broken: Break, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "m").mkdir()
        model, middleware = Model(), memory(tmp_path / "m" / "memory.db", max_tokens=150)
        one = agent(model, middleware, checkpointer=InMemorySaver())
        for _ in range(4):
            ask(one, "tell me of the weather " * 8)
        held = broken(middleware, tmp_path / "m")
        assert caplog.text == ""
        messages = ask(one, "look at a, b")
        assert messages[-1].text == "fine: look at a, b"
        assert "the memory failed, and the agent goes on without it" in caplog.text
        assert {record.levelno for record in caplog.records} == {logging.WARNING}
        assert len(caplog.records) == 3, "once for each model call, and once when the run ends"
        last = model.sent[-1]
        assert size(last) <= 150
        assert objections(last.messages, window=True) == []
        assert [m.type for m in last.messages][-4:] == ["human", "ai", "tool", "tool"]
        assert len(last.messages) > 5, "an older turn, too"
        if held is not None:
            held.close()
        middleware.close()

    def test_messages_sent_during_a_failure_are_stored_when_it_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("langchain_infinite_memory.middleware.WAIT", 0.05)
        middleware = memory(tmp_path / "memory.db")
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        with closing(lock(middleware, tmp_path)):
            ask(one, "are you there?")
        ask(one, "and now?")
        texts = ["hello", "are you there?", "and now?"]
        assert stored(middleware) == [said for text in texts for said in (text, f"fine: {text}")]
        middleware.close()

    def test_only_the_answer_cannot_be_stored(self, caplog: pytest.LogCaptureFixture) -> None:
        store = SQLiteStore(":memory:")
        middleware = memory(store)

        def closing_reply(messages: Sequence[BaseMessage]) -> AIMessage:
            store.close()
            return AIMessage("answered")

        assert ask(agent(Model(reply=closing_reply), middleware), "hello")[-1].text == "answered"
        assert len(caplog.records) == 1
        store = SQLiteStore(":memory:")
        raising = agent(Model(reply=closing_reply), memory(store, on_error="raise"))
        with pytest.raises(StoreError):
            ask(raising, "hello")


class TestALockedFile:
    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    def test_a_turn_waits_once(self, way: str, tmp_path: Path) -> None:
        middleware = memory(tmp_path / "memory.db")
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        ask(one, "hello")

        def turn() -> float:
            began, given = time.monotonic(), {"messages": [HumanMessage("look at a then b")]}
            one.invoke(given, config()) if way == "invoke" else asyncio.run(one.ainvoke(given, config()))
            return time.monotonic() - began

        with closing(lock(middleware, tmp_path)):
            assert 1.5 < turn() < 3.5
        ask(one, "and?")
        assert stored(middleware)[2:4] == ["look at a then b", "a"], "stored when the file is free"
        middleware.close()

    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    def test_a_chain_waits_no_longer_than_an_agent(self, way: str, tmp_path: Path) -> None:
        chain = with_infinite_memory(lambda prompt: "fine", store=tmp_path / "memory.db")
        one: Any = {"configurable": {"session_id": "1"}}
        chain.invoke("hello", one)

        def turn() -> float:
            began = time.monotonic()
            chain.invoke("and?", one) if way == "invoke" else asyncio.run(chain.ainvoke("and?", one))
            return time.monotonic() - began

        with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as held:
            held.execute("BEGIN EXCLUSIVE")
            with pytest.warns(MemoryFailedWarning):
                assert 1.5 < turn() < 3.5
        chain.close()

    def test_many_chains_at_once_do_not_wait_one_after_the_other(self, tmp_path: Path) -> None:
        chain = with_infinite_memory(lambda prompt: "fine", store=tmp_path / "memory.db")
        chain.invoke("hello", {"configurable": {"session_id": "0"}})

        async def work() -> float:
            began = time.monotonic()
            runs = (chain.ainvoke("and?", {"configurable": {"session_id": f"{number}"}}) for number in range(8))
            await asyncio.gather(*runs)
            return time.monotonic() - began

        with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as held:
            held.execute("BEGIN EXCLUSIVE")
            with pytest.warns(MemoryFailedWarning):
                assert asyncio.run(work()) < 4
        chain.close()

    def test_many_turns_at_once_leave_the_threads_of_the_event_loop_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("langchain_infinite_memory.middleware.WAIT", 0.5)
        middleware = memory(tmp_path / "memory.db")
        one = agent(Model(), middleware, tools=[])

        async def work() -> tuple[float, float]:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
            began, given = time.monotonic(), {"messages": [HumanMessage("hello")]}
            turns = [asyncio.create_task(one.ainvoke(given, config(f"{number}"))) for number in range(8)]
            await asyncio.sleep(0.1)
            asked = time.monotonic()
            await asyncio.to_thread(int)
            others = time.monotonic() - asked
            await asyncio.gather(*turns)
            return others, time.monotonic() - began

        with closing(lock(middleware, tmp_path)):
            others, whole = asyncio.run(work())
        assert others < 0.2
        assert whole < 2.5, "they do not wait one after the other"
        middleware.close()


class TestBudgets:
    @pytest.mark.parametrize("on_error", ["window", "raise"])
    def test_what_cannot_fit_raises_with_the_sizes(self, on_error: Any) -> None:
        middleware = memory(max_tokens=100, on_error=on_error)
        one = agent(Model(), middleware, system_prompt="be brief " * 100, checkpointer=InMemorySaver())
        with pytest.raises(BudgetError, match="system messages need 204 tokens, but the budget is 100"):
            ask(one, "hello")
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        with pytest.raises(MessageTooLargeError, match="the question needs 204 tokens"):
            ask(one, "long " * 200, "other")
        assert stored(middleware) == ["hello"], "the question is not lost"

    def test_a_question_larger_than_the_budget_may_be_sent_and_reported(self) -> None:
        reports: list[Any] = []
        model, middleware = Model(), memory(max_tokens=100, on_overflow="keep", on_report=noting(reports))
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        ask(one, "long " * 200)
        assert [m.type for m in model.last] == ["system", "human"]
        assert [report.over_budget for report in reports] == [False, True]

    def test_whatever_a_caller_s_part_raises_the_agent_goes_on(self, caplog: pytest.LogCaptureFixture) -> None:
        class Full(SQLiteStore):
            def append(self, *given: Any, **named: Any) -> Any:
                raise OSError("the disk is full")

        def broken(text: str) -> int:
            raise RuntimeError("no table")

        for middleware in (InfiniteMemoryMiddleware(Full(":memory:")), InfiniteMemoryMiddleware(token_counter=broken)):
            caplog.clear()
            assert ask(agent(Model(), middleware), "hello")[-1].text == "fine: hello"
            assert "the memory failed" in caplog.text
            middleware.close()

    def test_an_array_among_a_tool_s_results_is_compared_as_it_is_stored(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        picture = ToolMessage("a picture", tool_call_id="c", artifact=np.arange(3))
        middleware = memory()
        one = agent(Model(), middleware, checkpointer=InMemorySaver())  # which gives a new array every time
        one.invoke({"messages": [HumanMessage("draw"), calls("c"), picture, HumanMessage("well?")]}, config())
        for text in ("and?", "so?"):
            ask(one, text)
        assert [text for text in stored(middleware) if "fine" not in text] == [
            "draw",
            "c",
            "[a picture]",
            "well?",
            "and?",
            "so?",
        ]
        assert "failed" not in caplog.text
