"""The SDKs' own clients send what a memory writes, and a memory takes what they return."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from openai import NotFoundError, OpenAI

from shared_core import InfiniteMemory, Message, ToolCall
from shared_core.testing.chat_server import ChatServer
from tests.formats.requests import check_anthropic, check_chat, check_responses

QUESTION = "Weather in Porto and Lisbon?"
TALK = [QUESTION, "", "Porto: sunny", "Lisbon: sunny", "Porto: sunny, Lisbon: sunny"]


def model(said: Sequence[Message]) -> Message:
    """Call a tool for two towns, then say what it returned."""
    results = [message.content for message in said if message.role == "tool"]
    calls = [ToolCall(id=town, name="weather", arguments=json.dumps({"town": town})) for town in ("Porto", "Lisbon")]
    return Message.assistant(", ".join(results)) if results else Message.assistant(tool_calls=tuple(calls))


def weather(town: str) -> str:
    return f"{town}: sunny"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(model) as running:
        yield running


@pytest.fixture
def client(server: ChatServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    with InfiniteMemory(system="Be brief.") as made:
        made.add({"role": "user", "content": QUESTION})
        yield made


def said(memory: InfiniteMemory) -> list[str]:
    return [message.content for message in memory.messages()]


def test_a_tool_loop_with_chat_completions(server: ChatServer, client: OpenAI, memory: InfiniteMemory) -> None:
    while True:
        reply = client.chat.completions.create(model="m", messages=memory.context().to_openai()).choices[0].message
        memory.add(reply)
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            assert call.type == "function"
            result = weather(**json.loads(call.function.arguments))
            memory.add({"role": "tool", "tool_call_id": call.id, "content": result})
    assert said(memory) == TALK
    assert [request["messages"][0] for request in server.requests] == 2 * [{"role": "system", "content": "Be brief."}]
    check_chat(server.requests[-1]["messages"])
    memory.follow([*server.requests[-1]["messages"][1:], reply])
    assert said(memory) == TALK, "a client that sends the same history adds nothing to it"
    assert [branch.name for branch in memory.branches()] == ["main"]


def test_a_tool_loop_with_the_responses_api(server: ChatServer, client: OpenAI, memory: InfiniteMemory) -> None:
    while True:
        response = client.responses.create(model="m", input=memory.context().to_responses())
        memory.add(response.output)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            break
        for call in calls:
            result = weather(**json.loads(call.arguments))
            memory.add({"type": "function_call_output", "call_id": call.call_id, "output": result})
    assert response.output_text == TALK[-1]
    assert said(memory) == TALK
    check_responses(server.requests[-1]["input"])


def _result(used: Any) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": used.id, "content": weather(str(used.input["town"]))}
    return {"role": "user", "content": [result]}


def test_streams_of_both_clients_are_stored_whole(server: ChatServer, client: OpenAI, memory: InfiniteMemory) -> None:
    from anthropic import Anthropic

    with client.chat.completions.stream(model="m", messages=memory.context().to_openai()) as stream:
        completion = stream.get_final_completion().choices[0].message
    (first,) = memory.add(completion)
    memory.add([Message.tool("sunny", call.id) for call in first.tool_calls])
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as claude:
        with claude.messages.stream(model="m", max_tokens=50, **memory.context().to_anthropic()) as pieces:
            assert "".join(pieces.text_stream) == "sunny, sunny"
            memory.add(pieces.get_final_message())
        memory.add({"role": "user", "content": "Again?"})
        with claude.messages.stream(model="m", max_tokens=50, **memory.context().to_anthropic()) as again:
            memory.add(again.get_final_message())
    assert said(memory) == [QUESTION, "", "sunny", "sunny", "sunny, sunny", "Again?", "sunny, sunny"]
    assert [message.payload for message in memory.newest(3)] == [None, None, None], "as of a reply that is not streamed"


def test_a_tool_loop_with_anthropic(server: ChatServer, memory: InfiniteMemory) -> None:
    from anthropic import Anthropic  # this takes a second

    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        for _ in range(2):
            request = memory.context().to_anthropic()
            check_anthropic(request)
            reply = client.messages.create(model="m", max_tokens=50, **request)
            memory.add(reply)
            memory.add([_result(block) for block in reply.content if block.type == "tool_use"])
    assert said(memory) == TALK
    assert [request["system"] for request in server.requests] == ["Be brief.", "Be brief."]
    assert [message["role"] for message in server.requests[-1]["messages"]] == ["user", "assistant", "user"]


def test_the_server_takes_marks_for_anthropics_cache(server: ChatServer, memory: InfiniteMemory) -> None:
    """A first question has nothing before it but the system prompt, which is then a list of blocks."""
    from anthropic import Anthropic

    request = memory.context().to_anthropic(cache_control={"type": "ephemeral"})
    assert isinstance(request["system"], list)
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        assert client.messages.create(model="m", max_tokens=50, **request).content


def test_the_server_knows_three_paths(server: ChatServer, client: OpenAI) -> None:
    with pytest.raises(NotFoundError):
        client.embeddings.create(model="m", input="x")
    assert client.responses.create(model="m", input="hello").output[0].type == "function_call"
    assert [request["input"] for request in server.requests] == ["hello"]
