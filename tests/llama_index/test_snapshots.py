"""A buffer that is restored stands where it stood: at the present state it is the one in use, earlier it is another."""

import asyncio
import copy
import gc
import json
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.workflow import Context
from pydantic import Field
from workflows.context.serializers import JsonSerializer

from llama_index_infinite_memory import InfiniteChatMemoryBuffer, RestoreWarning
from shared_core import SQLiteStore, StoreError
from shared_core.strippers import PASTED_CONTEXT
from tests.llama_index.scripted_llm import Talker, how_many
from tests.llama_index.test_buffer import HASHING, TALK, assistant, ours, texts, user

pytestmark = [  # what upstream's agents do
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]

Buffer = InfiniteChatMemoryBuffer


def agent() -> Any:
    return FunctionAgent(tools=[], llm=Talker(how_many), streaming=False)


@pytest.mark.parametrize("place", ["memory", "file"])
@pytest.mark.parametrize("held", [True, False])
def test_an_earlier_context_is_the_earlier_conversation(place: str, held: bool, tmp_path: Path) -> None:
    store = str(tmp_path / "a.db") if place == "file" else None

    async def run() -> tuple[list[str], list[str], list[str]]:
        memory: Any = Buffer.from_defaults(store=store)
        context = Context(agent())
        await agent().run("one", ctx=context, memory=memory)
        memory = memory if held else None
        snapshot = json.loads(json.dumps(context.to_dict()))
        await agent().run("two", ctx=context)
        await agent().run("three", ctx=context)
        earlier = Context.from_dict(agent(), snapshot)
        answers = [str(await agent().run(question, ctx=earlier)) for question in ("two, but other", "and more")]
        live, other = [await one.store.get("memory") for one in (context, earlier)]
        shown = texts(live.get_all()), texts(other.get_all()), answers
        live.close()
        other.close()
        return shown

    live, other, answers = asyncio.run(run())
    assert live == [
        "one", "I was shown 1 messages.", "two", "I was shown 3 messages.", "three", "I was shown 5 messages.",
    ]  # fmt: skip
    assert answers == ["I was shown 3 messages.", "I was shown 5 messages."]
    assert other == [*live[:2], "two, but other", answers[0], "and more", answers[1]]
    if place == "file":
        with ours(store=store) as memory:
            assert texts(memory.get_all()) == live, "main is the line of the user's object"


def test_a_snapshot_of_before_a_reset_goes_on_where_it_was(tmp_path: Path) -> None:
    with ours(TALK[:2], store=tmp_path / "a.db") as memory:
        snapshot = memory.to_dict()
        memory.reset()
        memory.put(user("anew"))
        with Buffer.from_dict(snapshot) as earlier:
            assert (earlier.get_all(), earlier.memory.branch) == (TALK[:2], None)
            earlier.put(user("more"))
            again = Buffer.from_dict(earlier.to_dict())
            assert again == earlier
        with Buffer.from_dict({**snapshot, "head": None}) as empty:
            assert (empty.get_all(), texts(memory.get_all())) == ([], ["anew"])
            empty.put(user("other"))
            assert (texts(memory.get_all()), empty.memory.branch) == (["anew"], "main-3")


def test_what_was_forgotten_does_not_come_back_with_a_snapshot(tmp_path: Path) -> None:
    for store in (None, tmp_path / "a.db"):
        with ours(TALK[:2], store=store) as memory:
            snapshot = memory.to_dict()
            memory.memory.forget(session=True)
            memory.put(user("hi"))
            with Buffer.from_dict(snapshot) as earlier:
                assert texts(earlier.get_all()) == ["hi"]


def test_a_file_that_is_gone_or_another_is_an_error_that_names_it(tmp_path: Path) -> None:
    with ours(TALK[:2], store=tmp_path / "a.db", embed_model=None) as memory:
        data = memory.to_dict()
    del memory
    gc.collect()
    (tmp_path / "a.db").rename(tmp_path / "moved.db")
    with pytest.raises(StoreError, match=r"a\.db' is gone.*pass its path: from_dict\(data, store=\.\.\.\)"):
        Buffer.from_dict(data)
    assert not (tmp_path / "a.db").exists()
    with ours([user("x")], store=tmp_path / "b.db", session_id="another"), pytest.raises(StoreError, match=r"b\.db"):
        Buffer.from_dict(data, store=tmp_path / "b.db")
    with Buffer.from_dict(data, store=tmp_path / "moved.db") as again:
        assert again.get_all() == TALK[:2]


@pytest.mark.parametrize("changed", [{"session_id": "bob"}, {"user_id": "bob"}])
def test_the_state_of_another_is_refused(changed: dict[str, str]) -> None:
    with ours(TALK[:2], session_id="alice", user_id="alice") as alice:
        data = alice.to_dict()
        for given in (data, {**data, **changed}):
            with pytest.raises(ValueError, match=r"state of session 'alice' of user 'alice', not of .*'bob'"):
                Buffer.from_dict(given, **changed)


class Restoring(InfiniteChatMemoryBuffer):
    """A subclass that says what JSON cannot hold."""

    @classmethod
    def restore_arguments(cls, data: Any) -> dict[str, Any]:
        return {"embed_model": HASHING, "strippers": [], "summarizer": lambda before, messages: "sum"}


def test_what_json_cannot_hold_is_asked_for_and_said(tmp_path: Path) -> None:
    with ours(
        TALK[:2], store=tmp_path / "a.db", window_turns=None, top_k=3, strippers=[PASTED_CONTEXT],
        summarizer=lambda before, messages: "sum",
    ) as memory:  # fmt: skip
        text = memory.to_json()
        assert Buffer.from_json(text).conversation is memory.conversation
    with pytest.warns(RestoreWarning) as caught:
        again = Buffer.from_json(text)
    with again:
        assert again.conversation.settings.given == {"top_k": 3}
    assert str(caught[0].message) == (
        "restored without embed_model, strippers, summarizer, which JSON cannot hold: pass from_dict(data, "
        "embed_model=..., strippers=..., summarizer=...), or return them from restore_arguments"
    )
    with Restoring.from_json(text) as mine:
        assert mine.conversation.settings.given["embed_model"] is HASHING


def test_a_store_that_cannot_be_found_again_is_said() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        memory = ours(TALK[:2], store=store, embed_model=None)
        data = {**memory.to_dict(), "attached": "of another process"}
        assert "messages" not in data
        with Buffer.from_dict(data) as found:
            assert found.conversation.store is store
        with pytest.raises(StoreError, match=r"its store is closed: pass from_dict\(data, store"):
            Buffer.from_dict({**data, "store": "open:in another process"})
        elsewhere = Buffer.from_dict(data, store=store)
        memory.put(user("more"))
        assert texts(elsewhere.get_all()) == [*texts(TALK[:2]), "more"]


# Models of pydantic, and subclasses


class Labelled(InfiniteChatMemoryBuffer):
    """A subclass with a field, and more to do for each message."""

    label: str = "none"
    marks: list[str] = Field(default_factory=list)

    def put(self, message: ChatMessage) -> None:
        super().put(message.model_copy(update={"additional_kwargs": {"label": self.label}}))

    def get(self, *args: Any, **kwargs: Any) -> list[ChatMessage]:
        return [*super().get(*args, **kwargs), user(f"seen by {self.label}")]

    @classmethod
    def class_name(cls) -> str:
        return "Labelled"


def labels(memory: Buffer) -> list[Any]:
    return [message.additional_kwargs.get("label") for message in memory.get_all()]


def test_a_subclass_keeps_its_fields_and_overrides() -> None:
    memory = Labelled.from_defaults(label="mine", marks=["a"], embed_model=HASHING)
    memory.put_messages([user("q"), assistant("a")])
    asyncio.run(memory.aput(user("r")))
    serializer = JsonSerializer()
    copies = [
        copy.copy(memory), memory.model_copy(), pickle.loads(pickle.dumps(memory)),
        Labelled.from_dict(memory.to_dict()), Labelled.model_validate(memory.model_dump()),
        serializer.deserialize(serializer.serialize(memory)),
    ]  # fmt: skip
    for other in copies:
        assert (type(other), other.label, other.marks, other == memory) == (Labelled, "mine", ["a"], True)
    copies[2].marks.append("b")
    assert (memory.marks, copies[2] == memory) == (["a"], False)
    assert texts(asyncio.run(memory.aget()))[-1] == texts(memory.get())[-1] == "seen by mine"
    assert labels(memory) == ["mine"] * 3
