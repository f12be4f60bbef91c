"""A copy equals its source to the last row: at once, after a kill, and while the source is written to."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import DuplicateError, InfiniteMemory, Message, PostgresStore, SQLiteStore, StoreError
from shared_core.doors.cli.command import run
from shared_core.history.normal_form import fingerprint
from shared_core.operations.store_comparison import differences
from shared_core.operations.store_copy import MARK, copy_store
from shared_core.queries import Says
from shared_core.records import MAIN, Create, Position, Put, Restored, Snapshot, Stretch, Summary, VectorRows
from shared_core.store import Store
from shared_core.testing import CountedStore, HashingEmbedder
from shared_core.testing.oracle import Session, drafts
from tests.stores.dict_store import DictStore
from tests.stores.postgres_server import Server
from tests.support.documents import ROOT
from tests.support.histories import NOON
from tests.support.random_talk import RandomTalk

SOAK = bool(os.environ.get("SOAK"))
FEW = settings(max_examples=500 if SOAK else 8)
"""Each example is two conversations of some 40 steps."""


@contextmanager
def opened(kind: str, server: Server | None = None, name: str = "") -> Iterator[Store]:
    """An empty store."""
    if kind == "postgres":
        assert server is not None
        store: Store = PostgresStore(server.address(), schema=f"copy {name}", partitions=2)
    else:
        store = {"sqlite": lambda: SQLiteStore(":memory:"), "dict": DictStore}[kind]()
    with closing(store):
        yield store
    if kind == "postgres" and server is not None:
        server.run(f'DROP SCHEMA "copy {name}" CASCADE')


def equal(source: Store, target: Store, **how: Any) -> None:
    """Copy, and see that there is no difference in either direction."""
    copy_store(source, target, **how)
    assert list(differences(source, target)) == []
    assert list(differences(target, source)) == []


# Equal to the last row


def talk_and_copy(source: Store, target: Store, random: Random, rounds: int) -> None:
    talks = [RandomTalk(source, random, "a"), RandomTalk(source, random, "b", "ann")]
    for _ in range(rounds):
        for talk in talks:
            talk.steps(random.randint(0, 12))
        equal(source, target)
    written = CountedStore(target)
    copy_store(source, written)
    assert not {"restore", "change", "forget", "create_session"} & {*written.trips} - {"create_session"}


@FEW
@given(st.integers(0, 2**32), st.sampled_from([("sqlite", "dict"), ("dict", "sqlite")]))
def test_whatever_happened_a_copy_is_equal(seed: int, kinds: tuple[str, str]) -> None:
    with opened(kinds[0]) as source, opened(kinds[1]) as target:
        talk_and_copy(source, target, Random(seed), 3)


@pytest.mark.server
@pytest.mark.parametrize("seed", range(20 if SOAK else 3))
def test_sqlite_and_postgres_hold_the_same_after_a_copy(server: Server, seed: int) -> None:
    with opened("sqlite") as source, opened("postgres", server, f"{seed}") as there, opened("sqlite") as back:
        random = Random(seed)
        talk_and_copy(source, there, random, 3)
        equal(there, back)
        assert list(differences(source, back)) == []
        RandomTalk(there, random, "a").steps(12)
        equal(there, back)


def test_each_difference_is_named() -> None:
    start = Position(0, 0)
    changes: dict[str, Callable[[Store, int], object]] = {
        "branches from number 2": lambda store, key: store.change(key, [Create("side", start)]),
        "tags, stashes, moves or heads from number 1": lambda store, key: store.change(
            key, [Put("tag", "here", start)]
        ),
        "what messages sum up from number 1": lambda store, key: store.restore(
            key, Restored(covers=((start, Stretch(0, 0, 0)),))
        ),
        "forgotten ids from number 1": lambda store, key: store.restore(key, Restored(forgotten=("gone",))),
        "summaries from number 1": lambda store, key: store.keep(key, Summary("u1", start, start, "u1", 1, NOON)),
        "vectors from number 1": lambda store, key: store.keep(key, VectorRows("space", [(start, "h", b"34")])),
        "vector spaces from number 1": lambda store, key: store.keep(key, VectorRows("other", [(start, "h", b"34")])),
        "messages from number 2": lambda store, key: store.append(key, MAIN, drafts("u2")),
    }
    for what, change in changes.items():
        with opened("sqlite") as source, opened("sqlite") as target:
            session = Session(source)
            session.append(MAIN, drafts("u1"))
            source.keep(session.key, VectorRows("space", [(start, "hash", b"12")]))
            equal(source, target)
            change(target, target.sessions()[0].key)
            for one, two in ((source, target), (target, source)):
                assert next(differences(one, two)).endswith(f": {what}")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def test_what_no_history_is_recognized_by_is_so_in_a_copy(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue("server") if kind == "postgres" else None
    with opened("sqlite") as source, opened(kind, server, "alone") as there, opened("sqlite") as back:
        key = Session(source).key
        source.append(key, MAIN, [replace(draft, alone=True) for draft in drafts("u1")] + drafts("u2"))
        equal(source, there)
        equal(there, back)
        said = [fingerprint(record.message) or 0 for record in source.get(key, ["u1", "u2"])]
        for store in (source, there, back):
            found = store.find(store.sessions()[0].key, Says(said, 9))
            assert [record.message.id for record in found] == ["u2"]


@pytest.mark.parametrize("what", ["added", "forgotten"])
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def test_what_others_do_to_a_session_before_its_turn_ends_the_copy(
    kind: str, what: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("server") if kind == "postgres" else None
    with opened("sqlite") as source, opened(kind, server, what) as target:
        for name in "ab":
            source.append(source.create_session(None, name), MAIN, drafts(f"u{name}1", f"u{name}2"))
        equal(source, target)
        source.append(source.session(None, "a") or 0, MAIN, drafts("ua3"))
        key = source.session(None, "b") or 0
        source.keep(key, Summary("what ub1 says", Position(0, 0), Position(0, 0), "ub1", 1, NOON))
        there = target.session(None, "b") or 0

        def meanwhile(*_: int) -> None:
            if what == "added":
                target.append(there, MAIN, drafts("ub9"))
            else:
                target.forget(there, [Position(0, 1)])

        with pytest.raises(DuplicateError, match=r"session 'b' .* copy to a new store"):
            copy_store(source, target, progress=meanwhile)
        assert target.summaries(there, Position(0, 1), 9) == []
        assert target.stats(target.session(None, "a") or 0)["messages"] == 3
        with pytest.raises(DuplicateError):
            copy_store(source, target)


def test_what_is_forgotten_while_it_is_copied_is_nowhere() -> None:
    with opened("sqlite") as source, opened("sqlite") as target:
        key = Session(source).key
        source.append(key, MAIN, drafts("u1", "u2"))
        left = [Position(0, 1)]
        copy_store(source, target, progress=lambda *_: source.forget(key, [left.pop()]) if left else None)
        assert list(differences(source, target)) == []
        source.append(key, MAIN, drafts(*(f"u1{n}" for n in range(20))))
        for_ever = iter(range(2, 22))
        with pytest.raises(StoreError, match="try again"):
            copy_store(source, target, progress=lambda *_: source.forget(key, [Position(0, next(for_ever))]))
        assert target.stats(target.sessions()[0].key)["messages"] == 1


def test_numbers_and_names_go_on_as_they_would_have() -> None:
    with opened("sqlite") as source, opened("sqlite") as target:
        key = Session(source).key
        source.append(key, MAIN, drafts("u1", "u2"))
        source.append(key, "side", drafts("u3"), at=source.get(key, ["u1"])[0].position)
        source.forget(key, [source.get(key, ["u2"])[0].position, source.get(key, ["u3"])[0].position])
        equal(source, target)
        for store in (source, target):
            store.append(key, "side", drafts("u4"))
            store.append(key, MAIN, drafts("u5", "u2"))
        assert list(differences(source, target)) == []


def test_sessions_that_were_renamed_or_swapped_their_names_follow() -> None:
    with opened("sqlite") as source, opened("sqlite") as target:
        for name in "abc":
            with InfiniteMemory(source, session_id=name) as memory:
                memory.add(Message.user(f"I am {name}."))
        equal(source, target)
        keys = {name: source.session(None, name) or 0 for name in "abc"}
        for old, new in (("a", "x"), ("b", "a"), ("c", "d")):
            source.rename_session(keys[old], new)
        source.rename_session(keys["a"], "b")
        with InfiniteMemory(source, session_id="c") as memory:
            memory.add(Message.user("I am new."))
        equal(source, target)
        assert target.stats(target.session(None, "b") or 0)["messages"] == 1


def test_one_users_sessions() -> None:
    with opened("sqlite") as source, opened("sqlite") as target:
        for user in (None, "ann", "bob"):
            with InfiniteMemory(source, user_id=user) as memory:
                memory.add(Message.user("hello"))
        assert copy_store(source, target, users=["ann", None]).sessions == 2
        assert list(differences(source, target, users=["ann", None])) == []
        assert list(differences(source, target)) == ["user 'bob', session 'default': only in the first"]
        assert list(differences(target, source)) == ["session 'default' of user 'bob': only in the second"]
        assert copy_store(source, target, users=[]).sessions == 0


def test_vectors_that_changed_or_went_follow() -> None:
    with opened("sqlite") as source, opened("dict") as target:
        key = Session(source).key
        source.append(key, MAIN, drafts("u1", "u2", "u3"))
        places = [record.position for record in source.get(key, ["u1", "u2", "u3"])]
        source.keep(key, VectorRows("one", [(place, "h", b"1") for place in places]))
        source.keep(key, VectorRows("two", [(places[0], "h", b"2")]))
        equal(source, target)
        source.forget(key, [], stale=places[:1])
        equal(source, target)
        source.keep(key, VectorRows("one", [(places[0], "h", b"3"), (places[1], "h", b"4")]))
        assert copy_store(source, target).vectors == 2
        source.keep(key, VectorRows("three", [(places[2], "h", b"5")]))
        equal(source, target)
        source.keep(key, VectorRows("one", ()))
        equal(source, target)


# Kills, and a source that is written to


class Killed(Exception):
    """Stands for a process that ends here."""


class Dying(CountedStore):
    """A store whose user is killed after so many calls."""

    left = 0

    def _noted(self, name: str) -> Store:
        self.left -= 1
        if not self.left:
            raise Killed
        return super()._noted(name)


@FEW
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_a_copy_that_was_interrupted_anywhere_goes_on(seed: int, calls: int) -> None:
    random = Random(seed)
    with opened("sqlite") as source, opened("sqlite") as target:
        talk = RandomTalk(source, random)
        for _ in range(2):
            talk.steps(random.randint(1, 12))
            dying = Dying(target)
            dying.left = calls
            try:
                copy_store(source, dying)
            except Killed:
                talk.steps(1)
        equal(source, target)


def filled(path: Path | str, messages: int, sessions: int = 1) -> None:
    """Fill a store with sessions of so many messages in all, each with a vector."""
    with closing(SQLiteStore(path, durability="process") if isinstance(path, Path) else PostgresStore(path)) as store:
        for number in range(sessions):
            with InfiniteMemory(store, session_id=f"s{number}", embedder=HashingEmbedder()) as memory:
                for start in range(0, messages // sessions, 1_000):
                    said = range(start, min(start + 1_000, messages // sessions))
                    memory.add([Message.user(f"message {n} of session {number}", id=f"m{n}") for n in said])
                memory.index()


COPY = """
import sys
from shared_core.operations.store_copy import copy_store
from shared_core.stores import open_store
say = lambda done, total: print(done, total, flush=True)
copy_store(open_store(sys.argv[1]), open_store(sys.argv[2]), progress=say)
"""


def killed_copy(source: str, target: str, pages: int) -> None:
    """Copy in a process that is killed after so many pages."""
    command = [sys.executable, "-c", COPY, source, target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for _, _line in zip(range(pages), process.stdout, strict=False):
            pass
        process.send_signal(signal.SIGKILL)
        process.stdout.read()


@pytest.mark.server
def test_a_process_that_is_killed_leaves_what_the_next_one_goes_on_with(tmp_path: Path, server: Server) -> None:
    size = 4_000
    path, back = tmp_path / "a.db", tmp_path / "b.db"
    address = server.address("copies")
    server.run("CREATE DATABASE copies TEMPLATE template0 ENCODING 'UTF8'")
    filled(path, size, sessions=2)
    killed_copy(str(path), address, 3)
    with closing(SQLiteStore(path)) as source, closing(PostgresStore(address)) as target:
        assert copy_store(source, target).messages == size / 2
        assert list(differences(source, target)) == []
    killed_copy(address, str(back), 2)
    with closing(PostgresStore(address)) as source, closing(SQLiteStore(back, durability="process")) as target:
        equal(source, target)
    server.run("DROP DATABASE copies WITH (FORCE)")


def test_a_source_that_is_written_to_is_caught_up_with(tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "a.db", durability="process")) as source, opened("sqlite") as target:
        done = threading.Event()
        talks = [RandomTalk(source, Random(number), f"s{number}") for number in range(2)]

        def write(talk: RandomTalk) -> None:
            while not done.is_set():
                talk.steps(1)

        writers = [threading.Thread(target=write, args=(talk,)) for talk in talks]
        for writer in writers:
            writer.start()
        for _ in range(4):
            copy_store(source, target)
        done.set()
        for writer in writers:
            writer.join()
        equal(source, target)


# What is refused


def written(path: Path, *messages: Message, session: str = "default") -> str:
    with InfiniteMemory(path, session_id=session) as memory:
        memory.add(list(messages))
    return str(path)


HELLO = Message.user("hello", id="m1")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s, k: s.append(k, MAIN, drafts("u9")),
        lambda s, k: s.forget(k, [s.get(k, ["m1"])[0].position]),
    ],
)
def test_what_was_changed_there_is_refused_before_anything_is_written(
    tmp_path: Path, spoil: Callable[[Store, int], None]
) -> None:
    written(tmp_path / "a.db", HELLO, session="a")
    written(tmp_path / "a.db", HELLO, session="b")
    with closing(SQLiteStore(tmp_path / "a.db")) as source, opened("sqlite") as target:
        copy_store(source, target)
        spoil(target, target.session(None, "b") or 0)
        written(tmp_path / "a.db", Message.user("more", id="m2"), session="a")
        with pytest.raises(DuplicateError, match=r"session 'b' .*nothing of it was written"):
            copy_store(source, target)
        assert target.stats(target.session(None, "a") or 0)["messages"] == 1


def test_what_only_looks_like_a_copy_is_refused() -> None:
    with opened("sqlite") as source, opened("sqlite") as target:
        for store in (source, target):
            store.append(Session(store).key, MAIN, drafts("u1", "u2"))
        with pytest.raises(DuplicateError, match="is no copy"):
            copy_store(source, target)
        target.keep(1, Snapshot(MARK, b'{"source": "elsewhere", "session": 1, "epoch": 0, "last_seq": 2}'))
        with pytest.raises(DuplicateError, match="is no copy"):
            copy_store(source, target)


def test_a_store_is_not_copied_onto_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", HELLO)
    (tmp_path / "link.db").hardlink_to(path)
    with closing(SQLiteStore(path)) as one, closing(SQLiteStore(path)) as two:
        for target in (one, two, CountedStore(two)):
            with pytest.raises(ValueError, match="are the same store"):
                copy_store(one, target)


# The command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_copies_and_compares(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(here / "a.db", HELLO)
    assert run(["copy", "a.db", "b.db", "--verify"]) == 0
    assert capsys.readouterr().out == "a.db -> b.db: 1 new message in 1 session, 0 forgotten\nboth hold the same\n"
    assert run(["copy", "a.db", "b.db", "--json"]) == 0
    assert '"messages": 0' in capsys.readouterr().out
    written(here / "b.db", Message.user("mine", id="m2"))
    assert run(["copy", "a.db", "b.db"]) == 2
    assert "session 'default' of the destination is no copy of this one" in capsys.readouterr().err
    assert run(["copy", "a.db", "a.db"]) == 2
    assert "the same store" in capsys.readouterr().err
    assert run(["copy", "none.db", "c.db"]) == 2
    assert "no store at 'none.db'" in capsys.readouterr().err
    for wrong, why in (("redis://x", "knows SQLite and"), ("postgresql://h/d?pool_size=many", "expected a whole")):
        for places in (["a.db", wrong], [wrong, "c.db"]):
            assert run(["copy", *places]) == 2
            assert why in (said := capsys.readouterr().err)
            assert "--store" not in said
    assert not (here / "c.db").exists()
    assert run(["copy", "a.db", "c.db", "--user", "ann"]) == 0
    assert capsys.readouterr().out.startswith("a.db -> c.db: 0 new messages in 0 sessions")
