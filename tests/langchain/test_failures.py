"""A memory that fails: the agent answers all the same, and the log says what happened."""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteMemoryMiddleware
from shared_core import BudgetError, StoreError
from shared_core.errors import MessageTooLargeError
from shared_core.pool import SessionPool
from shared_core.stores import SQLiteStore
from tests.langchain.agents import Model, Words, agent, ask, calls, config, memory, noting, size, stored
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
    monkeypatch.setattr("shared_core.stores.sqlite.connection._BUSY_SECONDS", 0.05)
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

    def test_or_it_raises(self, broken: Break, tmp_path: Path) -> None:
        (tmp_path / "m").mkdir()
        middleware = memory(tmp_path / "m" / "memory.db", on_error="raise")
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        held = broken(middleware, tmp_path / "m")
        with pytest.raises(StoreError):
            ask(one, "hello")
        if held is not None:
            held.close()
        middleware.close()

    def test_messages_sent_during_a_failure_are_stored_when_it_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shared_core.stores.sqlite.connection._BUSY_SECONDS", 0.05)
        middleware = memory(tmp_path / "memory.db")
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        with closing(lock(middleware, tmp_path)):
            ask(one, "are you there?")
        ask(one, "and now?")
        texts = ["hello", "are you there?", "and now?"]
        assert stored(middleware) == [said for text in texts for said in (text, f"fine: {text}")]
        middleware.close()

    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    def test_an_error_of_the_model_is_not_taken_for_one_of_the_memory(self, way: str) -> None:
        def refuse(messages: Sequence[BaseMessage]) -> AIMessage:
            raise LookupError("no such model")

        middleware = memory()
        middleware.pool.close()
        one, given = agent(Model(reply=refuse), middleware), {"messages": [HumanMessage("hello")]}
        with pytest.raises(LookupError) as raised:
            one.invoke(given, config()) if way == "invoke" else asyncio.run(one.ainvoke(given, config()))
        error: BaseException | None = raised.value
        while error is not None:
            assert not isinstance(error, StoreError)
            error = error.__context__

    def test_a_deleted_directory(self, tmp_path: Path) -> None:
        (tmp_path / "m").mkdir()
        middleware = memory(tmp_path / "m" / "memory.db")
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        shutil.rmtree(tmp_path / "m")
        for _ in range(2):
            assert ask(one, "hello")[-1].text == "fine: hello"
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


class TestEmbedders:
    def test_one_that_raises(self) -> None:
        def fails(texts: list[str]) -> Any:
            raise RuntimeError("no GPU")

        reports: list[Any] = []
        model = Model()
        middleware = InfiniteMemoryMiddleware(
            token_counter=Words(), max_tokens=200, reserve_tokens=0, embeddings=fails, on_report=noting(reports)
        )
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "my code is 4471")
        texts = ["tell me of the weather " * 8] * 6
        with pytest.warns(RuntimeWarning, match="no GPU"):
            answers = [ask(one, text)[-1].text for text in [*texts, "what is my code?"]]
        assert answers[-1] == "4471"
        assert "no GPU" in "".join(reports[-1].degraded)
        assert max(map(size, model.sent)) <= 200

    def test_another_than_the_stores(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        from shared_core.testing import HashingEmbedder

        saver = InMemorySaver()
        for dimension in (16, 8):
            given: dict[str, Any] = {"embedder": None, "embeddings": HashingEmbedder(dimension), "max_tokens": 200}
            with closing(memory(tmp_path / "memory.db", **given)) as middleware:
                one = agent(Model(), middleware, checkpointer=saver)
                for _ in range(5):
                    answer = ask(one, "tell me of the weather " * 8)[-1]
                assert answer.text.startswith("fine: ")
                with middleware.pool.use("t") as one_memory:
                    one_memory.index() if dimension == 16 else None
        assert "reindex" in caplog.text


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

    def test_a_question_without_words(self) -> None:
        model, middleware = Model(), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        one.invoke({"messages": []}, {"configurable": {"thread_id": "empty"}})
        assert [m.type for m in model.last] == ["system"]
        ask(one, "")
        ask(one, "hello")
        assert [m.type for m in model.last[1:]] == ["human", "ai", "human"]

    def test_the_window_alone_is_valid_and_fits(self) -> None:
        with SessionPool(token_counter=Words(), max_tokens=60, reserve_tokens=0) as pool:
            pool.close()
            history: list[BaseMessage] = [
                HumanMessage("word " * 9), calls("x"), HumanMessage("word " * 9), AIMessage("word"),
                HumanMessage("now"), calls("y", "z"),
            ]  # fmt: skip
            model = Model()
            agent(model, InfiniteMemoryMiddleware(pool), tools=[]).invoke({"messages": history})
        assert [m.type for m in model.last[1:]] == ["human", "human", "ai", "human", "ai"]
        assert size(model.sent[-1]) <= 60

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
