"""The recall of a prompt as a retriever run: what callbacks and event streams are told."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler

from langchain_infinite_memory import InfiniteMemoryRunnable
from langchain_infinite_memory.traces import arecall_run, recall_run
from shared_core import Context, InfiniteMemory, Message
from shared_core.aio import AsyncInfiniteMemory
from shared_core.events import MemoryEvent
from tests.langchain.agents import Words
from tests.support.histories import NOON

QUESTION = "which tower stands by the river?"
SAID = [
    Message.user("the tower stands by the river", id="q1", created_at=NOON),
    Message.assistant("a fine tower", id="a1", created_at=NOON + timedelta(minutes=1)),
    *(Message.user(f"i had fish number {n} for lunch today", id=f"f{n}", created_at=NOON) for n in range(12)),
]

Event = tuple[Any, ...]


class Recorder(BaseCallbackHandler):
    """Records the events of retrievers and the runs of chains."""

    raise_error = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.chains: list[UUID] = []

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **rest: Any) -> None:
        self.chains.append(run_id)

    def on_retriever_start(self, serialized: Any, query: str, **rest: Any) -> None:
        self._note("start", rest["run_id"], rest["parent_run_id"], rest["name"], query)

    def on_retriever_end(self, documents: Any, **rest: Any) -> None:
        self._note("end", rest["run_id"], rest["parent_run_id"], documents)

    def on_retriever_error(self, error: BaseException, **rest: Any) -> None:
        self._note("error", rest["run_id"], rest["parent_run_id"], error)

    def _note(self, event: str, *told: Any) -> None:
        self.events.append((event, *told))


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    with InfiniteMemory(max_tokens=100, reserve_tokens=0, token_counter=Words(), embedder="words") as memory:
        memory.add(SAID)
        yield memory


def asking(memory: InfiniteMemory, *, fails: BaseException | None = None) -> RunnableLambda[str, Context]:
    """A step of a chain that asks the memory."""

    def ask(question: str) -> Context:
        with recall_run(question) as recall:
            if fails is not None:
                raise fails
            context = memory.context(question)
            recall.report = context.report
        return context

    async def aask(question: str) -> Context:
        async with arecall_run(question) as recall:
            if fails is not None:
                raise fails
            context = await AsyncInfiniteMemory(memory).context(question)
            recall.report = context.report
        return context

    return RunnableLambda(ask, aask, name="ask")


def invoke(step: Runnable[Any, Any], given: Any, *callbacks: BaseCallbackHandler) -> Any:
    return step.invoke(given, {"callbacks": [*callbacks]})


def ainvoke(step: Runnable[Any, Any], given: Any, *callbacks: BaseCallbackHandler) -> Any:
    return asyncio.run(step.ainvoke(given, {"callbacks": [*callbacks]}))


both = pytest.mark.parametrize("run", [invoke, ainvoke], ids=["sync", "async"])
Run = Callable[..., Any]


def recalled(context: Context) -> list[Document]:
    """The documents that the report of a prompt stands for."""
    times = {message.id: message.created_at.isoformat() for message in SAID if message.created_at}
    return [
        Document(line.text, id=line.id, metadata={
            "message_id": line.id, "role": line.role, "time": times[line.id], "score": line.score,
        })
        for line in context.report.lines
        if line.included and line.kind == "recalled" and line.id
    ]  # fmt: skip


@both
def test_recall_is_a_child_run_with_documents_and_scores(run: Run, memory: InfiniteMemory) -> None:
    recorder = Recorder()
    expected = recalled(run(asking(memory), QUESTION, recorder))
    assert [(document.id, document.page_content, document.metadata["role"]) for document in expected[:2]] == [
        ("q1", "the tower stands by the river", "user"),
        ("a1", "a fine tower", "assistant"),
    ]
    assert expected[0].metadata["score"] > expected[-1].metadata["score"]
    (ask,), (start, end) = recorder.chains, recorder.events
    assert start == ("start", start[1], ask, "infinite_memory", QUESTION)
    assert end == ("end", start[1], ask, expected)


@both
def test_the_figures_of_the_report_are_metadata_of_the_run(run: Run, memory: InfiniteMemory) -> None:
    collector = RunCollectorCallbackHandler()
    report = run(asking(memory), QUESTION, collector).report
    [traced] = collector.traced_runs[0].child_runs
    figures = {key: value for key, value in (traced.extra or {})["metadata"].items() if "infinite_memory" in key}
    assert figures == {
        "infinite_memory_tokens": report.total_tokens, "infinite_memory_budget": 100, "infinite_memory_degraded": 0,
        "infinite_memory_recalled": len(recalled(Context((), report))),
    }  # fmt: skip


@both
def test_what_the_caller_raises_is_reported(run: Run, memory: InfiniteMemory) -> None:
    recorder, error = Recorder(), ValueError("no vectors")
    with pytest.raises(ValueError, match="no vectors"):
        run(asking(memory, fails=error), QUESTION, recorder)
    start, end = recorder.events
    assert end == ("error", start[1], start[2], error)


def test_a_hook_is_told_of_the_engine_s_verbs() -> None:
    events: list[MemoryEvent] = []
    chain = InfiniteMemoryRunnable(RunnableLambda(lambda messages: "Noted."), on_event=events.append)
    config: Any = {"configurable": {"session_id": "s"}}
    assert chain.invoke("my code is xyzzy4471", config) == "Noted."
    assert asyncio.run(chain.ainvoke("what is my code?", config)) == "Noted."
    assert [event.name for event in events] == ["context", "add", "add"] * 2
    assert {event.session_id for event in events} == {"s"}
    assert "xyzzy" not in repr(events)
    with pytest.raises(TypeError, match="on_event=5"):
        InfiniteMemoryRunnable(RunnableLambda(str), on_event=5)
