"""Two stores that went on from the same conversation: what one said comes to the other, which loses nothing."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import InfiniteMemoryError
from shared_core.operations import check_store


def go_on(memory: InfiniteMemory, random: Random, prefix: str, steps: int, *, forgets: bool) -> None:
    """Do something to a conversation, at random, with messages whose ids have a prefix."""
    for step in range(steps):
        ids = [message.id or "" for message in memory.messages()] or ["none"]
        branches = [branch.name for branch in memory.branches()] or ["main"]
        verb = random.choices(
            ["add", "fork", "checkout", "merge", "tag", "stash", "reset", "forget"],
            [9, 3, 3, 3, 1, 1, 1, 1 if forgets else 0],
        )[0]
        with suppress(InfiniteMemoryError, ValueError):
            if verb == "add":
                said = Message.user(f"{prefix} asks {step}", id=f"{prefix}u{step}")
                memory.add([said, Message.assistant(f"{prefix} hears {step}", id=f"{prefix}a{step}")])
            elif verb == "fork":
                memory.fork(f"{prefix}-{step}", at=random.choice(ids))
            elif verb == "checkout":
                memory.checkout(random.choice(branches))
            elif verb == "merge":
                memory.merge(random.choice(branches), "full")
            elif verb == "tag":
                memory.tag(f"{prefix}-tag-{step}")
            elif verb == "stash":
                memory.stash(note=prefix)
            elif verb == "reset":
                memory.reset(random.choice(ids))
            else:
                memory.forget(ids=[random.choice(ids)])
    memory.checkout("main")


def said_on(memory: InfiniteMemory, branch: str) -> list[str | None]:
    memory.checkout(branch)
    ids = [message.id for message in memory.messages()]
    memory.checkout("main")
    return ids


@pytest.mark.parametrize("forgets", [False, True])
def test_what_the_other_said_comes_and_nothing_goes(tmp_path: Path, forgets: bool) -> None:
    file = tmp_path / "chat.jsonl"
    for seed in range(8):
        random, database = Random(seed), tmp_path / f"{seed}.db"
        with InfiniteMemory(embedder="words") as one, InfiniteMemory(database, embedder="words") as two:
            one.add([Message.user("hello", id="m0"), Message.assistant("hi", id="m1")])
            go_on(one, random, "x", 12, forgets=forgets)
            one.export(file)
            two.import_file(file)
            go_on(one, random, "y", 10, forgets=forgets)
            go_on(two, random, "z", 8, forgets=forgets)
            own = {branch.name: said_on(two, branch.name) for branch in two.branches()}
            theirs = {branch.name: said_on(one, branch.name) for branch in one.branches()}
            forgotten = set(two._store.forgotten(1, None, 999))
            one.export(file)
            result = two.import_file(file)
            for name, ids in own.items():
                assert set(ids) <= set(said_on(two, name))
            for name, here in result.branches.items():
                assert set(theirs[name]) - forgotten <= set(said_on(two, here)), (seed, name)
                assert forgets or here == name or said_on(two, here) == theirs[name]
            assert not forgotten & {entry.message.id for entry in two.log(999) if entry.message is not None}
            held = two.stats() | {"bytes": 0}
            again = two.import_file(file)
            assert (again.new, again.branches, two.stats() | {"bytes": 0}) == (0, result.branches, held)
        assert check_store(database).damages == ()


def test_a_merge_that_brings_nothing_any_more_is_imported_once(tmp_path: Path) -> None:
    with InfiniteMemory(embedder="words") as one, InfiniteMemory(embedder="words") as two:
        for name in ("m0", "side", "main"):
            if name == "side":
                one.export(tmp_path / "chat.jsonl")
                two.import_file(tmp_path / "chat.jsonl")
                one.fork("side")
            one.add(Message.user(name, id=name))
            one.checkout("main")
        one.merge("side", "full")
        one.tag("merged")
        one.forget(ids=["side"])
        one.export(tmp_path / "chat.jsonl")
        for _ in range(2):
            assert dict(two.import_file(tmp_path / "chat.jsonl").branches) == {"main": "main", "side": "side"}
            assert [tag.name for tag in two.tags()] == ["merged"]


def test_what_a_message_sums_up_is_one_stretch_here_too(tmp_path: Path) -> None:
    with InfiniteMemory(embedder="words") as one, InfiniteMemory(embedder="words") as two:
        one.add(Message.user("start", id="m0"))
        one.export(tmp_path / "chat.jsonl")
        two.import_file(tmp_path / "chat.jsonl")
        two.add(Message.user("ours", id="m1"))
        one.fork("side")
        one.add([Message.user("what?", id="s1"), Message.assistant("that", id="s2")])
        one.checkout("main")
        one.merge("side", "squash")
        one.export(tmp_path / "chat.jsonl")
        two.import_file(tmp_path / "chat.jsonl")
        there, here = ([part for _, part in memory._store.covers(1, range(9))] for memory in (one, two))
        assert [part.upto - part.start for part in there] == [part.upto - part.start for part in here] == [1, 1]


def test_what_was_forgotten_does_not_come_back_as_a_copy_or_in_a_summary(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "ours.db") as ours, InfiniteMemory(tmp_path / "theirs.db") as theirs:
        ours.add([Message.user("start", id="m0"), Message.assistant("yes", id="a0")])
        ours.add([Message.user("My code is 4471", id="m1"), Message.assistant("ok", id="a1")])
        ours.export(tmp_path / "ours.jsonl")
        theirs.import_file(tmp_path / "ours.jsonl")
        theirs.fork("aside", at="a0")
        theirs.checkout("aside")
        theirs.cherry_pick(["m1"])
        theirs.add(Message.user("and more", id="m2"))
        theirs.fork("squashed", at="a0")
        theirs.checkout("squashed")
        theirs.merge("main", "squash", summarizer=lambda *_: "The code is 4471.")
        theirs.export(tmp_path / "theirs.jsonl")
        ours.forget(ids=["m1"])
        done = ours.import_file(tmp_path / "theirs.jsonl")
        assert (done.new, done.forgotten) == (1, 4), "itself, its copy, and the two messages of the squash"
        assert ours.import_file(tmp_path / "theirs.jsonl").new == 0
    assert b"4471" not in (tmp_path / "ours.db").read_bytes()
