"""Titles of conversations: given, imported, found, and erased with the conversation."""

import json
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message, SQLiteStore, UnknownReferenceError
from shared_core.store import Store
from tests.stores.dict_store import DictStore

TALK = [Message.user("Where shall we go in May?"), Message.assistant("To Porto.")]


@pytest.mark.parametrize("store", [SQLiteStore(":memory:"), DictStore()], ids=["sqlite", "dict"])
def test_a_title_is_given_changed_and_taken_away(store: Store) -> None:
    with InfiniteMemory(store) as memory:
        with pytest.raises(UnknownReferenceError):
            memory.set_title("too early")
        memory.add(TALK)
        for given, shown in [("Portugal  in\nMay", "Portugal in May"), ("May", "May"), (None, TALK[0].content)]:
            memory.set_title(given)
            assert [one.title for one in memory.sessions()] == [shown]
        assert not [*memory.reflog(), *memory.tags(), *memory.stashes()]
    store.close()


def test_a_title_is_found_and_erased_with_the_conversation(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    for name in ("one", "two"):
        with InfiniteMemory(path, session_id=name) as memory:
            memory.add(TALK)
            memory.set_title(f"The Unicorn of number {name}")
    with InfiniteMemory(path, session_id="one") as memory:
        assert [one.session_id for one in memory.sessions(titled="ONE unicorn")] == ["one"]
        assert memory.sessions(titled="may") == []
        assert memory.forget(session=True).scrubbed
        memory.add(TALK)
        assert [one.title for one in memory.sessions()] == [TALK[0].content, "The Unicorn of number two"]
    assert b"number one" not in path.read_bytes()


def test_imports_bring_titles(tmp_path: Path) -> None:
    mapping = {
        "a": {"id": "a", "parent": None, "children": ["b"], "message": None},
        "b": {
            "id": "b", "parent": "a", "children": [],
            "message": {
                "id": "b", "author": {"role": "user"}, "create_time": 1.0,
                "content": {"content_type": "text", "parts": ["Hello!"]},
            },
        },
    }  # fmt: skip
    chat = {"id": "c1", "conversation_id": "c1", "title": "Portugal", "current_node": "b", "mapping": mapping}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([chat]), encoding="utf-8")
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.import_file(path)
        assert [(one.session_id, one.title) for one in memory.sessions()] == [("default", "Portugal")]
