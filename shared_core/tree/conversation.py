"""What a session holds and where in it one stands: read, branch, forget; needs no embedder."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any

from shared_core.arguments import in_utc, whole_number
from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.forget import ForgetResult, forget, select
from shared_core.messages import Message
from shared_core.records import MAIN, Branch, Create, Position
from shared_core.session import LiveSession, Writer
from shared_core.store import Store
from shared_core.tree.paths import EARLIER, Head, read, resolve

__all__ = ["Conversation"]

NO_SESSION = -1
"""A key that no session has."""


class Conversation:
    """The verbs of a memory that touch only what is stored.

    Args:
        store: where the session is.
        live: the session, and the branch this object stands on.
        writer: adds to it.
        lock: held by one verb at a time.
    """

    def __init__(self, store: Store, live: LiveSession, writer: Writer, lock: AbstractContextManager[object]) -> None:
        self._store = store
        self._live = live
        self._writer = writer
        self._lock = lock

    # Reading

    @property
    def session_id(self) -> str:
        """Which conversation this is."""
        return self._live.session_id

    @property
    def user_id(self) -> str | None:
        """Whose it is."""
        return self._live.user_id

    def get(self, id: str) -> Message:
        """Return one message of the session; UnknownReferenceError if there is none."""
        session = self._live.key
        records = self._store.get(session, [id]) if session is not None else []
        if not records:
            raise UnknownReferenceError(f"no message {id!r} in this session")
        return records[0].message

    def messages(self) -> Iterator[Message]:
        """Iterate over the branch, oldest first, reading as it goes."""
        with self._lock:
            self._live.sync()
            session, path = self._live.key, self._live.path
        if session is None:
            return
        for record in read(self._store, session, path.spans):
            yield record.message

    def newest(self, limit: int) -> list[Message]:
        """Return the newest messages of the branch, oldest first, at most `limit`."""
        with self._lock:
            self._live.sync()
            return [entry.message for entry in self._live.last(whole_number("limit", limit, least=0))]

    def stats(self) -> dict[str, Any]:
        """Return what the session holds: counts, bytes on disk, and the embedders whose vectors it has."""
        session = self._live.key if self._live.key is not None else NO_SESSION
        return {"branch": self.branch, **self._store.stats(session), "embedders": self._store.spaces(session)}

    # The tree

    @property
    def branch(self) -> str | None:
        """The branch this object stands on; None: detached at a message, until one is added."""
        return self._live.head.branch

    def branches(self) -> list[Branch]:
        """Return all branches of the session, in order of creation."""
        session = self._live.key
        return self._store.branches(session) if session is not None else []

    def fork(self, name: str, at: str | None = None) -> None:
        """Open a branch and stand on it; what is said from now on is not seen from the others.

        Args:
            name: of the new branch.
            at: the last message the branches share, by id or unique beginning of one, or a branch's name; None: here.

        Raises:
            DuplicateError: a branch or a tag has the name.
            UnknownReferenceError: there is no such place.
        """
        self._check_name(name)
        with self._lock:
            if at not in (None, MAIN) and self._live.key is None:
                raise UnknownReferenceError(f"no branch or message {at!r}: nothing is stored yet")
            session = self._live.create()
            place = self._place(self._live.head if at is None else resolve(self._store, session, at))
            with self._taken(name):
                self._store.change(session, [Create(name, place)])
            self._stand(Head(name))

    def checkout(self, reference: str) -> None:
        """Stand on a branch; or at a message, a tag, or where a branch was, and what is added there opens a branch.

        Args:
            reference: a name, a message's id or the unique beginning of one, or `main@{1}` for where `main` ended
                before it was last moved.

        Raises:
            UnknownReferenceError: there is no such place; AmbiguousReferenceError: several messages begin so.
        """
        with self._lock:
            session = self._live.key
            if session is None and reference != MAIN:
                raise UnknownReferenceError(f"no branch or message {reference!r}: nothing is stored yet")
            self._stand(Head(MAIN) if session is None else resolve(self._store, session, reference))

    def close_turn(self) -> None:
        """Have the next reply join the newest turn of the branch, also where this object has opened another."""
        with self._lock:
            self._writer.open_turn = None

    @staticmethod
    def _check_name(name: str) -> None:
        if not name.strip():
            raise ValueError(f"name={name!r}: a branch or a tag needs a name")
        if EARLIER.fullmatch(name):
            raise ValueError(f"name={name!r}: this is how an earlier end of a branch is written; choose another name")

    @contextmanager
    def _taken(self, name: str) -> Iterator[None]:
        """Say in an error which names are taken."""
        try:
            yield
        except DuplicateError as error:
            tags = [ref.name for ref in reversed(self._store.refs(self._live.create(), "tag"))]
            taken = ", ".join(map(repr, [*(branch.name for branch in self.branches()), *tags]))
            kind = "tag" if name in tags else "branch"
            raise DuplicateError(f"there is already a {kind} {name!r}; choose a name other than {taken}") from error

    def _place(self, head: Head) -> Position:
        at = head.at or self._store.state(self._live.create(), head.branch).head
        if at is None:
            raise UnknownReferenceError(f"the branch {head.branch!r} does not exist any more")
        return at

    def _stand_at(self, place: Position) -> None:
        """Stand on a branch that ends at this place, if need be detached."""
        newest = [self._live.path.at(entry.order) for entry in self._live.last(1)]
        if place not in (self._live.path.head, *newest):  # the newest need not be at the head: that may be forgotten
            names = [branch.name for branch in self.branches() if branch.head == place]
            self._stand(Head(names[-1]) if names else Head(None, place))
            self._live.sync()

    def _stand(self, head: Head) -> None:
        self._live.go(head)
        self._writer.open_turn = None

    # Forgetting

    def forget(
        self, *, ids: Sequence[str] | None = None, before: datetime | None = None, session: bool = False,
        dry_run: bool = False,
    ) -> ForgetResult:  # fmt: skip
        """Erase messages everywhere: rows, vectors, indexes, snapshots, all branches, and the bytes of the files.

        Whole tool groups go. Forgotten ids are not stored again.

        Args:
            ids: these messages.
            before: what was said before this moment, taken as UTC if it has no zone; system messages stay.
            session: everything.
            dry_run: only say what would go.

        Raises:
            UnknownReferenceError: an id is not stored.
        """
        if (ids is not None) + (before is not None) + session != 1:
            raise ValueError("forget: pass one of ids=, before= and session=True")
        with self._lock:
            key = self._live.key
            if key is None and ids:
                raise UnknownReferenceError(f"no message {ids[0]!r}: nothing is stored yet")
            moment = None if before is None else in_utc(before)
            records = select(self._store, key, ids=ids, before=moment, everything=session) if key is not None else []
            if dry_run or key is None:
                return ForgetResult(tuple(record.message.id or "" for record in records), dry_run=dry_run)
            if not records and not session:
                return self.scrub()  # every process would otherwise drop what it has indexed, for nothing
            result = forget(self._store, key, records, everything=session)
            if session:
                self._stand(Head(MAIN))
            return result

    def scrub(self) -> ForgetResult:
        """Try again to remove erased bytes from the files, where `forget` said that a reader was in the way."""
        reason = self._store.scrub()
        return ForgetResult((), scrubbed=reason is None, reason=reason)
