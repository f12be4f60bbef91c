"""What is compared: our memory, and rankings that others use, over one conversation each."""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from recall_measures import Piece
from recall_talks import Talk

from shared_core import InfiniteMemory
from shared_core.evaluation.runner import texts_of
from shared_core.plugins.base import Embedder, Fingerprint, TokenCounter, Vectors
from shared_core.prompt.hits import Kind

__all__ = [
    "BM25", "Dense", "Fused", "Ours", "Prompt", "Ranker", "Remembering", "Window", "exchanges", "peers", "plain_peers",
]  # fmt: skip

TOP_K = 400
"""Messages that a search is asked for: enough to fill 4,000 tokens with the short lines of a meeting."""


class Ranker(Protocol):
    """Ranks the messages of one conversation."""

    def rank(self, question: str) -> list[Piece]:
        """Return what is to be brought back, best first."""


class Remembering(Embedder):
    """Embeds a text only once.

    Args:
        embedder: what makes the vectors.
        file: where they are kept for the next run, under hashes of the texts; None: nowhere.
    """

    def __init__(self, embedder: Embedder, file: Path | None = None) -> None:
        self.embedder = embedder
        self._fingerprint = embedder.fingerprint
        self._file = file
        self._rows: dict[str, Vectors] = {}
        if file is not None and file.exists():
            with np.load(file) as kept:
                self._rows = dict(zip(kept["hashes"].tolist(), kept["vectors"], strict=True))

    @property
    def fingerprint(self) -> Fingerprint:
        """The embedder's."""
        return self._fingerprint

    def weighing(self, weight: float) -> "Remembering":
        """Return the same with another weight of meaning against words."""
        other = Remembering(self.embedder)
        other._fingerprint, other._rows = replace(self._fingerprint, weight=weight), self._rows
        return other

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, as `Embedder.embed_documents`."""
        keys = [_hash(text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if new:
            self._rows |= zip(new, self.embedder.embed_documents(list(new.values())), strict=True)
        rows: Vectors = np.array([self._rows[key] for key in keys], dtype=np.float32)
        return rows.reshape(len(texts), self._fingerprint.dimension)

    def embed_query(self, text: str) -> Vectors:
        """Embed a question, as `Embedder.embed_query`."""
        key = _hash(f"query\0{text}")
        if key not in self._rows:
            self._rows[key] = self.embedder.embed_query(text)
        return self._rows[key]

    def split(self, text: str) -> list[str]:
        """Split a text, as `Embedder.split`."""
        return self.embedder.split(text)

    def save(self) -> None:
        """Keep the vectors for the next run."""
        if self._file is not None and self._rows:
            np.savez(self._file, hashes=np.array(list(self._rows)), vectors=np.array(list(self._rows.values())))


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Prompt(NamedTuple):
    """What is in a prompt.

    Attributes:
        places: of the messages of the conversation.
        window: of those that are there without being recalled.
        texts: what is there of each, without names, dates, and the marks of excerpts.
        recalled: the tokens of what was recalled, with its wording.
        tokens: those of the whole prompt.
    """

    places: frozenset[int]
    window: frozenset[int]
    texts: tuple[str, ...]
    recalled: int
    tokens: int


class Ours:
    """Our memory, through its public face.

    Args:
        talk: the conversation.
        embedder: None: words alone.
        holding: how many messages it holds at first; None: all.
        arguments: for the memory.
    """

    def __init__(self, talk: Talk, embedder: Embedder | None, *, holding: int | None = None, **arguments: Any) -> None:
        self._talk = talk
        self._places: dict[str | None, int] = {message.id: place for place, message in enumerate(talk.messages)}
        self._memory = InfiniteMemory(embedder=embedder or "words", reserve_tokens=0, **arguments)
        self._held = 0
        self.hold(len(talk.messages) if holding is None else holding)

    def __enter__(self) -> "Ours":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._memory.close()

    def rank(self, question: str) -> list[Piece]:
        """Return what `search` finds, best first."""
        places = [self._places[hit.message.id] for hit in self._memory.search(question, TOP_K)]
        return [Piece((place,), self._talk.tokens[place]) for place in places]

    def hold(self, count: int) -> None:
        """Add messages until the memory holds so many."""
        if count > self._held:
            self._memory.add(self._talk.messages[self._held : count])
            self._memory.index()
            self._held = count

    def prompt(self, question: str, budget: int) -> Prompt:
        """Return what is in the prompt for a question, the whole of which takes at most `budget`."""
        self._memory.max_tokens = budget
        report = self._memory.context(question).report
        texts = [(id_, text) for id_, text in texts_of(report) if id_ is not None]
        places = frozenset(self._places[id_] for id_, _ in texts)
        window = places - {self._places.get(line.id) for line in report.included if line.kind == Kind.RECALLED}
        texts_alone = tuple(text for _, text in texts)
        return Prompt(places, window, texts_alone, report.totals[Kind.RECALLED], report.total_tokens)


class Window:
    """The newest first."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = list(reversed(pieces))

    def rank(self, question: str) -> list[Piece]:
        """Return all, newest first."""
        return self._pieces


class Dense:
    """The nearest first, by the cosine of whole texts."""

    def __init__(self, pieces: Sequence[Piece], texts: Sequence[str], embedder: Embedder) -> None:
        self._pieces = pieces
        self._embedder = embedder
        self._vectors = embedder.embed_documents(texts)

    def rank(self, question: str) -> list[Piece]:
        """Return all, nearest first."""
        cosines = self._vectors @ self._embedder.embed_query(question)
        return [self._pieces[at] for at in np.argsort(-cosines, kind="stable").tolist()]


class BM25:
    """Those that share words with the question, by Okapi BM25 as Lucene has it: k1 1.2, b .75."""

    def __init__(self, pieces: Sequence[Piece], texts: Sequence[str]) -> None:
        self._pieces = pieces
        documents = list(map(_counted, texts))
        lengths = np.array([sum(document.values()) for document in documents], dtype=np.float64)
        norms = 1.2 * (1 - 0.75 + 0.75 * lengths / max(lengths.mean(), 1e-9))
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, document in enumerate(documents):
            for word, frequency in document.items():
                found[word].append((at, frequency))
        self._parts: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = {}
        for word, postings in found.items():
            rows, frequencies = np.array(postings).T
            idf = math.log1p((len(texts) - len(rows) + 0.5) / (len(rows) + 0.5))
            self._parts[word] = rows, idf * frequencies * 2.2 / (frequencies + norms[rows])

    def rank(self, question: str) -> list[Piece]:
        """Return what shares a word with the question, best first."""
        scores = np.zeros(len(self._pieces))
        for word in _words(question):
            if word in self._parts:
                rows, parts = self._parts[word]
                scores[rows] += parts
        return [self._pieces[at] for at in np.argsort(-scores, kind="stable").tolist() if scores[at] > 0]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@lru_cache(maxsize=65_536)
def _counted(text: str) -> Counter[str]:
    return Counter(_words(text))


class Fused:
    """Two rankings by reciprocal rank fusion, k 60."""

    def __init__(self, *rankers: Ranker) -> None:
        self._rankers = rankers

    def rank(self, question: str) -> list[Piece]:
        """Return what either ranking holds, best first."""
        scores: defaultdict[Piece, float] = defaultdict(float)
        for ranker in self._rankers:
            for place, piece in enumerate(ranker.rank(question), start=1):
                scores[piece] += 1 / (60 + place)
        return sorted(scores, key=lambda piece: (-scores[piece], piece))


def exchanges(talk: Talk) -> list[tuple[int, ...]]:
    """Return the places of each user message and what answers it; between people, messages two by two in a session."""
    if talk.has_assistant:
        starts = [place for place, message in enumerate(talk.messages) if not place or message.role == "user"]
    else:
        opened = [place for place, (a, b) in enumerate(pairwise(talk.sessions), start=1) if a != b]
        bounds = pairwise([0, *opened, len(talk.messages)])
        starts = [start for first, end in bounds for start in range(first, end, 2)]
    return [tuple(range(first, end)) for first, end in pairwise([*starts, len(talk.messages)])]


def plain_peers(talk: Talk, embedder: Embedder | None, *, named: bool = False) -> dict[str, Ranker]:
    """Return the rankings of single messages; without an embedder those that need none.

    Args:
        talk: the conversation.
        embedder: makes the vectors.
        named: whether they read `speaker: text` instead of the text alone.
    """
    suffix = ", named" if named else ""
    texts = [f"{message.name or message.role}: " * named + message.content for message in talk.messages]
    pieces = [Piece((place,), tokens) for place, tokens in enumerate(talk.tokens)]
    words = BM25(pieces, texts)
    found: dict[str, Ranker] = {"sliding window": Window(pieces), f"BM25{suffix}": words}
    if embedder is None:
        return found
    dense = Dense(pieces, texts, embedder)
    return found | {f"dense{suffix}": dense, f"RRF{suffix}": Fused(words, dense)}


def peers(talk: Talk, embedder: Embedder | None, count: TokenCounter) -> dict[str, Ranker]:
    """Return the rankings that ours is compared with; without an embedder those that need none.

    LangChain's keeps "input: …, output: …" of an exchange as one document and returns the document; LlamaIndex's keeps
    the texts of an exchange as one document and returns its messages.
    """
    found = plain_peers(talk, embedder) | plain_peers(talk, embedder, named=True)
    if embedder is None:
        return found
    return found | {
        "LangChain VectorStoreRetrieverMemory": _langchain(talk, embedder, count),
        "LlamaIndex VectorMemory": _llama_index(talk, embedder),
    }


def _langchain(talk: Talk, embedder: Embedder, count: TokenCounter) -> Ranker:
    spoken = exchanges(talk)
    labels = [["input", *("output" for _ in places[1:])] for places in spoken]
    texts = [
        "\n".join(f"{label}: {talk.messages[place].content}" for label, place in zip(names, places, strict=True))
        for names, places in zip(labels, spoken, strict=True)
    ]
    return Dense([Piece(places, count(text)) for places, text in zip(spoken, texts, strict=True)], texts, embedder)


def _llama_index(talk: Talk, embedder: Embedder) -> Ranker:
    spoken = exchanges(talk)
    pieces = [Piece(places, sum(talk.tokens[place] for place in places)) for places in spoken]
    return Dense(pieces, [" ".join(talk.messages[place].content for place in places) for places in spoken], embedder)
