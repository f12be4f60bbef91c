"""The asynchronous memory returns what the synchronous one does, and never blocks the event loop."""

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockingError

from shared_core import (
    AsyncInfiniteMemory,
    Embedder,
    Fingerprint,
    InfiniteMemory,
    Message,
    SQLiteStore,
)
from shared_core.plugins.base import Vectors
from shared_core.results import Kind
from shared_core.session.message_sequence import MessageSequence
from shared_core.strippers import PASTED_CONTEXT, Stripper
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.event_loop import nothing_blocks
from tests.support.histories import NOON, history, ids, texts, with_ids

SETTINGS: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 50}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def verbs(kind: type) -> dict[str, Any]:
    """The public attributes; steps are for other faces, not for people."""
    found = {name: value for base in reversed(kind.__mro__[:-1]) for name, value in vars(base).items()}
    return {name: value for name, value in found.items() if name[0] != "_" and not name.endswith("_steps")}


def test_both_faces_have_the_same_verbs_and_signatures() -> None:
    ours, theirs = verbs(AsyncInfiniteMemory), verbs(InfiniteMemory)
    assert set(ours) - {"system"} == set(theirs)
    for name, verb in theirs.items():
        if isinstance(verb, property):
            assert isinstance(ours[name], property)
            continue
        expected, found = inspect.signature(verb), inspect.signature(ours[name])
        assert list(found.parameters.values()) == list(expected.parameters.values()), name
        if inspect.isasyncgenfunction(ours[name]):
            assert expected.return_annotation is MessageSequence
            assert found.return_annotation == AsyncIterator[Message]
        else:
            assert inspect.iscoroutinefunction(ours[name]), name
            assert found.return_annotation == expected.return_annotation, name


def test_the_first_call_opens_the_memory(tmp_path: Path) -> None:
    async def use() -> None:
        path = tmp_path / "a.db"
        memory = AsyncInfiniteMemory(path, session_id="trip")
        await memory.close()  # nothing to close
        assert not path.exists()
        await asyncio.gather(*(memory.add(Message.user(f"{number}")) for number in range(5)))
        assert {message.content async for message in memory.messages()} == set("01234")
        assert repr(memory) == "AsyncInfiniteMemory(<InfiniteMemory: conversation 'trip', on branch 'main'>)"
        await memory.close()
        with pytest.raises(TypeError, match="use it with `async with`"), memory:  # type: ignore[attr-defined]
            pass
        async with AsyncInfiniteMemory(path, session_id="trip") as again:
            assert len([message async for message in again.messages()]) == 5

    asyncio.run(use())


@pytest.mark.parametrize("fails", [False, True])
def test_a_memory_whose_opening_is_cancelled_is_closed(tmp_path: Path, *, fails: bool) -> None:
    opening, go_on = threading.Event(), threading.Event()
    told: list[dict[str, Any]] = []

    def strippers() -> Iterator[Stripper]:
        opening.set()
        assert go_on.wait(10)
        if fails:
            raise ValueError("no strippers")
        yield PASTED_CONTEXT

    async def use() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        memory = AsyncInfiniteMemory(tmp_path / "a.db", strippers=strippers())
        entering = asyncio.ensure_future(memory.__aenter__())
        while not opening.is_set():
            await asyncio.sleep(0.001)
        entering.cancel()
        await asyncio.sleep(0.01)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert memory._memory is None if fails else str(memory._memory).endswith("closed")
        del entering
        gc.collect()

    asyncio.run(use())
    assert told == [], "nobody waits for an error"


async def tour(memory: Any) -> list[Any]:
    """What each verb returns, be it at once or to be awaited."""
    seen: list[Any] = []

    async def do(result: Any) -> None:
        seen.append(await result if inspect.isawaitable(result) else result)

    await do(memory.add(history(60)))
    await do(memory.add(Message.assistant("late", id="late", created_at=NOON), turn="m8"))
    await do(memory.context("what of item3?"))
    await do(memory.context(Message.user("item4?", grounding="fact"), tools=["f"], reserve_tokens=9))
    await do(memory.context("what of item5?", max_tokens=120, reserve_tokens=0))
    await do(memory.context("what of item5?", include_question=False))
    await do(memory.search("gardens", 9, since=NOON.replace(minute=9), until=NOON.replace(minute=19), role="assistant"))
    progress: list[tuple[int, int]] = []
    await do(memory.index(lambda done, total: progress.append((done, total))))
    await do(memory.index(again=True))
    await do(memory.fork("side", at="m9"))
    await do(memory.add(Message.user("aside", id="aside", created_at=NOON)))
    await do(memory.checkout("main"))
    await do(memory.get("aside"))
    await do(memory.branches())
    for verb, *arguments in (
        ("tag", "v1", "m7"), ("tags",), ("diff", "side"), ("fork", "other", "m9"),
        ("rename_branch", "other", "another"), ("reset", "m8"), ("checkout", "main"), ("delete_branch", "another"),
        ("merge", "side"), ("log", 9), ("sources", "aside"), ("cherry_pick", "aside"), ("rebase", "m7"),
        ("stash", "m58"), ("stash_pop", 0), ("stash_drop",), ("stash", "m57"), ("stash_pop",), ("delete_tag", "v1"),
        ("rewind", "m57"), ("checkout", "side"), ("make_main",), ("make_main",),
    ):  # fmt: skip
        kept = {"keep": True} if (verb, *arguments) == ("stash_pop", 0) else {}
        result = getattr(memory, verb)(*arguments, **kept)
        found = await result if inspect.isawaitable(result) else result
        seen.append(getattr(found, "ids", getattr(found, "sources", found)))
    seen += [len(await told if inspect.isawaitable(told) else told) for told in (memory.reflog(), memory.stashes())]
    await do(memory.newest(3))
    await do(memory.forget(ids=["m3"], dry_run=True))
    await do(memory.forget(before=NOON.replace(minute=5)))
    await do(memory.scrub())
    await do(memory.stats())
    await do(memory.context())
    messages = memory.messages()
    listed = [message async for message in messages] if hasattr(messages, "__aiter__") else list(messages)
    seen += [progress, listed, memory.branch]
    await do(memory.forget(session=True))
    await do(memory.close())
    await do(memory.close())
    return seen


def test_both_faces_return_the_same(tmp_path: Path) -> None:
    async def both() -> tuple[list[Any], list[Any]]:
        numbers = [map("new {}".format, count()).__next__ for _ in range(2)]
        settings = {"embedder": HashingEmbedder(), **SETTINGS}
        at_once = with_ids(InfiniteMemory(tmp_path / "a.db", **settings), numbers[0])
        later = AsyncInfiniteMemory(with_ids(InfiniteMemory(tmp_path / "b.db", **settings), numbers[1]))
        return await tour(at_once), await tour(later)

    expected, found = asyncio.run(both())
    assert found == expected


# The event loop


class Awaited(Embedder):
    """Natively asynchronous; counts what it awaits, and cannot be called in any other way."""

    fingerprint = Fingerprint("awaited", 16)

    def __init__(self) -> None:
        self.hashing = HashingEmbedder(16)
        self.loops: set[int] = set()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        raise AssertionError("the synchronous method was called")

    async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
        self.loops.add(id(asyncio.get_running_loop()))
        await asyncio.sleep(0)
        return self.hashing.embed_documents(texts)

    async def aembed_query(self, text: str) -> Vectors:
        await asyncio.sleep(0)
        return self.hashing.embed_query(text)


def test_a_natively_asynchronous_embedder_is_awaited(store: SQLiteStore) -> None:
    embedder = Awaited()

    async def work() -> None:
        memory = AsyncInfiniteMemory(InfiniteMemory(store, embedder=embedder, **SETTINGS))
        await memory.add(history(60))
        context = await memory.context("what of item3?")
        assert context.report.embedder == "awaited/16"
        assert (context.report.pending, context.report.degraded) == (0, ())
        await memory.search("item4")
        await memory.index()
        assert embedder.loops == {id(asyncio.get_running_loop())}

    asyncio.run(work())
    assert sorted(embedder.hashing.documents) == sorted(texts(history(60)))
    assert embedder.hashing.queries == ["what of item3?", "item4"]


def test_blocking_would_be_noticed(path: Path) -> None:
    async def work() -> None:
        with nothing_blocks():
            InfiniteMemory(path)

    with pytest.raises(BlockingError):
        asyncio.run(work())
    gc.collect()


def test_nothing_blocks_the_event_loop(path: Path) -> None:
    async def work() -> None:
        with nothing_blocks():
            async with AsyncInfiniteMemory(path, embedder=HashingEmbedder(), **SETTINGS) as memory:
                await memory.add(history(60))
                context = await memory.context("what of item3?")
                assert context.report.totals[Kind.RECALLED] > 0
                await memory.search("item4")
                await memory.index(lambda done, total: None)
                await memory.index(again=True)
                assert len([message async for message in memory.messages()]) == 60
                await memory.fork("side")
                await memory.checkout("m4")
                await memory.add(Message.user("aside"))
                await memory.branches()
                await memory.newest(5)
                await memory.get("m1")
                await memory.forget(ids=["m3"])
                await memory.scrub()
                await memory.stats()

    asyncio.run(work())


def test_the_loop_turns_while_another_thread_holds_the_memory(store: SQLiteStore) -> None:
    class Slow(HashingEmbedder):
        def embed_documents(self, texts: Sequence[str]) -> Vectors:
            time.sleep(0.05)
            return super().embed_documents(texts)

    async def work() -> None:
        inner = InfiniteMemory(store, embedder=Slow(), **SETTINGS)
        memory = AsyncInfiniteMemory(inner)
        await memory.add(history(60))
        with_lock = asyncio.Event()
        loop = asyncio.get_running_loop()
        release: asyncio.Future[None] = loop.create_future()

        def hold() -> None:
            with inner._lock:
                loop.call_soon_threadsafe(with_lock.set)
                asyncio.run_coroutine_threadsafe(wait(), loop).result()

        async def wait() -> None:
            await release

        holder = asyncio.create_task(asyncio.to_thread(hold))
        await with_lock.wait()
        calls: list[Coroutine[Any, Any, Any]] = [
            memory.context("what of item3?"), memory.search("item3"), memory.index(again=True), memory.index(),
            memory.add(Message.user("new", id="new")), memory.newest(1), memory.fork("side"),
        ]  # fmt: skip
        tasks = [asyncio.create_task(call) for call in calls]
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not any(task.done() for task in tasks), "all of them wait, and the loop does not"
        release.set_result(None)
        await asyncio.gather(holder, *tasks)

    asyncio.run(asyncio.wait_for(work(), 60))


# Many at once


def test_fifty_at_once_lose_nothing(path: Path) -> None:
    async def exchange(memory: AsyncInfiniteMemory, number: int) -> None:
        asked = await memory.add(Message.user(f"question{number} of gardens", id=f"u{number}"))
        context = await memory.context(f"what of question{number}?")
        assert context.messages[-1].content.endswith(f"what of question{number}?")
        await memory.search(f"question{number}")
        await memory.add(Message.assistant(f"reply{number}", id=f"a{number}"), turn=asked[0].id)

    async def work() -> None:
        embedder = HashingEmbedder()
        async with AsyncInfiniteMemory(path, embedder=embedder, **SETTINGS) as memory:
            await memory.add(history(40))
            await asyncio.gather(*(exchange(memory, number) for number in range(50)))
            messages = [message async for message in memory.messages()]
            assert len(messages) == len(set(ids(messages))) == 140
            assert {m.turn_id for m in messages[40:]} == {f"u{number}" for number in range(50)}
            assert all(str(m.turn_id)[1:] == str(m.id)[1:] for m in messages[40:])
            assert await memory.newest(500) == messages
            await memory.index()
            assert (await memory.stats())["vectors"] == 140
            found = await memory.search("question17", 50)
            assert found[0].message.content == "question17 of gardens"
        async with AsyncInfiniteMemory(path, embedder=embedder, **SETTINGS) as again:
            assert await again.search("question17", 50) == found, "the snapshot holds each vector once"

    asyncio.run(work())


@pytest.mark.parametrize("verb", ["context", "search"])
def test_what_is_forgotten_while_a_question_waits_is_not_in_its_answer(store: SQLiteStore, verb: str) -> None:
    class Gated(HashingEmbedder):
        def __init__(self) -> None:
            super().__init__()
            self.waits, self.go = asyncio.Event(), asyncio.Event()

        async def aembed_documents(self, texts: Sequence[str]) -> Vectors:
            self.waits.set()
            await self.go.wait()
            return self.embed_documents(texts)

    async def work() -> None:
        embedder = Gated()
        memory = AsyncInfiniteMemory(InfiniteMemory(store, embedder=embedder, **SETTINGS))
        await memory.add(history(100))
        asked = asyncio.create_task(getattr(memory, verb)("what of item3 and item44?"))
        await embedder.waits.wait()
        assert not asked.done()
        await memory.forget(ids=[f"m{number}" for number in range(40)])
        embedder.go.set()
        answer = await asked
        found = {line.id for line in answer.report.lines} if verb == "context" else {hit.id for hit in answer}
        assert "m44" in found
        assert not found & {f"m{number}" for number in range(40)}
        assert await getattr(memory, verb)("what of item3 and item44?") == answer

    asyncio.run(asyncio.wait_for(work(), 60))


def test_calls_have_threads_of_their_own_that_end_with_the_store(tmp_path: Path) -> None:
    earlier = set(threading.enumerate())  # a memory of another test may still end

    def ours() -> list[threading.Thread]:
        alive = set(threading.enumerate()) - earlier
        return [thread for thread in alive if thread.name.startswith("infinite-memory call")]

    async def work() -> None:
        def refused(*args: object) -> None:
            raise AssertionError("the event loop's own threads were used")

        asyncio.get_running_loop().run_in_executor = refused  # type: ignore[assignment, method-assign]
        store = SQLiteStore(tmp_path / "chat.db")
        memories = [AsyncInfiniteMemory(InfiniteMemory(store, session_id=str(n), embedder="words")) for n in range(12)]
        await asyncio.gather(*(memory.add(Message.user("The code is 4471.")) for memory in memories))
        found = await asyncio.gather(*(memory.search("code") for memory in memories))
        assert all(len(hits) == 1 for hits in found)
        assert 1 <= len(ours()) <= store.connections == 4
        for memory in memories:
            await memory.close()
        store.close()
        memories.clear()
        del memory, store
        for _ in range(1_000):
            gc.collect()  # a thread that has just answered holds what it was called with for another moment
            if not ours():
                break
            await asyncio.sleep(0.01)
        assert not ours()

    asyncio.run(work())
