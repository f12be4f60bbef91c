"""Arguments of `InfiniteMemory` in LangChain's words: its embeddings, token counters and models."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import get_callback_manager_for_config

from shared_core.arguments import suggestion
from shared_core.doors.interop.adapters import ModelSummarizer, memory_arguments
from shared_core.errors import require, warn
from shared_core.memory import InfiniteMemory
from shared_core.plugins.base import INPUT_TOKENS, Embedder, Summarizer, TokenCounter
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.plugins.embedders import as_embedder as as_own_embedder
from shared_core.strippers import PASTED_CONTEXT
from shared_core.summaries.wording import SUMMARY_PROMPT
from shared_core.tokens import (
    CallableCounter,
    ConservativeCounter,
    TiktokenCounter,
    TokenFallbackWarning,
    as_counter,
)

__all__ = ["as_embedder", "as_summarizer", "as_token_counter"]

Rows = list[list[float]]
EmbeddingsLike = (
    Embedder | Embeddings | Callable[[list[str]], Rows] | Callable[[list[str]], Awaitable[Rows]] | str | None
)

MODEL_FIELDS = ("model", "model_name", "model_id", "deployment", "repo_id")
"""The attributes in which embeddings classes keep the name of their model."""


def as_embedder(embed: EmbeddingsLike, *, name: str | None = None) -> Embedder | None:
    """Return an embedder for `InfiniteMemory(embedder=...)`.

    Documents are embedded with `embed_documents` and questions with `embed_query`; asynchronous code awaits
    `aembed_documents` and `aembed_query`. One short text is embedded at first use to learn the dimension. Vectors of
    any length are normalized. Whatever the model raises becomes an `EmbedderError`, and so do vectors that are not
    finite or have another shape.

    Args:
        embed: an `Embeddings`; a function, sync or async, from a list of texts to as many vectors;
            `"provider:model"`, as for LangChain's `init_embeddings`; or what the engine accepts: an `Embedder`, the
            name of one of its own, or None, which is returned.
        name: identifies the vectors in the store. By default, the class and the model and deployment that it names;
            or the module and name of a function. Two models must not share a name, such as deployments of one name on
            two servers.

    Raises:
        MissingExtraError: `"provider:model"` needs the package `langchain`.
        ImportError: the provider's package is not installed.
        TypeError: it is none of these.
        ValueError: the function has no name of its own, such as a lambda, and no `name` is given.
    """
    if embed is None or isinstance(embed, Embedder):
        return embed
    if isinstance(embed, str):
        if ":" not in embed:
            return as_own_embedder(embed)
        require("langchain", 'pip install "infinite-memory[langchain]"')
        from langchain.embeddings import init_embeddings

        embed = init_embeddings(embed)
    if not isinstance(embed, Embeddings):
        if isinstance(embed, type) or not callable(embed):
            raise TypeError(f"embeddings must be Embeddings, a function, 'provider:model' or None, not {embed!r}")
        return CallableEmbedder(embed, name=name or _name_of_callable(embed))
    return CallableEmbedder(
        embed.embed_documents,
        name=name or _name_of_object(embed),
        query=embed.embed_query,
        adocuments=embed.aembed_documents,
        aquery=embed.aembed_query,
    )


def _name_of_object(embedder: object) -> str:
    inner = getattr(embedder, "underlying_embeddings", None)  # a cache returns the vectors of what it caches
    if isinstance(inner, Embeddings):
        return _name_of_object(inner)
    is_azures = any(cls.__name__.startswith("Azure") for cls in type(embedder).__mro__)
    # It is Azure's deployment that decides which model answers.
    deployment = getattr(embedder, "deployment", None) if is_azures else None
    return "/".join(filter(None, (type(embedder).__qualname__, _model_of(embedder), deployment)))


def _model_of(embedder: object) -> str:
    """Return the name of a model of embeddings; the empty text if it has none."""
    named = (getattr(embedder, field, None) for field in MODEL_FIELDS)
    return next((value for value in named if isinstance(value, str) and value), "")


def _name_of_callable(function: object) -> str | None:
    """Return a name for a callable that belongs to embeddings; None for any other function."""
    if inspect.ismethod(function) and _model_of(function.__self__):
        return f"{_name_of_object(function.__self__)}.{function.__name__}"
    return _name_of_object(function) if _model_of(function) and not inspect.isroutine(function) else None


TextCounter = TokenCounter | Callable[[str], int] | BaseLanguageModel[Any] | str | None


def as_token_counter(counter: TextCounter) -> TokenCounter:
    """Return a token counter for `InfiniteMemory(token_counter=...)`.

    Args:
        counter: a model of OpenAI, whose texts are counted with its tiktoken table; any other model, for which tokens
            are over-estimated with a `TokenFallbackWarning`, as most would ask a server or download GPT-2's tokenizer;
            `"approximate"` or `count_tokens_approximately` for a quarter of the characters; or what
            the engine accepts: a `TokenCounter`, a `callable(str) -> int`, the name of a tiktoken encoding or model, or
            None for its default.

    Raises:
        TypeError: it is something else.
        ValueError: the name is unknown.
    """
    if isinstance(counter, BaseLanguageModel):
        return _counter_of_model(counter)
    if counter == "approximate" or counter is count_tokens_approximately:
        return CallableCounter(lambda text: -(-len(text) // 4), "langchain/approximate")
    return as_counter(counter)


def _counter_of_model(model: Any) -> TokenCounter:
    if model.custom_get_token_ids is not None:
        return CallableCounter(model.get_num_tokens)
    if type(model).get_token_ids.__module__.startswith("langchain_openai."):
        try:
            return TiktokenCounter(model.tiktoken_model_name or model.model_name or "")
        except ValueError:  # tiktoken does not know the model
            return TiktokenCounter()
    warn(
        f"{type(model).__name__} is not asked to count tokens, which may send a request for each text; they are "
        'over-estimated. Pass token_counter="o200k_base", "approximate" or a callable(str) -> int, such as '
        "model.get_num_tokens",
        TokenFallbackWarning,
    )
    return ConservativeCounter()


RESERVE_TOKENS = inspect.signature(InfiniteMemory).parameters["reserve_tokens"].default

SummarizerLike = Runnable[Any, Any] | Summarizer

NOT_STREAMED: RunnableConfig = {"run_name": "summarize", "tags": ["nostream", "langsmith:nostream"]}
"""Names the summarizer's run in traces, and keeps it out of what LangGraph and LangSmith stream."""


def memory_settings(*, embeddings: EmbeddingsLike = None, token_counter: TextCounter = None,
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
