"""The ring of requests: the newest ones of each user, so many in all, in an order that a poll can follow."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from shared_core.openai_proxy.inspector.request_ring import RequestRing
from shared_core.prompt.context import ContextReport

REPORT = ContextReport(budget=10, reserve=0, lines=())
USERS = ("ann", "ben", None)


@given(st.lists(st.sampled_from(USERS), max_size=60))
def test_a_user_keeps_the_newest_ones_and_at_least_a_fair_share(users: list[str | None]) -> None:
    ring, noted = RequestRing(9), defaultdict[str | None, list[int]](list)
    for user in users:
        noted[user].append(ring.note(user, "s", "m", REPORT))
    kept = {user: [one.number for one in ring.of(user)] for user in USERS}
    assert sum(map(len, kept.values())) == min(9, len(users))
    for user in USERS:
        assert kept[user] == noted[user][::-1][: len(kept[user])], "the newest ones, newest first"
        assert len(kept[user]) >= min(3, len(noted[user])), "a third each"


def test_every_change_has_a_later_stamp() -> None:
    ring = RequestRing()
    one, other = ring.note("ann", None, None, REPORT), ring.note("ann", "s", "m", REPORT)
    assert other > one
    ring.answered("ann", one, "t")
    ring.answered("ben", other, "another user's")
    second, first = ring.of("ann")
    assert (first.number, first.session, second.session, second.seconds) == (one, "t", "s", None)
    assert first.stamp > second.stamp == other
    assert first.seconds == (first.stamp - one) / 1e6


def test_what_is_dropped_or_unknown_is_not_there() -> None:
    ring = RequestRing(2)
    numbers = [ring.note("ann", "s", None, REPORT) for _ in range(3)]
    ring.answered("ann", numbers[0], "s")
    assert [one.number for one in ring.of("ann")] == numbers[:0:-1]
    ring.drop("ann", {numbers[1]})
    assert [(one.number, one.stamp > numbers[2]) for one in ring.of("ann")] == [(numbers[2], True)]
    ring.drop("ann", {*numbers})
    assert ring.of("ann") == ring.of("ben") == []
