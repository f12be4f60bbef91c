"""The whole path in one file: store a long chat, ask about something said weeks ago, and see why it is in the prompt.

Run it from the repository: `python examples/quickstart.py`. It needs no network, no key and no model.
"""

import tempfile
from pathlib import Path

from shared_core import InfiniteMemory, Message
from shared_core.sharing.readers.openai import read_messages

CONVERSATION = Path(__file__).parent / "data" / "conversation.json"


def main() -> None:
    """Store nine weeks of chat, ask about the second one, and go on talking."""
    with tempfile.TemporaryDirectory() as folder, InfiniteMemory(Path(folder) / "chat.db") as memory:
        memory.add(read_messages(CONVERSATION))
        memory.index()

        context = memory.context("What was the code of my locker at the climbing hall?")
        print(context.messages[-1].content)
        print()
        print(context.report)

        # What you would do with a model's reply: store the exchange, and the chat goes on.
        memory.add(
            [
                Message.user("What was the code of my locker at the climbing hall?"),
                Message.assistant("4093, locker 118."),
            ]
        )
        assert memory.newest(1)[0].content == "4093, locker 118."


if __name__ == "__main__":
    main()
