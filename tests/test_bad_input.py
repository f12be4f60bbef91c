"""Bad input gives a valid prompt or a named error, never a crash, and leaves nothing half-written."""

import re
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from shared_core import (
    DuplicateError,
    EmbedderError,
    InfiniteMemory,
    Message,
    StoreError,
    UnknownReferenceError,
)
from shared_core.errors import AmbiguousReferenceError
from shared_core.messages import storable
from shared_core.plugins.base import Embedder, Fingerprint, Vectors
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.results import Kind
from shared_core.stores.tree_store import Result
from shared_core.tokens import TiktokenCounter
from tests.support.histories import CountingStore, history, ids
from tests.support.scripted_embedder import ScriptedEmbedder

SMALL: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 50}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


# Empty input


@pytest.mark.parametrize("placement", ["grounding", "messages", "system"])
def test_empty_input_gives_a_valid_prompt(store: CountingStore, placement: Any) -> None:
    memory = InfiniteMemory(store, placement=placement)
    for stored in ([], [Message.system("be brief", id="rule")], [Message.system("", id="empty")]):
        memory.add(stored)
        for question in (None, "", " ", Message.user("")):
            assert {message.role for message in memory.context(question).messages} <= {"system"}
        assert ids(memory.context("hi").messages) == [*ids(memory.messages()), None]
        assert memory.search("") == memory.search(" ?!") == memory.search("the") == []
    assert ids(memory.messages()) == ["empty"]
    assert ids(memory.messages(replaced=True)) == ["rule", "empty"]
    memory.add([Message.user("", id="u"), Message.assistant("", id="a"), *history(60)])
    assert memory.context("?!").messages[-1].content == "?!"


# Special texts

TEXTS = {
    "special tokens": "<|endoftext|> <|im_start|>system<|fim_prefix|>",
    "NUL": "a\x00b\x00",
    "lone surrogates": "\ud800 and \udfff",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u0645\u0631\u062d\u0628\u0627",
    "emoji": "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}\N{FLAG IN HOLE}" * 100,
    "a megabyte of emoji": "\N{GRINNING FACE}" * (2**20 // 4),
    "line ends": "a\r\nb\u2028c\x85d\n",
    "controls": "".join(map(chr, range(32))) + "\x7f\ufeff\uffff",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_is_stored_counted_and_sent_exactly(path: Path, text: str) -> None:
    id_ = storable(text)[:50]
    given = Message.assistant(text, id=id_, name=text[:20], grounding=text[:20])
    text = storable(text)
    size = TiktokenCounter()(text)
    with InfiniteMemory(path, max_tokens=2 * size + 400, reserve_tokens=0) as memory:
        (stored,) = memory.add([Message.user("q"), given])[1:]
        assert stored == given.replace(created_at=stored.created_at, turn_id=stored.turn_id)
    with InfiniteMemory(path, max_tokens=2 * size + 400, reserve_tokens=0) as memory:
        assert memory.get(id_) == stored == list(memory.messages())[-1]
        context = memory.context(text)
        assert [message.content for message in context.messages] == ["q", text, text]
        (line,) = (line for line in context.report.lines if line.id == id_)
        assert line.tokens == 4 + size + TiktokenCounter()(text[:20])
        assert str(context.report).encode()
        memory.fork(f"{text[:50]}!", at=id_)
        assert memory.branches()[-1].name == f"{text[:50]}!"
        assert memory.forget(ids=[id_]).ids == (id_,)


def test_special_texts_are_searched_like_others(store: CountingStore) -> None:
    memory = InfiniteMemory(store, embedder="words")
    memory.add([Message.user(f"{text[:1_000]} needle", id=name) for name, text in TEXTS.items()])
    assert set(ids(hit.message for hit in memory.search("needle", 99))) == set(TEXTS)
    for text in TEXTS.values():
        memory.search(text)


# Embedders that fail


class Unreliable(Embedder):
    """Does as told: raises, or returns what it is given, for documents or for questions."""

    fingerprint = Fingerprint("unreliable", 8)

    def __init__(self, documents: Callable[[int], Any], query: Callable[[], Any]) -> None:
        self.documents = documents
        self.query = query

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        rows: Vectors = self.documents(len(texts))
        return rows

    def embed_query(self, text: str) -> Vectors:
        row: Vectors = self.query()
        return row


def fail(*_: object) -> Any:
    raise OSError("the line is dead")


def good(count: int) -> Vectors:
    rows: Vectors = np.eye(8, dtype=np.float32)[np.arange(count) % 8]
    return rows


def good_query() -> Vectors:
    row: Vectors = good(1)[0]
    return row


FAILURES: dict[str, tuple[Callable[[int], Any], Callable[[], Any], str]] = {
    "raises": (fail, good_query, "raised OSError: the line is dead"),
    "NaN": (lambda n: good(n) * np.nan, good_query, "not finite"),
    "infinite": (lambda n: np.full((n, 8), np.inf, np.float32), good_query, "not finite"),
    "wrong dimension": (lambda n: good(n)[:, :5], good_query, r"shape \(\d+, 5\)"),
    "too few": (lambda n: good(n)[1:], good_query, r"shape \(\d+, 8\)"),
    "one vector": (lambda n: good(n)[0], good_query, r"shape \(8,\)"),
    "nothing": (lambda n: None, good_query, "returned"),
    "rows of two lengths": (lambda n: [[1.0]] + [[1.0] * 8] * (n - 1), good_query, "raised ValueError"),
    "question raises": (good, fail, "raised OSError: the line is dead"),
    "question NaN": (good, lambda: good_query() * np.nan, "not finite"),
    "question of wrong dimension": (good, lambda: good_query()[:5], r"shape \(5,\)"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_without_vectors_the_prompt_is_built_by_words(store: CountingStore, case: str) -> None:
    documents, query, message = FAILURES[case]
    embedder = Unreliable(documents, query)
    memory = InfiniteMemory(store, embedder=embedder, **SMALL)
    memory.add(history(60))
    with pytest.warns(RuntimeWarning, match=message) as warned:
        context = memory.context("what of item3?")
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory.context("what of item3?") == context, "and it is warned of once"
        assert "m3" in ids(hit.message for hit in memory.search("item3"))
    report = context.report
    recalled = [line for line in report.lines if line.kind is Kind.RECALLED]
    assert "m3" in {line.id for line in recalled if line.included}
    assert {line.dense for line in recalled} == {None}
    assert report.embedder is None
    (note,) = report.degraded
    assert "by words alone" in note
    assert f"! {note}" in report.render(width=400).splitlines()
    if documents is not good:
        window = {line.id for line in report.lines if line.kind is Kind.WINDOW and line.included}
        assert report.pending >= 60 - len(window), "what could not be embedded waits"
        assert store.spaces(1) == []
        with pytest.raises(EmbedderError, match=message):
            memory.index()
    embedder.documents, embedder.query = good, good_query
    mended = memory.context("what of item3?").report
    assert (mended.embedder, mended.pending, mended.degraded) == ("unreliable/8", 0, ())


def test_vectors_of_any_length_find_what_vectors_of_unit_length_find(tmp_path: Path) -> None:
    unit, other = good(60), good(60).astype(np.float64) * 1e300
    prompts = []
    for number, rows in enumerate((unit, other)):
        embedder = Unreliable(lambda count, rows=rows: rows[:count], lambda rows=rows: rows[3])  # type: ignore[misc]
        with InfiniteMemory(tmp_path / f"{number}.db", embedder=embedder, **SMALL) as memory:
            memory.add(history(60))
            memory.index()
            prompts.append(memory.context("what of item3?"))
            memory.export(tmp_path / f"{number}.jsonl", vectors=True)
        with InfiniteMemory() as fresh:
            assert fresh.import_file(tmp_path / f"{number}.jsonl").new == 60
            assert fresh.stats()["vectors"] == 60
    texts = [[message.content for message in prompt.messages] for prompt in prompts]
    assert texts[0] == texts[1]
    assert [prompt.report.embedder for prompt in prompts] == ["unreliable/8"] * 2


def test_what_was_embedded_before_a_failure_is_kept(store: CountingStore) -> None:
    embedder = ScriptedEmbedder({})
    memory = InfiniteMemory(store, embedder=embedder)
    memory.add(history(400))

    def stop(done: int, total: int) -> None:
        embedder.failing = EmbedderError("enough")

    with pytest.raises(EmbedderError):
        memory.index(stop)
    assert memory.stats()["vectors"] == 256
    embedder.failing = None
    memory.index()
    assert len(embedder.documents) == len(set(embedder.documents)) == 400


# Damaged files


def with_history(path: Path) -> None:
    with InfiniteMemory(path, embedder=ScriptedEmbedder({}), **SMALL) as memory:
        memory.add(history(200))
        memory.index()


def scramble(data: bytes) -> bytes:
    return data[:100] + bytes(byte ^ 0x5A for byte in data[100:])


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.execute("PRAGMA application_id = 7")


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "corrupt": lambda path: path.write_bytes(scramble(path.read_bytes())),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:5_000]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a byte": lambda path: path.write_bytes(b"x"),
    "text": lambda path: path.write_text('{"messages": []}\n' * 100),
    "foreign": foreign,
}


def use(path: Path) -> None:
    with InfiniteMemory(path, **SMALL) as memory:
        list(memory.messages())
        memory.search("item3")
        memory.add(Message.user("more"))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_database_is_named_and_left_as_it_is(path: Path, damage: Callable[[Path], Any]) -> None:
    with_history(path)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=re.escape(repr(str(path)))) as error:
        use(path)
    assert "backup" in str(error.value) or "another path" in str(error.value)
    assert path.read_bytes() == before


# Unknown names


def test_unknown_and_ambiguous_names_list_what_there_is(store: CountingStore) -> None:
    memory = InfiniteMemory(store)
    memory.add([Message.user("x", id=f"message-{number}") for number in range(9)])
    memory.fork("side")
    with pytest.raises(UnknownReferenceError, match="'main', 'side'") as unknown:
        memory.checkout("sid")
    assert unknown.value.candidates == ("main", "side")
    with pytest.raises(UnknownReferenceError, match="'main', 'side'"):
        memory.fork("new", at="gone")
    with pytest.raises(AmbiguousReferenceError, match="'message-0', 'message-1'") as ambiguous:
        memory.checkout("message")
    assert ambiguous.value.candidates == tuple(f"message-{number}" for number in range(5))
    with pytest.raises(DuplicateError, match="'main', 'side'"):
        memory.fork("side")
    assert (memory.branch, len(memory.branches())) == ("side", 2)


def test_a_payload_that_is_no_json_is_named(store: CountingStore) -> None:
    memory = InfiniteMemory(store)
    message = Message.model_validate({"role": "user", "id": "odd", "payload": {"format": "x", "data": {1, 2}}})
    with pytest.raises(StoreError, match="'odd'"):
        memory.add([Message.user("fine"), message])
    assert list(memory.messages()) == []


# Two at once

WRITER = """
import sys
from shared_core import InfiniteMemory, Message
memory = InfiniteMemory(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    asked = f"u{sys.argv[2]}-{number}"
    memory.add(Message.user("q", id=asked))
    memory.add(Message.assistant("a", id="a" + asked))
memory.close()
"""


def test_processes_that_append_at_the_same_moment_mix_no_turns(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "ab"
    ]
    with InfiniteMemory(path) as memory:
        memory.add(Message.user("first", id="u0"))
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        threads = [Thread(target=writer.communicate, args=("go\n",)) for writer in writers]
        for thread in threads:
            thread.start()
        memory.add(Message.assistant("a", id="au0"))
        for thread in threads:
            thread.join()
        assert [writer.returncode for writer in writers] == [0, 0]
        messages = list(memory.messages())
        assert len(messages) == len(set(ids(messages))) == 2 + 2 * 2 * 25
        assert all(message.turn_id == str(message.id).removeprefix("a") for message in messages)
        assert memory.newest(500) == messages
        turns = [message.turn_id for message in memory.context("and?").messages[:-1]]
        assert turns[::2] == turns[1::2], "in the prompt each reply follows its question"
        assert len(turns) == len(messages)


class Refusing(CountingStore):
    """Refuses every change while `refusing` is set."""

    refusing = False

    def _write(self, act: Callable[[Any], Result]) -> Result:
        if self.refusing:
            raise StoreError("the disk is full")
        return super()._write(act)


def test_a_question_needs_no_store_that_can_be_written() -> None:
    embedder = ScriptedEmbedder({})
    with closing(Refusing(":memory:")) as store:
        with InfiniteMemory(store, embedder=embedder, **SMALL) as memory:
            memory.add(history(200))
            store.refusing = True
            for _ in range(2):
                report = memory.context("what of item3?").report
                assert (report.embedder, report.pending, report.degraded) == (embedder.fingerprint.key, 0, ())
            assert memory.search("item3 gardens")
            made = embedder.documents
            assert len(embedder.batches) > 2
            with pytest.raises(StoreError):
                memory.add(Message.user("once more", id="more"))
            store.refusing = False
            memory.add(Message.user("once more", id="more"))
            assert memory.stats()["vectors"] == len(made) == 200, "they are stored along with the next message"
            memory.search("more")
            store.refusing = True
            with pytest.raises(StoreError):
                memory.index()
            store.refusing = False
        assert store.stats(1)["vectors"] == 201, "closing stores what is left"
        with InfiniteMemory(store, embedder=embedder, session_id="other", **SMALL) as memory:
            memory.add(history(60))
            store.refusing = True
            memory.context("what of item3?")


def test_an_embedder_that_cannot_say_what_it_is_is_one_that_fails(store: CountingStore) -> None:
    """A service that is down when its dimension is asked for; a property that raises anything."""

    class Nameless(Unreliable):
        @property
        def fingerprint(self) -> Fingerprint:  # type: ignore[override]
            raise OSError("the line is dead")

    for embedder in (CallableEmbedder(fail, name="dead"), Nameless(good, good_query)):
        memory = InfiniteMemory(store, session_id=repr(embedder), embedder=embedder, **SMALL)
        memory.add(history(60))
        with pytest.warns(RuntimeWarning, match="OSError.*the line is dead"):
            report = memory.context("what of item3?").report
        (note,) = report.degraded
        assert note.startswith("recall by words alone: ")
        recalled = {line.id for line in report.lines if line.kind is Kind.RECALLED and line.included}
        assert "m3" in recalled
        window = {line.id for line in report.lines if line.kind is Kind.WINDOW and line.included}
        assert report.pending >= 60 - len(window)
        assert "m3" in ids(hit.message for hit in memory.search("item3")), "and it is warned of once"
        with pytest.raises(EmbedderError):
            memory.index()


@pytest.mark.parametrize("query", ["", "\u3000"])
def test_a_blank_query_finds_nothing(store: CountingStore, query: str) -> None:
    """A function has no floor: every message would be near enough to it."""
    memory = InfiniteMemory(store, embedder=CallableEmbedder(lambda texts: good(len(texts)), name="good"), **SMALL)
    memory.add(history(60))
    memory.index()
    assert memory.search("item3")
    assert memory.search(query) == []
    memory.add(Message.user(query or " ", media_tokens=5))
    assert not [line for line in memory.context().report.lines if line.kind is Kind.RECALLED]
