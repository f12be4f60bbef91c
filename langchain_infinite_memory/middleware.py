# ruff: noqa: E402
"""InfiniteMemoryMiddleware: lets an agent keep every message, and send only what fits."""

from shared_core.errors import BudgetError, require

require("langchain", 'pip install "infinite-memory[langchain]"')

import asyncio
import json
import logging
import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import override

from langchain_infinite_memory.budget import Budget, MaxTokens, is_overflow, limit_parts, must_send
from langchain_infinite_memory.followed_lists import read_list
from langchain_infinite_memory.identity import (
    STATE,
    OnReport,
    Removed,
    RunError,
    SessionName,
    Thread,
    ThreadRecord,
    ThreadResolver,
    check_report,
    report,
)
from langchain_infinite_memory.lists import newest_messages
from langchain_infinite_memory.messages import read_message, with_added_results
from langchain_infinite_memory.search import search_tool
from langchain_infinite_memory.sessions import WAIT, open_pool
from langchain_infinite_memory.settings import RESERVE_TOKENS
from langchain_infinite_memory.threads import ModelInput, ThreadMemory, ThreadPrompt
from shared_core.arguments import one_of, texts
from shared_core.pool import SessionPool
from shared_core.session.forget import ForgetResult
from shared_core.store import Store
from shared_core.tokens import as_counter, message_tokens, tools_tokens

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


class MemoryState(AgentState):
    """The state of the graph, with what the `ThreadRecord` says."""

    infinite_memory: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class PromptState(AgentState):
    """The state of the graph of an agent that lists the memory's `prompt`.

    An entry with a reducer has a value in each run of the agents that declare it, and in no other's.
    """

    infinite_memory_prompt: NotRequired[Annotated[bool, PrivateStateAttr, operator.or_]]


class InfiniteMemoryMiddleware(Middleware):
    """Keeps every message of a thread, and sends the model the best prompt that fits; for `create_agent`.

    The prompt has the system prompt, the newest turns, and the old messages that matter for the newest human message.
    Tool groups stay whole. System prompt and tool schemas count towards `max_tokens`. While tools are at work, the
    prompt only grows at its end.

    Stored is the state of the graph: before each call of the model, and when the run ends, so that what other
    middleware redacts there is redacted here. What other middleware changes in a request only is sent as it is there,
    and never stored. The state's messages are not changed, and no model is called but a `summarizer`.

    With a checkpointer, a list is the whole conversation. What it lacks was taken back: it stays on record, and is
    neither sent nor recalled. What a `SummarizationMiddleware` replaces stays recallable. A thread that goes back to an
    older checkpoint, or whose messages are edited, continues on a line of its own, which is `main` from then on.

    A run that names no session raises a `ValueError`. A graph in a task of another, such as an agent that a tool asks,
    has a session under the other's, `thread//node:...`.

    A checkpointer's state belongs to the `thread_id` and knows no user: make thread ids unique over all users. A run of
    another user than the one whose thread it is raises a `ValueError`, whatever `on_error` is, and nothing that it
    brings is stored or sent. A run without a user is that of the thread's user; a thread begun without one stays so.

    Place it first among the middleware, so that what other middleware changes when the run ends is stored, too, and
    its `prompt` last, so that what other middleware adds to a request fits the limit, too:
    `middleware=[memory, ..., memory.prompt]`.

    Args:
        store: a path, a `Store` or a `SessionPool`; None: in memory.
        session_id: the session of all runs, or a function of LangGraph's `Runtime` that returns one or None; None: the
            run's `thread_id`, else its `session_id`. A session that is named here is continued by a new thread.
        user_key: the name of the user's id in the runtime context, else in `config["configurable"]`. Messages of one
            user are never shown to another; with `scope="user"`, messages from a user's other threads are recalled.
        removed: what it means that a list lacks messages of the session: `"leave_out"`, they were taken back; `"keep"`,
            they were trimmed, and stay recallable; None: the first with a checkpointer, the second without one, where a
            list that lacks them all continues the session, too.
        share_with_subgraphs: whether nested graphs use the session of the graph that they are in, as they should if
            they work on its messages.
        recall_tool: whether the agent gets a tool that searches what was said earlier.
        max_tokens: the limit of prompt and reply together: a number, or `("fraction", f)`, a share of the input that
            the model takes by its profile; None: all of that. For an unknown model, what came
            before the question and before the newest results of tools takes 4,096 tokens.
        on_error: what to do when the memory fails: `"window"` logs it and sends the newest turns that fit, after two
            seconds if another process holds the file (a pool or store has a wait of its own); `"raise"` raises. If what
            must be sent does not fit, a `BudgetError` is raised.
        on_report: called with the report on each prompt, and with the ids of its run: `session_id`, `user_id`,
            `thread_id` and `run_id`.
        settings: the other arguments of `InfiniteMemory`, and `embeddings`, `token_counter` and `summarizer` in
            LangChain's words; not for a `SessionPool`, which has its own. `system` is the agent's own `system_prompt`.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """

    state_schema = MemoryState

    def __init__(
        self, store: str | Path | Store | SessionPool | None = None, *, session_id: SessionName = None,
        user_key: str = "user_id", removed: Removed | None = None, share_with_subgraphs: bool = False,
        recall_tool: bool = False, max_tokens: MaxTokens = None, on_error: Literal["window", "raise"] = "window",
        on_report: OnReport = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if (store.settings if isinstance(store, SessionPool) else settings).get("system") is not None:
            raise TypeError("system: an agent has a system prompt of its own; pass create_agent(system_prompt=...)")
        one_of("recall_tool", recall_tool, (False, True))
        self._on_error = one_of("on_error", on_error, ("window", "raise"))
        check_report(on_report)
        self._on_report = on_report
        self._closed = False
        self._threads = ThreadResolver(session_id, user_key, removed, share_with_subgraphs)
        _, number = limit_parts(max_tokens)
        if not isinstance(store, SessionPool):
            # A question that does not fit must not be left out, nor what a tool has just returned.
            settings = {"on_overflow": "raise"} | settings | ({} if number is None else {"max_tokens": number})
        self.pool = open_pool(store, wait=WAIT if on_error == "window" else None, **settings)
        self._owns_pool = self.pool is not store
        own_limit = self.pool.settings.get("max_tokens")
        self._budget = Budget(own_limit if max_tokens is None else max_tokens)
        self._counter = as_counter(self.pool.settings.get("token_counter"))
        self._memory = ThreadMemory(self.pool)
        self._warned = False
        self.tools: Sequence[BaseTool] = []
        if recall_tool:
            self.tools = [search_tool(self._memory, self._threads, limit=lambda: self._budget.least)]

    # Around the model

    @property
    def prompt(self) -> Middleware:
        """The part of this middleware that makes the prompt, to be listed last, behind all that changes requests.

        `middleware=[memory, ..., memory.prompt]`: the first stores what is said, and the last lets the request that is
        really sent fit the limit of the model that is really asked. Alone, `memory` makes the prompt where it stands.
        """
        return _PromptMiddleware(self)

    @override
    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Answer:
        return handler(request) if self._leaves_it(request, handler) else self.ask(request, handler)

    @override
    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Answer:
        return await (handler(request) if self._leaves_it(request, handler) else self.aask(request, handler))

    def _leaves_it(self, request: Request, handler: Callable[..., Any]) -> bool:
        """Return whether `prompt` makes the prompt. If not, warn once if middleware behind this may change it."""
        if "infinite_memory_prompt" in request.state:
            return True
        # The name that the function has in which LangChain calls the middleware behind; the model's has another.
        if not self._warned and getattr(handler, "__name__", "") == "inner_handler":
            self._warned = True
            logger.warning(
                "middleware behind the memory may make a prompt larger than its limit: list its .prompt last, "
                "middleware=[memory, ..., memory.prompt]"
            )
        return False

    def ask(self, request: Request, handler: Callable[[Request], Response]) -> Answer:
        """Send the prompt for a request; once more and smaller if the provider refuses it as too large."""
        call, window = self._call(request), None
        try:
            prompt = self._memory.prompt(call.thread, call.stored, call.given)
        except FAILURES as error:
            window = self._window(call, error)
        if window is not None:  # outside of the block above, so that the model's errors are its own
            return handler(request.override(messages=window))
        try:
            answer = handler(self._with_prompt(request, call, prompt))
        except Exception as error:
            if not is_overflow(error):
                raise
            prompt = self._memory.prompt(call.thread, call.stored, self._smaller(request, call, prompt, error))
            answer = handler(self._with_prompt(request, call, prompt))
        self._budget.observe(request.model, prompt.tokens, answer)
        return answer

    async def aask(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Answer:
        """Do what `ask` does without blocking the event loop."""
        call, window = await self._memory.call(self._call, request), None
        try:
            prompt = await self._memory.aprompt(call.thread, call.stored, call.given)
        except FAILURES as error:
            window = await self._memory.call(self._window, call, error)
        if window is not None:
            return await handler(request.override(messages=window))
        try:
            answer = await handler(self._with_prompt(request, call, prompt))
        except Exception as error:
            if not is_overflow(error):
                raise
            prompt = await self._memory.aprompt(call.thread, call.stored, self._smaller(request, call, prompt, error))
            answer = await handler(self._with_prompt(request, call, prompt))
        self._budget.observe(request.model, prompt.tokens, answer)
        return answer

    def _call(self, request: Request) -> "_Call":
        thread = self._thread(request.state, request.runtime)
        system = [] if request.system_message is None else [request.system_message]
        tools = _schemas(request)
        stored = with_added_results(request.state.get("messages", request.messages), request.messages)

        def needed() -> int:
            try:
                sizes = [self._size(must_send(messages)) for messages in (stored, request.messages)]
                return tools_tokens(tools, self._counter) + max(sizes)
            except FAILURES:  # the prompt fails, too, and says so
                return 0

        limit = self._budget.tokens(request.model, extra=needed)
        return _Call(thread, stored, ModelInput(request.messages, system, tools, limit))

    def _smaller(self, request: Request, call: "_Call", prompt: ThreadPrompt, error: Exception) -> ModelInput:
        """Return what to ask for in the place of a prompt that the provider refused."""
        limit = self._budget.overflowed(request.model, prompt.report, error)
        logger.warning(
            "the model refused the prompt as too large; asking again with %s tokens: %s", f"{limit:,}", error
        )
        return replace(call.given, max_tokens=limit)

    def _size(self, messages: Sequence[BaseMessage]) -> int:
        return sum(message_tokens(read_message(message)[0], self._counter) for message in messages)

    def _with_prompt(self, request: Request, call: "_Call", prompt: ThreadPrompt) -> Request:
        report(self._on_report, prompt.report, call.thread)
        return request.override(messages=prompt.messages)  # type: ignore[arg-type]

    def _window(self, call: "_Call", error: Exception) -> Any:
        """Return the newest turns of a request that fit, and at least the newest human message."""
        if isinstance(error, BudgetError):
            raise error  # a window would not fit either, or would silently lack what must be sent
        self._failed(error)
        given, limit = call.given, call.given.max_tokens or 0
        erased = self._memory.known_erased(call.thread, call.stored)
        messages = [message for message in given.messages if message.id not in erased]
        try:
            taken = self._size(given.system) + tools_tokens(given.tools, self._counter)
            room = limit - self.pool.settings.get("reserve_tokens", RESERVE_TOKENS) - taken
            return newest_messages(messages, max(1, room), self._counter)
        except FAILURES as again:  # such as a counter that raises
            logger.warning("the newest turns cannot be counted either, and everything is sent: %s", again)
            return messages

    # Around the run

    @override
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        thread = self._thread(state, runtime)
        try:
            self._memory.begin_turn(thread, state["messages"])
        except FAILURES as error:
            self._failed(error)
        record = thread.record or ThreadRecord(thread.owner, thread.session_id)
        return self._recorded(thread, record)

    @override
    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await asyncio.shield(self._memory.call(self.before_agent, state, runtime))

    @override
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        thread = self._thread(state, runtime)
        try:
            self._memory.store(thread, state["messages"])
        except FAILURES as error:
            self._failed(error)
        return self._recorded(thread, self._memory.record(thread))

    def _recorded(self, thread: Thread, record: ThreadRecord) -> dict[str, Any] | None:
        return {STATE: asdict(record)} if thread.stable_ids and record != thread.record else None

    @override
    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await asyncio.shield(self._memory.call(self.after_agent, state, runtime))

    def _thread(self, state: Mapping[str, Any], runtime: Any) -> Thread:
        messages, record = state.get("messages", ()), ThreadRecord.of(state)
        thread = self._threads.resolve(runtime, first=read_list(messages).first, record=record)
        try:
            return self._memory.owned(thread, messages)
        except FAILURES as error:
            self._failed(error)
        return thread

    def _failed(self, error: Exception) -> None:
        if self._on_error == "raise" or isinstance(error, RunError):
            raise error
        told = "it was closed; make another InfiniteMemoryMiddleware" if self._closed else error
        logger.warning("the memory failed, and the agent goes on without it: %s", told)

    # Erasing

    def forget(
        self, *, thread_id: str | None = None, message_ids: Sequence[str] | None = None, user_id: str | None = None
    ) -> ForgetResult:
        """Erase messages of a thread, and what was made from them, everywhere; see `InfiniteMemory.forget`.

        What was erased is not stored again, nor sent, even if the state of the graph still holds it; nor is what stands
        right behind it there and was not stored, up to the newest question. The graphs nested in the thread's are
        included: all sessions of the user whose names begin with the thread's and `//`. While the store cannot be read,
        the process that erased it, and those that began to run the thread afterwards, leave it out; others send what
        the state has.

        Args:
            thread_id: the thread, or the session. None: the `session_id` of all runs.
            message_ids: the ids that the messages have in the graph's state. None: the whole session.
            user_id: the user whom the session belongs to.

        Raises:
            UnknownReferenceError: no message of these ids is stored.
            ValueError: no thread is given, and runs have no `session_id` in common; or `user_id` is empty.
        """
        ids = None if message_ids is None else texts("message_ids", message_ids)
        return self._memory.forget(self._threads.named(thread_id, user_id), ids)

    async def aforget(
        self, *, thread_id: str | None = None, message_ids: Sequence[str] | None = None, user_id: str | None = None
    ) -> ForgetResult:
        """Do what `forget` does without blocking the event loop."""
        forget = partial(self.forget, thread_id=thread_id, message_ids=message_ids, user_id=user_id)
        return await self._memory.call(forget)

    def close(self) -> None:
        """Release the store, if it was opened here."""
        if self._owns_pool:
            self._closed = True
            self.pool.close()


class _PromptMiddleware(Middleware):
    """Makes the prompts of a memory that stands before it in the list."""

    state_schema = PromptState

    def __init__(self, memory: InfiniteMemoryMiddleware) -> None:
        super().__init__()
        self._memory = memory

    @override
    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Answer:
        return self._memory.ask(request, handler)

    @override
    async def awrap_model_call(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Answer:
        return await self._memory.aask(request, handler)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the model: whose it is, the messages to store, and what the model is given."""

    thread: Thread
    stored: Sequence[BaseMessage]
    given: ModelInput


def _schemas(request: Request) -> list[Any]:
    """Return the schemas that are sent with a request, as JSON: those of tools and of structured output."""
    form = request.response_format
    if isinstance(form, AutoStrategy):
        form = ToolStrategy(form.schema)
    specs = form.schema_specs if isinstance(form, ToolStrategy) else [form.schema_spec] if form is not None else []
    return [
        *(_schema(tool) for tool in request.tools),
        *({"name": spec.name, "schema": spec.json_schema} for spec in specs),
    ]


def _schema(tool: Any) -> Any:
    try:
        if not isinstance(tool, Mapping):
            return convert_to_openai_tool(tool)
        json.dumps(tool)  # a provider's own tool has no common form
    except (TypeError, ValueError):
        return repr(tool)
    return tool
