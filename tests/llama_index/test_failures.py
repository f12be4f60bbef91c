"""With `on_error="window"`, a conversation goes on while another process holds its file, and loses nothing."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from llama_index.core.chat_engine import SimpleChatEngine

from llama_index_infinite_memory import conversation
from shared_core import StoreError
from tests.llama_index.scripted_llm import Talker
from tests.llama_index.test_buffer import TALK, assistant, ours, texts, user


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file as another process does that writes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_turn_on_a_locked_file_waits_once_and_is_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("llama_index_infinite_memory.buffer.WAIT", 0.3)
    path = tmp_path / "a.db"
    with ours(TALK, store=path, token_limit=100, on_error="window") as memory:
        engine = SimpleChatEngine.from_defaults(llm=Talker(lambda messages: f"{len(messages)} shown"), memory=memory)
        with held(path):
            before = time.monotonic()
            engine.chat("what is my locker code?")
            asyncio.run(engine.achat("and now?"))
            assert time.monotonic() - before < 0.6, "it has waited once"
            sent = memory.get()
            assert texts(sent)[-4] == "what is my locker code?"
            assert texts(memory.get_all())[-2] == "and now?"
            assert sent[0].role == "user"
        assert "goes on without its store" in caplog.text
        monkeypatch.setattr(memory.conversation, "_retry_at", 0.0)
        assert texts(memory.get(input="what is my locker code?"))[0] == "my locker code is 4471"
    with ours(store=path) as again:
        assert texts(again.get_all())[len(TALK) :: 2] == ["what is my locker code?", "and now?"]


def test_what_is_not_stored_when_it_is_closed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("llama_index_infinite_memory.buffer.WAIT", 0.1)
    memory = ours([user("hi")], store=tmp_path / "a.db", on_error="window")
    with held(tmp_path / "a.db"):
        memory.put(assistant("hello"))
        with pytest.raises(StoreError):
            memory.set([user("another")])
        memory.close()
    assert "1 messages of 'chat_history' could not be stored" in caplog.text
    with pytest.raises(StoreError, match="closed"):
        memory.put(user("more"))


def test_errors_are_raised_by_default(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_error"):
        ours(on_error="ignore")
    with ours(TALK[:2], store=tmp_path / "a.db") as memory:
        memory.conversation.engine._store.close()
        for call in (memory.get, lambda: memory.put(user("more"))):
            with pytest.raises(StoreError):
                call()
    assert conversation.WAIT == 2.0
