"""InfiniteMemoryRunnable: a chain that remembers."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import ExitStack, aclosing, closing
from time import monotonic
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableLike, coerce_to_runnable
from langchain_core.runnables.utils import ConfigurableFieldSpec, get_unique_config_specs

from langchain_infinite_memory.chains.chain_io import ChainKeys
from langchain_infinite_memory.chains.chain_memory import ChainMemory, MemoryFailedWarning, OnError, StreamedAnswer
from langchain_infinite_memory.chains.history import InfiniteChatMessageHistory
from langchain_infinite_memory.identity import NAMESPACE, OnReport, check_report
from langchain_infinite_memory.sessions import WAIT, MemoryLike, SessionKey, Sessions
from shared_core.arguments import name_value, one_of

__all__ = ["InfiniteMemoryRunnable", "MemoryFailedWarning", "with_infinite_memory"]


class InfiniteMemoryRunnable(Runnable[Any, Any]):
    """Adds to a chain's input what was said before, as far as it fits and matters, and stores question and answer.

    Without keys, the chain is given a list of messages: the whole prompt. With `input_key`, it is given the dict, with
    the prompt under that key. With `history_key`, too, earlier messages go there, and the question stays under
    `input_key` in the form in which it came. What was recalled and retrieved for the question stands before it; with
    `placement="system"` or `"messages"`, recalled messages are part of the history instead.

    The question is stored before the chain runs. The answer is stored in the question's own turn, whatever else is said
    in the session in the meantime. System messages in the input are sent first and not stored. A chain that fails
    leaves a question without an answer (`history(...).unanswered()`); if that question is still the newest message when
    it is asked again, it is not stored twice. When the consumer of a stream stops, or the chain fails, the part that
    was received is stored as the answer, with `additional_kwargs["incomplete"]` `"stopped"` or `"failed"`; nothing is
    stored if nothing was received, or if it came from an agent.

    Args:
        runnable: the chain, the model or the agent, or anything that LangChain coerces to a `Runnable`.
        store: a path, a `Store`, a `SessionPool`, or the `InfiniteMemory` of the only session. None: in memory.
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
        settings: the other arguments of `InfiniteMemory`, and `embeddings`, `token_counter`, `summarizer` and
            `reranker` in LangChain's words; only for a store.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self, runnable: RunnableLike[Any, Any], *, store: MemoryLike = None, input_key: str | None = None,
        history_key: str | None = None, output_key: str | None = None, session_key: str = "session_id",
        user_key: str | None = "user_id", documents_key: str | None = None, tools: Sequence[Any] = (),
        on_error: OnError = "window", on_report: OnReport = None, **settings: Any,
    ) -> None:  # fmt: skip
        one_of("on_error", on_error, ("window", "raise"))
        name_value("session_key", session_key)
        name_value("user_key", user_key if user_key is not None else "user_id")
        check_report(on_report)
        keys = ChainKeys(input=input_key, history=history_key, output=output_key, documents=documents_key)
        self.bound: Runnable[Any, Any] = coerce_to_runnable(runnable)
        self._session_key = session_key
        self._user_key = user_key
        # A locked file is waited for twice: before the chain runs, and when the answer is to be stored.
        self._sessions = Sessions(store, wait=WAIT / 2 if on_error == "window" else None, **settings)
        if self._sessions.only is None:
            _ = self._sessions.lending  # a wrong argument is reported now, not with the first question
        self._memory = ChainMemory(self._sessions, keys, tools=tools, on_error=on_error, on_report=on_report)

    # Sessions

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """The entries of `config["configurable"]` that this and the chain read."""
        names = [self._session_key] if self._user_key is None else [self._session_key, self._user_key]
        ours = [ConfigurableFieldSpec(id=name, annotation=str, is_shared=True) for name in names]
        return get_unique_config_specs([*self.bound.config_specs, *ours])

    def history(self, session_id: str, user_id: str | None = None) -> InfiniteChatMessageHistory:
        """Return a session's history: all messages, the prompt for a question, and the report on it."""
        return InfiniteChatMessageHistory(
            session_id, user_id=user_id, store=self._sessions.only or self._sessions.lending
        )

    def _key(self, config: RunnableConfig) -> SessionKey:
        entries = config.get("configurable") or {}
        inside = entries.get(NAMESPACE)  # a node of a graph, whose thread is not this chain's alone
        return self._sessions.key(entries, [self._session_key, *(() if inside else ("thread_id",))], self._user_key)

    # Whole answers

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the chain's answer; question and answer are stored."""
        return self._call_with_config(self._invoke, input, config, **kwargs)

    def _invoke(
        self, value: Any, run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> Any:
        with self._memory.run(value, self._key(config), config) as run:
            output = self.bound.invoke(run.input, config, **kwargs)
            run.asked = monotonic()
            self._memory.save(run, output)
            return output

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Do what `invoke` does without blocking the event loop."""
        return await self._acall_with_config(self._ainvoke, input, config, **kwargs)

    async def _ainvoke(
        self, value: Any, run_manager: AsyncCallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> Any:
        async with self._memory.arun(value, self._key(config), config) as run:
            output = await self.bound.ainvoke(run.input, config, **kwargs)
            run.asked = monotonic()
            await self._sessions.call(self._memory.save, run, output)
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
        with self._memory.run(value, self._key(config), config) as run:
            answer = StreamedAnswer()
            try:
                with answer:
                    for chunk in self.bound.stream(run.input, answer.watching(config), **kwargs):
                        answer.chunks.append(chunk)
                        yield chunk
            finally:
                run.asked = monotonic()
                self._memory.save_stream(run, answer)

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
        async with self._memory.arun(value, self._key(config), config) as run:
            answer = StreamedAnswer()
            try:
                with answer:
                    async for chunk in self.bound.astream(run.input, answer.watching(config), **kwargs):
                        answer.chunks.append(chunk)
                        yield chunk
            finally:
                run.asked = monotonic()
                await asyncio.shield(self._sessions.call(self._memory.save_stream, run, answer))

    def close(self) -> None:
        """Release the store, if it was opened here."""
        self._sessions.close()


def with_infinite_memory(runnable: RunnableLike[Any, Any], **arguments: Any) -> InfiniteMemoryRunnable:
    """Return a chain that remembers; the arguments are those of `InfiniteMemoryRunnable`."""
    return InfiniteMemoryRunnable(runnable, **arguments)
