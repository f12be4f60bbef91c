"""Embeddings as LlamaIndex users give them."""

import asyncio
import functools
from typing import Any

import numpy as np
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from pydantic import PrivateAttr

from llama_index_infinite_memory.embeddings import as_embedder
from shared_core import Embedder


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
