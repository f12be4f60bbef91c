"""Repairing a list of messages: every tool call stands with its results, as providers require."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from langchain_core.messages import (
    BaseMessage,
    FunctionMessage,
    MessageLikeRepresentation,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.prompt_values import PromptValue

from langchain_infinite_memory.tool_calls import answered_call, engine_calls
from shared_core.arguments import one_of
from shared_core.doors.interop.content import function_call_id
from shared_core.messages import ToolCall

__all__ = ["repair_messages"]

INTERRUPTED = "Interrupted: this call was not finished, and there is no result."
"""The text of the result that is added to a call without one."""

Messages = Iterable[MessageLikeRepresentation] | PromptValue
Dangling = Literal["drop", "answer"]
Pending = Literal["keep", "repair"]
Group = list[BaseMessage]


class Repaired(NamedTuple):
    """A repaired list, in parts.

    Attributes:
        system: the system messages.
        groups: the other messages: each tool call with its results, any other message alone.
    """

    system: list[BaseMessage]
    groups: list[Group]


def repair_messages(messages: Messages, *, dangling: Dangling = "drop", pending: Pending = "keep") -> list[BaseMessage]:
    """Return the messages as a list that providers accept; the list given is not changed.

    - A result stands right behind its call. A result that comes later, such as after a message that was sent while the
      call was running, is moved there. Results of one message's calls keep their order.
    - A result without a call is dropped, and so is a second result of the same call.
    - A call without all its results is dropped together with the results that it has, or completed. Invalid calls
      count as calls. A message in which two calls share an id, or one has none, cannot be completed and is dropped.
    - At the end of the list, such a call is pending: it is kept with the results that it has.
    - System messages come first, because Anthropic refuses them in between and Gemini drops them there.

    The messages returned are the objects that were given, except added results and input that was not a message.
    Repairing a repaired list changes nothing.

    Args:
        messages: oldest first; whatever LangChain accepts as messages.
        dangling: drop calls without all their results, or answer them with a result that says `INTERRUPTED`.
        pending: keep a pending call, or treat it as dangling.

    Raises:
        ValueError: an option is unknown.
    """
    parts = repaired(messages, dangling=dangling, pending=pending)
    return [*parts.system, *(message for group in parts.groups for message in group)]


def repaired(messages: Messages, *, dangling: Dangling = "drop", pending: Pending = "keep") -> Repaired:
    """Return what `repair_messages` returns, in parts; it takes the same arguments."""
    one_of("dangling", dangling, get_args(Dangling))
    one_of("pending", pending, get_args(Pending))
    given = convert_to_messages(messages if isinstance(messages, PromptValue) else list(messages))
    groups = _tool_groups(message for message in given if not isinstance(message, SystemMessage))
    kept: list[Group] = []
    for number, (group, calls) in enumerate(groups, start=1):
        waits = pending == "keep" and number == len(groups)
        if waits or len(group) - 1 == len(calls):
            kept.append(group)
        elif dangling == "answer" and (completed := _completed(group, calls)):
            kept.append(completed)
    return Repaired([message for message in given if isinstance(message, SystemMessage)], kept)


def _tool_groups(messages: Iterable[BaseMessage]) -> list[tuple[Group, Sequence[ToolCall]]]:
    """Return each call with its results and any other message alone; results without a call are left out.

    The first result that names a call answers it: some models number their calls anew in each turn. The engine's
    `tool_groups` keeps every result, and converting all messages for it would take three times as long.
    """
    groups: list[tuple[Group, Sequence[ToolCall]]] = []
    waiting: dict[str, Group] = {}
    for message in messages:
        if isinstance(message, ToolMessage | FunctionMessage):
            group = waiting.pop(answered_call(message) or "", None)
            if group is not None:
                group.append(message)
            continue
        groups.append(([message], engine_calls(message)))
        waiting.update((call.id, groups[-1][0]) for call in groups[-1][1] if call.id)
    return groups


def _completed(group: Group, calls: Sequence[ToolCall]) -> Group | None:
    """Return a group with added results for the calls that have none; None if the calls cannot be told apart."""
    ids = [call.id for call in calls]
    if not all(ids) or len(set(ids)) < len(ids):
        return None
    answered = {answered_call(result) for result in group[1:]}
    return [*group, *(_interrupted(call) for call in calls if call.id not in answered)]


def _interrupted(call: ToolCall) -> BaseMessage:
    if call.id == function_call_id(call.name):
        return FunctionMessage(content=INTERRUPTED, name=call.name)
    return ToolMessage(content=INTERRUPTED, tool_call_id=call.id, name=call.name or None, status="error")
