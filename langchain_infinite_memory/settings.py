"""Arguments of `InfiniteMemory` in LangChain's words: its embeddings, token counters, models and compressors."""

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import get_callback_manager_for_config

from langchain_infinite_memory.embeddings import EmbeddingsLike, as_embedder
from langchain_infinite_memory.token_counters import TextCounter, as_token_counter
from shared_core.arguments import suggestion
from shared_core.doors.interop.adapters import Kept, ModelSummarizer, OrderReranker, memory_arguments
from shared_core.memory import InfiniteMemory
from shared_core.plugins.base import INPUT_TOKENS, Reranker, Summarizer, SummarizerModel
from shared_core.plugins.reranker import as_reranker as as_own_reranker
from shared_core.strippers import PASTED_CONTEXT
from shared_core.summaries.wording import SUMMARY_PROMPT

__all__ = ["as_reranker", "as_summarizer"]

RESERVE_TOKENS = inspect.signature(InfiniteMemory).parameters["reserve_tokens"].default

Given = TypeVar("Given", bound=Summarizer)

SummarizerLike = Runnable[Any, Any] | Summarizer
RerankerLike = BaseDocumentCompressor | Reranker | str

GIVEN = "infinite_memory_text"
"""The entry of a document's metadata that tells which text it is. Compressors keep metadata, and seldom ids."""

SCORE = "relevance_score"
"""The entry in which LangChain's rerankers put a document's score."""

NOT_STREAMED: RunnableConfig = {"run_name": "summarize", "tags": ["nostream", "langsmith:nostream"]}
"""Names the summarizer's run in traces, and keeps it out of what LangGraph and LangSmith stream."""


def memory_settings(
    *, embeddings: EmbeddingsLike = None, token_counter: TextCounter = None,
    summarizer: SummarizerLike | None = None, reranker: RerankerLike | None = None, **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return arguments for `InfiniteMemory` and `SessionPool`; `embeddings` is the engine's `embedder`.

    An agent or a chain has to go on, so `on_overflow` is `"keep"` unless another is given: a question that does not fit
    is sent all the same, and the report says so. Documents that a known template pasted around a question are set
    apart, unless other `strippers` are given.

    Raises:
        TypeError: an argument is unknown, or both `embeddings` and `embedder` are given.
        TypeError, ValueError, ImportError: as for `as_embedder`, `as_token_counter`, `as_summarizer` and `as_reranker`.
    """
    if "memory" in settings:
        raise TypeError("memory: this argument is called store=")
    known = memory_arguments() - {"self", "store"}
    if unknown := sorted(settings.keys() - known):
        advice = suggestion(unknown[0], known | {"embeddings"}) or ": see the arguments of InfiniteMemory"
        raise TypeError(f"unknown argument {', '.join(map(repr, unknown))}{advice}")
    if embeddings is not None:
        if settings.get("embedder") is not None:
            raise TypeError("embeddings and embedder are the same thing: pass one of them")
        settings["embedder"] = as_embedder(embeddings)
    if token_counter is not None:
        settings["token_counter"] = as_token_counter(token_counter)
    if summarizer is not None:
        settings["summarizer"] = as_summarizer(summarizer)
    if reranker is not None:
        settings["reranker"] = as_reranker(reranker)
    return {"on_overflow": "keep", "strippers": (PASTED_CONTEXT,), **settings}


@overload
def as_summarizer(model: Runnable[Any, Any], *, prompt: str = ..., input_tokens: int = ...) -> SummarizerModel: ...


@overload
def as_summarizer(model: Given, *, prompt: str = ..., input_tokens: int = ...) -> Given: ...


def as_summarizer(
    model: SummarizerLike, *, prompt: str = SUMMARY_PROMPT, input_tokens: int = INPUT_TOKENS
) -> Summarizer:
    """Return a summarizer for `InfiniteMemory(summarizer=...)` and for `merge(..., summarizer=...)`.

    Args:
        model: a chat model, or another `Runnable` that takes a text and returns a message or a text; or a function of
            the summary so far (or None) and messages of the engine, which is returned as it is.
        prompt: what the model is told; `{previous}` and `{messages}` are filled in. A merge asks a question of its own.
        input_tokens: the largest input of one call of the model, in tokens. The summary may take an eighth of it.

    Raises:
        TypeError: it is none of these.
    """
    if not isinstance(model, Runnable):
        if isinstance(model, type) or not callable(model):
            raise TypeError(f"summarizer must be a chat model, another Runnable or a function, not {model!r}")
        return model

    async def acomplete(text: str) -> str:
        return _text(await model.ainvoke(text, _not_streamed()))

    return ModelSummarizer(lambda text: _text(model.invoke(text, _not_streamed())), acomplete, prompt, input_tokens)


def _not_streamed() -> RunnableConfig:
    """Return a configuration for a child of the current run that traces show, and that no stream of the run does.

    Tags alone do not keep a run out of `astream_events`.
    """
    manager = get_callback_manager_for_config(ensure_config())
    for handler in list(manager.handlers):
        if hasattr(handler, "tap_output_aiter"):  # what LangChain and LangGraph stream with
            manager.remove_handler(handler)
    return {**NOT_STREAMED, "callbacks": manager}


def _text(answer: Any) -> str:
    said = answer.text if isinstance(answer, BaseMessage) else answer
    if not isinstance(said, str):
        raise TypeError(f"the summarizer's model returned {type(answer).__name__}, not a message or a text")
    return str(said)


def as_reranker(reranker: RerankerLike) -> Reranker:
    """Return a reranker for `InfiniteMemory(reranker=...)`.

    Args:
        reranker: a document compressor, such as a cross-encoder or the client of a service; or what the engine accepts:
            a function of a question and texts that returns a score for each text, or the name of a cross-encoder. What
            a compressor drops goes to the end, and a text that it shortens is recalled as it was. The
            `"relevance_score"` of its documents is the score in the report.

    Raises:
        TypeError: it is none of these.
        ValueError: the name is empty.
    """
    if not isinstance(reranker, BaseDocumentCompressor):
        return as_own_reranker(reranker)

    def order(query: str, texts: Sequence[str]) -> Kept:
        return _kept(reranker.compress_documents(_documents(texts), query, _not_streamed()["callbacks"]))

    async def aorder(query: str, texts: Sequence[str]) -> Kept:
        return _kept(await reranker.acompress_documents(_documents(texts), query, _not_streamed()["callbacks"]))

    return OrderReranker(order, aorder)


def _documents(texts: Sequence[str]) -> list[Document]:
    return [Document(text, id=str(index), metadata={GIVEN: index}) for index, text in enumerate(texts)]


def _kept(documents: Sequence[Document]) -> Kept:
    if any(GIVEN not in document.metadata for document in documents):
        raise TypeError("the compressor returned documents without the metadata of those that it was given")
    return [(document.metadata[GIVEN], document.metadata.get(SCORE)) for document in documents]
