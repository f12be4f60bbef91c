"""What the server needs of a request and of its answer, in whichever of OpenAI's protocols they are."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.seen_histories import Seen
from shared_core.messages import Message
from shared_core.prompt.context import Context
from shared_core.records import Record


class AnswerStream(ABC):
    """Puts an answer together from the events of a stream.

    Attributes:
        goes_on: whether events may follow the one that ends the answer; they are passed on.
        ended: whether an event said that the answer ends.
        complete: whether the answer is whole.
        failed: whether an event was an error.
    """

    goes_on: ClassVar[bool]
    ended: bool
    complete: bool
    failed: bool

    @abstractmethod
    def take(self, data: str | None) -> bool:
        """Take the data of an event; return whether it is the last one, which waits until the answer is stored."""

    @abstractmethod
    def whole(self) -> Sequence[Message]:
        """Return an answer that ended, as messages; none: it says nothing. ValueError: it is none."""

    @abstractmethod
    def part(self, why: str) -> Message | None:
        """Return what came of an answer that broke off, marked with the reason; None: nothing did."""

    @abstractmethod
    def closing(self, last: bytes, report: Mapping[str, Any] | None) -> bytes:
        """Return the events that end the stream, with the report if there is one.

        Args:
            last: the last event, as it came; empty: none did.
            report: the report on the prompt.
        """

    @abstractmethod
    def error(self, refused: Refused) -> bytes:
        """Return the event that tells the client of an error."""


Stored = Mapping[str, Sequence[Record]]
"""The stored messages that items of earlier responses are part of, by the ids of the items."""


@dataclass(frozen=True, slots=True)
class ApiRequest(ABC):
    """A request for an answer. What was said before `known` is read only where it is needed.

    Attributes:
        path: the path of the protocol, after the base address.
        body: the fields, as the client sent them.
        given: the entries of the conversation among them.
        parts: those that are said, and those of the system prompt.
        digest: of all that was said; None: no answer is among it.
        known: what the history begins with, if that was seen before.
        messages: the messages of the other entries; with `known`, those of the system prompt first.
        sent: for each of these messages, the entries that it is made from.
    """

    path: ClassVar[str]
    body: Mapping[str, Any]
    given: Sequence[Any]
    parts: tuple[list[Any], list[Any]]
    digest: int | None = None
    known: Seen | None = None
    messages: tuple[Message, ...] = ()
    sent: tuple[tuple[Any, ...], ...] = ()

    @property
    def said(self) -> list[Any]:
        """The entries that are no part of the system prompt."""
        return self.parts[0]

    def unread(self) -> list[Any]:
        """Return the entries that are to be read: all, or after what is known; those of the system prompt first."""
        if self.known is None:
            return [*self.given]
        return [*self.parts[1], *self.said[self.known.ends[-1] :]]

    @abstractmethod
    def read(self, stored: Stored = MappingProxyType({})) -> Self:
        """Return the request with its messages; Refused with 400 if an entry has another form."""

    @staticmethod
    @abstractmethod
    def answers(entry: Any) -> bool:
        """Return whether an entry is of an answer."""

    @property
    def opening(self) -> Message | None:
        """The first message that was said, if an answer follows; None: none does."""
        said = [message for message in self.messages if message.role != "system"]
        if self.known is not None:
            return self.at(0)[0]()
        return said[0] if any(message.role == "assistant" for message in said) else None

    def at(self, index: int) -> tuple[Callable[[], Message | None], Sequence[Any]]:
        """Return what reads a message, and its entries; first come those that are known. None: a mere reference."""
        known = self.known.ends if self.known is not None else ()
        if index >= len(known):
            message = self.messages[index - len(known)]
            return lambda: message, self.sent[index - len(known)]
        raw = self.said[known[index - 1] if index else 0 : known[index]]
        return lambda: self.one(raw), raw

    @abstractmethod
    def one(self, entries: Sequence[Any]) -> Message | None:
        """Return the message of some entries; None: they only refer to it."""

    @property
    def streamed(self) -> bool:
        """Whether the answer is to come in pieces."""
        return bool(self.body.get("stream"))

    @property
    def previous(self) -> str | None:
        """The id of the response that the request goes on after; None: it names none."""
        return None

    @staticmethod
    def references(entries: Sequence[Any]) -> list[str]:
        """Return the ids of items of earlier responses that some entries refer to."""
        return []

    @property
    def goes_on_upstream(self) -> bool:
        """Whether the request, sent as it is, goes on after something that the model's server has stored."""
        return False

    @property
    def beside(self) -> Message | None:
        """What goes to the model beside the messages of the prompt and takes part of the window; None: nothing."""
        return None

    @property
    @abstractmethod
    def reply_tokens(self) -> int | None:
        """The tokens that the reply may take; None: the client does not say."""

    @abstractmethod
    def entries(self, context: Context) -> list[list[Any]]:
        """Return the entries of a request that each message of a prompt becomes."""

    @abstractmethod
    def written(self, entries: Sequence[Any]) -> bytes:
        """Return the body with these entries instead, and everything else as the client sent it."""

    @abstractmethod
    def answer(self, body: Mapping[str, Any]) -> Sequence[Message]:
        """Return the answer in the body of a response, as messages; none: it says nothing. ValueError: it is none."""

    def refusal(self, status: int, body: bytes) -> Refused | None:
        """Return what a client is told instead of an error of the model's server; None: the error itself."""
        return None

    @abstractmethod
    def answer_stream(self) -> AnswerStream:
        """Return what puts a streamed answer together."""
