"""LlamaIndex's chat engines and agents with our buffer, beside `ChatMemoryBuffer` run in the same way."""

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.scripted_llm import QUESTIONS, Fixed, Talker, how_many, lines, said, seen

Memory = ChatMemoryBuffer | InfiniteChatMemoryBuffer


Make = Callable[..., InfiniteChatMemoryBuffer]


# Chat engines


def simple(llm: Talker, memory: Memory) -> BaseChatEngine:
    return SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt="Be short.")


def with_context(llm: Talker, memory: Memory) -> BaseChatEngine:
    return ContextChatEngine.from_defaults(
        retriever=Fixed("Ladders are tall."), llm=llm, memory=memory, system_prompt="Be short."
    )


def condense_plus(llm: Talker, memory: Memory) -> BaseChatEngine:
    return CondensePlusContextChatEngine.from_defaults(
        retriever=Fixed("Ladders are tall."), llm=llm, memory=memory, system_prompt="Be short."
    )


def condense(llm: Talker, memory: Memory) -> BaseChatEngine:
    queries = RetrieverQueryEngine.from_args(Fixed("Ladders are tall."), llm=llm)
    return CondenseQuestionChatEngine.from_defaults(query_engine=queries, llm=llm, memory=memory)


def condense_streaming(llm: Talker, memory: Memory) -> BaseChatEngine:
    queries = RetrieverQueryEngine.from_args(Fixed("Ladders are tall."), llm=llm, streaming=True)
    return CondenseQuestionChatEngine.from_defaults(query_engine=queries, llm=llm, memory=memory)


def chat(engine: BaseChatEngine, question: str) -> str:
    return str(engine.chat(question))


def stream(engine: BaseChatEngine, question: str) -> str:
    response = engine.stream_chat(question)
    text = "".join(response.response_gen)
    written(response)
    return text


def written(response: Any) -> None:
    """Wait until the thread that stores what was streamed has done so."""
    for thread in threading.enumerate():  # the oldest versions do not say which it is
        if thread is getattr(response, "write_response_to_history_thread", None) or thread.name.startswith("Thread-"):
            thread.join(timeout=30)


async def achat(engine: BaseChatEngine, question: str) -> str:
    return str(await engine.achat(question))


async def astream(engine: BaseChatEngine, question: str) -> str:
    response = await engine.astream_chat(question)
    text = "".join([token async for token in response.async_response_gen()])
    if response.awrite_response_to_history_task is not None:
        await response.awrite_response_to_history_task
    return text


def talk(build: Callable[[Talker, Memory], BaseChatEngine], mode: Callable[..., Any], memory: Memory) -> Talker:
    """Ask all questions of an engine, in one event loop if it needs one."""
    llm = Talker(how_many)
    engine = build(llm, memory)
    if not asyncio.iscoroutinefunction(mode):
        for question in QUESTIONS:
            mode(engine, question)
        return llm

    async def run() -> None:
        for question in QUESTIONS:
            await mode(engine, question)

    asyncio.run(run())
    return llm


@pytest.mark.parametrize("build", [simple, with_context, condense_plus, condense])
def test_engines_store_and_send_what_they_do_with_a_chat_memory_buffer(
    build: Callable[[Talker, Memory], BaseChatEngine], made: Make, subtests: pytest.Subtests
) -> None:
    for mode in (chat, stream, achat, astream):
        with subtests.test(mode.__name__):
            same_as_theirs(condense_streaming if build is condense and "stream" in mode.__name__ else build, mode, made)


def same_as_theirs(build: Callable[[Talker, Memory], BaseChatEngine], mode: Callable[..., Any], made: Make) -> None:
    ours, theirs = made(), ChatMemoryBuffer.from_defaults()
    sent, expected = talk(build, mode, ours).requests, talk(build, mode, theirs).requests
    assert sent == expected
    assert seen(ours.get_all()) == seen(theirs.get_all())
    assert [line for line in lines(ours.get_all()) if line.startswith("user")] == [f"user: {q}" for q in QUESTIONS]
    assert len(ours.get_all()) == 6


def test_a_history_that_is_passed_begins_anew_and_resetting_empties(made: Make) -> None:
    ours, theirs = made(), ChatMemoryBuffer.from_defaults()
    for memory in (ours, theirs):
        engine = simple(Talker(how_many), memory)
        engine.chat("before")
        engine.chat("after", chat_history=[said("user", "hi"), said("assistant", "hello")])
    assert seen(ours.get_all()) == seen(theirs.get_all())
    assert lines(engine.chat_history) == lines(ours.get_all())
    simple(Talker(how_many), ours).reset()
    assert ours.get_all() == []


# A long conversation


TOPICS = ["the garden", "a film about trains", "how to bake bread", "the weather in Oslo", "a novel", "the neighbours"]


def remembers(messages: Sequence[ChatMessage]) -> str:
    """Answer only from what stands in the prompt."""
    question = messages[-1].content or ""
    if "code" not in question:
        return f"That is interesting, and so is much else about it. {question[-40:]}"
    said_before = " ".join(str(message.content) for message in messages[:-1])
    found = re.search(r"locker has the code (\d+)", said_before)
    return f"It is {found[1]}." if found else "I do not know."


@pytest.mark.parametrize(
    ("build", "turns", "limit"), [(simple, 40, 600), (with_context, 25, 500), (condense_plus, 25, 500)]
)
def test_every_request_is_within_the_limit_and_turn_two_is_remembered(
    build: Any, turns: int, limit: int, made: Make
) -> None:
    llm = Talker(remembers)
    ours = made(token_limit=limit)
    engine = build(llm, ours)
    engine.chat("Hello there!")
    engine.chat("My locker has the code 4471, by the way.")
    for day in range(turns - 3):
        engine.chat(f"Today, on day {day}, I thought about {TOPICS[day % 6]}, and then again.")
    assert str(engine.chat("What is the code of my locker?")) == "It is 4471."
    assert len(ours.get_all()) == 2 * turns
    # What an engine adds to what the memory gives it: its wording, and perhaps the question once more.
    added = 0 if build is simple else 200
    sizes = [sum(len(ours.tokenizer_fn(str(one["blocks"][0]["text"]))) for one in sent) for sent in llm.requests]
    assert 0.7 * limit < max(sizes) <= limit + added
