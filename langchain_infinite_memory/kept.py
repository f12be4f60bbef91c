"""What a LangChain message has no field for, kept in `additional_kwargs["infinite_memory"]`."""

import copy
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langchain_infinite_memory.content import blocks_tokens
from langchain_infinite_memory.tool_calls import lc_calls, neutral_calls
from shared_core.messages import Message, Payload, ToolCall

__all__ = ["KEPT", "Kept", "kept_of", "to_keep"]

KEPT = "infinite_memory"
"""The key of `additional_kwargs`."""


class Kept(BaseModel):
    """What may stand under `KEPT`: fields of the engine's message.

    Args:
        pinned: as in `Message`.
        media_tokens: as in `Message`; None: by `media`'s figures.
        payload: another adapter's.
        tool_calls: with the arguments as the model wrote them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pinned: bool = Field(default=False, strict=True)
    media_tokens: int | None = Field(default=None, ge=0, strict=True)
    payload: Payload | None = None
    tool_calls: tuple[ToolCall, ...] | None = None


def kept_of(message: BaseMessage) -> Kept | None:
    """Return what `to_keep`, or the caller, put under `KEPT`; None if it is something else, or out of date."""
    value = message.additional_kwargs.get(KEPT)
    try:
        kept = None if value is None else Kept.model_validate(value)
    except ValidationError:
        return None
    if kept is not None and kept.tool_calls is not None:
        given = (message.tool_calls, message.invalid_tool_calls) if isinstance(message, AIMessage) else None
        return kept if lc_calls(kept.tool_calls) == given else None
    return kept


def to_keep(message: Message, data: Mapping[str, Any], built: BaseMessage) -> dict[str, Any]:
    """Return what belongs under `KEPT`, often nothing.

    Args:
        message: the engine's.
        data: of its payload, if that is LangChain's.
        built: the LangChain message so far.
    """
    kept: dict[str, Any] = {}
    if message.pinned:
        kept["pinned"] = True
    if message.media_tokens != blocks_tokens(data.get("content", ())):
        kept["media_tokens"] = message.media_tokens
    if message.payload is not None and not data:
        kept["payload"] = {"format": message.payload.format, "data": copy.deepcopy(message.payload.data)}
    written = message.tool_calls if data.keys().isdisjoint(("tool_calls", "invalid_tool_calls")) else ()
    if written and isinstance(built, AIMessage) and neutral_calls(built) != written:
        kept["tool_calls"] = [call.model_dump() for call in written]
    return kept
