"""A store that notes each call, to see how often a verb would wait for a store a round trip away."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from types import MappingProxyType

from shared_core.records import (
    Appended,
    Branch,
    Change,
    CheckedOut,
    Criterion,
    Derived,
    Draft,
    Forgotten,
    KnownBranch,
    MainChanges,
    MainNews,
    Mark,
    Position,
    Record,
    Ref,
    RefKind,
    Restored,
    Segment,
    SessionInfo,
    SessionKey,
    SessionState,
    Stretch,
    Summary,
    VectorRow,
    VectorRows,
)
from shared_core.store import ALL, PAGE, Store


class CountedStore(Store):
    """Passes every call on to another store, and notes it.

    A call is one round trip, which is what it takes at best where the store is another machine: a store that sends
    several statements for one call, each after the answer to the last, waits longer. Vectors that are iterated over are
    a round trip a page of 1,000, and a transaction is one for its end.

    Args:
        store: the store that does the work.

    Attributes:
        trips: the names of the methods that were called, in order.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.trips: list[str] = []

    @property
    def connections(self) -> int:
        """See `Store`."""
        return self.store.connections

    @property
    def counts(self) -> dict[str, int]:
        """How often each method was called."""
        return dict(Counter(self.trips))

    def reset(self) -> None:
        """Begin to count anew."""
        self.trips.clear()

    def _noted(self, name: str) -> Store:
        self.trips.append(name)
        return self.store

    def for_user(self, user_id: str | None) -> "CountedStore":
        """See `Store`. What is called on the result is noted here."""
        own = self.store.for_user(user_id)
        if own is self.store:
            return self
        counted = CountedStore(own)
        counted.trips = self.trips
        return counted

    # Sessions

    def session(self, user_id: str | None, session_id: str) -> int | None:
        """See `Store`."""
        return self._noted("session").session(user_id, session_id)

    def create_session(self, user_id: str | None, session_id: str) -> int:
        """See `Store`."""
        return self._noted("create_session").create_session(user_id, session_id)

    def sessions(self, *user_ids: str | None, after: int = 0, limit: int = ALL) -> list[SessionKey]:
        """See `Store`."""
        return self._noted("sessions").sessions(*user_ids, after=after, limit=limit)

    def users(self, after: str | None = None, limit: int = ALL) -> list[str]:
        """See `Store`."""
        return self._noted("users").users(after, limit)

    def sessions_named(self, session_id: str) -> list[SessionKey]:
        """See `Store`."""
        return self._noted("sessions_named").sessions_named(session_id)

    def sessions_with(self, user_id: str | None, message: str | int) -> list[SessionKey]:
        """See `Store`."""
        return self._noted("sessions_with").sessions_with(user_id, message)

    def rename_session(self, session: int, session_id: str) -> None:
        """See `Store`."""
        self._noted("rename_session").rename_session(session, session_id)

    def overview(self, *user_ids: str | None, limit: int = ALL) -> list[SessionInfo]:
        """See `Store`."""
        return self._noted("overview").overview(*user_ids, limit=limit)

    def state(self, session: int, branch: str | None = None) -> SessionState:
        """See `Store`."""
        return self._noted("state").state(session, branch)

    def catch_up(
        self, session: int, branch: str | None, after_seq: int, limit: int
    ) -> tuple[SessionState, list[Record]]:
        """See `Store`."""
        return self._noted("catch_up").catch_up(session, branch, after_seq, limit)

    def check_out(
        self, session: int, branch: str | None, at: Position | None, *, after_seq: int, limit: int, newest: int,
        known: Mapping[int, Segment] = MappingProxyType({}),
    ) -> CheckedOut:  # fmt: skip
        """See `Store`."""
        store = self._noted("check_out")
        return store.check_out(session, branch, at, after_seq=after_seq, limit=limit, newest=newest, known=known)

    def main_states(self, *user_ids: str | None) -> list[tuple[SessionKey, SessionState]]:
        """See `Store`."""
        return self._noted("main_states").main_states(*user_ids)

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        """See `Store`."""
        return self._noted("main_changes").main_changes(user_id, since)

    def main_news(self, wanted: Mapping[int, tuple[int, int]], space: str | None = None) -> dict[int, MainNews]:
        """See `Store`."""
        return self._noted("main_news").main_news(wanted, space)

    def stats(self, session: int) -> Mapping[str, int]:
        """See `Store`."""
        return self._noted("stats").stats(session)

    # The tree

    def segment(self, session: int, segment: int) -> Segment:
        """See `Store`."""
        return self._noted("segment").segment(session, segment)

    def segments(self, session: int, after: int, limit: int) -> list[Segment]:
        """See `Store`."""
        return self._noted("segments").segments(session, after, limit)

    def branches(self, session: int) -> list[Branch]:
        """See `Store`."""
        return self._noted("branches").branches(session)

    def refs(self, session: int, kind: RefKind, name: str | None = None, limit: int = 1_000_000) -> list[Ref]:
        """See `Store`."""
        return self._noted("refs").refs(session, kind, name, limit)

    def change(self, session: int, changes: Sequence[Change]) -> None:
        """See `Store`."""
        self._noted("change").change(session, changes)

    # Messages

    def append(
        self, session: int, branch: str, drafts: Sequence[Draft], *, at: Position | None = None,
        turn: str | None = None, changes: Sequence[Change] = (), known: KnownBranch | None = None,
        vectors: VectorRows | None = None, epoch: int | None = None,
    ) -> Appended:  # fmt: skip
        """See `Store`."""
        store = self._noted("append")
        return store.append(
            session, branch, drafts, at=at, turn=turn, changes=changes, known=known, vectors=vectors, epoch=epoch
        )

    def restore(self, session: int, restored: Restored) -> None:
        """See `Store`."""
        self._noted("restore").restore(session, restored)

    def get(self, session: int, keys: Sequence[str] | Sequence[Position]) -> list[Record]:
        """See `Store`."""
        return self._noted("get").get(session, keys)

    def at(self, wanted: Mapping[int, Sequence[Position]], epochs: Mapping[int, int]) -> dict[int, list[Record]] | None:
        """See `Store`."""
        return self._noted("at").at(wanted, epochs)

    def stored(self, session: int) -> list[tuple[Position, str]]:
        """See `Store`."""
        return self._noted("stored").stored(session)

    def check_absent(self, session: int, ids: Collection[str]) -> None:
        """See `Store`."""
        self._noted("check_absent").check_absent(session, ids)

    def count(self, session: int, stretches: Collection[Stretch]) -> int:
        """See `Store`."""
        return self._noted("count").count(session, stretches)

    def newest(self, session: int, upto: Position, limit: int) -> list[Record]:
        """See `Store`."""
        return self._noted("newest").newest(session, upto, limit)

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        """See `Store`."""
        return self._noted("find").find(session, criterion)

    def covers(self, session: int, segments: Collection[int]) -> list[tuple[Position, Stretch]]:
        """See `Store`."""
        return self._noted("covers").covers(session, segments)

    # What is derived

    def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
        """See `Store`."""
        return self._noted("keep").keep(session, derived, epoch)

    def keep_vectors(
        self, space: str, rows: Mapping[int, Sequence[VectorRow]], epochs: Mapping[int, int]
    ) -> frozenset[int]:
        """See `Store`."""
        return self._noted("keep_vectors").keep_vectors(space, rows, epochs)

    def vectors(
        self, session: int, space: str, positions: Sequence[Position] | None = None, *,
        hashes: Collection[str] | None = None,
    ) -> Iterator[VectorRow]:  # fmt: skip
        """See `Store`."""
        if positions is None and hashes is None:
            return self._pages(self.store.vectors(session, space))
        return self._noted("vectors").vectors(session, space, positions, hashes=hashes)

    def _pages(self, rows: Iterator[VectorRow]) -> Iterator[VectorRow]:
        self.trips.append("vectors")
        while page := list(islice(rows, PAGE)):
            yield from page
            self.trips.append("vectors")

    def known_vectors(self, session: int, space: str, hashes: Mapping[Position, str]) -> list[VectorRow]:
        """See `Store`."""
        return self._noted("known_vectors").known_vectors(session, space, hashes)

    def spaces(self, session: int) -> list[str]:
        """See `Store`."""
        return self._noted("spaces").spaces(session)

    def snapshot(self, session: int, name: str) -> bytes | None:
        """See `Store`."""
        return self._noted("snapshot").snapshot(session, name)

    def summaries(self, session: int, upto: Position, limit: int) -> list[Summary]:
        """See `Store`."""
        return self._noted("summaries").summaries(session, upto, limit)

    # Forgetting

    def forget(
        self, session: int, positions: Sequence[Position], *, stale: Sequence[Position] = (), branches: bool = False
    ) -> None:
        """See `Store`."""
        self._noted("forget").forget(session, positions, stale=stale, branches=branches)

    def forgotten(self, session: int, after: str | None, limit: int) -> list[str]:
        """See `Store`."""
        return self._noted("forgotten").forgotten(session, after, limit)

    def forgotten_since(self, session: int, epoch: int) -> Forgotten | None:
        """See `Store`."""
        return self._noted("forgotten_since").forgotten_since(session, epoch)

    def are_forgotten(self, session: int, ids: Collection[str]) -> set[str]:
        """See `Store`."""
        return self._noted("are_forgotten").are_forgotten(session, ids)

    def watch(self, session: int) -> Callable[[], bool]:
        """See `Store`."""
        look = self._noted("watch").watch(session)

        def counted() -> bool:
            self.trips.append("watch")
            return look()

        return counted

    def scrub(self) -> str | None:
        """See `Store`."""
        return self._noted("scrub").scrub()

    def faults(self) -> list[str]:
        """See `Store`."""
        return self._noted("faults").faults()

    # The store itself

    def transaction(self) -> AbstractContextManager[None]:
        """See `Store`."""
        return self._noted("transaction").transaction()

    def identity(self) -> str | None:
        """See `Store`."""
        return self._noted("identity").identity()

    def backup(self, path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> None:
        """See `Store`."""
        self._noted("backup").backup(path, progress)

    def close(self) -> None:
        """See `Store`."""
        self.store.close()
