"""An embedder that takes too long: the question goes on, and messages get their vectors in the background, once."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message, SessionPool, StoreError
from shared_core.plugins import calls
from shared_core.plugins.base import Vectors
from shared_core.plugins.calls import Request
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.plugins.embedding import BRIEF, evenly, question_request
from shared_core.prompt.context import Context
from shared_core.recall import backlog
from shared_core.recall.backlog import BATCH, Backlog
from shared_core.stores import SQLiteStore
from shared_core.testing.hashing_embedder import HashingEmbedder

QUESTION = "which tower 3?"
SMALL: dict[str, Any] = {"max_tokens": 120, "reserve_tokens": 0}


class Waiting(HashingEmbedder):
    """Returns the vectors of messages, or of questions, when it may.

    Attributes:
        holds: which calls wait: "documents", "query" or neither.
        batches: so many batches need not wait.
        may: set when they may go on.
        calls: how many calls for messages have begun.
    """

    def __init__(self, holds: str = "documents", batches: int = 0) -> None:
        super().__init__(16)
        self.holds, self.batches, self.calls = holds, batches, 0
        self.may, self.waits = threading.Event(), threading.Event()

    @override
    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.holds == "documents" and self.calls > self.batches:
            self.waits.set()
            self.may.wait()
        return super().embed_documents(texts)

    @override
    def embed_query(self, text: str) -> Vectors:
        if self.holds == "query":
            self.may.wait()
        return super().embed_query(text)


def backlog_of(memory: InfiniteMemory) -> Backlog:
    return memory._prompts.searcher.backlog


def talk(memory: InfiniteMemory, count: int = 30) -> None:
    memory.add([
        message
        for number in range(count)
        for message in (
            Message.user(f"tower {number}", id=f"u{number}"),
            Message.assistant(f"the tower number {number} is by the river", id=f"a{number}"),
        )
    ])  # fmt: skip


def opened(embedder: Waiting, store: Any = None, **given: Any) -> InfiniteMemory:
    return InfiniteMemory(store, embedder=embedder, **SMALL | given)


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question waits for more than a batch."""
    monkeypatch.setattr(backlog, "PATIENCE", 0.0)


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
    """Let what runs in the background go on, and wait for its end."""
    embedder.may.set()
    for one in backlog_of(memory)._running:
        one.settle()


class TestMessages:
    def test_one_question_has_all_of_them_embedded_and_no_other_embeds_any(
        self, memory: InfiniteMemory, embedder: Waiting
    ) -> None:
        early = memory.context(QUESTION).report
        assert (early.pending > BATCH, early.embedder, embedder.documents) == (True, None, [])
        assert memory.context("and the river?").report.pending == early.pending
        assert embedder.calls <= 1
        arrive(memory, embedder)
        assert len(set(embedder.documents)) == len(embedder.documents) == early.pending
        assert embedder.documents[0] == "the tower number 28 is by the river", "the newest first"
        later = memory.context(QUESTION).report
        assert (later.pending, later.embedder, len(embedder.documents)) == (0, "hashing/16", early.pending)
        assert memory.stats()["vectors"] == 0, "questions store nothing"
        memory.add(Message.user("the next"))
        assert memory.stats()["vectors"] == early.pending

    @pytest.mark.parametrize(("count", "size", "whole"), [(250, 100, True), (270, 100, False), (40, 4_000, False)])
    def test_an_embedder_that_works_at_once_embeds_a_short_conversation_first(
        self, embedder: Waiting, count: int, size: int, *, whole: bool
    ) -> None:
        embedder.at_once = True
        if whole:
            embedder.may.set()
        with opened(embedder) as memory:
            memory.add(
                [
                    message
                    for n in range(count)
                    for message in (Message.user(f"tower {n}"), Message.assistant("a" * size))
                ]
            )
            report = memory.context(QUESTION).report
            assert (report.pending == 0, not backlog_of(memory)._running) == (whole, whole)
            embedder.may.set()

    def test_it_goes_on_with_what_a_newer_question_wants(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        embedder.waits.wait()
        memory.add([Message.user(f"later {number}") for number in range(20)])
        assert memory.context(QUESTION).report.pending > 60
        arrive(memory, embedder)
        assert memory.context(QUESTION).report.pending == 0
        assert len(set(embedder.documents)) == len(embedder.documents)
        assert any(text.startswith("later") for text in embedder.documents[BATCH : BATCH + 20]), "before older ones"

    def test_two_questions_at_once_embed_nothing_twice(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        asking = [threading.Thread(target=memory.context, args=[QUESTION]) for _ in range(4)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        arrive(memory, embedder)
        memory.index()
        assert len(set(embedder.documents)) == len(embedder.documents)

    @pytest.mark.parametrize("unit", ["message", "turn"])
    def test_what_is_forgotten_meanwhile_gets_no_vector(self, embedder: Waiting, unit: str) -> None:
        with opened(embedder, recall_unit=unit) as memory:
            talk(memory, 60)
            memory.context(QUESTION)
            embedder.waits.wait()
            memory.forget(ids=["u50"])
            arrive(memory, embedder)
            memory.context(QUESTION)
            arrive(memory, embedder)
            assert memory.context(QUESTION).report.pending == 0
            memory.index()
            assert memory.stats()["vectors"] == (119 if unit == "message" else 60)
            assert not any(hit.message.id == "u50" for hit in memory.search("tower 50", 99))

    def test_all_of_the_session_forgotten_meanwhile(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        memory.forget(session=True)
        arrive(memory, embedder)
        assert memory.stats()["vectors"] == 0
        talk(memory)
        memory.context(QUESTION)
        arrive(memory, embedder)
        assert memory.context(QUESTION).report.pending == 0

    def test_a_memory_closed_meanwhile_keeps_nothing(self, embedder: Waiting, tmp_path: Path) -> None:
        path = tmp_path / "chat.db"
        memory = opened(embedder, path)
        talk(memory)
        memory.context(QUESTION)
        embedder.waits.wait()
        memory.close()
        arrive(memory, embedder)
        assert len(embedder.documents) == BATCH, "it ends after its batch"
        with InfiniteMemory(path, embedder=HashingEmbedder(16), **SMALL) as again:
            assert again.stats()["vectors"] == 0

    def test_a_memory_let_go_meanwhile_ends_it_as_well(self, embedder: Waiting) -> None:
        memory = opened(embedder)
        talk(memory)
        memory.context(QUESTION)
        embedder.waits.wait()
        (running,) = backlog_of(memory)._running
        del memory
        gc.collect()
        embedder.may.set()
        running.settle()
        assert len(embedder.documents) == BATCH

    def test_a_memory_in_a_pool_meanwhile_keeps_it_for_the_next_caller(self, embedder: Waiting, tmp_path: Path) -> None:
        with SessionPool(tmp_path / "chat.db", embedder=embedder, **SMALL) as pool:
            with pool.use("a") as memory:
                talk(memory)
                pending = memory.context(QUESTION).report.pending
                embedder.waits.wait()
            arrive(memory, embedder)
        with InfiniteMemory(tmp_path / "chat.db", session_id="a") as again:
            assert again.stats()["vectors"] == pending, "stored when the pool was closed"

    def test_a_store_that_cannot_be_read_is_no_failure_of_the_embedder(
        self, embedder: Waiting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backlog, "PATIENCE", calls.SECONDS)

        class Away(SQLiteStore):
            @override
            def known_vectors(self, *given: Any) -> Any:
                raise StoreError("away")

        with closing(Away(tmp_path / "chat.db")) as store:
            talk(InfiniteMemory(store))
            with pytest.raises(StoreError, match="away"):
                opened(embedder, store).context(QUESTION)

    def test_an_error_in_the_background_leaves_the_messages_to_the_next_question(
        self, memory: InfiniteMemory, embedder: Waiting, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(texts: Sequence[str]) -> Vectors:
            embedder.may.wait()
            raise OSError("gone")

        with monkeypatch.context() as patched:
            patched.setattr(embedder, "embed_documents", fail)
            assert memory.context(QUESTION).report.pending
            arrive(memory, embedder)
        assert memory.context(QUESTION).report.degraded == (
            "messages were not embedded: the embedder raised OSError: gone",
        )
        arrive(memory, embedder)
        report = memory.context(QUESTION).report
        assert (report.pending, report.degraded) == (0, ())

    def test_indexing_takes_over_after_the_batch(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        embedder.waits.wait()
        indexing = threading.Thread(target=memory.index)
        indexing.start()
        embedder.may.set()
        indexing.join()
        assert (len(embedder.documents), len(set(embedder.documents))) == (60, 60)
        assert memory.stats()["vectors"] == 60

    def test_a_fork_leaves_the_work_to_its_parent(self, embedder: Waiting, tmp_path: Path) -> None:
        with opened(embedder, tmp_path / "chat.db") as memory:
            talk(memory)
            pending = memory.context(QUESTION).report.pending
            embedder.waits.wait()
            if not (child := os.fork()):
                embedder.holds = ""
                backlog.PATIENCE = calls.SECONDS
                late = memory.context(QUESTION).report
                os._exit(0 if (late.pending, late.embedder) == (0, "hashing/16") else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            arrive(memory, embedder)
            memory.add(Message.user("the next"))
            assert memory.stats()["vectors"] == pending

    def test_vectors_made_elsewhere_are_taken(self, embedder: Waiting, tmp_path: Path) -> None:
        path = tmp_path / "chat.db"
        with opened(embedder, path) as memory, InfiniteMemory(path, embedder=HashingEmbedder(16)) as other:
            talk(memory)
            other.index()
            memory.context(QUESTION)
            arrive(memory, embedder)
            assert (memory.context(QUESTION).report.pending, embedder.documents) == (0, [])

    def test_after_an_error_vectors_made_elsewhere_are_taken_as_well(
        self, embedder: Waiting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(texts: Sequence[str]) -> Vectors:
            embedder.may.wait()
            raise OSError("gone")

        path = tmp_path / "chat.db"
        with opened(embedder, path) as memory, InfiniteMemory(path, embedder=HashingEmbedder(16)) as other:
            memory.add(Message.user("hi"))
            memory.context("hi")  # from now on, it knows which messages are its own
            talk(memory)
            monkeypatch.setattr(embedder, "embed_documents", fail)
            assert memory.context(QUESTION).report.degraded == ()
            arrive(memory, embedder)
            other.index()
            memory.context(QUESTION)
            arrive(memory, embedder)
            assert memory.context(QUESTION).report.pending == 0


class TestTheQuestion:
    @pytest.fixture
    def memory(self, embedder: Waiting, monkeypatch: pytest.MonkeyPatch) -> Generator[InfiniteMemory]:
        embedder.holds = ""
        with opened(embedder) as memory:
            talk(memory)
            memory.index()
            embedder.holds = "query"
            monkeypatch.setattr(calls, "SECONDS", 0.0)
            yield memory

    def test_without_its_vector_in_time_recall_is_by_words(self, memory: InfiniteMemory) -> None:
        report = memory.context(QUESTION).report
        assert (report.pending, report.embedder) == (0, None)
        assert any(line.id == "a3" for line in report.best)
        assert report.degraded == ("recall by words alone: the embedder returned no vector of the question in time",)

    def test_while_it_is_under_way_no_other_one_is_asked_for(self, memory: InfiniteMemory) -> None:
        first = threading.active_count()
        memory.context(QUESTION)
        reports = [memory.context(question).report for question in (QUESTION, "and the river?")]
        assert all("the embedder still works on an earlier question" in report.degraded[0] for report in reports)
        assert threading.active_count() == first + 1

    def test_it_is_kept_for_the_same_question(self, memory: InfiniteMemory, embedder: Waiting) -> None:
        memory.context(QUESTION)
        kept = memory._prompts.searcher._late
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


@pytest.mark.parametrize("works", [True, False])
def test_a_model_is_loaded_before_it_is_asked_and_one_that_does_not_load_leaves_words(*, works: bool) -> None:
    class Loading(HashingEmbedder):
        loaded = False

        @override
        def load(self) -> None:
            if not works:
                raise OSError("no weights")
            self.loaded = True

        @override
        def embed_query(self, text: str) -> Vectors:
            assert self.loaded
            return super().embed_query(text)

    with InfiniteMemory(embedder=Loading(16), **SMALL) as memory:
        talk(memory, 12)
        if works:
            assert memory.context(QUESTION).report.pending == 0
            return
        with pytest.warns(RuntimeWarning, match="raised OSError: no weights"):
            report = memory.context(QUESTION).report
        assert (report.pending > 12, report.embedder) == (True, None)


class AsyncWaiting(Waiting):
    """Awaits an event of the event loop instead."""

    def __init__(self) -> None:
        super().__init__()
        self.held = asyncio.Event()
        self.ended = 0

    @override
    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        try:
            await self.held.wait()
        finally:
            self.ended += 1
        return HashingEmbedder.embed_documents(self, texts)

    @override
    async def aembed_query(self, text: str) -> Vectors:
        return self.embed_query(text)


class TestAsynchronous:
    def test_messages_are_embedded_in_the_background_of_the_loop(self) -> None:
        async def ask() -> None:
            embedder = AsyncWaiting()
            memory = opened(embedder)
            talk(memory)
            async with AsyncInfiniteMemory(memory) as awaited:
                both = await asyncio.gather(awaited.context(QUESTION), awaited.context("and the river?"))
                assert {context.report.pending > BATCH for context in both} == {True}
                embedder.held.set()
                await awaited.index()
                assert len(embedder.documents) == len(set(embedder.documents)) == 60
                assert (await awaited.context(QUESTION)).report.pending == 0

        asyncio.run(ask())

    def test_a_loop_that_ends_gives_the_messages_back(self) -> None:
        embedder = AsyncWaiting()

        async def ask(memory: InfiniteMemory) -> Context:
            found = await AsyncInfiniteMemory(memory).context(QUESTION)
            while not embedder.calls:
                await asyncio.sleep(0)
            return found

        with opened(embedder) as memory:
            talk(memory)
            assert asyncio.run(ask(memory)).report.pending > BATCH
            assert embedder.ended == embedder.calls == 1
            memory.context(QUESTION)
            arrive(memory, embedder)
            assert memory.context(QUESTION).report.pending == 0, "by sync code this time"

    def test_a_loop_that_stands_still_gives_the_messages_back(self) -> None:
        embedder = AsyncWaiting()

        async def ask(memory: InfiniteMemory) -> None:
            await AsyncInfiniteMemory(memory).context(QUESTION)
            while not embedder.calls:
                await asyncio.sleep(0)

        with opened(embedder) as memory, closing(asyncio.new_event_loop()) as loop:
            talk(memory)
            loop.run_until_complete(ask(memory))
            embedder.may.set()
            indexing = threading.Thread(target=memory.index, daemon=True)
            indexing.start()
            indexing.join(10)
            assert not indexing.is_alive()
            assert (memory.stats()["vectors"], len(embedder.documents)) == (60, 60)
            embedder.held.set()
            context = loop.run_until_complete(AsyncInfiniteMemory(memory).context(QUESTION))
            assert (context.report.pending, memory.stats()["vectors"], embedder.ended) == (0, 60, 1)
            loop.run_until_complete(loop.shutdown_default_executor())

    def test_a_question_that_is_cancelled_cancels_its_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(backlog, "PATIENCE", calls.SECONDS)

        async def ask() -> None:
            embedder = AsyncWaiting()
            with opened(embedder) as memory:
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

    def test_indexing_in_the_thread_of_the_loop_does_not_wait_for_the_loop(self) -> None:
        embedder = AsyncWaiting()
        embedder.may.set()

        async def ask(memory: InfiniteMemory) -> None:
            await AsyncInfiniteMemory(memory).context(QUESTION)
            while not embedder.calls:
                await asyncio.sleep(0)
            memory.index()
            assert memory.stats()["vectors"] == 60 - BATCH, "all but those that the loop embeds"

        with opened(embedder) as memory:
            talk(memory)
            asyncio.run(ask(memory))


def test_the_process_ends_while_a_call_is_under_way() -> None:
    code = (
        "import threading\n"
        "from shared_core import InfiniteMemory, Message\n"
        "from shared_core.runtime import threads\n"
        "from shared_core.testing.hashing_embedder import HashingEmbedder\n"
        "class Hanging(HashingEmbedder):\n"
        "    def embed_documents(self, texts):\n"
        "        threading.Event().wait()\n"
        "embedder, threads.EXIT_SECONDS = Hanging(), 0.0\n"
        "memory = InfiniteMemory(embedder=embedder, max_tokens=60, reserve_tokens=0)\n"
        "memory.add([Message.user(f'tower {n}') for n in range(50)])\n"
        "print(memory.context('which tower 3?').report.pending > 0)\n"
        "memory.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_the_process_ends_before_everything_is_embedded() -> None:
    code = (
        "import time\n"
        "from shared_core import InfiniteMemory, Message\n"
        "from shared_core.runtime import threads\n"
        "from shared_core.testing.hashing_embedder import HashingEmbedder\n"
        "class Slow(HashingEmbedder):\n"
        "    def embed_documents(self, texts):\n"
        "        time.sleep(0.3)\n"
        "        return super().embed_documents(texts)\n"
        "embedder, threads.EXIT_SECONDS = Slow(), 1e6\n"
        "memory = InfiniteMemory(embedder=embedder, max_tokens=60, reserve_tokens=0)\n"
        "memory.add([Message.user(f'tower {n}') for n in range(10_000)])\n"
        "print(memory.context('which tower 3?').report.pending > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
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


# Calls


@pytest.mark.parametrize(("at_once", "size", "own"), [(True, BRIEF, True), (True, BRIEF + 1, False), (False, 1, False)])
def test_a_question_starts_a_thread_unless_the_call_takes_less(*, at_once: bool, size: int, own: bool) -> None:
    class Noting(HashingEmbedder):
        @override
        def embed_query(self, text: str) -> Vectors:
            threads.append(threading.current_thread())
            return super().embed_query(text)

    threads = list[threading.Thread]()
    embedder = Noting(16)
    embedder.at_once = at_once
    reply = question_request(embedder, "a" * size).answer()
    assert isinstance(reply, np.ndarray)
    assert [thread is threading.current_thread() for thread in threads] == [own]


def test_a_call_that_exits_the_program_does() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        Request("embedder", leave, str, seconds=1e6).answer()


# Any machine
