"""The message lists of graphs as they were followed last, so that only what is new in them has to be looked at."""

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_infinite_memory.identity import Newest, Thread, ThreadRecord
from langchain_infinite_memory.messages import read_message
from langchain_infinite_memory.request_view import split_system
from shared_core.errors import UnknownReferenceError
from shared_core.history.followed import FollowedHistory
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.queries import After
from shared_core.records import MAIN, Restored
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.store import Store

logger = logging.getLogger("langchain_infinite_memory")

REMEMBERED = 200_000
"""How many messages the lists have together that are remembered, at about 150 bytes each."""

NEAREST = 16
"""How many messages before a list are recorded, of which some may be forgotten."""

RECORDS = 4096
"""How many threads are remembered with their records."""

ERASED = 65_536
"""How many erased messages are remembered, the newest ones."""

SUMMARY = "summarization"
"""The `lc_source` of the message that `SummarizationMiddleware` puts in the place of older ones."""

SUMMARY_BEGINS = "Here is a summary of the conversation to date:"
"""How that message begins, which tells it in versions of LangChain that do not mark it."""


@dataclass(frozen=True, slots=True)
class StateList:
    """The message list of a graph's state.

    Attributes:
        talk: the messages to store: without the system messages it begins with, and without summaries.
        summary: the id of the summary that stands for what was before; None: there is none.
    """

    talk: list[BaseMessage]
    summary: str | None = None

    @property
    def first(self) -> str | None:
        """The id of its first message."""
        return self.talk[0].id if self.talk else None


@dataclass(frozen=True, slots=True)
class Followed:
    """A list as it was followed last.

    Attributes:
        digests: one number for each message, which tells whether it has changed since.
        own: the ids that the messages have in the list.
        history: what the engine returned for it.
    """

    digests: tuple[int, ...] = ()
    own: tuple[str | None, ...] = ()
    history: FollowedHistory = field(default_factory=FollowedHistory)

    @property
    def newest(self) -> str | None:
        """The id of the newest message that is stored."""
        return next((id_ for id_ in reversed(self.history.ids) if id_ is not None), None)

    def is_asked(self, listed: StateList) -> bool:
        """Return whether its newest question, or anything of a list without one, is stored. If not, it was erased."""
        newest_first = zip(reversed(listed.talk), reversed(self.history.ids), strict=True)
        asked = next((id_ for message, id_ in newest_first if isinstance(message, HumanMessage)), self.newest)
        return asked is not None or not listed.talk

    def by_id(self, listed: StateList) -> dict[str, BaseMessage]:
        """Return the list's own messages, by the ids under which they are stored."""
        pairs = zip(self.history.ids, listed.talk, strict=True)
        return {id_: message for id_, message in pairs if id_ is not None}

    def is_start_of(self, listed: StateList) -> bool:
        """Return whether a list goes on from this one, so that nothing in it was taken back."""
        return self.digests == tuple(map(_digest, listed.talk[: len(self.digests)]))


def read_list(messages: Sequence[BaseMessage]) -> StateList:
    """Read a graph's list of messages."""
    _, rest = split_system(messages)
    summary = rest[0].id if rest and _is_summary(rest[0]) else None
    return StateList([message for message in rest if not _is_summary(message)], summary)


def follow_whole(memory: InfiniteMemory, listed: StateList) -> Followed:
    """Follow a list that is everything there is, in a memory that is empty."""
    given = [_engine_message(message, stable_id=True) for message in listed.talk]
    return _followed(listed, memory.follow(given, removed="leave_out"))


class FollowedLists:
    """Follows the lists of threads, each from where it was the last time.

    The lists of one run begin with the same message. Two runs at once are followed apart, each from its own list.

    Args:
        store: the store of their sessions.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lists: Newest[tuple[Thread, str | None], Followed] = Newest(
            REMEMBERED, weight=lambda followed: 1 + len(followed.digests)
        )
        self._records: Newest[tuple[Any, Thread], ThreadRecord] = Newest(RECORDS)
        self._erased: Newest[tuple[str | None, str | None, str], None] = Newest(ERASED)
        self._lock = fork_safe_lock(Depth.MOMENT)

    def follow(self, memory: InfiniteMemory, thread: Thread, listed: StateList, *, aside: bool = False) -> Followed:
        """Store what is new in a list, and check out its end. Only one caller at a time may follow lists of a session.

        Args:
            memory: a memory of the session.
            thread: whose list it is.
            listed: the list.
            aside: whether its line is not to be `main`, which stays empty then.

        Raises:
            StoreError: the store cannot be written.
        """
        before = self._before(thread, listed) or Followed()
        digests = tuple(map(_digest, listed.talk))
        same = _common_start(before.digests, digests)
        self.erase_behind(thread, listed.talk[max(0, same - 1) :])
        known = self._start(thread, listed)
        if known is None and not listed.talk:  # a thread that has said nothing yet takes nothing back
            memory.checkout(MAIN)
            return Followed()
        after, since = before.history.upto(same), None
        if not same:
            after, since = self._first_followed(memory, thread, listed) if known is None else (_history(known), None)
        given = [_engine_message(message, stable_id=thread.stable_ids) for message in listed.talk[same:]]
        history = memory.follow(given, after=after, removed=thread.removed, since=since)
        start = len(history) - len(listed.talk)
        history = FollowedHistory(history.ids[start:], history.prompts[start:])
        if aside:
            if memory.branch == MAIN:
                memory.checkout(memory.rewind())
        elif thread.removed == "leave_out" or memory.branch is not None:
            memory.make_main()  # without a checkpointer, a list may end before what others have said since
        branch = memory.branch if thread.removed == "keep" else None
        followed = _followed(listed, replace(history, branch=branch), digests)
        ids_before = known.before if known is not None else _ids_before(memory, followed)
        self._keep(thread, listed, followed, ThreadRecord(thread.owner, followed.newest, ids_before, listed.summary))
        return followed

    def _start(self, thread: Thread, listed: StateList) -> ThreadRecord | None:
        """Return what tells where a list begins on its line; None: it goes on where a summary or another list ends."""
        if thread.removed == "keep":
            return ThreadRecord(before=())
        records = [one for one in (self.record(thread), thread.record) if one is not None and one.before is not None]
        for one in records:
            if one.summary == listed.summary:
                return one
        # A checkpointer in memory that this process has not seen before has lost what was said.
        continues = not records and (thread.named or thread.in_memory)
        return None if continues or listed.summary is not None else ThreadRecord(before=())

    def _first_followed(
        self, memory: InfiniteMemory, thread: Thread, listed: StateList
    ) -> tuple[FollowedHistory, str | None]:
        """Return what a list continues that does not begin its conversation: a history, or what is before a message."""
        record = self.record(thread) or thread.record
        if record is not None and record.newest is not None and not _holds_any(memory, listed.talk):
            return FollowedHistory((record.newest,), (False,)), None
        memory.checkout(MAIN)  # after whose end a list comes of which nothing is stored
        return FollowedHistory(), listed.first

    def newest(self, thread: Thread, listed: StateList) -> str | None:
        """Return the id of the newest message of a list that is stored, as far as the list was followed."""
        followed = self._before(thread, listed)
        return followed.newest if followed is not None else None

    def is_continued(self, thread: Thread, listed: StateList) -> bool:
        """Return whether a list goes on from where it was followed last, so that nothing in it was taken back."""
        before = self._before(thread, listed)
        return before is not None and before.is_start_of(listed)

    def record(self, thread: Thread) -> ThreadRecord | None:
        """Return what to record of a thread; None: none of its lists was followed."""
        with self._lock:
            return self._records.get(_kept_by(thread))

    def _before(self, thread: Thread, listed: StateList) -> Followed | None:
        with self._lock:
            return self._lists.get((thread, listed.first))

    def stored_part(self, memory: InfiniteMemory, thread: Thread, listed: StateList) -> StateList:
        """Return the part of a list that ends with its newest stored message."""
        with self._lock:  # without ids that last, messages are stored under others
            lists = (followed for (other, _), followed in reversed(self._lists.items()) if other == thread)
            known = set(next(lists, Followed()).own) - {None}
        for end in range(len(listed.talk), 0, -1):
            if (id_ := listed.talk[end - 1].id) in known or _is_stored(memory, id_):
                return StateList(listed.talk[:end], listed.summary)
        return StateList([])

    def _keep(self, thread: Thread, listed: StateList, followed: Followed, record: ThreadRecord) -> None:
        with self._lock:
            self._lists[thread, listed.first] = followed
            self._records[_kept_by(thread)] = record

    # Erasing

    def stored_ids(self, memory: InfiniteMemory, message_ids: Sequence[str]) -> list[str]:
        """Return the ids under which messages of a session are stored; those that are not are left out."""
        with self._lock:
            pairs = [pair for key in self._of(memory.session_id, memory.user_id) for pair in _pairs(self._lists[key])]
        edited = [id_ for id_, own in pairs if id_ is not None and own in message_ids]
        return [id_ for id_ in dict.fromkeys([*message_ids, *edited]) if _is_stored(memory, id_)]

    def erase(self, session_id: str, user_id: str | None, ids: Sequence[str]) -> None:
        """Forget the lists of a session, of which the messages stored under these ids were erased."""
        with self._lock:
            erased, pairs = set(ids), list[tuple[str | None, str | None]]()
            for key in self._of(session_id, user_id):
                pairs += _pairs(self._lists[key])
                del self._lists[key]
            own = [own for id_, own in pairs if id_ in erased and own is not None]
            for id_ in (*ids, *own):
                self._erased[session_id, user_id, id_] = None

    def _of(self, session_id: str, user_id: str | None) -> list[tuple[Thread, str | None]]:
        return [key for key in self._lists if (key[0].session_id, key[0].user_id) == (session_id, user_id)]

    def erase_behind(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Count as erased what was said with erased messages of a list and was never stored.

        The newest question is kept, if it is new. Others before it may be a part of it, unless they were answered, or
        the whole session was erased: then they may have been said before.
        """
        session, erased = self._erased_in(thread, messages)
        if session is None or not erased:
            return
        known = erased | self._stored_in(session, messages)
        asked = max((n for n, one in enumerate(messages) if isinstance(one, HumanMessage)), default=-1)
        end = asked if asked >= 0 and messages[asked].id not in known else len(messages)
        found: list[BaseMessage] = []
        behind = False
        for message in messages[:end]:
            if message.id in known:
                behind = message.id in erased
            elif behind:
                found.append(message)
        if found and self._store.find(session, After(0, 1)):
            while found and isinstance(found[-1], HumanMessage):
                found.pop()
        self._erase_unstored(thread, found)

    def erase_brought(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Count as erased what a refused run brought to a list: what follows all that is known, and an answer.

        Raises:
            StoreError: the store cannot be read or written.
        """
        session, erased = self._erased_in(thread, messages)
        known = erased | self._stored_in(session, messages)
        start = max((n for n, message in enumerate(messages, start=1) if message.id in known), default=0)
        brought = dropwhile(lambda message: isinstance(message, AIMessage | ToolMessage), messages[start:])
        self._erase_unstored(thread, list(brought))

    def _erased_in(self, thread: Thread, messages: Sequence[BaseMessage]) -> tuple[int | None, Set[str | None]]:
        """Return the session of a thread, None: there is none, and the ids of the messages that were erased there."""
        key, ids = None, _ids(messages)
        if thread.stable_ids and thread.session_id is not None and ids:
            key = self._store.session(thread.user_id, thread.session_id)
        return key, set() if key is None else set(self._store.are_forgotten(key, ids))

    def _stored_in(self, session: int | None, messages: Sequence[BaseMessage]) -> Set[str | None]:
        return set() if session is None else {one.message.id for one in self._store.get(session, _ids(messages))}

    def _erase_unstored(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        ids = tuple(_ids(messages))
        if not ids or not thread.stable_ids or thread.session_id is None:
            return
        logger.info("thread_id=%r: left out with what was erased: %s", thread.thread_id, ", ".join(ids))
        key = self._store.create_session(thread.user_id, thread.session_id)
        self._store.restore(key, Restored(forgotten=ids))
        with self._lock:
            for id_ in ids:
                self._erased[thread.session_id, thread.user_id, id_] = None

    def without_erased(self, thread: Thread, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages of a thread's list that were not erased, as far as this object knows."""
        session = thread.session_id, thread.user_id
        with self._lock:
            return [message for message in messages if (*session, message.id) not in self._erased]


def _ids(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.id for message in messages if message.id is not None]


def _kept_by(thread: Thread) -> tuple[Any, Thread]:
    """Return a thread with its checkpointer, if that may have lost it with an earlier process."""
    return thread.saver if thread.in_memory else None, thread


def _history(record: ThreadRecord) -> FollowedHistory:
    """Return what was said before a list, as a history that the list continues."""
    before = record.before or ()
    return FollowedHistory(before, (False,) * len(before))


def _pairs(followed: Followed) -> list[tuple[str | None, str | None]]:
    return list(zip(followed.history.ids, followed.own, strict=True))


def _ids_before(memory: InfiniteMemory, followed: Followed) -> tuple[str, ...]:
    """Return the ids of the messages before a list on the line that is checked out, the nearest last."""
    first = next((id_ for id_ in followed.history.ids if id_ is not None), None)
    messages = memory.newest(len(followed.digests) + NEAREST)
    at = next((index for index, message in enumerate(messages) if message.id == first), 0)
    return tuple(message.id for message in messages[:at] if message.id is not None and message.role != "system")


def _holds_any(memory: InfiniteMemory, messages: Sequence[BaseMessage]) -> bool:
    return any(_is_stored(memory, message.id) for message in reversed(messages))


def _is_stored(memory: InfiniteMemory, id_: str | None) -> bool:
    try:
        return id_ is not None and memory.get(id_).id == id_
    except UnknownReferenceError:
        return False


def _is_summary(message: BaseMessage) -> bool:
    if not isinstance(message, HumanMessage):
        return False
    said = message.content
    marked = message.additional_kwargs.get("lc_source") == SUMMARY
    return marked or (isinstance(said, str) and said.startswith(SUMMARY_BEGINS))


def _followed(listed: StateList, history: FollowedHistory, digests: tuple[int, ...] | None = None) -> Followed:
    own = tuple(message.id for message in listed.talk)
    return Followed(tuple(map(_digest, listed.talk)) if digests is None else digests, own, history)


_PLAIN = (str, int, float, type(None))


def _digest(message: BaseMessage) -> int:
    """Return a number that is another one, in this process, once a message has been changed."""
    return hash((type(message), _frozen(message.__dict__)))


def _frozen(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return tuple(value), tuple(map(_frozen, value.values()))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else repr(value)


def _common_start(old: Sequence[int], new: Sequence[int]) -> int:
    """Return how many messages at the beginning are the same."""
    for index, (before, now) in enumerate(zip(old, new, strict=False)):
        if before != now:
            return index
    return min(len(old), len(new))


def _engine_message(message: BaseMessage, *, stable_id: bool) -> Message:
    converted, lost = read_message(message)
    if lost:
        logger.warning("message %s is stored without %s", message.id, ", ".join(lost))
    return converted if stable_id else converted.replace(id=None)
