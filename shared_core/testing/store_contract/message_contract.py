"""The store contract on sessions and messages: nothing is changed, cut, mixed up or stored twice."""

from datetime import datetime, timedelta, timezone
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.messages import Message, Payload
from shared_core.queries import After, IdPrefix, InTurn, Pinned
from shared_core.records import MAIN, ROOT, Create, Draft, Position, SessionState, Snapshot, VectorRows
from shared_core.store import Store
from shared_core.testing.oracle import ALL, Session, draft, drafts, of_texts

__all__ = ["NASTY", "RICH", "MessageContract", "sample"]

NASTY = ('["a","b"]', "", "%", "_", "\\", "'; --", '"', "null", "None", "a\x01b", "שלום \u202e", "😀", "a", "A", " a")
"""Ids and names that a store confuses if it quotes, trims, folds case or cuts."""

_SAMPLES: dict[Any, Any] = {
    str: "é😀",
    int: 7,
    float: 0.1 + 0.2,
    bool: True,
    datetime: datetime(2024, 2, 29, 12, 0, 0, 123456, timezone(timedelta(hours=5, minutes=45))),
    Any: {"a": [1, 2.5, None, {"b": "é😀"}]},
}


def sample(annotation: Any) -> Any:
    """Return a value of a type, different from every default.

    Raises:
        TypeError: there is no sample of this type yet; add one to `_SAMPLES`.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return sample(arguments[0])
    if origin is Literal:
        return arguments[-1]
    if origin in (tuple, list, set, frozenset):
        return origin([sample(arguments[0])] * 2)
    if origin is dict:
        return {"key": sample(arguments[1])}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation(**{name: sample(field.annotation) for name, field in annotation.model_fields.items()})
    if NoneType in arguments:
        return sample(next(one for one in arguments if one is not NoneType))
    if annotation not in _SAMPLES:
        raise TypeError(f"there is no sample of {annotation!r} yet: add one in {__file__}")
    return _SAMPLES[annotation]


RICH: dict[str, Any] = {
    name: sample(field.annotation)
    for name, field in Message.model_fields.items()
    if name not in ("id", "role", "content", "created_at", "turn_id")
}
"""A value for each field that a draft can have beyond id, role, text and time, fields added later included."""


class MessageContract:
    """What a store keeps of a session and its messages, and what it refuses."""

    def test_a_session_exists_from_its_creation_on(self, store: Store) -> None:
        """Looking for a session does not create it; creating it twice gives one key."""
        assert store.session("u", "s") is None
        assert store.sessions("u") == []
        key = store.create_session("u", "s")
        assert store.create_session("u", "s") == store.session("u", "s") == key
        other = store.create_session("u", "a")
        assert store.sessions("u") == [(key, "u", "s"), (other, "u", "a")]
        assert store.sessions(None) == []
        assert Session(store, "s", "u").key == key
        Session(store, "s", "u").check()

    def test_no_two_sessions_share_anything(self, store: Store) -> None:
        """Users and sessions with look-alike ids never meet."""
        pairs = [(user, name) for user in (None, *NASTY) for name in NASTY]
        sessions = [Session(store, name, user) for user, name in pairs]
        assert len({session.key for session in sessions}) == len(pairs)
        for number, session in enumerate(sessions):
            session.append(MAIN, [draft("same", content=f"mine {number}")])
        for (user, name), session in zip(pairs, sessions, strict=True):
            assert store.session(user, name) == session.key
            assert store.find(session.key, After(0, ALL)) == session.tree.records
        for user in (None, *NASTY):
            own = {name: s.key for (u, name), s in zip(pairs, sessions, strict=True) if u == user}
            assert store.sessions(user) == [(key, user, name) for name, key in own.items()]
            assert store.sessions_with(user, "same") == Store.sessions_with(store, user, "same") == store.sessions(user)
            assert store.sessions_with(user, "other") == []
        for name in (*NASTY, "unused"):
            found = [(s.key, u, n) for (u, n), s in zip(pairs, sessions, strict=True) if n == name]
            assert store.sessions_named(name) == Store.sessions_named(store, name) == found

    def test_one_session_does_not_see_another(self, store: Store) -> None:
        """Every read and every change stays inside its session."""
        mine, other = Session(store, "s", "u"), Session(store, "s", "v")
        for session, text in ((mine, "mine"), (other, "other")):
            session.append(MAIN, [draft("u1", content=text), draft("a1", "assistant", text, pinned=True)])
            store.keep(session.key, VectorRows("space", [(Position(0, 0), "hash", text.encode())]))
            store.keep(session.key, Snapshot("snap", text.encode()), 0)
        other.append(MAIN, drafts("u2"))
        other.append("side", drafts("u3"), at=Position(0, 0))
        mine.check()
        assert _ids_like(store, mine.key, "", ALL) == ["u1", "a1"]
        assert (
            store.get(mine.key, ["u2"])
            == store.get(mine.key, [Position(0, 2)])
            == store.find(mine.key, InTurn("u2"))
            == []
        )
        with pytest.raises(UnknownReferenceError):
            store.append(mine.key, "side", drafts("u9"))
        mine.forget([Position(0, 0), Position(0, 1)], branches=True)
        assert store.snapshot(other.key, "snap") == b"other"
        assert list(store.vectors(other.key, "space")) == [(Position(0, 0), "hash", b"other")]
        assert of_texts(store, mine.key, "space", ["hash"]) == []
        assert list(store.vectors(mine.key, "space", [Position(0, 0)])) == []
        mine.check()
        other.check()

    def test_an_unknown_session_is_empty(self, store: Store) -> None:
        """Reading finds nothing, adding is refused, and neither creates anything."""
        key = store.create_session(None, "s") + 10**6
        assert store.state(key, MAIN) == SessionState(None, 0, 0)
        assert store.find(key, After(0, ALL)) == store.find(key, Pinned()) == []
        assert store.get(key, ["u1"]) == store.newest(key, ROOT, ALL) == []
        assert store.spaces(key) == _ids_like(store, key, "", ALL) == []
        stats = dict(store.stats(key))
        assert stats.pop("bytes") >= 0
        assert stats == dict.fromkeys(("messages", "turns", "branches", "segments", "vectors", "forgotten"), 0)
        with pytest.raises(UnknownReferenceError):
            store.append(key, MAIN, drafts("u1"))
        with pytest.raises(UnknownReferenceError):
            store.change(key, [Create("side", ROOT)])
        with pytest.raises(UnknownReferenceError):
            store.segment(key, 0)
        store.keep(key, VectorRows("space", [(Position(0, 0), "hash", b"v")]))
        store.forget(key, [Position(0, 0)], branches=True)
        assert store.keep(key, Snapshot("snap", b"x"), 0) is False
        assert store.snapshot(key, "snap") is None
        assert store.branches(key) == []

    def test_messages_come_back_as_they_were(self, store: Store) -> None:
        """Every field, every time zone, and the token count or its absence."""
        session = Session(store)
        moments = ["2024-01-01T00:00:00.000001+00:00", "1999-12-31T23:59:59-11:30", "2024-06-01T12:00:00+05:45"]
        plain = [draft(f"u{number}", created_at=moment) for number, moment in enumerate(moments)]
        uncounted = [Draft(draft("a1", "assistant", "").message)]
        session.append(MAIN, [*plain, *uncounted, draft("a2", "assistant", **RICH), draft("s1", "system")])
        records = store.find(session.key, After(0, ALL))
        zones = [r.message.created_at.utcoffset() for r in records if r.message.created_at is not None]
        assert zones == [d.message.created_at.utcoffset() for d in plain if d.message.created_at] + zones[3:]
        session.check()

    def test_every_field_is_kept(self, store: Store) -> None:
        """Each field is kept alone and with all others; a field that `Message` gets later is tried as well."""
        session = Session(store)
        each = [draft(f"u {name}", **{name: value}) for name, value in RICH.items()]
        session.append(MAIN, [*each, draft("u", **RICH)])
        session.check()
        for given, record in zip([*each, draft("u", **RICH)], store.find(session.key, After(0, ALL)), strict=True):
            assert record.message.model_dump() == given.message.model_dump() | {"turn_id": given.message.id}

    @pytest.mark.parametrize("content", [*NASTY, "<|endoftext|>", "😀" * 250_000])
    def test_any_text_is_exact_or_refused_by_name(self, store: Store, content: str) -> None:
        """A text that the store cannot hold raises StoreError, which names the message; nothing is stored."""
        session = Session(store)
        try:
            session.append(
                MAIN, [draft("u1", content=content, name=content, payload=Payload(format="x", data=content))]
            )
        except StoreError as refusal:
            if "u1" not in str(refusal):
                pytest.fail(f"the error does not name the message: {refusal}")
        session.check()

    def test_ids_are_exact(self, store: Store) -> None:
        """Ids that differ only in case, space or wildcards are different messages."""
        session = Session(store)
        session.append(MAIN, [draft(id_) for id_ in NASTY if id_])
        session.check()

    def test_a_prefix_means_itself(self, store: Store) -> None:
        """There are no wildcards; ids come in order of storing, not of the alphabet, and never more than the limit."""
        session = Session(store)
        ids = ["b%", "b_", "b\\x", "ba", "B", "b", "c%d", "c1d", "\U0010ffffz", "b\U0010ffff", "é1", "e\u0301"]
        session.append(MAIN, [draft(id_) for id_ in ids])
        for prefix in ("", "b", "b%", "b_", "b\\", "c%", "c", "%", "_", "\U0010ffff", "é", "e", "x", "b\x01"):
            expected = [id_ for id_ in ids if id_.startswith(prefix)]
            assert _ids_like(store, session.key, prefix, ALL) == expected
            assert _ids_like(store, session.key, prefix, 2) == expected[:2]
            assert _ids_like(store, session.key, prefix, 0) == []

    def test_adding_again_changes_nothing(self, store: Store) -> None:
        """A known id with the same content is left as it is, whatever its time, position and branch."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        again = draft("u1", created_at="2030-01-01T00:00:00+00:00", turn_id="other")
        assert session.append(MAIN, [again]).records[0].message.created_at == draft("u1").message.created_at
        session.append("side", drafts("u1", "a1"), at=ROOT)
        session.append("side", drafts("u1", "u2", "a1", "a2"))
        session.append(MAIN, [])
        session.check()

    @pytest.mark.parametrize("change", [{"content": "new"}, {"role": "assistant"}, {"pinned": True}, {"name": "x"}])
    def test_other_content_under_a_known_id_is_refused(self, store: Store, change: dict[str, Any]) -> None:
        """The error names the id, and the whole call stores nothing, not even its new branch."""
        session = Session(store)
        session.append(MAIN, drafts("u1"))
        given_ = [*drafts("u2"), draft("u1", **change), *drafts("u3")]
        for branch, at in ((MAIN, None), ("side", ROOT)):
            with pytest.raises(DuplicateError, match="'u1'"):
                store.append(session.key, branch, given_, at=at)
            session.check()

    def test_bad_drafts_are_refused(self, store: Store) -> None:
        """A draft must have a time, and an id that no other draft of the call has."""
        session = Session(store)
        with pytest.raises(DuplicateError, match="'u1'"):
            store.append(session.key, MAIN, drafts("u1", "u2", "u1"))
        for lacking in ({"id": None}, {"created_at": None}):
            with pytest.raises(ValueError, match="user"):
                store.append(session.key, MAIN, [Draft(draft("u1").message.replace(**lacking))])
        session.check()

    def test_reading_is_limited_and_paged(self, store: Store) -> None:
        """`newest` reads backwards from a depth, `After` forwards from a number, both without gaps."""
        session = Session(store)
        session.append(MAIN, drafts(*(f"u{number}" for number in range(7))))
        session.append("side", drafts("u7", "u8"), at=Position(0, 3))
        records = session.tree.records
        for depth in range(-1, 9):
            for limit in (0, 1, 3, 99):
                below = [r for r in records if r.position.segment == 0 and r.position.depth <= depth]
                assert store.newest(session.key, Position(0, depth), limit) == below[::-1][:limit]
        for seq in range(11):
            for limit in (0, 1, 4, 99):
                assert store.find(session.key, After(seq, limit)) == records[seq : seq + limit]
        asked = [Position(0, 5), Position(0, 99), Position(0, 1), Position(0, 5), Position(7, 0)]
        assert store.get(session.key, asked) == [records[5], records[1], records[5]]
        assert store.get(session.key, ["u5", "U5", "u1", "u5"]) == [records[5], records[1], records[5]]


def _ids_like(store: Store, session: int, prefix: str, limit: int) -> list[str | None]:
    return [record.message.id for record in store.find(session, IdPrefix(prefix, limit))]
