"""From `ChatMemoryBuffer` (and `ChatSummaryMemoryBuffer`): another class, the same arguments, and nothing is forgotten.

    memory = ChatMemoryBuffer.from_defaults(token_limit=1000)                 # before
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory)

Run it from the repository: `python examples/migration/llama_index_chat_memory_buffer.py`. It needs no network, no key.
"""

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from llama_index_infinite_memory.testing import EchoLLM


def old_memory() -> ChatMemoryBuffer:
    """Return a memory as you have it."""
    memory = ChatMemoryBuffer.from_defaults(token_limit=1000)
    memory.put(ChatMessage(role="user", content="My locker code is 4471."))
    memory.put(ChatMessage(role="assistant", content="Noted."))
    for day in range(100):
        memory.put(ChatMessage(role="user", content=f"Day {day} was rainy, and then the sun shone."))
        memory.put(ChatMessage(role="assistant", content="A day like others."))
    return memory


def main() -> None:
    """Take the old messages over, once, and ask both."""
    old = old_memory()
    with InfiniteChatMemoryBuffer.from_defaults(
        chat_history=old.get_all(),  # or chat_store=..., which is imported once
        token_limit=1000,
        store=None,  # a path keeps it
    ) as new:
        for name, memory in (("before", old), ("now", new)):
            engine = SimpleChatEngine.from_defaults(llm=EchoLLM(), memory=memory)
            print(f"{name}: {engine.chat('Which code does my locker have?')}")
        print(f"stored: {len(new.get_all())} messages")


if __name__ == "__main__":
    main()
