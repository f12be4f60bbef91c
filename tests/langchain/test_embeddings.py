"""Embeddings as LangChain users give them."""

import asyncio
import functools
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from langchain_infinite_memory import as_embedder
from langchain_infinite_memory.embeddings import _name_of_object
from shared_core import AsyncInfiniteMemory, Embedder, EmbedderError, InfiniteMemory, Message
from shared_core.plugins.embedders import StaticEmbedder
from shared_core.testing import HashingEmbedder


def row(text: str, by: float = 1.0) -> list[float]:
    """Three numbers that depend on the text, of a length that is not 1."""
    return [by * (1 + len(text)), by * text.count("a"), by * text.count("e")]


def unit(values: Sequence[float]) -> list[float]:
    return [float(x) for x in np.asarray(values, np.float32) / np.linalg.norm(values)]


class Recorded(Embeddings):
    """Documents and questions differ, and every call is noted."""

    def __init__(self, model: str | None = "small") -> None:
        self.model = model
        self.calls: list[tuple[str, object]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(("documents", list(texts)))
        return [row(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.calls.append(("query", text))
        return row(text + "eee")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        self.calls.append(("adocuments", list(texts)))
        return [row(text) for text in texts]

    async def aembed_query(self, text: str) -> list[float]:
        await asyncio.sleep(0)
        self.calls.append(("aquery", text))
        return row(text + "eee")


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


def test_documents_and_questions_go_their_own_ways() -> None:
    source = Recorded()
    embedder = made(source)
    assert embedder.fingerprint.key == "Recorded/small/3"
    assert same(embedder.embed_documents(["sea", "land"]), [unit(row("sea")), unit(row("land"))])
    assert same(embedder.embed_query("sea"), unit(row("seaeee")))
    assert source.calls == [("documents", ["dimension"]), ("documents", ["sea", "land"]), ("query", "sea")]


def test_async_code_awaits_the_embeddings_own_methods() -> None:
    source = Recorded()
    embedder = made(source)

    async def both() -> tuple[Any, Any]:
        return await embedder.aembed_documents(["sea"]), await embedder.aembed_query("sea")

    documents, question = asyncio.run(both())
    assert same(documents, [unit(row("sea"))])
    assert same(question, unit(row("seaeee")))
    assert [call for call in source.calls if call[0] != "documents"] == [("adocuments", ["sea"]), ("aquery", "sea")]


@pytest.mark.parametrize("function", [embed, aembed])
def test_a_function_embeds_both(function: Any) -> None:
    embedder = made(function)
    assert embedder.fingerprint.key == f"{__name__}.{function.__name__}/3"
    expected = [unit(row("sea")), unit(row("land"))]
    assert same(embedder.embed_documents(["sea", "land"]), expected)
    assert same(embedder.embed_query("land"), expected[1])

    async def both() -> tuple[Any, Any, Any]:
        inside = embedder.embed_documents(["sea"]) if function is aembed else None  # a loop is running here
        return await embedder.aembed_documents(["sea", "land"]), await embedder.aembed_query("sea"), inside

    documents, question, inside = asyncio.run(both())
    assert same(documents, expected)
    assert same(question, expected[0])
    assert inside is None or same(inside, expected[:1])


def test_a_name_without_a_provider_is_the_engines() -> None:
    pytest.importorskip("wordllama", exc_type=ImportError, reason="no wheel for this system")
    assert isinstance(as_embedder("static"), StaticEmbedder)


def test_a_provider_and_a_model_go_to_langchain() -> None:
    with pytest.raises(ValueError, match="no_such_provider"):
        as_embedder("no_such_provider:some-model")


WITHOUT_LANGCHAIN = """
    import sys
    sys.modules["langchain"] = None
    from langchain_infinite_memory import as_embedder
    try:
        as_embedder("openai:text-embedding-3-small")
    except ImportError as error:
        print(type(error).__name__, error.name, error)
"""


def test_without_langchain_the_extra_is_named() -> None:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(WITHOUT_LANGCHAIN)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    remedy = "langchain is not installed: pip install 'infinite-memory[langchain]'"
    assert run.stdout.strip() == f"MissingExtraError langchain {remedy}", run.stderr


@pytest.mark.parametrize("value", [3, [0.1], Recorded, object()])
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="'provider:model'"):
        as_embedder(value)


# Identity


class Cached(Embeddings):
    def __init__(self, underlying: Embeddings) -> None:
        self.underlying_embeddings = underlying
        self.embed_documents = underlying.embed_documents  # type: ignore[method-assign]
        self.embed_query = underlying.embed_query  # type: ignore[method-assign]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


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
def test_names(value: Any, name: str) -> None:
    assert made(value).fingerprint.name == name
    assert made(value, name="mine").fingerprint.name == "mine"


AZURE: Any = {"api_key": "none", "api_version": "2024-02-01"}
ONE, TWO = "https://one.openai.azure.com", "https://TWO.openai.azure.com/"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"azure_deployment": "small", "azure_endpoint": ONE}, "text-embedding-ada-002/small@one.openai.azure.com"),
        ({"azure_deployment": "large", "azure_endpoint": ONE}, "text-embedding-ada-002/large@one.openai.azure.com"),
        ({"azure_deployment": "small", "azure_endpoint": TWO}, "text-embedding-ada-002/small@two.openai.azure.com"),
        ({"model": "text-embedding-3-small", "azure_endpoint": ONE}, "text-embedding-3-small/one.openai.azure.com"),
        (
            {"base_url": f"{ONE}/openai/deployments/Small/"},
            "text-embedding-ada-002/one.openai.azure.com/openai/deployments/Small",
        ),
    ],
)
def test_azures_deployments_have_names_of_their_own(given: Any, name: str) -> None:
    openai = pytest.importorskip("langchain_openai")

    class Own(openai.AzureOpenAIEmbeddings):  # type: ignore[misc, name-defined]
        pass

    for cls in (openai.AzureOpenAIEmbeddings, Own):
        embeddings = cls(**AZURE, **given)
        assert _name_of_object(embeddings) == _name_of_object(cls(**AZURE, **given)) == f"{cls.__qualname__}/{name}"
    other = openai.OpenAIEmbeddings(api_key="none", model="text-embedding-3-small", deployment="x", base_url=ONE)
    assert _name_of_object(other) == "OpenAIEmbeddings/text-embedding-3-small", "as stored by earlier versions"


@pytest.mark.parametrize("value", [lambda texts: embed(texts), functools.partial(embed), Client().embed])
def test_a_function_without_a_name_of_its_own_needs_one(value: Any) -> None:
    with pytest.raises(ValueError, match=r"CallableEmbedder\(function, name="):
        as_embedder(value)
    assert same(made(value, name="mine").embed_query("sea"), unit(row("sea")))


def test_the_dimension_is_found_at_first_use() -> None:
    source = Recorded()
    embedder = made(source)
    assert source.calls == []
    assert embedder.fingerprint.dimension == 3
    assert made(DeterministicFakeEmbedding(size=7)).fingerprint.key == "DeterministicFakeEmbedding/7"


# What can go wrong


def bad(rows: Any) -> Any:
    def embed(texts: list[str]) -> Any:
        return [row(text) for text in texts] if texts == ["dimension"] else rows

    return embed


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([[float("nan"), 0.0, 1.0]], "not finite"),
        ([[1.0, 2.0]], r"the shape \(1, 2\)"),
        ([[1.0, 2.0, 3.0]] * 2, r"the shape \(2, 3\)"),
        ("text", "something else"),
    ],
)
def test_what_is_no_vector_is_an_embedder_error(rows: Any, wrong: str) -> None:
    with pytest.raises(EmbedderError, match=wrong):
        made(bad(rows)).embed_documents(["a"])


def test_what_the_model_raises_is_an_embedder_error() -> None:
    class Broken(Recorded):
        def embed_query(self, text: str) -> list[float]:
            raise TimeoutError("no answer")

        async def aembed_query(self, text: str) -> list[float]:
            raise TimeoutError("no answer")

    embedder = made(Broken())
    with pytest.raises(EmbedderError, match="Broken/small' failed with TimeoutError: no answer"):
        embedder.embed_query("a")
    with pytest.raises(EmbedderError, match="Broken/small' failed with TimeoutError: no answer"):
        asyncio.run(embedder.aembed_query("a"))


# In the engine


@pytest.mark.parametrize("value", [Recorded(), embed, aembed])
def test_the_engine_recalls_with_it(value: Any) -> None:
    with InfiniteMemory(embedder=as_embedder(value), min_score=-1.0) as memory:
        memory.add([Message.user("bbbb", id="b"), Message.user("aaaa", id="a"), Message.user("eeee", id="e")])
        memory.index()
        hits = memory.search("aaaaa" if not isinstance(value, Recorded) else "aa", 3)
    assert sorted(hit.message.id or "" for hit in hits) == ["a", "b", "e"]
    assert hits[0].message.id == ("e" if isinstance(value, Recorded) else "a")


def test_the_async_engine_awaits_it() -> None:
    source = Recorded()

    async def ask() -> list[str | None]:
        own = InfiniteMemory(embedder=as_embedder(source), min_score=-1.0)
        async with AsyncInfiniteMemory(own) as memory:
            await memory.add([Message.user(text, id=text) for text in ("bbbb", "aaaa", "eeee")])
            await memory.index()
            return [hit.message.id for hit in await memory.search("aa", 1)]

    assert asyncio.run(ask()) == ["eeee"]
    assert ("aquery", "aa") in source.calls
    assert "query" not in {kind for kind, _ in source.calls}
