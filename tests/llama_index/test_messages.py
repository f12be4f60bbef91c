"""LlamaIndex's messages through the engine: equal again, small, paired, and counted whole."""

import copy
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from pydantic import BaseModel

import llama_index_infinite_memory
from llama_index_infinite_memory import InfiniteChatMemoryBuffer, UnstorableWarning, from_message, to_message
from llama_index_infinite_memory.content import CODEC, blocks_tokens
from llama_index_infinite_memory.messages import FORMAT, read_message
from shared_core import Grounding, Message, ToolCall
from shared_core.formats.parts import LOW_IMAGE_TOKENS
from shared_core.interop.values import UnstorableError
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


def in_new_process(script: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


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


def test_legacy_images_in_additional_kwargs_are_not_added_twice() -> None:
    from llama_index.core.schema import ImageDocument

    message = ChatMessage(content="q", additional_kwargs={"images": [ImageDocument(image=PNG)]})
    back = to_message(stored(from_message(message)))
    assert back.blocks == message.blocks
    assert len(back.blocks) == 2


# Small


def test_what_the_neutral_fields_express_has_no_payload() -> None:
    for message in (
        ChatMessage(content="hi"),
        ChatMessage(role="system", content="hi", additional_kwargs={"name": "Ana"}),
        ChatMessage(role="tool", content="hi", additional_kwargs={"tool_call_id": "c"}),
        ChatMessage(content=""),
    ):
        assert from_message(message).payload is None, message


def test_a_text_is_not_stored_twice() -> None:
    message = ChatMessage(
        blocks=[TextBlock(text="x" * 5_000), ImageBlock(url="https://e.org/a.png"), TextBlock(text="y")]
    )
    neutral = from_message(message)
    assert neutral.content == "x" * 5_000 + "\ny"
    assert len(neutral.model_dump_json()) < 5_600


def test_a_picture_is_stored_as_it_is_held() -> None:
    neutral = from_message(ChatMessage(blocks=[ImageBlock(image=b"\x89" * 30_000)]))
    assert len(neutral.model_dump_json()) < 41_000


# What the engine sees


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


def test_arguments_that_are_not_json_are_shown_as_they_are() -> None:
    calls = [{"id": "c", "name": "f", "args": {"a": {1}}}, {"id": "d", "name": "g", "args": {(1,): 2}}]
    message = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": calls})
    assert [call.arguments for call in from_message(message).tool_calls] == ['{"a":"{1}"}', "{(1,): 2}"]


def test_a_function_call_of_old_is_paired_with_its_result() -> None:
    called, result = (from_message(message) for message in EVERY if "old" in str(message.additional_kwargs))
    assert called.tool_calls == (ToolCall(id="function:old", name="old", arguments="{}"),)
    assert result.tool_call_id == "function:old"


@pytest.mark.skipif(not hasattr(types, "ToolCallBlock"), reason="this LlamaIndex has no tool call blocks")
def test_a_call_given_twice_is_one_call() -> None:
    twice = [message for message in EVERY if message.additional_kwargs.get("tool_calls") and len(message.blocks) == 1]
    assert [len(from_message(message).tool_calls) for message in twice] == [1, 1]


def test_media_is_counted() -> None:
    picture, low = ImageBlock(image=PNG), ImageBlock(url="https://e.org/a.png", detail="low")
    assert from_message(ChatMessage(blocks=[TextBlock(text="x"), picture, low])).media_tokens == (
        256 + LOW_IMAGE_TOKENS
    )
    counted = {part(message, -1).block_type: blocks_tokens(message.blocks) for message in EVERY if message.blocks}
    assert counted["document"] == 2 * 2048
    assert counted["citation"] == 1 + 2
    assert counted["citable"] == 1 + 2 + 256
    assert counted["cache"] == 0
    if hasattr(types, "ThinkingBlock"):
        assert blocks_tokens([types.ThinkingBlock(num_tokens=90)]) == 90
        assert blocks_tokens([types.ThinkingBlock(content="x" * 30)]) == 10
    assert blocks_tokens([object()]) == 0


# What others wrote


def test_a_message_of_the_core_is_a_plain_one() -> None:
    message = Message.user("hi", id="a", name="Ana", pinned=True, grounding="read this")
    assert to_message(message) == ChatMessage(role="user", content="hi", additional_kwargs={"name": "Ana"})
    assert to_message(Message.tool("12", "c")) == ChatMessage(
        role="tool", content="12", additional_kwargs={"tool_call_id": "c"}
    )


def test_tool_calls_of_others_are_what_llama_index_knows() -> None:
    calls = (A_CALL, ToolCall(id="", name="g", arguments="[1"))
    built = to_message(Message.assistant("look", tool_calls=calls))
    assert from_message(built).tool_calls == calls
    assert built.content == "look"
    if hasattr(types, "ToolCallBlock"):
        assert built.blocks[1] == types.ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"a": 1})
        assert part(built, 2).tool_kwargs == "[1"
    else:
        assert built.additional_kwargs["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}


def test_another_payload_is_not_looked_at() -> None:
    message = Message.user("hi", payload=Payload(format="langchain/1", data={"blocks": "?", "role": "?"}))
    assert to_message(message) == ChatMessage(content="hi")
    assert to_message(Message.user("hi", payload=Payload(format=FORMAT, data=None))) == ChatMessage(content="hi")


def test_what_was_put_before_a_text_is_a_block_of_its_own() -> None:
    neutral = from_message(EVERY[7])
    grounded = to_message(neutral.replace(content="read this\n\n" + neutral.content, grounding=Grounding()))
    assert grounded.blocks == [TextBlock(text="read this\n\n"), *EVERY[7].blocks]
    other = to_message(neutral.replace(content="other"))
    assert other.blocks == [TextBlock(text="other"), EVERY[7].blocks[1]]


def test_a_block_of_a_newer_version_is_left_out() -> None:
    data = {"blocks": [{"$text": [-2, 0]}, {"block_type": "hologram", "x": 1}], "$text": [2, 3633523372]}
    built = to_message(Message.user("hi", payload=Payload(format=FORMAT, data=data)))
    assert built.content in ("hi", "hi\n")


# What cannot be stored


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


def test_objects_become_mappings() -> None:
    message = ChatMessage(
        role="assistant",
        content="",
        additional_kwargs={"tool_calls": [Call(id="c", function=Function(name="f", arguments=""))]},
    )
    expected = [{"id": "c", "function": {"name": "f", "arguments": ""}, "type": "function"}]
    assert to_message(stored(from_message(message))).additional_kwargs == {"tool_calls": expected}


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(TypeError, match="'hi'"):
        from_message("hi")  # type: ignore[arg-type]


nested: Any = []
for _ in range(5_000):
    nested = [nested]


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    with pytest.raises(UnstorableError, match="nested too deeply"):
        CODEC.encode(nested)


@given(st.dictionaries(st.sampled_from(["$text", "$map", "$set", "a"]), st.integers(), max_size=2))
def test_marks_in_data_are_data(value: dict[str, int]) -> None:
    assert CODEC.decode(json.loads(json.dumps(CODEC.encode(value)))) == value


def test_data_that_was_not_encoded_here_is_refused() -> None:
    with pytest.raises(KeyError):
        CODEC.decode({"$code": "x"})


# The package


def test_every_public_name_is_there_and_loaded_late() -> None:
    for name in llama_index_infinite_memory.__all__:
        assert getattr(llama_index_infinite_memory, name) is not None
        assert name in dir(llama_index_infinite_memory)
    for module, public in llama_index_infinite_memory._MODULES.items():
        assert import_module(f"llama_index_infinite_memory.{module}").__all__ == public
    with pytest.raises(AttributeError, match="'nothing'"):
        llama_index_infinite_memory.nothing  # noqa: B018
    script = "import sys, llama_index_infinite_memory; print('llama_index.core' in sys.modules)"
    assert in_new_process(script) == "False"


WITHOUT = """
import sys
sys.modules["llama_index"] = None
try:
    import llama_index_infinite_memory
except ImportError as error:
    print(error)
"""


def test_without_llama_index_the_extra_is_named() -> None:
    assert in_new_process(WITHOUT) == ("llama-index-core is not installed: pip install 'infinite-memory[llama-index]'")


# Nodes as grounding


def passages() -> list[Any]:
    page = TextNode(text="Refunds take five days.", metadata={"file_name": "terms.md"}, id_="n1")
    page.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="terms", metadata={"v": 2})
    plain = TextNode(text="Vouchers expire.", id_="n2")
    return [NodeWithScore(node=page, score=0.75), plain, "Ask Ana.", NodeWithScore(node=plain, score=None)]


def test_nodes_are_grounding_and_come_back_equal(tmp_path: Path) -> None:
    asked = ChatMessage(role="user", content="How long?", additional_kwargs={"grounding": passages(), "sent": 1})
    read = from_message(asked)
    assert read.grounding is not None
    assert [(item.text, item.score) for item in read.grounding.items] == [
        ("file_name: terms.md\n\nRefunds take five days.", 0.75), ("Vouchers expire.", None), ("Ask Ana.", None),
        ("Vouchers expire.", None),
    ]  # fmt: skip
    assert to_message(read) == asked
    assert "Vouchers" not in json.dumps(read.payload and read.payload.data)
    with InfiniteChatMemoryBuffer.from_defaults(store=tmp_path / "a.db") as memory:
        memory.put(asked)
    with InfiniteChatMemoryBuffer.from_defaults(store=tmp_path / "a.db") as memory:
        assert memory.get_all() == [asked]
        (sent,) = memory.get()
        assert sent.content == "\n\n".join([*(item.text for item in read.grounding.items), "How long?"])
        assert sent.additional_kwargs == {"sent": 1}  # APIs refuse keys that they do not know
        memory.put_messages([ChatMessage(role="assistant", content="Five days."), ChatMessage(content="And vouchers?")])
        assert [message.content for message in memory.get()] == ["How long?", "Five days.", "And vouchers?"]
        assert memory.search("refunds terms")[0].message == asked


def test_other_values_are_no_grounding_and_kept() -> None:
    values: list[Any] = [[], [1], {"a": 1}, None, "", [""]]
    for value in values:
        asked = ChatMessage(role="user", content="x", additional_kwargs={"grounding": value})
        assert from_message(asked).grounding is None, value
        assert to_message(from_message(asked)) == asked, value
