"""The verbs on branches read and write as many rows in a long conversation as in a short one."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from shared_core import InfiniteMemory
from shared_core.index.cache import IndexCache
from shared_core.records import MAIN
from shared_core.session.live import PAGE
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import CountingStore, history, ids
from tests.tree.two_branches import said, say


def grown(store: CountingStore, count: int, forks: int, merges: int) -> InfiniteMemory:
    memory = InfiniteMemory(store, embedder="words", token_counter="characters/4")
    memory.add(history(count))
    for number in range(forks):
        memory.fork(f"fork {number}", at=f"m{number * count // forks}")
        memory.checkout(MAIN)
    for number in range(merges):
        memory.fork(f"side {number}")
        say(memory, f"us{number}")
        memory.checkout(MAIN)
        say(memory, f"um{number}")
        memory.merge(f"side {number}", "full")
    memory.fork("aside", at=MAIN)
    say(memory, "ua", "ra")
    memory.checkout(MAIN)
    say(memory, "uz", "rz")
    memory.context("gardens?")
    return memory


VERBS: dict[str, Callable[[Any], Any]] = {
    "fork": lambda memory: memory.fork("new"),
    "checkout": lambda memory: memory.checkout("aside"),
    "newest": lambda memory: memory.newest(10),
    "back": lambda memory: memory.checkout(MAIN),
    "diff": lambda memory: memory.diff("aside"),
    "tag": lambda memory: memory.tag("v1"),
    "squash": lambda memory: memory.merge("aside", "squash"),
    "three-way": lambda memory: memory.merge("aside", "three-way"),
    "cherry-pick": lambda memory: memory.cherry_pick(["m3", "ra"]),
    "add": lambda memory: memory.add(said("u99")),
    "stash": lambda memory: memory.stash(),
    "stashes": lambda memory: memory.stashes(),
    "pop": lambda memory: memory.stash_pop(),
    "reset": lambda memory: memory.reset("rz"),
    "full": lambda memory: memory.merge("aside", "full"),
    "undo": lambda memory: memory.reset("main@{1}"),
    "rewind": lambda memory: memory.rewind("uz"),
    "make main": lambda memory: (memory.checkout("main-2"), memory.make_main()),
    "rebase": lambda memory: memory.rebase("aside"),
    "fast-forward": lambda memory: (memory.checkout("side 0"), memory.merge(MAIN)),
    "log": lambda memory: memory.log(20),
    "reflog": lambda memory: memory.reflog(limit=10),
    "rename": lambda memory: memory.rename_branch("aside", "asides"),
    "delete": lambda memory: memory.delete_branch("asides"),
    "forget": lambda memory: memory.forget(ids=["us0"]),
}


def reads(count: int, forks: int, merges: int) -> dict[str, tuple[Counter[str], int]]:
    """Messages read by each verb, by the store's verbs, and rows written."""
    found: dict[str, tuple[Counter[str], int]] = {}
    with closing(CountingStore(":memory:")) as store:
        memory = grown(store, count, forks, merges)
        connection = store._db._ready()
        for name, verb in VERBS.items():
            store.reset()
            written = connection.total_changes
            verb(memory)
            rows = Counter({kind: n for kind, n in store.rows.items() if kind not in ("branches",)})
            found[name] = +rows, connection.total_changes - written
    return found


def test_a_verb_reads_and_writes_as_much_in_a_long_conversation_as_in_a_short_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(IndexCache, "save_later", lambda *_: None)  # it counts as a verb's work whenever it happens
    few, many = reads(100, 20, 5), reads(2_000, 60, 15)
    assert few.pop("log")[0]["newest"] == 20 + 5 + 3 + 5
    assert many.pop("log")[0]["newest"] == 60 + 15 + 3 + 5, "one for each branch"
    assert few == many
    assert all(sum(rows.values()) <= 150 and written <= 20 for rows, written in many.values())


# What a prompt reads

MERGES = 20


def asked(forks: int, merges: int) -> tuple[list[str | None], list[Counter[str]]]:
    """Ask a new object, and once more; return the prompt, and the rows read the first and the second time.

    500 messages are there and some more, which may come by merges; of the old ones some are forked.
    """
    how: dict[str, Any] = {"token_counter": "characters/4", "embedder": HashingEmbedder(16)}
    with closing(CountingStore(":memory:")) as store:
        memory = InfiniteMemory(store, **how)
        memory.add(history(500))
        for number in range(MERGES, 0, -1):
            if number > merges:
                say(memory, f"um{number}", f"us{number}")
                continue
            memory.fork(f"side {number}")
            say(memory, f"us{number}")
            memory.checkout(MAIN)
            say(memory, f"um{number}")
            memory.merge(f"side {number}", "full")
        for number in range(forks):
            memory.fork(f"fork {number}", at=f"m{number * 2}")
        memory.index()
        memory = InfiniteMemory(store, max_tokens=500, reserve_tokens=0, **how)
        read = []
        for question in ("what of item77 and the gardens of item423?", "and what concerns item250?"):
            store.reset()
            context = memory.context(question)
            read.append(+store.rows)
        return ids(context.messages), read


def test_a_prompt_reads_as_much_with_many_forks_and_merges_as_with_few() -> None:
    (plain, none), (forked, only_forks), (many, all_of_them) = (asked(0, 0), asked(40, 0), asked(40, MERGES))
    assert plain == forked == many
    assert none == only_forks
    for with_merges, without in zip(all_of_them, none, strict=True):
        assert with_merges["after"] == without["after"]
        assert with_merges["newest"] <= without["newest"] + PAGE, "pages end at a merge"
        assert with_merges["at"] == without["at"]
        assert with_merges["get"] <= with_merges["at"], "where the turn of what is recalled begins"
