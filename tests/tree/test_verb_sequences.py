"""The verbs on branches in any order: after each, everything visible equals a model of dicts and lists."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shared_core.stores import SQLiteStore
from tests.tree.verbs_twin import HOW, KINDS, UNSTASH, Twin

SOAK = bool(os.environ.get("SOAK"))
NUMBERS = st.integers(0, 999)
CHECKED_EVERY = 25
"""Steps between two looks at what is recalled, which takes longer than the rest."""


class Verbs(RuleBasedStateMachine):
    """One memory at a time in one session, and its model; see `Twin` for what each verb must do."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("shared_core.session.live.PAGE", 3)
        self.patch.setattr("shared_core.session.live.TAIL_KEPT", 2)
        self.patch.setattr("shared_core.session.paths.PAGE", 3)
        self.twin = Twin(SQLiteStore(":memory:"))
        self.steps = 0

    @rule(kind=st.sampled_from(KINDS))
    def add(self, kind: str) -> None:
        self.twin.say(kind)

    @rule()
    def restart(self) -> None:
        self.twin.open()

    @rule(number=NUMBERS)
    def fork(self, number: int) -> None:
        self.twin.fork(number)

    @rule(number=NUMBERS)
    def checkout(self, number: int) -> None:
        self.twin.checkout(number)

    @rule(number=NUMBERS)
    def reset(self, number: int) -> None:
        self.twin.reset(number)

    @rule()
    def make_main(self) -> None:
        self.twin.make_main(0)

    @rule(number=NUMBERS)
    def rewind(self, number: int) -> None:
        self.twin.rewind(number)

    @rule(number=NUMBERS)
    def rename(self, number: int) -> None:
        self.twin.rename(number)

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        self.twin.delete(number)

    @rule(number=NUMBERS)
    def tag(self, number: int) -> None:
        self.twin.tag(number)

    @rule(number=NUMBERS)
    def delete_tag(self, number: int) -> None:
        self.twin.delete_tag(number)

    @rule(number=NUMBERS, how=st.sampled_from(HOW))
    def merge(self, number: int, how: Any) -> None:
        self.twin.merge(number, how)

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=4))
    def cherry_pick(self, numbers: list[int]) -> None:
        self.twin.cherry_pick(numbers)

    @rule(number=NUMBERS, since=NUMBERS)
    def rebase(self, number: int, since: int) -> None:
        self.twin.rebase(number, since)

    @rule(number=NUMBERS, since=NUMBERS)
    def stash(self, number: int, since: int) -> None:
        self.twin.stash(number, since)

    @rule(number=NUMBERS, verb=st.sampled_from(UNSTASH))
    def unstash(self, number: int, verb: str) -> None:
        self.twin.unstash(number, verb)

    @rule(number=NUMBERS)
    def forget(self, number: int) -> None:
        self.twin.forget(number)

    @invariant()
    def everything_is_where_it_should_be(self) -> None:
        self.steps += 1
        self.twin.look() if self.steps % CHECKED_EVERY else self.twin.look_closely()

    def teardown(self) -> None:
        if hasattr(self, "twin"):
            self.twin.look_closely()
            self.twin.store.close()
            self.patch.undo()


TestVerbs = Verbs.TestCase
TestVerbs.settings = settings(  # 200 verbs, or 5,000; the first example is always a short one
    max_examples=11 if SOAK else 3,
    stateful_step_count=500 if SOAK else 100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
