"""A chat model that needs no key: it answers with what it was shown."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from typing_extensions import override

from shared_core.prompt.template import RecallTemplate

__all__ = ["EchoChatModel"]

WORD = re.compile(r"\S+\s*|\s+")


class EchoChatModel(BaseChatModel):
    """Says which old messages it was shown with the question: to try a memory without a model."""

    @property
    @override
    def _llm_type(self) -> str:
        return "echo"

    @override
    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=_answer(messages)))])

    @override
    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:  # fmt: skip
        for word in WORD.findall(_answer(messages)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=word))
            if run_manager is not None:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk


def _answer(messages: Sequence[BaseMessage]) -> str:
    asked = next((message.text for message in reversed(messages) if isinstance(message, HumanMessage)), "")
    recalled = _recalled(asked)
    if recalled:
        return "\n".join(["Earlier it was said:", *recalled])
    return f"I was shown {len(messages)} messages, and nothing from before them matches."


def _recalled(asked: str) -> list[str]:
    """Return the lines between the header and the footer of recalled text."""
    template = RecallTemplate()
    _, fence, rest = asked.partition(template.header)
    return rest.partition(template.footer)[0].strip("\n").split("\n") if fence else []
