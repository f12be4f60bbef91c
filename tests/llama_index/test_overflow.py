"""A prompt that a model refuses as too large: the error comes through, nothing is lost, and a smaller limit goes on."""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine

from tests.llama_index.scripted_llm import Talker
from tests.llama_index.test_buffer import ours, texts

pytest.importorskip("starlette")

from starlette.responses import JSONResponse, Response

from tests.openai_proxy.servers import ModelServer, served
from tests.openai_proxy.test_installed_clients import by_itself, with_llama_index

WINDOW = 120
"""The words that the model reads at once."""

OPENAI = {
    "message": "This model's maximum context length is 120 tokens. However, your messages resulted in 130 tokens.",
    "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
}  # fmt: skip
VLLM = {
    "message": "This model's maximum context length is 120 tokens. However, your request has 130 input tokens.",
    "type": "BadRequestError", "param": "input_tokens", "code": 400,
}  # fmt: skip
LLAMA_CPP = {
    "code": 400, "message": "the request exceeds the available context size, try increasing it",
    "type": "exceed_context_size_error", "n_prompt_tokens": 130, "n_ctx": 120,
}  # fmt: skip
BODIES = [{"error": OPENAI}, {"error": VLLM}, {"object": "error", **VLLM, "param": None}, {"error": LLAMA_CPP}]
"""What servers answer: OpenAI's, vLLM, an older vLLM, llama.cpp."""


def test_after_an_overflow_everything_is_stored_once_and_a_smaller_limit_goes_on() -> None:
    def rule(messages: Sequence[ChatMessage]) -> str:
        if sum(len(text.split()) for text in texts(messages)) > WINDOW:
            raise ConnectionError("too large")
        return "fine"

    memory = ours(token_limit=10_000, tokenizer_fn=str.split)
    engine = SimpleChatEngine.from_defaults(llm=Talker(rule), memory=memory)
    days = [f"Day {day} was as sunny as any other day." for day in range(40)]
    with pytest.raises(ConnectionError):
        list(map(engine.chat, days))
    said = texts(memory.get_all())
    assert said[::2] == days[: len(said) // 2 + 1], "the question that was not answered is the last"
    memory.token_limit = WINDOW
    assert str(engine.chat("And now?")) == "fine"
    assert texts(memory.get_all()) == [*said, "And now?", "fine"]


def server(body: Any) -> ModelServer:
    """A model that refuses what is too large with this body."""

    def script(asked: dict[str, Any]) -> Response | str:
        prompt = [str(message["content"]) for message in asked["messages"]]
        if sum(len(text.split()) for text in prompt) > WINDOW:
            return JSONResponse(body, 400)
        return "It is 4471." if "code is 4471" in "".join(prompt[:-1]) and "?" in prompt[-1] else "fine"

    return ModelServer(script)


def test_open_ai_like_is_sent_what_fits_and_hands_on_what_a_server_says() -> None:
    path = os.pathsep.join([str(with_llama_index()), str(Path(__file__).parents[2])])
    with ExitStack() as opened:
        urls = [opened.enter_context(served(server(body).app))[0] for body in BODIES]
        program = Path(__file__).parent / "open_ai_like.py"
        found = json.loads(by_itself(program, path, *(f"{url}/v1" for url in urls)))
    assert len(found) == 4 * len(BODIES)
    for small, (told, last, once, again, kept) in found:
        assert small == ["It is 4471.", 64]
        assert (told, last[:4], once, again, kept) == ("BadRequestError", "Day ", True, "It is 4471.", True)
