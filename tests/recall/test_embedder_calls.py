"""An embedder that takes too long: the question goes on, and the vectors are kept when they arrive."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message
from shared_core.plugins import calls as embedder_calls
from shared_core.plugins.base import Embedder, Fingerprint, Vectors
from shared_core.plugins.calls import BRIEF, Embedded, EmbedRequest
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.plugins.embedders.checks import evenly
from shared_core.prompt.context import Context
from shared_core.recall.search import SMALL_BATCH, Searcher
from shared_core.testing.hashing_embedder import HashingEmbedder

QUESTION = "which tower 3?"
ENOUGH = 1e9
SMALL: dict[str, Any] = {"max_tokens": 120, "reserve_tokens": 0, "embed_budget_ms": ENOUGH}


class Waiting(HashingEmbedder):
    """Returns the vectors of messages, or of questions, when it may; the time is up as soon as it has begun.

    Attributes:
        now: the time of the clock, in seconds.
        holds: which calls wait: "documents", "query" or neither.
        may: set when they may go on.
        calls: how many calls for messages have begun.
    """

    def __init__(self, holds: str = "documents") -> None:
        super().__init__(16)
        self.now, self.holds, self.calls = 0.0, holds, 0
        self.may = threading.Event()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.holds == "documents":
            self.may.wait()
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> Vectors:
        if self.holds == "query":
            self.may.wait()
        if self.holds == "documents" and not self.may.is_set():
            self.now += ENOUGH  # no time is left for messages
        return super().embed_query(text)


def searcher(memory: InfiniteMemory) -> Searcher:
    return memory._prompts.searcher


def talk(memory: InfiniteMemory, count: int = 12) -> None:
    for number in range(count):
        memory.add([
            Message.user(f"tower {number}", id=f"u{number}"),
            Message.assistant(f"the tower number {number} is by the river", id=f"a{number}"),
        ])  # fmt: skip


def opened(embedder: Waiting, store: Any = None, **settings: Any) -> InfiniteMemory:
    memory = InfiniteMemory(store, embedder=embedder, **SMALL | settings)
    searcher(memory).clock = lambda: embedder.now
    return memory


@pytest.fixture(autouse=True)
def no_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is not held ends before this, however busy the machine is."""
    monkeypatch.setattr(embedder_calls, "ONE_CALL", ENOUGH / 1_000)


@pytest.fixture
def embedder() -> Generator[Waiting]:
    embedder = Waiting()
    yield embedder
    embedder.may.set()


@pytest.fixture
def memory(embedder: Waiting) -> Generator[InfiniteMemory]:
    with opened(embedder) as memory:
        talk(memory)
        yield memory


def arrive(memory: InfiniteMemory, embedder: Waiting) -> None:
    """Let the calls that were given up end, and wait for what becomes of them."""
    embedder.may.set()
    searcher(memory).late.settle()


class TestMessages:
    def test_a_batch_that_takes_too_long_is_kept_when_it_arrives(
        self, memory: InfiniteMemory, embedder: Waiting
    ) -> None:
        early = memory.context(QUESTION).report
        assert (early.pending > 12, early.embedder, embedder.documents) == (True, None, [])
        arrive(memory, embedder)
        assert len(set(embedder.documents)) == len(embedder.documents) == early.pending
        later = memory.context(QUESTION).report
        assert (later.pending, later.embedder) == (0, "hashing/16")
        assert len(embedder.documents) == early.pending
        assert memory.stats()["vectors"] == 0, "questions store nothing"
        talk(memory, 1)
        assert memory.stats()["vectors"] == early.pending

    def test_another_question_meanwhile_begins_no_other_call(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.add([Message.user(f"later {number}") for number in range(2 * SMALL_BATCH)])
        both = [memory.context(question).report for question in (QUESTION, "and the river?")]
        assert both[0].pending == both[1].pending
        arrive(memory, embedder)
        assert (embedder.calls, len(embedder.documents)) == (1, SMALL_BATCH)

    def test_two_questions_at_once_embed_nothing_twice(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        asking = [threading.Thread(target=memory.context, args=[QUESTION]) for _ in range(4)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        arrive(memory, embedder)
        memory.index()
        assert len(set(embedder.documents)) == len(embedder.documents)

    def test_a_message_forgotten_meanwhile_gets_no_vector(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        pending = memory.context(QUESTION).report.pending
        memory.forget(ids=["u3", "a3"])
        arrive(memory, embedder)
        assert memory.context(QUESTION).report.pending == 0
        assert len(embedder.documents) == pending, "what is left of the batch is used"
        talk(memory, 1)
        assert memory.stats()["vectors"] == pending - 2
        assert not any(hit.message.id in ("u3", "a3") for hit in memory.search("tower number 3", 50))

    def test_a_turn_of_which_a_part_is_forgotten_meanwhile_gets_no_vector(self, embedder: Waiting) -> None:
        with opened(embedder, recall_unit="turn") as memory:
            talk(memory)
            pending = memory.context(QUESTION).report.pending
            memory.forget(ids=["u3"])
            arrive(memory, embedder)
            assert memory.context(QUESTION).report.pending == 0
            assert "the tower number 3 is by the river" in embedder.documents[pending:]
            talk(memory, 1)
            assert memory.stats()["vectors"] == pending

    def test_all_of_the_session_forgotten_meanwhile(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        memory.forget(session=True)
        arrive(memory, embedder)
        assert memory.stats()["vectors"] == 0
        talk(memory)
        assert memory.context(QUESTION).report.pending == 0

    def test_a_memory_closed_meanwhile_stores_nothing(self, embedder: Waiting, tmp_path: Path) -> None:
        path = tmp_path / "chat.db"
        memory = opened(embedder, path)
        talk(memory)
        pending = memory.context(QUESTION).report.pending
        memory.close()
        arrive(memory, embedder)
        with InfiniteMemory(path, embedder=HashingEmbedder(16), **SMALL) as again:
            assert again.stats()["vectors"] == 0
            assert again.context(QUESTION).report.pending == 0
        with InfiniteMemory(path, embedder=HashingEmbedder(16), **SMALL) as again:
            assert again.stats()["vectors"] == pending

    def test_an_error_that_comes_late_leaves_the_messages_to_the_next_question(
        self, memory: InfiniteMemory, embedder: Waiting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(texts: Sequence[str]) -> Vectors:
            embedder.may.wait()
            raise OSError("gone")

        with monkeypatch.context() as patched:
            patched.setattr(embedder, "embed_documents", fail)
            assert memory.context(QUESTION).report.pending
            arrive(memory, embedder)
        assert memory.context(QUESTION).report.pending == 0

    def test_indexing_waits_for_it_and_embeds_the_rest(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        indexing = threading.Thread(target=memory.index)
        indexing.start()
        embedder.may.set()
        indexing.join()
        assert (len(embedder.documents), len(set(embedder.documents))) == (24, 24)
        assert memory.stats()["vectors"] == 24

    def test_without_a_budget_nothing_begins(self, embedder: Waiting) -> None:
        with opened(embedder, embed_budget_ms=0) as memory:
            talk(memory)
            assert (memory.context(QUESTION).report.pending > 12, embedder.calls) == (True, 0)

    def test_a_fork_leaves_the_call_to_its_parent(self, embedder: Waiting, tmp_path: Path) -> None:
        with opened(embedder, tmp_path / "chat.db") as memory:
            talk(memory)
            pending = memory.context(QUESTION).report.pending
            if not (child := os.fork()):
                embedder.holds = ""
                late = memory.context(QUESTION).report
                os._exit(0 if (late.pending, late.embedder) == (0, "hashing/16") else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            arrive(memory, embedder)
            talk(memory, 1)
            assert memory.stats()["vectors"] == pending


class TestTheQuestion:
    @pytest.fixture(autouse=True)
    def no_grace(self, no_real_time: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedder_calls, "ONE_CALL", 0.0)

    @pytest.fixture
    def memory(self, embedder: Waiting) -> Generator[InfiniteMemory]:
        embedder.holds = ""
        with opened(embedder, embed_budget_ms=1e-6) as memory:
            talk(memory)
            memory.index()
            embedder.holds = "query"
            yield memory

    def test_without_its_vector_in_time_recall_is_by_words(self, memory: InfiniteMemory) -> None:
        report = memory.context(QUESTION).report
        assert (report.pending, report.embedder) == (0, None)
        assert any(line.id == "a3" for line in report.best)
        (note,) = report.degraded
        assert note.startswith("recall by words alone: the embedder returned no vector of the question within ")
        assert note.endswith(" s; raise embed_budget_ms if it needs longer")

    def test_while_it_is_under_way_no_other_one_is_asked_for(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        first = threading.active_count()
        memory.context(QUESTION)
        reports = [memory.context(question).report for question in (QUESTION, "and the river?")]
        assert all("the embedder still works on an earlier question" in report.degraded[0] for report in reports)
        assert threading.active_count() == first + 1

    def test_it_is_kept_for_the_same_question(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        kept = searcher(memory).late._question
        assert kept is not None
        embedder.may.set()
        kept[1].settle()
        assert memory.context(QUESTION).report.embedder == "hashing/16"
        assert len(embedder.queries) == 1

    def test_the_first_time_is_logged_as_a_search_has_no_report(
        self, memory: InfiniteMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert any(hit.message.id == "a3" for hit in memory.search("tower number 3", 3))
        memory.search("tower number 4", 3)
        (message,) = caplog.messages
        assert message.startswith("recall by words alone: ")

    def test_loading_the_model_does_not_count(self) -> None:
        class Loading(HashingEmbedder):
            loaded = False

            def load(self) -> None:
                clock[0] += 1e6
                self.loaded = True

            def embed_query(self, text: str) -> Vectors:
                assert self.loaded
                return super().embed_query(text)

        clock = [0.0]
        with InfiniteMemory(embedder=Loading(16), **SMALL | {"embed_budget_ms": 1e6}) as memory:
            searcher(memory).clock = lambda: clock[0]
            talk(memory)
            assert (memory.context(QUESTION).report.pending, clock) == (0, [1e6])

    def test_a_model_that_does_not_load_leaves_words(self) -> None:
        class Broken(HashingEmbedder):
            def load(self) -> None:
                raise OSError("no weights")

        with InfiniteMemory(embedder=Broken(16), **SMALL) as memory:
            talk(memory)
            with pytest.warns(RuntimeWarning, match="raised OSError: no weights"):
                report = memory.context(QUESTION).report
            assert (report.pending > 12, report.embedder) == (True, None)


class AsyncWaiting(Waiting):
    """Awaits an event of the event loop instead."""

    def __init__(self) -> None:
        super().__init__()
        self.held = asyncio.Event()
        self.ended = 0

    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        try:
            await self.held.wait()
        finally:
            self.ended += 1
        return HashingEmbedder.embed_documents(self, texts)

    async def aembed_query(self, text: str) -> Vectors:
        return self.embed_query(text)


class TestAsynchronous:
    def test_a_batch_that_takes_too_long_is_kept_when_it_arrives(self) -> None:
        async def ask() -> None:
            embedder = AsyncWaiting()
            memory = opened(embedder)
            talk(memory)
            async with AsyncInfiniteMemory(memory) as awaited:
                both = await asyncio.gather(awaited.context(QUESTION), awaited.context("and the river?"))
                assert {context.report.pending > 12 for context in both} == {True}
                assert both[0].report.pending == both[1].report.pending
                embedder.held.set()
                await awaited.index()
                assert len(embedder.documents) == len(set(embedder.documents)) == 24
                assert (await awaited.context(QUESTION)).report.pending == 0

        asyncio.run(ask())

    def test_a_loop_that_ends_gives_the_messages_back(self) -> None:
        embedder = AsyncWaiting()
        with opened(embedder) as memory:
            talk(memory)
            assert asyncio.run(AsyncInfiniteMemory(memory).context(QUESTION)).report.pending > 12
            assert embedder.ended == embedder.calls == 1
            arrive(memory, embedder)
            assert memory.context(QUESTION).report.pending == 0, "by sync code this time"

    def test_a_question_that_is_cancelled_cancels_its_call(self) -> None:
        async def ask() -> None:
            embedder = AsyncWaiting()
            with opened(embedder) as memory:
                searcher(memory).clock = lambda: 0.0
                await asyncio.to_thread(talk, memory)
                asking = asyncio.create_task(AsyncInfiniteMemory(memory).context(QUESTION))
                while not embedder.calls:
                    await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                while not embedder.ended:
                    await asyncio.sleep(0)
                embedder.held.set()
                assert (await AsyncInfiniteMemory(memory).context(QUESTION)).report.pending == 0

        asyncio.run(ask())

    def test_a_blocking_embedder_does_not_hold_the_loop_up(self, embedder: Waiting) -> None:
        with opened(embedder) as memory:
            talk(memory)
            assert asyncio.run(AsyncInfiniteMemory(memory).context(QUESTION)).report.pending > 12
            arrive(memory, embedder)
            assert memory.context(QUESTION).report.pending == 0


def test_the_process_ends_while_a_call_is_under_way() -> None:
    code = (
        "import threading\n"
        "from shared_core import InfiniteMemory, Message\n"
        "from shared_core.runtime import threads\n"
        "from shared_core.testing.hashing_embedder import HashingEmbedder\n"
        "class Hanging(HashingEmbedder):\n"
        "    now = 0.0\n"
        "    def embed_documents(self, texts):\n"
        "        threading.Event().wait()\n"
        "    def embed_query(self, text):\n"
        "        self.now = 1e9\n"
        "        return super().embed_query(text)\n"
        "embedder, threads.EXIT_SECONDS = Hanging(), 0.0\n"
        "memory = InfiniteMemory(embedder=embedder, max_tokens=60, reserve_tokens=0, embed_budget_ms=1e6)\n"
        "memory._prompts.searcher.clock = lambda: embedder.now\n"
        "memory.add([Message.user(f'tower {n}') for n in range(20)])\n"
        "print(memory.context('which tower 3?').report.pending > 0)\n"
        "memory.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


# Long texts


@given(st.integers(1, 400), st.integers(2, 70))
def test_pieces_are_chosen_evenly(count: int, most: int) -> None:
    chosen = [int(piece) for piece in evenly([str(number) for number in range(count)], most)]
    assert len(chosen) == min(count, most)
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    assert max(np.diff(chosen), default=0) - min(np.diff(chosen), default=0) <= 1


def test_a_long_text_is_embedded_by_a_bounded_number_of_pieces_and_the_report_says_so() -> None:
    given: list[str] = []

    def embed(texts: list[str]) -> list[Vectors]:
        given.extend(texts)
        return list(HashingEmbedder(16).embed_documents(texts))

    embedder = CallableEmbedder(embed, name="pieces", dimension=16, max_chars=100)
    with InfiniteMemory(embedder=embedder, **SMALL) as memory:
        memory.add([Message.user("word " * 4_000, id="long"), Message.assistant("short")])
        whole = len(embedder.split("word " * 4_000))
        memory.add([Message.user("next " * 60), Message.assistant("and last " * 9)])
        notes = memory.context("short?").report.degraded
        assert notes == (
            f"1 long text was embedded by 64 of its {whole} pieces, chosen evenly; words are searched in all of them",
        )
        assert memory.context("short?").report.degraded == (), "it is said where it happened"
        assert len([text for text in given if text.startswith("word")]) == 64


def test_texts_are_split_beside_the_question() -> None:
    class Splitting(HashingEmbedder):
        def split(self, text: str) -> list[str]:
            threads.add(threading.current_thread().name)
            return [text]

    threads = set[str]()
    reply = EmbedRequest(Splitting(16), ("a", "b"), seconds=1e6).answer()
    assert (threads, type(reply).__name__) == ({"infinite-memory embedder"}, "Embedded")


@pytest.mark.parametrize(("at_once", "size", "own"), [(True, BRIEF, True), (True, BRIEF + 1, False), (False, 1, False)])
def test_a_question_starts_a_thread_unless_the_call_takes_less(at_once: bool, size: int, own: bool) -> None:
    class Noting(HashingEmbedder):
        def embed_query(self, text: str) -> Vectors:
            threads.append(threading.current_thread())
            return super().embed_query(text)

    threads = list[threading.Thread]()
    embedder = Noting(16)
    embedder.at_once = at_once
    reply = EmbedRequest(embedder, ("a" * size,), query=True, seconds=1e6).answer()
    assert ([thread is threading.current_thread() for thread in threads], type(reply)) == ([own], Embedded)


def test_a_call_that_exits_the_program_does() -> None:
    class Leaving(HashingEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Vectors:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        EmbedRequest(Leaving(16), ("a",), seconds=1e6).answer()


# Any machine


BATCH = 1e6
"""Seconds that a batch takes by the clock of the embedder: nothing waits so long by the real one."""


class Numbered(Embedder):
    """Vectors by hash of the text, cheap to make, from an embedder with a clock of its own."""

    fingerprint = Fingerprint("numbered", 8)

    def __init__(self) -> None:
        self.now = 0.0

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.now += BATCH
        return np.concatenate([self.embed_query(text)[None] for text in texts])

    def embed_query(self, text: str) -> Vectors:
        row = np.random.default_rng(list(text.encode())).standard_normal(8)
        return (row / np.linalg.norm(row)).astype(np.float32)


LONG: dict[str, Any] = {"max_tokens": 400, "reserve_tokens": 0}
THINGS = ("boiler", "tower", "locker", "wedding", "river", "deadline", "piano", "garden")


def on_a_machine(path: Path, batches: int) -> InfiniteMemory:
    """Open a memory on a machine that embeds this many batches while a question waits."""
    embedder = Numbered()
    budget = 1_000 * BATCH * max(0, batches - 0.5)
    memory = InfiniteMemory(path, embedder=embedder, **LONG, embed_budget_ms=budget)
    searcher(memory).clock = lambda: embedder.now
    return memory


def told(path: Path, count: int) -> None:
    with on_a_machine(path, 0) as memory:
        memory.add([Message.user(f"About the {THINGS[n % 8]} and the {THINGS[n * n % 7]}, part {n}", id=f"m{n}",
                                 created_at=datetime.fromtimestamp(1.7e9 + 60 * n, UTC))
                    for n in range(count)])  # fmt: skip


def content(context: Context) -> object:
    report = context.report
    return context.messages, report.lines, report.pending, report.embedder, report.degraded, report.stopped


@given(
    count=st.integers(60, 800),
    batches=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    in_one=st.booleans(),
    asked=st.sampled_from(THINGS),
)
@settings(max_examples=5)
def test_messages_that_wait_for_the_same_vectors_make_the_same_prompt_on_any_machine(
    count: int, batches: list[int], in_one: bool, asked: str
) -> None:
    """One machine embeds in one question what another one embeds in several, asked in one process or in several."""
    question = f"What about the {asked}, part {count // 3}?"
    with TemporaryDirectory() as folder:
        fast, slow = Path(folder) / "fast.db", Path(folder) / "slow.db"
        for path in (fast, slow):
            told(path, count)
        with on_a_machine(fast, sum(batches)) as memory:
            at_once = memory.context(question)
            assert at_once.report.embedder is not None
        for some in [1] if in_one else batches:
            with on_a_machine(slow, some) as memory:
                for _ in range(sum(batches) if in_one else 1):
                    in_the_end = memory.context(question)
        assert content(in_the_end) == content(at_once)
        with on_a_machine(fast, 0) as memory:
            assert content(memory.context(question)) == content(at_once)


def test_a_prompt_beside_a_batch_is_that_without_it(embedder: Waiting, tmp_path: Path) -> None:
    """The newest are embedded first, whole batches, and those of a batch that was given up count as pending."""
    path = tmp_path / "chat.db"
    embedder.holds = ""
    with opened(embedder, path) as memory:
        talk(memory, 40)
        memory.index()
        memory.add([Message.user(f"later {number}", id=f"l{number}") for number in range(80)])
        embedder.holds = "documents"
        beside = memory.context(QUESTION)
        assert (beside.report.pending > SMALL_BATCH, embedder.calls) == (True, 2)
        with opened(Waiting(), path, embed_budget_ms=0) as other:
            assert content(other.context(QUESTION)) == content(beside)
        arrive(memory, embedder)
        pending = [f"later {number}" for number in range(beside.report.pending)]
        assert embedder.documents[80:] == pending[: -SMALL_BATCH - 1 : -1]
