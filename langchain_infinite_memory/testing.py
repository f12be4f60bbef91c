"""EchoChatModel: a chat model that needs no key, for tests, examples and first steps."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import Field
from typing_extensions import override

from shared_core.doors.interop.echo import echo, words

__all__ = ["EchoChatModel"]

_ROLES = {"human": "user", "ai": "assistant"}


class EchoChatModel(BaseChatModel):
    """Answers a question with the line of its prompt that matches best: "You said: My locker code is 4471"."""

    profile: Any = Field(default_factory=lambda: {"max_input_tokens": 16_000})

    @override
    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model as it is: it may be given tools, and never calls one."""
        return self

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
    return echo([(_ROLES.get(message.type, message.type), message.text) for message in messages])
