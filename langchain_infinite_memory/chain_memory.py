"""One question to a chain and its answer: what is read from the memory before, and what is stored after."""

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_infinite_memory.chain_io import Given, Keys, incomplete, join_chunks, read_input, read_output
from langchain_infinite_memory.sessions import Sessions, Whose
from shared_core.aio import AsyncInfiniteMemory
from shared_core.engine import InfiniteMemory
from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.messages import Message, content_of
from shared_core.prompt.context import Context, ContextReport

__all__ = ["Exchange", "Exchanges", "MemoryFailedWarning", "OnError", "Why"]

OnError = Literal["window", "raise"]
Why = Literal["stopped", "failed"] | None


class MemoryFailedWarning(UserWarning):
    """The store could not be read or written; the chain went on without it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question that is being answered.

    Attributes:
        whose: session and user.
        given: the chain's input, read.
        input: the chain's input with the prompt in it.
        sent: the messages of the prompt.
        stored: whether what was given is stored.
        turn: where the answer belongs; None: to the newest.
    """

    whose: Whose
    given: Given
    input: Any
    sent: Sequence[BaseMessage]
    stored: bool
    turn: str | None


class Exchanges:
    """The exchanges of one chain, in any number of sessions at a time.

    Args:
        sessions: the memories.
        keys: where in input and output things are.
        tools: schemas of tools to charge.
        on_error: what to do when the store fails.
        on_report: called with the report on each prompt.
    """

    def __init__(
        self, sessions: Sessions, keys: Keys, *, tools: Sequence[Any], on_error: OnError,
        on_report: Callable[[ContextReport], None] | None,
    ) -> None:  # fmt: skip
        self._sessions = sessions
        self._keys = keys
        self._tools = [convert_to_openai_tool(tool) for tool in tools]
        self._on_error = on_error
        self._on_report = on_report
        self._lock = threading.Lock()
        self._open: list[tuple[Whose, str | None]] = []

    # Before

    @contextmanager
    def asked(self, value: Any, whose: Whose) -> Iterator[Exchange]:
        """Build the prompt, store the question and give the exchange, which is over at the end."""
        given = read_input(value, self._keys)
        begun = _Begun(whose, given)
        try:
            try:
                with self._sessions.use(*whose) as memory:
                    self._store_before(memory, begun)
                    try:
                        begun.context = memory.context(begun.question, tools=self._charged(given))
                    finally:
                        self._store_question(memory, begun)
            except StoreError as error:
                self._failed(error)
            yield self._exchange(begun)
        finally:
            self._release(begun)

    @asynccontextmanager
    async def aasked(self, value: Any, whose: Whose) -> AsyncIterator[Exchange]:
        """Do the same without blocking the event loop."""
        given = read_input(value, self._keys)
        begun = _Begun(whose, given)
        try:
            try:
                async with self._sessions.ause(*whose) as memory:
                    await asyncio.to_thread(self._store_before, memory, begun)
                    tools = self._charged(given)
                    try:
                        begun.context = await AsyncInfiniteMemory(memory).context(begun.question, tools=tools)
                    finally:
                        await asyncio.to_thread(self._store_question, memory, begun)
            except StoreError as error:
                self._failed(error)
            yield self._exchange(begun)
        finally:
            self._release(begun)

    def _charged(self, given: Given) -> list[Any]:
        """Return what is charged beside the messages: schemas of tools, and system messages that are not stored."""
        return [*self._tools, *(message.text for message in given.system)]

    def _store_before(self, memory: InfiniteMemory, begun: "_Begun") -> None:
        """Store what was said before the question; and it, too, if it is answered in part already."""
        given = begun.given
        begun.question = None if given.after else given.question
        said = _given(given)
        new = said[_known(memory, said) :]
        if begun.question is None:
            stored = memory.add(new) if new else memory.newest(1)
            begun.stored, begun.turn = True, stored[-1].turn_id if stored else None
        elif earlier := new[:-1]:
            memory.add(earlier)

    def _store_question(self, memory: InfiniteMemory, begun: "_Begun") -> None:
        """Store the question, unless it is the newest message and nobody is about to answer it."""
        if begun.question is None:
            return
        newest = memory.newest(1) if begun.question.id is None else []
        if newest and content_of(newest[0]) == content_of(begun.question):
            begun.stored = self._claim(begun, newest[0], alone=True)
        if not begun.stored:
            begun.stored = True
            stored = memory.add(begun.question)
            # One that has been forgotten is not stored again, and its answer finds no turn.
            self._claim(begun, stored[0] if stored else begun.question.replace(turn_id=begun.question.id), alone=False)

    def _claim(self, begun: "_Begun", question: Message, *, alone: bool) -> bool:
        """Note that a question is being answered; False if that is so already, and must not be."""
        with self._lock:
            if alone and (begun.whose, question.turn_id) in self._open:
                return False
            begun.turn = question.turn_id
            begun.claim = (begun.whose, question.turn_id)
            self._open.append(begun.claim)
            return True

    def _release(self, begun: "_Begun") -> None:
        with self._lock:
            if begun.claim is not None:
                self._open.remove(begun.claim)

    def _exchange(self, begun: "_Begun") -> Exchange:
        if begun.context is not None and self._on_report is not None:
            self._on_report(begun.context.report)
        prompt = begun.given.plain() if begun.context is None else begun.context.messages
        value, sent = begun.given.input(prompt)
        return Exchange(begun.whose, begun.given, value, sent, begun.stored, begun.turn)

    def _failed(self, error: StoreError | UnknownReferenceError) -> None:
        if self._on_error == "raise":
            raise error
        warnings.warn(f"the memory failed and the chain goes on without it: {error}", MemoryFailedWarning, stacklevel=3)

    # After

    def answered(self, exchange: Exchange, output: Any) -> None:
        """Store the answer.

        Raises:
            TypeError: the output is nothing that can be stored.
        """
        self._store(exchange, read_output(output, self._keys, exchange.sent))

    async def aanswered(self, exchange: Exchange, output: Any) -> None:
        """Do the same without blocking the event loop."""
        await asyncio.to_thread(self.answered, exchange, output)

    def received(self, exchange: Exchange, chunks: Sequence[Any], why: Why) -> None:
        """Store what came of a stream; `why` says why it is not the whole answer, None if it is.

        Raises:
            TypeError: it is the whole answer, and nothing that can be stored.
        """
        if not chunks:
            return
        try:
            replies = read_output(join_chunks(chunks), self._keys, exchange.sent)
        except TypeError:
            if why is None:
                raise
            return  # of part of an output nothing can be made
        if why is not None:
            replies = [message for message in replies if message.content or message.tool_calls]
            replies[-1:] = [incomplete(message, why) for message in replies[-1:]]
        self._store(exchange, replies)

    async def areceived(self, exchange: Exchange, chunks: Sequence[Any], why: Why) -> None:
        """Do the same without blocking the event loop."""
        await asyncio.to_thread(self.received, exchange, chunks, why)

    def _store(self, exchange: Exchange, replies: Sequence[Message]) -> None:
        try:
            with self._sessions.use(*exchange.whose) as memory:
                if not exchange.stored:
                    memory.add([*_given(exchange.given), *replies])
                    return
                own = list(takewhile(lambda message: message.role != "user", replies))
                _add(memory, own, exchange.turn)
                _add(memory, replies[len(own) :], None)  # who asks in an answer opens a turn
        except (StoreError, UnknownReferenceError) as error:  # the question may have been forgotten meanwhile
            self._failed(error)


@dataclass(slots=True)
class _Begun:
    """An exchange while its prompt is being made; the attributes are those of `Exchange`.

    Attributes:
        question: what the prompt is for; None: the newest user message of the session.
        context: the prompt; None: the memory failed.
        claim: the question, by session and turn, while it is being answered.
    """

    whose: Whose
    given: Given
    question: Message | None = None
    context: Context | None = None
    stored: bool = False
    turn: str | None = None
    claim: tuple[Whose, str | None] | None = None


def _given(given: Given) -> list[Message]:
    return [*given.earlier, *([given.question] if given.question else []), *given.after]


def _known(memory: InfiniteMemory, said: Sequence[Message]) -> int:
    """Return how many messages at the beginning the session ends with: a client may send its history again."""
    stored = [_says(message) for message in memory.newest(len(said))] if len(said) > 1 else []
    sent = [_says(message) for message in said]
    return next((count for count in range(len(stored), 0, -1) if stored[-count:] == sent[:count]), 0)


def _says(message: Message) -> Mapping[str, Any]:
    return message.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})


def _add(memory: InfiniteMemory, messages: Sequence[Message], turn: str | None) -> None:
    """Store replies. An answer matters more than its id: models may count from 1 each time, and caches repeat ids."""
    if not messages:
        return
    try:
        stored = memory.add(messages, turn=turn)
    except DuplicateError:
        memory.add([message.replace(id=None) for message in messages], turn=turn)
    else:
        if turn is not None and len(stored) == 1 and stored[0].turn_id != turn:  # it answered another question, too
            memory.add(messages[0].replace(id=None), turn=turn)
