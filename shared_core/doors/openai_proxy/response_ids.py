"""The responses that a request may go on after, and the items in them that it may refer to.

The answer in a response is stored under the response's id, with the ids of its items.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from shared_core.display import short
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.responses_items import ids_of
from shared_core.history.followed import FollowedHistory
from shared_core.history.unnamed import sessions_saying
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.queries import After
from shared_core.records import Position, Record, SessionKey
from shared_core.session.paths import walk
from shared_core.store import Store

NAMES_READ = 16
"""How many names of answers in responses with one id are read at a time."""

CALLS_SOUGHT = 128
"""How many messages up to a response are looked through for the call of a result. Almost always, the first has it."""

PAGE = 512
"""How many messages are looked through at a time for the items that a request refers to."""

SEARCHED = 64
"""How many conversations that say the same are looked through for such items; the newest."""


def _name(response_id: str, number: int) -> str:
    """Return the id of the message with the answer of a response, if it is the `number`-th of its id in a conversation.

    Most servers make ids that are unique. Ollama draws them from a million, and some programs number every response
    alike.
    """
    return response_id if number == 1 else f"{response_id}~{number}"


def _free_number(store: Store, session: int, response_id: str) -> int:
    """Return the number of the next answer in a response with this id; the numbers of erased answers are not free."""

    def free(number: int) -> bool:
        names = [_name(response_id, number)]
        return not store.get(session, names) and not store.are_forgotten(session, names)

    end = 1
    while not free(end):
        end *= 2
    first = end // 2 + 1  # all numbers up to the half are taken
    return first + bisect_left(range(first, end), True, key=free)


def answer_named(
    store: Store, user_id: str | None, session_id: str | None, response_id: str, messages: Sequence[Message] = ()
) -> tuple[str, FollowedHistory]:
    """Return the conversation that holds the answer of a response, and that answer as the history to go on after.

    Of several responses with this id, the newest is meant.

    Args:
        store: the store, as the user sees it.
        user_id: whose conversations are looked through.
        session_id: the conversation. None: any of the user's.
        response_id: the id of the response.
        messages: what is said after it.

    Raises:
        Refused: with 400, if there is none, or if a result among the messages has no call.
    """
    found = [
        (record.message.created_at, record.seq, session, record)
        for session in _sessions(store, user_id, session_id, response_id)
        if (record := _newest(store, session.key, response_id)) is not None
    ]
    if not found:
        text = "previous_response_id: no such response is stored; send the history as input instead"
        raise Refused(400, text, code="previous_response_not_found")
    *_, session, record = max(found, key=lambda one: (one[0] is not None, one[0], one[1], one[2].key))
    _check_results(store, session.key, record, messages)
    own = record.message.id or ""
    return session.session_id, FollowedHistory((own,), (False,))


def _check_results(store: Store, session: int, answer: Record, messages: Sequence[Message]) -> None:
    """Check that every result among messages that go on after an answer has its call.

    A prompt holds no result without its call: the model would answer as if the client had not sent it.

    Raises:
        Refused: with 400, if a call is neither among the messages nor among the `CALLS_SOUGHT` up to the answer.
    """
    wanted = {message.tool_call_id for message in messages if message.tool_call_id is not None}
    wanted -= _calls([*messages, answer.message])
    spans = walk(answer.position, lambda segment: store.segment(session, segment)).spans if wanted else ()
    left = CALLS_SOUGHT
    for span in reversed(spans):
        records = store.newest(session, Position(span.segment, span.upto), left) if left and wanted else ()
        own = [record.message for record in records if record.position.depth >= span.start]
        wanted -= _calls(own)
        left -= len(own)
    if wanted:
        text = f"input: the call {short(min(wanted))} of a result is not stored; send the call before its result"
        raise Refused(400, text, code="tool_call_not_found")


def _calls(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages for call in message.tool_calls}


def _sessions(store: Store, user_id: str | None, session_id: str | None, response_id: str) -> list[SessionKey]:
    """Return the sessions that may hold the answer of a response."""
    if session_id is not None:
        key = store.session(user_id, session_id)
        return [] if key is None else [SessionKey(key, user_id, session_id)]
    first, second = (store.sessions_with(user_id, _name(response_id, number)) for number in (1, 2))
    found = list(dict.fromkeys((*first, *second)))
    # Both may be erased, and others of this id stored; that is rare, and the answer to it may take its time.
    return found or [one for one in store.sessions(user_id) if store.are_forgotten(one.key, [response_id])]


def _newest(store: Store, session: int, response_id: str) -> Record | None:
    """Return the newest answer of a conversation that came in a response with this id; None: there is none."""
    for end in range(_free_number(store, session, response_id), 1, -NAMES_READ):
        names = [_name(response_id, number) for number in range(max(1, end - NAMES_READ), end)]
        found = [record for record in store.get(session, names) if record.message.role == "assistant"]
        if found:
            return max(found, key=lambda record: record.seq)
    return None


def messages_with(
    store: Store, user_id: str | None, session_id: str | None, ids: Sequence[str], messages: Sequence[Message]
) -> Mapping[str, Sequence[Record]]:
    """Return the stored messages that have items of some ids, in the order of storing, of one conversation.

    None, if it was forgotten. An id that may never have been stored is not among them.

    Args:
        store: the store, as the user sees it.
        user_id: whose conversations are looked through.
        session_id: the conversation. None: one of the user's that says what the messages do.
        ids: the ids, as often as the request refers to them.
        messages: the messages of the request; the newest question is new.
    """
    if session_id is not None:
        key = store.session(user_id, session_id)
        return {} if key is None else _having(store, key, ids)
    asked = [message for message in messages if message.role == "user"]
    best: Mapping[str, Sequence[Record]] = {}
    for one in sessions_saying(store, user_id, asked[:-1] or asked)[: -SEARCHED - 1 : -1]:
        found = _having(store, one.key, ids)
        best = max(found, best, key=lambda one: sum(map(bool, one.values())))
        if all(best.get(id_) for id_ in ids):
            break
    return best


def _having(store: Store, session: int, ids: Sequence[str]) -> Mapping[str, Sequence[Record]]:
    wanted, state = Counter(ids), store.state(session)
    # What is not there may have been forgotten.
    found: dict[str, list[Record]] = {one: [] for one in ids} if state.epoch > 0 else {}
    end = state.last_seq
    while end > 0 and wanted:
        start = max(0, end - PAGE)
        for record in reversed(store.find(session, After(start, end - start))):
            for one in ids_of(record.message) if record.seq <= end else ():
                if wanted[one] > 0:
                    wanted[one] -= 1
                    found.setdefault(one, []).insert(0, record)
        end, wanted = start, +wanted
    return found


def to_be_named(store: Store, memory: InfiniteMemory, answer: Sequence[Message]) -> tuple[Message, ...]:
    """Return an answer as it is to be stored: its last message has the id of the response, or a free one like it."""
    *others, last = answer
    key = None if last.id is None else store.session(memory.user_id, memory.session_id)
    if last.id is None or key is None:
        return (*others, last)
    return (*others, last.replace(id=_name(last.id, _free_number(store, key, last.id))))


def keep_name(memory: InfiniteMemory, stored: Sequence[Message], followed: FollowedHistory) -> None:
    """See to it that the last of some messages is found by its id.

    Of two responses to a question that say the same, `follow` takes the second one for the first. A client may go on
    after either, so the second one is a message of its own, on a branch.

    Args:
        memory: the memory of the conversation.
        stored: the messages.
        followed: what `follow` returned for them.
    """
    last = stored[-1]
    if last.id is None or followed.ids[-1] == last.id:
        return
    before = followed.ids[-2] if len(followed) > 1 else None
    if before is not None:
        memory.checkout(before)
    memory.add(last)
