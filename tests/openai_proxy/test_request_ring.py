"""The ring of requests: the newest ones of each user, so many in all, in an order that a poll can follow."""

import weakref
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from shared_core.doors.openai_proxy.inspector import live_sessions
from shared_core.doors.openai_proxy.inspector.request_ring import LONGEST, RequestRing
from shared_core.doors.view.page_data import BEGINNING
from shared_core.events import Note
from shared_core.prompt.hits import Kind, Reason
from shared_core.prompt.report import ContextReport, ReportLine

REPORT = ContextReport(budget=10, reserve=0, lines=())
USERS = ("ann", "ben", None)


def lines(count: int, text: str = "") -> tuple[ReportLine, ...]:
    return (ReportLine("u1", "user", Kind.WINDOW, True, Reason.NEWEST, 3, 7, text),) * count


class Made:
    """Makes the lines of a report, and stands for all that it would keep: the messages, with their photos."""

    def __call__(self) -> tuple[ReportLine, ...]:
        return lines(2, "x" * 1_000)


def test_it_keeps_what_is_shown_of_a_report_and_not_what_that_is_made_of() -> None:
    ring, made = RequestRing(), Made()
    alive = weakref.ref(made)
    report = ContextReport.with_lines_made_later(
        made, {kind: 6 if kind is Kind.WINDOW else 0 for kind in Kind}, budget=10, reserve=0, pending=4,
        degraded=(Note("late"),), embedder="e", stopped="",
    )  # fmt: skip
    ring.note("ann", "s", "m" * 1_000, report)
    del made, report
    assert alive() is None
    (kept,) = (one.prompt for one in ring.of("ann"))
    expected = ContextReport(10, 0, lines(2, "x" * LONGEST), pending=4, degraded=(Note("late"),), embedder="e")
    assert (kept.report, kept.model) == (expected, "m" * LONGEST)
    assert max(live_sessions.PREVIEW, BEGINNING) <= LONGEST


@given(st.lists(st.tuples(st.sampled_from(USERS), st.integers(0, 12)), min_size=1, max_size=40))
def test_all_reports_together_have_no_more_lines_than_may_be(requests: list[tuple[str | None, int]]) -> None:
    ring, noted = RequestRing(40, most_lines=9), defaultdict[str | None, list[int]](list)
    for user, count in requests:
        noted[user].append(ring.note(user, "s", "m", ContextReport(10, 0, lines(count))))
        kept = [one for user in USERS for one in ring.of(user)]
        assert sum(len(one.prompt.report.lines) for one in kept) <= 9 or len(kept) == 1
    for user in USERS:
        left = [one.number for one in ring.of(user)]
        assert left == noted[user][::-1][: len(left)], "the newest ones"
    if sum(count for _, count in requests) <= 9:
        assert sum(len(ring.of(user)) for user in USERS) == len(requests), "none goes before it has to"


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
