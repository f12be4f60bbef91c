"""What tells whether a history is known: where it says the same as what is stored, and what messages are copies of."""

from collections.abc import Sequence
from itertools import takewhile

from shared_core.history.normal_form import NormalForm
from shared_core.messages import Message
from shared_core.records import MadeFrom, Record
from shared_core.session.system_prompt import is_prompt
from shared_core.store import Store

REPEATED = 3
"""The fewest messages that tell a history that went back from one whose words happen to be the same."""


def said_of(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a history that are not part of its system prompt."""
    return [message for message in messages if not is_prompt(message)]


def asked_at(said: Sequence[Message]) -> int:
    """Return the index of the question that a history ends with, calls and results after it included, or its length."""
    index = next((n for n in range(len(said) - 1, -1, -1) if said[n].role == "user"), len(said))
    return len(said) if any(one.role == "assistant" and not one.tool_calls for one in said[index:]) else index


def without_prompts(records: Sequence[Record]) -> list[Record]:
    """Return stored messages that are not part of a system prompt."""
    return [record for record in records if not is_prompt(record.message)]


def overlap(old: Sequence[NormalForm], said: Sequence[NormalForm]) -> int:
    """Return how many messages at the end of `old` are the beginning of `said`."""
    return next((count for count in range(min(len(old), len(said)), 0, -1) if old[-count:] == said[:count]), 0)


def longest_match(old: Sequence[NormalForm], said: Sequence[NormalForm]) -> tuple[int, int]:
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
