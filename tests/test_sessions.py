"""The sessions of a user: listed, renamed, and erased together."""

import asyncio
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from shared_core import (
    AsyncInfiniteMemory,
    DuplicateError,
    InfiniteMemory,
    Message,
    SessionPool,
    SQLiteStore,
    UnknownReferenceError,
)
from shared_core.results import SessionInfo
from shared_core.testing import HashingEmbedder
from tests.support.histories import NOON, history, ids, texts

WORD = "xyzzyplugh"
"""Said in what is to be erased, and nowhere else."""


def said(store: SQLiteStore, session: str, user: str | None, *contents: str) -> InfiniteMemory:
    memory = InfiniteMemory(store, session_id=session, user_id=user, embedder=HashingEmbedder())
    memory.add([Message.user(content) for content in contents])
    return memory


def names(memory: InfiniteMemory) -> list[str]:
    return [info.session_id for info in memory.sessions()]


# The list


def test_the_sessions_of_the_user_are_listed_newest_first(store: SQLiteStore) -> None:
    memory = InfiniteMemory(store, session_id="trip", user_id="ann")
    assert memory.sessions() == []
    memory.add([Message.system("Be brief.", created_at=NOON), *history(4)])
    memory.fork("side", at="m1")
    memory.add(Message.user("aside", created_at=NOON - timedelta(days=1)))
    InfiniteMemory(store, session_id="work", user_id="ann").add(Message.assistant("Hello!", created_at=NOON))
    trip = SessionInfo("trip", "ann", 6, 2, NOON, NOON - timedelta(days=1), "item0 concerns zero gardens, see item0")
    work = SessionInfo("work", "ann", 1, 1, NOON, NOON, None)
    assert memory.sessions() == [work, trip]
    assert memory.sessions(limit=1) == [work]
    assert trip.to_dict() == {
        "session_id": "trip", "user_id": "ann", "messages": 6, "branches": 2, "first": "2024-05-01T12:00:00+00:00",
        "last": "2024-04-30T12:00:00+00:00", "title": "item0 concerns zero gardens, see item0",
    }  # fmt: skip
    with pytest.raises(ValueError, match="limit=-1"):
        memory.sessions(limit=-1)


def test_nobody_sees_the_sessions_of_another(store: SQLiteStore) -> None:
    users = ["ann", "bob", None, "None"]
    for user in users:
        said(store, "diary", user, f"dear diary of {user!r}")
        said(store, f"only {user!r}", user, "hello")
    for user in users:
        memory = InfiniteMemory(store, user_id=user, session_id="new")
        assert names(memory) == [f"only {user!r}", "diary"]
        assert [(info.user_id, info.title) for info in memory.sessions()] == [
            (user, "hello"),
            (user, f"dear diary of {user!r}"),
        ]


def test_a_session_without_messages_is_not_listed(store: SQLiteStore) -> None:
    kept = said(store, "kept", None, "hello")
    emptied = said(store, "emptied", None, "hello")
    InfiniteMemory(store, session_id="created").fork("side")
    emptied.forget(session=True)
    pruned = said(store, "pruned", None, "one", "two")
    pruned.forget(ids=[str(id_) for id_ in ids(pruned.messages())])
    assert names(kept) == names(emptied) == ["kept"]


# A new name


def test_a_renamed_session_keeps_everything(store: SQLiteStore, tmp_path: Path) -> None:
    memory = said(store, "old", "ann", "My locker code is 4471.")
    memory.fork("side")
    memory.add(Message.user("aside"))
    memory.tag("here")
    memory.index()
    memory.export(tmp_path / "before.jsonl", vectors=True)
    memory.rename_session("new")
    assert (memory.session_id, names(memory)) == ("new", ["new"])
    memory.export(tmp_path / "after.jsonl", vectors=True)
    before, after = ((tmp_path / name).read_text().splitlines() for name in ("before.jsonl", "after.jsonl"))
    assert before[2:-1] == after[2:-1]
    again = InfiniteMemory(store, session_id="new", user_id="ann", embedder=HashingEmbedder())
    assert texts(again.messages()) == ["My locker code is 4471."]
    assert again.search("locker code")[0].message.content == "My locker code is 4471."


def test_an_object_in_use_goes_on_and_a_new_one_begins_anew(tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "a.db")) as one, closing(SQLiteStore(tmp_path / "a.db")) as other:
        memory, used = said(one, "old", None, "hello"), said(other, "old", None, "hi")
        unused = InfiniteMemory(other, session_id="old")
        memory.rename_session("new")
        assert (memory._is_renamed(), used._is_renamed(), unused._is_renamed()) == (False, True, False)
        used.add(Message.assistant("still here"))
        assert used.session_id == "old"
        assert texts(memory.messages()) == texts(used.messages()) == ["hello", "hi", "still here"]
        assert list(unused.messages()) == []
        unused.add(Message.user("a new conversation"))
        assert names(memory) == ["old", "new"]
        assert texts(memory.messages()) == ["hello", "hi", "still here"]


def test_a_name_is_taken_only_within_the_user(store: SQLiteStore) -> None:
    memory = said(store, "mine", "ann", "hello")
    for user in ("ann", "bob"):
        said(store, "taken", user, "hello")
    with pytest.raises(DuplicateError, match="'taken'"):
        memory.rename_session("taken")
    said(store, "theirs", "bob", "hello")
    memory.rename_session("theirs")
    assert sorted(names(memory)) == ["taken", "theirs"]
    for wrong in (None, 5):
        with pytest.raises(ValueError, match="session_id="):
            memory.rename_session(wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownReferenceError, match="'empty'"):
        InfiniteMemory(store, session_id="empty").rename_session("x")


def test_the_name_of_an_erased_session_can_be_used_again(store: SQLiteStore) -> None:
    erased, memory = said(store, "best", None, "first try"), said(store, "draft", None, "second try")
    (gone,) = erased.forget(session=True).ids
    memory.rename_session("best")
    assert texts(InfiniteMemory(store, session_id="best").messages()) == ["second try"]
    assert list(InfiniteMemory(store, session_id="draft").messages()) == []
    assert erased.add(Message.user("first try", id=gone)) == []


def test_a_pool_lends_no_renamed_session_under_its_old_name() -> None:
    with SessionPool() as pool:
        with pool.use("old", "ann") as memory:
            memory.add(Message.user("hello"))
        with pool.use("old", "ann") as memory, pool.use("old", "ann") as other:
            other.add(Message.user("again"))
            memory.rename_session("new")
        with pool.use("old", "ann") as fresh, pool.use("new", "ann") as renamed:
            assert list(fresh.messages()) == []
            assert texts(renamed.messages()) == ["hello", "again"]
            fresh.add(Message.user("anew"))
        assert [info.session_id for info in pool.sessions("ann")] == ["old", "new"]
        assert [info.session_id for info in pool.sessions("ann", limit=1)] == ["old"]
        assert pool.sessions() == pool.sessions("bob") == []


def test_the_asynchronous_memory_does_the_same() -> None:
    async def use() -> None:
        async with AsyncInfiniteMemory(session_id="old", user_id="ann", embedder="words") as memory:
            await memory.add(Message.user("hello", id="u", created_at=NOON))
            assert await memory.sessions() == [SessionInfo("old", "ann", 1, 1, NOON, NOON, "hello")]
            assert [hit.session_id for hit in await memory.search("hello", scope="user")] == ["old"]
            await memory.rename_session("new")
            assert memory.session_id == "new"
            assert (await memory.forget(user=True)).ids == ("u",)
            assert await memory.sessions(limit=5) == []

    asyncio.run(use())


# All of them erased


def test_all_sessions_of_a_user_are_erased_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with closing(SQLiteStore(path)) as store:
        memory, other = said(store, "a", "ann", f"{WORD} one"), said(store, "b", "ann", f"{WORD} two", "three")
        other.fork("side", at=other.newest(2)[0].id)
        other.add(Message.user(f"{WORD} aside"))
        bob, nobody = said(store, "a", "bob", "mine"), said(store, "a", None, "ours")
        for one in (memory, other, bob, nobody):
            one.index()
        would = memory.forget(user=True, dry_run=True)
        assert (len(would.ids), would.dry_run, names(memory)) == (4, True, ["b", "a"])
        gone = memory.forget(user=True)
        assert (set(gone.ids), gone.scrubbed, gone.dry_run) == (set(would.ids), True, False)
        assert [*memory.messages(), *InfiniteMemory(store, session_id="b", user_id="ann").messages()] == []
        assert (memory.sessions(), [branch.name for branch in memory.branches()]) == ([], ["main"])
        assert (texts(bob.messages()), texts(nobody.messages())) == (["mine"], ["ours"])
        assert WORD.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert memory.forget(user=True).ids == ()
        with pytest.raises(ValueError, match="user_id="):
            nobody.forget(user=True)
        assert texts(nobody.messages()) == ["ours"]


KILLED = """
import os, sys
from shared_core import InfiniteMemory, SQLiteStore

class Dies(SQLiteStore):
    calls = 0
    def forget(self, *arguments, **named):
        super().forget(*arguments, **named)
        self.calls += 1
        if self.calls == 2:
            os._exit(9)

InfiniteMemory(Dies(sys.argv[1]), session_id="1", user_id="ann").forget(user=True)
"""


def test_a_killed_erasure_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with closing(SQLiteStore(path)) as store:
        for session in ("1", "2", "3"):
            said(store, session, "ann", f"{WORD} {session}", f"{WORD} again")
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == 9
    with InfiniteMemory(path, session_id="1", user_id="ann") as memory:
        assert names(memory) == ["3", "2"], "each session is erased whole or not at all"
        assert [info.messages for info in memory.sessions()] == [2, 2]
        assert len(memory.forget(user=True).ids) == 4
        assert WORD.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
