"""`main` is the line on which a conversation stands: for every handle, in every process, and for other sessions."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.chat_engine import SimpleChatEngine

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from shared_core import InfiniteMemory, Message, SessionPool, SQLiteStore, StoreError
from tests.llama_index.scripted_llm import Talker, called, how_many
from tests.llama_index.test_buffer import TALK, assistant, branches, ours, texts, user

pytestmark = [  # what upstream's agents do
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]

Buffer = InfiniteChatMemoryBuffer


def test_two_handles_on_a_file_see_the_same_conversation(tmp_path: Path) -> None:
    with ours(TALK[:4], store=tmp_path / "a.db") as one, ours(store=tmp_path / "a.db") as other:
        for first, second in ((one, other), (other, one)):
            first.reset()
            assert first.get_all() == second.get_all() == second.get() == []
            second.put(user("hi"))
            assert texts(first.get()) == texts(second.get()) == ["hi"]
            first.set([user("hi"), assistant("hello"), user("and?")])
            second.put(assistant("so"))
            assert texts(first.get_all()) == texts(second.get_all()) == ["hi", "hello", "and?", "so"]
            second.set([user("hi"), assistant("no")])
            assert texts(first.get_all()) == texts(second.get_all()) == ["hi", "no"]
        assert one.memory.branch == other.memory.branch == "main"


def in_another_process(path: Path) -> int:
    """Begin anew in another process; return 0 if it saw what this one has set."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            with closing(SQLiteStore(path)) as store:  # a connection of its own
                memory = ours(store=store)
                seen = texts(memory.get_all())
                memory.reset()
                memory.put_messages([user("from another process"), assistant("ok")])
            os._exit(0 if seen == ["one", "two"] else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_second_process_sees_the_same_conversation(tmp_path: Path) -> None:
    with ours(TALK[:4], store=tmp_path / "a.db") as memory:
        memory.set([user("one"), assistant("two")])
        assert in_another_process(tmp_path / "a.db") == 0
        assert texts(memory.get()) == ["from another process", "ok"]
        memory.put(user("thanks"))
        assert texts(memory.get_all()) == ["from another process", "ok", "thanks"]
        assert branches(memory) == ["main", "main-2", "main-3"]


def test_other_sessions_recall_what_stands_and_not_what_was_cleared() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        given: dict[str, Any] = {"store": store, "user_id": "u", "scope": "user"}
        one = ours([user("my locker code is 4471"), assistant("noted")], session_id="one", **given)
        one.set([user("my locker code is 9902"), assistant("noted")])
        asking = ours([user("what is my locker code?")], session_id="two", **given)
        recalled = "".join(texts(asking.get()))
        assert ("9902" in recalled, "4471" in recalled) == (True, False)


# A front end that sends the whole history each time


def test_a_buffer_for_each_request_goes_on_and_stands_on_main(tmp_path: Path) -> None:
    with closing(SQLiteStore(tmp_path / "a.db")) as store:
        for turn in range(3):
            for number in range(12):
                with ours(store=store, session_id=f"s{number}", token_limit=100) as memory:
                    assert (len(memory.get_all()), memory.memory.branch) == (turn, "main")
                    memory.put(user(f"turn {turn}"))
                    memory.memory.checkout(memory.memory.search("turn 0")[0].message.id or "")
    with SessionPool(tmp_path / "a.db") as pool, pytest.raises(TypeError, match="a Store, or None"):
        Buffer.from_defaults(store=pool)  # type: ignore[arg-type]
    with InfiniteMemory(tmp_path / "a.db", session_id="s7") as core:
        assert len(list(core.messages())) == 3


class CountingStore(SQLiteStore):
    """Counts the messages that are read, and the transactions; it may be full."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.rows_read = self.written = 0
        self.is_full = False

    def get(self, *args: Any) -> Any:
        found = super().get(*args)
        self.rows_read += len(found)
        return found

    def newest(self, *args: Any) -> Any:
        found = super().newest(*args)
        self.rows_read += len(found)
        return found

    def find(self, *args: Any) -> Any:
        found = super().find(*args)
        self.rows_read += len(found)
        return found

    def append(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_full:
            raise StoreError("the disk is full")
        self.written += 1
        return super().append(*args, **kwargs)

    def change(self, *args: Any) -> Any:
        self.written += 1
        return super().change(*args)


def ui(memory: Buffer) -> list[ChatMessage]:
    """What a front end shows and sends: texts, without calls of tools and their results."""
    return [
        ChatMessage(role=message.role, content=message.content)
        for message in memory.get_all()
        if message.content and message.role.value in ("user", "assistant")
    ]


def test_a_history_that_is_sent_each_time_costs_no_branch_and_little_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with closing(CountingStore()) as store:
        memory = ours(store=store, token_limit=100)
        engine = SimpleChatEngine.from_defaults(llm=Talker(lambda messages: "fine"), memory=memory)
        engine.chat("one", chat_history=[])
        before = store.rows_read, store.written
        for turn in range(20):
            engine.chat(f"question {turn}", chat_history=ui(memory))
        assert branches(memory) == ["main"]
        assert store.written - before[1] == 2 * 20, "the question, and the answer"
        reads = store.rows_read - before[0]
        history = ui(memory)
        read = store.rows_read
        for _ in range(5):
            memory.set(history)
        assert store.rows_read == read, "what was read is not read again"
        assert reads < 20 * 50


def test_an_agent_whose_front_end_keeps_no_steps_opens_no_branch() -> None:
    def rule(messages: Sequence[ChatMessage]) -> ChatMessage | str:
        return called("add", a=1, b=2) if messages[-1].role == "user" else f"It is 3; {how_many(messages)}"

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def run() -> None:
        agent = FunctionAgent(tools=[add], llm=Talker(rule), streaming=False)
        for turn in range(5):
            await agent.run(f"question {turn}", memory=memory, chat_history=ui(memory))

    memory = ours()
    asyncio.run(run())
    assert branches(memory) == ["main"]
    assert [message.role.value for message in memory.get_all()][-4:] == ["user", "assistant", "tool", "assistant"]
    assert len(memory.get_all()) == 2 * 4 + 4
    memory.set([*ui(memory)[:-1], assistant("another answer")])
    assert branches(memory) == ["main", "main-2"], "what was said is not lost"


def test_set_after_a_merge_and_on_a_message(tmp_path: Path) -> None:
    memory = ours(TALK[:2])
    memory.memory.fork("side")
    memory.put_messages([user("aside"), assistant("fine")])
    memory.memory.checkout("main")
    memory.put_messages([user("on main"), assistant("good")])
    memory.memory.merge("side", "full")
    memory.put(user("after"))
    assert texts(memory.get_all())[2:] == ["on main", "good", "aside", "fine", "after"]
    for count in (6, 5, 3, 1):
        wanted = memory.get_all()[:count]
        memory.set(wanted)
        assert (memory.get_all(), memory.memory.branch) == (wanted, "main")
    memory.memory.checkout(memory.memory.search("locker", 1)[0].message.id or "")
    memory.set([])
    assert (memory.get_all(), memory.memory.branch == "main") == ([], False)


def test_a_history_that_cannot_be_stored_changes_nothing() -> None:
    with closing(CountingStore()) as store:
        memory = ours(TALK[:4], store=store)
        with pytest.raises(TypeError, match="expected a ChatMessage"):
            memory.set([*TALK[:1], Message.user("not LlamaIndex's")])  # type: ignore[list-item]
        assert (memory.get_all(), branches(memory)) == (TALK[:4], ["main"])
        store.is_full = True
        for head in ("main", memory.conversation.head or ""):
            memory.memory.checkout(head)
            with pytest.raises(StoreError, match="full"):
                memory.set([*TALK[:1], user("other")])
            assert (memory.get_all(), branches(memory)) == (TALK[:4], ["main"])


@pytest.mark.skipif(not hasattr(types, "ThinkingBlock"), reason="this LlamaIndex has no thinking blocks")
def test_a_message_sent_back_as_its_text_is_the_stored_one() -> None:
    thought = ChatMessage(
        role="assistant",
        blocks=[types.ThinkingBlock(content="hm"), TextBlock(text="yes")],
        additional_kwargs={"usage": 7},
    )
    seen = ChatMessage(role="user", blocks=[TextBlock(text="look"), ImageBlock(url="https://e.org/a.png")])
    memory = ours([user("is it?"), thought, seen])
    memory.set([user("is it?"), assistant("yes"), seen])
    assert (memory.get_all(), memory.memory.stats()["messages"]) == ([user("is it?"), thought, seen], 3)
    memory.set([user("is it?"), assistant("yes"), user("look")])
    assert memory.get_all() == [user("is it?"), thought, user("look")], "without the picture, it says something else"
    memory.set([user("is it?"), ChatMessage(role="assistant", content="yes", additional_kwargs={"usage": 8})])
    assert memory.get_all()[1].additional_kwargs == {"usage": 8}
