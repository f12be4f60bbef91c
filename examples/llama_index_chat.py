"""A chat engine that remembers: give `SimpleChatEngine` the buffer, and ask about something said weeks ago.

Run it from the repository: `python examples/llama_index_chat.py`. It needs no network and no key, and leaves no file.
With a real model: `OpenAI("gpt-4o-mini")` in place of `EchoLLM()`, its `token_limit`, and a path that stays.
"""

import tempfile
from pathlib import Path

from llama_index.core.chat_engine import SimpleChatEngine

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from llama_index_infinite_memory.testing import EchoLLM
from shared_core import InfiniteMemory
from shared_core.sharing.readers.openai import read_messages

CONVERSATION = Path(__file__).parent / "data" / "conversation.json"


def main() -> None:
    """Put nine weeks of chat behind an engine, ask about the second one, and see why the model knew."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "chat.db"
        with InfiniteMemory(store, session_id="tilda") as memory:  # or: infinite-memory import
            memory.add(read_messages(CONVERSATION))
            memory.index()  # embed all of it now; else questions do so bit by bit

        with InfiniteChatMemoryBuffer.from_defaults(store=store, session_id="tilda", token_limit=1300) as buffer:
            engine = SimpleChatEngine.from_defaults(llm=EchoLLM(), memory=buffer)
            print(f"{len(buffer.get_all())} messages are stored")

            print(engine.chat("What was the code of my locker at the climbing hall?"))
            report = buffer.explain()
            print(f"{report.total_tokens} of {report.budget} tokens used\n")

            for word in engine.stream_chat("And what is my daughter allergic to, since the test?").response_gen:
                print(word, end="", flush=True)
            print(f"\n\n{len(buffer.get_all())} messages are stored")


if __name__ == "__main__":
    main()
