"""Samples that the store contract stores: ids and texts that are easily confused, and a message with every field."""

from typing import Any

from shared_core.messages import Grounding, GroundingItem, Payload, ToolCall

__all__ = ["NASTY", "RICH"]

NASTY = ('["a","b"]', "", "%", "_", "\\", "'; --", '"', "null", "None", "a\x00b", "שלום \u202e", "😀", "a", "A", " a")
"""Ids and names that meet each other in a store that quotes, trims, folds case or cuts."""

RICH: dict[str, Any] = {
    "name": "Ann",
    "tool_calls": (ToolCall(id="c1", name="find", arguments='{"x": 1}'), ToolCall(id="c2", name="find")),
    "tool_call_id": "c0",
    "grounding": Grounding(items=(GroundingItem(text="fact", score=0.1 + 0.2), GroundingItem(text=""))),
    "pinned": True,
    "media_tokens": 7,
    "payload": Payload(format="other/1", data={"a": [1, 2.5, None, {"b": "é😀"}]}),
}
"""Every field that a draft can have beyond id, role, text and time."""
