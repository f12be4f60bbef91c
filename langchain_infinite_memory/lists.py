"""prune_messages: what fits of a list of messages, as a prompt that providers accept."""

from collections.abc import Iterable, Mapping, Sequence

from langchain_core.messages import BaseMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.prompt_values import PromptValue

from langchain_infinite_memory.messages import from_message, read_message, system_first
from langchain_infinite_memory.settings import EmbeddingsLike, TextCounter, as_embedder, as_token_counter
from shared_core.arguments import text_value, whole_number
from shared_core.lists import sliding_window
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.base import TokenCounter

__all__ = ["prune_messages"]


def prune_messages(
    messages: Iterable[MessageLikeRepresentation] | PromptValue, *, max_tokens: int, token_counter: TextCounter = None,
    query: str | None = None, embeddings: EmbeddingsLike = None,
) -> list[BaseMessage]:  # fmt: skip
    """Return what fits of the messages, oldest first, as a prompt that providers accept.

    System messages are kept, and stand at the front. Calls of tools stand with their results, and those without one
    are left out. The newest human message is always kept, with what answers it. Older turns are kept or dropped as a
    whole: the newest and, with a `query`, those that matter for it. The messages returned are the objects that were
    given, unless a part of one is left out; nothing given is changed.

    Args:
        messages: oldest first; whatever LangChain accepts as messages.
        max_tokens: the limit.
        token_counter: counts the tokens of a text, as for `as_token_counter`; each message takes 4 more.
        query: recall older messages that matter for this question. It is not part of the list, but counts towards the
            limit.
        embeddings: as for `as_embedder`, for the query; None: the static embedder, if it is installed.

    Raises:
        TypeError: the messages are not in a list.
        ValueError: an argument is out of range.
        BudgetError: the system messages alone do not fit.
        EmbedderError: the embedder failed.
    """
    whole_number("max_tokens", max_tokens, least=1)
    if query is not None:
        text_value("query", query)
    if isinstance(messages, str | BaseMessage | Mapping):
        raise TypeError(f"messages={messages!r:.80}: expected a list of messages, such as [HumanMessage('...')]")
    counter, embedder = as_token_counter(token_counter), as_embedder(embeddings)
    listed = convert_to_messages(messages)
    if query is None:
        return newest_messages(listed, max_tokens, counter)
    named = _named(listed)
    with InfiniteMemory(
        None, max_tokens=max_tokens, reserve_tokens=0, token_counter=counter, embedder=embedder, placement="messages",
        on_overflow="keep",
    ) as memory:  # fmt: skip
        memory.add(named)
        context = memory.context(query, include_question=False)
    return _as_given(context.messages, named, listed)


def newest_messages(messages: Sequence[BaseMessage], max_tokens: int, counter: TokenCounter) -> list[BaseMessage]:
    """Return the newest turns that fit, and at least the newest human message."""
    named = _named(messages)
    window = sliding_window(named, max_tokens=max_tokens, token_counter=counter, on_overflow="keep")
    return _as_given(window, named, messages)


def _named(messages: Sequence[BaseMessage]) -> list[Message]:
    """Return the messages for the engine, with their indexes as ids."""
    return [read_message(message)[0].replace(id=f"{index}") for index, message in enumerate(messages)]


def _as_given(prompt: Iterable[Message], named: Sequence[Message], given: Sequence[BaseMessage]) -> list[BaseMessage]:
    kept: list[BaseMessage] = []
    for message in system_first(prompt):
        index = int(message.id or 0)
        as_put, own = named[index], given[index]
        same = (message.content, message.tool_calls) == (as_put.content, as_put.tool_calls)
        kept.append(own if same else from_message(message).model_copy(update={"id": own.id}))
    return kept
