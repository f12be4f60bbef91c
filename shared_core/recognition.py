"""By what a message is recognized that a client sends again: its id, or a digest of all that is said up to it."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shared_core.messages import Message
from shared_core.records import Record
from shared_core.system_prompt import is_prompt


class Sent(NamedTuple):
    """A message of the history, and a digest of everything that is said up to it."""

    message: Message
    chain: str


def recognized_fields(message: Message) -> Mapping[str, Any]:
    """Return the fields by which a message that was sent again is recognized. Clients often lose the others."""
    return message.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})


def says_the_same(one: Message, other: Message) -> bool:
    """Return whether two messages are the same one, sent twice, if their ids do not tell."""
    return (one.role, one.content, one.tool_calls, one.tool_call_id) == (
        other.role, other.content, other.tool_calls, other.tool_call_id
    )  # fmt: skip


def chain_of(chain: str, message: Message) -> str:
    """Return the digest of what is said up to a message, given that of what is said before it."""
    # Stored ids are digests of the JSON of [chain, recognized_fields(message)] with sorted keys. Composing that JSON
    # here takes less than half the time of `json.dumps`, and all messages that a client sends again are digested again.
    calls = (
        json.dumps([call.model_dump() for call in message.tool_calls], sort_keys=True) if message.tool_calls else "[]"
    )
    answered = "null" if message.tool_call_id is None else json.dumps(message.tool_call_id)
    said = (
        f'[{json.dumps(chain)}, {{"content": {json.dumps(message.content)}, "role": "{message.role}", '
        f'"tool_call_id": {answered}, "tool_calls": {calls}}}]'
    )
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def chained(messages: Sequence[Message], chain: str) -> Iterator[Sent]:
    """Yield messages with their digests; `chain` is the digest of what comes before them."""
    for message in messages:
        chain = chain if is_prompt(message) else chain_of(chain, message)
        yield Sent(message, chain)


def said_of(sent: Sequence[Sent]) -> list[Sent]:
    """Return the messages of a history that are not part of its system prompt."""
    return [one for one in sent if not is_prompt(one.message)]


def without_prompts(records: Sequence[Record]) -> list[Record]:
    """Return stored messages that are not part of a system prompt."""
    return [record for record in records if not is_prompt(record.message)]
