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
from langchain_infinite_memory.sessions import SessionKey, is_stored
from shared_core.history.followed import FollowedHistory
from shared_core.history.forms import families
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
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
        history: what the engine returned for it.
    """

    digests: tuple[int, ...] = ()
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
        """Return whether a list begins with it, so that nothing in it was taken back."""
        return _common_start(self.digests, [_digest(message) for message in listed.talk]) == len(self.digests)


def read_list(messages: Sequence[BaseMessage]) -> StateList:
    """Read a graph's list of messages."""
    _, rest = split_system(messages)
    summary = rest[0].id if rest and _is_summary(rest[0]) else None
    return StateList([message for message in rest if not _is_summary(message)], summary)


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
        self._erased_here: Newest[SessionKey, Set[str | None]] = Newest(REMEMBERED, weight=lambda ids: 1 + len(ids))
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
        known, digests = self._known(thread, listed) or Followed(), tuple(map(_digest, listed.talk))
        same = _common_start(known.digests, digests)
        self.erase_answers(thread, listed.talk[max(0, same - 1) :])
        record = self._start(thread, listed)
        if record is None and not listed.talk:  # a thread that has said nothing yet takes nothing back
            memory.checkout(MAIN)
            return Followed()
        after, since = known.history.upto(same), None
        if not same:
            after, since = self._first_followed(memory, thread, listed) if record is None else (_history(record), None)
        given = [_engine_message(message, stable_id=thread.stable_ids) for message in listed.talk[same:]]
        history = memory.follow(given, after=after, removed=thread.removed, since=since)
        start = len(history) - len(listed.talk)
        history = FollowedHistory(history.ids[start:], history.prompts[start:])
        if aside:
            if memory.branch == MAIN:
                memory.checkout(memory.rewind())
        elif thread.removed == "leave_out" or memory.branch is not None:
            memory.make_main()  # without a checkpointer, a list may end before what others have said since
        followed = Followed(digests, replace(history, branch=memory.branch if thread.removed == "keep" else None))
        before = record.before if record is not None else _ids_before(memory, followed)
        with self._lock:
            self._lists[thread, listed.first] = followed
            self._records[_kept_by(thread)] = ThreadRecord(
                thread.owner, thread.session_id, followed.newest, before, listed.summary
            )
        return followed

    def _start(self, thread: Thread, listed: StateList) -> ThreadRecord | None:
        """Return what tells where a list begins on its line; None: it goes on where a summary or another list ends."""
        if thread.removed == "keep":
            return ThreadRecord(before=[])
        records = [one for one in (self.record(thread), thread.record) if one is not None and one.before is not None]
        for one in records:
            if one.summary == listed.summary:
                return one
        # A checkpointer in memory that this process has not seen before has lost what was said.
        continues = not records and (thread.named or thread.in_memory)
        return None if continues or listed.summary is not None else ThreadRecord(before=[])

    def _first_followed(
        self, memory: InfiniteMemory, thread: Thread, listed: StateList
    ) -> tuple[FollowedHistory, str | None]:
        """Return what a list continues that does not begin its conversation: a history, or what is before a message."""
        record = self.record(thread) or thread.record
        if record is not None and record.newest is not None and not self.stored_part(memory, listed).talk:
            return FollowedHistory((record.newest,), (False,)), None
        memory.checkout(MAIN)  # after whose end a list comes of which nothing is stored
        return FollowedHistory(), listed.first

    def newest(self, thread: Thread, listed: StateList) -> str | None:
        """Return the id of the newest message of a list that is stored, as far as the list was followed."""
        followed = self._known(thread, listed)
        return followed.newest if followed is not None else None

    def is_continued(self, thread: Thread, listed: StateList) -> bool:
        """Return whether a list goes on from where it was followed last, so that nothing in it was taken back."""
        followed = self._known(thread, listed)
        return followed is not None and followed.is_start_of(listed)

    def record(self, thread: Thread) -> ThreadRecord | None:
        """Return what to record of a thread; None: none of its lists was followed."""
        with self._lock:
            return self._records.get(_kept_by(thread))

    def _known(self, thread: Thread, listed: StateList) -> Followed | None:
        with self._lock:
            return self._lists.get((thread, listed.first))

    def stored_part(self, memory: InfiniteMemory, listed: StateList) -> StateList:
        """Return the part of a list that ends with its newest stored message."""
        for end in range(len(listed.talk), 0, -1):
            if is_stored(memory, listed.talk[end - 1].id):
                return StateList(listed.talk[:end], listed.summary)
        return StateList([])

    # Erasing

    def forms(self, memory: InfiniteMemory, message_ids: Sequence[str]) -> list[str]:
        """Return the ids of messages with those of their edited forms and copies; what is not stored is left out."""
        key = self._store.session(memory.user_id, memory.session_id)
        if key is None:
            return []
        found = families(self._store, key, self._store.get(key, message_ids)).values()
        return list(dict.fromkeys(one.message.id for family in found for one in family if one.message.id is not None))

    def drop(self, session: SessionKey, erased: Sequence[str]) -> None:
        """Follow the lists of a session anew, of which messages were erased."""
        with self._lock:
            for key in [key for key in self._lists if (key[0].session_id, key[0].user_id) == session]:
                del self._lists[key]
            self._erased_here[session] = {*self._erased_here.get(session, ()), *erased}

    def known_erased(self, thread: Thread, listed: StateList) -> Set[str | None]:
        """Return the ids of messages that were erased, as far as this process knows without the store."""
        followed = self._known(thread, listed) or Followed()
        same = _common_start(followed.digests, [_digest(message) for message in listed.talk])
        pairs = zip(listed.talk[:same], followed.history.ids, strict=False)
        with self._lock:
            here = self._erased_here.get((thread.session_id, thread.user_id), frozenset())
        return {*here, *(message.id for message, id_ in pairs if id_ is None)} - {None}

    def erase_answers(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Count as erased what answers an erased message and was never stored, such as calls of a run that waits."""
        session, erased = self._erased(thread, messages)
        stored = self._stored(session, messages) if erased else set()
        answers, behind = list[BaseMessage](), False
        for message in messages if erased else ():
            if message.id in erased or message.id in stored:
                behind = message.id in erased
            elif isinstance(message, HumanMessage):
                behind = False
            elif behind:
                answers.append(message)
        self._erase(thread, answers)

    def erase_brought(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Count as erased what a refused run brought to a list: what follows all that is known, and an answer.

        Raises:
            StoreError: the store cannot be read or written.
        """
        session, erased = self._erased(thread, messages)
        known = erased | self._stored(session, messages)
        start = max((n for n, message in enumerate(messages, start=1) if message.id in known), default=0)
        brought = dropwhile(lambda message: isinstance(message, AIMessage | ToolMessage), messages[start:])
        self._erase(thread, list(brought))

    def _erased(self, thread: Thread, messages: Sequence[BaseMessage]) -> tuple[int | None, Set[str | None]]:
        """Return the session of a thread, None: there is none, and the ids of the messages that were erased there."""
        session, ids = None, _ids(messages)
        if thread.stable_ids and ids:
            session = self._store.session(thread.user_id, thread.session_id)
        return session, set() if session is None else {*self._store.are_forgotten(session, ids)}

    def _stored(self, session: int | None, messages: Sequence[BaseMessage]) -> Set[str | None]:
        return set() if session is None else {one.message.id for one in self._store.get(session, _ids(messages))}

    def _erase(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        ids = tuple(_ids(messages))
        if ids:
            logger.info("thread_id=%r: left out with what was erased: %s", thread.thread_id, ", ".join(ids))
            session = self._store.create_session(thread.user_id, thread.session_id)
            self._store.restore(session, Restored(forgotten=ids))


def _ids(messages: Sequence[BaseMessage]) -> list[str]:
    return [message.id for message in messages if message.id is not None]


def _kept_by(thread: Thread) -> tuple[Any, Thread]:
    """Return a thread with its checkpointer, if that may have lost it with an earlier process."""
    return thread.saver if thread.in_memory else None, thread


def _history(record: ThreadRecord) -> FollowedHistory:
    """Return what was said before a list, as a history that the list continues."""
    before = record.before or []
    return FollowedHistory(tuple(before), (False,) * len(before))


def _ids_before(memory: InfiniteMemory, followed: Followed) -> list[str]:
    """Return the ids of the messages before a list on the line that is checked out, the nearest last."""
    first = next((id_ for id_ in followed.history.ids if id_ is not None), None)
    messages = memory.newest(len(followed.digests) + NEAREST)
    at = next((index for index, message in enumerate(messages) if message.id == first), 0)
    return [message.id for message in messages[:at] if message.id is not None and message.role != "system"]


def _is_summary(message: BaseMessage) -> bool:
    if not isinstance(message, HumanMessage):
        return False
    said = message.content
    marked = message.additional_kwargs.get("lc_source") == SUMMARY
    return marked or (isinstance(said, str) and said.startswith(SUMMARY_BEGINS))


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
