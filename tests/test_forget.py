"""A forgotten message is gone from everywhere, and does not come back."""

import logging
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared_core import Grounding, GroundingItem, InfiniteMemory, Message, ToolCall, UnknownReferenceError
from shared_core.index.session_vectors import encode_vector, text_hash
from shared_core.messages import Payload
from shared_core.queries import After
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import NOON, CountingStore, history, ids, texts

SMALL: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 50}

WORD = "xyzzyplugh"
"""Said in secret, and nowhere else."""

SOAK = bool(os.environ.get("SOAK"))


@pytest.fixture
def memory(store: CountingStore) -> InfiniteMemory:
    return InfiniteMemory(store, embedder=HashingEmbedder(), **SMALL)


def call(id_: str, *calls: str, **fields: Any) -> Message:
    return Message.assistant(id=id_, tool_calls=tuple(ToolCall(id=c, name="find") for c in calls), **fields)


def result(id_: str, call_: str) -> Message:
    return Message.tool(f"result {id_}", call_, id=id_)


# What goes


def test_ids_go_and_nothing_else(memory: InfiniteMemory) -> None:
    memory.add(history(10))
    assert memory.forget(ids=["m7", "m2"]).to_dict() == {
        "ids": ["m2", "m7"],
        "dry_run": False,
        "stay": ["m3", "m6"],
        "scrubbed": True,
        "reason": None,
    }
    assert ids(memory.messages()) == [f"m{number}" for number in (0, 1, 3, 4, 5, 6, 8, 9)]
    assert memory.forget(ids=[]).ids == ()


@pytest.mark.parametrize("chosen", ["call", "r1", "r2"])
def test_a_tool_group_goes_whole(memory: InfiniteMemory, chosen: str) -> None:
    memory.add([Message.user("q", id="q"), Message.assistant("let me see", id="a"), call("call", "c1", "c2")])
    memory.add([result("r1", "c1"), result("r2", "c2"), call("other", "c3"), result("r3", "c3")])
    memory.add(Message.assistant("so", id="so"))
    assert memory.forget(ids=[chosen], dry_run=True).ids == ("call", "r1", "r2")
    assert memory.forget(ids=[chosen]).ids == ("call", "r1", "r2")
    assert ids(memory.messages()) == ["q", "a", "other", "r3", "so"]


def test_tool_groups_of_two_branches_are_told_apart(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add(Message.user("q", id="q"))
    second = InfiniteMemory(store)
    second.fork("side")
    for message in (call("call", "c"), result("r", "c")):
        memory.add(message)
        second.add(message.replace(id=f"side {message.id}"), turn="q")
    assert memory.forget(ids=["call"]).ids == ("call", "r")
    assert ids(memory.messages()) == ["q"]
    assert ids(second.messages()) == ["q", "side call", "side r"]


def test_a_call_that_branches_share_takes_the_results_of_both(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add([Message.user("q", id="q"), call("call", "c1", "c2")])
    second = InfiniteMemory(store)
    second.fork("side")
    memory.add([result("r1", "c1"), result("r2", "c2")])
    second.add([result("s1", "c1"), result("s2", "c2")], turn="q")
    assert set(memory.forget(ids=["s1"]).ids) == {"call", "r1", "r2", "s1", "s2"}
    assert ids(memory.messages()) == ids(second.messages()) == ["q"]


def test_before_a_moment_all_goes_but_system_messages(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add([Message.system("be brief", id="rule", created_at=NOON), *history(10)])
    memory.fork("side", at="m3")
    memory.add(Message.user("old", id="old", created_at=NOON - timedelta(days=9), pinned=True))
    second = InfiniteMemory(store)
    second.add([call("call", "c", created_at=NOON), result("late", "c")])
    gone = memory.forget(before=NOON + timedelta(minutes=5))
    assert gone.ids == ("m0", "m1", "m2", "m3", "m4", "old", "call", "late")
    assert ids(memory.messages()) == ["rule"]
    assert ids(second.messages()) == ["rule", "m5", "m6", "m7", "m8", "m9"]
    assert memory.forget(before=NOON + timedelta(minutes=5)).ids == ()


def test_the_session_goes_with_its_branches(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add([Message.system("be brief", id="rule"), *history(6)])
    memory.fork("side", at="m3")
    memory.add(Message.user("x", id="x"))
    assert set(memory.forget(session=True).ids) == {"rule", "x", *ids(history(6))}
    assert (memory.branch, [branch.name for branch in memory.branches()]) == ("main", ["main"])
    assert [*memory.messages(), *store.find(1, After(0, 99))] == []
    memory.add(history(2, start=50))
    assert ids(memory.context().messages) == ["m50", "m51"]
    assert (memory.stats()["messages"], memory.stats()["forgotten"]) == (2, 8)


def test_a_dry_run_does_nothing(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add(history(6))
    state = store.state(1, "main")
    for selection in ({"ids": ["m1"]}, {"before": NOON + timedelta(minutes=2)}, {"session": True}):
        result_ = memory.forget(**selection, dry_run=True)
        assert (result_.dry_run, "m1" in result_.ids) == (True, True)
        assert result_.stay == (("m0",) if "ids" in selection else ()), "they may repeat what was said"
    assert (store.state(1, "main"), ids(memory.messages())) == (state, ids(history(6)))
    assert memory.forget(ids=["m1"]).stay == ("m0",)


def test_one_selection_is_needed_and_ids_must_exist(memory: InfiniteMemory) -> None:
    with pytest.raises(UnknownReferenceError, match="'m0'"):
        memory.forget(ids=["m0"])
    assert memory.forget(session=True).ids == memory.forget(before=NOON).ids == ()
    memory.add(history(4))
    wrong: list[dict[str, Any]] = [{}, {"ids": [], "before": NOON}, {"ids": ["m1"], "session": True}]
    for selection in (*wrong, {"session": False}):
        with pytest.raises(ValueError, match=r"^forget: "):
            memory.forget(**selection)
    with pytest.raises(UnknownReferenceError, match="'gone', 'nowhere'"):
        memory.forget(ids=["m1", "nowhere", "gone"])
    assert ids(memory.messages()) == ids(history(4))


# That it does not come back


def test_a_forgotten_id_is_not_stored_again(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add(history(6))
    memory.forget(ids=["m2", "m3"])
    assert ids(memory.add(history(8))) == ["m0", "m1", "m4", "m5", "m6", "m7"]
    assert memory.add(Message.user("in other words", id="m2")) == []
    assert InfiniteMemory(store).add(history(4)[2:]) == []
    assert ids(memory.messages()) == ["m0", "m1", "m4", "m5", "m6", "m7"]
    memory.forget(session=True)
    assert memory.add(history(8)) == []
    other = InfiniteMemory(store, session_id="other")
    assert ids(other.add(history(2))) == ["m0", "m1"], "another session may say the same"


def test_another_object_sees_it_at_its_next_call(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add(Message.user(f"the password is {WORD}", id="secret", pinned=True))
    memory.add(Message.user(f"again, the password is {WORD}", id="again"))
    memory.add(history(60))
    memory.index()
    objects = [InfiniteMemory(store, embedder=HashingEmbedder(), **SMALL) for _ in range(5)]
    for each in objects:
        assert WORD in " ".join(texts(each.context(f"what is the {WORD} password?").messages))
        assert {"again"} <= set(ids(hit.message for hit in each.search(WORD)))
        assert ids(each.newest(62))[:2] == ["secret", "again"]
    memory.forget(ids=["secret", "again"])
    searching, asking, reading, tailing, getting = objects
    assert not {"secret", "again"} & set(ids(hit.message for hit in searching.search(f"{WORD} password")))
    context = asking.context("what is the password?")
    assert WORD not in " ".join(texts(context.messages)) + str(context.report) + repr(context.report.to_dict())
    assert ids(reading.messages()) == ids(history(60))
    assert ids(tailing.newest(99)) == ids(history(60))
    with pytest.raises(UnknownReferenceError):
        getting.get("secret")


def test_a_fork_forgets_too(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add([Message.user(f"the password is {WORD}", id="secret"), *history(60)])
    side = InfiniteMemory(store, embedder=HashingEmbedder(), **SMALL)
    side.fork("side", at="m59")
    side.add(history(4, start=60))
    assert WORD in " ".join(texts(side.context("what is the password?").messages))
    memory.forget(ids=["secret"])
    assert WORD not in " ".join(texts(side.context("what is the password?").messages))
    assert ids(side.messages()) == ids(history(64))
    side.forget(ids=["m3"])
    assert "m3" not in ids(memory.messages())


def test_an_equal_text_keeps_its_vector(memory: InfiniteMemory, store: CountingStore) -> None:
    memory.add([Message.user("alike", id="one"), Message.user("alike", id="two"), *history(2)])
    memory.index()
    memory.forget(ids=["one"])
    embedder = HashingEmbedder()
    again = InfiniteMemory(store, embedder=embedder, **SMALL)
    again.index()
    assert embedder.documents == []
    (hit,) = again.search("alike", role="user", top_k=1)
    assert (hit.message.id, round(hit.dense or 0, 3)) == ("two", 1)


# That nothing of it is left


def secret(number: int) -> Message:
    """A message that has the word everywhere it can have it but in its id."""
    return Message.assistant(
        f"{WORD} {number} is what I was told, {WORD}",
        id=f"s{number}",
        name=f"{WORD} {number}",
        tool_calls=(ToolCall(id=f"{WORD}{number}", name=WORD, arguments=f'{{"q": "{WORD}"}}'),),
        grounding=Grounding(items=(GroundingItem(text=WORD),), header=WORD, footer=WORD, omitted_note=WORD),
        payload=Payload(format=WORD, data={WORD: [WORD]}),
    )


def traces(folder: Path, secrets: Sequence[Message], embedder: HashingEmbedder) -> set[str]:
    """What is left in the bytes of any file of the words, the hashes and the vectors of secrets."""
    embedded = [f"{message.name}: {message.content}" for message in secrets]
    marks = {WORD: [WORD.encode()]}
    marks["hash"] = [text_hash(text).encode() for text in embedded]
    marks["vector"] = [encode_vector(embedder.embed_query(text)) for text in embedded]
    data = b"".join(file.read_bytes() for file in folder.iterdir())
    return {what for what, needles in marks.items() if any(needle in data for needle in needles)}


@contextmanager
def reader(path: Path, where: str) -> Iterator[None]:
    """Hold a read transaction, in another connection or another process."""
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN'); "
        "c.execute('SELECT count(*) FROM messages').fetchone(); print('ready', flush=True); sys.stdin.readline()"
    )
    if where == "connection":
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM messages").fetchone()
            yield
    elif where == "process":
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", script, str(path)], text=True, **pipes) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield
            child.communicate("go\n")
    else:
        yield


@pytest.mark.parametrize("where", ["nobody", "connection", "process"])
def test_no_byte_of_a_secret_is_left(tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture) -> None:
    path, embedder = tmp_path / "chat.db", HashingEmbedder()
    secrets = [secret(number) for number in range(3)]
    with InfiniteMemory(path, embedder=embedder, **SMALL) as memory:
        memory.add([secrets[0], *history(40), secrets[1]])
        memory.fork("side", at="m9")
        memory.add(secrets[2])
        memory.checkout("main")
        memory.index()
        assert traces(tmp_path, secrets, embedder) == {WORD, "hash", "vector"}
        with reader(path, where):
            gone = memory.forget(ids=ids_of(secrets))
            assert gone.ids == ("s0", "s1", "s2")
            assert gone.scrubbed == (where == "nobody")
            if where != "nobody":
                assert "scrub() again" in str(gone.reason)
                assert WORD in traces(tmp_path, secrets, embedder)
                assert not memory.scrub().scrubbed
        assert memory.scrub().to_dict() == {"ids": [], "dry_run": False, "stay": [], "scrubbed": True, "reason": None}
        assert traces(tmp_path, secrets, embedder) == set()
        with caplog.at_level(logging.DEBUG, "shared_core"):
            context = memory.context("what was I told?")
        assert WORD not in " ".join(texts(context.messages)) + caplog.text
        assert WORD not in " ".join(texts(hit.message for hit in memory.search("what I was told", 99)))
        memory.index()
    with InfiniteMemory(path, embedder=embedder, **SMALL) as memory:
        memory.add(history(2, start=40))
        memory.index()
    assert traces(tmp_path, secrets, embedder) == set(), "and nothing brings it back"


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_no_byte_is_left_in_a_large_database(tmp_path: Path, seed: int) -> None:
    chance, embedder = random.Random(seed), HashingEmbedder()
    secrets = [secret(number) for number in range(60)]
    messages = [*history(600), *secrets]
    chance.shuffle(messages)
    with InfiniteMemory(tmp_path / "chat.db", embedder=embedder) as memory:
        for start in range(0, len(messages), 60):
            memory.add(messages[start : start + 60])
            memory.index()
        chance.shuffle(secrets)
        for start in range(0, 60, 20):
            assert memory.forget(ids=ids_of(secrets[start : start + 20])).scrubbed
            memory.add(history(50, start=1_000 + 50 * start))
            memory.index()
        assert traces(tmp_path, secrets, embedder) == set()
        assert memory.stats()["forgotten"] == 60


def ids_of(messages: Sequence[Message]) -> list[str]:
    return [str(message.id) for message in messages]


def test_a_turns_vector_goes_with_any_of_its_messages(tmp_path: Path) -> None:
    path, embedder = tmp_path / "chat.db", HashingEmbedder()
    with InfiniteMemory(path, embedder=HashingEmbedder(name="other"), **SMALL) as memory:
        memory.add([Message.user(f"the password is {WORD}", id="u"), Message.assistant("noted", id="a"), *history(40)])
        memory.index()
    whole, left = (encode_vector(embedder.embed_query(text)) for text in (f"the password is {WORD} noted", "noted"))
    with InfiniteMemory(path, embedder=embedder, recall_unit="turn", **SMALL) as memory:
        memory.index(again=True)
        assert whole in path.read_bytes() + path.with_name("chat.db-wal").read_bytes()
        spaces = memory.stats()["embedders"]
        assert memory.forget(ids=["u"]).scrubbed
        assert memory.stats()["embedders"] == spaces == ["hashing/64#turn", "other/64"]
        embedder.documents.clear()
        (hit,) = memory.search("noted", 1)
        assert (hit.message.id, round(hit.dense or 0, 3)) == ("a", 1)
        assert embedder.documents == ["noted"], "what is left of the turn is embedded anew, and only that"
    data = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [whole in data, text_hash(f"the password is {WORD} noted").encode() in data] == [False, False]
    assert left in data
