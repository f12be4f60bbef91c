"""MessageSequence: the messages of a branch as a read-only sequence that reads them from the store in pages."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, overload

from shared_core.arguments import whole_number
from shared_core.errors import UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import Position, Record
from shared_core.session.paths import PAGE, Path, Span, kept, read, resolve
from shared_core.session.turns import is_prompt
from shared_core.store import Store


class Around(NamedTuple):
    """Messages around one of them, oldest first, and the index `at` of that one among them."""

    messages: list[Message]
    at: int


class MessageSequence(Sequence[Message]):
    """The messages of a branch, oldest first, as the branch was when the sequence was made.

    It holds no messages: each use reads what it needs. The newest messages, slices at the end and the truth value cost
    a small read, and `len` reads no text. An index counted from the beginning reads everything up to it.

    Args:
        store: where the messages are stored.
        session: the session's key; None: nothing is stored.
        path: the path of the branch.
        system_prompt: the ids of the current one, so that those it replaced are left out. None: nothing is left out.
        replaced: how many these are.
    """

    def __init__(
        self, store: Store, session: int | None, path: Path, *,
        system_prompt: Collection[str | None] | None, replaced: int,
    ) -> None:  # fmt: skip
        self._store = store
        self._session = session
        self._path = path
        self._system_prompt = system_prompt
        self._replaced = replaced if system_prompt is not None else 0

    def __iter__(self) -> Iterator[Message]:
        if self._session is None:
            return
        for record in read(self._store, self._session, self._path.spans):
            if self._shows(record.message):
                yield record.message

    def __reversed__(self) -> Iterator[Message]:
        if self._session is None:
            return
        for span in reversed(self._path.spans):
            for record in kept(self._store, self._session, self._backwards(self._session, span)):
                if self._shows(record.message):
                    yield record.message

    def _backwards(self, session: int, span: Span) -> Iterator[list[Record]]:
        upto, size = span.upto, 1
        while upto >= span.start:
            records = self._store.newest(session, Position(span.segment, upto), size)
            yield [record for record in records if record.position.depth >= span.start]
            if len(records) < size:
                return
            upto, size = records[-1].position.depth - 1, min(2 * size, PAGE)

    def _shows(self, message: Message) -> bool:
        return self._system_prompt is None or not is_prompt(message) or message.id in self._system_prompt

    def __bool__(self) -> bool:
        return next(reversed(self), None) is not None

    def __len__(self) -> int:
        if self._session is None:
            return 0
        return self._store.count(self._session, [span.stretch for span in self._path.spans]) - self._replaced

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """Return one message, or those of a slice as a list; IndexError if there are not so many."""
        if isinstance(index, slice):
            return self._slice(index)
        found = islice(self, index, None) if index >= 0 else islice(reversed(self), -index - 1, None)
        message = next(found, None)
        if message is None:
            raise IndexError(f"index {index}: the branch has fewer messages")
        return message

    def _slice(self, wanted: slice) -> list[Message]:
        start, stop, step = wanted.start, wanted.stop, wanted.step
        if step in (None, 1) and (start is None or start >= 0) and (stop is None or stop >= 0):
            return list(islice(self, start, stop))
        if step in (None, 1) and start is not None and start < 0 and (stop is None or stop < 0):
            newest = list(islice(reversed(self), -start))[::-1]
            return newest if stop is None else newest[: max(0, len(newest) + stop)]
        return list(self)[wanted]

    def around(self, id: str, *, before: int = 2, after: int = 2) -> Around:
        """Return a message with those before and after it on the branch. It reads no others, however long the branch.

        Args:
            id: its id, or a unique beginning of it.
            before: at most this many messages before it; fewer, if some have been forgotten.
            after: at most this many after it.

        Raises:
            UnknownReferenceError: the branch has no such message.
            AmbiguousReferenceError: several messages begin so.
        """
        first, last = whole_number("before", before, least=0), whole_number("after", after, least=0)
        if self._session is None:
            raise UnknownReferenceError(f"no message {id!r}: nothing is stored yet")
        own = resolve(self._store, self._session, id).at
        if own is None or not self._path.covers(own):
            raise UnknownReferenceError(f"no message {id!r} on this branch; another branch may have it")
        index, end = self._path.index_of(own), self._path.spans[-1].last
        positions = [self._path.at(i) for i in range(max(0, index - first), min(end, index + last) + 1)]
        records = [one for one in self._store.get(self._session, positions) if self._shows(one.message)]
        at = next((number for number, one in enumerate(records) if one.position == own), None)
        if at is None:
            raise UnknownReferenceError(f"no message {id!r}: nothing is said there")
        return Around([one.message for one in records], at)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MessageSequence | list | tuple):
            return list(self) == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        raise TypeError("messages() returns a view of a branch, which is not hashable; use tuple(memory.messages())")

    def __repr__(self) -> str:
        count = len(self)
        return f"<{type(self).__name__} of {count:,} message{'' if count == 1 else 's'}>"
