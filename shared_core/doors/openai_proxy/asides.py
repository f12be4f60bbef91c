"""Asides: requests about a conversation, such as for its title. They are answered, and are no part of it."""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from shared_core.doors.openai_proxy.protocol import ApiRequest
from shared_core.messages import Message

MOST = 10_000
"""Of how many conversations a process knows that a client sends their whole history. The newest ones are kept."""

Key = TypeVar("Key")
Value = TypeVar("Value")

Conversation = tuple[str | None, str, str]
"""The user, the name of the conversation, and the client, as it names itself."""


class Asides:
    """Tells which requests are about a conversation.

    A client that sends the whole history of a conversation with each question does not ask one alone later: a message
    that comes alone then is an aside, unless it says what the history began with. That is the first question, asked
    once more. A history that begins with an aside later tells that it was the first question, edited.

    Args:
        patterns: regular expressions that an aside matches at its beginning, beside those in `asides.json`.

    Raises:
        re.error: one of them is none.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        known = json.loads(Path(__file__).with_name("asides.json").read_text(encoding="utf-8"))
        self._patterns = [re.compile(one) for one in (*chain(*known.values()), *patterns)]
        self._lock = threading.Lock()
        self._first: OrderedDict[Conversation, int] = OrderedDict()
        self._alone: OrderedDict[tuple[Conversation, int], None] = OrderedDict()

    def known(self, request: ApiRequest) -> bool:
        """Return whether the instructions or the newest message of a request match one of the patterns."""
        instructions = [one for one in (request.beside, *request.messages[:1]) if one and one.role == "system"]
        newest = [one for one in request.messages[-1:] if one.role == "user"]
        texts = [one.content.lstrip() for one in (*instructions, *newest)]
        return any(pattern.match(text) for text in texts for pattern in self._patterns)

    def alone(self, conversation: Conversation, messages: Sequence[Message]) -> bool:
        """Return whether a message comes alone, from a client that sends whole histories of this conversation."""
        said = [one for one in messages if one.role != "system"]
        with self._lock:
            first = self._first.get(conversation)
            alone = first is not None and len(said) == 1 and said[0].role == "user" and hash(said[0].content) != first
            if alone:
                _keep(self._alone, (conversation, hash(said[0].content)), None)
        return alone

    def hear(self, conversation: Conversation, opening: Message | None) -> bool:
        """Note what a request to a conversation that was there already tells of its client.

        Args:
            conversation: the conversation.
            opening: the first message of a history with an answer; None: it is none.

        Returns:
            Whether it is a whole history that begins with the first question, edited.
        """
        if opening is None or opening.role != "user":
            return False
        with self._lock:
            _keep(self._first, conversation, hash(opening.content))
            return (conversation, hash(opening.content)) in self._alone


def _keep(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > MOST:
        kept.popitem(last=False)
