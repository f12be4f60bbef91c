"""Static word vectors: offline, without torch, thousands of messages a second."""

import logging
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from shared_core.errors import installed, require
from shared_core.plugins.base import Embedder, Fingerprint, Vectors
from shared_core.plugins.embedding import encodable, unit_length

STATIC = Fingerprint("wordllama/l2_supercat", 256, floor=0.20, threshold=0.40, weight=0.5, unrelated=(0.28, 0.15))
"""Measured. The floor keeps 89 % of the evidence and 42 % of everything else in LoCoMo, and 92 % and 76 % in BEAM,
whose chats stay on one topic. The threshold has the best F score for finding one exchange of LoCoMo among 19 others.
The weight is the best one on held-out conversations."""

_LOADING = threading.Lock()


def static_available() -> bool:
    """Return whether wordllama is installed, without importing it."""
    return installed("wordllama")


class StaticEmbedder(Embedder):
    """The mean of wordllama's static word vectors: offline, without torch, thousands of messages a second.

    Texts of any length are read whole: measurements showed no gain from cutting them into pieces. A text without
    tokens, such as the empty one, becomes a row of zeros, whose cosine with everything is 0. The vectors are loaded at
    first use, once per process.

    Raises:
        MissingExtraError: wordllama is not installed.
    """

    fingerprint = STATIC
    at_once = True

    def __init__(self) -> None:
        require("wordllama", "pip install wordllama, or, where it has no wheel, use another embedder")

    def load(self) -> None:
        """Load the vectors, as in `Embedder.load`."""
        with _LOADING:
            _wordllama()

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as in `Embedder.embed_documents`. Each row depends on its own text alone, to the last bit."""
        sums = np.zeros((len(texts), STATIC.dimension))
        with _LOADING:
            model = _wordllama()
        for first in range(0, len(texts), 256):
            batch = [encodable(text) for text in texts[first : first + 256]]
            for row, tokens in enumerate(_encoded(model.tokenizer, batch), first):
                ids = tokens.ids  # every access makes the whole list anew
                for block in range(0, len(ids), 4096):  # a megabyte of text has a million tokens
                    sums[row] += model.embedding[ids[block : block + 4096]].sum(axis=0)
        return unit_length(sums)


def _encoded(tokenizer: Any, texts: Sequence[str]) -> Sequence[Any]:
    """Return the tokens of each text. A single text, such as a question, does not start the tokenizer's threads."""
    if len(texts) == 1:
        return [tokenizer.encode(texts[0], add_special_tokens=False)]
    found: Sequence[Any] = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return found


@lru_cache(maxsize=1)
def _wordllama() -> Any:
    handler = logging.NullHandler()
    logging.root.addHandler(handler)  # with a handler present, importing wordllama does not configure logging
    try:
        import wordllama
    finally:
        logging.root.removeHandler(handler)
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    model.tokenizer.no_padding()
    return model
