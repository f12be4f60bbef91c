"""The buffer in threads and on the event loop: nothing lost, nothing twice, and the loop never held up."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from shared_core import BudgetError
from tests.llama_index.test_buffer import TALK, branches, ours, texts, user
from tests.support.event_loop import nothing_blocks


@pytest.fixture(autouse=True)
def loop_is_free() -> Iterator[None]:
    with nothing_blocks(scanned_modules=["shared_core", "llama_index_infinite_memory"]):
        yield


TOO_MUCH = [ChatMessage(role="system", content="be brief " * 50), *TALK, user("so?")]


def test_the_asynchronous_verbs_do_what_the_others_do(tmp_path: Path) -> None:
    async def talk() -> InfiniteChatMemoryBuffer:
        memory = await asyncio.to_thread(ours, store=tmp_path / "a.db", token_limit=200)
        assert await memory.aget() == await memory.aget_all() == []
        await memory.aset(TALK[:3])
        await memory.aput_messages(TALK[3:])
        await memory.aput(user("what is my locker code?"))
        assert texts(await memory.aget())[0] == "my locker code is 4471"
        assert await memory.aget() == await memory.aget(input="what is my locker code?")
        assert await memory.aget(initial_token_count=50) == await asyncio.to_thread(memory.get, None, 50)
        assert texts(await memory.aget_all()) == [*texts(TALK), "what is my locker code?"]
        with pytest.raises(ValueError, match="Initial token count"):
            await memory.aget(initial_token_count=201)
        with pytest.raises(BudgetError):
            await (await asyncio.to_thread(ours, TOO_MUCH, token_limit=20, on_overflow="raise")).aget()
        await memory.areset()
        assert await memory.aget() == await memory.aget_all() == []
        return memory

    memory = asyncio.run(talk())
    assert branches(memory) == ["main", "main-2"]
    memory.close()


def test_a_call_that_was_cancelled_before_its_turn_is_left_out() -> None:
    async def talk(memory: InfiniteChatMemoryBuffer) -> None:
        memory.conversation.lock.acquire()  # type: ignore[attr-defined]
        calls = [asyncio.create_task(memory.aput(user(f"m{number}"))) for number in range(4)]
        await asyncio.sleep(0)
        calls[2].cancel()
        await asyncio.wait([calls[2]])
        memory.conversation.lock.release()  # type: ignore[attr-defined]
        await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(TypeError):
            await memory.aput("not a message")  # type: ignore[arg-type]
        assert texts(await memory.aget_all()) == ["m0", "m1", "m3"]

    asyncio.run(talk(ours()))


def test_setting_and_putting_at_once_loses_nothing() -> None:
    memory = ours(TALK[:4])
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(5):
            if number % 2:
                memory.put(user(f"{number}/{turn}"))
            else:
                memory.set([*TALK[:4], user(f"set {number}/{turn}")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    seen = set()
    for branch in branches(memory):
        memory.memory.checkout(branch)
        said = texts(memory.get_all())
        assert said[:4] == texts(TALK[:4])
        seen.update(said[4:])
    assert len([text for text in seen if not text.startswith("set")]) == 20
