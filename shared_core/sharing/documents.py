"""A branch as one document: Markdown for people to read, or a list of messages in OpenAI's format."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC

from shared_core.messages import Message

_TICKS = re.compile(r"`+")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$-])")


def markdown(title: str, messages: Iterable[Message]) -> Iterator[str]:
    """Yield a document in parts: for each message a heading with speaker and time (UTC), and its text in a fence.

    A fence is longer than any run of backticks in the text, so that no text can end it.
    """
    yield f"# {_plain(title)}\n"
    for message in (given.whole for given in messages):
        yield f"\n## {_heading(message)}\n"
        if message.content:
            yield _fenced("text", message.content)
        for call in message.tool_calls:
            yield f"\nCalls {_plain(call.name)}:\n"
            yield _fenced("json", call.arguments)
        if message.grounding is not None and message.grounding.text:
            yield "\nFound for it:\n"
            yield _fenced("text", message.grounding.text)


def _heading(message: Message) -> str:
    who = message.role if message.name is None else f"{message.role} ({_plain(message.name)})"
    if message.created_at is None:
        return who
    at = message.created_at.astimezone(UTC).isoformat(" ", "minutes")
    return f"{who}, {at.removesuffix('+00:00')}"


def _plain(text: str) -> str:
    """Return a text on one line, with the characters that Markdown interprets escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _fenced(kind: str, text: str) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return f"\n{fence}{kind}\n{lines}{'' if lines.endswith(chr(10)) else chr(10)}{fence}\n"


def openai_list(messages: Iterable[Message]) -> Iterator[str]:
    """Yield a JSON list in parts: for each message a line with its chat-completions form, without its grounding.

    Raises:
        ValueError: a message has no form there. The error names its id.
    """
    before = "[\n"
    for message in messages:
        try:
            line = json.dumps(message.whole.replace(grounding=None).to_openai(), ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise ValueError(f"message {message.id!r} has no form in a list of OpenAI's messages: {error}") from None
        yield f"{before}  {line}"
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"
