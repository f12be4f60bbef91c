"""Which turns are most like a question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage, ToolMessage

from langchain_infinite_memory.embeddings import Function, as_embedder
from langchain_infinite_memory.messages import read_message
from shared_core.base import Embedder
from shared_core.embedders import as_embedder as as_own_embedder
from shared_core.errors import EmbedderError
from shared_core.index.vectors import ExactVectorIndex

__all__ = ["ranked", "text_of"]


def ranked(
    turns: Sequence[Sequence[BaseMessage]], question: str, embeddings: Embedder | Embeddings | Function | str | None
) -> list[int]:
    """Return the places of those turns that match a question, best first; of equals the newer first.

    A turn that says the same as a newer one does not count, nor does one below the embedder's floor.

    Raises:
        EmbedderError: there is no embedder, or it failed.
    """
    place_of = {text: place for place, turn in enumerate(turns) if (text := _said(turn))}
    if not place_of or not question.strip():
        return []
    embedder = as_embedder(embeddings) if embeddings is not None else as_own_embedder(None)
    if embedder is None:
        raise EmbedderError("top_k compares meanings and no embedder is installed: pass embeddings=")
    pieces = [embedder.split(text) for text in place_of]
    vectors = embedder.embed_documents([piece for split in pieces for piece in split])
    index = ExactVectorIndex(embedder.fingerprint.dimension)
    index.add(np.repeat(list(place_of.values()), [len(split) for split in pieces]), vectors)
    places, cosines = index.search(embedder.embed_query(question), len(place_of))
    return [int(place) for place, cosine in zip(places, cosines, strict=True) if cosine >= embedder.fingerprint.floor]


def text_of(message: BaseMessage) -> str:
    """Return what is said in a message, without media."""
    return read_message(message)[0].content


def _said(turn: Sequence[BaseMessage]) -> str:
    """Return what is compared: what was said, and what tools were asked, but not what they answered."""
    parts: list[Any] = []
    for message in turn:
        if not isinstance(message, ToolMessage):
            read = read_message(message)[0]
            parts += [read.content, *(f"{call.name} {call.arguments}" for call in read.tool_calls)]
    return " ".join(filter(None, parts)).strip()
