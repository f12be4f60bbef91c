"""What the model is shown: a prompt whose messages look as other middleware left them in the request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, SystemMessage

from langchain_infinite_memory.messages import engine_calls, from_message, read_message, system_first
from shared_core.messages import Message
from shared_core.prompt.fixed_part import is_stub


@dataclass(frozen=True, slots=True)
class Shown:
    """The messages to send.

    Attributes:
        messages: the messages, in order.
        changed: those that the request has in another form, as stored and as sent.
    """

    messages: list[BaseMessage]
    changed: list[tuple[BaseMessage, BaseMessage]]


@dataclass(frozen=True, slots=True)
class RequestView:
    """The messages of a request beside those that are stored.

    Attributes:
        system: the system messages that the request begins with.
        versions: what a message is recognized by -> its index in the request, and what it looks like there.
        extra: the messages that only the request has, with their indexes.
    """

    system: tuple[BaseMessage, ...]
    versions: Mapping[str | int, tuple[int, BaseMessage]]
    extra: tuple[tuple[int, BaseMessage], ...]

    @property
    def unstored(self) -> list[BaseMessage]:
        """The messages that are sent besides the prompt."""
        return [*self.system, *(message for _, message in self.extra)]

    def reworded(self, given: Mapping[str, BaseMessage]) -> set[str]:
        """Return the ids of the stored messages whose text is another one in the request."""
        pairs = ((id_, own, self.versions.get(_key(own), (0, own))[1]) for id_, own in given.items())
        return {id_ for id_, own, version in pairs if version is not own and version.content != own.content}

    def show(self, prompt: Sequence[Message], given: Mapping[str, BaseMessage], *, plain: bool = False) -> Shown:
        """Return a prompt as LangChain's messages, with all system messages at its beginning.

        Args:
            prompt: the messages of the engine.
            given: the messages that were stored, by the ids under which they are.
            plain: whether human messages are sent without the text that the engine put before them.
        """
        placed: list[tuple[int | None, BaseMessage]] = []
        changed: list[tuple[BaseMessage, BaseMessage]] = []
        for message in system_first(prompt):
            own = given.get(message.id or "")
            index, version = self.versions.get(_key(own), (None, own)) if own is not None else (None, None)
            if own is not None and version is not None and version is not own and version != own:
                changed.append((own, version))
            plainly = plain and version is not None and message.role == "user"
            placed.append((index, version if plainly and version is not None else _sent(message, own, version)))
        for index, added in self.extra:
            placed.insert(_position(placed, index), (index, added))
        return Shown([*self.system, *(one for _, one in placed)], changed)


def request_view(stored: Sequence[BaseMessage], sent: Sequence[BaseMessage]) -> RequestView:
    """Compare the messages of a request with those that are stored.

    A message is recognized by its id; if no id is in both lists, by its index, if the request has as many messages of
    the same types.
    """
    system, rest = split_system(sent)
    known = {_key(message): message for message in stored}
    with_ids = {message.id for message in stored} & {message.id for message in rest} - {None}
    if not with_ids and [type(message) for message in rest] == [type(message) for message in stored]:
        pairs = [(_key(message), version) for message, version in zip(stored, rest, strict=True)]
        return RequestView(system, {key: (index, version) for index, (key, version) in enumerate(pairs)}, ())
    versions = {_key(message): (index, message) for index, message in enumerate(rest) if _key(message) in known}
    extra = tuple((index, message) for index, message in enumerate(rest) if _key(message) not in known)
    return RequestView(system, versions, extra)


def split_system(messages: Sequence[BaseMessage]) -> tuple[tuple[BaseMessage, ...], list[BaseMessage]]:
    """Return the system messages that a list begins with, and the rest."""
    count = next((n for n, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return tuple(messages[:count]), list(messages[count:])


def _key(message: BaseMessage) -> str | int:
    return message.id or id(message)


def _position(placed: Sequence[tuple[int | None, BaseMessage]], index: int) -> int:
    """Return where to insert a message of the request: after those that stand before it there, else before the next."""
    known = [(at, place) for at, (place, _) in enumerate(placed) if place is not None]
    before = [at for at, place in known if place < index]
    after = [at for at, place in known if place > index]
    return before[-1] + 1 if before else after[0] if after else len(placed)


def _sent(message: Message, own: BaseMessage | None, version: BaseMessage | None) -> BaseMessage:
    """Return a message of the prompt: as the request has it, unless the engine changed its text."""
    if own is None or version is None:
        return from_message(message)
    if message.content == own.content and not message.tool_calls and not engine_calls(own):
        return version  # as most are; reading each message would take most of the time
    as_put = read_message(own)[0]
    stored = as_put.content
    if message.content == stored:
        if message.tool_calls == as_put.tool_calls:
            return version
        message = message.replace(content=read_message(version)[0].content)  # without calls that have no result
    if is_stub(message):
        return own.model_copy(update={"content": message.content})
    if message.role == "user" and message.content.endswith(stored) and version is not own:
        said = read_message(version)[0]
        before = message.content[: len(message.content) - len(stored)]
        message = message.replace(content=before + said.content, payload=said.payload)
    return from_message(message).model_copy(update={"id": own.id})
