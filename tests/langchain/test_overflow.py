"""What providers answer if a prompt is too large, through the real client: the prompt is sent once more, smaller."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import SecretStr

from langchain_infinite_memory import InfiniteMemoryMiddleware
from tests.langchain.agents import Words, config

pytest.importorskip("langchain_openai")
pytest.importorskip("starlette")

from langchain_openai import ChatOpenAI
from openai import BadRequestError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.openai_proxy.servers import ModelServer, served

LIMIT = 60
TALK = "tell me of the rain " * 4

OPENAI = {
    "message": "This model's maximum context length is 60 tokens. However, your messages resulted in {size} tokens. "
    "Please reduce the length of the messages.",
    "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded",
}  # fmt: skip
VLLM = {
    "message": "This model's maximum context length is 60 tokens. However, your request has {size} input tokens. "
    "Please reduce the length of the input messages.",
    "type": "BadRequestError", "param": "input_tokens", "code": 400,
}  # fmt: skip
BODIES: dict[str, Mapping[str, Any]] = {
    "OpenAI": {"error": OPENAI},
    "vLLM": {"error": VLLM},
    "an older vLLM": {"object": "error", **VLLM, "param": None},
    "llama.cpp": {
        "error": {
            "code": 400, "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error", "n_prompt_tokens": 200, "n_ctx": 100,
        }
    },
}  # fmt: skip


def model_at(url: str, client: httpx.Client, async_client: httpx.AsyncClient | None = None) -> ChatOpenAI:
    return ChatOpenAI(
        model="m", base_url=f"{url}/v1", api_key=SecretStr("none"), max_retries=0, http_client=client,
        http_async_client=async_client,
    )  # fmt: skip


def sized(body: Any, size: int) -> Any:
    if isinstance(body, Mapping):
        return {key: sized(value, size) for key, value in body.items()}
    return body.format(size=size) if isinstance(body, str) else body


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_prompt_that_is_refused_is_sent_once_more_and_smaller(body: Mapping[str, Any], way: str) -> None:
    def script(asked: dict[str, Any]) -> Response | str:
        size = sum(len(str(message["content"]).split()) for message in asked["messages"])
        return JSONResponse(sized(body, 2 * LIMIT), 400) if size > LIMIT else "fine"

    async def talk(url: str) -> None:
        memory = InfiniteMemoryMiddleware(
            token_counter=Words(), embedder="words", reserve_tokens=0, max_tokens=120, recall_tokens=0
        )
        with httpx.Client() as client:
            async with httpx.AsyncClient() as async_client:
                one = create_agent(model_at(url, client, async_client), [], middleware=[memory])
                talked: list[BaseMessage] = []
                for number in range(5):
                    given: Any = {"messages": [*talked, HumanMessage(f"{number} {TALK}")]}
                    result = (
                        await one.ainvoke(given, config())
                        if way == "ainvoke"
                        else await asyncio.to_thread(one.invoke, given, config())
                    )
                    talked = result["messages"]
                    assert talked[-1].text == "fine"

    server = ModelServer(script)
    with served(server.app) as (url, _):
        asyncio.run(talk(url))
    assert len(server.bodies) - 5 in (1, 2), "the smaller limit is remembered"


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_refusal_in_a_stream_is_one_too(body: Mapping[str, Any]) -> None:
    def script(asked: dict[str, Any]) -> Response | str:
        size = sum(len(str(message["content"]).split()) for message in asked["messages"])
        told = sized(body if "error" in body else {"error": body}, 2 * LIMIT)
        return Response(f"data: {json.dumps(told)}\n\n", media_type="text/event-stream") if size > LIMIT else "fine"

    server = ModelServer(script)
    with served(server.app) as (url, _), httpx.Client() as client:
        memory = InfiniteMemoryMiddleware(token_counter=Words(), embedder="words", reserve_tokens=0, max_tokens=90)
        one = create_agent(model_at(url, client), [], middleware=[memory])
        given: Any = {"messages": [HumanMessage(TALK), AIMessage("fine"), HumanMessage(TALK), HumanMessage(TALK)]}
        streamed: list[Any] = list(one.stream(given, config(), stream_mode="messages"))
    assert "".join(str(chunk.text) for chunk, _ in streamed) == "fine"
    assert len(server.bodies) == 2


def test_another_bad_request_is_raised_at_once() -> None:
    wrong = {"error": {"message": "Unknown parameter: 'x'.", "type": "invalid_request_error", "code": None}}
    server = ModelServer(lambda _: JSONResponse(wrong, 400))
    with served(server.app) as (url, _), httpx.Client() as client:
        one = create_agent(model_at(url, client), [], middleware=[InfiniteMemoryMiddleware(max_tokens=5000)])
        with pytest.raises(BadRequestError, match="Unknown parameter"):
            one.invoke({"messages": [HumanMessage("hello")]}, config())
    assert len(server.bodies) == 1


ANTHROPIC = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: {size} tokens > 120 maximum"},
}
GOOGLE = {
    "error": {
        "code": 400, "status": "INVALID_ARGUMENT",
        "message": "The input token count ({size}) exceeds the maximum number of tokens allowed (120).",
    }
}  # fmt: skip
FINE_ANTHROPIC = {
    "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "stop_sequence": None,
    "content": [{"type": "text", "text": "fine"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
FINE_GOOGLE = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "fine"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}


def anthropic_at(url: str) -> Any:
    named = pytest.importorskip("langchain_anthropic")
    return named.ChatAnthropic(model="claude-x", base_url=url, api_key="none", max_retries=0, max_tokens=100)


def google_at(url: str) -> Any:
    named = pytest.importorskip("langchain_google_genai")
    place: Any = {"transport": "rest", "client_options": {"api_endpoint": url}}
    return named.ChatGoogleGenerativeAI(model="gemini-x", google_api_key="none", max_retries=1, **place)


@pytest.mark.parametrize(
    ("model_of", "refused", "fine"),
    [(anthropic_at, ANTHROPIC, FINE_ANTHROPIC), (google_at, GOOGLE, FINE_GOOGLE)],
    ids=["Anthropic", "Google"],
)
def test_other_providers_refuse_in_their_own_words(model_of: Any, refused: Any, fine: Any) -> None:
    sizes: list[int] = []

    async def answer(request: Request) -> Response:
        sizes.append(len(re.findall(r"\brain\b", (await request.body()).decode())) * 5)
        return JSONResponse(sized(refused, 150), 400) if sizes[-1] > LIMIT else JSONResponse(fine)

    memory = InfiniteMemoryMiddleware(token_counter=Words(), embedder="words", reserve_tokens=0, max_tokens=120)
    with served(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])) as (url, _):
        one, talked = create_agent(model_of(url), [], middleware=[memory]), list[BaseMessage]()
        for number in range(5):
            given: Any = {"messages": [*talked, HumanMessage(f"{number} {TALK}")]}
            talked = one.invoke(given, config())["messages"]
            assert talked[-1].text == "fine"
    assert 0 < len([size for size in sizes if size > LIMIT]) <= 4
