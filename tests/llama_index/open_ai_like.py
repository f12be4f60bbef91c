"""A program that talks through OpenAILike: open_ai_like.py BASE_URL ...; it writes what became of it as JSON."""

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.llms.openai_like import OpenAILike
from openai import APIError

from llama_index_infinite_memory import InfiniteChatMemoryBuffer

WINDOW = 120
DAYS = 30
QUESTION = "What is my locker code?"

LOOP = asyncio.new_event_loop()
"""The client that OpenAILike makes belongs to one loop."""

Ask = Callable[[str], str]


def model(url: str) -> Any:
    return OpenAILike(
        api_base=url, api_key="none", model="m", is_chat_model=True, max_retries=0, context_window=WINDOW
    )  # fmt: skip


def ways(engine: SimpleChatEngine) -> dict[str, Ask]:
    """Return how an engine is asked: in each of its ways."""

    async def astreamed(question: str) -> str:
        return "".join([token async for token in (await engine.astream_chat(question)).async_response_gen()])

    return {
        "chat": lambda question: str(engine.chat(question)),
        "achat": lambda question: str(LOOP.run_until_complete(engine.achat(question))),
        "stream_chat": lambda question: "".join(engine.stream_chat(question).response_gen),
        "astream_chat": lambda question: LOOP.run_until_complete(astreamed(question)),
    }


def talk(ask: Ask) -> None:
    ask("My locker code is 4471.")
    for day in range(DAYS):
        ask(f"Day {day} was as sunny and as dry as any other day before it was.")


def of_the_models_limit(url: str, way: str) -> Any:
    """Return the answer of a long talk, and how many messages are stored, with the limit that the model names."""
    with InfiniteChatMemoryBuffer.from_defaults(llm=model(url), tokenizer_fn=str.split) as memory:
        ask = ways(SimpleChatEngine.from_defaults(llm=model(url), memory=memory))[way]
        talk(ask)
        return ask(QUESTION), len(memory.get_all())


def of_too_large_a_limit(url: str, way: str) -> Any:
    """Return what a talk of too large a limit ends with, and how it goes on with a smaller one."""
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=10_000, tokenizer_fn=str.split) as memory:
        ask = ways(SimpleChatEngine.from_defaults(llm=model(url), memory=memory))[way]
        try:
            talk(ask)
        except APIError as error:
            told, said = type(error).__name__, [message.content for message in memory.get_all()]
        memory.token_limit = WINDOW * 3 // 4
        again = ask(QUESTION)
        kept = [message.content for message in memory.get_all()]
        return told, said[-1], len(set(said[::2])) == len(said[::2]), again, kept == [*said, QUESTION, again]


if __name__ == "__main__":
    threading.excepthook = lambda _: None  # LlamaIndex hands on what its threads raise, and lets it pass as well
    ways_of = product(sys.argv[1:], ("chat", "achat", "stream_chat", "astream_chat"))
    json.dump([(of_the_models_limit(url, way), of_too_large_a_limit(url, way)) for url, way in ways_of], sys.stdout)
