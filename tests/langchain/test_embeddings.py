"""Embeddings as LangChain users give them; the engine's own tests have the embedder that is made of them."""

import asyncio
import functools
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings

from langchain_infinite_memory import as_embedder
from langchain_infinite_memory.settings import _name_of_object
from shared_core import Embedder
from shared_core.testing import HashingEmbedder


class Recorded(Embeddings):
    """Notes every call; questions point the other way."""

    def __init__(self, model: str | None = "small") -> None:
        self.model = model
        self.calls: list[tuple[str, object]] = []

    def _noted(self, name: str, given: Any, to: float) -> Any:
        self.calls.append((name, given))
        return [0.0, to] if isinstance(given, str) else [[0.0, to] for _ in given]

    def embed_documents(self, texts: list[str]) -> Any:
        return self._noted("documents", texts, 2.0)

    def embed_query(self, text: str) -> Any:
        return self._noted("query", text, -2.0)

    async def aembed_documents(self, texts: list[str]) -> Any:
        return self._noted("adocuments", texts, 2.0)

    async def aembed_query(self, text: str) -> Any:
        return self._noted("aquery", text, -2.0)


def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, 0.0] for _ in texts]


def made(value: Any, **named: Any) -> Embedder:
    embedder = as_embedder(value, **named)
    assert embedder is not None
    return embedder


def test_documents_and_questions_go_their_own_ways_and_asynchronous_code_awaits() -> None:
    source = Recorded()
    embedder = made(source)
    assert embedder.fingerprint.key == "Recorded/small/2"

    async def later() -> tuple[Any, Any]:
        return await embedder.aembed_documents(["sea"]), await embedder.aembed_query("sea")

    for documents, question in (
        (embedder.embed_documents(["sea"]), embedder.embed_query("sea")),
        asyncio.run(later()),
    ):
        assert np.array_equal(documents, [[0.0, 1.0]])
        assert np.array_equal(question, [0.0, -1.0])
    assert source.calls == [
        ("documents", ["dimension"]), ("documents", ["sea"]), ("query", "sea"),
        ("adocuments", ["sea"]), ("aquery", "sea"),
    ]  # fmt: skip


def test_what_else_is_taken_and_refused() -> None:
    own = HashingEmbedder()
    assert as_embedder(own) is own
    assert as_embedder(None) is None
    with pytest.raises(ValueError, match="no_such_provider"):
        as_embedder("no_such_provider:some-model")
    assert made(embed).fingerprint.key == f"{__name__}.embed/2"
    for nameless in (lambda texts: embed(texts), functools.partial(embed), Client().embed):
        with pytest.raises(ValueError, match="name="):
            as_embedder(nameless)
        assert made(nameless, name="mine").fingerprint.key == "mine/2"
    wrong: list[Any] = [3, [0.1], Recorded, object()]
    for value in wrong:
        with pytest.raises(TypeError, match="embeddings must be"):
            as_embedder(value)


class Cached(Embeddings):
    """Gives what it caches, as LangChain's does."""

    def __init__(self, underlying: Embeddings) -> None:
        self.underlying_embeddings = underlying

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.underlying_embeddings.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self.underlying_embeddings.embed_query(text)


class Client:
    def __init__(self, model_name: str = "") -> None:
        self.model_name = model_name

    def embed(self, texts: list[str]) -> list[list[float]]:
        return embed(texts)

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return embed(texts)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Recorded("org/small#2"), "Recorded/org/small-2"),
        (Recorded(None), "Recorded"),
        (Cached(Recorded("m")), "Recorded/m"),
        (Client("m"), "Client/m"),
        (Client("m").embed, "Client/m.embed"),
        (Client(), "Client"),
    ],
)
def test_vectors_are_told_apart_by_class_and_model(value: Any, name: str) -> None:
    assert made(value).fingerprint.name == name
    assert made(value, name="mine").fingerprint.name == "mine"


def test_azures_deployments_have_names_of_their_own() -> None:
    openai = pytest.importorskip("langchain_openai")
    server = {"azure_endpoint": "https://one.openai.azure.com", "api_version": "2024-02-01", "api_key": "none"}
    for deployment in ("small", "large"):
        embeddings = openai.AzureOpenAIEmbeddings(azure_deployment=deployment, **server)
        assert _name_of_object(embeddings) == f"AzureOpenAIEmbeddings/text-embedding-ada-002/{deployment}"
    other = openai.OpenAIEmbeddings(api_key="none", model="text-embedding-3-small")
    assert _name_of_object(other) == "OpenAIEmbeddings/text-embedding-3-small"
