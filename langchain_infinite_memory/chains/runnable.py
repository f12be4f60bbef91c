"""InfiniteMemoryRunnable: a chain that remembers."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from time import monotonic
from typing import Any, Literal

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    BaseCallbackHandler,
    CallbackManagerForChainRun,
)
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableLike, coerce_to_runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_infinite_memory.chains.chain_io import ChainInput, ChainKeys, read_input, read_output, stream_output
from langchain_infinite_memory.chains.history import InfiniteChatMessageHistory
from langchain_infinite_memory.identity import (
    NAMESPACE,
    OnReport,
    Thread,
    check_report,
    named_session,
    named_user,
    report,
    unnamed,
)
from langchain_infinite_memory.messages import from_message, to_message
from langchain_infinite_memory.sessions import (
    WAIT,
    Outage,
    SessionKey,
    StoreLike,
    alent,
    is_stored,
    lent,
    open_pool,
)
from langchain_infinite_memory.traces import arecall_run, recall_run
from shared_core.arguments import name_value, one_of
from shared_core.errors import StoreError, UnknownReferenceError, warn
from shared_core.history.followed import FollowedHistory
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, content_of
from shared_core.plugins.calls import Steps, arun_steps, run_steps
from shared_core.prompt.context import Context
from shared_core.runtime.threads import threads_of

__all__ = ["InfiniteMemoryRunnable", "MemoryFailedWarning", "with_infinite_memory"]

INCOMPLETE = "incomplete"
"""The key of `additional_kwargs` that says why an answer is incomplete: `"stopped"` or `"failed"`."""

OnError = Literal["window", "raise"]


class MemoryFailedWarning(UserWarning):
    """The memory could not be used, or an answer could not be stored; the chain went on."""


@dataclass(slots=True)
class ChainRun:
    """A run of the chain.

    Attributes:
        session: the ids of session and user.
        given: the chain's input as it was read.
        context: the prompt; None if the memory failed.
        stored: whether the input is stored.
        history: the input as it was followed, if it may be a history.
        turn: the turn that the answer belongs to; None: the newest.
        input: the chain's input with the prompt in it.
        sent: the messages of the prompt.
        asked: when the store was asked last: at the beginning, and when the answer is there.
    """

    session: SessionKey
    given: ChainInput
    context: Context | None = None
    stored: bool = False
    history: FollowedHistory = field(default_factory=FollowedHistory)
    turn: str | None = None
    input: Any = None
    sent: Sequence[BaseMessage] = ()
    asked: float = field(default_factory=monotonic)


class StreamedAnswer(BaseCallbackHandler):
    """What a chain has streamed, and why it ended. A `with` block around the stream notes that.

    Attributes:
        chunks: what was streamed.
        output: what the chain reports as its output: for a graph its final state, in whatever modes it streams.
        why: why the chunks are not the whole answer; None: they are, as far as is known.
    """

    run_inline = True
    ignore_chat_model = True  # else the prompt is written out for it

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.output: Any = None
        self.why: Literal["stopped", "failed"] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the end of a generator, and of a task, is no `Exception`
            self.why = "failed" if issubclass(kind, Exception) else "stopped"

    def on_chain_end(self, outputs: Any, **_: Any) -> None:
        """Keep the output."""
        self.output = outputs

    def watching(self, config: RunnableConfig) -> RunnableConfig:
        """Return the configuration for a chain that reports here; its parts do not."""
        callbacks: Any = config["callbacks"]  # a manager, because LangChain made the configuration
        watched = callbacks.copy()
        watched.add_handler(self, inherit=False)
        return {**config, "callbacks": watched}


class InfiniteMemoryRunnable(Runnable[Any, Any]):
    """Adds to a chain's input what was said before, as far as it fits and matters, and stores question and answer.

    Without keys, the chain is given a list of messages: the whole prompt. With `input_key`, it is given the dict, with
    the prompt under that key. With `history_key`, too, earlier messages go there, and the question stays under
    `input_key` in the form in which it came. What was recalled and retrieved for the question stands before it; with
    `placement="system"` or `"messages"`, recalled messages are part of the history instead.

    The question is stored before the chain runs. The answer is stored in the question's own turn, whatever else is said
    in the session in the meantime. System messages in the input are sent first and not stored. A chain that fails
    leaves a question without an answer; if that question is still the newest message when it is asked again, it is not
    stored twice. When the consumer of a stream stops, or the chain fails, the part that
    was received is stored as the answer, with `additional_kwargs["incomplete"]` `"stopped"` or `"failed"`; nothing is
    stored if nothing was received, or if it came from an agent.

    A list of messages that ends with the question may be a history that the client sends again: `InfiniteMemory.follow`
    stores what is new in it, and its line is `main` from then on.

    Args:
        runnable: the chain, the model or the agent, or anything that LangChain coerces to a `Runnable`.
        store: a path, a `Store` or a `SessionPool`; None: in memory.
        input_key: the key of the question in an input that is a dict; "messages", as in an agent's, need not be named.
        history_key: the key under which the chain expects earlier messages.
        output_key: the key of the answer in an output that is a dict. Without it, an entry "messages" is the answer, or
            an only entry called "answer", "output", "response", "result" or "text". An answer that is neither text nor
            messages is stored as its JSON text.
        session_key: the entry of `config["configurable"]` that names the session; without it, `thread_id` does,
            except inside a graph, whose parts would share it.
        user_key: the entry that names the user; without it, the run has no user. None: there are no users.
        documents_key: the key in the input of `Document`s that were retrieved for the question. They are kept apart
            from it, and sent with the newest question only. `additional_kwargs["grounding"]` of a message is the same.
        tools: schemas of tools that are bound to the model, which are charged to the budget.
        on_error: what to do when the store cannot be read or written: `"window"` goes on with the input alone and gives
            a `MemoryFailedWarning`; `"raise"` raises. Wrong arguments always raise. With `"window"`, a file that
            another process holds is waited for two seconds in all: one before the chain runs, and one when the answer
            is to be stored. A pool or store has a wait of its own.
        on_report: called with the report on each prompt, and the `RunIds` of the run. What it raises is logged.
        settings: the other arguments of `InfiniteMemory`, and `embeddings`, `token_counter` and `summarizer` in
            LangChain's words; not for a `SessionPool`, which has its own.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self, runnable: RunnableLike[Any, Any], *, store: StoreLike = None, input_key: str | None = None,
        history_key: str | None = None, output_key: str | None = None, session_key: str = "session_id",
        user_key: str | None = "user_id", documents_key: str | None = None, tools: Sequence[Any] = (),
        on_error: OnError = "window", on_report: OnReport = None, **settings: Any,
    ) -> None:  # fmt: skip
        self._on_error = one_of("on_error", on_error, ("window", "raise"))
        self._session_key = name_value("session_key", session_key)
        self._user_key = None if user_key is None else name_value("user_key", user_key)
        check_report(on_report)
        self._on_report = on_report
        self._keys = ChainKeys(input=input_key, history=history_key, output=output_key, documents=documents_key)
        self._tools = [convert_to_openai_tool(tool) for tool in tools]
        self.bound: Runnable[Any, Any] = coerce_to_runnable(runnable)
        # A locked file is waited for twice: before the chain runs, and when the answer is to be stored.
        self.pool = open_pool(store, wait=WAIT / 2 if on_error == "window" else None, **settings)
        self._owns_pool = self.pool is not store
        self._call = threads_of(self.pool.store).run
        self._outage = Outage(self.pool.store)

    # Sessions

    def history(self, session_id: str, user_id: str | None = None) -> InfiniteChatMessageHistory:
        """Return a session's history: all messages, and the prompt for a question."""
        return InfiniteChatMessageHistory(session_id, user_id=user_id, store=self.pool)

    def _session(self, entries: Mapping[str, Any]) -> SessionKey:
        session = named_session(self._session_key, entries.get(self._session_key))
        if session is None and not entries.get(NAMESPACE):  # a node of a graph has a thread that is not its alone
            session = named_session("thread_id", entries.get("thread_id"))
        if session is None:
            raise ValueError(unnamed(self._session_key))
        return session, None if self._user_key is None else named_user(entries.get(self._user_key))

    # Before the run

    def _run(self, value: Any, config: RunnableConfig) -> ChainRun:
        return ChainRun(self._session(config.get("configurable") or {}), read_input(value, self._keys))

    def _begin(self, value: Any, config: RunnableConfig) -> ChainRun:
        """Build the prompt and store the question."""
        run = self._run(value, config)
        with self._failures(), lent(self.pool, *run.session) as memory, recall_run(run.given.query) as recall:
            run.context = run_steps(self._prompt_steps(memory, run))
            recall.report = run.context.report
        return self._with_prompt(run, config)

    async def _abegin(self, value: Any, config: RunnableConfig) -> ChainRun:
        """Do what `_begin` does without blocking the event loop."""
        run = self._run(value, config)
        with self._failures():
            async with alent(self.pool, *run.session) as memory, arecall_run(run.given.query) as recall:
                run.context = await arun_steps(self._prompt_steps(memory, run), self._call)
                recall.report = run.context.report
        return self._with_prompt(run, config)

    def _prompt_steps(self, memory: InfiniteMemory, run: ChainRun) -> Steps[Context]:
        # System messages are not stored, so they are charged as the schemas of tools are.
        charged = [*self._tools, *(message.text for message in run.given.system)]
        with self._outage.storing(run.session, run.asked):
            self._store_before(memory, run)
        try:
            return (yield from memory._context_steps(run.given.question, tools=charged))
        finally:
            with self._outage.storing(run.session, run.asked):
                self._store_question(memory, run)

    def _store_before(self, memory: InfiniteMemory, run: ChainRun) -> None:
        """Store the input, if it may be a history that the client sends again."""
        if run.given.is_history:
            run.history, run.stored = _follow(memory, run.given.said, run.history), True

    def _store_question(self, memory: InfiniteMemory, run: ChainRun) -> None:
        """Store the question, unless it is the newest message: a chain that failed is asked again."""
        if run.given.is_history or (question := run.given.question) is None:
            return
        stored = memory.newest(1) if question.id is None else []
        if not stored or content_of(stored[0]) != content_of(question):
            stored = memory.add(question)
        # A question that was forgotten is not stored again, so its answer will not find a turn.
        run.stored, run.turn = True, stored[0].turn_id if stored else question.id

    def _with_prompt(self, run: ChainRun, config: RunnableConfig) -> ChainRun:
        if run.context is not None:
            thread = (config.get("configurable") or {}).get("thread_id")
            report(self._on_report, run.context.report, Thread(*run.session, thread))
        prompt = run.given.without_memory() if run.context is None else run.context.messages
        run.input, run.sent = run.given.with_prompt(prompt)
        return run

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Let the chain go on without the memory if that fails, unless `on_error` is "raise"."""
        try:
            with self._outage.watch():
                yield
        except (StoreError, UnknownReferenceError) as error:  # the question may have been forgotten during the run
            if self._on_error == "raise":
                raise
            warn(f"the memory failed and the chain goes on without it: {error}", MemoryFailedWarning)

    # After the run

    def _save(self, run: ChainRun, output: Any) -> None:
        """Store the answer. One that cannot be stored is the caller's all the same; a `MemoryFailedWarning` says so."""
        try:
            replies = read_output(output, self._keys.output, run.sent)
        except (TypeError, ValueError) as error:
            warn(f"the answer was not stored: {error}", MemoryFailedWarning)
        else:
            self._store(run, replies)

    def _save_stream(self, run: ChainRun, answer: StreamedAnswer) -> None:
        """Store what the chunks of a stream make up, as `_save` does."""
        output = stream_output(answer.chunks, answer.output, whole=answer.why is None)
        if answer.why is None:
            self._save(run, output)
            return
        replies = [one for one in read_output(output, self._keys.output, run.sent) if one.content or one.tool_calls]
        if replies:
            self._store(run, [*replies[:-1], _incomplete(replies[-1], answer.why)])

    def _store(self, run: ChainRun, replies: Sequence[Message]) -> None:
        with self._failures(), self._outage.storing(run.session, run.asked), lent(self.pool, *run.session) as memory:
            # Some models count from 1 each time, and caches repeat ids.
            replies = [one.replace(id=None) if is_stored(memory, one.id) else one for one in replies]
            new = replies if run.stored else [*run.given.said, *replies]
            if run.given.is_history:
                if run.stored and not is_stored(memory, run.history.ids[run.given.at]):
                    raise UnknownReferenceError("there is no turn for the answer: the question was forgotten")
                _follow(memory, new, run.history)
                return
            if not run.stored:
                memory.add(new)
                return
            own = list(takewhile(lambda message: message.role != "user", replies))
            if own:
                memory.add(own, turn=run.turn)
            if own != replies:  # a user message in the answer opens a turn
                memory.add(replies[len(own) :])

    # Whole answers

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the chain's answer; question and answer are stored."""
        return self._call_with_config(self._invoke, input, config, **kwargs)

    def _invoke(
        self, value: Any, run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> Any:
        run = self._begin(value, config)
        output = self.bound.invoke(run.input, config, **kwargs)
        run.asked = monotonic()
        self._save(run, output)
        return output

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Do what `invoke` does without blocking the event loop."""
        return await self._acall_with_config(self._ainvoke, input, config, **kwargs)

    async def _ainvoke(
        self, value: Any, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> Any:
        run = await self._abegin(value, config)
        output = await self.bound.ainvoke(run.input, config, **kwargs)
        run.asked = monotonic()
        await self._call(self._save, run, output)
        return output

    # Streams. A chain before this one may stream its output: LangChain joins it, and calls `stream` or `astream`.

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        """Yield the chain's answer as it comes; question and answer are stored."""
        with ExitStack() as ended:

            def begin(
                inputs: Iterator[Any], run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
            ) -> Iterator[Any]:
                return ended.enter_context(closing(self._stream(inputs, config, **kwargs)))

            yield from self._transform_stream_with_config(iter([input]), begin, config, **kwargs)

    def _stream(self, inputs: Iterator[Any], config: RunnableConfig, **kwargs: Any) -> Generator[Any, None, None]:
        [value] = inputs
        run, answer = self._begin(value, config), StreamedAnswer()
        try:
            with answer:
                for chunk in self.bound.stream(run.input, answer.watching(config), **kwargs):
                    answer.chunks.append(chunk)
                    yield chunk
        finally:
            run.asked = monotonic()
            self._save_stream(run, answer)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Do what `stream` does without blocking the event loop."""

        async def inputs() -> AsyncIterator[Any]:
            yield input

        chunks = self._atransform_stream_with_config(inputs(), self._astream, config, **kwargs)
        async with aclosing(chunks) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                yield chunk

    async def _astream(
        self, inputs: AsyncIterator[Any], run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:  # fmt: skip
        [value] = [value async for value in inputs]
        run, answer = await self._abegin(value, config), StreamedAnswer()
        try:
            with answer:
                async for chunk in self.bound.astream(run.input, answer.watching(config), **kwargs):
                    answer.chunks.append(chunk)
                    yield chunk
        finally:
            run.asked = monotonic()
            await asyncio.shield(self._call(self._save_stream, run, answer))

    def close(self) -> None:
        """Release the store, if it was opened here."""
        if self._owns_pool:
            self.pool.close()


def with_infinite_memory(runnable: RunnableLike[Any, Any], **arguments: Any) -> InfiniteMemoryRunnable:
    """Return a chain that remembers; the arguments are those of `InfiniteMemoryRunnable`."""
    return InfiniteMemoryRunnable(runnable, **arguments)


def _follow(memory: InfiniteMemory, new: Sequence[Message], after: FollowedHistory) -> FollowedHistory:
    """Store what is new in a history, and let its line be `main`."""
    history = memory.follow(new, after=after)
    memory.make_main()
    return replace(history, branch=memory.branch)


def _incomplete(message: Message, why: str) -> Message:
    """Return a message that is marked as incomplete."""
    marked = from_message(message)
    marked.additional_kwargs = {**marked.additional_kwargs, INCOMPLETE: why}
    return to_message(marked)
