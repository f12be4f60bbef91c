"""Conversations written down as steps, and how to replay them to a memory and ask about them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal

from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.base import TokenCounter
from shared_core.prompt.template import RecallTemplate
from shared_core.store import Store
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.tokens import ConservativeCounter, TiktokenCounter, as_counter

START = datetime(2024, 2, 28, 9, tzinfo=UTC)


def characters(text: str) -> int:
    """Count characters: no other counter sees every one of them."""
    return len(text)


def words(text: str) -> int:
    """Count words, as a caller's function may."""
    return len(text.split())


COUNTERS: dict[str, Callable[[], Callable[[str], int]]] = {
    "characters": lambda: characters,
    "words": lambda: words,
    "quarters": lambda: as_counter("characters/4"),
    "conservative": ConservativeCounter,
    "tiktoken": TiktokenCounter,
}

Answer = tuple[Message, ...]
"""Words, or tool calls with their results; the ids of the calls are its own."""


@dataclass(frozen=True)
class Say:
    """A message, and what answers it."""

    message: Message
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class Late:
    """Something that answers an older turn, `turn` user messages ago: a result it waits for, or words."""

    turn: int
    text: str


@dataclass(frozen=True)
class Pause:
    """Time goes by: a new sitting."""


@dataclass(frozen=True)
class Fork:
    """A new branch, at the message `place` steps from the end of all (None: here)."""

    place: int | None


@dataclass(frozen=True)
class Go:
    """A step to another branch, or to a message."""

    branch: bool
    place: int


Step = Say | Late | Pause | Fork | Go


@dataclass(frozen=True)
class Budget:
    """How many tokens there are, about: what stays needs no more, or what must be sent; that and a share of the rest of
    the current turn; or all of the turn, and a share of the past.
    """

    base: Literal["stays", "must", "turn", "past"]
    percent: int
    more: int


@dataclass(frozen=True)
class Ask:
    """One call of `context`: a question, or the newest user message (`"stored"`) or its text (`"repeated"`)."""

    question: Message | Literal["stored", "repeated"]
    shown: bool = True
    tools: tuple[dict[str, Any] | str, ...] = ()
    reserve: int = 0


@dataclass(frozen=True)
class Scenario:
    """A conversation, the arguments of the memory that is asked, its budget, and a question."""

    steps: tuple[Step, ...]
    counter: str
    arguments: dict[str, Any]
    budget: Budget
    ask: Ask
    reuse_call_ids: bool = False
    overhead: int = 0
    template: RecallTemplate = RecallTemplate(excerpt_tokens=None)  # noqa: RUF009 - frozen

    @property
    def token_counter(self) -> TokenCounter:
        """A new counter, with the framing of this scenario."""
        counter = as_counter(COUNTERS[self.counter]())
        counter.overhead = self.overhead
        return counter


def new_memory(scenario: Scenario, store: Store, **changes: Any) -> InfiniteMemory:
    """Return a memory with the scenario's arguments and objects of its own."""
    fresh: dict[str, Any] = {"token_counter": scenario.token_counter, "embedder": HashingEmbedder()}
    usual = {"reserve_tokens": 0, "recall_template": scenario.template}
    return InfiniteMemory(store, **fresh | usual | scenario.arguments | changes)


@dataclass
class Talk:
    """Says the steps of a scenario to a memory, with ids and times that depend on nothing else."""

    memory: InfiniteMemory
    reuse_call_ids: bool = False
    prefix: str = "message"
    _ids: Iterator[int] = field(default_factory=lambda: count(1))
    _calls: Iterator[int] = field(default_factory=lambda: count(1))
    _said: list[str] = field(default_factory=list)
    _time: datetime = START

    def play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.take(step)

    def take(self, step: Step) -> None:
        match step:
            case Say():
                self._calls = count(1) if self.reuse_call_ids else self._calls
                self.add([step.message, *self.messages(step.answers)])
            case Late():
                self._late(step)
            case Pause():
                self._time += timedelta(hours=7)
            case Fork():
                at = None if step.place is None else self._pick(step.place)
                self.memory.fork(f"fork {len(self.memory.branches())}", at)
            case Go():
                names = [branch.name for branch in self.memory.branches()]
                place = names[step.place % len(names)] if step.branch and names else self._pick(step.place)
                if place is not None:
                    self.memory.checkout(place)

    def add(self, messages: Sequence[Message], turn: str | None = None) -> list[Message]:
        """Store messages with ids and times of their own."""
        dated: list[Message] = []
        for message in messages:
            self._time += timedelta(minutes=1)
            dated.append(message.replace(id=f"{self.prefix} {next(self._ids):03}", created_at=self._time))
        stored = self.memory.add(dated, turn=turn)
        self._said += [message.id or "" for message in stored]
        return stored

    def messages(self, answers: Sequence[Answer]) -> list[Message]:
        """Return answers as messages, each with ids of calls that no other one has."""
        said: list[Message] = []
        for answer in answers:
            ids = {call.id: f"call {next(self._calls)}" for message in answer for call in message.tool_calls}
            for one in answer:
                calls = tuple(call.model_copy(update={"id": ids[call.id]}) for call in one.tool_calls)
                answered = ids.get(one.tool_call_id or "", one.tool_call_id)
                said.append(one.replace(tool_calls=calls, tool_call_id=answered))
        return said

    def _late(self, step: Late) -> None:
        told = list(self.memory.messages())
        users = [message.id for message in told if message.role == "user"]
        if not users:
            return
        turn = users[-1 - step.turn % len(users)]
        members = [message for message in told if message.turn_id == turn]
        done = {message.tool_call_id for message in members}
        waiting = [call.id for message in members for call in message.tool_calls if call.id not in done]
        self.add([Message.tool(step.text, waiting[0]) if waiting else Message.assistant(step.text)], turn=turn)

    def _pick(self, place: int) -> str | None:
        return self._said[-1 - place % len(self._said)] if self._said else None
