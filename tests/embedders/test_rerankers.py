"""What `reranker=` accepts, and a cross-encoder of the real architecture, small and with random weights."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import MissingExtraError, RerankerError
from shared_core.plugins.reranker import CrossEncoderReranker, as_reranker
from tests.embedders.test_embedders import weights_folder

TEXTS = ["Ann: my locker code is 4471", "assistant: noted", "Ann: the weather is fine today", "Ann: see you in June"]


def cross_encoder(folder: Path, labels: int = 1) -> Path:
    """Save a small untrained cross-encoder with MiniLM's words."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    library = pytest.importorskip("sentence_transformers")
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(weights_folder() / name, folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=64,
        num_labels=labels, initializer_range=1.0,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    library.CrossEncoder(str(folder), device="cpu").save_pretrained(str(folder))
    return folder


@pytest.mark.model
class TestCrossEncoder:
    def test_it_returns_what_the_library_does(self, tmp_path: Path) -> None:
        folder = cross_encoder(tmp_path / "model")
        library = pytest.importorskip("sentence_transformers")
        expected = library.CrossEncoder(str(folder), device="cpu").predict([("my code?", text) for text in TEXTS])
        found = CrossEncoderReranker(str(folder))("my code?", TEXTS)
        assert list(found) == pytest.approx([float(score) for score in expected], abs=1e-6)
        assert len(set(found)) == len(TEXTS)
        assert CrossEncoderReranker(str(folder))("lone \ud800", ["\udfff surrogates", "word " * 900])

    def test_several_labels_are_no_scores(self, tmp_path: Path) -> None:
        reranker = CrossEncoderReranker(str(cross_encoder(tmp_path / "model", labels=3)))
        with pytest.raises(RerankerError, match="3 labels"):
            reranker("my code?", TEXTS)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("cross-encoder/none", "HF_HUB_OFFLINE"),
        ("./none", "there is no such folder; pass the folder or the full hub name"),
        ("empty", "the folder holds no model: no file modules.json or config.json; pass the folder or"),
    ],
)
def test_a_model_that_is_nowhere_is_a_note_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, reason: str
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    [note] = asked(model)
    assert note.startswith(f"not reranked: reranker={model!r}: ")
    assert reason in note


def test_without_the_library_the_note_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.errors.installed", lambda package: False)
    with pytest.raises(MissingExtraError, match=r"infinite-memory\[sentence-transformers\]"):
        CrossEncoderReranker("org/other")("question", TEXTS)
    [note] = asked("org/other")
    assert note.endswith('pip install "infinite-memory[sentence-transformers]"')


def asked(model: str) -> tuple[str, ...]:
    """What the report on a question says that could not be done."""
    settings: dict[str, Any] = {"max_tokens": 200, "reserve_tokens": 0}
    with InfiniteMemory(embedder="words", reranker=model, **settings) as memory:
        memory.add([Message.user(f"locker {number} is in row {number}") for number in range(20)])
        return memory.context("which row is locker 3 in?").report.degraded


def test_a_name_is_one_object_and_a_function_is_itself() -> None:
    given: Callable[[str, Any], list[float]] = lambda query, texts: [0.0] * len(texts)  # noqa: E731
    assert as_reranker(given) is given
    assert as_reranker("org/model") is as_reranker("org/model")
