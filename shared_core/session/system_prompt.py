"""The system prompt of a conversation: which of its system messages are current. Pure functions.

System messages that are stored together, and those that join them later, share a `turn_id`: the id of the first of
them. Only those with the newest such id on a path are sent; they replace all earlier ones. A pinned system message
is part of no system prompt: it is always sent, where it was said.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from shared_core.messages import Message
from shared_core.session.turns import Entry

FRONT = -3
"""The turn number of the system prompt: it comes before a greeting, and before messages of other sessions."""


def is_prompt(message: Message) -> bool:
    """Return whether a message belongs to a system prompt that a later one replaces."""
    return message.role == "system" and not message.pinned


def said(message: Message) -> tuple[str | None, str]:
    """Return what a message of a system prompt says: its speaker's name and its text."""
    return message.name, message.content


def said_of(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that are not part of a system prompt."""
    return [message for message in messages if not is_prompt(message)]


def newest_prompt(entries: Sequence[Entry]) -> list[Entry]:
    """Return the messages of the newest system prompt among messages in path order; empty if there is none."""
    prompts = [entry for entry in entries if is_prompt(entry.message)]
    return [entry for entry in prompts if entry.message.turn_id == prompts[-1].message.turn_id]


def in_front(prompt: Sequence[Entry]) -> list[Entry]:
    """Return a system prompt with its messages where they are sent: in front, but those that joined it later stay."""
    return [replace(entry, turn_no=FRONT) if entry.turn_no == prompt[0].turn_no else entry for entry in prompt]


def kept_of(current: Sequence[Message], wanted: Sequence[Message]) -> int:
    """Return how many messages of the current prompt stay when another one is wanted; 0: it is replaced as a whole.

    A prompt that only grows keeps its messages.
    """
    same = [said(message) for message in wanted[: len(current)]] == [said(message) for message in current]
    return len(current) if same else 0


def said_together(messages: Sequence[Message], prompt_id: str | None = None) -> list[Message]:
    """Return messages with ids, with all system prompts among them joined into one.

    Args:
        messages: the messages, with ids.
        prompt_id: the `turn_id` of the prompt that they join. None: they are a prompt of their own.
    """
    joined: list[Message] = []
    for message in messages:
        if is_prompt(message):
            prompt_id = prompt_id or message.id
            message = message.replace(turn_id=prompt_id)
        joined.append(message)
    return joined


def prompt_joined(message: Message, before: Message | None) -> str | None:
    """Return the `turn_id` of a message that names none, in a list that was kept elsewhere; None: it is no prompt.

    Such a list may hold several requests, each with its prompt. System messages directly one after another are one.

    Args:
        message: the message, with its id.
        before: the one before it, as stored.
    """
    if not is_prompt(message):
        return None
    return before.turn_id if before is not None and is_prompt(before) else message.id
