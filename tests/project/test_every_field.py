"""Every field of `Message` survives a database, a file and both adapters; one that is added later is tried, too."""

from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.formats.fields import Role
from shared_core.messages import content_of
from shared_core.testing.store_contract.message_contract import RICH

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = [
    *(Message.user(f"about {name}", id=f"m-{name}", **{name: value}) for name, value in RICH.items()),
    Message.assistant("all of it", id="m-all", **RICH),
]
NOT_IN_LLAMA_INDEX = {"pinned", "grounding", "media_tokens", "payload"}
"""LlamaIndex has no field for these, and the adapter keeps nothing beside a message."""

NOT_IN_LANGCHAIN = {"pinned", "media_tokens", "payload"}
"""LangChain has no field for these. What its own messages say of them is kept."""

SAID_BY: dict[str, Role] = {"tool_calls": "assistant", "tool_call_id": "tool"}


def said(memory: InfiniteMemory) -> list[Any]:
    return [content_of(message) for message in memory.newest(99)]


EXPECTED = [content_of(message) for message in MESSAGES]


def test_a_database_keeps_every_field(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(MESSAGES)
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        assert said(memory) == EXPECTED


def test_a_file_keeps_every_field(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(MESSAGES)
        memory.export(tmp_path / "chat.jsonl")
    with InfiniteMemory(tmp_path / "other.db") as memory:
        memory.import_file(tmp_path / "chat.jsonl")
        assert said(memory) == EXPECTED


@pytest.mark.parametrize("name", sorted(RICH.keys() - NOT_IN_LANGCHAIN))
def test_langchain_keeps_every_field(name: str) -> None:
    from langchain_infinite_memory.messages import from_message, to_message

    fields = {name: RICH[name]}
    message = Message(role=SAID_BY.get(name, "user"), content="said", id="m1", **fields)
    assert content_of(to_message(from_message(message))) == content_of(message)


@pytest.mark.parametrize("name", sorted(RICH.keys() - NOT_IN_LLAMA_INDEX))
def test_llama_index_keeps_every_field(name: str) -> None:
    from llama_index_infinite_memory.messages import from_message, to_message

    fields = {name: RICH[name]}
    message = Message(role=SAID_BY.get(name, "user"), content="said", id="m1", **fields)
    assert content_of(from_message(to_message(message))).items() >= content_of(message).items()
