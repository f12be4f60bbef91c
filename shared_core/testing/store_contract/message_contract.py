"""The store contract on sessions and messages: nothing is changed, cut, mixed up or stored twice."""

from datetime import datetime, timedelta, timezone
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from shared_core.errors import DuplicateError, StoreError, UnknownReferenceError
from shared_core.messages import Message, Payload
from shared_core.queries import (
    After,
    Back,
    Covers,
    ForgottenIds,
    IdPrefix,
    Ids,
    InTurns,
    Line,
    LineRead,
    MadeFrom,
    Pinned,
    Query,
    Refs,
    Says,
    Segments,
    Spaces,
    State,
)
from shared_core.records import (
    MAIN,
    ROOT,
    Create,
    Draft,
    Forgotten,
    Position,
    Restored,
    SessionState,
    Snapshot,
    VectorRows,
)
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

    def test_no_two_sessions_share_anything(self, store: Store) -> None:
        """Users and sessions with look-alike ids never meet; looking for a session does not create it."""
        pairs = [(user, name) for user in (None, *NASTY) for name in NASTY]
        assert {store.session(*pair) for pair in pairs} == {None}
        assert store.sessions() == []
        sessions = [Session(store, name, user) for user, name in pairs]
        assert [store.create_session(*pair) for pair in pairs] == [session.key for session in sessions]
        assert len({session.key for session in sessions}) == len(pairs)
        for number, session in enumerate(sessions):
            session.append(MAIN, [draft("same", content=f"mine {number}")])
        for pair, session in zip(pairs, sessions, strict=True):
            assert store.session(*pair) == session.key
            assert store.find(session.key, After(0, ALL)) == session.tree.records
        for user in (None, *NASTY):
            own = [(s.key, u, n) for (u, n), s in zip(pairs, sessions, strict=True) if u == user]
            assert store.sessions(user) == store.sessions_with(user, "same") == own
            assert store.sessions_with(user, "other") == []
        for name in (*NASTY, "unused"):
            assert store.sessions_named(name) == [one for one in store.sessions() if one.session_id == name]

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
        assert store.get(mine.key, ["u2"]) == store.find(mine.key, InTurns(["u2"])) == []
        with pytest.raises(UnknownReferenceError):
            store.append(mine.key, "side", drafts("u9"))
        mine.forget([Position(0, 0), Position(0, 1)], branches=True)
        assert store.snapshot(other.key, "snap") == b"other"
        assert list(store.vectors(other.key, "space")) == [(Position(0, 0), "hash", b"other")]
        assert of_texts(store, mine.key, "space", ["hash"]) == []
        mine.check()
        other.check()

    def test_an_unknown_session_is_empty(self, store: Store) -> None:
        """Reading finds nothing, adding is refused, and neither creates anything."""
        key = store.create_session(None, "s") + 10**6
        assert store.state(key, MAIN) == SessionState(None, 0, 0)
        assert store.read(key, State(MAIN), After(0, ALL)) == [SessionState(None, 0, 0), []]
        lists: tuple[Query, ...] = (
            *(After(0, ALL), Pinned(), IdPrefix("", ALL), MadeFrom([Position(0, 0)]), Says([7], 1), Ids(["u1"])),
            *(Back(ROOT, ALL), Spaces(), Segments(), Covers([0]), Refs("move"), ForgottenIds(None, ALL)),
        )
        assert store.read(key, *lists, Line("none", 9)) == [*([] for _ in lists), LineRead([], [])]
        assert store.forgotten_since(key, 0) in (None, Forgotten([], []))
        stats = dict(store.stats(key))
        assert stats.pop("bytes") >= 0
        assert stats == dict.fromkeys(("messages", "turns", "branches", "segments", "vectors", "forgotten"), 0)
        for add in (
            lambda: store.append(key, MAIN, drafts("u1")),
            lambda: store.change(key, [Create("side", ROOT)]),
            lambda: store.restore(key, Restored(forgotten=("x",))),
            lambda: store.segment(key, 0),
        ):
            with pytest.raises(UnknownReferenceError):
                add()
        store.keep(key, VectorRows("space", [(Position(0, 0), "hash", b"v")]))
        store.forget(key, [Position(0, 0)], branches=True)
        assert store.keep(key, Snapshot("snap", b"x"), 0) is False
        assert store.branches(key) == []

    def test_messages_come_back_as_they_were(self, store: Store) -> None:
        """Every field alone and with all others, every time zone, and the token count or its absence."""
        session = Session(store)
        moments = ["2024-01-01T00:00:00.000001+00:00", "1999-12-31T23:59:59-11:30", "2024-06-01T12:00:00+05:45"]
        given = [draft(f"u{number}", created_at=moment) for number, moment in enumerate(moments)]
        given += [draft(f"u {name}", **{name: value}) for name, value in RICH.items()]
        given += [Draft(draft("a1", "assistant", "").message), draft("a2", "assistant", **RICH), draft("s1", "system")]
        session.append(MAIN, given)
        session.check()
        for one, record in zip(given, store.find(session.key, After(0, ALL)), strict=True):
            assert record.message.model_dump() == one.message.model_dump() | {"turn_id": record.message.turn_id}
            assert str(record.message.created_at) == str(one.message.created_at), "its zone is kept, too"

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

    def test_an_id_and_a_prefix_mean_themselves(self, store: Store) -> None:
        """There are no wildcards; ids come in order of storing, not of the alphabet, and never more than the limit."""
        session = Session(store)
        ids = ["b%", "b_", "b\\x", "ba", "B", "b", "c%d", "c1d", "\U0010ffffz", "b\U0010ffff", "é1", "e\u0301"]
        ids += [id_ for id_ in NASTY if id_]
        session.append(MAIN, [draft(id_) for id_ in ids])
        session.check()
        for prefix in ("", "b", "b%", "b_", "b\\", "c%", "c", "%", "_", "\U0010ffff", "é", "e", "x", "b\x01"):
            expected = [id_ for id_ in ids if id_.startswith(prefix)]
            for limit in (ALL, 2, 0):
                found = store.find(session.key, IdPrefix(prefix, limit))
                assert [record.message.id for record in found] == expected[:limit]

    def test_adding_again_changes_nothing(self, store: Store) -> None:
        """A known id with the same content is left as it is, whatever its time and position on the branch."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1"))
        session.append(MAIN, [draft("u1", created_at="2030-01-01T00:00:00+00:00", turn_id="other")])
        session.append("side", drafts("u1", "u2", "a1", "a2"), at=Position(0, 1))
        session.append("side", drafts("a1", "u2"))
        session.append("side", drafts("a1"))
        session.append(MAIN, [])
        session.check()

    def test_a_message_that_the_branch_does_not_hold_is_refused(self, store: Store) -> None:
        """The error names its id and the branch, and nothing of the call is stored: it would be left elsewhere."""
        session = Session(store)
        session.append(MAIN, drafts("u1", "a1", "u2"))
        session.append("side", drafts("u3", "a3"), at=Position(0, 1))
        session.move("side", Position(1, 2))
        cases = [(MAIN, None, "u3"), ("side", None, "u2"), ("side", None, "a3"), ("new", ROOT, "u1")]
        for branch, at, id_ in cases:
            for ids in ([id_], ["u9", id_], ["a1", id_] if at is None else ["a8", id_, "a9"]):
                for known in (None, session.known(branch)) if at is None else (None,):
                    with pytest.raises(DuplicateError, match=f"{id_!r} is stored, but not on branch {branch!r}"):
                        store.append(session.key, branch, drafts(*ids), at=at, known=known)
        session.merge(MAIN, Position(1, 2))
        session.append(MAIN, drafts("u3", "a4"))
        with pytest.raises(DuplicateError, match="'a3'"):
            store.append(session.key, MAIN, drafts("u3", "a3", "a5"))
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
