"""What must be true of a store after clients have asked through the proxy, judged by what they were told."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared_core import InfiniteMemory, Message
from shared_core.store import Store
from tests.load.proxy_client import INTRUDER, OWNER, Note, user_of

MARK = re.compile(r"\[\[[^\]]*\]\]")

Lines = Mapping[str, Sequence[Sequence[Message]]]
"""The messages on each branch of each conversation, by the name of the conversation."""


def owners(text: str) -> set[int]:
    """Return the clients whose words are in a text."""
    return {int(one or other) for one, other in OWNER.findall(text)}


def mark_of(message: Message | Mapping[str, Any]) -> str:
    """Return what tells a message from all others."""
    given = message.to_openai() if isinstance(message, Message) else message
    if given.get("tool_calls"):
        return str(given["tool_calls"][0]["id"])
    found = MARK.search(given["content"] or "")
    return found[0] if found else str(given["content"])


def lines_of(store: Store, user: str) -> dict[str, list[list[Message]]]:
    """Return what a user's conversations hold."""
    found: dict[str, list[list[Message]]] = {}
    for info in store.overview(user):
        with InfiniteMemory(store, session_id=info.session_id, user_id=user) as memory:
            for branch in memory.branches():
                memory.checkout(branch.name)
                found.setdefault(info.session_id, []).append(list(memory.messages()))
    return found


def faults(number: int, notes: Sequence[Note], lines: Lines) -> Iterator[str]:
    """Yield what is wrong with what is stored of a client.

    Args:
        number: the client.
        notes: what it was told.
        lines: the conversations of its user.
    """
    own = {name: held for name, held in lines.items() if number in owners(_text(held))}
    told = [mark_of(message) for note in notes for message in (note.sent, note.answer)]
    whole = [name for name, held in own.items() if any(_holds(line, told) for line in held)]
    if len(whole) != 1:
        yield f"client {number} finds {len(told)} messages in {whole} of {[*own]}: {_missing(own, told)}"
    for name, held in own.items():
        if number % 3 != 2 and name != f"talk-{number}":
            yield f"client {number} has words in {name}"
        if name not in whole and {mark_of(message) for line in held for message in line} & set(told[1::2]):
            yield f"client {number} finds acknowledged words in {name}, too"
        yield from _doubled(number, held)


def _holds(line: Sequence[Message], told: Sequence[str]) -> bool:
    """Return whether a line is what a client was told, and at most the part of an answer that it was not told."""
    whole = [mark_of(message) for message in line if message.payload is None]
    return whole == list(told)


def _doubled(number: int, held: Sequence[Sequence[Message]]) -> Iterator[str]:
    """Yield what is stored twice; parts of answers that were cut off are told apart by their length."""
    stored = {message.id: message for line in held for message in line}
    counts = Counter(mark_of(message) for message in stored.values() if message.payload is None)
    yield from (f"client {number}: {mark} is stored {count} times" for mark, count in counts.items() if count > 1)


def _missing(own: Lines, told: Sequence[str]) -> str:
    stored = {mark_of(message) for held in own.values() for line in held for message in line}
    lost = [mark for mark in told if mark not in stored]
    near = max((line for held in own.values() for line in held), key=len, default=[])
    marks = [mark_of(message) for message in near]
    at = next((index for index, (one, two) in enumerate(zip(marks, told, strict=False)) if one != two), len(marks))
    return f"lost {lost[:5]}; the longest line has {marks[at - 2 : at + 4]} for {told[at - 2 : at + 4]}"


def foreign(lines: Lines) -> Iterator[str]:
    """Yield conversations with the words of two clients."""
    for name, held in lines.items():
        if len(found := owners(_text(held))) != 1:
            yield f"{name} holds words of {found}"


def mixed(prompts: Sequence[tuple[int, set[int]]]) -> Iterator[str]:
    """Yield prompts with the words of another client than that which asks."""
    yield from (f"{asking} was answered with words of {found}" for asking, found in prompts if found != {asking})


def user_of_owner(number: int) -> str:
    """Return the user of a client, or of an intruder."""
    return user_of(number if number < INTRUDER else number - INTRUDER + 1)


def _text(held: Sequence[Sequence[Message]]) -> str:
    return "\n".join(f"{message.content} {mark_of(message)}" for line in held for message in line)
