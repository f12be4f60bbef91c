"""The block for LlamaIndex's Memory: what was flushed comes back when it matters, to its own session only."""

import asyncio
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.storage.chat_store.base_db import MessageStatus

from llama_index_infinite_memory.block import InfiniteMemoryBlock
from shared_core import SessionPool
from shared_core.prompt.template import RecallTemplate
from shared_core.testing import HashingEmbedder
from tests.llama_index.dict_chat_store import DictStore
from tests.llama_index.scripted_llm import lines, said, user

PLAIN = RecallTemplate(header="", footer="", day="", item="{speaker}: {text}", separator=" | ")


def fact(name: str, thing: str, value: str) -> list[ChatMessage]:
    return [user(f"{name} keeps the {thing} in the {value}"), said("assistant", "Noted.")]


@pytest.fixture
def made() -> Iterator[Callable[..., InfiniteMemoryBlock]]:
    blocks: list[InfiniteMemoryBlock] = []

    def make(**arguments: Any) -> InfiniteMemoryBlock:
        block = InfiniteMemoryBlock(**{"recall_template": PLAIN, "tokenizer_fn": str.split, "top_k": 1, **arguments})
        blocks.append(block)
        return block

    yield make
    for block in blocks:
        block.close()


Make = Callable[..., InfiniteMemoryBlock]


def asked(block: InfiniteMemoryBlock, question: Any, **words: Any) -> str:
    return asyncio.run(block.aget([user(question)] if isinstance(question, str) else question, **words))


# On its own


def test_what_was_put_is_recalled(made: Make) -> None:
    block = made()
    asyncio.run(block.aput([*fact("Ana", "ladder", "cellar"), *fact("Tom", "anchor", "boathouse")]))
    assert asked(block, "Where is the ladder?") == "user: Ana keeps the ladder in the cellar"
    assert asked(block, "What is the capital of Peru?") == ""
    two = made(store=block._pool.store, top_k=2)
    assert asked(two, "Is the anchor in the boathouse, and the ladder in the cellar?") == (
        "user: Ana keeps the ladder in the cellar | user: Tom keeps the anchor in the boathouse"
    )


def test_the_question_is_the_input_else_the_newest_user_message_else_the_newest(made: Make) -> None:
    block = made()
    asyncio.run(block.aput([*fact("Ana", "ladder", "cellar"), *fact("Tom", "anchor", "boathouse")]))
    ladder, anchor = "user: Ana keeps the ladder in the cellar", "user: Tom keeps the anchor in the boathouse"
    history = [user("the anchor?"), said("assistant", "It is with the ladder?")]
    assert asked(block, history) == anchor
    assert asked(block, history[1:]) == ladder
    assert asked(block, history, input="the ladder?") == ladder
    assert asked(block, history, input=user("the ladder?")) == ladder
    assert asked(block, history, input="  ") == anchor
    assert asked(block, []) == asked(block, [user("")]) == asyncio.run(block.aget()) == ""
    assert asked(block, history, initial_token_count=3, anything="else") == anchor


def test_the_room_is_kept_and_the_best_come_first(made: Make) -> None:
    block = made(max_tokens=9)
    found = "user: Ana keeps the ladder in the cellar"  # eight words
    asyncio.run(block.aput([user("the ladder " * 20), *fact("Ana", "ladder", "cellar")]))
    assert asked(block, "the ladder") == found  # the other is passed over
    assert asked(made(store=block._pool.store, max_tokens=7), "the ladder") == ""
    assert asked(made(store=block._pool.store, top_k=0), "the ladder") == ""
    everything = asked(made(store=block._pool.store, top_k=None), "the ladder")
    assert everything.startswith("user: the ladder the ladder")
    assert found in everything


def test_truncation_leaves_out_the_weakest(made: Make) -> None:
    block = made(embed_model=HashingEmbedder(), top_k=2)
    asyncio.run(block.aput([fact("Tom", "anchor", "boathouse")[0], fact("Ana", "ladder", "cellar")[0]]))
    content = asked(block, "Ana keeps the ladder in the cellar, and Tom the anchor?")
    both = "user: Tom keeps the anchor in the boathouse | user: Ana keeps the ladder in the cellar"
    assert content == both

    async def shorter(by: int) -> str | None:
        return await block.atruncate(content, by)

    assert asyncio.run(shorter(1)) == "user: Ana keeps the ladder in the cellar"
    assert asyncio.run(shorter(9)) == "user: Ana keeps the ladder in the cellar"
    assert asyncio.run(shorter(12)) is None
    again = asyncio.run(shorter(0))
    assert again == both
    assert asyncio.run(block.atruncate(str(both), 1)) is None  # what somebody else wrote


def test_a_memory_whose_reader_is_cancelled_is_not_lent_again() -> None:
    class Endless(HashingEmbedder):
        async def aembed_query(self, text: str) -> Any:
            waits.set()
            await asyncio.Event().wait()

    async def cancel() -> None:
        await block.aput(fact("Ada", "key", "drawer"), session_id="s")
        assert len(pool._idle) == 1
        reading = asyncio.create_task(block.aget([user("Where is the key?")], session_id="s"))
        await waits.wait()
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled()
        assert pool._idle == []

    waits = asyncio.Event()
    block = InfiniteMemoryBlock(embed_model=Endless())
    pool = block._pool
    asyncio.run(cancel())
    block.close()


# Sessions


def test_the_session_may_stand_in_the_messages(made: Make) -> None:
    block = made()
    marked = [*fact("Ana", "ladder", "cellar"), *fact("Tom", "ladder", "attic")]
    for place, message in enumerate(marked):
        message.additional_kwargs["session_id"] = "ab"[place // 2]
    asyncio.run(block._aput(marked))
    assert asked(block, "the ladder?", session_id="a") == "user: Ana keeps the ladder in the cellar"
    assert asked(block, "the ladder?", session_id="b") == "user: Tom keeps the ladder in the attic"


def test_users_of_one_store_never_meet(made: Make, tmp_path: Path) -> None:
    ana = made(store=tmp_path / "chat.db", user_id="ana")
    tom = made(store=tmp_path / "chat.db", user_id="tom")
    asyncio.run(ana.aput(fact("Ana", "ladder", "cellar"), session_id="1"))
    assert asked(tom, "the ladder?", session_id="1") == ""
    ana.close()
    again = made(store=str(tmp_path / "chat.db"), user_id="ana")
    assert asked(again, "the ladder?", session_id="1") == "user: Ana keeps the ladder in the cellar"


# Inside Memory


def memory_with(*blocks: Any, **arguments: Any) -> Memory:
    limits = {"token_limit": 120, "token_flush_size": 30, "chat_history_token_ratio": 0.5, "tokenizer_fn": str.split}
    memory = Memory.from_defaults(memory_blocks=list(blocks), **{**limits, **arguments})
    memory.sql_store = DictStore()  # the oldest versions do not take it as an argument
    return memory


async def filled(memory: Memory, name: str = "Ana", place: str = "cellar") -> Memory:
    await memory.aput_messages(fact(name, "ladder", place))
    for day in range(30):
        await memory.aput_messages([user(f"on day {day} it rained again"), said("assistant", "I see.")])
    return memory


@pytest.mark.parametrize("method", list(InsertMethod))
def test_memory_gets_it_where_it_wants_it(made: Make, method: InsertMethod) -> None:
    async def run() -> list[ChatMessage]:
        memory = await filled(memory_with(made(), insert_method=method))
        await memory.aput(user("Where does Ana keep the ladder?"))
        return await memory.aget()

    sent = asyncio.run(run())
    (place,) = [place for place, text in enumerate(lines(sent)) if "in the cellar" in text]
    assert place == (0 if method is InsertMethod.SYSTEM else len(sent) - 1)
    assert "<recalled>\nuser: Ana keeps the ladder in the cellar" in (sent[place].content or "")


QUESTION = "Where does Ana keep the ladder?"


def test_after_a_reset_nothing_is_recalled_and_the_session_goes_on(made: Make) -> None:
    block = made()

    async def run() -> list[str]:
        first, second = [await filled(memory_with(block, session_id=name)) for name in ("1", "2")]
        assert "cellar" in lines(await first.aget(input=QUESTION))[0]
        await first.areset(status=MessageStatus.ACTIVE)
        assert "cellar" in lines(await first.aget(input=QUESTION))[0]
        await first.areset()
        await memory_with(made(), session_id="2").areset()  # of another block
        assert lines(await first.aget(input=QUESTION)) == []
        assert "cellar" in lines(await second.aget(input=QUESTION))[0]
        return lines(await (await filled(first, place="attic")).aget(input=QUESTION))

    sent = "".join(asyncio.run(run()))
    assert "attic" in sent
    assert "cellar" not in sent


def test_a_reset_without_an_event_loop_is_heard_too(made: Make) -> None:
    block = made()
    memory = memory_with(block, session_id="1")
    asyncio.run(filled(memory))
    memory.reset()
    assert memory.get(input=QUESTION) == []


def test_what_was_flushed_is_erased(made: Make, tmp_path: Path) -> None:
    block = made(store=tmp_path / "flushed.db", user_id="ana")
    for session in ("1", "2"):
        asyncio.run(block.aput([*fact("Ana", "ladder", "cellar"), *fact("Tom", "anchor", "boat")], session_id=session))
    with block.use("1") as memory:
        found = memory.search("ladder")[0]
        assert found.message.content == "Ana keeps the ladder in the cellar"
        assert memory.forget(ids=[found.message.id or ""]).ids == (found.message.id,)
    assert asked(block, QUESTION, session_id="1") == ""
    assert "cellar" in asked(block, QUESTION, session_id="2")
    assert "boat" in asked(block, "Where is the anchor?", session_id="1")
    block.reset("1")
    with block.use("1") as memory:
        assert len(memory.forget(session=True).ids) == 3  # what a reset put aside as well
        assert len(memory.forget(user=True).ids) == 4
    assert asked(block, QUESTION, session_id="2") == ""
    block.close()
    assert b"cellar" not in (tmp_path / "flushed.db").read_bytes()


# Arguments and life


def test_it_is_one_object_for_good(made: Make) -> None:
    block = made()
    assert copy.copy(block) is copy.deepcopy(block) is block
    assert memory_with(block).memory_blocks[0] is block


def test_what_is_wrong_is_said_at_once(made: Make) -> None:
    with pytest.raises(TypeError, match=r"InfiniteMemoryBlock\(\) has no argument 'stor'; did you mean 'store'"):
        made(stor="a.db")
    with pytest.raises(TypeError, match="write embed_model="):
        made(embedder="static")
    with pytest.raises(ValueError, match="max_tokens"):
        made(max_tokens=0)
    with pytest.raises(ValueError, match="recall"):
        made(recall="best")
    with SessionPool() as pool, pytest.raises(TypeError, match="a Store, or None"):
        made(store=pool)
