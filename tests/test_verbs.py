"""All verbs on branches in any order: after each, everything that can be seen is what plain dicts and lists say."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from verbs_model import Model, Node, Picked

from shared_core import InfiniteMemory, Message
from shared_core.records import MAIN
from shared_core.stores import SQLiteStore
from shared_core.testing.hashing_embedder import HashingEmbedder

SOAK = bool(os.environ.get("SOAK"))
NUMBERS = st.integers(0, 999)
CHECKED_EVERY = 25
"""Steps between two looks at what is recalled, which takes longer than the rest."""


class Verbs(RuleBasedStateMachine):
    """One memory at a time in one session."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("shared_core.live.PAGE", 3)
        self.patch.setattr("shared_core.live.TAIL_KEPT", 2)
        self.patch.setattr("shared_core.tree.PAGE", 3)
        self.store = SQLiteStore(":memory:")
        self.model = Model()
        self.steps = self.said = self.names = self.given = 0
        self.open()
        self.say("ua")

    def open(self) -> None:
        # Everything on the branch is close enough to be found.
        self.memory = InfiniteMemory(
            self.store, max_tokens=10**6, reserve_tokens=0, embedder=HashingEmbedder(16), embed_budget_ms=1e6,
            min_score=-1, min_lexical=0, token_counter="characters/4", new_id=self.new_id,
        )  # fmt: skip

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

    # Talking

    @rule(kind=st.sampled_from(["u", "ua", "ua", "uaa", "a"]))
    def add(self, kind: str) -> None:
        self.say(kind)

    def say(self, kind: str) -> None:
        messages = []
        self.memory.close_turn()
        for letter in kind:
            self.said += 1
            id_, role = f"item{self.said}", "user" if letter == "u" else "assistant"
            messages.append(Message.model_validate({"role": role, "content": f"{id_} alike", "id": id_}))
            self.model.add(id_, role)
        self.memory.add(messages)

    # Branches

    @rule(number=NUMBERS)
    def fork(self, number: int) -> None:
        called, node = self.place(number)
        name = self.name()
        self.memory.fork(name, at=called)
        self.model.branches[name] = node
        self.model.stand(name)

    @rule(number=NUMBERS)
    def checkout(self, number: int) -> None:
        called, node = self.place(number)
        self.memory.checkout(called)
        self.model.stand(called if called in self.model.branches else None, node)

    @rule()
    def restart(self) -> None:
        self.open()
        self.model.stand(MAIN)

    @rule(number=NUMBERS)
    def reset(self, number: int) -> None:
        called, node = self.place(number)
        self.memory.reset(called)
        self.model.move(node)

    @rule(number=NUMBERS)
    def rename(self, number: int) -> None:
        others = [name for name in self.model.branches if name != MAIN]
        if others:
            old, new = others[number % len(others)], self.name()
            self.memory.rename(old, new)
            self.model.rename(old, new)

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        others = [name for name in self.model.branches if name not in (MAIN, self.model.branch)]
        if len(others) > 3:
            gone = others[number % len(others)]
            self.memory.delete_branch(gone)
            self.model.delete(gone)

    @rule(number=NUMBERS)
    def tag(self, number: int) -> None:
        called, node = self.place(number)
        name = self.name()
        self.memory.tag(name, called)
        self.model.tags[name] = node

    @precondition(lambda self: len(self.model.tags) > 2)
    @rule(number=NUMBERS)
    def delete_tag(self, number: int) -> None:
        gone = list(self.model.tags)[number % len(self.model.tags)]
        self.memory.delete_tag(gone)
        del self.model.tags[gone]

    # Merging and copying

    @rule(number=NUMBERS, how=st.sampled_from(["auto", "auto", "full", "squash", "three-way"]))
    def merge(self, number: int, how: Any) -> None:
        called, node = self.place(number)
        base = self.model.base(self.model.head, node)
        ours, theirs = (self.model.ids(side) for side in (
            self.model.only(self.model.head, node), self.model.only(node, self.model.head)
        ))  # fmt: skip
        result = self.memory.merge(called, how)
        expected = self.model.merge(node, how, lambda: [str(message.id) for message in result.messages])
        assert (result.how, result.base) == (expected, base)
        if result.how == "three-way":
            assert (list(result.ours), list(result.theirs)) == (ours, theirs)
            assert self.memory.sources(str(result.messages[1].id)) == [*ours, *theirs]

    def copies(self, result: Any, copy: Callable[[Callable[[], Sequence[str]]], Picked]) -> None:
        expected = copy(lambda: [message.id for message in result.messages])
        assert (list(result.sources), list(result.skipped)) == (expected.sources, expected.skipped)

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=4))
    def cherry_pick(self, numbers: list[int]) -> None:
        alive = [node for node in self.model.nodes if node.alive]
        if alive:
            nodes = [alive[number % len(alive)] for number in numbers]
            result = self.memory.cherry_pick([str(node.id) for node in nodes])
            self.copies(result, lambda new: self.model.copy(nodes, self.model.head, new))

    @precondition(lambda self: self.model.branch is not None)
    @rule(number=NUMBERS)
    def rebase(self, number: int) -> None:
        called, node = self.place(number)
        result = self.memory.rebase(called)
        self.copies(result, lambda new: self.model.rebase(node, new))

    # Putting aside

    @rule()
    def stash(self) -> None:
        gone = self.model.stash()
        stash = self.memory.stash()
        assert gone == (None if stash is None else list(stash.ids))

    @precondition(lambda self: self.model.stashes)
    @rule(number=NUMBERS, verb=st.sampled_from(["apply", "pop", "drop"]))
    def unstash(self, number: int, verb: str) -> None:
        number %= len(self.model.stashes)
        if verb == "drop":
            self.memory.stash_drop(number)
        else:
            result = (self.memory.stash_apply if verb == "apply" else self.memory.stash_pop)(number)
            nodes = self.model.put_aside(number)
            self.copies(result, lambda new: self.model.copy(nodes, self.model.head, new))
        if verb != "apply":
            del self.model.stashes[number]

    # Forgetting

    @precondition(lambda self: len(self.model.nodes) > 10)
    @rule(number=NUMBERS)
    def forget(self, number: int) -> None:
        alive = [node for node in self.model.nodes if node.alive]
        if alive:
            node = alive[number % len(alive)]
            result = self.memory.forget(ids=[str(node.id)])
            assert list(result.ids) == self.model.forget(node)

    # What can be seen

    @invariant()
    def everything_is_where_it_should_be(self) -> None:
        model, memory = self.model, self.memory
        line = model.ids(model.seen())
        assert memory.branch == model.branch
        assert [message.id for message in memory.messages()] == line
        assert [message.id for message in memory.newest(5)] == line[-5:]
        assert [branch.name for branch in memory.branches()] == list(model.branches)
        self.steps += 1
        if self.steps % CHECKED_EVERY == 0:
            self.look_closely()

    def look_closely(self) -> None:
        model, memory = self.model, self.memory
        line = model.ids(model.seen())
        assert [message.id for message in memory.context().messages] == model.prompt()
        assert sorted(str(hit.message.id) for hit in memory.search("alike", 9_999)) == sorted(line)
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
        order = {entry.place: number for number, entry in enumerate(log)}
        assert all(order[entry.place] < order[parent] for entry in log for parent in entry.parents)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.look_closely()
            self.store.close()
            self.patch.undo()


TestVerbs = Verbs.TestCase
TestVerbs.settings = settings(
    max_examples=50 if SOAK else 6,
    stateful_step_count=1_000 if SOAK else 200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
