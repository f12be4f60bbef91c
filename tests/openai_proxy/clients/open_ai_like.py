"""A program with LlamaIndex's OpenAILike: open_ai_like.py TURNS LIVE BASE_URL ...; it writes what it got as JSON."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.llms.openai_like import OpenAILike
from openai import APIStatusError

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


def model(url: str) -> Any:
    return OpenAILike(
        api_base=url, api_key="none", model="m", is_chat_model=True, is_function_calling_model=True, max_retries=0
    )


def chunks(llm: Any, words: str, **fields: Any) -> list[Any]:
    return [each.raw.to_dict() for each in llm.stream_chat([ChatMessage(words)], **fields)]


def called(ask: Any, words: str) -> list[Any]:
    """Return the call of a tool, and what is said of its result."""
    messages = [ChatMessage("Be brief.", role=MessageRole.SYSTEM), ChatMessage(words)]
    messages.append(ask(messages, tools=TOOLS))
    (call,) = messages[-1].additional_kwargs["tool_calls"]
    messages.append(ChatMessage("sunny", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": call.id}))
    return [call.function.to_dict(), ask(messages, tools=TOOLS).content]


def conversation(ask: Any, turns: Sequence[str], live: int) -> list[Any]:
    """Return the number of the last turn, and its answer or the code of the error that ended the conversation.

    Only so many turns at its end are asked; those before them were said elsewhere.
    """
    messages: list[ChatMessage] = []
    for number, words in enumerate(turns, start=1):
        messages.append(ChatMessage(words))
        if number <= len(turns) - live:
            messages.append(ChatMessage("Noted.", role=MessageRole.ASSISTANT))
            continue
        try:
            messages.append(ask(messages))
        except APIStatusError as error:
            return [number, error.code]
    return [len(turns), messages[-1].content]


def got(url: str) -> dict[str, Any]:
    """Return what a server answers."""
    llm = model(url)

    def asked(messages: Sequence[ChatMessage], **fields: Any) -> Any:
        return llm.chat(messages, **fields).message

    def streamed(messages: Sequence[ChatMessage], **fields: Any) -> Any:
        return list(llm.stream_chat(messages, **fields))[-1].message

    return {
        "chat": asked([ChatMessage("Hello, by LlamaIndex")]).content,
        "stream": chunks(llm, "Hello in pieces, by LlamaIndex"),
        "tools": called(asked, "How is it out there, by LlamaIndex?"),
        "tools_streamed": called(streamed, "How is it out there in pieces, by LlamaIndex?"),
        "tool_stream": chunks(llm, "And now, by LlamaIndex?", tools=TOOLS),
        "conversation": conversation(streamed, json.loads(sys.argv[1]), int(sys.argv[2])),
    }


json.dump([got(url) for url in sys.argv[3:]], sys.stdout)
