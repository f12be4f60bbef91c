"""EchoLLM: a model for LlamaIndex that needs no key, for tests, examples and first steps."""

import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.custom import CustomLLM

from shared_core.doors.interop.echo import echo, words

__all__ = ["EchoLLM"]

REWRITE = re.compile(
    r"\A(?>.*?follow up (?:input|message))[^:\n]*[:>](.*?)<?standalone question[:>]?\s*+$", re.IGNORECASE | re.DOTALL
)
"""The prompt of an engine that wants a question rewritten so that it can be understood alone."""


class EchoLLM(CustomLLM):
    """Answers a question with the line of its prompt that matches best: "You said: My locker code is 4471"."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes it."""
        return "EchoLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex needs to know of a model."""
        return LLMMetadata(model_name="echo", is_chat_model=True, context_window=16_000)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Return an answer."""
        return _response(_answer(messages))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Return an answer, word by word."""
        said = [*words(_answer(messages))]
        return (_response("".join(said[: end + 1]), delta=word) for end, word in enumerate(said))

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return an answer to a text."""
        return CompletionResponse(text=_answer([ChatMessage(role="user", content=prompt)]))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Return an answer to a text, in one piece."""
        answer = _answer([ChatMessage(role="user", content=prompt)])
        return (CompletionResponse(text=text, delta=text) for text in [answer])


def _response(text: str, delta: str | None = None) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role="assistant", content=text), delta=delta)


def _answer(messages: Sequence[ChatMessage]) -> str:
    shown = [(message.role.value, message.content or "") for message in messages]
    question = next((text for role, text in reversed(shown) if role == "user"), "")
    rewritten = REWRITE.search(question)
    return rewritten[1].strip() if rewritten else echo(shown)
