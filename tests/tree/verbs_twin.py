"""A memory and the model of one, to which the same verbs are done; each says what the other must have done.

`verbs_twin.py FILE SEED` does verbs until it is killed, and prints a line after each.
"""

import random
import re
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

from shared_core import InfiniteMemory, Message
from shared_core.records import MAIN
from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import NOON, with_ids
from tests.tree.verbs_model import CherryPickResult, Model, Node

__all__ = ["HOW", "KINDS", "UNSTASH", "Twin", "begin"]

KINDS = ("u", "ua", "ua", "uaa", "a")
HOW = ("auto", "auto", "fast-forward", "full", "squash", "three-way")
UNSTASH = ("apply", "pop", "drop")
LARGE, SMALL = 10**6, 150
"""Tokens of a prompt for which all is enough, and of one for which little is."""


class Twin:
    """Does each verb twice. Verbs take numbers, of which the places and names they are done to are made."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.model = Model()
        self.said = self.names = self.given = 0
        self.moments = count()
        self.open()
        self.say("ua")

    def open(self) -> None:
        """Stand on `main` with a new object."""
        # Everything on the branch is close enough to be found.
        self.memory = InfiniteMemory(
            self.store, max_tokens=LARGE, reserve_tokens=0, embedder=HashingEmbedder(16),
            recall="thorough", min_score=-1, token_counter="characters/4",
            clock=lambda: NOON + timedelta(seconds=next(self.moments)),
        )  # fmt: skip
        with_ids(self.memory, self.new_id)
        self.model.stand(MAIN)

    def new_id(self) -> str:
        self.given += 1
        return f"new{self.given}"

    def name(self) -> str:
        self.names += 1
        return f"name {self.names}"

    def place(self, number: int) -> tuple[str, Node]:
        """A place and what it is called: a branch, a tag, a message, or where a branch was."""
        model = self.model
        places = [*model.branches.items(), *model.tags.items()]
        places += [(str(node.id), node) for node in model.nodes if node.alive][-20:]
        places += [(f"{name}@{{{n}}}", node) for name, moves in model.moves.items() for n, node in enumerate(moves, 1)]
        return places[number % len(places)]

    def step(self, chance: random.Random) -> str:
        """Do any verb, and say which."""
        verb = chance.choice(VERBS)
        number, other = chance.randrange(1000), chance.randrange(1000)
        match verb:
            case "say":
                self.say(chance.choice(KINDS))
            case "merge":
                self.merge(number, chance.choice(HOW))
            case "cherry_pick":
                self.cherry_pick([number, other])
            case "unstash":
                self.unstash(number, chance.choice(UNSTASH))
            case "stash" | "rebase":
                getattr(self, verb)(number, other)
            case _:
                getattr(self, verb)(number)
        return verb

    # Talking

    def say(self, kind: str) -> None:
        messages = []
        self.memory._checkout.writer.open_turn = None
        for letter in kind:
            self.said += 1
            id_, role = f"item{self.said}", "user" if letter == "u" else "assistant"
            messages.append(Message.model_validate({"role": role, "content": f"{id_} alike", "id": id_}))
            self.model.add(id_, role)
        self.memory.add(messages)

    # Branches

    def fork(self, number: int) -> None:
        called, node = self.place(number)
        name = self.name()
        self.memory.fork(name, at=called)
        self.model.branches[name] = node
        self.model.stand(name)

    def checkout(self, number: int) -> None:
        called, node = self.place(number)
        self.memory.checkout(called)
        self.model.stand(called if called in self.model.branches else None, node)

    def reset(self, number: int) -> None:
        called, node = self.place(number)
        self.memory.reset(called)
        self.model.move(node)

    def make_main(self, number: int) -> None:
        self.memory.make_main()
        self.model.make_main()

    def rewind(self, number: int) -> None:
        called, node = self.place(number) if number % 4 else (None, None)
        name: Any = refused(lambda: self.memory.rewind(called))
        expected = refused(lambda: self.model.rewind(node))
        assert isinstance(name, type(expected)) if isinstance(expected, Exception) else name == expected

    def rename(self, number: int) -> None:
        others = [name for name in self.model.branches if name != MAIN]
        if others:
            old, new = others[number % len(others)], self.name()
            self.memory.rename_branch(old, new)
            self.model.rename(old, new)

    def delete(self, number: int) -> None:
        others = [name for name in self.model.branches if name not in (MAIN, self.model.branch)]
        if len(others) > 3:
            gone = others[number % len(others)]
            self.memory.delete_branch(gone)
            self.model.delete(gone)

    def tag(self, number: int) -> None:
        called, node = self.place(number)
        name = self.name()
        self.memory.tag(name, called)
        self.model.tags[name] = node

    def delete_tag(self, number: int) -> None:
        if len(self.model.tags) > 2:
            gone = list(self.model.tags)[number % len(self.model.tags)]
            self.memory.delete_tag(gone)
            del self.model.tags[gone]

    # Merging and copying

    def merge(self, number: int, how: Any) -> None:
        called, node = self.place(number)
        base = self.model.base(self.model.head, node)
        ours, theirs = (self.model.ids(side) for side in (
            self.model.only(self.model.head, node), self.model.only(node, self.model.head)
        ))  # fmt: skip
        result: Any = refused(lambda: self.memory.merge(called, how))
        expected = refused(lambda: self.model.merge(node, how, lambda: [str(one.id) for one in result.messages]))
        if isinstance(expected, Exception):
            assert isinstance(result, type(expected))
            return
        assert (result.how, result.base) == (expected, base)
        if result.how == "three-way":
            assert (list(result.ours), list(result.theirs)) == (ours, theirs)
            assert self.memory.sources(str(result.messages[1].id)) == [*ours, *theirs]

    def copies(self, result: Any, copy: Callable[[Callable[[], Sequence[str]]], CherryPickResult]) -> None:
        expected = copy(lambda: [message.id for message in result.messages])
        assert (list(result.sources), list(result.skipped)) == (expected.sources, expected.skipped)

    def cherry_pick(self, numbers: Sequence[int]) -> None:
        alive = [node for node in self.model.nodes if node.alive]
        if alive:
            nodes = [alive[number % len(alive)] for number in numbers]
            result = self.memory.cherry_pick([str(node.id) for node in nodes])
            self.copies(result, lambda new: self.model.copy(nodes, self.model.head, new))

    def rebase(self, number: int, since: int) -> None:
        if self.model.branch is not None:
            called, node = self.place(number)
            # Now and then only what comes after another place.
            after, there = self.place(since) if since % 4 == 0 else (None, node)
            result = self.memory.rebase(called, since=after)
            self.copies(result, lambda new: self.model.rebase(node, there, new))

    # Putting aside

    def stash(self, number: int, since: int) -> None:
        called, node = self.place(number) if since % 2 else (None, None)
        stash: Any = refused(lambda: self.memory.stash(called))
        gone = refused(lambda: self.model.stash(node))
        if isinstance(gone, Exception):
            assert isinstance(stash, type(gone))
        else:
            assert gone == (None if stash is None else list(stash.ids))

    def unstash(self, number: int, verb: str) -> None:
        if not self.model.stashes:
            return
        number %= len(self.model.stashes)
        if verb == "drop":
            self.memory.stash_drop(number)
        else:
            result = self.memory.stash_pop(number, keep=verb == "apply")
            nodes = self.model.put_aside(number)
            self.copies(result, lambda new: self.model.copy(nodes, self.model.head, new))
        if verb != "apply":
            del self.model.stashes[number]

    # Forgetting

    def forget(self, number: int) -> None:
        alive = [node for node in self.model.nodes if node.alive]
        if len(self.model.nodes) > 10 and alive:
            node = alive[number % len(alive)]
            result = self.memory.forget(ids=[str(node.id)])
            assert list(result.ids) == self.model.forget(node)

    # What can be seen

    def look(self) -> None:
        """Compare where the object stands."""
        model, memory = self.model, self.memory
        line = model.ids(model.seen())
        assert memory.branch == model.branch
        assert [message.id for message in memory.messages()] == line
        assert [message.id for message in memory.newest(5)] == line[-5:]
        assert [branch.name for branch in memory.branches()] == list(model.branches)

    def look_closely(self) -> None:
        """Compare all that can be seen of the session, and what is recalled, and the prompt."""
        model, memory = self.model, self.memory
        self.look()
        line = model.ids(model.seen())
        sent, turns = [str(message.id) for message in memory.context().messages], model.prompt()
        greetings = sent[: len(sent) - len(turns)]
        assert sent[len(greetings) :] == turns
        assert set(greetings) <= set(model.greetings())
        assert turns or not greetings  # a greeting is not sent alone
        assert sorted(str(hit.message.id) for hit in memory.search("alike", 9_999)) == sorted(line)
        self.look_at_recall(line)
        assert [(stash.branch, list(stash.ids)) for stash in memory.stashes()] == [
            (branch, model.ids(model.put_aside(number))) for number, (branch, _, _) in enumerate(model.stashes)
        ]
        for names in (memory.branches(), memory.tags()):
            places = {**model.branches, **model.tags}
            for name, _ in names:
                diff = memory.diff(name)
                there = places[name]
                assert list(diff.only_a) == model.ids(model.only(there, model.head))
                assert list(diff.only_b) == model.ids(model.only(model.head, there))
                assert diff.base == model.base(there, model.head)
        assert [tag.name for tag in memory.tags()] == list(model.tags)
        moved = [(move.branch, move.reference) for move in memory.reflog(limit=9_999)]
        expected = [(name, f"{name}@{{{n}}}") for name, old in model.moves.items() for n in range(1, len(old) + 1)]
        assert sorted(moved) == sorted(expected)
        log = memory.log(9_999)
        said = [entry.message.id for entry in log if entry.message is not None]
        assert said == [node.id for node in reversed(model.nodes) if node.alive]
        order = {entry.position: number for number, entry in enumerate(log)}
        assert all(order[entry.position] < order[parent] for entry in log for parent in entry.parents)

    def look_at_recall(self, line: Sequence[str]) -> None:
        """Ask where little fits: what is brought back, or thought of, was said on this branch or merged in."""
        self.memory.max_tokens = SMALL
        context = self.memory.context("which of them are alike?")
        self.memory.max_tokens = LARGE
        on_branch = {word for message in self.memory.messages() for word in names_in(message.content)}
        assert {word for message in context.messages for word in names_in(message.content)} <= on_branch
        assert {one.id for one in context.report.lines} - {None} <= set(line)
        assert len(line) < 30 or any(one.score is not None for one in context.report.lines)


VERBS = (
    "say", "say", "say", "fork", "checkout", "reset", "make_main", "rewind", "rename", "delete", "tag", "delete_tag",
    "merge", "merge", "merge", "cherry_pick", "rebase", "stash", "unstash", "unstash", "forget",
)  # fmt: skip


def names_in(text: str) -> list[str]:
    return re.findall(r"item\d+", text)


def refused(act: Callable[[], Any]) -> Any:
    """Return what is returned, or the error of a call that must not be."""
    try:
        return act()
    except (LookupError, ValueError) as error:
        return error


def begin(path: str, seed: int) -> tuple[Twin, random.Random]:
    """Return a session and the chance that decides on its verbs: the same for the same seed."""
    return Twin(SQLiteStore(path, durability="process")), random.Random(seed)


if __name__ == "__main__":
    twin, chance = begin(sys.argv[1], int(sys.argv[2]))
    for number in count():
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        twin.step(chance)
