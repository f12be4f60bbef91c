"""InfiniteMemoryMiddleware: lets an agent keep every message, and send only what fits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage
from typing_extensions import override

from langchain_infinite_memory.graph import ThreadResolver
from langchain_infinite_memory.settings import memory_settings
from langchain_infinite_memory.threads import ThreadMemory, ThreadPrompt
from shared_core.arguments import one_of
from shared_core.errors import BudgetError, EmbedderError
from shared_core.pool import SessionPool
from shared_core.prompt.context import ContextReport
from shared_core.store import Store

__all__ = ["InfiniteMemoryMiddleware"]

logger = logging.getLogger("langchain_infinite_memory")

FAILURES = (Exception,)
"""What a memory raises: stores, counters and clocks may be the caller's own, and raise anything."""

Answer = Any  # `ModelResponse`, `AIMessage` or, in newer versions of LangChain, `ExtendedModelResponse`

if TYPE_CHECKING:
    Middleware = AgentMiddleware[Any, Any, Any]
    Request = ModelRequest[Any]
    Response = ModelResponse[Any]
else:  # before LangChain 1.2.7, these have other type parameters, or none
    Middleware, Request, Response = AgentMiddleware, ModelRequest, ModelResponse


class InfiniteMemoryMiddleware(Middleware):
    """Keeps every message of a thread, and sends the model the best prompt that fits; for `create_agent`.

    The prompt has the system prompt, the newest turns, and the old messages that matter for the newest human message.
    Tool groups stay whole. System prompt and tool schemas count towards `max_tokens`. While tools are at work, the
    prompt only grows at its end.

    Only what the model is shown changes: the state of the graph does not, no node is added, nothing goes into the
    stream, and no model is called but a `summarizer`. A thread that goes back to an older checkpoint, or whose messages
    are edited, continues as a branch, and recall follows that branch.

    Place it after middleware that redacts messages, so that they are stored redacted, and before middleware that marks
    the prompt for a provider's cache. Middleware that removes old messages from the state is not needed; the messages
    it removes stay stored.

    Args:
        store: a path, a `Store` or a `SessionPool`; None: in memory.
        session_id: the session of all runs; None: the run's `thread_id`, else its `session_id`.
        user_key: the name of the user's id in the runtime context, else in `config["configurable"]`. Messages of one
            user are never shown to another; with `scope="user"`, messages from a user's other threads are recalled.
        on_error: what to do when the memory fails: `"window"` logs it and sends the newest turns that fit; `"raise"`
            raises.
        on_report: called with the report on each prompt.
        name: the middleware's name, for an agent with two of them.
        settings: the other arguments of `InfiniteMemory`, and `embeddings`, `token_counter` and `summarizer` in
            LangChain's words; not for a `SessionPool`, which has its own.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self, store: str | Path | Store | SessionPool | None = None, *, session_id: str | None = None,
        user_key: str = "user_id", on_error: Literal["window", "raise"] = "window",
        on_report: Callable[[ContextReport], None] | None = None, name: str | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self._on_error = one_of("on_error", on_error, ("window", "raise"))
        self._on_report = on_report
        self._name = name or type(self).__name__
        self._threads = ThreadResolver(session_id, user_key)
        if isinstance(store, SessionPool) and settings:
            raise TypeError(f"{', '.join(sorted(settings))}: the pool has its own settings; pass them where it is made")
        self._owns_pool = not isinstance(store, SessionPool)
        self.pool = store if isinstance(store, SessionPool) else SessionPool(store, **memory_settings(**settings))
        self._memory = ThreadMemory(self.pool)

    @property
    def name(self) -> str:
        """The middleware's name, which is unique in an agent."""
        return self._name

    @override
    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Answer:
        thread, failure = self._threads.resolve(request.runtime), None
        prompt: ThreadPrompt | list[BaseMessage]
        try:
            prompt = self._memory.prompt(thread, request.messages, system=_system(request), tools=_schemas(request))
        except FAILURES as error:
            prompt, failure = self._window(request, error), error
        answer = handler(self._with_prompt(request, prompt))
        if _can_record(failure):
            try:
                self._memory.record(thread, [*request.messages, *_said(answer)])
            except FAILURES as error:
                self._failed(error)
        return answer

    @override
    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Answer:
        thread, failure = self._threads.resolve(request.runtime), None
        prompt: ThreadPrompt | list[BaseMessage]
        try:
            prompt = await self._memory.aprompt(
                thread, request.messages, system=_system(request), tools=_schemas(request)
            )
        except FAILURES as error:
            prompt, failure = await asyncio.to_thread(self._window, request, error), error
        answer = await handler(self._with_prompt(request, prompt))
        if _can_record(failure):
            try:
                await self._memory.arecord(thread, [*request.messages, *_said(answer)])
            except FAILURES as error:
                self._failed(error)
        return answer

    def _with_prompt(self, request: Request, prompt: ThreadPrompt | list[BaseMessage]) -> Request:
        if isinstance(prompt, ThreadPrompt):
            if self._on_report is not None:
                self._on_report(prompt.report)
            prompt = prompt.messages
        return request.override(messages=prompt)  # type: ignore[arg-type]

    def _window(self, request: Request, error: Exception) -> list[BaseMessage]:
        self._failed(error)
        try:
            return self._memory.window(request.messages, system=_system(request), tools=_schemas(request))
        except FAILURES as again:  # such as a counter that raises
            logger.warning("the newest turns cannot be counted either, and everything is sent: %s", again)
            return list(request.messages)

    def _failed(self, error: Exception) -> None:
        if self._on_error == "raise":
            raise error
        logger.warning("the memory failed, and the agent goes on without it: %s", error)

    def close(self) -> None:
        """Release the store, if it was opened here."""
        if self._owns_pool:
            self.pool.close()


def _can_record(failure: Exception | None) -> bool:
    """Return whether to store the answer now: not if the store has just failed; the next call stores everything."""
    return failure is None or isinstance(failure, BudgetError | EmbedderError)


def _system(request: Request) -> list[BaseMessage]:
    return [] if request.system_message is None else [request.system_message]


def _schemas(request: Request) -> list[Any]:
    """Return the schemas that are sent with a request: those of tools and of structured output."""
    form = request.response_format
    if isinstance(form, AutoStrategy):
        form = ToolStrategy(form.schema)
    specs = form.schema_specs if isinstance(form, ToolStrategy) else [form.schema_spec] if form is not None else []
    return [*request.tools, *({"name": spec.name, "schema": spec.json_schema} for spec in specs)]


def _said(answer: Answer) -> Sequence[BaseMessage]:
    """Return the messages of a model's answer."""
    answer = getattr(answer, "model_response", answer)
    said: Sequence[BaseMessage] = [answer] if isinstance(answer, AIMessage) else answer.result
    return said
