"""Rows of PostgreSQL: texts that come back as they were, and rows that were changed or lost."""

import os
from collections.abc import Callable
from contextlib import closing

import pytest

from shared_core import PostgresStore
from shared_core.errors import StoreError
from shared_core.queries import After, Line, State
from shared_core.records import MAIN, Position
from shared_core.stores.answers import _after_all
from shared_core.testing.oracle import ALL, Session, draft, drafts
from tests.support.histories import stored_ids

pytestmark = pytest.mark.server


def test_a_prefix_ends_before_the_least_text_after_it() -> None:
    given = ("a", "a\U0010ffff", "\U0010ffff", "", "\ud7ff")
    assert [_after_all(one) for one in given] == ["b", "b", None, None, "\ue000"]


def test_what_is_too_large_is_refused_by_name(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.stores.postgres.postgres_rows._LARGEST", 1_000)
    with closing(PostgresStore(address)) as store:
        key = store.create_session(None, "s")
        with pytest.raises(StoreError, match="'u2'"):
            store.append(key, MAIN, [draft("u1"), draft("u2", content="é" * 501)])
        long = os.urandom(3_000).hex()
        with pytest.raises(StoreError, match=f"message '{long[:100]}' cannot be stored: its id is too long"):
            store.append(key, MAIN, [draft("u1"), draft(long, content="x")])
        assert stored_ids(store, key) == []


@pytest.mark.parametrize(
    ("change", "read", "what"),
    [
        ("UPDATE {s}.messages SET content = 'changed' WHERE seq = 1", lambda s, k: stored_ids(s, k), "message 'u1'"),
        ("UPDATE {s}.branches SET depth = 0", lambda s, k: s.state(k, MAIN), "branch 'main'"),
        ("UPDATE {s}.segments SET turn_shift = 1", lambda s, k: s.segment(k, 0), "segment 0"),
    ],
)
def test_a_row_that_was_changed_is_noticed(address: str, change: str, read: Callable[..., object], what: str) -> None:
    with closing(PostgresStore(address)) as store:
        key = Session(store).key
        store.append(key, MAIN, drafts("u1", "a1"))
        store.database.outside(change)
        with pytest.raises(StoreError, match=f"{what}.*its checksum is wrong"):
            read(store, key)


READS: list[Callable[[PostgresStore, int], object]] = [
    lambda store, key: store.find(key, After(0, ALL)),
    lambda store, key: store.get(key, [Position(0, 1), Position(0, 3)]),
    lambda store, key: store.at({key: [Position(0, 1), Position(0, 3)]}, {key: 1}),
    lambda store, key: store.newest(key, Position(0, 4), 3),
    lambda store, key: store.read(key, State(MAIN), After(0, 4)),
    lambda store, key: store.read(key, Line(MAIN, 5)),
    lambda store, key: store.read(key, Line("side", 5)),
]


def test_a_message_that_was_lost_is_noticed(address: str) -> None:
    """What was forgotten is not missed; and a session that has lost something can be forgotten."""
    with closing(PostgresStore(address)) as store:
        session = Session(store)
        key = session.key
        session.append(MAIN, drafts("u1", "a1", "u2", "a2", "u3", "a3"))
        session.append("side", drafts("u4", "a4"), at=Position(0, 3))
        session.forget([Position(0, 1), Position(0, 4)])
        session.check()
        for read in READS:
            read(store, key)
        store.database.outside("DELETE FROM {s}.messages WHERE seq = 4")
        for read in READS:
            with pytest.raises(StoreError, match=r"'s'.*'u2'"):
                read(store, key)
        store.database.outside("DELETE FROM {s}.messages WHERE seq = 8")
        with pytest.raises(StoreError, match="'u4'"):
            store.read(key, State(MAIN), After(7, ALL))
        positions = [position for position, _ in store.stored(key)]
        store.forget(key, positions, branches=True)
        assert store.read(key, State(MAIN), After(0, ALL))[1] == []
        store.append(key, MAIN, drafts("u9"))
        assert stored_ids(store, key) == ["u9"]
