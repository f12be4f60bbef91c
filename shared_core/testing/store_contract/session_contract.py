"""The store contract on sessions: what is said about each at a glance, and new names for them."""

from datetime import timedelta
from typing import Any

import pytest

from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.formats.fields import Role
from shared_core.history.normal_form import fingerprint
from shared_core.queries import After
from shared_core.records import MAIN, ROOT, Draft, MainNews, Position, Rename, SessionKey, VectorRows
from shared_core.store import Store, give_title
from shared_core.testing.oracle import ALL, NOON, Session, draft, drafts

__all__ = ["SessionContract"]


def _said(id_: str, hours: int, content: str, role: Role = "user") -> Draft:
    return draft(id_, role, content, created_at=NOON + timedelta(hours=hours))


def _various(store: Store) -> list[Session]:
    """Fill sessions of several users: the first with branches, a title and vectors, the second has forgotten much."""
    names = [(None, "a"), ("ann", "a"), ("ann", "b"), ("ann", "empty"), ("ann", "aside"), ("\ue000", "\uf8ff")]
    nobody, first, second, empty, aside, odd = [Session(store, name, user) for user, name in names]
    nobody.append(MAIN, [_said("s1", 5, "rules", "system"), _said("u1", 6, " What\n\tis it? "), _said("u2", 6, "more")])
    first.append(MAIN, [_said("u1", 1, "one"), _said("a1", 3, "two", "assistant"), _said("u2", 9, "three")])
    first.append("side", [_said("u3", 2, "later, of an earlier time")], at=Position(0, 0))
    first.merge(MAIN, Position(1, 1))
    first.append(MAIN, [_said("a3", 4, "after the merge", "assistant")])
    second.append(MAIN, [_said("a1", 7, "nobody asked", "assistant")])
    aside.append("other", [_said("u1", 7, "")], at=ROOT)
    odd.append(MAIN, [_said("u1", 7, "x\x01y \ue000" + "z" * 500), _said("u2", 8, "forgotten")])
    odd.forget([Position(0, 1)])
    empty.append(MAIN, drafts("u1"))
    empty.forget([Position(0, 0)], branches=True)
    give_title(store, first.key, "\ue000 trip")
    renamed = Session(store, "renamed", "ann")
    renamed.append(MAIN, drafts("u1"))
    store.change(renamed.key, [Rename(MAIN, "other")])
    for space in ("x", "y"):
        store.keep(first.key, VectorRows(space, [(Position(0, depth), f"h{depth}", b"v") for depth in range(3)]))
    store.keep(odd.key, VectorRows("x", [(Position(0, 0), "h", b"v")]))
    return [first, odd, nobody, second, empty, aside, renamed]


class SessionContract:
    """What a store says about its sessions, and what a new name changes."""

    def test_what_a_store_answers_its_own_way_is_what_it_would_by_default(self, store: Store) -> None:
        """Where a store overrides what `Store` does call by call, as to answer in one round trip, both say the same."""
        first, odd, *others = (one.key for one in _various(store))
        positions = [Position(0, 2), Position(0, 9), Position(0, 0)]
        news = {**dict.fromkeys((odd, *others, first), (1, 3)), 999: (0, 9)}
        wanted = {first: positions, odd: positions, 999: positions, others[0]: []}
        asked: list[tuple[str, tuple[Any, ...]]] = [
            *(("overview", users) for users in ((), ("ann",), (None, "ann", None), ("nobody",))),
            *(("sessions_with", (user, message)) for user in ("ann", None, "nobody") for message in ("u1", "s1", "no")),
            *(("sessions_with", ("ann", fingerprint(said.message))) for said in (_said("u9", 0, "one"), *drafts("u8"))),
            *(("sessions_named", (name,)) for name in ("a", "no")),
            *(("main_news", given) for given in ((news, "x"), (news, "z"), (news,), ({},))),
            *(("at", (wanted, dict.fromkeys(some, 0))) for some in ((), (first, 999), (odd,))),
            ("at", ({}, {odd: 1})),
        ]
        for name, given in asked:
            assert _sorted(getattr(store, name)(*given)) == _sorted(getattr(Store, name)(store, *given)), name
        for user in ("ann", None, "\ue000", "nobody"):
            assert store.main_changes(user).states == Store.main_changes(store, user).states
        whole = store.overview()
        assert [store.overview(limit=limit) for limit in (0, 1, 3)] == [[], whole[:1], whole[:3]]

    def test_sessions_are_read_by_pages(self, store: Store) -> None:
        """Of every size, and those of some users alone."""
        names = [None, "ann", "Ann", "", "\ue000", "\U0001f600", "\uffff", "ann", None, "bob"]
        everything = [(store.create_session(user, f"s{n}"), user, f"s{n}") for n, user in enumerate(names)]
        assert store.sessions() == everything
        for size in (1, 3, 99):
            sessions: list[SessionKey] = []
            while page := store.sessions(after=sessions[-1].key if sessions else 0, limit=size):
                sessions += page
                assert len(sessions) <= len(everything), "a page begins before its `after`"
            assert sessions == everything
        first, last = everything[0][0], everything[-1][0]
        assert store.sessions("ann", None, after=first, limit=2) == [everything[1], everything[7]]
        assert store.sessions("ann", after=last) == store.sessions("nobody") == store.sessions(limit=0) == []

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


def _sorted(answer: Any) -> Any:
    """Return an answer in which what may come in any order is sorted."""
    if not isinstance(answer, dict):
        return answer
    return {
        key: one._replace(segments=sorted(one.segments), vectors=sorted(one.vectors))
        if isinstance(one, MainNews)
        else one
        for key, one in answer.items()
    }
