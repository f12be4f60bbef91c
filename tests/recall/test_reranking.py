"""A reranker orders the best results, in time or not at all, and never fails a question."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from shared_core import AsyncInfiniteMemory, Hit, InfiniteMemory, Message, SQLiteStore
from shared_core.plugins import calls
from shared_core.prompt.context import Context
from shared_core.prompt.report import ReportLine
from shared_core.recall.reranking import RERANKED
from shared_core.results import Kind, Reason
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.event_loop import nothing_blocks
from tests.support.histories import NOON

QUESTION = "What is the code of locker number 7 at the gym?"
SMALL: dict[str, Any] = {"max_tokens": 900, "reserve_tokens": 100}
LONG = "It opens at nine. " * 20 + "The sauna beside locker number 7 has 80 degrees. " + "It closes at ten. " * 20


def memory(reranker: Any = None, **settings: Any) -> InfiniteMemory:
    """Forty turns about lockers; one reply is long."""
    given = {"embedder": HashingEmbedder(), "reranker": reranker, "clock": lambda: NOON, **SMALL, **settings}
    opened = InfiniteMemory(**given)
    for number in range(40):
        reply = LONG if number == 7 else f"Noted: the code of locker {number} is {31 * number}."
        opened.add([Message.user(f"About locker number {number} at the gym.", name="Ann", id=f"q{number}"),
                    Message.assistant(reply, id=f"a{number}")])  # fmt: skip
    return opened


def rising(count: int) -> list[float]:
    return [float(rank) for rank in range(count)]


class Scripted:
    """A reranker that returns what a function of the number of texts returns, and notes what it was given."""

    def __init__(self, scores: Callable[[int], Any] = rising) -> None:
        self.scores = scores
        self.calls: list[tuple[str, list[str]]] = []

    def __call__(self, query: str, texts: Sequence[str]) -> Any:
        self.calls.append((query, list(texts)))
        return self.scores(len(texts))


def ids(hits: Sequence[Hit]) -> list[str | None]:
    return [hit.message.id for hit in hits]


def considered(context: Context) -> list[ReportLine]:
    return [line for line in context.report.lines if line.kind is Kind.RECALLED and line.id]


def likely(context: Context) -> list[str | None]:
    return [line.id for line in considered(context) if line.reason is not Reason.WEAK]


@cache
def plain() -> tuple[tuple[Hit, ...], Context]:
    """What a search for more than a reranker sees finds, and the prompt, both without one."""
    opened = memory()
    return tuple(opened.search(QUESTION, RERANKED + 10)), opened.context(QUESTION)


@cache
def best_of_context() -> tuple[str | None, ...]:
    """What the prompt is chosen from, best first, without a reranker: as many as one sees."""
    found = likely(memory(recall="thorough").context(QUESTION))
    assert len(found) >= RERANKED
    return tuple(found[:RERANKED])


def test_it_sees_the_best_as_recall_shows_them() -> None:
    reranker = Scripted()
    asked = "How hot is the sauna beside locker number 7 at the gym?"
    memory(reranker).search(asked, 3)
    [(query, texts)] = reranker.calls
    assert (query, len(texts)) == (asked, RERANKED)
    best = memory().search(asked, RERANKED)
    for text, hit in zip(texts, best, strict=True):
        speaker, _, said = text.partition(": ")
        assert speaker == (hit.message.name or hit.message.role)
        if hit.message.content == LONG:
            assert "The sauna beside locker number 7 has 80 degrees." in said
            assert len(said) < len(LONG) / 2
        else:
            assert said == hit.message.content
    assert LONG in [hit.message.content for hit in best]


def test_a_message_found_by_its_grounding_is_seen_with_it() -> None:
    reranker = Scripted()
    opened = memory(reranker)
    opened.add(Message.user("Is that right?", grounding="The porcupine sleeps in locker number 3.", id="grounded"))
    assert opened.search("porcupine locker number 3", 1)[0].message.id
    assert any(text.startswith("user: ") and "porcupine sleeps" in text for text in reranker.calls[0][1])


def test_the_sessions_of_a_user_are_ordered_together() -> None:
    reranker, store = Scripted(), SQLiteStore(":memory:")
    for session in ("work", "home"):
        with InfiniteMemory(store, session_id=session, user_id="ann", embedder="words") as opened:
            opened.add([Message.user(f"Key {number} hangs {session}.") for number in range(5)])
    with InfiniteMemory(store, session_id="new", user_id="ann", scope="user", embedder="words") as opened:
        without = opened.search("where does key 3 hang?")
    with InfiniteMemory(
        store, session_id="new", user_id="ann", scope="user", embedder="words", reranker=reranker
    ) as opened:
        found = opened.search("where does key 3 hang?")
    assert ids(found) == ids(without)[::-1]
    assert {hit.session_id for hit in found} == {"work", "home"}
    assert reranker.calls[0][1] == [f"user: {hit.message.content}" for hit in without]


def test_a_search_returns_the_best_of_the_new_order_with_the_scores_of_their_ranks() -> None:
    without = plain()[0]
    found = memory(Scripted()).search(QUESTION, RERANKED + 10)
    assert ids(found) == [*ids(without[:RERANKED])[::-1], *ids(without[RERANKED:])]
    assert [hit.score for hit in found] == [hit.score for hit in without]
    assert [hit.reranked for hit in found[:RERANKED]] == [float(rank) for rank in range(RERANKED)][::-1]
    assert {hit.reranked for hit in found[RERANKED:]} == {None}
    assert ids(memory(Scripted()).search(QUESTION, 4)) == ids(found[:4])
    assert memory(Scripted()).search(QUESTION, 0) == []


@pytest.mark.parametrize("recall", ["balanced", "precise", "thorough"])
def test_as_much_as_before_is_worth_its_tokens_and_it_is_what_the_reranker_puts_first(recall: str) -> None:
    without, reranked = (considered(memory(it, recall=recall).context(QUESTION)) for it in (None, Scripted()))
    assert [line.score for line in reranked] == [line.score for line in without]
    late = [line.reason is Reason.WEAK for line in without]
    assert [line.reason is Reason.WEAK for line in reranked] == late
    assert any(late) is (recall != "thorough")
    assert not late[0]


def test_the_report_says_that_a_reranker_ordered() -> None:
    reranked, without = memory(Scripted()).context(QUESTION).report, plain()[1].report
    assert (reranked.reranked, without.reranked) == (True, False)
    assert reranked.to_dict()["reranked"] is True
    assert "Recalled, in the reranker's order;" in str(reranked)
    assert "Recalled, best first;" in str(without)
    assert "reranked" in reranked.full(width=160).splitlines()[3]
    assert " 29.00 " in reranked.full(width=160)
    assert "reranked" not in without.full(width=160)


def test_minus_infinity_puts_a_text_last_and_is_no_number_in_the_report() -> None:
    first = ids(plain()[0][:RERANKED])
    opened = memory(Scripted(lambda count: [float("-inf")] * (count - 1) + [0.5]))
    assert ids(opened.search(QUESTION, RERANKED)) == [first[-1], *first[:-1]]
    report = opened.context(QUESTION).report
    assert {line.reranked for line in considered(opened.context(QUESTION))} == {None, 0.5}
    assert json.loads(json.dumps(report.to_dict()), parse_constant=pytest.fail)["reranked"] is True


SCORES = st.lists(st.one_of(st.floats(-9, 9), st.sampled_from([0.0, 1.0, float("-inf")])), min_size=30, max_size=30)


@given(SCORES)
def test_the_order_is_that_of_the_scores_equal_ones_stay_and_nothing_is_lost(scores: list[float]) -> None:
    opened, without = shared(), plain()
    opened[1].scores = lambda count: scores[:count]
    order = sorted(range(RERANKED), key=lambda rank: -scores[rank])
    found = opened[0].search(QUESTION, RERANKED + 10)
    expected = [*(without[0][rank] for rank in order), *without[0][RERANKED:]]
    assert ids(found) == ids(expected)
    assert ids(found) == ids(opened[0].search(QUESTION, RERANKED + 10))
    context = opened[0].context(QUESTION)
    worth = len(likely(without[1]))
    assert likely(context) == [best_of_context()[rank] for rank in order][:worth]
    assert context == opened[0].context(QUESTION)


@cache
def shared() -> tuple[InfiniteMemory, Scripted]:
    reranker = Scripted()
    return memory(reranker), reranker


# When it is not asked


def test_it_is_not_asked_if_nothing_is_worth_its_tokens_or_there_is_nothing_to_order() -> None:
    reranker = Scripted()
    with InfiniteMemory(embedder="static", reranker=reranker, **SMALL) as opened:
        for number in range(40):
            opened.add([Message.user(f"The weather of day {number} was fine."), Message.assistant("Good to hear.")])
        assert opened.context("lol").report.stopped.startswith("nothing recalled")
        assert opened.search("") == []
        assert len(opened.search("day 7", until="1999-01-01")) == 0
    assert reranker.calls == []


# When it fails


def failing(count: int) -> Any:
    raise ValueError("no credit")


class Attached:
    """As a tensor that still belongs to a training, it becomes no array."""

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("call detach() first")


FAILURES: dict[str, tuple[Callable[[int], Any], str]] = {
    "raises": (failing, "the reranker raised ValueError: no credit"),
    "too few": (lambda count: [1.0], "the reranker returned 1 scores for 30 texts"),
    "too many": (lambda count: [1.0] * (count + 1), "the reranker returned 31 scores for 30 texts"),
    "nan": (lambda count: [float("nan")] * count, "the reranker returned NaN or infinity as a score"),
    "infinity": (lambda count: [float("inf")] * count, "the reranker returned NaN or infinity as a score"),
    "nothing": (lambda count: None, "the reranker returned NoneType, not a list of numbers"),
    "texts": (
        lambda count: ["good"] * count,
        "the reranker returned list, not a list of numbers: could not convert string to float: 'good'",
    ),
    "tensor": (
        lambda count: Attached(),
        "the reranker returned Attached, not a list of numbers: call detach() first",
    ),
    "pairs": (lambda count: [[0.1, 0.9]] * count, "the reranker returned an array of the shape (30, 2) for 30 texts"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_a_note_and_changes_nothing_else(name: str, caplog: pytest.LogCaptureFixture) -> None:
    scores, reason = FAILURES[name]
    opened = memory(Scripted(scores))
    with caplog.at_level(logging.WARNING, "shared_core"):
        assert opened.search(QUESTION, RERANKED + 10) == list(plain()[0])
        context = opened.context(QUESTION)
    assert context.report.degraded == (f"not reranked: {reason}",)
    assert (context.messages, context.report.lines) == (plain()[1].messages, plain()[1].report.lines)
    assert [record.getMessage() for record in caplog.records] == [f"not reranked: {reason}"], "once, in the log"

    async def later() -> Context:
        return await AsyncInfiniteMemory(opened).context(QUESTION)

    assert asyncio.run(later()) == context


def test_what_is_forgotten_while_it_works_is_not_recalled() -> None:
    gone = [plain()[0][0].message.id or ""]
    opened = memory()
    reranker = Scripted()

    def forgetting(query: str, texts: Sequence[str]) -> Any:
        if not reranker.calls:
            opened.forget(ids=gone)
        return reranker(query, texts)

    opened = memory(forgetting)
    assert gone[0] not in ids(opened.search(QUESTION, RERANKED + 10))
    assert [len(texts) for _, texts in reranker.calls] == [RERANKED, RERANKED]
    assert gone[0] not in [line.id for line in considered(opened.context(QUESTION))]


# Time


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of every call is up as soon as it has begun."""
    monkeypatch.setattr(calls, "SECONDS", 0.0)


def lexical(reranker: Any = None) -> InfiniteMemory:
    """The same conversation, searched by words, so that the reranker is the only call of a question."""
    return memory(reranker, embedder="words")


class Waiting(Scripted):
    """A reranker that returns nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    @override
    def __call__(self, query: str, texts: Sequence[str]) -> Any:
        reply = super().__call__(query, texts)
        self.may.wait()
        return reply


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    reranker = Waiting()
    yield reranker
    reranker.may.set()


def end(opened: InfiniteMemory) -> None:
    """Wait until the call that was given up has ended, and let further ones take their time."""
    late = opened._prompts.reranking._late
    assert late is not None
    late.settle()
    calls.SECONDS = 3_600.0


TOO_LATE = "not reranked: the reranker returned nothing in time; a model that is loading will be ready later"
BUSY = "not reranked: the reranker still works on an earlier question"


@pytest.mark.usefixtures("no_time")
def test_a_question_waits_no_longer_and_the_next_ones_do_not_ask_again_meanwhile(waiting: Waiting) -> None:
    opened = lexical(waiting)
    late = opened.context(QUESTION)
    assert late.report.degraded == (TOO_LATE,)
    assert late.messages == lexical().context(QUESTION).messages
    assert opened.context(QUESTION).report.degraded == (BUSY,)
    assert opened.search(QUESTION, 3) == lexical().search(QUESTION, 3)
    assert len(waiting.calls) == 1
    waiting.may.set()
    end(opened)
    assert opened.context(QUESTION).report.reranked
    assert len(waiting.calls) == 2


def test_the_exit_of_the_process_waits_for_a_call_in_the_background() -> None:
    code = (
        "import threading; from shared_core.runtime.threads import in_background\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    print('the program has ended')\n"
        "    sum(range(10**6))\n"
        "    print('and so has the call')\n"
        "in_background(work, 'work')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["the program has ended", "and so has the call"]
    assert done.stderr == ""


# Asynchronous code


async def reversing(query: str, texts: Sequence[str]) -> list[float]:
    await asyncio.sleep(0)
    return rising(len(texts))


@pytest.mark.parametrize("reranker", [reversing, Scripted()], ids=lambda one: type(one).__name__)
def test_every_kind_answers_both_memories(reranker: Any) -> None:
    opened = memory(reranker)
    expected = ids(plain()[0][:RERANKED])[::-1][:5]
    assert ids(opened.search(QUESTION, 5)) == expected
    context = opened.context(QUESTION)
    assert context.report.reranked

    async def later() -> tuple[list[Hit], Context]:
        with nothing_blocks():
            other = AsyncInfiniteMemory(opened)
            return await other.search(QUESTION, 5), await other.context(QUESTION)

    found, prompt = asyncio.run(later())
    assert ids(found) == expected
    assert prompt == context
