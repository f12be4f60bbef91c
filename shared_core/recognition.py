"""By what a message is recognized: its id, a digest of all that is said up to it, or what it is a copy of."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from shared_core.messages import Message
from shared_core.records import MadeFrom, Record
from shared_core.store import Store
from shared_core.system_prompt import is_prompt

REPEATED = 3
"""The fewest messages that tell a history that went back from one whose words happen to be the same."""


class Sent(NamedTuple):
    """A message of the history, and a digest of everything that is said up to it."""

    message: Message
    chain: str


def recognized_fields(message: Message) -> Mapping[str, Any]:
    """Return the fields by which a message that was sent again is recognized. Clients often lose the others."""
    return message.whole.model_dump(include={"role", "content", "tool_calls", "tool_call_id"})


def says_the_same(one: Message, other: Message) -> bool:
    """Return whether two messages are the same one, sent twice, if their ids do not tell."""
    return (one.role, one.whole.content, one.tool_calls, one.tool_call_id) == (
        other.role, other.whole.content, other.tool_calls, other.tool_call_id
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
        f'[{json.dumps(chain)}, {{"content": {json.dumps(message.whole.content)}, "role": "{message.role}", '
        f'"tool_call_id": {answered}, "tool_calls": {calls}}}]'
    )
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def chained(messages: Sequence[Message], chain: str) -> Iterator[Sent]:
    """Yield messages with their digests; `chain` is the digest of what comes before them."""
    for message in messages:
        chain = chain if is_prompt(message) else chain_of(chain, message)
        yield Sent(message, chain)


def chained_again(store: Store, session: int, messages: Sequence[Message], chain: str) -> list[Sent]:
    """Return messages with their digests; those of a message that is said again after it was erased begin anew.

    Its new digest is made from the erased one, and so are the digests of all that comes after it: every process finds
    the message again, whenever the history is sent.
    """
    sent = list(chained(messages, chain))
    while (index := _said_again(store, session, sent)) is not None:
        sent[index:] = chained(messages[index:], _again(sent[index]))
    return sent


def _said_again(store: Store, session: int, sent: Sequence[Sent]) -> int | None:
    """Return the index of the first message that was erased under its digest, and said again since or now."""
    gone = store.are_forgotten(session, {one.chain for one in said_of(sent)})
    if not gone:
        return None
    erased = {index: one for index, one in enumerate(sent) if one.chain in gone and not is_prompt(one.message)}
    own = _stored(store, session, [one.message.id for one in erased.values()])
    # An id tells more than words: a digest stands for messages without ids, and for edited ones.
    again = {
        index: chain_of(_again(one), one.message)
        for index, one in erased.items()
        if one.message.id is None
        or (one.message.id in own and not says_the_same(own[one.message.id].message, one.message))
    }
    used = _stored(store, session, [*again.values()]).keys() | store.are_forgotten(session, again.values())
    question = _question(store, session, sent)
    return next((index for index, id_ in again.items() if id_ in used or index == question), None)


def _again(erased: Sent) -> str:
    return f"again {erased.chain}"


def _question(store: Store, session: int, sent: Sequence[Sent]) -> int | None:
    """Return the index of the newest user message, if nothing but new calls and results comes after it."""
    index = next((index for index in range(len(sent) - 1, -1, -1) if sent[index].message.role == "user"), None)
    if index is None:
        return None
    later = said_of(sent[index + 1 :])
    answered = any(one.message.role == "assistant" and not one.message.tool_calls for one in later)
    if answered or _stored(store, session, [id_ for one in later for id_ in (one.message.id, one.chain)]):
        return None
    return index


def _stored(store: Store, session: int, ids: Sequence[str | None]) -> dict[str | None, Record]:
    """Return the stored messages of some ids, by id."""
    known = [id_ for id_ in ids if id_ is not None]
    return {record.message.id: record for record in store.get(session, known)} if known else {}


def said_of(sent: Sequence[Sent]) -> list[Sent]:
    """Return the messages of a history that are not part of its system prompt."""
    return [one for one in sent if not is_prompt(one.message)]


def without_prompts(records: Sequence[Record]) -> list[Record]:
    """Return stored messages that are not part of a system prompt."""
    return [record for record in records if not is_prompt(record.message)]


def overlap(old: Sequence[Mapping[str, Any]], said: Sequence[Mapping[str, Any]]) -> int:
    """Return how many messages at the end of `old` are the beginning of `said`."""
    return next((count for count in range(min(len(old), len(said)), 0, -1) if old[-count:] == said[:count]), 0)


def longest_match(old: Sequence[Mapping[str, Any]], said: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return where the longest beginning of `said` stands among `old`, the newest of equals, and its length, or 0."""
    best = (len(old), 0)
    for first in range(len(old) - 1, -1, -1):
        pairs = zip(old[first:], said, strict=False)
        count = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if count >= REPEATED and count > best[1]:
            best = (first, count)
    return best


def families(store: Store, session: int, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return, for the id of each message, the message with its original and all that was made from that, on any branch.

    These are its copies and edited forms. Each family is in the order of storing.
    """
    first = {record.message.id or "": record for record in records}
    missing: set[str] = set()
    while wanted := {one.picked_from for one in first.values() if one.picked_from is not None} - missing:
        originals = {record.message.id: record for record in store.get(session, sorted(wanted))}
        missing |= wanted - originals.keys()
        first = {id_: originals.get(one.picked_from, one) for id_, one in first.items()}
    members = {one.message.id: {one.message.id: one} for one in first.values()}
    family_of = {id_: id_ for id_ in members}
    newest = list({one.message.id: one for one in first.values()}.values())
    while newest:
        made = store.find(session, MadeFrom([one.position for one in newest]))
        newest = [one for one in made if one.picked_from in family_of and one.message.id not in family_of]
        for one in newest:
            family_of[one.message.id] = family = family_of[one.picked_from]
            members[family][one.message.id] = one
    in_order = {id_: sorted(family.values(), key=lambda one: one.seq) for id_, family in members.items()}
    return {id_: in_order[one.message.id] for id_, one in first.items()}
