"""How others build a prompt, each as its documentation has it: with the same messages, tokens and limit."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from latency_clock import Figures, resident, timed
from latency_talk import conversation, in_chunks
from latency_turns import FRAMING, PROMPT_TOKENS, TOKENIZER, Plan, Way, take_turns

from shared_core import Message
from shared_core.tokens import as_counter

__all__ = ["approximate", "buffer", "chat_message", "queue", "queue_by_session", "tiktoken_trim", "tokenizer"]

TABLE = "llama_index_memory"
"""The default name of `Memory`'s table."""


def tokenizer() -> Callable[[str], Any]:
    """Return our token counter in LlamaIndex's form, which takes the length of what it returns."""
    count = as_counter(TOKENIZER)
    return lambda text: range(count(text))


class Trim(Way):
    """LangChain's `trim_messages` over a list, which the program has to keep anywhere itself."""

    def __init__(self, size: int, counter: Any) -> None:
        from langchain_core.messages import trim_messages

        self.trim, self.counter = trim_messages, counter
        self.messages = [self.made(message) for message in conversation(size)]

    def made(self, message: Message) -> Any:
        """Return LangChain's message."""
        from langchain_core.messages import AIMessage, HumanMessage

        return (HumanMessage if message.role == "user" else AIMessage)(message.content, id=message.id)

    def add(self, made: Any) -> None:
        """Append to the list."""
        self.messages.append(made)

    def prompt(self) -> int:
        """Return the newest messages that fit, from a user's on."""
        kept = self.trim(self.messages, max_tokens=PROMPT_TOKENS, token_counter=self.counter, start_on="human")
        return len(kept)


def chat_message(message: Message) -> Any:
    """Return LlamaIndex's message."""
    from llama_index.core.llms import ChatMessage

    return ChatMessage(role=message.role, content=message.content)


class Buffer(Way):
    """LlamaIndex's `ChatMemoryBuffer`, which its agents use by default."""

    def __init__(self, size: int) -> None:
        from llama_index.core.memory import ChatMemoryBuffer

        history = [chat_message(message) for message in conversation(size)]
        self.memory = ChatMemoryBuffer.from_defaults(history, token_limit=PROMPT_TOKENS, tokenizer_fn=tokenizer())

    def made(self, message: Message) -> Any:
        """Return LlamaIndex's message."""
        return chat_message(message)

    def add(self, made: Any) -> None:
        """Put it."""
        self.memory.put(made)

    def prompt(self) -> int:
        """Get what fits."""
        return len(self.memory.get())


class Queue(Way):
    """LlamaIndex's `Memory` with its defaults: SQLite in memory, and no blocks.

    What its queue cannot hold is stored as archived at once, with its store's own verb, as it would be by now had each
    message been put. Its table has an index by session and one by status, made in an order that differs from process to
    process. SQLite searches by whichever of the two was made last: by status only what is in the queue is read, by
    session all there is. `newest` makes one of them last, so that chance does not decide.
    """

    def __init__(self, size: int, newest: str) -> None:
        from llama_index.core.memory import Memory
        from sqlalchemy.ext.asyncio import create_async_engine

        self.loop = asyncio.Runner()
        self.engine = create_async_engine("sqlite+aiosqlite:///:memory:")  # its default, but ours to close
        self.memory = Memory.from_defaults(
            token_limit=PROMPT_TOKENS, tokenizer_fn=tokenizer(), async_engine=self.engine
        )
        self.loop.run(self._load(size))
        self.loop.run(self._make_last(newest))

    async def _make_last(self, column: str) -> None:
        from sqlalchemy import text

        async with self.engine.begin() as connection:
            await connection.execute(text(f"DROP INDEX ix_{TABLE}_{column}"))
            await connection.execute(text(f'CREATE INDEX ix_{TABLE}_{column} ON {TABLE} ("{column}")'))

    async def _load(self, size: int) -> None:
        from llama_index.core.storage.chat_store.base_db import MessageStatus

        active, archived = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
        store, session = self.memory.sql_store, self.memory.session_id
        for chunk, last in _marked(in_chunks(conversation(size), 200)):
            made = [chat_message(message) for message in chunk]
            await store.add_messages(session, made, status=active if last else archived)

    def made(self, message: Message) -> Any:
        """Return LlamaIndex's message."""
        return chat_message(message)

    def add(self, made: Any) -> None:
        """Put it."""
        self.loop.run(self.memory.aput(made))

    def prompt(self) -> int:
        """Get the queue and what the blocks hold."""
        return len(self.loop.run(self.memory.aget()))

    def close(self) -> None:
        """Close the database and the event loop."""
        self.loop.run(self.engine.dispose())
        self.loop.close()


def _marked(chunks: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
    """Yield each chunk, and whether it is the last one."""
    before = next(chunks, None)
    for chunk in chunks:
        yield before, False
        before = chunk
    if before is not None:
        yield before, True


def _measured(make: Any, plan: Plan) -> Figures:
    made: list[Way] = []
    loading = timed(lambda: made.append(make()))
    figures = take_turns(made[0], plan) | {"loading s": loading.clock / 1_000, "resident MB": resident()}
    made[0].close()
    return figures


def tiktoken_trim(size: int, _folder: object, plan: Plan) -> Figures:
    """Return what a turn costs with `trim_messages` and tiktoken."""
    from langchain_core.messages import BaseMessage

    count = as_counter(TOKENIZER)

    def counter(message: BaseMessage) -> int:  # by this annotation it is told from one for lists
        return count(message.text) + FRAMING

    return _measured(lambda: Trim(size, counter), plan)


def approximate(size: int, _folder: object, plan: Plan) -> Figures:
    """Return what a turn costs with `trim_messages` and its own estimate of the tokens."""
    return _measured(lambda: Trim(size, "approximate"), plan)


def buffer(size: int, _folder: object, plan: Plan) -> Figures:
    """Return what a turn costs with `ChatMemoryBuffer`."""
    return _measured(lambda: Buffer(size), plan)


def queue(size: int, _folder: object, plan: Plan) -> Figures:
    """Return what a turn costs with `Memory` that searches by status."""
    return _measured(lambda: Queue(size, "status"), plan)


def queue_by_session(size: int, _folder: object, plan: Plan) -> Figures:
    """Return what a turn costs with `Memory` that searches by session, as in about half of all processes."""
    return _measured(lambda: Queue(size, "key"), plan)
