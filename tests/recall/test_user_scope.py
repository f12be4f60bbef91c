"""Search over all sessions of a user: it ranks as over one session that holds all their messages."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore
from shared_core.index.cache import IndexCache
from shared_core.index.user import UserIndex
from shared_core.records import MAIN
from shared_core.session.paths import walk
from shared_core.store import Store
from shared_core.testing import HashingEmbedder

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("boat", "garden", "roof", "teeth", "cake")


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(SQLiteStore(":memory:")) as opened:
        yield opened


def of(store: Store, name: str, **how: Any) -> InfiniteMemory:
    usual: dict[str, Any] = {"user_id": "ann", "embedder": HashingEmbedder()}
    return InfiniteMemory(store, session_id=name, **usual | how)


def say(store: Store, name: str, *texts: str, day: int = 0) -> list[Message]:
    """Store messages of a session, a minute after another."""
    with of(store, name) as memory:
        start = len(memory.messages())
        messages = [
            Message.user(text, id=f"{name}-{start + n}", created_at=BEGAN + timedelta(days=day, minutes=start + n))
            for n, text in enumerate(texts)
        ]
        return memory.add(messages)


def hits(memory: InfiniteMemory, query: str, **how: Any) -> set[tuple[str, str]]:
    """Return the sessions and ids of the messages that hold a word of the query: not those beside them."""
    found = memory.search(query, 30, scope="user", **how)
    words = set(query.split())
    return {(hit.session_id, hit.message.id or "") for hit in found if words & set(hit.message.content.split())}


def user_index(store: Store) -> UserIndex:
    [index] = [one.rows for one in IndexCache.of(store)._kept.values() if isinstance(one.rows, UserIndex)]
    return index


TALKS = st.lists(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


@settings(max_examples=20, deadline=None)
@given(
    TALKS,
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["words", None]),
)
def test_it_ranks_as_one_session_of_all_messages(
    talks: Sequence[Sequence[str]], asked: list[str], asks_in_the_last: bool, embedder: str | None
) -> None:
    said = [text for texts in talks for text in texts]
    assume(len(set(said)) == len(said))  # equals come in the order of their scopes
    with closing(SQLiteStore(":memory:")) as store:
        for day, texts in enumerate(talks):
            together = [message.replace(turn_id=None) for message in say(store, f"s{day}", *texts, day=day)]
            with of(store, "all", user_id="bob") as memory:
                memory.add(together)
        query = " ".join(asked)
        with of(store, "all", user_id="bob", embedder=embedder) as memory:
            expected = {hit.message.id: hit for hit in memory.search(query, 40)}
        with of(store, f"s{len(talks) - 1}" if asks_in_the_last else "asks", embedder=embedder, scope="user") as memory:
            found = {hit.message.id: hit for hit in memory.search(query, 40)}
        assert found.keys() == expected.keys()
        for id, hit in found.items():
            assert hit.score == pytest.approx(expected[id].score, abs=1e-4)
            assert hit.lexical == pytest.approx(expected[id].lexical, abs=1e-5)
            assert hit.dense == pytest.approx(expected[id].dense, abs=1e-3)


def test_what_is_forgotten_anywhere_is_not_found(store: Store) -> None:
    for number in range(4):
        say(store, f"s{number}", "my boat is red", "the roof leaks", day=number)
    with of(store, "asks") as memory:
        assert hits(memory, "boat") == {(f"s{number}", f"s{number}-0") for number in range(4)}
        with of(store, "s1") as other:
            other.forget(ids=["s1-0"])
        assert hits(memory, "boat") == {("s0", "s0-0"), ("s2", "s2-0"), ("s3", "s3-0")}
        with of(store, "s2") as other:
            other.forget(session=True)
        assert hits(memory, "boat") == {("s0", "s0-0"), ("s3", "s3-0")}
        index = user_index(store)
        assert len(index) - len(index.gone) == 5
        say(store, "s2", "the boat is blue now", day=9)
        assert hits(memory, "boat") == {("s0", "s0-0"), ("s2", "s2-0"), ("s3", "s3-0")} - {("s2", "s2-0")}, "its id is"
        with of(store, "s2") as other:
            other.add(Message.user("the boat is blue now", id="again"))
        assert hits(memory, "boat") == {("s0", "s0-0"), ("s2", "again"), ("s3", "s3-0")}
    with of(store, "s3") as memory:
        memory.forget(user=True)
        assert hits(memory, "boat") == set()


def test_only_main_is_searched_as_it_is_now(store: Store) -> None:
    say(store, "trip", "we take the boat", "it sails at noon", "pack the tent")
    with of(store, "trip") as memory, of(store, "asks") as asking:
        assert hits(asking, "boat tent") == {("trip", "trip-0"), ("trip", "trip-2")}
        memory.fork("side", at="trip-0")
        memory.add(Message.user("the boat is called Erna", id="side"))
        assert hits(asking, "boat") == {("trip", "trip-0")}
        memory.make_main()
        assert hits(asking, "boat tent") == {("trip", "trip-0"), ("trip", "side")}
        memory.merge(next(one.name for one in memory.branches() if one.name != MAIN), "full")
        assert hits(asking, "boat tent") == {("trip", "trip-0"), ("trip", "side"), ("trip", "trip-2")}
        index = user_index(store)
        key = memory._checkout.live.key or 0
        head = store.state(key, MAIN).head
        assert head is not None
        path = walk(head, lambda segment: store.segment(key, segment))
        line = index.main_line(None)
        expected = [record.position for record in sorted(
            (one for one in store.get(key, ["trip-0", "trip-1", "trip-2", "side"]) if path.covers(one.position)),
            key=lambda one: path.index_of(one.position),
        )]  # fmt: skip
        assert [position for _, position in index.places(line.rows)] == expected


def test_other_sessions_end_where_something_was_said_later(store: Store) -> None:
    say(store, "early", "my boat is red", "the boat is sold", day=1)
    say(store, "late", "a new boat", day=5)
    say(store, "asks", "hello", day=9)
    with of(store, "asks") as memory:
        assert {id for _, id in hits(memory, "boat")} == {"early-0", "early-1", "late-0"}
        assert {id for _, id in hits(memory, "boat", as_of="2026-01-03")} == {"early-0", "early-1"}
        assert {id for _, id in hits(memory, "boat", as_of="2026-01-02T00:00:30")} == {"early-0"}


def test_two_sessions_with_the_same_ids_are_told_apart(store: Store) -> None:
    for name, text in (("one", "the boat is red"), ("two", "the boat is blue")):
        with of(store, name) as memory:
            memory.add([Message.user(text, id="same"), Message.assistant(f"noted: {name}", id="reply")])
    with of(store, "asks", scope="user", recall_unit="turn", recall="thorough") as memory:
        found = memory.search("which colour is the boat")
        assert {(hit.session_id, hit.message.content) for hit in found} >= {
            ("one", "the boat is red"), ("two", "the boat is blue"),
        }  # fmt: skip
        prompt = str(memory.context("which colour is the boat?").messages)
        for part in ("the boat is red", "noted: one", "the boat is blue", "noted: two"):
            assert part in prompt


def test_vectors_that_another_session_lacks_are_made_once_and_kept(store: Store) -> None:
    embedder = HashingEmbedder()
    with of(store, "old", embedder="words") as memory:
        memory.add([Message.user(f"boat {number}", id=str(number)) for number in range(40)])
        key = memory._checkout.live.key or 0
    assert store.spaces(key) == []
    with of(store, "asks", embedder=embedder) as memory:
        memory.search("boat", scope="user")
        count = len(embedder.documents)
        memory.search("boat", scope="user")
        assert len(embedder.documents) == count
        assert store.spaces(key) == [], "a question writes nothing"
    assert len(list(store.vectors(key, store.spaces(key)[0]))) == 40
    IndexCache.of(store).release()
    with of(store, "asks", embedder=embedder) as memory:
        memory.search("boat", scope="user")
        assert len(embedder.documents) == count
