"""Arguments of `InfiniteMemory` in LangChain's words: its embeddings, token counters and models."""

import inspect
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import get_callback_manager_for_config

from langchain_infinite_memory.embeddings import EmbeddingsLike, as_embedder
from langchain_infinite_memory.token_counters import TextCounter, as_token_counter
from shared_core.arguments import suggestion
from shared_core.doors.interop.adapters import ModelSummarizer, memory_arguments
from shared_core.memory import InfiniteMemory
from shared_core.plugins.base import INPUT_TOKENS, Summarizer
from shared_core.strippers import PASTED_CONTEXT
from shared_core.summaries.wording import SUMMARY_PROMPT

__all__ = ["as_summarizer"]

RESERVE_TOKENS = inspect.signature(InfiniteMemory).parameters["reserve_tokens"].default

SummarizerLike = Runnable[Any, Any] | Summarizer

NOT_STREAMED: RunnableConfig = {"run_name": "summarize", "tags": ["nostream", "langsmith:nostream"]}
"""Names the summarizer's run in traces, and keeps it out of what LangGraph and LangSmith stream."""


def memory_settings(
    *, embeddings: EmbeddingsLike = None, token_counter: TextCounter = None,
    summarizer: SummarizerLike | None = None, **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return arguments for `InfiniteMemory` and `SessionPool`; `embeddings` is the engine's `embedder`.

    An agent or a chain has to go on, so `on_overflow` is `"keep"` unless another is given: a question that does not fit
    is sent all the same, and the report says so. Documents that a known template pasted around a question are set
    apart, unless other `strippers` are given.

    Raises:
        TypeError: an argument is unknown, or both `embeddings` and `embedder` are given.
        TypeError, ValueError, ImportError: as for `as_embedder`, `as_token_counter` and `as_summarizer`.
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
    return {"on_overflow": "keep", "strippers": (PASTED_CONTEXT,), **settings}


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
