"""LlamaIndex's messages through the engine: equal again, small, paired, and counted whole."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.llms.llm import ToolSelection
from pydantic import BaseModel

from llama_index_infinite_memory import UnstorableWarning, from_message, to_message
from llama_index_infinite_memory.content import blocks_tokens
from llama_index_infinite_memory.messages import FORMAT, read_message
from shared_core import Grounding, Message, ToolCall
from shared_core.formats.parts import FILE_TOKENS, IMAGE_TOKENS, LOW_IMAGE_TOKENS
from shared_core.messages import Payload
from tests.llama_index.sample_messages import EVERY, PNG, WITH_A_STREAM, messages, part

ROOT = Path(__file__).parents[2]


def stored(message: Message) -> Message:
    """Return the message as a store that keeps JSON gives it back."""
    written = json.dumps(message.model_dump(), ensure_ascii=False)
    return Message.model_validate(json.loads(written))


# There and back


def test_every_message_comes_back_equal(subtests: pytest.Subtests) -> None:
    for number, message in enumerate(EVERY):
        with subtests.test(number=number, role=message.role.value):
            before = copy.deepcopy(message)
            back = to_message(stored(from_message(message)))
            assert back == before == message
            assert [type(block) for block in back.blocks] == [type(block) for block in message.blocks]
            assert type(back.role) is MessageRole


@given(messages())
def test_any_message_comes_back_equal(message: ChatMessage) -> None:
    assert to_message(stored(from_message(message))) == message


def test_a_value_given_is_never_changed_or_shared() -> None:
    message = ChatMessage(content="q", additional_kwargs={"more": {"deep": [1]}})
    neutral = from_message(message)
    first, second = to_message(neutral), to_message(neutral)
    first.additional_kwargs["more"]["deep"].append(2)
    first.blocks[0] = TextBlock(text="changed")
    assert second == message == to_message(neutral)


def test_a_stream_is_stored_as_what_it_holds_and_left_where_it_was() -> None:
    stream = part(WITH_A_STREAM, 1).image
    stream.seek(5)
    back = to_message(stored(from_message(WITH_A_STREAM)))
    assert stream.tell() == 5
    assert part(back, 1).image == ImageBlock(image=PNG).image
    assert part(back, 1).resolve_image().read() == PNG
    assert back.content == "What?"


# Small


def test_what_the_neutral_fields_express_has_no_payload() -> None:
    for message in (
        ChatMessage(content="hi"),
        ChatMessage(role="system", content="hi", additional_kwargs={"name": "Ana"}),
        ChatMessage(role="tool", content="hi", additional_kwargs={"tool_call_id": "c"}),
        ChatMessage(content=""),
    ):
        assert from_message(message).payload is None, message


# What the engine sees


def test_a_text_is_not_stored_twice() -> None:
    message = ChatMessage(
        blocks=[TextBlock(text="x" * 5_000), ImageBlock(url="https://e.org/a.png"), TextBlock(text="y")]
    )
    neutral = from_message(message)
    assert neutral.content == "x" * 5_000 + "\ny"
    assert len(neutral.model_dump_json()) < 5_600


def test_each_role_is_one_of_the_engine_s() -> None:
    roles = {
        "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "chatbot": "assistant",
        "model": "assistant", "tool": "tool", "function": "tool",
    }  # fmt: skip
    assert {role: from_message(ChatMessage(role=role, content="x")).role for role in roles} == roles


class Function(BaseModel):
    name: str
    arguments: str


class Call(BaseModel):
    id: str
    function: Function
    type: str = "function"


A_CALL = ToolCall(id="c", name="f", arguments='{"a":1}')


def test_tool_calls_are_found_in_every_form() -> None:
    forms: list[Any] = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "c", "type": "tool_use", "name": "f", "input": {"a": 1}},
        {"id": "c", "name": "f", "args": {"a": 1}},
        Call(id="c", function=Function(name="f", arguments='{"a":1}')),
        ToolSelection(tool_id="c", tool_name="f", tool_kwargs={"a": 1}),
    ]
    for form in forms:
        message = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [form]})
        assert from_message(message).tool_calls == (A_CALL,), form


def test_calls_that_are_no_calls_are_only_kept() -> None:
    for odd in ("none", [None, 7, {"id": "x"}], {"a": 1}):
        message = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": odd})
        assert from_message(message).tool_calls == ()
        assert to_message(stored(from_message(message))) == message
    asked = ChatMessage(role="user", content="", additional_kwargs={"tool_calls": [{"id": "c", "name": "f"}]})
    assert from_message(asked).tool_calls == ()


def test_media_is_counted() -> None:
    picture, low = ImageBlock(image=PNG), ImageBlock(url="https://e.org/a.png", detail="low")
    assert from_message(ChatMessage(blocks=[TextBlock(text="x"), picture, low])).media_tokens == (
        IMAGE_TOKENS + LOW_IMAGE_TOKENS
    )
    counted = {part(message, -1).block_type: blocks_tokens(message.blocks) for message in EVERY if message.blocks}
    assert counted["document"] == 2 * FILE_TOKENS
    assert counted["citation"] == 1 + 2
    assert counted["citable"] == 1 + 2 + IMAGE_TOKENS
    assert counted["cache"] == 0
    assert blocks_tokens([types.ThinkingBlock(num_tokens=90)]) == 90
    assert blocks_tokens([types.ThinkingBlock(content="x" * 30)]) == 10
    assert blocks_tokens([object()]) == 0


# What others wrote


def test_tool_calls_of_others_are_what_llama_index_knows() -> None:
    calls = (A_CALL, ToolCall(id="", name="g", arguments="[1"))
    built = to_message(Message.assistant("look", tool_calls=calls))
    assert from_message(built).tool_calls == calls
    assert built.content == "look"
    assert built.blocks[1] == types.ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"a": 1})
    assert part(built, 2).tool_kwargs == "[1"


def test_what_was_put_before_a_text_is_a_block_of_its_own() -> None:
    neutral = from_message(EVERY[7])
    grounded = to_message(neutral.replace(content="read this\n\n" + neutral.content, grounding=Grounding()))
    assert grounded.blocks == [TextBlock(text="read this\n\n"), *EVERY[7].blocks]
    other = to_message(neutral.replace(content="other"))
    assert other.blocks == [TextBlock(text="other"), EVERY[7].blocks[1]]


# What cannot be stored


def test_a_block_of_a_newer_version_is_left_out() -> None:
    data = {"blocks": [{"$text": [-2, 0]}, {"$block": ["HologramBlock", {"x": 1}]}], "$text": [2, 3633523372]}
    built = to_message(Message.user("hi", payload=Payload(format=FORMAT, data=data)))
    assert built.content in ("hi", "hi\n")


def test_what_has_no_json_form_is_left_out_with_a_warning() -> None:
    message = ChatMessage(content="q", additional_kwargs={"raw": object(), "more": 1, "deep": {"x": object()}})
    with pytest.warns(UnstorableWarning, match=r"without additional_kwargs\['raw'\] \(object is not a JSON value\)"):
        neutral = from_message(message)
    assert to_message(stored(neutral)).additional_kwargs == {"more": 1}
    closed = copy.deepcopy(WITH_A_STREAM)
    part(closed, 1).image.close()
    kept, lost = read_message(closed)
    assert "stream cannot be read" in lost[0]
    assert to_message(kept).blocks == [TextBlock(text="What?")]
    closed.blocks[1] = Function.model_construct()  # type: ignore[call-overload]
    kept, lost = read_message(closed)
    assert lost == ("blocks[1] (Function is not a known kind of block)",)
    assert to_message(kept).blocks == [TextBlock(text="What?")]


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(TypeError, match="'hi'"):
        from_message("hi")  # type: ignore[arg-type]
