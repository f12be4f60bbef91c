"""A list of messages as providers accept it, by the rules and not by the engine: the oracle of the laws."""

from collections.abc import Iterable, Sequence

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from langchain_infinite_memory.settings import as_token_counter
from shared_core.tokens import message_tokens

__all__ = ["called", "repaired", "tokens"]


def repaired(messages: Iterable[BaseMessage], *, pending: bool = True) -> list[BaseMessage]:
    """Each result behind its call, system messages first, and no call without all its results but a pending one."""
    listed = list(messages)
    groups: list[list[BaseMessage]] = []
    waiting: dict[str | None, list[BaseMessage]] = {}
    for message in listed:
        if isinstance(message, SystemMessage):
            continue
        if isinstance(message, ToolMessage):
            if (group := waiting.pop(message.tool_call_id, None)) is not None:
                group.append(message)
            continue
        groups.append([message])
        waiting.update((id_, groups[-1]) for id_ in called(message) if id_)
    kept = [
        group
        for number, group in enumerate(groups, start=1)
        if len(group) - 1 == len(called(group[0])) or (pending and number == len(groups))
    ]
    return [*(one for one in listed if isinstance(one, SystemMessage)), *(one for group in kept for one in group)]


def called(message: BaseMessage) -> list[str | None]:
    """The ids of a message's calls."""
    asked = [*message.tool_calls, *message.invalid_tool_calls] if isinstance(message, AIMessage) else []
    return [call["id"] for call in asked]


def tokens(messages: Sequence[BaseMessage], counter: object) -> int:
    """The size of messages, as the engine counts it."""
    from langchain_infinite_memory.messages import read_message

    count = as_token_counter(counter)  # type: ignore[arg-type]
    return sum(message_tokens(read_message(message)[0], count) for message in messages)
