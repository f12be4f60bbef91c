"""What must be true of a store after a load, and of each call during it, judged from journals alone."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from shared_core.records import MAIN
from tests.load.journal import Call

NEVER = 2**63
"""Later than any time."""


@dataclass(frozen=True)
class Found:
    """What a store holds of a session in the end.

    Attributes:
        stored: the ids of all messages, in the order of their numbers.
        lines: the ids on each branch, in order.
    """

    stored: Sequence[str]
    lines: Mapping[str, Sequence[str]]


class Told:
    """What the calls on a session come to.

    Args:
        calls: those on this session, by the time at which they began.

    Attributes:
        begun: when each message was first sent to be stored.
        stored: since when each message was stored for sure.
        branch: the branch that each message was sent to.
        questions: the messages that open a turn. A reply whose question was forgotten is not sent any more.
        forgetting: since when each message may have been forgotten.
        forgotten: since when each message was forgotten for sure.
        forks: since when each branch may have been there, and since when it was there for sure.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.begun: dict[str, int] = {}
        self.stored: dict[str, int] = {}
        self.branch: dict[str, str] = {}
        self.questions: set[str] = set()
        self.forgetting: dict[str, int] = {}
        self.forgotten: dict[str, int] = {}
        self.forks: dict[str, tuple[int, int]] = {}
        for call in calls:
            done = call.ended if call.outcome == "done" and call.ended is not None else NEVER
            if call.verb == "fork":
                self.forks[call.branch] = (call.began, done)
            if call.verb == "add":
                self.questions.add(call.ids[0])
            for id_ in call.ids if call.verb == "add" else ():
                self.begun.setdefault(id_, call.began)
                self.branch[id_] = call.branch
                self.stored[id_] = min(self.stored.get(id_, NEVER), done)
            for id_ in call.ids if call.verb == "forget" else ():
                self.forgetting[id_] = call.began
                self.forgotten[id_] = done

    def certain(self, branch: str, at: int, until: int) -> Iterator[str]:
        """Yield the messages sent to a branch that were stored at a time, and that nobody forgot until another."""
        for id_, since in self.stored.items():
            if self.branch[id_] == branch and since < at and self.forgetting.get(id_, NEVER) > until:
                yield id_


def faults(calls: Sequence[Call], found: Mapping[str, Found]) -> list[str]:
    """Return what is wrong, in words; nothing if the store kept its promises.

    Args:
        calls: of all workers, by the time at which they began.
        found: what the store holds in the end, by session.
    """
    by_session: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_session[call.session].append(call)
    wrong = [f"{call.verb} on {call.session}: {call.said}" for call in calls if call.outcome == "failed"]
    for session in sorted(by_session.keys() | found.keys()):
        own = by_session[session]
        told, there = Told(own), found.get(session, Found((), {MAIN: ()}))
        checks = (_stored(told, there), _whole(own, told, there), _lines(told, there), _order(own, there))
        wrong += [f"{session}: {one}" for check in checks for one in check]
        wrong += [f"{session}: {one}" for call in own if call.outcome == "done" for one in _seen(call, told, there)]
    return wrong


def _numbers(there: Found) -> dict[str, int]:
    return {id_: number for number, id_ in enumerate(there.stored, start=1)}


def _stored(told: Told, there: Found) -> Iterator[str]:
    """Nothing acknowledged is lost, doubled, or there although it was forgotten."""
    counts = Counter(there.stored)
    yield from (f"{id_} is stored {count} times" for id_, count in counts.items() if count > 1)
    yield from (f"nobody sent {id_}" for id_ in counts if id_ not in told.begun)
    for id_, since in told.stored.items():
        if since < NEVER and id_ not in counts and id_ not in told.forgetting:
            yield f"{id_} was stored and is lost"
    yield from (
        f"{id_} was forgotten and is stored" for id_, at in told.forgotten.items() if at < NEVER and id_ in counts
    )


def _whole(calls: Iterable[Call], told: Told, there: Found) -> Iterator[str]:
    """A call that nobody knows the end of happened wholly or not at all."""
    numbers = _numbers(there)
    for call in calls:
        ids = [id_ for id_ in call.ids if call.verb == "forget" or id_ not in told.forgetting]
        if call.verb in ("add", "forget") and 0 < len(ids_there := [id_ for id_ in ids if id_ in numbers]) < len(ids):
            yield f"{call.verb} of {ids} is half done: {ids_there} are there"
        elif call.verb == "add" and ids:
            places = [numbers.get(id_, 0) for id_ in ids]
            if places[0] and places != list(range(places[0], places[0] + len(places))):
                yield f"others came between {ids}"


def _lines(told: Told, there: Found) -> Iterator[str]:
    """Each branch holds what was sent to it, behind the part of main that it shares, and no other branch does."""
    for name, (_, since) in told.forks.items():
        if since < NEVER and name not in there.lines:
            yield f"the branch {name} was created and is lost"
    main, held = there.lines.get(MAIN, ()), set(there.stored)
    for name, line in there.lines.items():
        if name != MAIN and name not in told.forks:
            yield f"nobody created the branch {name}"
            continue
        own = [id_ for id_ in line if told.branch.get(id_) == name]
        shared = list(line)[: len(line) - len(own)] if name != MAIN else []
        if list(line) != [*shared, *own] or shared != list(main)[: len(shared)]:
            yield f"{name} is no continuation of main"
        if Counter(own) != Counter(id_ for id_ in held if told.branch.get(id_) == name):
            yield f"{name} does not hold what was sent to it, once each"
        if name != MAIN:
            before = set(told.certain(MAIN, told.forks[name][0], NEVER - 1))
            yield from (f"{name} lacks {id_}, which was on main before" for id_ in before - set(shared))


def _order(calls: Iterable[Call], there: Found) -> Iterator[str]:
    """All readers of a branch, and the end, agree on one order, in which what is new comes last."""
    numbers = _numbers(there)
    for name, line in there.lines.items():
        if any(numbers.get(one, 0) >= numbers.get(two, 0) for one, two in pairwise(line)):
            yield f"the order of {name} is not that of its numbers"
    reads = [call for call in calls if call.verb in ("messages", "fork") and call.outcome == "done"]
    after: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for call in reads:
        line = list(there.lines.get(call.branch, ()))
        left = [id_ for id_ in call.seen if id_ in numbers]
        if left != line[: len(left)]:
            yield f"{call.verb} of {call.branch} by {call.worker} saw {left}, no beginning of {line}"
        for one, two in pairwise(call.seen):
            after[call.branch][two].add(one)
    for name, before in after.items():
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            yield f"readers of {name} saw different orders: {error.args[1]}"


def _seen(call: Call, told: Told, there: Found) -> Iterator[str]:
    """A call shows all that was acknowledged before it began, and nothing that was forgotten, or is elsewhere."""
    assert call.ended is not None
    if call.verb == "branches":
        missing = [name for name, (_, since) in told.forks.items() if since < call.began and name not in call.seen]
        yield from (f"branches of {call.worker} lacks {name}" for name in missing)
        return
    for id_ in call.seen:
        if told.forgotten.get(id_, NEVER) < call.began and call.verb != "forget":
            yield f"{call.verb} of {call.worker} showed {id_}, which was forgotten"
        if told.begun.get(id_, NEVER) > call.ended:
            yield f"{call.verb} of {call.worker} showed {id_}, which nobody had sent"
        if call.verb != "forget" and told.branch.get(id_) not in (MAIN, call.branch):
            yield f"{call.verb} of {call.worker} on {call.branch} showed {id_} of {told.branch.get(id_)}"
    expected = _expected(call, told)
    if not expected <= set(call.seen):
        yield f"{call.verb} of {call.worker} on {call.branch} lacks {sorted(expected - set(call.seen))}"
    if call.verb == "context":
        yield from _newest(call, told, there)


def _expected(call: Call, told: Told) -> set[str]:
    """Return what a call must show."""
    assert call.ended is not None
    if call.verb in ("add", "forget"):
        gone = {id_ for id_ in call.ids if call.verb == "add" and told.forgetting.get(id_, NEVER) < call.ended}
        return set(call.ids) - gone
    if call.verb == "fork":
        return set(told.certain(MAIN, call.began, call.ended))
    certain = set(told.certain(call.branch, call.began, call.ended))
    return certain if call.verb == "messages" else certain & told.questions & set(call.ids)


def _newest(call: Call, told: Told, there: Found) -> Iterator[str]:
    """A prompt holds the newest message that was acknowledged before it was asked for, or a newer one."""
    assert call.ended is not None
    numbers = _numbers(there)
    certain = told.questions & set(told.certain(call.branch, call.began, call.ended)) & numbers.keys()
    if certain:
        newest = max(certain, key=numbers.__getitem__)
        own = [id_ for id_ in call.seen if told.branch.get(id_) == call.branch]
        # Nobody knows the number of a later one that was forgotten since, but when it was stored.
        later = (id_ not in numbers and told.stored[id_] > told.begun[newest] for id_ in own)
        if not any(numbers.get(id_, 0) >= numbers[newest] for id_ in own) and not any(later):
            yield f"context of {call.worker} on {call.branch} lacks {newest}, the newest, and what came later"
