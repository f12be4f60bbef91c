"""What `Store` answers by default, from call to call; every other store answers the same, as its contract says."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from shared_core.formats.fields import Role
from shared_core.records import (
    MAIN,
    ROOT,
    TITLE_CHARACTERS,
    Create,
    Draft,
    Move,
    Position,
    Rename,
    SessionInfo,
    VectorRows,
)
from shared_core.store import give_title
from shared_core.testing.oracle import NOON, Session, draft, drafts
from tests.stores.dict_store import DictStore


@pytest.fixture
def store() -> Iterator[DictStore]:
    with closing(DictStore()) as store:
        yield store


def _said(id_: str, hours: int, content: str, role: Role = "user") -> Draft:
    return draft(id_, role, content, created_at=_after(hours))


def _after(hours: int) -> datetime:
    return NOON + timedelta(hours=hours)


def test_sessions_are_described(store: DictStore) -> None:
    """Counts, the times of the ends, and the first words of the user; the one added to last comes first."""
    told = {}
    for user, name in ((None, "a"), ("ann", "a"), ("ann", "b"), ("ann", "empty"), ("\ue000", "\uf8ff")):
        told[user, name] = store.create_session(user, name)
    store.append(told[None, "a"], MAIN, [_said("s", 5, "rules", "system"), _said("u", 6, " What\n\tis it? ")])
    store.append(told["ann", "a"], MAIN, [_said("u1", 1, "one"), _said("a1", 3, "two", "assistant")])
    store.append(told["ann", "a"], "side", [_said("u2", 2, "later, of an earlier time")], at=Position(0, 0))
    store.change(told["ann", "a"], [Create("third", Position(0, 0))])
    store.append(told["ann", "b"], MAIN, [_said("a", 7, "nobody asked", "assistant")])
    store.append(told["\ue000", "\uf8ff"], MAIN, [_said("u", 7, "x\x01y \ue000" + "z" * 500)])
    nobody = SessionInfo("a", None, 2, 1, _after(5), _after(6), "What is it?")
    first = SessionInfo("a", "ann", 3, 3, _after(1), _after(2), "one")
    second = SessionInfo("b", "ann", 1, 1, _after(7), _after(7), None)
    title = "x\x01y \ue000" + "z" * (TITLE_CHARACTERS - 6) + "…"
    odd = SessionInfo("\uf8ff", "\ue000", 1, 1, _after(7), _after(7), title)
    assert store.overview() == [odd, second, nobody, first]
    assert store.overview("ann") == [second, first]
    assert store.overview(None) == [nobody]
    assert store.overview("ann", None, "ann") == [second, nobody, first]
    assert store.overview("bob") == []
    assert [store.overview(limit=limit) for limit in (0, 1, 3)] == [[], [odd], [odd, second, nobody]]


def test_what_is_forgotten_is_not_described(store: DictStore) -> None:
    """The ends and the first words are those of the messages that are left; without any, it is not listed."""
    key = store.create_session(None, "a")
    store.append(key, MAIN, [_said(f"u{number}", number, f"text {number}") for number in range(4)])
    store.forget(key, [Position(0, 0), Position(0, 3)])
    assert store.overview() == [SessionInfo("a", None, 2, 1, _after(1), _after(2), "text 1")]
    store.forget(key, [Position(0, 1), Position(0, 2)], branches=True)
    assert store.overview() == []


def test_a_title_is_one_short_line(store: DictStore) -> None:
    """It ends with an ellipsis if there is more; a text of white space is none."""
    titles = {
        "": None,
        " \n ": None,
        "x" * TITLE_CHARACTERS: "x" * TITLE_CHARACTERS,
        "word " * 99: ("word " * 16)[:79].rstrip() + "…",
        "é" * 5_000: "é" * (TITLE_CHARACTERS - 1) + "…",
    }
    for number, content in enumerate(titles):
        key = store.create_session(None, str(number))
        store.append(key, MAIN, [_said("u1", -number, content), _said("u2", -number, "another")])
    assert [info.title for info in store.overview()] == list(titles.values())


def test_a_title_that_is_given_is_shown(store: DictStore) -> None:
    """It stands for the first question, until it is taken away or all is forgotten."""
    key = store.create_session(None, "a")
    store.append(key, MAIN, [_said("u1", 1, "text")])
    for given, shown in [("Porto", "Porto"), ("\ue000 trip", "\ue000 trip"), (None, "text"), ("Faro", "Faro")]:
        give_title(store, key, given)
        assert [info.title for info in store.overview()] == [shown]
    store.forget(key, [Position(0, 0)], branches=True)
    store.append(key, MAIN, [_said("u2", 2, "anew")])
    assert [info.title for info in store.overview()] == ["anew"]


def test_the_states_of_main_are_those_of_sessions_that_have_messages_there(store: DictStore) -> None:
    """A session whose messages are all on other branches is left out, and so is one without messages."""
    keys = [store.create_session(user, str(number)) for number, user in enumerate(["ann", None, "ann", "\ue000"])]
    store.create_session("ann", "empty")
    for key in keys:
        store.append(key, MAIN, drafts("u1", "a1"))
    store.append(keys[2], MAIN, drafts("u2"))
    aside = store.create_session("ann", "aside")
    store.append(aside, MAIN, drafts("u1"))
    store.change(aside, [Create("side", Position(0, 0)), Move(MAIN, ROOT, "set aside")])
    store.forget(keys[2], [Position(0, 1)])
    expected = [(one, store.state(one.key, MAIN)) for one in store.sessions() if one.key in keys]
    assert [one.key for one, _ in expected] == keys
    for user, own in (("ann", expected[::2]), (None, expected[1:2]), ("\ue000", expected[3:]), ("nobody", [])):
        assert store.main_changes(user).states == own


def test_what_is_new_on_main_comes_for_many_sessions_at_once(store: DictStore) -> None:
    """Each has its line, its messages of all branches between two numbers, and their vectors in one space."""
    one, two, bare = Session(store, "one"), Session(store, "two", "u"), Session(store, "bare")
    one.append(MAIN, drafts("u1", "a1", "u2", "a2"))
    one.append("side", drafts("u3", "a3"), at=Position(0, 1))
    two.append(MAIN, drafts("u1", "a1"))
    two.append("side", drafts("u2"), at=Position(0, 0))
    two.merge(MAIN, Position(1, 1))
    rows = [(Position(0, depth), f"h{depth}", b"v") for depth in range(4)]
    for key, space in ((one.key, "a"), (two.key, "b"), (one.key, "b")):
        store.keep(key, VectorRows(space, rows))
    wanted = {two.key: (1, 2), one.key: (3, 9), bare.key: (0, 9), 999: (0, 9)}
    found = store.main_news(wanted, "b")
    assert {key: (news.records, news.vectors) for key, news in found.items()} == {
        two.key: (two.tree.records[1:2], rows[1:2]),
        one.key: (one.tree.records[3:], rows[3:]),
        bare.key: ([], []),
    }
    for session in (one, two, bare):
        news = found[session.key]
        assert (news.state, news.spaces) == (store.state(session.key, MAIN), store.spaces(session.key))
        on_line = {position.segment for position in session.tree.line(session.tree.branches[MAIN])}
        assert {segment.segment for segment in news.segments} >= on_line
        assert all(segment == session.tree.segments[segment.segment] for segment in news.segments)
    assert store.main_news(wanted) == {key: news._replace(vectors=[]) for key, news in found.items()}
    assert store.main_news({}) == {}
    store.change(bare.key, [Rename(MAIN, "other")])
    assert store.main_news({bare.key: (0, 9)}) == {}


def test_messages_are_read_only_if_nothing_was_forgotten(store: DictStore) -> None:
    """Those of several sessions come together, each in the order asked; every epoch given must be the session's."""
    one, two = Session(store, "one"), Session(store, "two")
    one.append(MAIN, drafts("u1", "a1", "u2"))
    two.append(MAIN, drafts("u5", "a5"))
    ours, theirs = one.tree.records, two.tree.records
    wanted = {one.key: [Position(0, 2), Position(0, 9), Position(0, 0)], two.key: [Position(0, 1)]}
    found = {one.key: [ours[2], ours[0]], two.key: [theirs[1]]}
    assert store.at(wanted, {}) == store.at(wanted, {one.key: 0, two.key: 0}) == found
    assert store.at({}, {one.key: 0}) == {}
    two.forget([Position(0, 0)])
    assert store.at(wanted, {one.key: 0}) == store.at(wanted, {two.key: 1}) == found
    assert store.at(wanted, {one.key: 0, two.key: 0}) is None
    assert store.at({one.key: [Position(0, 1)]}, {two.key: 0}) is None
    assert store.at({999: [Position(0, 0)], one.key: []}, {999: 0}) == {999: [], one.key: []}
