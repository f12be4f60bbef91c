"""From `Memory` and its blocks: keep it and add a block that recalls what was flushed, or use the buffer instead.

    memory = Memory.from_defaults(session_id="ana", token_limit=4000, memory_blocks=[VectorMemoryBlock(...)])  # before

Run it from the repository: `python examples/migration/llama_index_memory.py`. It needs no network and no key.
"""

import asyncio

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from sqlalchemy.ext.asyncio import create_async_engine

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, InfiniteMemoryBlock


def turn(question: str, answer: str) -> list[ChatMessage]:
    """Return an exchange."""
    return [ChatMessage(role="user", content=question), ChatMessage(role="assistant", content=answer)]


async def fill(memory: Memory | InfiniteChatMemoryBuffer) -> None:
    """Say one thing that matters, and much that does not."""
    await memory.aput_messages(turn("My favourite town is Lisbon.", "Noted."))
    for day in range(60):
        await memory.aput_messages(turn(f"Day {day}: it rained.", "A day like others."))


async def main() -> None:
    """Ask for it: with a block, and with the buffer, which takes over what is stored."""
    engine = create_async_engine("sqlite+aiosqlite:///:memory:")
    block = InfiniteMemoryBlock(store=None, max_tokens=200)  # a path keeps what was flushed
    memory = Memory.from_defaults(
        session_id="ana", token_limit=500, token_flush_size=100, memory_blocks=[block], async_engine=engine
    )
    await fill(memory)
    sent = await memory.aget(input="Which town is my favourite?")
    print("with the block:", "Lisbon" in str(sent[0].content), len(sent))

    with InfiniteChatMemoryBuffer.from_defaults(
        chat_history=await memory.aget_all(), session_id="ana", token_limit=500
    ) as buffer:
        shown = await buffer.aget(input="Which town is my favourite?")
        print("with the buffer:", "Lisbon" in str(shown[0].content), len(shown))
    block.close()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
