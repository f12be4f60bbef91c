"""Which turn a reply joins when a history is sent again, or when its question is gone."""

from collections.abc import Iterator

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import UnknownReferenceError
from shared_core.records import Position, Record, SessionState
from shared_core.session.live import News
from shared_core.store import Store
from shared_core.stores import open_store
from tests.support.histories import ids


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store()
    yield store
    store.close()


def user(id_: str) -> Message:
    return Message.user(f"what of {id_}?", id=id_)


def reply(id_: str) -> Message:
    return Message.assistant(f"this of {id_}", id=id_)


def test_a_history_sent_again_gives_its_new_reply_the_turn_it_answers(store: Store) -> None:
    ann, bob = InfiniteMemory(store), InfiniteMemory(store)
    ann.add([user("u1"), reply("a1"), user("u2")])
    bob.add(user("u3"))
    stored = ann.add([user("u1"), reply("a1"), user("u2"), reply("a2")])
    assert [(m.id, m.turn_id) for m in stored] == [("u1", "u1"), ("a1", "u1"), ("u2", "u2"), ("a2", "u2")]
    (late,) = bob.add([user("u2"), reply("late")])[1:]
    assert late.turn_id == "u2"
    assert ids(ann.context("and now?").messages)[:-1] == ["u1", "a1", "u2", "a2", "late", "u3"]


def test_the_question_sent_last_is_the_one_that_is_answered_next(store: Store) -> None:
    memory = InfiniteMemory(store)
    memory.add([user("u1"), user("u2")])
    memory.add(user("u1"))
    assert memory.add(reply("again"))[0].turn_id == "u1"


def test_a_turn_that_is_gone_here_takes_no_reply_though_it_lives_on_another_branch(store: Store) -> None:
    ann, bob = InfiniteMemory(store), InfiniteMemory(store)
    ann.add(user("u1"))
    bob.fork("side", at="u1")
    bob.add(reply("aside"), turn="u1")
    ann.add(reply("a1"))
    ann.forget(ids=["u1", "a1"])
    InfiniteMemory(store).add(user("u2"))
    assert ann.add(reply("a2"))[0].turn_id == "u2"
    assert ids(ann.context("and now?").messages)[:-1] == ["u2", "a2"]
    with pytest.raises(UnknownReferenceError, match="'u1'"):
        ann.add(reply("a3"), turn="u1")
    assert bob.add(reply("a4"))[0].turn_id == "a4", "where no question is left, a reply stands alone"


def test_a_turn_is_not_named_before_anything_is_stored(store: Store) -> None:
    with pytest.raises(UnknownReferenceError, match="'u1'"):
        InfiniteMemory(store).add(reply("a1"), turn="u1")
    assert store.sessions(None) == []


@pytest.mark.parametrize("count", [0, 3, 13])
def test_news_are_found_by_their_numbers(count: int) -> None:
    records = [Record(Message.user("x"), Position(1, seq - 1), seq, 0) for seq in range(1, count + 1)]
    news = News()
    news.take(SessionState(None, 0, 0), [])
    news.take(SessionState(None, count, 0), records)
    assert [news.after(seq, 0) for seq in range(14)] == [records[seq:] for seq in range(14)]
    assert news.after(0, 1) == [], "of another epoch"
    news.take(SessionState(None, count + 2, 0), records[-1:])
    assert news.after(0, 0) == [], "some were not read"
