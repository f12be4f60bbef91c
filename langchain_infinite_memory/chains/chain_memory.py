"""The memory of a chain: the prompt before a run, and what is stored of the run."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from time import monotonic
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_infinite_memory.chains.chain_io import (
    ChainInput,
    ChainKeys,
    incomplete,
    read_input,
    read_output,
    stream_output,
)
from langchain_infinite_memory.identity import OnReport, Thread, report
from langchain_infinite_memory.sessions import Locks, Outage, SessionKey, Sessions
from langchain_infinite_memory.traces import arecall_run, recall_run
from shared_core.aio import AsyncInfiniteMemory
from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError, warn
from shared_core.history.normal_form import normal_forms
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, content_of
from shared_core.prompt.context import Context
from shared_core.stores import SQLiteStore

OnError = Literal["window", "raise"]
Interruption = Literal["stopped", "failed"] | None


class MemoryFailedWarning(UserWarning):
    """The memory could not be used, or an answer could not be stored; the chain went on."""


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
        self.why: Interruption = None

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


@dataclass(slots=True)
class ChainRun:
    """A run of the chain.

    Attributes:
        key: the ids of session and user.
        given: the chain's input as it was read.
        context: the prompt; None if the memory failed.
        stored: whether the input is stored.
        turn: the turn that the answer belongs to; None: the newest.
        claimed: whether this run answers the question that opened the turn.
        input: the chain's input with the prompt in it.
        sent: the messages of the prompt.
        asked: when the store was asked last: at the beginning, and when the answer is there.
    """

    key: SessionKey
    given: ChainInput
    context: Context | None = None
    stored: bool = False
    turn: str | None = None
    claimed: bool = False
    input: Any = None
    sent: Sequence[BaseMessage] = ()
    asked: float = field(default_factory=monotonic)


class ChainMemory:
    """Builds prompts for a chain and stores its questions and answers, for any number of runs and sessions at a time.

    The arguments are those of `InfiniteMemoryRunnable`, with its sessions and keys.
    """

    def __init__(
        self, sessions: Sessions, keys: ChainKeys, *, tools: Sequence[Any], on_error: OnError, on_report: OnReport
    ) -> None:
        self._sessions = sessions
        self._keys = keys
        self._tools = [convert_to_openai_tool(tool) for tool in tools]
        self._on_error = on_error
        self._on_report = on_report
        self._outage, self._locks = Outage(), Locks()
        self._lock = threading.Lock()
        self._open: list[tuple[SessionKey, str | None]] = []

    # Before the run

    @contextmanager
    def run(self, value: Any, key: SessionKey, config: RunnableConfig) -> Iterator[ChainRun]:
        """Build the prompt and store the question; the run lasts as long as the context."""
        run = ChainRun(key, read_input(value, self._keys))
        try:
            with self._failures(), self._sessions.use(*key) as memory:
                self._store_before(memory, run)
                try:
                    with recall_run(_query(run)) as recall:
                        run.context = memory.context(run.given.question, tools=self._charged(run))
                        recall.report = run.context.report
                finally:
                    self._store_question(memory, run)
            yield self._with_prompt(run, config)
        finally:
            self._release(run)

    @asynccontextmanager
    async def arun(self, value: Any, key: SessionKey, config: RunnableConfig) -> AsyncIterator[ChainRun]:
        """Do what `run` does without blocking the event loop."""
        run = ChainRun(key, read_input(value, self._keys))
        try:
            with self._failures():
                async with self._sessions.ause(*key) as memory:
                    await self._sessions.call(self._store_before, memory, run)
                    try:
                        async with arecall_run(_query(run)) as recall:
                            asking = AsyncInfiniteMemory(memory)
                            run.context = await asking.context(run.given.question, tools=self._charged(run))
                            recall.report = run.context.report
                    finally:
                        await self._sessions.call(self._store_question, memory, run)
            yield self._with_prompt(run, config)
        finally:
            self._release(run)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Let the chain go on without the memory if that fails, unless `on_error` is "raise"."""
        try:
            yield
        except (StoreError, UnknownReferenceError) as error:  # the question may have been forgotten during the run
            if self._on_error == "raise":
                raise
            _warn(f"the memory failed and the chain goes on without it: {error}")

    @contextmanager
    def _storing(self, run: ChainRun, memory: InfiniteMemory) -> Iterator[None]:
        """Do not wait for the store behind another run that waits for it in vain."""
        with self._locks.hold("file" if isinstance(memory._store, SQLiteStore) else run.key):
            self._outage.check(run.asked)
            with self._outage.watch():
                yield

    def _charged(self, run: ChainRun) -> list[Any]:
        """Return what is charged besides the messages: tool schemas, and the system messages, which are not stored."""
        return [*self._tools, *(message.text for message in run.given.system)]

    def _store_before(self, memory: InfiniteMemory, run: ChainRun) -> None:
        """Store what was said before the question; and the question, too, if part of its answer follows it."""
        with self._storing(run, memory):
            new = run.given.said[_count_stored(memory, run.given.said) :]
            if run.given.question is None:
                stored = memory.add(new) if new else memory.newest(1)
                run.stored, run.turn = True, stored[-1].turn_id if stored else None
            elif earlier := new[:-1]:
                memory.add(earlier)

    def _store_question(self, memory: InfiniteMemory, run: ChainRun) -> None:
        """Store the question, unless it is the newest message and no other run is answering it."""
        question = run.given.question
        if question is None:
            return
        with self._storing(run, memory):
            newest = memory.newest(1) if question.id is None else []
            if not (newest and content_of(newest[0]) == content_of(question) and self._claim(run, newest[0].turn_id)):
                stored = memory.add(question)
                # A question that was forgotten is not stored again, so its answer will not find a turn.
                self._claim(run, stored[0].turn_id if stored else question.id, shared=True)
        run.stored = True

    def _claim(self, run: ChainRun, turn: str | None, *, shared: bool = False) -> bool:
        """Note that this run answers a question; unless it is shared, return False if another run does so already."""
        with self._lock:
            if not shared and (run.key, turn) in self._open:
                return False
            run.turn, run.claimed = turn, True
            self._open.append((run.key, turn))
            return True

    def _release(self, run: ChainRun) -> None:
        with self._lock:
            if run.claimed:
                self._open.remove((run.key, run.turn))

    def _with_prompt(self, run: ChainRun, config: RunnableConfig) -> ChainRun:
        if run.context is not None:
            thread = (config.get("configurable") or {}).get("thread_id")
            report(self._on_report, run.context.report, Thread(*run.key, thread))
        prompt = run.given.without_memory() if run.context is None else run.context.messages
        run.input, run.sent = run.given.with_prompt(prompt)
        return run

    # After the run

    def save(self, run: ChainRun, output: Any) -> None:
        """Store the answer. One that cannot be stored is the caller's all the same; a `MemoryFailedWarning` says so."""
        with self._unstorable(None), self._failures():
            self._store(run, read_output(output, self._keys.output, run.sent))

    def save_stream(self, run: ChainRun, answer: StreamedAnswer) -> None:
        """Store what the chunks of a stream make up, as `save` does."""
        if answer.why is not None and not answer.chunks:
            return
        with self._unstorable(answer.why), self._failures():
            output = stream_output(answer.chunks, answer.output, whole=answer.why is None)
            replies = read_output(output, self._keys.output, run.sent)
            if answer.why is not None:
                replies = [message for message in replies if message.content or message.tool_calls]
                replies[-1:] = [incomplete(message, answer.why) for message in replies[-1:]]
            self._store(run, replies)

    @contextmanager
    def _unstorable(self, why: Interruption) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, RecursionError) as error:
            if why is None:  # part of an answer need not be storable
                _warn(f"the answer was not stored: {error}")

    def _store(self, run: ChainRun, replies: Sequence[Message]) -> None:
        with self._sessions.use(*run.key) as memory, self._storing(run, memory):
            if not run.stored:
                memory.add([*run.given.said, *replies])
                return
            own = list(takewhile(lambda message: message.role != "user", replies))
            _add(memory, own, run.turn)
            _add(memory, replies[len(own) :], None)  # a user message in the answer opens a turn


def _query(run: ChainRun) -> str:
    """Return the question that recall searches for."""
    return run.given.said[run.given.at].content if run.given.at >= 0 else ""


def _warn(text: str) -> None:
    warn(text, MemoryFailedWarning)


def _count_stored(memory: InfiniteMemory, said: Sequence[Message]) -> int:
    """Return how many leading messages are the session's newest ones: a client may send its history again."""
    stored = normal_forms(memory.newest(len(said))) if len(said) > 1 else []
    sent = normal_forms(said)
    return next((count for count in range(len(stored), 0, -1) if stored[-count:] == sent[:count]), 0)


def _add(memory: InfiniteMemory, messages: Sequence[Message], turn: str | None) -> None:
    """Store replies, without their ids if need be: some models count from 1 each time, and caches repeat ids."""
    if not messages:
        return
    try:
        stored = memory.add(messages, turn=turn)
    except DuplicateError:
        memory.add([message.replace(id=None) for message in messages], turn=turn)
    else:
        if turn is not None and len(stored) == 1 and stored[0].turn_id != turn:  # the id is stored for another question
            memory.add(messages[0].replace(id=None), turn=turn)
