"""What LangChain accepts as a token counter, as a counter of texts, of single messages, or of lists of messages."""

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableBinding

from langchain_infinite_memory.messages import read_message
from shared_core.base import TokenCounter
from shared_core.tokens import ConservativeCounter, TokenFallbackWarning, as_counter, message_tokens

__all__ = ["as_token_counter", "message_counter"]

FRAMING = 4
"""Tokens of framing per message where the counter only counts texts; the engine's default `message_overhead`."""

REMOTE_TEXT_COUNTERS = (
    "langchain_google_genai", "langchain_google_vertexai", "langchain_cohere", "langchain_ibm",
)  # fmt: skip
"""Packages whose models send a request for each text that they count."""

REMOTE_LIST_COUNTERS = (*REMOTE_TEXT_COUNTERS, "langchain_anthropic")
"""Packages whose models send a request for each list of messages that they count."""

TextCounter = TokenCounter | Callable[[str], int] | BaseLanguageModel[Any] | str | None
MessageCounter = (
    TextCounter | Callable[[BaseMessage], int] | Callable[[list[BaseMessage]], int] | Callable[[Sequence[Any]], int]
)
ListCounter = Callable[[Sequence[BaseMessage]], int]


# Of texts


class ApproximateCounter:
    """Counts four characters as a token, rounded up, as `count_tokens_approximately` does by default."""

    name: str | None = "langchain/approximate"

    def __call__(self, text: str, /) -> int:
        """Return a quarter of the number of characters, rounded up."""
        return -(-len(text) // 4)


class ModelCounter:
    """Counts with a model's `get_num_tokens`, without network access.

    `ConservativeCounter` counts instead, and a `TokenFallbackWarning` is given once, if the model has no tokenizer of
    its own (LangChain would download GPT-2's), if it would send a request, or if it raises, as OpenAI's models do when
    a text holds the name of a special token. The counter has no name, so its counts are not stored.

    Args:
        model: any LangChain model.
    """

    name: str | None = None

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self._model = model
        self._fallback = ConservativeCounter()
        self._warned = False
        self._obstacle = _obstacle(model)
        if self._obstacle:
            self._warn(self._obstacle)

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of `text`; never raises."""
        if self._obstacle:
            return self._fallback(text)
        try:
            return self._model.get_num_tokens(text)
        except Exception as error:  # a counter never raises, and a tokenizer may raise anything
            self._warn(f"raised {type(error).__name__}: {error}")
            return self._fallback(text)

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the token counter of {type(self._model).__name__} {reason}; it is not used, and tokens are "
                'over-estimated. Pass token_counter="o200k_base", "approximate" or a callable(str) -> int',
                TokenFallbackWarning,
                stacklevel=4,
            )


def _obstacle(model: BaseLanguageModel[Any]) -> str:
    """Return why a model's counter cannot be used; the empty text if it can."""
    if _package(type(model).get_num_tokens) in REMOTE_TEXT_COUNTERS:
        return "asks a server for each text"
    if not _counts_texts(type(model)) and model.custom_get_token_ids is None:
        return "is GPT-2's, which would have to be downloaded"
    return ""


def _counts_texts(model: type[BaseLanguageModel[Any]]) -> bool:
    base = BaseLanguageModel
    return model.get_num_tokens is not base.get_num_tokens or model.get_token_ids is not base.get_token_ids


def _package(function: Callable[..., Any]) -> str:
    return function.__module__.partition(".")[0]


def as_token_counter(counter: TextCounter) -> TokenCounter:
    """Return a token counter for `InfiniteMemory(token_counter=...)`.

    Args:
        counter: a LangChain model (see `ModelCounter`); `"approximate"` or `count_tokens_approximately` for a quarter
            of the characters; or what the engine accepts: a `TokenCounter`, a `callable(str) -> int`, the name of a
            tiktoken encoding or model, or None for its default.

    Raises:
        TypeError: it is something else, such as a function of messages: `message_counter` takes those.
        ValueError: the name is unknown.
    """
    if isinstance(counter, BaseLanguageModel):
        return ModelCounter(counter)
    if counter == "approximate" or counter is count_tokens_approximately:
        return ApproximateCounter()
    if _takes_a_message(counter):
        raise TypeError(f"token_counter must count a text, and {counter!r} counts a message; use message_counter")
    return as_counter(counter)


# Of single messages


def message_counter(counter: MessageCounter) -> Callable[[BaseMessage], int]:
    """Return a function that returns the tokens of a message, by the rules of `trim_messages`.

    Args:
        counter: `len` (each message counts 1); a function whose first parameter is annotated `BaseMessage`; any other
            function, which is given a list of one message; `"approximate"`; or a model, a `TokenCounter`, the name of a
            tiktoken encoding or None. The last four count text, tool calls and media as the engine does, with 4 tokens
            of framing. A model's `get_num_tokens_from_messages` is not used: it may send requests, fetch images, and
            raise.

    Raises:
        TypeError: it is none of these.
        ValueError: the name is unknown.
    """
    if counter is len:
        return lambda message: 1
    if counter == "approximate":
        return lambda message: count_tokens_approximately([message])
    if counter is None or isinstance(counter, str | BaseLanguageModel | TokenCounter):
        text_counter = as_token_counter(counter)
        return lambda message: message_tokens(read_message(message)[0], text_counter, FRAMING)
    if not callable(counter):
        raise TypeError(f"token_counter must be a function, a model, a str or None, not {counter!r}")
    function: Callable[[Any], int] = counter
    return function if _takes_a_message(function) else lambda message: function([message])


def _takes_a_message(counter: object) -> bool:
    if not callable(counter):
        return False
    try:
        parameters = inspect.signature(counter).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    return next((parameter.annotation is BaseMessage for parameter in parameters), False)


# Of lists


def list_counter(counter: MessageCounter) -> ListCounter:
    """Return a function that returns the tokens of a list of messages.

    A counter of single messages is called once for each message. A counter of lists is given lists in the order of the
    conversation, with tool groups whole, and never an empty one.

    Args:
        counter: what `prune_messages` takes.

    Raises:
        ValueError: it is something else.
    """
    counter = _unbound(counter)
    function = _list_function(counter)
    if function is not None:
        return lambda messages: function(list(messages)) if messages else 0
    try:
        return _SumOfMessages(message_counter("approximate" if counter is count_tokens_approximately else counter))
    except (TypeError, ValueError):
        trim_messages([], max_tokens=0, token_counter=counter)  # type: ignore[arg-type]  # raises LangChain's own error
        raise


def _unbound(counter: Any) -> Any:
    while isinstance(counter, RunnableBinding):  # a model with settings
        counter = counter.bound
    return counter


class _SumOfMessages:
    """Adds up the tokens of single messages, and counts each message once."""

    def __init__(self, counter: Callable[[BaseMessage], int]) -> None:
        self._counter = counter
        self._known: dict[int, tuple[int, BaseMessage]] = {}  # holds the message, so that its `id()` stays its own

    def __call__(self, messages: Sequence[BaseMessage]) -> int:
        return sum(map(self._tokens, messages))

    def _tokens(self, message: BaseMessage) -> int:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (self._counter(message), message)
        return known[0]


class _ModelListCounter:
    """Counts with a model's `get_num_tokens_from_messages`, until the first time that it raises."""

    def __init__(self, model: BaseLanguageModel[Any]) -> None:
        self._model = model
        self._fallback: _SumOfMessages | None = None

    def __call__(self, messages: Sequence[BaseMessage]) -> int:
        if self._fallback is None:
            try:
                return self._model.get_num_tokens_from_messages(list(messages))
            except Exception as error:  # a tokenizer may raise anything
                self._fallback = _SumOfMessages(message_counter("conservative"))
                warnings.warn(
                    f"get_num_tokens_from_messages of {type(self._model).__name__} raised {type(error).__name__}: "
                    f'{error}; tokens are over-estimated instead. Pass token_counter="approximate" or a function',
                    TokenFallbackWarning,
                    stacklevel=2,
                )
        return self._fallback(messages)


def _list_function(counter: Any) -> Callable[[list[BaseMessage]], int] | None:
    """Return the function that counts a whole list; None if the counter counts single messages or texts."""
    if counter is len or counter is count_tokens_approximately or isinstance(counter, str | None):
        return None
    if isinstance(counter, BaseLanguageModel):
        return _ModelListCounter(counter) if _counts_only_lists(type(counter)) else None
    if callable(own := getattr(counter, "get_num_tokens_from_messages", None)):
        return lambda messages: int(own(messages))
    if isinstance(counter, TokenCounter) or not callable(counter) or message_counter(counter) is counter:
        return None
    return lambda messages: int(counter(messages))


def _counts_only_lists(model: type[BaseLanguageModel[Any]]) -> bool:
    """Return whether a model counts lists with code of its own and without requests, but has no counter of texts."""
    own = model.get_num_tokens_from_messages
    inherited = own is BaseLanguageModel.get_num_tokens_from_messages
    return not (_counts_texts(model) or inherited or _package(own) in REMOTE_LIST_COUNTERS)
