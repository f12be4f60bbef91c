"""Embeddings as LlamaIndex users give them, and the engine's embedders where LlamaIndex wants embeddings."""

import asyncio
import functools
import pickle
from typing import Any

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from pydantic import PrivateAttr

from llama_index_infinite_memory.embeddings import EngineEmbedding, as_embedder
from shared_core import Embedder
from shared_core.plugins.base import Fingerprint
from shared_core.plugins.embedders import StaticEmbedder
from shared_core.testing import HashingEmbedder


class Recorded(BaseEmbedding):
    """Notes every call; questions point the other way."""

    _calls: list[tuple[str, object]] = PrivateAttr(default_factory=list)

    def _noted(self, name: str, given: Any, to: float) -> Any:
        self._calls.append((name, given))
        return [0.0, to] if isinstance(given, str) else [[0.0, to] for _ in given]

    def _get_query_embedding(self, query: str) -> Any:
        return self._noted("query", query, -2.0)

    async def _aget_query_embedding(self, query: str) -> Any:
        return self._noted("aquery", query, -2.0)

    def _get_text_embedding(self, text: str) -> Any:
        return self._noted("text", text, 2.0)

    def _get_text_embeddings(self, texts: list[str]) -> Any:
        return self._noted("texts", list(texts), 2.0)


class Asynchronous(Recorded):
    async def _aget_text_embeddings(self, texts: list[str]) -> Any:
        return self._noted("atexts", list(texts), 2.0)


def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, 0.0] for _ in texts]


class Calls:
    def __call__(self, texts: list[str]) -> list[list[float]]:
        return embed(texts)


def made(value: Any, **named: Any) -> Embedder:
    embedder = as_embedder(value, **named)
    assert embedder is not None
    return embedder


@pytest.mark.parametrize(("kind", "later"), [(Recorded, "texts"), (Asynchronous, "atexts")])
def test_texts_and_questions_go_their_own_ways_in_batches_and_asynchronous_code_awaits(
    kind: type[Recorded], later: str
) -> None:
    source = kind(model_name="small", embed_batch_size=2)
    embedder = made(source)
    assert embedder.fingerprint.key == f"{kind.__name__}/small/2"

    async def both() -> tuple[Any, Any]:
        return await embedder.aembed_documents(["sea"]), await embedder.aembed_query("sea")

    assert np.array_equal(embedder.embed_documents(["sea", "land", "a"]), [[0.0, 1.0]] * 3)
    assert np.array_equal(embedder.embed_query("sea"), [0.0, -1.0])
    documents, question = asyncio.run(both())
    assert np.array_equal(documents, [[0.0, 1.0]])
    assert np.array_equal(question, [0.0, -1.0])
    assert source._calls == [
        ("texts", ["dimension"]), ("texts", ["sea", "land"]), ("texts", ["a"]), ("query", "sea"),
        (later, ["sea"]), ("aquery", "sea"),
    ]  # fmt: skip


def test_vectors_are_told_apart_by_class_and_model() -> None:
    named: list[tuple[Any, str]] = [
        (Recorded(), "Recorded"),
        (MockEmbedding(embed_dim=2), "MockEmbedding"),
        (Recorded(model_name="a#b"), "Recorded/a-b"),
        (Recorded(model_name="small").get_text_embedding_batch, "Recorded/small.get_text_embedding_batch"),
        (Calls(), "Calls"),
        (embed, f"{__name__}.embed"),
    ]
    for value, name in named:
        assert made(value).fingerprint.key == f"{name}/2"
        assert made(value, name="mine").fingerprint.key == "mine/2"


def test_what_else_is_taken_and_refused() -> None:
    assert as_embedder(None) is None
    for nameless in (lambda texts: embed(texts), functools.partial(embed), Calls().__call__):
        with pytest.raises(ValueError, match="name"):
            as_embedder(nameless)
    with pytest.raises(ValueError, match="default"):
        as_embedder("default")  # LlamaIndex would use a model behind one's back
    wrong: list[Any] = [3, Recorded, b"static", ["static"]]
    for value in wrong:
        with pytest.raises(TypeError, match="embed_model"):
            as_embedder(value)


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
    asked = [-number for number in expected[0]]
    assert model.get_text_embedding_batch(texts) == asyncio.run(model.aget_text_embedding_batch(texts)) == expected
    assert model.get_text_embedding("sea") == asyncio.run(model.aget_text_embedding("sea")) == expected[0]
    assert model.get_query_embedding("sea") == asyncio.run(model.aget_query_embedding("sea")) == asked
    assert (model.model_name, model.embed_batch_size) == ("counting", 256)
    assert as_embedder(model) is own, "there and back"
    assert made(model, name="mine").fingerprint.name == "mine"


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
