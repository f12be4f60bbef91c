"""Many conversations at once on one file: each is shown its own words, in the order in which they were put."""

import asyncio
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, InfiniteMemoryBlock, to_message
from shared_core import SessionPool, SQLiteStore
from tests.llama_index.dict_chat_store import DictStore
from tests.llama_index.scripted_llm import said, user

SESSIONS, USERS, TURNS = (48, 8, 40) if os.environ.get("SOAK") else (8, 2, 8)
MARKER = re.compile(r"\[(\w+)/(\w+)/(\d+)\]")

Owner = tuple[str, str]
OWNERS: list[Owner] = [(f"u{number % USERS}", f"s{number // USERS}") for number in range(SESSIONS)]
"""Users and sessions: each user has one of each name."""


def text(owner: Owner, number: int) -> str:
    return f"the note of today is [{'/'.join(owner)}/{number}]"


def markers(messages: Iterable[ChatMessage]) -> list[tuple[Owner, int]]:
    found = MARKER.findall("\n".join(message.content or "" for message in messages))
    return [((user_id, session), int(number)) for user_id, session, number in found]


def talk(store: Any, owner: Owner) -> None:
    """Talk, and raise if a prompt or a search shows what another said, or a message is lost or out of order."""
    user_id, session_id = owner
    settings: dict[str, Any] = {"store": store, "user_id": user_id, "session_id": session_id, "top_k": 20}
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=200, **settings) as buffer:
        for turn in range(TURNS):
            buffer.put(user(text(owner, 2 * turn)))
            prompt = buffer.get() if turn % 2 else asyncio.run(buffer.aget())
            assert {whose for whose, _ in markers(prompt)} == {owner}
            assert markers(prompt[-1:])[-1:] == [(owner, 2 * turn)], "the question is there"
            buffer.put(said("assistant", text(owner, 2 * turn + 1)))
        found = [to_message(one.message) for one in buffer.memory.search("the note of today", top_k=10 * TURNS)]
        assert {whose for whose, _ in markers(found)} == {owner}
        assert markers(buffer.get_all()) == [(owner, number) for number in range(2 * TURNS)]


@pytest.mark.parametrize("shared", ["path", "store"])
def test_each_buffer_on_one_store_is_shown_its_own_conversation(shared: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = SQLiteStore(path) if shared == "store" else None
    with ThreadPoolExecutor(SESSIONS) as threads:
        list(threads.map(lambda owner: talk(store or path, owner), OWNERS))
    if store is not None:
        store.close()
    with SessionPool(path) as pool:
        held = [
            (user_id, info.session_id)
            for user_id in sorted({one for one, _ in OWNERS})
            for info in pool.sessions(user_id)
        ]
        assert sorted(held) == sorted(OWNERS)


def test_one_block_serves_many_memories(tmp_path: Path) -> None:
    block = InfiniteMemoryBlock(store=tmp_path / "flushed.db", max_tokens=150)

    async def remember(owner: Owner) -> None:
        memory = Memory.from_defaults(
            session_id="-".join(owner), token_limit=200, token_flush_size=50, memory_blocks=[block]
        )
        memory.sql_store = DictStore()  # theirs leaves a connection open
        for turn in range(TURNS):
            await memory.aput(user(text(owner, 2 * turn)))
            await memory.aput(said("assistant", text(owner, 2 * turn + 1)))
            sent = await memory.aget(input="the note of today")
            assert {whose for whose, _ in markers(sent)} == {owner}
        assert sent[0].role == "system"
        assert len(markers(sent[:1])) > 1, "what was flushed is recalled"

    async def together() -> None:
        await asyncio.gather(*map(remember, OWNERS))

    asyncio.run(together())
    block.close()


def test_what_is_put_at_once_keeps_its_order() -> None:
    async def put(buffer: InfiniteChatMemoryBuffer, batch: int) -> None:
        messages = [user(str(number)) for number in range(24)]
        parts = [messages[start : start + batch] for start in range(0, 24, batch)]
        await asyncio.gather(*(buffer.aput(part[0]) if batch == 1 else buffer.aput_messages(part) for part in parts))

    for batch in (1, 3, 1, 3):
        with InfiniteChatMemoryBuffer.from_defaults() as buffer:
            asyncio.run(put(buffer, batch))
            assert [message.content for message in buffer.get_all()] == [str(number) for number in range(24)]
