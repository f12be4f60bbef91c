"""Agents on the event loop: many at once, and nothing holds it up."""

import asyncio
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteMemoryMiddleware
from langchain_infinite_memory.identity import Thread
from langchain_infinite_memory.threads import ThreadMemory
from shared_core import InfiniteMemory, SessionPool
from shared_core.messages import Message
from shared_core.testing import HashingEmbedder
from tests.langchain.agents import Model, Words, agent, config, memory, said, stored
from tests.support.event_loop import nothing_blocks


class Slow(Model):
    """Lets others run before it answers, the later question first."""

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.sleep(0.05 if "first" in messages[-1].text else 0)
        return self._generate(messages, stop, None, **kwargs)


async def aask(agent: Any, text: str, thread: str = "t", **arguments: Any) -> list[BaseMessage]:
    result = await agent.ainvoke({"messages": [HumanMessage(text)]}, config(thread), **arguments)
    return list(result["messages"])


def turns(middleware: InfiniteMemoryMiddleware, thread: str) -> dict[str, list[str]]:
    """Question -> what answers it, over all branches."""
    with middleware.pool.use(thread) as one:
        found: dict[str | None, Message] = {}
        for branch in one.branches():
            one.checkout(branch.name)
            found |= {message.id: message for message in one.messages()}
    asked = {id_: message.content for id_, message in found.items() if message.role == "user"}
    return {
        text: [m.content for m in found.values() if m.turn_id == id_ and m.id != id_] for id_, text in asked.items()
    }


def test_both_faces_show_the_same(tmp_path: Path) -> None:
    texts = ["my code is 4471", *["tell me of the weather " * 8] * 6, "look at a then b", "what is my code?"]

    async def later(middleware: InfiniteMemoryMiddleware) -> Model:
        model = Model()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        for text in texts:
            await aask(one, text)
        return model

    def at_once(middleware: InfiniteMemoryMiddleware) -> Model:
        model = Model()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        for text in texts:
            one.invoke({"messages": [HumanMessage(text)]}, config())
        return model

    first, second = memory(max_tokens=170), memory(max_tokens=170)
    sync, async_ = at_once(first), asyncio.run(later(second))
    assert [said(sent.messages) for sent in async_.sent] == [said(sent.messages) for sent in sync.sent]
    assert stored(second) == stored(first)
    assert sync.last[-1].text != "what is my code?", "something was recalled"


@pytest.mark.parametrize("checkpointed", [True, False])
def test_many_threads_at_once_and_nothing_blocks(tmp_path: Path, *, checkpointed: bool) -> None:
    count = 50 if "SOAK" in os.environ else 12
    texts = ["my code is {}", "look at a, b then c", "tell me of the weather " * 9, "what is my code?"]

    async def one_thread(one: Any, number: int) -> str:
        history: list[BaseMessage] = []
        for text in texts:
            asked = HumanMessage(text.format(number))
            given = [asked] if checkpointed else [*history, asked]
            result = await one.ainvoke({"messages": given}, config(f"{number}"))
            history = result["messages"]
        return str(history[-1].text)

    async def work(middleware: InfiniteMemoryMiddleware) -> list[str]:
        one = agent(Slow(), middleware, checkpointer=InMemorySaver() if checkpointed else None)
        with nothing_blocks():
            return await asyncio.gather(*(one_thread(one, number) for number in range(count)))

    with closing(memory(tmp_path / "memory.db", max_tokens=120)) as middleware:
        assert asyncio.run(work(middleware)) == [f"{number}" for number in range(count)]
        for number in range(count):
            found = turns(middleware, f"{number}")
            asked = [text.format(number) for text in texts]
            assert list(found) == asked
            assert found[asked[3]] == [f"{number}"]
            assert len(found[asked[1]]) == 6


class Streaming(Model):
    """Answers in pieces."""

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        result = self._generate(messages, stop, None, **kwargs)
        for word in result.generations[0].message.text.split(" "):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def test_streaming_gives_the_models_tokens_and_nothing_else() -> None:
    async def pieces(*middleware: Any) -> list[str]:
        one = agent(Streaming(), *middleware, tools=[], checkpointer=InMemorySaver())
        found = []
        for text in ("one two three", "four"):
            given = {"messages": [HumanMessage(text)]}
            found += [chunk.text async for chunk, _ in one.astream(given, config(), stream_mode="messages")]
        return found

    middleware = memory()
    with_it, without = asyncio.run(pieces(middleware)), asyncio.run(pieces())
    assert [piece for piece in with_it if piece] == [piece for piece in without if piece]
    assert "".join(with_it) == "fine: one two three fine: four "
    assert stored(middleware) == ["one two three", "fine: one two three ", "four", "fine: four "]


@pytest.mark.parametrize("taking", [False, True])
@pytest.mark.parametrize("work", ["aprompt", "asearch"])
def test_a_memory_whose_user_is_cancelled_is_closed(
    work: str, monkeypatch: pytest.MonkeyPatch, *, taking: bool
) -> None:
    class Endless(HashingEmbedder):
        async def aembed_query(self, text: str) -> Any:
            waits.set()
            await asyncio.Event().wait()

    def close(self: InfiniteMemory) -> None:
        closed.append(self)
        really_close(self)

    async def cancel(pool: SessionPool) -> None:
        loop = asyncio.get_running_loop()

        def take(*given: Any) -> Any:
            loop.call_soon_threadsafe(waits.set)
            begun.wait(30)
            return really_take(*given)

        memories = ThreadMemory(pool)
        messages = [HumanMessage("tell me of the weather " * 8, id=f"{number}") for number in range(9)]
        memories.store(Thread("s"), messages)
        before = len(closed)
        if taking:
            monkeypatch.setattr(ThreadMemory, "_take", take)
        given = (Thread("s"), messages, *(["weather", 3] if work == "asearch" else []))
        asked = asyncio.create_task(getattr(memories, work)(*given))
        await waits.wait()
        asked.cancel()
        await asyncio.sleep(0)
        begun.set()
        await asyncio.wait({asked})
        assert asked.cancelled()
        assert (len(closed) - before, pool._idle) == (1, [])

    closed: list[InfiniteMemory] = []
    really_close, really_take = InfiniteMemory.close, ThreadMemory._take
    waits, begun = asyncio.Event(), threading.Event()
    settings: dict[str, Any] = {"embedder": Endless(), "token_counter": Words()}
    with SessionPool(max_tokens=150, reserve_tokens=0, **settings) as pool:
        monkeypatch.setattr(InfiniteMemory, "close", close)
        asyncio.run(cancel(pool))


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_runs_at_once_without_a_checkpointer(*, tools: bool, before: bool) -> None:
    """Each sends its question alone; some of them have been asked before."""
    texts = [f"first {n}{': look at a then b' if tools else ''}" for n in range(10)]

    async def work(middleware: InfiniteMemoryMiddleware) -> None:
        one = agent(Slow(), middleware)
        for text in ["hello", texts[3], "well", texts[6], "good"] if before else []:
            await aask(one, text)
        await asyncio.gather(*(aask(one, text) for text in texts))

    middleware = memory()
    asyncio.run(work(middleware))
    steps = ["", "a is there", "", "b is there"] if tools else []
    found = turns(middleware, "t")
    assert {text: found[text] for text in texts} == {text: [*steps, f"fine: {text}"] for text in texts}
    with middleware.pool.use("t") as one:
        one.checkout("main")
        said_ = [message.content for message in one.messages()]
        if not tools:  # with tools, each run goes on from its own question, on a line of its own
            assert len(one.branches()) == 1
            assert all(said_.count(text) == 1 + before * (text in (texts[3], texts[6])) for text in texts)
            assert len(said_) == 20 + 10 * before, "all is on one line"
