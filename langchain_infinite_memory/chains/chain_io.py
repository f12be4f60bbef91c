"""The input and the output of a chain as messages; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
)
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import AddableDict
from pydantic_core import to_json

from langchain_infinite_memory.messages import GROUNDING, from_message, grounding_of, system_first, to_message
from shared_core.arguments import name_value
from shared_core.messages import Message

MESSAGES = "messages"
"""The key under which an agent takes and returns messages."""

ANSWERS = frozenset(("answer", "output", "response", "result", "text"))
"""The names that LangChain gives to an answer in a dict."""


@dataclass(frozen=True, slots=True)
class ChainKeys:
    """The keys of a chain's input and output, as `InfiniteMemoryRunnable` explains them."""

    input: str | None = None
    history: str | None = None
    output: str | None = None
    documents: str | None = None

    def __post_init__(self) -> None:
        for key, value in asdict(self).items():
            if value is not None:
                name_value(f"{key}_key", value)
        if self.input is None and (self.history or self.documents):
            raise ValueError("history_key and documents_key: the chain takes a dict; name the question with input_key=")


# The input


@dataclass(frozen=True, slots=True)
class ChainInput:
    """The input of a chain.

    Attributes:
        value: the input as it was given.
        key: the key of the question in it; None: the input is the question.
        history: the key under which the chain expects earlier messages.
        form: the form in which the question was given.
        system: the system messages, which are sent first, and not stored.
        said: the other messages, oldest first.
        at: the index of the question among them, the newest user message; -1 if there is none.
    """

    value: Any
    key: str | None
    history: str | None
    form: Literal["text", "message", "list"]
    system: tuple[BaseMessage, ...]
    said: tuple[Message, ...]
    at: int

    @property
    def question(self) -> Message | None:
        """The question; None if there is none, or if part of its answer follows it, such as results of tools."""
        return self.said[-1] if self.said and self.at == len(self.said) - 1 else None

    @property
    def is_history(self) -> bool:
        """Whether it may hold what is stored: a client may send its history again."""
        return len(self.said) > 1 or (bool(self.said) and self.question is None)

    @property
    def query(self) -> str:
        """What recall searches for."""
        return self.said[self.at].content if self.at >= 0 else ""

    def with_prompt(self, prompt: Sequence[Message]) -> tuple[Any, list[BaseMessage]]:
        """Return the input for the chain with a prompt in it, and all messages in it."""
        prompt = system_first(prompt)
        sent = [*self.system, *map(from_message, prompt)]
        if self.key is None:
            return sent, sent
        if self.history is None:
            return {**self.value, self.key: sent}, sent
        asked = max((index for index, message in enumerate(prompt) if message.role == "user"), default=None)
        if self.at < 0 or asked is None:  # the input ends the prompt, and stays under its key
            return {**self.value, self.history: sent[: len(sent) - len(self.said)]}, sent
        asked += len(self.system)
        return {**self.value, self.history: sent[:asked], self.key: self._as_given(sent[asked:])}, sent

    def _as_given(self, messages: list[BaseMessage]) -> Any:
        if self.form == "text":
            return messages[0].content
        return messages[0] if self.form == "message" and len(messages) == 1 else messages

    def without_memory(self) -> list[Message]:
        """Return the prompt if the memory fails: the input, with grounding written into the question."""
        return [
            message.grounded if index == self.at else message.replace(grounding=None)
            for index, message in enumerate(self.said)
        ]


def read_input(value: Any, keys: ChainKeys) -> ChainInput:
    """Read the input of a chain.

    Args:
        value: a str, a message, a list of messages (or what LangChain accepts as one), a prompt, or a dict with one of
            these under `keys.input`, or under "messages".
        keys: the keys of its entries.

    Raises:
        TypeError: it is something else.
        KeyError: the dict has no such key.
    """
    key = _input_key(value, keys.input)
    messages, form = _messages(value if key is None else value[key])
    system = tuple(message for message in messages if isinstance(message, SystemMessage))
    others = [message for message in messages if not isinstance(message, SystemMessage)]
    said = list(map(to_message, others))
    at = max((index for index, message in enumerate(said) if message.role == "user"), default=-1)
    if at >= 0 and keys.documents is not None:
        said[at] = to_message(_grounded(others[at], value.get(keys.documents), keys.documents))
    return ChainInput(value, key, keys.history, form, system, tuple(said), at)


def _input_key(value: Any, key: str | None) -> str | None:
    if not isinstance(value, Mapping):
        if key is None:
            return None
        raise TypeError(f"input_key={key!r}: expected a dict, not {type(value).__name__}")
    if key is None and MESSAGES not in value:
        raise TypeError(f"the input is a dict: name the question in it with input_key=, one of {sorted(value)}")
    if key is not None and key not in value:
        raise KeyError(f"input_key={key!r}: the input has only {sorted(map(str, value))}")
    return MESSAGES if key is None else key


def _messages(value: Any) -> tuple[list[BaseMessage], Literal["text", "message", "list"]]:
    if isinstance(value, str):
        return [HumanMessage(value)], "text"
    if isinstance(value, BaseMessage):
        return [value], "message"
    if isinstance(value, PromptValue):
        return value.to_messages(), "list"
    if isinstance(value, Sequence):
        return convert_to_messages(value), "list"
    raise TypeError(f"expected a str, a message or a list of messages, not {value!r:.80}")


def _grounded(question: BaseMessage, documents: Any, key: str) -> BaseMessage:
    if not documents:
        return question
    given = [documents] if isinstance(documents, Document) else documents
    given = list(given) if isinstance(given, tuple) else given
    if grounding_of(given) is None:
        raise TypeError(f"documents_key={key!r}: expected a list of Documents or texts, not {documents!r:.80}")
    return question.model_copy(update={"additional_kwargs": {**question.additional_kwargs, GROUNDING: given}})


# The output


def read_output(value: Any, key: str | None, sent: Sequence[BaseMessage]) -> list[Message]:
    """Return the messages of a chain's answer, without system messages, and without those of its input.

    Args:
        value: a str, a message, a list of messages, or a dict with one of these under `key`, under "messages", or as
            its only entry, if its name is one of `ANSWERS`. None is no answer. Anything else is JSON text.
        key: the key of the answer in a dict.
        sent: the messages in the chain's input.

    Raises:
        TypeError, ValueError: JSON cannot express it, or a message cannot be stored.
    """
    answer = _answer(value, key)
    if _are_messages(answer):
        replies = _new(list(answer), sent)
    elif isinstance(answer, BaseMessage):
        replies = [answer]
    elif answer is None or (isinstance(answer, list) and not answer):
        replies = []
    elif isinstance(answer, Iterator):  # reading it would take it from the caller
        raise TypeError(f"{type(answer).__name__} is not JSON")
    else:
        replies = [AIMessage(answer if isinstance(answer, str) else to_json(answer).decode())]
    return [to_message(message) for message in replies if not isinstance(message, SystemMessage | RemoveMessage)]


def _answer(value: Any, key: str | None) -> Any:
    """Return the entry of a dict that is the answer; the value itself if it is no dict, or has no such entry."""
    if not isinstance(value, Mapping):
        return value
    if key is not None and key in value:
        return value[key]
    if _are_messages(value.get(MESSAGES)):
        return value[MESSAGES]
    only = next(iter(value.values())) if len(value) == 1 and ANSWERS.intersection(value) else None
    return only if isinstance(only, str | BaseMessage) or _are_messages(only) else value


def _are_messages(value: Any) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(message, BaseMessage) for message in value)


def _new(answer: list[BaseMessage], sent: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Drop the messages of the input, which an agent returns with its answer, and to which it may have given ids."""
    if len(answer) >= len(sent) and all(map(_same, answer, sent)):
        return answer[len(sent) :]
    known = {message.id: message for message in sent if message.id}
    return [message for message in answer if message.id not in known or not _same(message, known[message.id])]


def _same(one: BaseMessage, other: BaseMessage) -> bool:
    return one.type == other.type and one.content == other.content


def stream_output(chunks: Sequence[Any], outcome: Any, *, whole: bool) -> Any:
    """Return the output that a stream makes up, for `read_output`; None if there is none.

    Args:
        chunks: what was streamed. Texts, message chunks and LangChain's dicts of these are added up. Of anything else,
            the newest counts if the stream ended, because a JSON parser's chunks repeat and go on.
        outcome: what the chain reports as its output: of a graph its final state, in whatever modes it streams.
        whole: whether the stream ended.
    """
    if whole and outcome is not None:
        return outcome
    if chunks and all(isinstance(chunk, str | AIMessageChunk | AddableDict) for chunk in chunks):
        return reduce(add, chunks)
    return chunks[-1] if whole and chunks else None
