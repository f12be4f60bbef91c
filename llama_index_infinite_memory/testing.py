"""A model for LlamaIndex that needs no key: it answers with what it was shown."""

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

__all__ = ["EchoLLM"]

WORD = re.compile(r"\S+\s*|\s+")
TELLING = re.compile(r"\w{5,}")
OPENING = "I was shown"
REWRITE = re.compile(r"follow up (?:input|message)[^:\n]*[:>]\s*(.*?)\s*<?standalone question[:>]?\s*$", re.I | re.S)
"""What an engine asks that wants a question which can be understood alone."""


class EchoLLM(CustomLLM):
    """Answers with the line that shares most words with the question: to try a memory without a model."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex writes it down."""
        return "EchoLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex asks of a model."""
        return LLMMetadata(model_name="echo", is_chat_model=True, context_window=16_000)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Answer."""
        return ChatResponse(message=ChatMessage(role="assistant", content=_answer(messages)))

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Answer, word by word."""

        def words() -> ChatResponseGen:
            so_far = ""
            for word in WORD.findall(_answer(messages)):
                so_far += word
                yield ChatResponse(message=ChatMessage(role="assistant", content=so_far), delta=word)

        return words()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Answer a text."""
        return CompletionResponse(text=_answer([ChatMessage(role="user", content=prompt)]))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Answer a text, in one piece."""

        def whole() -> CompletionResponseGen:
            answer = _answer([ChatMessage(role="user", content=prompt)])
            yield CompletionResponse(text=answer, delta=answer)

        return whole()


def _answer(messages: Sequence[ChatMessage]) -> str:
    asked = next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), None)
    question = "" if asked is None else messages[asked].content or ""
    if rewritten := REWRITE.search(question):
        return rewritten[1]
    words = set(TELLING.findall(question.lower()))
    shown = [line for place, message in enumerate(messages) if place != asked for line in _lines(message)]
    best = max(reversed(shown), key=lambda line: len(words & set(TELLING.findall(line.lower()))), default="")
    if not words & set(TELLING.findall(best.lower())):
        return f"{OPENING} {len(messages)} messages, and nothing in them matches."
    return f"{OPENING} {len(messages)} messages. In one it says: {best}"


def _lines(message: ChatMessage) -> list[str]:
    lines = [line.strip() for line in (message.content or "").splitlines()]
    return [line for line in lines if line and not line.startswith(OPENING) and not line.endswith("?")]
