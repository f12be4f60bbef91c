"""The memory of a chain: the prompt before a run, and what is stored of the run."""

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_infinite_memory.chain_io import ChainInput, ChainKeys, incomplete, join_chunks, read_input, read_output
from langchain_infinite_memory.sessions import SessionKey, Sessions
from shared_core.aio import AsyncInfiniteMemory
from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.history import recognized_fields
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, content_of
from shared_core.prompt.context import Context, ContextReport

OnError = Literal["window", "raise"]
Interruption = Literal["stopped", "failed"] | None


class MemoryFailedWarning(UserWarning):
    """The store could not be read or written; the chain went on without it."""


@dataclass(frozen=True, slots=True)
class ChainRun:
    """A run of the chain that answers a question.

    Attributes:
        key: the ids of session and user.
        given: the chain's input as it was read.
        input: the chain's input with the prompt in it.
        sent: the messages of the prompt.
        stored: whether the input is stored.
        turn: the turn that the answer belongs to; None: the newest.
    """

    key: SessionKey
    given: ChainInput
    input: Any
    sent: Sequence[BaseMessage]
    stored: bool
    turn: str | None


class ChainMemory:
    """Builds prompts for a chain and stores its questions and answers, for any number of runs and sessions at a time.

    Args:
        sessions: the memories.
        keys: the keys of the chain's input and output.
        tools: schemas of tools, which are charged to the budget.
        on_error: what to do when the store fails.
        on_report: called with the report on each prompt.
    """

    def __init__(
        self, sessions: Sessions, keys: ChainKeys, *, tools: Sequence[Any], on_error: OnError,
        on_report: Callable[[ContextReport], None] | None,
    ) -> None:  # fmt: skip
        self._sessions = sessions
        self._keys = keys
        self._tools = [convert_to_openai_tool(tool) for tool in tools]
        self._on_error = on_error
        self._on_report = on_report
        self._lock = threading.Lock()
        self._open: list[tuple[SessionKey, str | None]] = []

    # Before the run

    @contextmanager
    def run(self, value: Any, key: SessionKey) -> Iterator[ChainRun]:
        """Build the prompt and store the question; the run lasts as long as the context."""
        given = read_input(value, self._keys)
        pending = _PendingRun(key, given)
        try:
            try:
                with self._sessions.use(*key) as memory:
                    self._store_before(memory, pending)
                    try:
                        pending.context = memory.context(pending.question, tools=self._charged(given))
                    finally:
                        self._store_question(memory, pending)
            except StoreError as error:
                self._failed(error)
            yield self._chain_run(pending)
        finally:
            self._release(pending)

    @asynccontextmanager
    async def arun(self, value: Any, key: SessionKey) -> AsyncIterator[ChainRun]:
        """Do what `run` does without blocking the event loop."""
        given = read_input(value, self._keys)
        pending = _PendingRun(key, given)
        try:
            try:
                async with self._sessions.ause(*key) as memory:
                    await asyncio.to_thread(self._store_before, memory, pending)
                    tools = self._charged(given)
                    try:
                        pending.context = await AsyncInfiniteMemory(memory).context(pending.question, tools=tools)
                    finally:
                        await asyncio.to_thread(self._store_question, memory, pending)
            except StoreError as error:
                self._failed(error)
            yield self._chain_run(pending)
        finally:
            self._release(pending)

    def _charged(self, given: ChainInput) -> list[Any]:
        """Return what is charged besides the messages: tool schemas, and the system messages, which are not stored."""
        return [*self._tools, *(message.text for message in given.system)]

    def _store_before(self, memory: InfiniteMemory, pending: "_PendingRun") -> None:
        """Store what was said before the question; and the question, too, if part of its answer follows it."""
        given = pending.given
        pending.question = None if given.after else given.question
        said = _messages(given)
        new = said[_count_stored(memory, said) :]
        if pending.question is None:
            stored = memory.add(new) if new else memory.newest(1)
            pending.stored, pending.turn = True, stored[-1].turn_id if stored else None
        elif earlier := new[:-1]:
            memory.add(earlier)

    def _store_question(self, memory: InfiniteMemory, pending: "_PendingRun") -> None:
        """Store the question, unless it is the newest message and no other run is answering it."""
        if pending.question is None:
            return
        newest = memory.newest(1) if pending.question.id is None else []
        if newest and content_of(newest[0]) == content_of(pending.question):
            pending.stored = self._claim(pending, newest[0], alone=True)
        if not pending.stored:
            pending.stored = True
            stored = memory.add(pending.question)
            # A question that was forgotten is not stored again, so its answer will not find a turn.
            self._claim(
                pending, stored[0] if stored else pending.question.replace(turn_id=pending.question.id), alone=False
            )

    def _claim(self, pending: "_PendingRun", question: Message, *, alone: bool) -> bool:
        """Note that this run answers a question; False if `alone` is set and another run does so already."""
        with self._lock:
            if alone and (pending.key, question.turn_id) in self._open:
                return False
            pending.turn = question.turn_id
            pending.claim = (pending.key, question.turn_id)
            self._open.append(pending.claim)
            return True

    def _release(self, pending: "_PendingRun") -> None:
        with self._lock:
            if pending.claim is not None:
                self._open.remove(pending.claim)

    def _chain_run(self, pending: "_PendingRun") -> ChainRun:
        if pending.context is not None and self._on_report is not None:
            self._on_report(pending.context.report)
        prompt = pending.given.without_memory() if pending.context is None else pending.context.messages
        value, sent = pending.given.with_prompt(prompt)
        return ChainRun(pending.key, pending.given, value, sent, pending.stored, pending.turn)

    def _failed(self, error: StoreError | UnknownReferenceError) -> None:
        if self._on_error == "raise":
            raise error
        warnings.warn(f"the memory failed and the chain goes on without it: {error}", MemoryFailedWarning, stacklevel=3)

    # After the run

    def save_answer(self, run: ChainRun, output: Any) -> None:
        """Store the answer.

        Raises:
            TypeError: the output cannot be stored.
        """
        self._store(run, read_output(output, self._keys, run.sent))

    async def asave_answer(self, run: ChainRun, output: Any) -> None:
        """Do what `save_answer` does without blocking the event loop."""
        await asyncio.to_thread(self.save_answer, run, output)

    def save_stream(self, run: ChainRun, chunks: Sequence[Any], why: Interruption) -> None:
        """Store the chunks of a stream; `why` says why they are not the whole answer, None if they are.

        Raises:
            TypeError: they are the whole answer, and it cannot be stored.
        """
        if not chunks:
            return
        try:
            replies = read_output(join_chunks(chunks), self._keys, run.sent)
        except TypeError:
            if why is None:
                raise
            return  # part of an output need not be a message
        if why is not None:
            replies = [message for message in replies if message.content or message.tool_calls]
            replies[-1:] = [incomplete(message, why) for message in replies[-1:]]
        self._store(run, replies)

    async def asave_stream(self, run: ChainRun, chunks: Sequence[Any], why: Interruption) -> None:
        """Do what `save_stream` does without blocking the event loop."""
        await asyncio.to_thread(self.save_stream, run, chunks, why)

    def _store(self, run: ChainRun, replies: Sequence[Message]) -> None:
        try:
            with self._sessions.use(*run.key) as memory:
                if not run.stored:
                    memory.add([*_messages(run.given), *replies])
                    return
                own = list(takewhile(lambda message: message.role != "user", replies))
                _add(memory, own, run.turn)
                _add(memory, replies[len(own) :], None)  # a user message in the answer opens a turn
        except (StoreError, UnknownReferenceError) as error:  # the question may have been forgotten during the run
            self._failed(error)


@dataclass(slots=True)
class _PendingRun:
    """A run whose prompt is being built; further attributes are those of `ChainRun`.

    Attributes:
        question: what the prompt is for; None: the newest user message of the session.
        context: the prompt; None if the memory failed.
        claim: session and turn of the question that this run answers.
    """

    key: SessionKey
    given: ChainInput
    question: Message | None = None
    context: Context | None = None
    stored: bool = False
    turn: str | None = None
    claim: tuple[SessionKey, str | None] | None = None


def _messages(given: ChainInput) -> list[Message]:
    return [*given.earlier, *([given.question] if given.question else []), *given.after]


def _count_stored(memory: InfiniteMemory, said: Sequence[Message]) -> int:
    """Return how many leading messages are the session's newest ones: a client may send its history again."""
    stored = [recognized_fields(message) for message in memory.newest(len(said))] if len(said) > 1 else []
    sent = [recognized_fields(message) for message in said]
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
