"""The message lists of graphs as they were followed last, so that only what is new in them has to be looked at."""

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import dropwhile
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_infinite_memory.identity import Newest, Thread
from langchain_infinite_memory.messages import read_message
from langchain_infinite_memory.request_view import split_system
from shared_core.errors import UnknownReferenceError
from shared_core.history.followed import FollowedHistory
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.records import MAIN, After, Restored
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.store import Store

logger = logging.getLogger("langchain_infinite_memory")

LISTS = 128
"""How many lists are remembered, the newest ones."""

NEAREST = 16
"""How many messages before a list are remembered, of which some may be forgotten."""

ANCHORS = 4096
"""How many threads are remembered that go on where another list ended, or whose checkpointer is in memory."""

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


@dataclass(frozen=True)
class Known:
    """What a session knows of the messages of a list.

    Args:
        store: the store.
        session: the session's key; None: there is none yet.
        ids: the ids of the messages.
    """

    store: Store
    session: int | None
    ids: Sequence[str]

    @cached_property
    def erased(self) -> Set[str]:
        """The ids of those that were erased."""
        return self.store.are_forgotten(self.session, self.ids) if self.session is not None else set()

    @cached_property
    def stored(self) -> Set[str | None]:
        """The ids of those that are stored."""
        records = self.store.get(self.session, self.ids) if self.session is not None else []
        return {record.message.id for record in records}

    @property
    def is_empty(self) -> bool:
        """Whether the session holds no messages at all."""
        return self.session is None or not self.store.find(self.session, After(0, 1))

    def has(self, message: BaseMessage) -> bool:
        """Return whether a message is stored, or was erased."""
        return message.id in self.erased or message.id in self.stored


Choose = Callable[[Sequence[BaseMessage], Known], list[BaseMessage]]
"""Returns those messages of a list that count as erased."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a list begins on its line. What was said before is not in the list, and was not taken back.

    Attributes:
        before: the ids of the stored messages before the list, the nearest last.
        summary: the id of the summary that stands for what was said before. None: the session was named for the run.
    """

    before: tuple[str, ...] = ()
    summary: str | None = None

    @property
    def history(self) -> FollowedHistory:
        """What was said before, as a history that the list continues."""
        return FollowedHistory(self.before, (False,) * len(self.before))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"before": list(self.before), "summary": self.summary}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Anchor":
        """Return what `to_dict` was called on."""
        return cls(tuple(data["before"]), data["summary"])


@dataclass(frozen=True, slots=True)
class Followed:
    """A list as it was followed last.

    Attributes:
        messages: copies of the list's messages, because the caller may change them in place.
        history: what the engine returned for it.
        by_id: the list's own messages, by the ids under which they are stored.
    """

    messages: Sequence[BaseMessage] = ()
    history: FollowedHistory = field(default_factory=FollowedHistory)
    by_id: Mapping[str, BaseMessage] = field(default_factory=dict)

    @property
    def newest(self) -> str | None:
        """The id of the newest message that is stored."""
        return next((id_ for id_ in reversed(self.history.ids) if id_ is not None), None)

    @property
    def is_asked(self) -> bool:
        """Whether its newest question, or anything of a list without questions, is stored. If not, it was erased."""
        newest_first = zip(reversed(self.messages), reversed(self.history.ids), strict=True)
        asked = next((id_ for message, id_ in newest_first if isinstance(message, HumanMessage)), self.newest)
        return asked is not None or not self.messages

    def is_start_of(self, listed: StateList) -> bool:
        """Return whether a list goes on from this one, so that nothing in it was taken back."""
        return _common_start(self.messages, listed.talk) == len(self.messages)


def read_list(messages: Sequence[BaseMessage]) -> StateList:
    """Read a graph's list of messages."""
    _, rest = split_system(messages)
    summary = rest[0].id if rest and _is_summary(rest[0]) else None
    return StateList([message for message in rest if not _is_summary(message)], summary)


def follow_whole(memory: InfiniteMemory, listed: StateList, before: Followed | None = None) -> Followed:
    """Follow a list that is everything there is, from where it was followed last, if it goes on from there."""
    start = before or Followed()
    known = start.messages
    given = [_engine_message(message, stable_id=True) for message in listed.talk[len(known) :]]
    return _followed(listed.talk, memory.follow(given, after=start.history, removed="leave_out"), known)


class FollowedLists:
    """Follows the lists of threads, each from where it was the last time.

    The lists of one run begin with the same message. Two runs at once are followed apart, each from its own list.

    Args:
        store: the store of their sessions.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lists: Newest[tuple[Thread, str | None], Followed] = Newest(LISTS)
        self._anchors: Newest[Thread, Anchor] = Newest(ANCHORS)
        self._seen: Newest[tuple[Any, Thread], None] = Newest(ANCHORS)
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
        same = _common_start(before.messages, listed.talk)
        self.erase_unstored(thread, listed.talk[max(0, same - 1) :], unstored_behind)
        given = [_engine_message(message, stable_id=thread.stable_ids) for message in listed.talk[same:]]
        anchor = self.anchor(thread)
        first_seen = self._is_restarted(thread) or (anchor is None and thread.named)
        if first_seen and not listed.talk:  # a thread that has said nothing yet takes nothing back
            memory.checkout(MAIN)
            return Followed()
        begins = _begins_elsewhere(anchor, thread, listed, first_seen=first_seen)
        after, since = before.history.upto(same), None
        if not same and begins:
            after, since = self._beginning(memory, thread, listed)
        elif anchor is not None and anchor.summary != listed.summary:
            anchor = None  # the summary was taken back, too
        elif not same and anchor is not None:
            after = anchor.history
        history = memory.follow(given, after=after, removed=thread.removed, since=since)
        start = len(history) - len(listed.talk)
        history = FollowedHistory(history.ids[start:], history.prompts[start:])
        if aside:
            if memory.branch == MAIN:
                memory.checkout(memory.set_aside())
        elif thread.removed == "leave_out" or memory.branch is not None:
            memory.make_main()  # without a checkpointer, a list may end before what others have said since
        branch = memory.branch if thread.removed == "keep" else None
        followed = _followed(listed.talk, replace(history, branch=branch), before.messages[:same])
        if begins:
            anchor = Anchor(_ids_before(memory, followed), listed.summary)
        self._keep(thread, listed, followed, anchor)
        return followed

    def _beginning(
        self, memory: InfiniteMemory, thread: Thread, listed: StateList
    ) -> tuple[FollowedHistory, str | None]:
        """Return what a list continues that does not begin its conversation: a history, or what is before a message."""
        end = self._last_of(thread).history
        if len(end) and not _holds_any(memory, listed.talk):
            return end, None
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

    def anchor(self, thread: Thread) -> Anchor | None:
        """Return where what the list of a thread stands for begins; None: at the beginning of its session."""
        with self._lock:
            return self._anchors.get(thread)

    def set_anchor(self, thread: Thread, anchor: Anchor) -> None:
        """Note where the list of a thread begins, as its state says, unless it is known."""
        with self._lock:
            if self._is_restarted(thread):
                self._anchors[thread] = anchor
                self._see(thread)
            self._anchors.setdefault(thread, anchor)

    def _before(self, thread: Thread, listed: StateList) -> Followed | None:
        with self._lock:
            return self._lists.get((thread, listed.first))

    def stored_part(self, memory: InfiniteMemory, thread: Thread, listed: StateList) -> StateList:
        """Return the part of a list that ends with its newest stored message."""
        # Without ids that last, messages are stored under others.
        known = {message.id for message in self._last_of(thread).messages if message.id is not None}
        for end in range(len(listed.talk), 0, -1):
            if (id_ := listed.talk[end - 1].id) in known or _is_stored(memory, id_):
                return StateList(listed.talk[:end], listed.summary)
        return StateList([])

    def _last_of(self, thread: Thread) -> Followed:
        """Return the list of a thread that was followed last."""
        with self._lock:
            lists = (followed for (other, _), followed in reversed(self._lists.items()) if other == thread)
            return next(lists, Followed())

    def _is_restarted(self, thread: Thread) -> bool:
        """Return whether the thread's checkpointer may have lost what was said; if it was seen, it was deleted."""
        return thread.in_memory is not None and (thread.in_memory, thread) not in self._seen

    def _see(self, thread: Thread) -> None:
        if thread.in_memory is not None:
            self._seen[thread.in_memory, thread] = None

    def _keep(self, thread: Thread, listed: StateList, followed: Followed, anchor: Anchor | None) -> None:
        with self._lock:
            self._see(thread)
            self._lists[thread, listed.first] = followed
            self._anchors.pop(thread, None)
            if anchor is not None:
                self._anchors[thread] = anchor

    def stored_ids(self, memory: InfiniteMemory, message_ids: Sequence[str]) -> list[str]:
        """Return the ids under which messages of a session are stored; those that are not are left out."""
        session = memory.session_id, memory.user_id
        with self._lock:
            lists = [one for (thread, _), one in self._lists.items() if (thread.session_id, thread.user_id) == session]
        edited = {id_ for one in lists for id_, message in one.by_id.items() if message.id in message_ids}
        return [id_ for id_ in dict.fromkeys([*message_ids, *edited]) if _is_stored(memory, id_)]

    def erase(self, session_id: str, user_id: str | None, ids: Sequence[str]) -> None:
        """Forget the lists of a session, of which the messages stored under these ids were erased."""
        session = session_id, user_id
        with self._lock:
            keys = [key for key in self._lists if (key[0].session_id, key[0].user_id) == session]
            erased, known = set(ids), [pair for key in keys for pair in self._lists.pop(key).by_id.items()]
            own = [message.id for id_, message in known if id_ in erased and message.id is not None]
            for id_ in (*ids, *own):
                self._erased[*session, id_] = None

    def erase_unstored(self, thread: Thread, messages: Sequence[BaseMessage], choose: "Choose") -> None:
        """Count messages of a list as erased that are not stored, so that they are neither stored nor sent from now on.

        Args:
            thread: whose list it is.
            messages: the list, or its end, as far as it may hold such messages.
            choose: returns those to erase.

        Raises:
            StoreError: the store cannot be read or written.
        """
        ids = [message.id for message in messages if message.id is not None]
        if not thread.stable_ids or thread.session_id is None or not ids:
            return
        known = Known(self._store, self._store.session(thread.user_id, thread.session_id), ids)
        chosen = [message.id for message in choose(messages, known) if message.id is not None]
        if not chosen:
            return
        key = self._store.create_session(thread.user_id, thread.session_id)
        logger.info("thread_id=%r: left out with what was erased: %s", thread.thread_id, ", ".join(chosen))
        self._store.restore(key, Restored(forgotten=tuple(chosen)))
        with self._lock:
            for id_ in chosen:
                self._erased[thread.session_id, thread.user_id, id_] = None

    def without_erased(self, thread: Thread, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the messages of a thread's list that were not erased, as far as this object knows."""
        session = thread.session_id, thread.user_id
        with self._lock:
            return [message for message in messages if (*session, message.id) not in self._erased]


def unstored_behind(messages: Sequence[BaseMessage], known: Known) -> list[BaseMessage]:
    """Return what was said with messages that were erased: what is not stored and stands behind them.

    The newest question is kept, if it is new. Others may be a part of it, unless they were answered, or the whole
    session was erased: then they may have been said before.
    """
    if not known.erased:
        return []
    asked = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
    end = asked[-1] if asked and not known.has(messages[asked[-1]]) else len(messages)
    found: list[BaseMessage] = []
    behind = False
    for message in messages[:end]:
        if known.has(message):
            behind = message.id in known.erased
        elif behind:
            found.append(message)
    while found and isinstance(found[-1], HumanMessage) and not known.is_empty:
        found.pop()
    return found


def said_by_another(messages: Sequence[BaseMessage], known: Known) -> list[BaseMessage]:
    """Return what a refused run brought to a list: all that follows what is known, and an answer that is not stored."""
    start = max((index for index, message in enumerate(messages, start=1) if known.has(message)), default=0)
    return list(dropwhile(lambda message: isinstance(message, AIMessage | ToolMessage), messages[start:]))


def _begins_elsewhere(anchor: Anchor | None, thread: Thread, listed: StateList, *, first_seen: bool) -> bool:
    """Return whether a list, for the first time, goes on where a summary or another list of the session ends."""
    if thread.removed == "keep" or listed.first is None:
        return False
    if listed.summary is not None:
        return anchor is None or anchor.summary != listed.summary
    return first_seen


def _ids_before(memory: InfiniteMemory, followed: Followed) -> tuple[str, ...]:
    """Return the ids of the messages before a list on the line that is checked out, the nearest last."""
    first = next((id_ for id_ in followed.history.ids if id_ is not None), None)
    messages = memory.newest(len(followed.messages) + NEAREST)
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
    return message.additional_kwargs.get("lc_source") == SUMMARY or str(message.text).startswith(SUMMARY_BEGINS)


def _followed(
    messages: Sequence[BaseMessage], history: FollowedHistory, copies: Sequence[BaseMessage] = ()
) -> Followed:
    """Return a list as it was followed; `copies` are those of its first messages."""
    pairs = zip(history.ids, messages, strict=True)
    kept = [*copies, *map(_copied, messages[len(copies) :])]
    return Followed(kept, history, {id_: message for id_, message in pairs if id_ is not None})


def _copied(message: BaseMessage) -> BaseMessage:
    """Return a copy that stays as it is. Values that are neither lists nor mappings, such as artifacts, are shared."""
    return message.model_copy(update={name: _plain_copy(value) for name, value in message.__dict__.items()})


def _plain_copy(value: Any) -> Any:
    if type(value) is list:
        return [_plain_copy(one) for one in value]
    return {key: _plain_copy(one) for key, one in value.items()} if type(value) is dict else value


def _common_start(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """Return how many messages at the beginning are the same."""
    for index, (before, now) in enumerate(zip(old, new, strict=False)):
        if not _same(before, now):
            return index
    return min(len(old), len(new))


def _same(one: BaseMessage, other: BaseMessage) -> bool:
    """Return whether two messages are equal or, if they hold values such as arrays, whether they are stored alike."""
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return read_message(one) == read_message(other)


def _engine_message(message: BaseMessage, *, stable_id: bool) -> Message:
    converted, lost = read_message(message)
    if lost:
        logger.warning("message %s is stored without %s", message.id, ", ".join(lost))
    return converted if stable_id else converted.replace(id=None)
