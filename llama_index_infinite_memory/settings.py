"""Arguments of `InfiniteMemory` in LlamaIndex's words: its tokenizer, embeddings, models and postprocessors."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, overload

import tiktoken
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.utils import get_tokenizer

from llama_index_infinite_memory import strippers as known_strippers
from llama_index_infinite_memory.content import MEDIA_ARGUMENTS, MEDIA_TOKENS
from llama_index_infinite_memory.embeddings import as_embedder
from llama_index_infinite_memory.strippers import Stripper
from shared_core.arguments import suggestion, whole_number
from shared_core.display import shown
from shared_core.doors.interop.adapters import Kept, ModelSummarizer, OrderReranker, memory_arguments
from shared_core.plugins.base import INPUT_TOKENS, Embedder, Reranker, Summarizer, SummarizerModel
from shared_core.plugins.reranker import as_reranker as as_own_reranker
from shared_core.pool import SessionPool
from shared_core.summaries.wording import SUMMARY_PROMPT

__all__ = ["as_reranker", "as_summarizer"]

Tokenizer = Callable[[str], Sized]
EmbedModel = Embedder | BaseEmbedding | Callable[[list[str]], Any] | str | None
SummarizerLike = BaseLLM | Summarizer
RerankerLike = BaseNodePostprocessor | Reranker | str
Given = TypeVar("Given", bound=Summarizer)

_FIXED = {
    "store", "session_id", "user_id", "max_tokens", "reserve_tokens", "token_counter", "embedder",
}  # fmt: skip
"""Arguments of the engine that a buffer sets itself, or that have another name here."""

SEPARATOR = " "
"""What `ChatMemoryBuffer` puts between messages before it counts them as one text."""

TOKENIZED_CHARACTERS = 20_000
"""Characters given to tiktoken at once: it panics on a million of white space."""


# Counting


class TokenizerCounter:
    """Counts a text with the space before it, so that messages joined by spaces never count more than their sum.

    Counts are stored if the tokenizer is LlamaIndex's default; others cannot be identified.

    Args:
        tokenizer_fn: takes a text and returns its tokens.
    """

    def __init__(self, tokenizer_fn: Callable[[str], Sized]) -> None:
        self.tokenizer_fn = tokenizer_fn
        self.overhead = 0
        encoding = _default_encoding(tokenizer_fn)
        self.name = f"llama-index/{encoding}" if encoding else None

    def __call__(self, text: str, /) -> int:
        """Return the tokens of the text after a space, or alone if that is more: the first message has no space."""
        return max(self.tokens(SEPARATOR + text), self.tokens(text))

    def tokens(self, text: str) -> int:
        """Return the number of tokens of the text alone."""
        if self.name is None or len(text) <= TOKENIZED_CHARACTERS:
            return len(self.tokenizer_fn(text))
        return sum(
            len(self.tokenizer_fn(text[at : at + TOKENIZED_CHARACTERS]))
            for at in range(0, len(text), TOKENIZED_CHARACTERS)
        )


def _default_encoding(tokenizer_fn: Callable[[str], Sized]) -> str | None:
    """Return the name of the encoding if a tokenizer is made as LlamaIndex makes its default one."""
    encoding = getattr(tokenizer_fn.func, "__self__", None) if isinstance(tokenizer_fn, partial) else None
    if not isinstance(tokenizer_fn, partial) or not isinstance(encoding, tiktoken.Encoding):
        return None
    made_so = (tokenizer_fn.func, tokenizer_fn.args, tokenizer_fn.keywords)
    return encoding.name if made_so == (encoding.encode, (), {"allowed_special": "all"}) else None


# Settings


@dataclass(frozen=True)
class Settings:
    """The settings of a conversation's memory.

    Attributes:
        tokenizer_fn: counts tokens.
        embed_model: finds older messages by meaning.
        strippers: set apart text that only served one turn; None: `DEFAULT_STRIPPERS`.
        others: the other arguments, by name: those of `InfiniteMemory`, and what media cost.
    """

    tokenizer_fn: Tokenizer = field(default_factory=get_tokenizer)
    embed_model: EmbedModel = None
    strippers: tuple[Stripper, ...] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, *, tokenizer_fn: Tokenizer | None = None, embed_model: EmbedModel = None,
        strippers: Iterable[Stripper] | None = None, store: object = None, **others: Any,
    ) -> "Settings":  # fmt: skip
        """Return settings, with defaults for what is None; those of a `SessionPool` as `store` are defaults, too.

        Raises:
            ValueError: an argument is unknown, or one of those checked here is out of range.
        """
        refuse_unknown(others)
        check_tokenizer(tokenizer_fn)
        for name in MEDIA_ARGUMENTS.values():
            whole_number(name, others.get(name, 0), least=0)
        shared = store.settings if isinstance(store, SessionPool) else {}
        inherited = {name: value for name, value in shared.items() if name not in {*_FIXED, "strippers"}}
        model = shared.get("embedder") if embed_model is None else embed_model
        chosen = shared.get("strippers") if strippers is None else strippers
        return cls(
            tokenizer_fn or get_tokenizer(), model, None if chosen is None else tuple(chosen), {**inherited, **others}
        )

    @property
    def counter(self) -> TokenizerCounter:
        """The token counter."""
        return TokenizerCounter(self.tokenizer_fn)

    @cached_property
    def media(self) -> Mapping[str, int]:
        """What a block costs in tokens, by its type: one of `MEDIA_TOKENS`."""
        return {kind: self.others.get(name, MEDIA_TOKENS[kind]) for kind, name in MEDIA_ARGUMENTS.items()}

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `of` that these settings stand for."""
        named = {"tokenizer_fn": self.tokenizer_fn, "embed_model": self.embed_model, "strippers": self.strippers}
        return {**named, **self.others}

    @property
    def key(self) -> tuple[object, ...]:
        """What the settings of two memories have in common exactly if they are the same; objects stand as their ids."""
        values = {**self.given, "strippers": None}
        plain = ((name, value if _is_plain(value) else id(value)) for name, value in sorted(values.items()))
        return (*plain, self.strippers)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `InfiniteMemory`."""
        given = {n: v for n, v in self.others.items() if n not in MEDIA_ARGUMENTS.values()}
        if given.get("summarizer") is not None:
            given["summarizer"] = as_summarizer(given["summarizer"])
        if given.get("reranker") is not None:
            given["reranker"] = as_reranker(given["reranker"])
        return {
            "placement": "messages",
            "on_overflow": "keep",
            **given,
            "reserve_tokens": 0,
            "token_counter": self.counter,
            "strippers": known_strippers.DEFAULT_STRIPPERS if self.strippers is None else self.strippers,
            "embedder": "words" if self.embed_model == "words" else as_embedder(self.embed_model),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON data, without tokenizers, models and other objects."""
        data = {name: value for name, value in self.others.items() if _is_plain(value)}
        if isinstance(self.embed_model, str):
            data["embed_model"] = self.embed_model
        if self.strippers is not None:
            data["strippers"] = [stripper.name for stripper in self.strippers]
        return data

    def unwritten(self) -> list[str]:
        """Return the names of the arguments that `to_dict` cannot write."""
        names = [name for name, value in self.others.items() if not _is_plain(value)]
        names += ["tokenizer_fn"] if self.counter.name is None else []
        names += [] if self.embed_model is None or isinstance(self.embed_model, str) else ["embed_model"]
        names += ["strippers"] if set(self.strippers or ()) - set(_known_strippers().values()) else []
        return sorted(names)


def written_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Settings.of` that `Settings.to_dict` wrote."""
    names = data.get("strippers")
    known = _known_strippers()
    chosen = None if names is None else [known[name] for name in names if name in known]
    return {**data, "strippers": chosen}


def _known_strippers() -> dict[str, Stripper]:
    return {value.name: value for value in vars(known_strippers).values() if isinstance(value, Stripper)}


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def check_tokenizer(tokenizer_fn: object) -> None:
    """Raise TypeError unless it can be called, or is None."""
    if tokenizer_fn is not None and not callable(tokenizer_fn):
        raise TypeError(f"{shown('tokenizer_fn', tokenizer_fn)}: expected a function from a text to a list of tokens")


def refuse_unknown(given: Mapping[str, Any]) -> None:
    """Raise the error of `ChatMemoryBuffer` if an argument is unknown."""
    accepted = memory_arguments() - _FIXED | set(MEDIA_ARGUMENTS.values())
    unknown = {name: value for name, value in given.items() if name not in accepted}
    if unknown:
        near = suggestion(
            next(iter(unknown)), accepted | {"token_limit", "tokenizer_fn", "embed_model", "session_id", "store"}
        )
        raise ValueError(f"Unexpected kwargs: {unknown}{near}")


# Summaries


@overload
def as_summarizer(llm: BaseLLM, *, prompt: str = ..., input_tokens: int = ...) -> SummarizerModel: ...


@overload
def as_summarizer(llm: Given, *, prompt: str = ..., input_tokens: int = ...) -> Given: ...


def as_summarizer(llm: SummarizerLike, *, prompt: str = SUMMARY_PROMPT, input_tokens: int = INPUT_TOKENS) -> Summarizer:
    """Return a summarizer for `InfiniteMemory(summarizer=...)` and for `merge(..., summarizer=...)`.

    Args:
        llm: any `LLM`; or a function of the summary so far (or None) and messages of the engine, which is returned as
            it is.
        prompt: what the model is told; `{previous}` and `{messages}` are filled in. A merge asks a question of its own.
        input_tokens: the largest input of one call of the model, in tokens. The summary may take an eighth of it.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(llm, BaseLLM):
        return _model_summarizer(llm, prompt, input_tokens)
    if isinstance(llm, type) or not callable(llm):
        raise TypeError(f"summarizer must be an LLM or a function, not {llm!r}")
    return llm


def _model_summarizer(llm: BaseLLM, prompt: str, input_tokens: int) -> SummarizerModel:
    async def acomplete(text: str) -> str:
        return (await llm.acomplete(text)).text

    return ModelSummarizer(lambda text: llm.complete(text).text, acomplete, prompt, input_tokens)


# Reranking


def as_reranker(reranker: RerankerLike) -> Reranker:
    """Return a reranker for `InfiniteMemory(reranker=...)`.

    Args:
        reranker: a node postprocessor, such as a cross-encoder or the client of a service; or what the engine accepts:
            a function of a question and texts that returns a score for each text, or the name of a cross-encoder. What
            a postprocessor drops goes to the end, and a text that it changes is recalled as it was. The scores of its
            nodes are those in the report.

    Raises:
        TypeError: it is none of these.
        ValueError: the name is empty.
    """
    if not isinstance(reranker, BaseNodePostprocessor):
        return as_own_reranker(reranker)

    def order(query: str, texts: Sequence[str]) -> Kept:
        return _kept(reranker.postprocess_nodes(_nodes(texts), query_str=query))

    async def aorder(query: str, texts: Sequence[str]) -> Kept:
        return _kept(await reranker.apostprocess_nodes(_nodes(texts), query_str=query))

    return OrderReranker(order, aorder)


def _nodes(texts: Sequence[str]) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(id_=str(index), text=text)) for index, text in enumerate(texts)]


def _kept(nodes: Sequence[NodeWithScore]) -> Kept:
    if any(not one.node_id.isdecimal() for one in nodes):
        raise TypeError("the postprocessor returned nodes that it was not given")
    return [(int(one.node_id), one.score) for one in nodes]
