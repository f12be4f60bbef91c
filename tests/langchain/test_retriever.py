"""What was said before, as documents and through a tool that an agent calls."""

import asyncio
import inspect
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from langchain_infinite_memory.chains.runnable import with_infinite_memory
from langchain_infinite_memory.search import HistoryRetriever, recall_tool
from langchain_infinite_memory.store import InfiniteStore, remember_tool
from shared_core import Message, RecallTemplate, SessionPool, ToolCall
from tests.support.histories import NOON, history

ONE: Any = {"configurable": {"session_id": "1"}}
SAID = [
    Message.user("the tower stands by the river", id="q1", created_at=NOON),
    Message.assistant("a fine tower", id="a1", created_at=NOON + timedelta(minutes=1), name="guide"),
    Message.user("i had fish for lunch", id="q2", created_at=NOON + timedelta(days=1)),
    Message.assistant("enjoy", id="a2", created_at=NOON + timedelta(days=1)),
]


@pytest.fixture
def pool(tmp_path: Path) -> Any:
    with SessionPool(tmp_path / "chat.db", embedder="words") as pool:
        with pool.use("1") as memory:
            memory.add(SAID)
        with pool.use("1", "ann") as memory:
            memory.add([Message.user("ann's tower is secret", id="s1"), Message.assistant("sh", id="s2")])
        yield pool


# The retriever


def test_documents_say_what_they_are(pool: SessionPool) -> None:
    retriever = HistoryRetriever(pool=pool, session_id="1")
    first, *_ = found = retriever.invoke("which tower by the river?")
    with pool.use("1") as memory:
        hits = memory.search("which tower by the river?", 4)
    assert [document.id for document in found] == [hit.message.id for hit in hits] == ["q1", "a1"]
    assert first == Document(
        "the tower stands by the river", id="q1",
        metadata={
            "message_id": "q1", "role": "user", "time": NOON.isoformat(), "turn_id": "q1", "score": hits[0].score,
        },
    )  # fmt: skip
    assert found[1].metadata["name"] == "guide"
    assert json.loads(first.model_dump_json())["metadata"] == first.metadata
    assert asyncio.run(retriever.ainvoke("which tower by the river?")) == found
    assert retriever.batch(["tower", "lunch"])[1][0].id == "q2"
    assert retriever.invoke("") == []


def test_k_and_other_limits(pool: SessionPool) -> None:
    with pool.use("2") as memory:
        memory.add(history(60))
    retriever = HistoryRetriever(pool=pool, session_id="2", k=3)
    assert len(retriever.invoke("gardens")) == 3
    assert len(retriever.invoke("gardens", k=7)) == 7
    assert len(asyncio.run(retriever.ainvoke("gardens", k=1))) == 1
    assert retriever.invoke("gardens", k=0) == []
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        HistoryRetriever(pool=pool, k=-1)


def test_sessions_come_from_arguments_or_the_config(pool: SessionPool) -> None:
    retriever = HistoryRetriever(pool=pool)
    assert [document.id for document in retriever.invoke("tower", ONE)] == ["a1", "q1"]
    with pytest.raises(ValueError, match="'session_id'"):
        retriever.invoke("tower")

    def ids(user: str, **fields: Any) -> list[str | None]:
        names: Any = {"configurable": {"session_id": "1", user: "ann"}}
        return [document.id for document in HistoryRetriever(pool=pool, **fields).invoke("tower", names)]

    assert ids("user", user_key="user") == ids("user_id") == ids("", session_id="1", user_id="ann") == ["s1", "s2"]
    assert ids("user_id", user_key=None) == ["a1", "q1"]
    bound = retriever.with_config(configurable={"session_id": "1"})
    assert asyncio.run(bound.ainvoke("lunch"))[0].id == "q2"


def test_in_a_chain_the_question_does_not_find_itself(pool: SessionPool) -> None:
    retriever = HistoryRetriever(pool=pool, k=1)
    seen = []

    def answer(value: dict[str, Any]) -> str:
        seen.append([document.id for document in value["docs"]])
        return "by the river"

    inner = RunnablePassthrough.assign(docs=RunnableLambda(lambda value: value["question"]) | retriever) | answer
    chain = with_infinite_memory(inner, store=pool, input_key="question", history_key="past")
    chain.invoke({"question": "where is the tower by the river?"}, ONE)
    chain.invoke({"question": "where is the tower by the river?"}, ONE)
    assert seen[0] == ["q1"]
    with pool.use("1") as memory:
        *_, asked, _ = memory.messages()
        assert memory.search(asked.content, 1)[0].message == asked
    assert asked.id not in seen[1]
    assert len(seen[1]) == 1


# The tool


FOUND = RecallTemplate().render(SAID[:2])


def test_the_tool_answers_with_what_was_said(pool: SessionPool) -> None:
    tool = recall_tool(pool, session_id="1")
    assert tool.name == "search_earlier_messages"
    assert "said earlier" in tool.description
    assert set(tool.args) == {"query"}
    assert tool.invoke({"query": "which tower by the river?"}) == FOUND
    assert asyncio.run(tool.ainvoke({"query": "which tower by the river?"})) == FOUND
    assert tool.invoke({"query": "zeppelin"}) == "Nothing that was said earlier matches."
    call: Any = {"name": tool.name, "args": {"query": "lunch"}, "id": "c1", "type": "tool_call"}
    answer = tool.invoke(call)
    assert isinstance(answer, ToolMessage)
    assert answer.content == RecallTemplate().render(SAID[2:])
    renamed = recall_tool(pool, session_id="1", name="past", description="Look back.", top_k=1)
    assert (renamed.name, renamed.description) == ("past", "Look back.")
    assert renamed.invoke({"query": "which tower by the river?"}) == RecallTemplate().render(SAID[:1])
    with pytest.raises(ValueError, match="top_k=0"):
        recall_tool(pool, top_k=0)


def test_the_tools_session_comes_from_the_config(pool: SessionPool) -> None:
    tool = recall_tool(pool)
    query = {"query": "which tower by the river?"}
    assert tool.invoke(query, ONE) == FOUND
    assert tool.invoke(query, {"configurable": {"thread_id": "1", "session_id": "none"}}) == FOUND
    assert "ann's tower" in tool.invoke({"query": "tower"}, {"configurable": {"session_id": "1", "user_id": "ann"}})
    assert "ann's tower" in recall_tool(pool, session_id="1", user_id="ann").invoke({"query": "tower"})
    assert tool.invoke(query).startswith("Earlier messages cannot be searched: config names no 'thread_id'")


def test_the_turn_that_is_going_on_is_not_found_and_long_texts_are_cut(pool: SessionPool) -> None:
    with pool.use("1") as memory:
        memory.add(Message.user("zebra " * 1_000, id="long", created_at=NOON + timedelta(days=2)))
        memory.add(Message.assistant("noted", id="noted", created_at=NOON + timedelta(days=2)))
        memory.add(Message.user("what of the zebra?", id="now"))
        memory.add(Message.assistant("", tool_calls=[ToolCall(id="c1", name="search_earlier_messages")]))
        found = [hit.message for hit in memory.search("zebra")]
    assert {message.id for message in found} == {"long", "noted", "now"}
    said = [message for message in found if message.id != "now"]
    short = {"long": ("zebra " * 1_000)[:2_000] + " […]", "noted": "noted"}
    answer = recall_tool(pool, session_id="1").invoke({"query": "zebra"})
    assert answer == RecallTemplate().render([message.replace(content=short[str(message.id)]) for message in said])


@pytest.mark.parametrize(("words", "shown"), [(1, 5), (400, 4)])
def test_the_answer_of_the_tool_takes_at_most_a_quarter_of_the_budget(words: int, shown: int) -> None:
    with SessionPool(max_tokens=1_000, reserve_tokens=200, token_counter="characters/4", embedder="words") as pool:
        with pool.use("1") as memory:
            for number in range(6):
                memory.add([Message.user(f"zebra {number} " + "grass " * words), Message.assistant("noted")])
        answer = recall_tool(pool, session_id="1").invoke({"query": "zebra"})
    assert answer.count("zebra") == shown
    assert len(answer) / 4 < 250


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


# The standard tests for retrievers


def test_the_standard_tests_pass() -> None:
    standard = pytest.importorskip("langchain_tests.integration_tests", reason="langchain-tests is not installed")
    with SessionPool() as pool:
        with pool.use("1") as memory:
            memory.add(history(20))

        class Suite(standard.RetrieversIntegrationTests):  # type: ignore[name-defined, misc]
            retriever_constructor = HistoryRetriever
            retriever_constructor_params = {"pool": pool, "session_id": "1"}  # noqa: RUF012
            retriever_query_example = "which gardens?"

        suite, retriever = Suite(), HistoryRetriever(pool=pool, session_id="1")
        suite.test_k_constructor_param()
        suite.test_invoke_with_k_kwarg(retriever)
        suite.test_invoke_returns_documents(retriever)
        asyncio.run(suite.test_ainvoke_returns_documents(retriever))
        ours = {"k_constructor_param", "invoke_with_k_kwarg", "invoke_returns_documents", "ainvoke_returns_documents"}
        names = {name.removeprefix("test_") for name in dir(suite) if name.startswith("test_")}
        assert names - {"no_overrides_DO_NOT_OVERRIDE"} == ours


def test_fields_can_be_configured(pool: SessionPool) -> None:
    from langchain_core.runnables import ConfigurableField

    retriever = HistoryRetriever(pool=pool, session_id="1", k=1)
    given = retriever.configurable_fields(k=ConfigurableField(id="k"))
    assert len(given.invoke("tower river lunch")) == 1
    assert len(given.with_config(configurable={"k": 3}).invoke("tower river lunch")) == 3
    assert retriever.k == 1


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("kind", ["integration", "unit"])
def test_the_standard_tests_of_tools_pass(kind: str, *, remembers: bool) -> None:
    standard = pytest.importorskip(f"langchain_tests.{kind}_tests", reason="langchain-tests is not installed")
    with SessionPool() as pool:
        with pool.use("1") as memory:
            memory.add(history(20))
        tool = remember_tool(InfiniteStore(pool)) if remembers else recall_tool(pool, session_id="1")

        class Suite(getattr(standard, f"Tools{kind.title()}Tests")):  # type: ignore[misc]
            tool_constructor = tool
            tool_invoke_params_example = {"fact" if remembers else "query": "which gardens?"}  # noqa: RUF012

        suite, given = Suite(), {"tool": Suite.tool_constructor}
        tests = {name for name in dir(suite) if name.startswith("test_")} - {"test_no_overrides_DO_NOT_OVERRIDE"}
        for name in sorted(tests):
            test = getattr(suite, name)
            done = test(**{part: given[part] for part in inspect.signature(test).parameters})
            if inspect.isawaitable(done):
                asyncio.run(done)  # type: ignore[arg-type]
        assert len(tests) == {"integration": 4, "unit": 5}[kind]
