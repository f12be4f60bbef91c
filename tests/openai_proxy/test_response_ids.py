"""Answers in responses that have one id: each is stored, and the newest is the one to go on after."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.doors.openai_proxy.identity import LONGEST_RESPONSE_ID
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.response_ids import answer_named, keep_name, to_be_named
from shared_core.doors.openai_proxy.responses_request import read_responses_request
from shared_core.history.followed import FollowedHistory
from shared_core.store import Store
from tests.support.histories import CountingStore

_SECONDS = count()


def answered(store: Store, session: str, text: str, previous: FollowedHistory | None = None) -> FollowedHistory:
    """Store a question and its answer, which comes in the response `resp_0`; return the history to go on after."""
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=next(_SECONDS))
    with InfiniteMemory(store, session_id=session) as memory:
        followed = memory.follow([Message.user(f"{text}?", created_at=now)], after=previous or FollowedHistory())
        answer = to_be_named(store, memory, [Message.assistant(text, id="resp_0", created_at=now)])
        keep_name(memory, answer, memory.follow(answer, after=followed))
    return answer_named(store, None, None, "resp_0")[1]


def newest(store: Store, session_id: str | None = None) -> tuple[str, str]:
    """Return the conversation and the text of the answer that `resp_0` means."""
    session, history = answer_named(store, None, session_id, "resp_0")
    with InfiniteMemory(store, session_id=session) as memory:
        return session, memory.get(history.ids[-1] or "").content


def forget(store: Store, session: str, numbers: Iterable[int]) -> None:
    """Erase answers of a conversation by their numbers, from 1."""
    with InfiniteMemory(store, session_id=session) as memory:
        memory.forget(ids=["resp_0" if number == 1 else f"resp_0~{number}" for number in numbers])


def test_of_many_answers_the_newest_is_meant_wherever_others_are_erased(store: Store) -> None:
    said = [f"Answer {number}" for number in range(40)]
    last = None
    for text in said:
        last = answered(store, "one", text, last)
        assert newest(store) == ("one", text)
    with InfiniteMemory(store, session_id="one") as memory:
        assert [one.content for one in memory.messages() if one.role == "assistant"] == said
    answered(store, "other", "Yes")
    assert (newest(store), newest(store, "one")) == (("other", "Yes"), ("one", said[-1]))
    forget(store, "other", [1])
    assert newest(store) == ("one", said[-1])
    for numbers in ([1], [2], range(3, 21)):
        forget(store, "one", numbers)
        assert newest(store) == ("one", said[-1])
    forget(store, "one", range(22, 41))
    assert newest(store) == ("one", said[20])
    answered(store, "one", "Anew", answer_named(store, None, None, "resp_0")[1])
    assert newest(store) == ("one", "Anew")
    forget(store, "one", [21, 41])
    with pytest.raises(Refused, match="no such response"):
        newest(store)


def test_an_id_is_looked_up_in_as_many_reads_as_its_number_has_digits(store: CountingStore) -> None:
    last, reads = None, []
    for number in range(64):
        last = answered(store, "one", f"Answer {number}", last)
        before = store.calls.total()
        answer_named(store, None, None, "resp_0")
        reads.append(store.calls.total() - before)
    assert reads[0] <= 8
    assert reads[63] <= 32


def test_a_long_id_can_be_gone_on_after(store: Store) -> None:
    """Gateways encode the model, the server and the id there into an id of their own."""
    long = "r" * LONGEST_RESPONSE_ID
    with InfiniteMemory(store, session_id="one") as memory:
        memory.add([Message.user("Hello"), *to_be_named(store, memory, [Message.assistant("Yes.", id=long)])])
    previous = read_responses_request({"input": "And now?", "previous_response_id": long}).previous
    assert previous is not None
    assert answer_named(store, None, None, previous)[1].ids == (long,)
    with pytest.raises(Refused, match="1 to 2048 characters"):
        assert read_responses_request({"input": "And now?", "previous_response_id": f"{long}r"}).previous
