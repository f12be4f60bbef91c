"""The two entries of `additional_kwargs` for which LangChain's messages have no field: grounding, and engine fields."""

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from numbers import Real
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langchain_infinite_memory.content import CODEC, blocks_tokens
from langchain_infinite_memory.tool_calls import engine_calls, langchain_calls
from shared_core.messages import Grounding, GroundingItem, Message, Payload, ToolCall

GROUNDING = "grounding"
"""The key under which retrieved passages stand."""

SCORE = "relevance_score"
"""The key of a document's metadata that is read as its score: LangChain's rerankers write it, higher is better."""

ENGINE_FIELDS = "infinite_memory"
"""The key under which `EngineFields` stand."""


# Grounding


def grounding_of(value: Any) -> Grounding | None:
    """Return the grounding that a value stands for; None if it is none.

    Args:
        value: a text, a list of texts and `Document`s, best first, or a mapping with the arguments of `Grounding`.
    """
    if isinstance(value, str):
        return Grounding.of(value) if value else None
    if isinstance(value, list) and value and all(isinstance(item, str | Document) for item in value):
        return Grounding(items=tuple(map(_item, value)))
    if isinstance(value, dict):
        try:
            return Grounding.model_validate(value)
        except ValidationError:
            return None
    return None


def _item(value: str | Document) -> GroundingItem:
    if isinstance(value, str):
        return GroundingItem(text=value)
    score = value.metadata.get(SCORE)
    usable = isinstance(score, Real) and math.isfinite(score)
    return GroundingItem(text=value.page_content, score=float(score) if score is not None and usable else None)


def encode_grounding(value: Any, grounding: Grounding) -> Any:
    """Return as JSON data what `decode_grounding` needs, besides the grounding, to restore `value`.

    None if the grounding alone is enough.

    Raises:
        UnstorableError: `value` holds something that JSON cannot express.
    """
    if _plainest(grounding) == value:
        return None
    known = {item.text: {"$item": index} for index, item in enumerate(grounding.items)}
    return CODEC.encode(value, known)


def decode_grounding(grounding: Grounding, data: Any) -> Any:
    """Return grounding as it stood in `additional_kwargs`; `data` is what `encode_grounding` returned."""
    if data is not None:
        with suppress(LookupError):  # it has fewer items by now
            value = CODEC.decode(data, lambda _, index: grounding.items[index].text)
            if grounding_of(value) == grounding:
                return value
    return _plainest(grounding)


def _plainest(grounding: Grounding) -> Any:
    texts = [item.text for item in grounding.items]
    if texts and grounding == Grounding.of(*texts):
        return texts
    fields = grounding.model_dump(exclude_defaults=True)
    return {**fields, "items": list(fields["items"])} if "items" in fields else fields


# Fields of the engine's message


class EngineFields(BaseModel):
    """Fields of the engine's message that a LangChain message carries along.

    Args:
        pinned: as in `Message`.
        media_tokens: as in `Message`; None: estimated.
        payload: the payload of another adapter.
        tool_calls: calls with their arguments exactly as the model wrote them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pinned: bool = Field(default=False, strict=True)
    media_tokens: int | None = Field(default=None, ge=0, strict=True)
    payload: Payload | None = None
    tool_calls: tuple[ToolCall, ...] | None = None


def read_fields(message: BaseMessage) -> EngineFields | None:
    """Return the engine fields in a message; None if there are none, or its tool calls have changed since."""
    try:
        fields = EngineFields.model_validate(message.additional_kwargs.get(ENGINE_FIELDS))
    except ValidationError:
        return None
    if fields.tool_calls is None:
        return fields
    given = (message.tool_calls, message.invalid_tool_calls) if isinstance(message, AIMessage) else None
    return fields if langchain_calls(fields.tool_calls) == given else None


def written_fields(message: Message, data: Mapping[str, Any], built: BaseMessage) -> dict[str, Any]:
    """Return what to write under `ENGINE_FIELDS`; usually nothing.

    Args:
        message: of the engine.
        data: of its payload, if LangChain's adapter wrote that.
        built: the LangChain message made of it so far.
    """
    fields: dict[str, Any] = {}
    if message.pinned:
        fields["pinned"] = True
    if message.media_tokens != blocks_tokens(data.get("content", ())):
        fields["media_tokens"] = message.media_tokens
    if message.payload is not None and not data:
        fields["payload"] = {"format": message.payload.format, "data": copy.deepcopy(message.payload.data)}
    written = message.tool_calls if data.keys().isdisjoint(("tool_calls", "invalid_tool_calls")) else ()
    if written and isinstance(built, AIMessage) and engine_calls(built) != written:
        fields["tool_calls"] = [call.model_dump() for call in written]
    return fields
