"""Embeddings as LlamaIndex users give them, and the engine's embedders where LlamaIndex wants embeddings."""

import asyncio
import functools
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from pydantic import PrivateAttr

from llama_index_infinite_memory.embeddings import EngineEmbedding, as_embedder
from shared_core import AsyncInfiniteMemory, Embedder, EmbedderError, InfiniteMemory, Message
from shared_core.plugins.base import Fingerprint
from shared_core.plugins.embedders import StaticEmbedder
from shared_core.testing import HashingEmbedder


def row(text: str, by: float = 1.0) -> list[float]:
    """Three numbers that depend on the text, of a length that is not 1."""
    return [by * (1 + len(text)), by * text.count("a"), by * text.count("e")]


def unit(values: Sequence[float]) -> list[float]:
    return [float(x) for x in np.asarray(values, np.float32) / np.linalg.norm(values)]


class Recorded(BaseEmbedding):
    """Texts and questions differ, and every call is noted, with the thread it came in."""

    _calls: list[tuple[str, object, int]] = PrivateAttr(default_factory=list)

    def note(self, what: str, said: object) -> None:
        self._calls.append((what, said, threading.get_ident()))

    @property
    def calls(self) -> list[tuple[str, object]]:
        return [(what, said) for what, said, _ in self._calls]

    def _get_query_embedding(self, query: str) -> list[float]:
        self.note("query", query)
        return row(query + "eee")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        await asyncio.sleep(0)
        self.note("aquery", query)
        return row(query + "eee")

    def _get_text_embedding(self, text: str) -> list[float]:
        self.note("text", text)
        return row(text)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self.note("texts", list(texts))
        return [row(text) for text in texts]


class Asynchronous(Recorded):
    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        self.note("atexts", list(texts))
        return [row(text) for text in texts]


class Failing(Recorded):
    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError("no route")


class Odd(Recorded):
    _rows: Any = PrivateAttr(default=None)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._rows if texts != ["dimension"] else [[1.0, 0.0]]


def embed(texts: list[str]) -> list[list[float]]:
    return [row(text) for text in texts]


async def aembed(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return [row(text) for text in texts]


def made(value: Any, **named: Any) -> Embedder:
    embedder = as_embedder(value, **named)
    assert embedder is not None
    return embedder


def same(vectors: Any, expected: Any) -> bool:
    return bool(vectors.dtype == np.float32 and np.allclose(vectors, expected, atol=1e-6))


# What is accepted


def test_what_the_engine_takes_passes_through() -> None:
    own = HashingEmbedder()
    assert as_embedder(own) is own
    assert as_embedder(None) is None


def test_history_and_questions_go_their_own_ways_in_batches_of_the_models_size() -> None:
    source = Recorded(model_name="small", embed_batch_size=2)
    embedder = made(source)
    assert embedder.fingerprint.key == "Recorded/small/3"
    assert same(embedder.embed_documents(["sea", "land", "a"]), [unit(row("sea")), unit(row("land")), unit(row("a"))])
    assert same(embedder.embed_query("sea"), unit(row("seaeee")))
    assert source.calls == [("texts", ["dimension"]), ("texts", ["sea", "land"]), ("texts", ["a"]), ("query", "sea")]


def test_async_code_awaits_the_models_own_methods() -> None:
    source = Asynchronous()
    embedder = made(source)

    async def both() -> tuple[Any, Any]:
        return await embedder.aembed_documents(["sea"]), await embedder.aembed_query("sea")

    documents, question = asyncio.run(both())
    assert same(documents, [unit(row("sea"))])
    assert same(question, unit(row("seaeee")))
    assert [call for call in source.calls if call[0] != "texts"] == [("atexts", ["sea"]), ("aquery", "sea")]


def test_a_model_without_asynchronous_methods_does_not_hold_up_the_loop() -> None:
    source = Recorded()
    embedder = made(source)
    assert same(asyncio.run(embedder.aembed_documents(["sea"])), [unit(row("sea"))])
    (thread,) = {thread for what, said, thread in source._calls if said == ["sea"]}
    assert thread != threading.get_ident()


@pytest.mark.parametrize("function", [embed, aembed])
def test_a_function_embeds_both(function: Any) -> None:
    embedder = made(function)
    assert embedder.fingerprint.key == f"{__name__}.{function.__name__}/3"
    expected = [unit(row("sea")), unit(row("land"))]
    assert same(embedder.embed_documents(["sea", "land"]), expected)
    assert same(embedder.embed_query("land"), expected[1])
    assert same(asyncio.run(embedder.aembed_documents(["sea", "land"])), expected)
    assert same(asyncio.run(embedder.aembed_query("sea")), expected[0])


def test_names_are_the_engines() -> None:
    pytest.importorskip("wordllama", exc_type=ImportError, reason="no wheel for this system")
    assert isinstance(as_embedder("static"), StaticEmbedder)
    assert isinstance(as_embedder("local:static"), StaticEmbedder)


def test_no_model_is_used_behind_ones_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "_embed_model", Failing())
    assert as_embedder(None) is None
    with pytest.raises(ValueError, match="default"):
        as_embedder("default")


class Callable_:
    def __call__(self, texts: list[str]) -> list[list[float]]:
        return embed(texts)


def test_vectors_are_told_apart_by_class_and_model() -> None:
    named: list[tuple[Any, str]] = [
        (Recorded(), "Recorded"),
        (MockEmbedding(embed_dim=3), "MockEmbedding"),
        (Recorded(model_name="a#b"), "Recorded/a-b"),
        (Recorded(model_name="small").get_text_embedding_batch, "Recorded/small.get_text_embedding_batch"),
        (Callable_(), "Callable_"),
    ]
    for value, name in named:
        assert made(value).fingerprint.key == f"{name}/3"
        assert made(value, name="mine").fingerprint.key == "mine/3"


def test_a_function_without_a_name_needs_one_and_other_things_are_refused() -> None:
    for value in (lambda texts: embed(texts), functools.partial(embed), Callable_().__call__):
        with pytest.raises(ValueError, match="name"):
            as_embedder(value)
        assert made(value, name="mine").fingerprint.key == "mine/3"
    others: list[Any] = [3, Recorded, b"static", ["static"]]
    for other in others:
        with pytest.raises(TypeError, match="embed_model"):
            as_embedder(other)


# What goes wrong


def test_what_a_model_raises_is_an_embedder_error() -> None:
    with pytest.raises(EmbedderError, match="'Failing'"):
        made(Failing()).embed_documents(["sea"])


def test_vectors_of_another_kind_are_refused() -> None:
    wrong: list[tuple[Any, str]] = [
        ([[1.0]], "shape"),
        ([[1.0, 0.0], [0.0, 1.0]], "shape"),
        ([[1.0, float("nan")]], "not finite"),
        ([["a", "b"]], "ValidationError"),
    ]
    source = Odd()
    for source._rows, said in wrong:
        with pytest.raises(EmbedderError, match=said):
            made(source).embed_documents(["sea"])


# In a memory


class Topics(Recorded):
    """Knows one thing: that a yacht is a boat."""

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "boat" in text else [0.0, 1.0] for text in texts]

    def _get_query_embedding(self, query: str) -> list[float]:
        return [3.0, 0.0] if "yacht" in query else [0.0, 3.0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_memory_recalls_by_it(asynchronous: bool) -> None:
    with InfiniteMemory(embedder=as_embedder(Topics()), min_score=0.5) as memory:
        memory.add([Message.user("my boat is called Ana"), Message.assistant("fine")])
        memory.add([Message.user(f"it rains {day}") for day in range(5)])
        memory.index()
        found = (
            asyncio.run(AsyncInfiniteMemory(memory).search("the yacht?")) if asynchronous else memory.search("a yacht?")
        )
        assert [hit.message.content for hit in found] == ["my boat is called Ana"]
        assert memory.stats()["embedders"] == ["Topics/2"]


# The other way


class Counting(HashingEmbedder):
    """Questions differ from texts."""

    fingerprint = Fingerprint("counting", HashingEmbedder().fingerprint.dimension)

    def embed_query(self, text: str) -> Any:
        return -super().embed_query(text)


def test_the_engines_embedders_serve_as_embeddings() -> None:
    own = Counting()
    model = EngineEmbedding(own)
    texts = ["sea", "land"]
    expected = own.embed_documents(texts).tolist()
    assert model.get_text_embedding_batch(texts) == expected
    assert model.get_text_embedding("sea") == expected[0]
    assert model.get_query_embedding("sea") == [-number for number in expected[0]]
    assert asyncio.run(model.aget_text_embedding_batch(texts)) == expected
    assert asyncio.run(model.aget_text_embedding("land")) == expected[1]
    assert asyncio.run(model.aget_query_embedding("sea")) == [-number for number in expected[0]]
    assert (model.model_name, model.embed_batch_size) == ("counting", 256)


def test_there_and_back_is_the_same_object() -> None:
    own = HashingEmbedder()
    assert as_embedder(EngineEmbedding(own)) is own
    assert made(EngineEmbedding(own), name="mine").fingerprint.name == "mine"


def test_the_static_one_needs_no_network_and_can_be_written_down() -> None:
    pytest.importorskip("wordllama", exc_type=ImportError, reason="no wheel for this system")
    model = EngineEmbedding(embed_batch_size=3)
    again = EngineEmbedding.from_dict(model.to_dict())
    thawed = pickle.loads(pickle.dumps(model))
    for other in (model, again, thawed):
        assert other.embed_batch_size == 3
        assert other.get_text_embedding("sea") == StaticEmbedder().embed_documents(["sea"])[0].tolist()
    index = VectorStoreIndex([TextNode(text="The ferry leaves at nine."), TextNode(text="Soup.")], embed_model=model)
    (hit,) = index.as_retriever(similarity_top_k=1).retrieve("When does the boat leave?")
    assert hit.text == "The ferry leaves at nine."


def test_without_any_embedder_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.plugins.embedders.static_available", lambda: False)
    monkeypatch.setattr("shared_core.plugins.embedders.checks.installed", lambda package: False)
    with pytest.raises(ImportError, match="wordllama is not installed"):
        EngineEmbedding()
