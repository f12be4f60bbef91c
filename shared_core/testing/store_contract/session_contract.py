"""The store contract on sessions: what is said about each at a glance, and new names for them."""

from datetime import datetime, timedelta

import pytest

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.formats.fields import Role
from shared_core.queries import After
from shared_core.records import MAIN, ROOT, TITLE_CHARACTERS, Create, Draft, Move, Position, SessionInfo, SessionKey
from shared_core.store import Store, give_title
from shared_core.testing.oracle import ALL, NOON, draft, drafts

__all__ = ["SessionContract"]


def _said(id_: str, hours: int, content: str, role: Role = "user") -> Draft:
    return draft(id_, role, content, created_at=_after(hours))


def _after(hours: int) -> datetime:
    return NOON + timedelta(hours=hours)


class SessionContract:
    """What a store says about its sessions, and what a new name changes."""

    def test_sessions_are_described(self, store: Store) -> None:
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

    def test_users_and_sessions_are_read_by_pages(self, store: Store) -> None:
        """Of every size; users in one order, nobody left out, and those without sessions are none."""
        names = [None, "ann", "Ann", "", "\ue000", "\U0001f600", "\uffff", "ann", None, "bob"]
        everything = [(store.create_session(user, f"s{n}"), user, f"s{n}") for n, user in enumerate(names)]
        users = store.users()
        assert store.sessions() == everything
        assert sorted(users) == sorted({user for user in names if user is not None})
        for size in (1, 3, 99):
            sessions: list[SessionKey] = []
            while page := store.sessions(after=sessions[-1].key if sessions else 0, limit=size):
                sessions += page
                assert len(sessions) <= len(everything), "a page begins before its `after`"
            assert sessions == everything
            read: list[str] = []
            while some := store.users(read[-1] if read else None, size):
                read += some
                assert len(read) <= len(users), "a page begins before its `after`"
            assert read == users
        first, last = everything[0][0], everything[-1][0]
        assert store.sessions("ann", None, after=first, limit=2) == [everything[1], everything[7]]
        assert store.sessions("ann", after=last) == store.sessions("nobody") == store.sessions(limit=0) == []
        assert store.users(limit=0) == []

    def test_what_is_forgotten_is_not_described(self, store: Store) -> None:
        """The ends and the first words are those of the messages that are left; without any, it is not listed."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, [_said(f"u{number}", number, f"text {number}") for number in range(4)])
        store.forget(key, [Position(0, 0), Position(0, 3)])
        assert store.overview() == [SessionInfo("a", None, 2, 1, _after(1), _after(2), "text 1")]
        store.forget(key, [Position(0, 1), Position(0, 2)], branches=True)
        assert store.overview() == []

    def test_a_title_is_one_short_line(self, store: Store) -> None:
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

    def test_a_title_that_is_given_is_shown(self, store: Store) -> None:
        """It stands for the first question, until it is taken away or all is forgotten."""
        key = store.create_session(None, "a")
        store.append(key, MAIN, [_said("u1", 1, "text")])
        for given, shown in [("Porto", "Porto"), ("\ue000 trip", "\ue000 trip"), (None, "text"), ("Faro", "Faro")]:
            give_title(store, key, given)
            assert [info.title for info in store.overview()] == [shown]
        store.forget(key, [Position(0, 0)], branches=True)
        store.append(key, MAIN, [_said("u2", 2, "anew")])
        assert [info.title for info in store.overview()] == ["anew"]

    def test_the_states_of_main_are_those_of_sessions_that_have_messages_there(self, store: Store) -> None:
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

    def test_a_renamed_session_keeps_everything(self, store: Store) -> None:
        """Its key stays; its old name is free; sessions of other users have nothing to do with it."""
        key, other = store.create_session("ann", "old"), store.create_session("bob", "new")
        store.append(key, MAIN, drafts("u1", "a1"))
        records, state = store.find(key, After(0, ALL)), store.state(key, MAIN)[:3]
        for name in ("new", "\ue000", "", '"]', "new", "new"):
            store.rename_session(key, name)
            assert (store.session("ann", "old"), store.session("ann", name)) == (None, key)
            assert [one for one in store.sessions() if one.key == key] == [(key, "ann", name)]
        assert (store.find(key, After(0, ALL)), store.state(key, MAIN)[:3]) == (records, state)
        assert store.session("bob", "new") == other
        assert store.create_session("ann", "old") not in (key, other)

    def test_a_name_in_use_is_refused(self, store: Store) -> None:
        """It is in use if its session holds a message; nothing is changed."""
        one, other = store.create_session(None, "one"), store.create_session(None, "other")
        store.append(other, MAIN, drafts("u1"))
        with pytest.raises(DuplicateError, match="'other'"):
            store.rename_session(one, "other")
        with pytest.raises(UnknownReferenceError, match="999"):
            store.rename_session(999, "third")
        assert store.sessions() == [(one, None, "one"), (other, None, "other")]

    def test_a_name_of_no_messages_is_swapped(self, store: Store) -> None:
        """The session without messages gets the other name, and what it has forgotten stays forgotten there."""
        one, emptied = store.create_session("ann", "one"), store.create_session("ann", "emptied")
        store.append(one, MAIN, drafts("u1"))
        store.append(emptied, MAIN, drafts("u2"))
        store.forget(emptied, [Position(0, 0)], branches=True)
        store.rename_session(one, "emptied")
        assert (store.session("ann", "emptied"), store.session("ann", "one")) == (one, emptied)
        assert [record.message.id for record in store.find(one, After(0, ALL))] == ["u1"]
        assert store.append(emptied, MAIN, drafts("u2")).forgotten == ("u2",)
        assert [branch.name for branch in store.branches(emptied)] == [MAIN]
