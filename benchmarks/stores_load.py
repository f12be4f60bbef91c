"""Sessions of any number and length, made and embedded once, and stored in several stores, with their vectors."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from latency_talk import conversation

from shared_core import InfiniteMemory, Message, Store
from shared_core.index.session_vectors import encode_vector, text_hash
from shared_core.plugins.embedders import StaticEmbedder
from shared_core.recall.settings import message_text
from shared_core.records import MAIN, Draft, VectorRows
from shared_core.tokens import as_counter, body_tokens

__all__ = ["Part", "Progress", "Sessions", "fill", "parts", "store_part"]

EVERY = 10.0
"""Seconds between two words on how far it is."""

TOGETHER = 5_000
"""Messages that are embedded together, and stored in one transaction."""

COUNTER = as_counter(None)
"""The default counter: the tokens of a message are stored with it."""


class Progress:
    """Tells on standard error how many messages are done, at most every ten seconds.

    Args:
        what: is being done.
        of: how many messages there are.
    """

    def __init__(self, what: str, of: int) -> None:
        self._what, self._of = what, of
        self._began = self._told = time.monotonic()
        self._done = self._worked = 0

    def __call__(self, messages: int, *, worked: bool = True) -> None:
        """Take note of more messages; `worked`: they were not there before."""
        now = time.monotonic()
        self._done += messages
        self._worked += messages if worked else 0
        if now - self._told >= EVERY:
            self._told = now
            rate = self._worked / (now - self._began)
            done = f"{self._done:,} of {self._of:,} messages"
            print(f"{self._what}: {done}, {rate:,.0f} a second", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Some sessions of equal length.

    Attributes:
        name: the beginning of their ids.
        count: how many there are.
        messages: in each.
        users: over how many users they are spread.
    """

    name: str
    count: int
    messages: int
    users: int = 1

    def key(self, number: int) -> tuple[str, str]:
        """Return the user and the id of one."""
        return f"{self.name}-user{number % self.users}", f"{self.name}{number}"

    @property
    def total(self) -> int:
        """The number of messages in all of them."""
        return self.count * self.messages


@dataclass(frozen=True, slots=True)
class Part:
    """Some messages of one session, one after the other.

    Attributes:
        user: of the session.
        session: its id.
        first: the index of the first message in the session.
        messages: the messages.
    """

    user: str
    session: str
    first: int
    messages: Sequence[Message]


def parts(sessions: Sessions, numbers: Iterable[int]) -> Iterator[Part]:
    """Yield the messages of some sessions, at most `TOGETHER` in a part."""
    for number in numbers:
        user, session = sessions.key(number)
        talk = conversation(sessions.messages, number)
        for first in range(0, sessions.messages, TOGETHER):
            yield Part(user, session, first, list(islice(talk, TOGETHER)))


def batches(every: Iterator[Part]) -> Iterator[list[Part]]:
    """Yield parts that have about `TOGETHER` messages together."""
    batch: list[Part] = []
    for part in every:
        batch.append(part)
        if sum(len(one.messages) for one in batch) >= TOGETHER:
            yield batch
            batch = []
    if batch:
        yield batch


def fill(stores: Sequence[Store], sessions: Sessions, *, indexed: bool = False) -> None:
    """Store sessions in each of several stores, as far as they are not there.

    The messages are made and embedded once, with the default embedder, and each store gets many sessions in one
    transaction. That stores what `InfiniteMemory.add` and `index` would store, at a third of the processor's time.

    Args:
        stores: where to.
        sessions: what.
        indexed: also store snapshots of the search indexes, which takes longer.
    """
    progress = Progress(f"storing {sessions.name!r}", sessions.total)
    missing = sorted({number for store in stores for number in _missing(store, sessions)})
    progress(sessions.total - sessions.messages * len(missing), worked=False)
    for batch in batches(parts(sessions, missing)):
        vectors = _embedded(batch)
        for store in stores:
            with store.transaction():
                for part in batch:
                    if not _has(store, part):
                        store_part(store, part, vectors)
        progress(sum(len(part.messages) for part in batch))
    for number in range(sessions.count if indexed else 0):
        user, session = sessions.key(number)
        for store in stores:
            with InfiniteMemory(store, session_id=session, user_id=user) as memory:
                memory.index()


def _missing(store: Store, sessions: Sessions) -> set[int]:
    """Return the numbers of the sessions that a store does not have, or not whole.

    One that is stored in one transaction is whole if it is there.
    """
    there = {(key.user_id, key.session_id): key.key for key in store.sessions()}
    keys = {number: there.get(sessions.key(number)) for number in range(sessions.count)}
    long = sessions.messages > TOGETHER
    return {
        number
        for number, key in keys.items()
        if key is None or (long and store.state(key).last_seq < sessions.messages)
    }


def _has(store: Store, part: Part) -> bool:
    key = store.session(part.user, part.session)
    return key is not None and store.state(key).last_seq >= part.first + len(part.messages)


def _embedded(batch: Sequence[Part]) -> dict[str, bytes]:
    """Return the stored form of the vector of each text, by the hash of the text."""
    texts = [message_text([message]) for part in batch for message in part.messages]
    vectors = StaticEmbedder().embed_documents(texts)
    return {text_hash(text): encode_vector(vectors[row : row + 1]) for row, text in enumerate(texts)}


def store_part(store: Store, part: Part, vectors: dict[str, bytes]) -> None:
    """Store some messages of a session with their vectors."""
    session = store.create_session(part.user, part.session)
    drafts = [Draft(message, COUNTER.name, body_tokens(message, COUNTER)) for message in part.messages]
    appended = store.append(session, MAIN, drafts)
    hashes = [text_hash(message_text([record.message])) for record in appended.records]
    rows = [(record.position, hash_, vectors[hash_]) for record, hash_ in zip(appended.records, hashes, strict=True)]
    store.keep(session, VectorRows(StaticEmbedder.fingerprint.key, rows))
