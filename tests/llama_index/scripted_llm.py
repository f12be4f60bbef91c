"""A model for LlamaIndex's engines and agents that answers by a rule, and notes everything it was sent."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata, TextBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import PrivateAttr

__all__ = ["QUESTIONS", "Fixed", "Talker", "called", "how_many", "lines", "said", "seen", "user"]

QUESTIONS = ["My ladder is in the cellar.", "What is two and two?", "Where is my {ladder}?"]

Rule = Callable[[Sequence[ChatMessage]], ChatMessage | str]


class Talker(FunctionCallingLLM):
    """Answers by a rule; `requests` is what it was sent, as plain data."""

    _rule: Rule = PrivateAttr()
    _requests: list[list[dict[str, Any]]] = PrivateAttr(default_factory=list)

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self._rule = rule

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=16_000, is_chat_model=True, is_function_calling_model=True)

    @property
    def requests(self) -> list[list[dict[str, Any]]]:
        return self._requests

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self._requests.append(seen(messages))
        answer = self._rule(messages)
        message = said("assistant", answer) if isinstance(answer, str) else answer
        return ChatResponse(message=message, delta=message.content or "")

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self.chat(messages)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        def parts() -> Iterator[ChatResponse]:
            yield from _parts(response)

        response = self.chat(messages)
        return parts()

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        async def parts() -> AsyncIterator[ChatResponse]:
            for part in _parts(response):
                yield part

        response = self.chat(messages)
        return parts()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.chat([said("user", prompt)]).message.content or "")

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return self.complete(prompt)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _prepare_chat_with_tools(  # type: ignore[override]  # the versions differ in what else they pass
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        return {"messages": list(chat_history or []), "tools": tools}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        known = response.message.additional_kwargs.get("tool_calls", [])
        blocks: list[Any] = [block for block in response.message.blocks if block.block_type == "tool_call"]
        return known or [
            ToolSelection(tool_id=one.tool_call_id or "", tool_name=one.tool_name, tool_kwargs=dict(one.tool_kwargs))
            for one in blocks
        ]


def _parts(response: ChatResponse) -> Iterator[ChatResponse]:
    """Yield a reply in two parts; one that calls tools in one."""
    text = response.message.content or ""
    if len(text) < 2 or len(response.message.blocks) > 1 or response.message.additional_kwargs:
        yield response
        return
    half = len(text) // 2
    yield ChatResponse(message=said("assistant", text[:half]), delta=text[:half])
    yield ChatResponse(message=response.message, delta=text[half:])


def said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def user(text: str) -> ChatMessage:
    return said("user", text)


def called(name: str, *, id: str = "call", **arguments: Any) -> ChatMessage:
    """Return a reply that calls a tool, as this version of LlamaIndex has it."""
    if not hasattr(types, "ToolCallBlock"):
        selection = ToolSelection(tool_id=id, tool_name=name, tool_kwargs=arguments)
        return ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [selection]})
    block = types.ToolCallBlock(tool_call_id=id, tool_name=name, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[TextBlock(text=""), block])


def seen(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Return messages as plain data, all of them."""
    return [message.model_dump(mode="json") for message in messages]


def lines(messages: Sequence[ChatMessage]) -> list[str]:
    return [f"{message.role.value}: {message.content}" for message in messages]


def how_many(messages: Sequence[ChatMessage]) -> str:
    return f"I was shown {len(messages)} messages."


class Fixed(BaseRetriever):
    """Finds the same passages whatever is asked."""

    def __init__(self, *passages: str) -> None:
        super().__init__()
        self.passages = passages

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text=text), score=1.0) for text in self.passages]
