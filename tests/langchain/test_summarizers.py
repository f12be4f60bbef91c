"""LangChain's models as summarizers, and what agents, chains and histories are sent of a summary."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables import RunnableLambda

from langchain_infinite_memory import as_summarizer
from shared_core import ContextReport, Message, RecallTemplate
from tests.langchain.agents import Model, agent, ask, config, memory, size
from tests.support.event_loop import nothing_blocks

SETTINGS: dict[str, Any] = {
    "max_tokens": 160,
    "recall_tokens": 0,
    "recall_template": RecallTemplate(summary_header="<sum>", summary_footer="</sum>"),
}


def sums(messages: Sequence[BaseMessage]) -> AIMessage:
    """Count the lines that the model was told, and add them to what the summary so far counted."""
    told = messages[-1].text.partition("Said since:\n")[2].partition("\n\nNew summary:")[0]
    before = messages[-1].text.partition("Summary so far:\n")[2].split()
    count = int(before[2]) if before[0] == "so" else 0
    return AIMessage(f"so far {count + len(told.split(chr(10) * 2))} lines")


def talk_of(chat: Any, count: int) -> None:
    for number in range(count):
        ask(chat, f"what of {number} and all that was said of it?")


def test_an_agent_is_sent_the_summary_within_its_budget() -> None:
    model, summarizer = Model(), Model(reply=sums)
    middleware = memory(summarizer=as_summarizer(summarizer, input_tokens=120), **SETTINGS)
    chat = agent(model, middleware, tools=[])
    talk_of(chat, 30)
    system, summary, first, *_ = model.last
    assert system.text == "be brief"
    assert isinstance(summary, SystemMessage)
    assert first.type == "human"
    with middleware.pool.use("t") as one:
        kept = one.summary()
    assert kept is not None
    assert f"<sum>\nso far {kept.messages} lines\n</sum>" == summary.text
    assert 3 <= len(summarizer.sent) <= 15
    assert all(size(sent) <= 160 for sent in model.sent)
    told = summarizer.sent[0].messages[-1].text
    assert "user: what of 0 and all that was said of it?\n\nassistant: fine" in told


def test_what_the_summarizer_writes_is_not_streamed_and_nothing_blocks() -> None:
    model, summarizer = Model(), Model(reply=sums)
    middleware = memory(summarizer=as_summarizer(summarizer, input_tokens=120), **SETTINGS)
    chat = agent(model, middleware, tools=[])

    async def talk() -> list[str]:
        streamed: list[str] = []
        for number in range(20):
            asked = {"messages": [("user", f"what of {number} and all that was said of it?")]}
            async for chunk, _ in chat.astream(asked, config(), stream_mode="messages"):
                streamed.append(chunk.text)
        return streamed

    with nothing_blocks():
        streamed = asyncio.run(talk())
    assert summarizer.sent
    assert len(streamed) == 20
    assert not [text for text in streamed if "so far" in text]
    sync = [
        chunk.text
        for chunk, _ in chat.stream({"messages": [("user", "and now? " * 40)]}, config(), stream_mode="messages")
    ]
    assert len(sync) == 1


class Runs(BaseCallbackHandler):
    """Records the names of models' runs that have a parent, as traces do."""

    def __init__(self) -> None:
        self.names: list[str | None] = []

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, parent_run_id: UUID | None = None, name: str | None = None, **rest: Any
    ) -> None:
        if parent_run_id is not None:
            self.names.append(name)


def test_an_agent_goes_on_when_the_summarizer_fails() -> None:
    def fails(messages: Sequence[BaseMessage]) -> AIMessage:
        raise ConnectionError("no network")

    model, reports = Model(), list[ContextReport]()
    middleware = memory(
        summarizer=as_summarizer(Model(reply=fails), input_tokens=120),
        on_report=lambda report, run: reports.append(report),
        **SETTINGS,
    )
    chat = agent(model, middleware, tools=[])
    with pytest.warns(RuntimeWarning, match="ConnectionError: no network"):
        talk_of(chat, 20)
    assert len(model.sent) == 20
    assert any("ConnectionError: no network" in note for note in reports[-1].degraded)


def test_whatever_runs_is_a_summarizer() -> None:
    said = [Message.user("hi", id="u"), Message.assistant("hello", id="a")]
    plain = as_summarizer(RunnableLambda(lambda text: text.splitlines()[0]), prompt="{messages} | {previous}")
    assert plain("before", said) == "user: hi"
    assert as_summarizer(RunnableLambda(str.upper), prompt="{previous}|{messages}")(None, said) == (
        "(NONE YET)|USER: HI\n\nASSISTANT: HELLO"
    )
    assert as_summarizer(FakeListLLM(responses=["short"]))(None, said) == "short"
    assert as_summarizer(plain) is plain
    with pytest.raises(TypeError, match="returned int, not a message or a text"):
        as_summarizer(RunnableLambda(len))(None, said)
