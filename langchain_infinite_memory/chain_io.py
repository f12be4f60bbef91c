"""The input and the output of a chain as messages; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langchain_core.prompt_values import PromptValue
from pydantic import BaseModel

from langchain_infinite_memory.additional_kwargs import GROUNDING, grounding_of
from langchain_infinite_memory.messages import from_message, system_first, to_message
from shared_core.messages import Message
from shared_core.prompt.frame import with_grounding

INCOMPLETE = "incomplete"
"""The key of `additional_kwargs` that says why an answer is incomplete: `"stopped"` or `"failed"`."""


@dataclass(frozen=True, slots=True)
class ChainKeys:
    """The keys of a chain's input and output; None: it is not a dict, or has no such entry.

    Attributes:
        input: the question, or the messages, in the input.
        history: the earlier messages that the chain expects in its input.
        output: the answer in the output.
        documents: what was retrieved for the question, in the input.
    """

    input: str | None = None
    history: str | None = None
    output: str | None = None
    documents: str | None = None

    def __post_init__(self) -> None:
        if self.input is None and (self.history or self.documents):
            raise ValueError("history_key and documents_key: the chain takes a dict; name the question with input_key=")


@dataclass(frozen=True, slots=True)
class ChainInput:
    """The input of a chain.

    Attributes:
        value: the input as it was given.
        keys: the keys of its entries.
        form: the form in which the question was given.
        system: the system messages, which are sent first, and not stored.
        earlier: the messages before the question.
        question: the newest user message; None if there is none.
        after: the messages after it, such as results of tools.
    """

    value: Any
    keys: ChainKeys
    form: Literal["text", "message", "list"]
    system: tuple[BaseMessage, ...]
    earlier: tuple[Message, ...]
    question: Message | None
    after: tuple[Message, ...]

    def with_prompt(self, prompt: Sequence[Message]) -> tuple[Any, list[BaseMessage]]:
        """Return the input for the chain with a prompt in it, and all messages in it."""
        prompt = system_first(prompt)
        sent = [*self.system, *map(from_message, prompt)]
        if self.keys.input is None:
            return sent, sent
        if self.keys.history is None:
            return {**self.value, self.keys.input: sent}, sent
        asked = max((index for index, message in enumerate(prompt) if message.role == "user"), default=None)
        if self.question is None or asked is None:  # the input ends the prompt, and stays under its key
            return {**self.value, self.keys.history: sent[: len(sent) - len(self.after)]}, sent
        asked += len(self.system)
        question = self._as_given(sent[asked:])
        return {**self.value, self.keys.history: sent[:asked], self.keys.input: question}, sent

    def _as_given(self, messages: list[BaseMessage]) -> Any:
        if self.form == "text":
            return messages[0].content
        return messages[0] if self.form == "message" and len(messages) == 1 else messages

    def without_memory(self) -> list[Message]:
        """Return the prompt if the memory fails: the input, with grounding written into the question."""
        question = self.question
        asked = [question.grounded] if question else []
        return [with_grounding(message, "") for message in self.earlier] + asked + list(self.after)


def read_input(value: Any, keys: ChainKeys) -> ChainInput:
    """Read the input of a chain.

    Args:
        value: a str, a message, a list of messages (or what LangChain accepts as one), a prompt, or a dict with one of
            these under `keys.input`.
        keys: the keys of its entries.

    Raises:
        TypeError: it is something else.
        KeyError: the dict has no such key.
    """
    asked = value
    if keys.input is not None:
        if not isinstance(value, Mapping):
            raise TypeError(f"input_key={keys.input!r}: expected a dict, not {type(value).__name__}")
        if keys.input not in value:
            raise KeyError(f"input_key={keys.input!r}: the input has only {sorted(map(str, value))}")
        asked = value[keys.input]
    elif isinstance(value, Mapping):
        raise TypeError(f"the input is a dict: name the question in it with input_key=, one of {sorted(value)}")
    messages, form = _messages(asked)
    system = tuple(message for message in messages if isinstance(message, SystemMessage))
    others = [message for message in messages if not isinstance(message, SystemMessage)]
    roles = [to_message(message).role for message in others]
    at = max((index for index, role in enumerate(roles) if role == "user"), default=-1)
    if at >= 0 and keys.documents is not None:
        others[at] = _grounded(others[at], value.get(keys.documents), keys.documents)
    said = [to_message(message) for message in others]
    question = said[at] if at >= 0 else None
    return ChainInput(value, keys, form, system, tuple(said[: max(at, 0)]), question, tuple(said[at + 1 :]))


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
    given = list(documents) if isinstance(documents, tuple) else documents
    given = [given] if isinstance(given, Document) else given
    if grounding_of(given) is None:
        raise TypeError(f"documents_key={key!r}: expected a list of Documents or texts, not {documents!r:.80}")
    return question.model_copy(update={"additional_kwargs": {**question.additional_kwargs, GROUNDING: given}})


def read_output(value: Any, keys: ChainKeys, sent: Sequence[BaseMessage]) -> list[Message]:
    """Return the messages of a chain's answer, without system messages, and without those of its input.

    Args:
        value: a str, a message, a list of messages, a pydantic object (stored as JSON text), or a dict with one of
            these under `keys.output`, or as its only entry.
        keys: the keys of its entries.
        sent: the messages in the chain's input.

    Raises:
        TypeError: it is something else.
    """
    answer = value
    if isinstance(value, Mapping):
        key = next(iter(value)) if keys.output is None and len(value) == 1 else keys.output
        if key not in value:
            raise TypeError(f"the output is a dict: name the answer in it with output_key=, one of {sorted(value)}")
        answer = value[key]
    replies = _replies(answer)
    new = replies if len(replies) == 1 else _new(replies, sent)
    return [to_message(message) for message in new if not isinstance(message, SystemMessage | RemoveMessage)]


def _replies(answer: Any) -> list[BaseMessage]:
    if isinstance(answer, str):
        return [AIMessage(answer)]
    if isinstance(answer, BaseMessage):
        return [_whole(answer)]
    if isinstance(answer, BaseModel):
        return [AIMessage(answer.model_dump_json())]
    if isinstance(answer, Sequence) and all(isinstance(message, BaseMessage) for message in answer):
        return [_whole(message) for message in answer]
    raise TypeError(f"cannot store {answer!r:.80} as an answer: expected a str, a message or a list of messages")


def _whole(message: BaseMessage) -> BaseMessage:
    return message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message


def _new(answer: list[BaseMessage], sent: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Drop the messages of the input: at the beginning, where the chain may have given them ids, and by their ids."""
    if len(answer) >= len(sent) and all(map(_same, answer, sent)):
        answer = answer[len(sent) :]
    known = {message.id: message for message in sent if message.id}
    return [message for message in answer if message.id not in known or not _same(message, known[message.id])]


def _same(one: BaseMessage, other: BaseMessage) -> bool:
    return one.type == other.type and one.content == other.content


def join_chunks(chunks: Sequence[Any]) -> Any:
    """Return the whole output that the chunks of a stream make up; None if there are none.

    Texts and message chunks are added up, other messages become a list, dicts are joined entry by entry, and of
    anything else only the newest counts.
    """
    if len(chunks) <= 1:
        return chunks[0] if chunks else None
    if all(isinstance(chunk, str) for chunk in chunks):
        return "".join(chunks)
    if all(isinstance(chunk, AIMessageChunk) for chunk in chunks):
        return reduce(add, chunks)
    if all(isinstance(chunk, Mapping) for chunk in chunks):
        names = dict.fromkeys(name for chunk in chunks for name in chunk)
        return {name: join_chunks([chunk[name] for chunk in chunks if name in chunk]) for name in names}
    if all(isinstance(chunk, BaseMessage | list) for chunk in chunks):
        return [message for chunk in chunks for message in (chunk if isinstance(chunk, list) else [chunk])]
    return chunks[-1]


def incomplete(message: Message, why: Literal["stopped", "failed"]) -> Message:
    """Return a message that is marked as incomplete."""
    marked = from_message(message)
    marked.additional_kwargs = {**marked.additional_kwargs, INCOMPLETE: why}
    return to_message(marked)
