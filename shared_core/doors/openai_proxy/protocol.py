"""What the server needs of a request and of its answer, in whichever of OpenAI's protocols they are."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shared_core.doors.openai_proxy.refusal import Refused
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


@dataclass(frozen=True, slots=True)
class ApiRequest(ABC):
    """A request for an answer.

    Attributes:
        path: the path of the protocol, after the base address.
        body: the fields, as the client sent them.
        messages: the messages among them.
        sent: for each message, the entries of the request that it is made from.
    """

    path: ClassVar[str]
    body: Mapping[str, Any]
    messages: tuple[Message, ...]
    sent: tuple[tuple[Any, ...], ...]

    @property
    def streamed(self) -> bool:
        """Whether the answer is to come in pieces."""
        return bool(self.body.get("stream"))

    @property
    def previous(self) -> str | None:
        """The id of the response that the request goes on after; None: it names none."""
        return None

    @property
    def references(self) -> Sequence[str]:
        """The ids of items of earlier responses that the request refers to."""
        return ()

    def with_stored(self, stored: Mapping[str, Sequence[Record]]) -> "ApiRequest":
        """Return the request with what is stored in place of references to it, by their ids."""
        return self

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
