"""LangChain's messages through the engine: equal again, small, paired, and never more than they were."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_infinite_memory import UnstorableWarning, from_message, to_message
from langchain_infinite_memory.content import CODEC, block_tokens
from langchain_infinite_memory.messages import grounding_of
from shared_core import Grounding, GroundingItem, InfiniteMemory, Message, ToolCall
from shared_core.doors.interop.content import text_tokens
from shared_core.formats.parts import AUDIO_TOKENS, IMAGE_TOKENS, LOW_IMAGE_TOKENS, VIDEO_TOKENS
from shared_core.messages import Payload, content_of, with_grounding
from tests.langchain.sample_messages import EVERY, PICTURE, messages

ROOT = Path(__file__).parents[2]


def stored(message: Message) -> Message:
    """Return the message as a store that keeps JSON gives it back."""
    written = json.dumps(message.model_dump(), ensure_ascii=False)
    return Message.model_validate(json.loads(written))


# There and back


@given(messages())
def test_any_message_comes_back_equal(message: BaseMessage) -> None:
    neutral = to_message(message)
    assert from_message(stored(neutral)) == message
    assert content_of(to_message(from_message(neutral))) == content_of(neutral)


# Small


def test_a_value_given_is_never_changed_or_shared() -> None:
    message = HumanMessage("q", id="a", additional_kwargs={"more": {"deep": [1]}})
    neutral = to_message(message)
    first, second = from_message(neutral), from_message(neutral)
    first.additional_kwargs["more"]["deep"].append(2)
    assert message.additional_kwargs == {"more": {"deep": [1]}}
    assert second == message == from_message(neutral)


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("hi", id="a", name="Ana"),
        SystemMessage("hi", id="a"),
        AIMessage("hi", id="a", tool_calls=[{"name": "f", "args": {"x": [1, 2.5, "é"]}, "id": "c"}]),
        ToolMessage("hi", tool_call_id="c", id="a"),
        HumanMessage("hi", id="a", additional_kwargs={"grounding": ["one", "two"]}),
    ],
)
def test_what_the_neutral_fields_express_has_no_payload(message: BaseMessage) -> None:
    assert to_message(message).payload is None


# What the engine sees


def test_a_payload_never_repeats_a_text() -> None:
    text, passage = "a" * 999, "b" * 999
    question = HumanMessage([{"type": "text", "text": text}, text], additional_kwargs={"grounding": [passage]})
    neutral = to_message(question)
    assert neutral.content == f"{text}\n{text}"
    assert neutral.grounding == Grounding.of(passage)
    assert neutral.payload is not None
    assert len(json.dumps(neutral.payload.data)) < 200
    assert to_message(HumanMessage("hi")).payload == Payload(format="langchain/1", data={"id": None})


def test_the_neutral_form_of_a_reasoned_answer() -> None:
    (message,) = (message for message in EVERY if message.id == "run-1")
    neutral = to_message(message)
    assert (neutral.role, neutral.id, neutral.name) == ("assistant", "run-1", "weather-agent")
    assert neutral.content == "Let me look that up."
    assert neutral.tool_calls == (
        ToolCall(id="call-1", name="weather", arguments='{"city":"Köln","days":2.5}'),
        ToolCall(id="call-2", name="clock", arguments="{}"),
        ToolCall(id="call-3", name="map", arguments='{"zoom": '),
    )
    assert neutral.media_tokens == text_tokens("Two tools at once.") == 6
    assert (neutral.created_at, neutral.turn_id, neutral.pinned) == (None, None, False)


def test_an_invalid_call_with_its_synthetic_reply_is_kept_and_without_it_is_not_sent() -> None:
    asked = HumanMessage("map, please", id="q")
    broken = {"name": "map", "args": "{", "id": "c", "error": "bad"}
    call = AIMessage("", id="a", invalid_tool_calls=[broken])
    reply = ToolMessage("try again", tool_call_id="c", status="error", id="t")
    more = [AIMessage("sorry", id="b"), HumanMessage("and now?", id="q2")]
    for said in ([asked, call, reply, *more], [asked, call, *more]):
        with InfiniteMemory() as memory:
            memory.add([to_message(message) for message in said])
            sent = [from_message(message) for message in memory.context().messages]
        assert sent == [message for message in said if len(said) == 5 or message is not call]


def test_what_is_no_stored_message_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^a RemoveMessage cannot be stored; these can: HumanMessage, AIMessage,"):
        to_message(RemoveMessage(id="a"))


def test_a_call_removed_by_hand_stays_removed_though_the_provider_form_has_it() -> None:
    function = {"name": "f", "arguments": "{}"}
    message = AIMessage(
        "", id="a", additional_kwargs={"tool_calls": [{"id": "c", "type": "function", "function": function}]}
    )
    assert [call["id"] for call in message.tool_calls] == ["c"]
    edited = message.model_copy(update={"tool_calls": []})
    back = from_message(stored(to_message(edited)))
    assert isinstance(back, AIMessage)
    assert back == edited
    assert back.tool_calls == []


# What has no JSON form


LEFT_OUT: list[tuple[BaseMessage, str, BaseMessage]] = [
    (
        ToolMessage("r", tool_call_id="c", id="t", artifact={"frame": np.ones(2), "rows": 2}, status="error"),
        "artifact",
        ToolMessage("r", tool_call_id="c", id="t", status="error"),
    ),
    (
        HumanMessage("q", id="a", additional_kwargs={"x": {1}, "y": 1}, response_metadata={"z": object()}),
        r"additional_kwargs\['x'\].*response_metadata\['z'\]",
        HumanMessage("q", id="a", additional_kwargs={"y": 1}),
    ),
    (
        HumanMessage([{"type": "x", "y": {1}}, {"type": "text", "text": "hi", "z": {1}}], id="a"),
        r"content\[0\].*content\[1\]",
        HumanMessage(["hi"], id="a"),
    ),
    (
        AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"x": {(1, 2): {3}}}, "id": "c"}]),
        "tool_calls",
        AIMessage(
            "", id="a", invalid_tool_calls=[{"name": "f", "args": "{'x': {(1, 2): {3}}}", "id": "c", "error": None}]
        ),
    ),
]


@pytest.mark.parametrize(("message", "left_out", "expected"), LEFT_OUT)
def test_what_cannot_be_stored_is_left_out_with_one_warning(
    message: BaseMessage, left_out: str, expected: BaseMessage
) -> None:
    with pytest.warns(UnstorableWarning, match=left_out) as seen:
        neutral = to_message(message)
    assert len(seen) == 1
    assert Path(seen[0].filename) == Path(__file__)
    back = from_message(stored(neutral))
    assert back == expected
    assert content_of(to_message(back)) == content_of(neutral)


# Media


def test_a_value_in_itself_is_left_out() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.warns(UnstorableWarning, match="nested too deeply"):
        neutral = to_message(HumanMessage("q", id="a", additional_kwargs={"x": endless}))
    assert neutral == Message.user("q", id="a")


def test_a_reference_that_cannot_be_resolved_is_an_error() -> None:
    with pytest.raises(KeyError, match="text"):
        CODEC.decode([{"$text": [0, 1]}])


def test_a_block_costs_its_figure_and_never_its_bytes(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, Any], int]] = [
        (PICTURE, 1_105),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}, 85),
        ({"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}, LOW_IMAGE_TOKENS),
        ({"image": {"format": "png", "source": {"$bytes": "AA=="}}}, IMAGE_TOKENS),
        ({"type": "audio", "base64": "A" * 4_000_000}, 1_920),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, AUDIO_TOKENS),
        ({"type": "video", "url": "https://example.org/a.mp4"}, 2_630),
        ({"type": "file", "base64": "A" * 1_000_000, "mime_type": "application/pdf"}, 3_000),
        ({"type": "media", "data": "AA", "mime_type": "video/mp4"}, VIDEO_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": "x" * 30}}, 10),
        ({"type": "text-plain", "text": "x" * 30, "mime_type": "text/plain"}, 10),
        ({"type": "tool_use", "id": "c", "name": "f", "input": {"x": "y" * 30}}, 0),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "x" * 30}], "encrypted_content": "zz"}, 10),
        ({"type": "redacted_thinking", "data": "z" * 99}, 0),
        ({"type": ["not", "hashable"], "note": "abc"}, 1),
    ]
    for block, tokens in rows:
        with subtests.test(block=block, tokens=tokens):
            assert block_tokens(block) == tokens
            assert to_message(HumanMessage([block, "and text"])).media_tokens in (tokens, IMAGE_TOKENS)


# Grounding


def test_grounding_is_kept_apart(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Any, Grounding | None]] = [
        ("one", Grounding.of("one")),
        (["one", "two"], Grounding.of("one", "two")),
        (
            [Document("1", metadata={"relevance_score": 0.25}), "2", Document("3", metadata={"relevance_score": "x"})],
            Grounding(items=(GroundingItem(text="1", score=0.25), GroundingItem(text="2"), GroundingItem(text="3"))),
        ),
        ({"items": ["one"], "header": "h", "footer": "f"}, Grounding.of("one", header="h", footer="f")),
        ("", None),
        ([], None),
        ([1], None),
        (7, None),
        ({"unknown": 1}, None),
    ]
    for value, grounding in rows:
        with subtests.test(value=value, grounding=grounding):
            message = HumanMessage("q", id="a", additional_kwargs={"grounding": value, "other": 1})
            neutral = to_message(message)
            assert neutral.grounding == grounding
            assert neutral.content == "q"
            back = from_message(stored(neutral))
            assert back.model_copy(update={"additional_kwargs": message.additional_kwargs}) == message
            assert (grounding or value) == (grounding_of(back.additional_kwargs["grounding"]) or value)


def test_grounding_changed_since_comes_back_as_it_is_now() -> None:
    neutral = to_message(HumanMessage("q", additional_kwargs={"grounding": [Document("a"), Document("b")]}))
    for grounding in (Grounding.of("c"), Grounding.of("c", "d", "e"), Grounding.of("c", header="h")):
        back = from_message(neutral.replace(grounding=grounding))
        assert to_message(back).grounding == grounding


# In a prompt


@pytest.mark.parametrize("content", ["what is it?", ["what is", PICTURE, "this?"], [PICTURE], []])
def test_what_a_prompt_puts_before_the_question_is_sent(content: Any) -> None:
    neutral = to_message(HumanMessage(content, id="q", additional_kwargs={"grounding": ["passage"]}))
    sent = from_message(with_grounding(neutral, "earlier: ..."))
    assert sent.additional_kwargs == {}
    if isinstance(content, str):
        assert sent.content == "earlier: ...\n\nwhat is it?"
    else:
        gap = "\n\n" if neutral.content else ""
        assert sent.content == [{"type": "text", "text": f"earlier: ...{gap}"}, *content]
