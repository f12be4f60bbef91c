"""One LangChain message of every kind, and random ones."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from tests.support.strategies import storable_texts

__all__ = ["EVERY", "PICTURE", "messages"]

PICTURE = {"type": "image", "base64": "iVBORw0KGgo=" * 40, "mime_type": "image/png"}

REASONED = AIMessage(
    content=[
        {
            "type": "reasoning", "reasoning": "Two tools at once.", "extras": {"signature": "c2ln"},
            "encrypted_content": "x",
        },
        {"type": "text", "text": "Let me look", "annotations": [], "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": " that up."},
        {"type": "tool_use", "id": "call-1", "name": "weather", "input": {"city": "Köln"}},
    ],
    tool_calls=[
        {"name": "weather", "args": {"city": "Köln", "days": 2.5}, "id": "call-1"},
        {"name": "clock", "args": {}, "id": "call-2"},
    ],
    invalid_tool_calls=[{"name": "map", "args": '{"zoom": ', "id": "call-3", "error": "Unterminated"}],
    usage_metadata={
        "input_tokens": 10,
        "output_tokens": 20,
        "total_tokens": 30,
        "output_token_details": {"reasoning": 12},
    },
    response_metadata={"model_name": "m", "logprobs": [float("-inf"), -0.5], "finish_reason": "tool_calls"},
    name="weather-agent",
    id="run-1",
)  # fmt: skip

EVERY: list[BaseMessage] = [
    SystemMessage("Be brief.", id="system"),
    SystemMessage("Never say so.", id="developer", additional_kwargs={"__openai_role__": "developer"}),
    HumanMessage("hi"),
    HumanMessage("<|endoftext|> BEL \a and a private \ue000", id="plain", name="Ana"),
    HumanMessage(["What is", PICTURE, {"type": "text", "text": "on it?"}, {"type": "text", "text": ""}], id="seen"),
    HumanMessage([{"text": "as Bedrock"}, {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}], id="bytes"),
    HumanMessage([{"text": "hi", 7: "c", (1, 2): 3}, {"type": "text", "text": "x", "$map": 1}], id="odd keys"),
    HumanMessage([PICTURE], id="only a picture"),
    HumanMessage([], id="nothing"),
    REASONED,
    ToolMessage(
        [PICTURE], tool_call_id="call-1", artifact={"rows": [(1, None)]}, status="error", name="weather", id="t1"
    ),
    ToolMessage("12:30", tool_call_id="call-2", artifact=[Document("page", metadata={"at": 3}, id="d")], id="t2"),
    ToolMessage("cannot", tool_call_id="call-3", id="t3", artifact={}),
    AIMessage("", tool_calls=[{"name": "clock", "args": {"at": {1: "one"}}, "id": None}], id="odd call"),
    ChatMessage(content="Once upon a time", role="narrator", id="chat"),
    ChatMessage(content="yes", role="assistant", id="chat-assistant"),
    HumanMessage(
        "to whom", id="extra", role="user", text="of a property", artifact=None, sent=datetime(2026, 1, 2, tzinfo=UTC)
    ),
    HumanMessage("q1", id="g1", additional_kwargs={"grounding": ["one passage"], "$odd": {"$text": [0, 1]}}),
    HumanMessage("q2", id="g2", additional_kwargs={"grounding": ["one", "two"], "thread": 7}),
    HumanMessage("q3", id="g3", additional_kwargs={
        "grounding": {"items": [{"text": "one", "score": 0.5}], "header": "Found:", "footer": "Use it."}}),
    HumanMessage("q5", id="g5", additional_kwargs={"grounding": {"not": "ours"}}),
    HumanMessage("q6", id="pinned", additional_kwargs={"infinite_memory": {"pinned": True, "media_tokens": 70}}),
    HumanMessage("q8", id="not ours", additional_kwargs={"infinite_memory": {"pinned": "yes"}}),
    HumanMessage("q7", id="not pinned", additional_kwargs={"infinite_memory": {"pinned": False}}),
    AIMessage("done", id="run-2", response_metadata={"id": "resp"}),
]  # fmt: skip

# Strategies

_texts = storable_texts(max_size=12)
_leaves: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _texts, st.binary(max_size=5)
)
_keys = st.one_of(st.sampled_from(("a", "type", "text", "data", "$text", "$map", "grounding", "tool_calls")), _texts)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(_keys, inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=2),
        st.builds(Document, _texts, metadata=st.dictionaries(_keys, inner, max_size=2)),
    ),
    max_leaves=6,
)
_entries = st.dictionaries(_keys, _values, max_size=3)
_blocks = st.one_of(
    _texts,
    st.builds(lambda text, more: {**more, "type": "text", "text": text}, _texts, _entries),
    st.builds(
        lambda kind, more: {**more, "type": kind}, st.sampled_from(("image", "reasoning", "file", "x")), _entries
    ),
    st.builds(dict, _entries),
)
_contents = st.one_of(_texts, st.lists(_blocks, max_size=4))
_arguments = st.dictionaries(_keys, _values, max_size=2)
_ids = st.one_of(st.none(), storable_texts(max_size=5))
_calls = st.builds(lambda name, args, id_: {"name": name, "args": args, "id": id_}, _texts, _arguments, _ids)
_invalid = st.builds(
    lambda name, args, id_, error: {"name": name, "args": args, "id": id_, "error": error},
    st.one_of(st.none(), _texts), st.one_of(st.none(), _texts, st.just("{}")), _ids, st.one_of(st.none(), _texts),
)  # fmt: skip


def _common(draw: st.DrawFn) -> dict[str, Any]:
    kwargs = draw(_entries)
    if draw(st.booleans()):
        kwargs = {**kwargs, "grounding": draw(st.lists(storable_texts(max_size=12), min_size=1, max_size=3))}
    return {
        "content": draw(_contents),
        "id": draw(_ids),
        "name": draw(st.one_of(st.none(), _texts)),
        "additional_kwargs": kwargs,
        "response_metadata": draw(_entries),
    }


@st.composite
def messages(draw: st.DrawFn) -> BaseMessage:
    """Draw any LangChain message whose values have a JSON form."""
    fields = _common(draw)
    kind = draw(st.sampled_from(("human", "system", "ai", "tool", "chat")))
    if kind == "ai":
        calls, invalid = draw(st.lists(_calls, max_size=2)), draw(st.lists(_invalid, max_size=2))
        return AIMessage(**fields, tool_calls=calls, invalid_tool_calls=invalid)
    if kind == "tool":
        status = draw(st.sampled_from(("success", "error")))
        return ToolMessage(**fields, tool_call_id=draw(_texts), artifact=draw(_values), status=status)
    if kind == "chat":
        return ChatMessage(**fields, role=draw(st.one_of(_texts, st.sampled_from(("user", "Assistant", "system")))))
    return (HumanMessage if kind == "human" else SystemMessage)(**fields)
