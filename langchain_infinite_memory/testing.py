"""EchoChatModel: a chat model that needs no key, for tests, examples and first steps."""

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from typing_extensions import override

from shared_core.interop.adapters import recalled_lines, words

__all__ = ["EchoChatModel"]


class EchoChatModel(BaseChatModel):
    """Answers with the old messages that it was shown with the question."""

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
        for word in words(_answer(messages)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=word))
            if run_manager is not None:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk


def _answer(messages: Sequence[BaseMessage]) -> str:
    roles = ("user" if isinstance(message, HumanMessage) else message.type for message in messages)
    return recalled_lines([(role, message.text) for role, message in zip(roles, messages, strict=True)])
