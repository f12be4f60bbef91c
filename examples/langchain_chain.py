"""A chain that remembers: wrap `prompt | model` once, and ask it about something said hundreds of messages ago.

Run it from the repository: `python examples/langchain_chain.py`. It needs no network and no key, and leaves no file.
With a real model: `model = init_chat_model("openai:gpt-4o-mini")`, a `max_tokens` that suits it, and a path that stays.
"""

import tempfile
from pathlib import Path

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig

from langchain_infinite_memory import with_infinite_memory
from langchain_infinite_memory.testing import EchoChatModel
from shared_core import InfiniteMemory
from shared_core.sharing.readers.openai import read_messages

CONVERSATION = Path(__file__).parent / "data" / "conversation.json"
QUESTION = "What was the code of my locker at the climbing hall?"
TILDA: RunnableConfig = {"configurable": {"session_id": "tilda"}}


def main() -> None:
    """Put nine weeks of chat behind a chain, and ask about the second one."""
    model = EchoChatModel()
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be accurate and short."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "chat.db"
        with InfiniteMemory(store, session_id="tilda") as memory:  # or: infinite-memory import
            memory.add(read_messages(CONVERSATION))
            memory.index()  # embed all of it now; else questions do so bit by bit

        chain = with_infinite_memory(
            prompt | model | StrOutputParser(),
            store=store,
            input_key="question",
            history_key="history",
            max_tokens=1300,
            on_report=lambda report, run: print(f"\n{report.total_tokens} of {report.budget} tokens used"),
        )
        history = chain.history("tilda")
        print(f"{len(history.messages)} messages are stored")

        print(chain.invoke({"question": QUESTION}, TILDA))

        for word in chain.stream({"question": "And what is my daughter allergic to, since the test in April?"}, TILDA):
            print(word, end="", flush=True)
        print(f"\n\n{len(history.messages)} messages are stored")
        chain.close()


if __name__ == "__main__":
    main()
