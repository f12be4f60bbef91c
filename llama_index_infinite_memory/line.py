"""The messages of a branch as they were read and as they are shown, so that no call reads and builds them again."""

import weakref
from collections.abc import Callable, Sequence

from llama_index.core.base.llms.types import ChatMessage, TextBlock

from llama_index_infinite_memory.messages import is_bare, read_message, same, to_message
from shared_core.messages import Message, content_of
from shared_core.records import SessionState
from shared_core.runtime.forks import Depth, fork_safe_lock

LINE_BYTES = 64 * 2**20
"""The most that the lines read by all conversations of this process take."""

MESSAGE_BYTES = 2_500
"""What a message takes beside its text, stored and shown."""


class Line:
    """The messages of a branch as they were read, and as they are shown.

    Args:
        messages: the messages, oldest first.
        state: the state of the branch then. None: no branch is checked out, or nothing is stored.

    Attributes:
        size: about the bytes that they take.
    """

    def __init__(self, messages: list[Message], state: SessionState | None) -> None:
        self.messages, self.state = messages, state
        self.size = sum(map(_size, messages))
        self._shown: list[ChatMessage] = []
        self._built: dict[int, ChatMessage] = {}

    def goes_on(self, state: SessionState, newest: Callable[[int], list[Message]]) -> bool:
        """Add what the branch has gained since it was read; return False if it may have changed otherwise.

        Args:
            state: the state of the branch now.
            newest: takes a number and returns so many of its newest messages, oldest first.
        """
        before, now = self.state and self.state.head, state.head
        if self.state == state:
            return True
        if self.state is None or before is None or now is None or not self.messages:
            return False
        grown = now.depth - before.depth
        if (self.state.epoch, before.segment) != (state.epoch, now.segment) or grown < 0:
            return False
        new = newest(grown + 1)
        if not new or new[0].id != self.messages[-1].id:
            return False
        self.messages += new[1:]
        self.size += sum(map(_size, new[1:]))
        self.state = state
        return True

    def shown(self) -> list[ChatMessage]:
        """Return the messages as they were put: the same objects each time, except those that somebody has changed."""
        for index, (stored, one) in enumerate(zip(self.messages, self._shown, strict=False)):
            if not self._is_as_built(index, stored, one):
                self._shown[index] = to_message(stored.whole)
        self._shown += [to_message(stored.whole) for stored in self.messages[len(self._shown) :]]
        return [*self._shown]

    def begins(self, given: Sequence[ChatMessage]) -> bool:
        """Return whether given messages begin with one that `shown` returned: who gives them has read this line."""
        return any(one is shown for one in given[:1] for shown in self._shown)

    def _is_as_built(self, index: int, stored: Message, given: ChatMessage) -> bool:
        if is_bare(stored):
            return _is_text_of(given, stored)
        if index not in self._built:
            self._built[index] = to_message(stored.whole)
        return same(vars(self._built[index]), vars(given))  # pydantic's own comparison is slower

    def shared(self, given: Sequence[ChatMessage]) -> int:
        """Return with how many of the given messages the line begins."""
        for index, (stored, one) in enumerate(zip(self.messages, given, strict=False)):
            if not self._holds(index, stored, one):
                return index
        return min(len(self.messages), len(given))

    def _holds(self, index: int, stored: Message, given: ChatMessage) -> bool:
        """Return whether a message is a stored one, perhaps as another program wrote it, or as its mere text."""
        if not isinstance(given, ChatMessage):
            return False
        if self._is_as_built(index, stored, given):
            return True
        shown = to_message(stored.whole)
        if (given.role, given.content) != (shown.role, shown.content):
            return False
        rich = stored.tool_calls or any(block.block_type not in ("text", "thinking") for block in shown.blocks)
        is_text = all(isinstance(block, TextBlock) for block in given.blocks) and not given.additional_kwargs
        return bool(is_text and given.content and not rich) or content_of(read_message(given)[0]) == content_of(stored)


def _is_text_of(given: ChatMessage, stored: Message) -> bool:
    """Return whether a message is the mere text of a stored one, in one block; without a call for most messages."""
    blocks = given.blocks
    return (
        len(blocks) == 1
        and type(blocks[0]) is TextBlock
        and blocks[0].text == stored.whole.content
        and given.role == stored.role
        and not given.additional_kwargs
    )


def _size(message: Message) -> int:
    """Return about the bytes that a message takes in memory, stored and shown."""
    rest = len(message.model_dump_json()) if message.payload is not None or message.grounding is not None else 0
    return MESSAGE_BYTES + len(message.content) + 2 * rest


class Lines:
    """What conversations have read, those that were used last, as far as it takes no more than `LINE_BYTES`."""

    def __init__(self) -> None:
        self._kept: weakref.WeakKeyDictionary[object, Line] = weakref.WeakKeyDictionary()
        self._lock = fork_safe_lock(Depth.MOMENT)

    def take(self, conversation: object) -> Line | None:
        """Return what a conversation has read, which is no longer kept."""
        with self._lock:
            return self._kept.pop(conversation, None)

    def keep(self, conversation: object, line: Line) -> None:
        """Keep what a conversation has read."""
        with self._lock:
            self._kept[conversation] = line
            kept = list(self._kept.items())  # the one used last comes last
            size = sum(one.size for _, one in kept)
            for oldest, one in kept:
                if size > LINE_BYTES:
                    del self._kept[oldest]
                    size -= one.size


lines = Lines()
"""The lines of this process."""
