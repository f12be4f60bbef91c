"""Conversations are isolated: whatever its name, a session sees nothing of another."""

from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore, UnknownReferenceError
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import history, ids, texts

Names = tuple[str | None, str]

CRAFTED = [
    " ", "default", "None", "null", "a", "A", "b", '["a", "b"]', '["a","b"]', '[null, "a"]', '"', "'", "''; --",
    "a' OR '1'='1", "%", "_", "a%", "\\", "a\x01b", "a\x01", "\ue000", "é", "e\u0301", "\N{GRINNING FACE}", '","', "#",
]  # fmt: skip

PAIRS: list[tuple[Names, Names]] = [
    ((None, "one"), (None, "two")),
    (("ann", "1"), ("bob", "1")),
    (("ann", "1"), (None, "1")),
    ((" ", "1"), (None, "1")),
    (("None", "1"), (None, "1")),
    (("null", "1"), (None, "1")),
    (("a", 'b", "c'), ('a", "b', "c")),
    ((None, '["a", "b"]'), ("a", "b")),
    (("a", "b"), ("b", "a")),
    (("ab", "c"), ("a", "bc")),
    (("%", "%"), ("a", "b")),
]

SETTINGS: dict[str, Any] = {
    "max_tokens": 300,
    "reserve_tokens": 50,
    # Everything in reach is found.
    "recall": "thorough",
    "min_score": -1,
}


def open_as(store: SQLiteStore, names: Names, **settings: Any) -> InfiniteMemory:
    user, session = names
    return InfiniteMemory(store, user_id=user, session_id=session, embedder=HashingEmbedder(16), **SETTINGS, **settings)


def fill(memory: InfiniteMemory, mark: str, count: int) -> None:
    """Say the same things under the same ids as everybody does, with a mark that tells who said them."""
    memory.add(Message.user(f"{mark} pinned", id="pinned", pinned=True))
    memory.add(Message.system(f"{mark} rule", id="rule"))
    memory.add([message.replace(content=f"{mark} {message.content}") for message in history(count)])
    memory.fork("side", at="m0")
    memory.add(Message.user(f"{mark} aside", id="aside"))
    memory.checkout("main")
    memory.index()


def everything_seen(memory: InfiniteMemory) -> list[str]:
    """Every text that any verb returns."""
    context = memory.context("what of item3, gardens, rules, what is pinned or aside?")
    assert any("recalled" in line.reason for line in context.report.lines), "it looks for more than the window"
    hits = [hit for role in (None, "system", "user") for hit in memory.search("item3 rule pinned", 99, role=role)]
    seen = [*texts(context.messages), *(line.preview for line in context.report.lines)]
    seen += texts(hit.message for hit in hits) + texts(memory.messages()) + texts(memory.newest(999))
    return seen + [memory.get(name).content for name in ("m3", "rule", "pinned")]


def assert_apart(store: SQLiteStore, one: Names, two: Names) -> None:
    mine, other = open_as(store, one), open_as(store, two)
    fill(mine, "mine", 40)
    assert other.stats()["messages"] == 0
    assert [*other.messages(), *other.newest(9), *other.search("mine"), *other.branches()] == []
    with pytest.raises(UnknownReferenceError):
        other.get("m0")
    with pytest.raises(UnknownReferenceError):
        other.checkout("side")
    fill(other, "other", 44)
    expected, counts = everything_seen(mine), mine.stats()
    assert {word for text in expected for word in text.split() if word in ("mine", "other")} == {"mine"}
    assert "mine" not in " ".join(everything_seen(other))
    other.add(Message.user("mine mine mine item3 gardens", id="bait"))
    other.checkout("m5")
    other.add(Message.user("item3", id="deeper"))
    other.forget(ids=["m3", "rule"])
    other.index()
    other.forget(session=True)
    again = open_as(store, one)
    assert everything_seen(again) == everything_seen(mine) == expected
    assert {**mine.stats(), "bytes": 0} == {**counts, "bytes": 0}
    assert mine.add(Message.user("mine once more", id="bait"))[0].content == "mine once more"


@pytest.mark.parametrize(("one", "two"), PAIRS, ids=repr)
def test_two_conversations_share_nothing(store: SQLiteStore, one: Names, two: Names) -> None:
    assert_apart(store, one, two)


@pytest.mark.parametrize(("one", "two"), PAIRS[:3], ids=repr)
def test_not_even_on_one_file(tmp_path: Any, one: Names, two: Names) -> None:
    with closing(SQLiteStore(tmp_path / "chat.db", durability="process")) as store:
        assert_apart(store, two, one)


NAMES = st.sampled_from(CRAFTED) | st.text(st.sampled_from('ab", []\\%_\x01'), min_size=1, max_size=6)
IDENTITY = st.tuples(st.none() | NAMES, NAMES)


@given(st.lists(st.tuples(IDENTITY, st.sampled_from(["add", "ask", "forget", "fork"])), min_size=2, max_size=8))
def test_any_conversations_share_nothing(steps: list[tuple[Names, str]]) -> None:
    said: dict[Names, list[str]] = {}
    with closing(SQLiteStore(":memory:")) as store:
        memories: dict[Names, InfiniteMemory] = {}
        for number, (names, verb) in enumerate(steps):
            memory = memories.setdefault(names, open_as(store, names))
            mine = said.setdefault(names, [])
            if verb == "forget":
                memory.forget(session=True)
                mine.clear()
            elif verb == "fork":
                memory.fork(f"fork {number}")
            mine.append(f"{number} alike")
            memory.add(Message.user(f"{number} alike", id=f"{number}"))
            assert sorted(texts(hit.message for hit in memory.search("alike", 99))) == sorted(mine)
        for names, memory in memories.items():
            assert texts(memory.messages()) == texts(memory.newest(99)) == said[names]
            assert texts(memory.context("all alike?").messages) == [*said[names], "all alike?"]
            assert ids(memory.messages()) == [text.split()[0] for text in said[names]]


@given(st.lists(IDENTITY, min_size=2, max_size=6, unique=True))
def test_the_sessions_of_one_user_are_his_alone(identities: list[Names]) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        for user, session in identities:
            open_as(store, (user, session)).add(Message.user(f"{user!r} alike"))
        for user in {user for user, _ in identities if user is not None}:
            memory = open_as(store, (user, "another session"), scope="user")
            memory.add(Message.user("mine"))
            own = ["mine", *(f"{user!r} alike" for other, _ in identities if other == user)]
            assert sorted(texts(hit.message for hit in memory.search("alike", 99))) == sorted(own)
