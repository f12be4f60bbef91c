"""The normal form of a message: what it says, without what clients change when they send it again."""

import json
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

from shared_core.messages import Message

NormalForm: TypeAlias = tuple[str, str, tuple[tuple[str, str, str], ...], str | None]
"""Role, text, tool calls, and the id of the call that is answered."""

KEPT_WORDS = 0.5
"""The share of its words that an answer has kept if it was written anew, where nothing else tells which one it is."""

_WORD = re.compile(r"\w+")
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def normal_form(message: Message) -> NormalForm:
    """Return what a message says: its text is trimmed, and arguments of calls are equal if their JSON is.

    Many clients show a model's thoughts apart and leave them out, so that a block of them before an answer is no part.
    """
    text = message.whole.content
    if message.role == "assistant" and (thought := _THOUGHT.match(text)):
        text = text[thought.end() :]
    calls = tuple((call.id, call.name, _normal_json(call.arguments)) for call in message.tool_calls)
    return message.role, text.strip(), calls, message.tool_call_id


def _normal_json(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):  # models write what is no JSON, too
        return arguments.strip()


def normal_forms(messages: Iterable[Message]) -> list[NormalForm]:
    """Return what each message says."""
    return [normal_form(message) for message in messages]


def says_the_same(one: Message, other: Message) -> bool:
    """Return whether two messages are the same one, sent twice, if their ids do not tell."""
    return normal_form(one) == normal_form(other)


def whatever_is_answered(form: NormalForm) -> NormalForm:
    """Return the form of a message; of an answer, without what it says: clients may write it anew."""
    role, _, calls, answered = form
    return (role, "", tuple((id_, name, "") for id_, name, _ in calls), answered) if role == "assistant" else form


def words_of(message: Message) -> set[str]:
    """Return the words of a message, without marks."""
    return {*_WORD.findall(normal_form(message)[1])}


def likeness(one: Message, other: Message) -> float:
    """Return the share of the words of two messages that are in both; 1 if neither has any."""
    ours, theirs = words_of(one), words_of(other)
    return len(ours & theirs) / len(ours | theirs) if ours | theirs else 1.0


def fingerprint(message: Message) -> int | None:
    """Return a digest of what one message says, and of nothing said before it; None for a part of a system prompt.

    What a message says can be guessed from it: it is stored in the row of the message, and goes with it.
    """
    if message.role == "system" and not message.pinned:
        return None
    said = json.dumps(normal_form(message)).encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest(), signed=True)
