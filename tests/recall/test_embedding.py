"""Questions that wait for vectors while the same conversation goes on."""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.plugins.base import Vectors
from shared_core.plugins.calls import Request, Steps
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Hit
from shared_core.queries import After, Criterion
from shared_core.records import Record
from shared_core.stores import SQLiteStore
from shared_core.testing.hashing_embedder import HashingEmbedder


class TestWaiting:
    """While one thread waits for vectors, others add, forget and ask through the same object."""

    @pytest.fixture
    def memory(self) -> Generator[InfiniteMemory]:
        with InfiniteMemory(embedder=HashingEmbedder(), max_tokens=120, reserve_tokens=0) as memory:
            for number in range(20):
                memory.add([
                    Message.user(f"tower {number}", id=f"u{number}"),
                    Message.assistant(f"the tower number {number} is by the river", id=f"a{number}"),
                ])  # fmt: skip
            yield memory

    def ask(self, memory: InfiniteMemory) -> Steps[Context]:
        return memory._context_steps(
            "which tower 17?", system=None, tools=None, reserve_tokens=None, include_question=True
        )

    def search(self, memory: InfiniteMemory) -> Steps[list[Hit]]:
        return memory._search_steps("tower 17", 5, since=None, until=None, role=None)

    def documents(self, steps: Steps[Context] | Steps[list[Hit]]) -> Request[Any]:
        """Answer the request for the question's vector, and return the next one."""
        request = next(steps)
        request = steps.send(request.answer())
        assert (request.plugin, request.texts > 1) == ("embedder", True)
        return request

    def finish(self, steps: Steps[Context] | Steps[list[Hit]], request: Request[Any]) -> list[Message]:
        while True:
            try:
                request = steps.send(request.answer())
            except StopIteration as stop:
                value = stop.value
                return [hit.message for hit in value] if isinstance(value, list) else list(value.messages)

    @pytest.mark.parametrize("kind", ["ask", "search"])
    def test_forgetting_everything_while_a_question_waits(self, memory: InfiniteMemory, kind: str) -> None:
        steps = self.ask(memory) if kind == "ask" else self.search(memory)
        request = self.documents(steps)
        memory.forget(session=True)
        memory.add(Message.user("something else"))
        memory.search("tower", 3)
        found = self.finish(steps, request)
        assert not any("river" in message.content for message in found)

    @pytest.mark.parametrize("kind", ["ask", "search"])
    def test_adding_on_another_branch_while_a_question_waits(self, memory: InfiniteMemory, kind: str) -> None:
        steps = self.ask(memory) if kind == "ask" else self.search(memory)
        request = self.documents(steps)
        memory.fork("side", at="a3")
        memory.add([Message.user("tower elsewhere"), Message.assistant("the tower by the sea")])
        memory.search("tower", 3)
        found = self.finish(steps, request)
        assert found
        assert not any("sea" in message.content for message in found)

    def test_a_process_forgets_between_two_reads(self, tmp_path: Path) -> None:
        """The index was read before, the texts after: what is gone has no text, and gets no vector."""

        class Forgetful(HashingEmbedder):
            forget: Callable[[], object] = staticmethod(lambda: None)

            def embed_documents(self, texts: Sequence[str]) -> Vectors:
                forget, self.forget = self.forget, lambda: None
                forget()
                return super().embed_documents(texts)

        path, embedder = tmp_path / "chat.db", Forgetful()
        with InfiniteMemory(path, embedder=embedder) as memory:
            memory.add([Message.user(f"word{number}", id=f"m{number}") for number in range(600)])
            with InfiniteMemory(path) as other:
                embedder.forget = lambda: other.forget(ids=["m7", "m599"])
                memory.index()
            assert memory.stats()["vectors"] == 598
            assert [hit.message.id for hit in memory.search("word7", 1)] != ["m7"]


class HookedStore(SQLiteStore):
    """Lets something happen just before rows are read for an index."""

    hook: Callable[[], object] = staticmethod(lambda: None)

    def find(self, session: int, criterion: Criterion) -> list[Record]:
        if isinstance(criterion, After):
            hook, self.hook = self.hook, lambda: None
            hook()
        return super().find(session, criterion)


@pytest.mark.interleaved
def test_a_process_forgets_the_question_itself(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = HookedStore(path, durability="process")
    with (
        InfiniteMemory(
            store, recall="thorough", embedder=HashingEmbedder(), max_tokens=120, reserve_tokens=0
        ) as memory,
        InfiniteMemory(path) as other,
    ):
        for number in range(20):
            memory.add([Message.user(f"tower {number}"), Message.assistant(f"the tower number {number} by the river")])
        memory.add(Message.user("which secret tower?", id="secret"))
        store.hook = lambda: other.forget(ids=["secret"])
        messages = memory.context().messages
        assert messages[-1].content == "the tower number 19 by the river"
        assert not any("secret" in message.content for message in messages)
    store.close()
