"""LangChain's messages through the engine: equal again, small, paired, and never more than they were."""

import copy
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

import langchain_infinite_memory
from langchain_infinite_memory import UnstorableWarning, from_message, to_message
from langchain_infinite_memory.content import CODEC, block_tokens
from shared_core import Grounding, GroundingItem, InfiniteMemory, Message, ToolCall
from shared_core.formats.parts import AUDIO_TOKENS, FILE_TOKENS, IMAGE_TOKENS, LOW_IMAGE_TOKENS, VIDEO_TOKENS
from shared_core.interop.content import text_tokens
from shared_core.interop.values import UnstorableError
from shared_core.messages import Payload, content_of
from shared_core.prompt.frame import with_grounding
from shared_core.tokens import TiktokenCounter
from tests.langchain.sample_messages import EVERY, PICTURE, messages
from tests.support.strategies import groundings

ROOT = Path(__file__).parents[2]

by_kind = pytest.mark.parametrize("message", EVERY, ids=lambda message: message.id or "without an id")


def stored(message: Message) -> Message:
    """Return the message as a store that keeps JSON gives it back."""
    written = json.dumps(message.model_dump(), ensure_ascii=False)
    return Message.model_validate(json.loads(written))


# There and back


@by_kind
def test_every_message_comes_back_equal(message: BaseMessage) -> None:
    before = copy.deepcopy(message)
    back = from_message(stored(to_message(message)))
    assert back == before == message
    assert type(back) is type(message)
    assert back.additional_kwargs == message.additional_kwargs


@given(messages())
def test_any_message_comes_back_equal(message: BaseMessage) -> None:
    neutral = to_message(message)
    assert from_message(stored(neutral)) == message
    assert content_of(to_message(from_message(neutral))) == content_of(neutral)


def in_new_process(script: str, *arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


READ_AGAIN = """
import sys
from tests.langchain.sample_messages import EVERY
from langchain_infinite_memory import from_message
from shared_core import InfiniteMemory
with InfiniteMemory(sys.argv[1], token_counter="characters/4") as memory:
    back = [from_message(message) for message in memory.messages()]
assert back == EVERY, [pair for pair in zip(back, EVERY) if pair[0] != pair[1]]
print(len(back))
"""


def test_every_message_comes_back_from_a_file_in_a_new_process(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with InfiniteMemory(path) as memory:
        memory.add([to_message(message) for message in EVERY])
    assert in_new_process(READ_AGAIN, str(path)) == str(len(EVERY))


def test_adding_what_came_back_once_more_changes_nothing(tmp_path: Path) -> None:
    named = [message for message in EVERY if message.id]
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add([to_message(message) for message in named])
        once = list(memory.messages())
        memory.add([to_message(from_message(message)) for message in once])
        assert list(memory.messages()) == once


def test_a_value_given_is_never_changed_or_shared() -> None:
    message = HumanMessage("q", id="a", additional_kwargs={"more": {"deep": [1]}})
    neutral = to_message(message)
    first, second = from_message(neutral), from_message(neutral)
    first.additional_kwargs["more"]["deep"].append(2)
    assert message.additional_kwargs == {"more": {"deep": [1]}}
    assert second == message == from_message(neutral)


# Small


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


def test_a_payload_never_repeats_a_text() -> None:
    text, passage = "a" * 999, "b" * 999
    question = HumanMessage([{"type": "text", "text": text}, text], additional_kwargs={"grounding": passage})
    neutral = to_message(question)
    assert neutral.content == f"{text}\n{text}"
    assert neutral.grounding == Grounding.of(passage)
    assert neutral.payload is not None
    assert len(json.dumps(neutral.payload.data)) < 200
    assert to_message(HumanMessage("hi")).payload == Payload(format="langchain/1", data={"id": None})


# What the engine sees


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


def test_roles(subtests: pytest.Subtests) -> None:
    rows: list[tuple[BaseMessage, str, str | None]] = [
        (ToolMessage("r", tool_call_id="c"), "tool", "c"),
        (FunctionMessage(content="r", name="f"), "tool", "function:f"),
        (ChatMessage(content="r", role="Ana"), "user", None),
        (ChatMessage(content="r", role="user"), "user", None),
        (ChatMessage(content="r", role="Assistant"), "assistant", None),
        (ChatMessage(content="r", role="tool"), "assistant", None),
        (ChatMessage(content="r", role="developer"), "system", None),
        (ChatMessage(content="r", role="Agent"), "assistant", None),
    ]
    for message, role, answers in rows:
        with subtests.test(message=message, role=role, answers=answers):
            neutral = to_message(message)
            assert (neutral.role, neutral.tool_call_id) == (role, answers)


def test_a_function_call_and_its_result_are_a_tool_group() -> None:
    call, result = (to_message(message) for message in EVERY if message.id in ("old call", "old result"))
    assert call.tool_calls == (ToolCall(id="function:old", name="old", arguments='{"a": 1}'),)
    assert result.tool_call_id == "function:old"


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


def test_chunks_become_whole_messages() -> None:
    class Own(AIMessageChunk):
        pass

    pieces: list[Any] = [
        {"name": "f", "args": '{"a":', "id": "c", "index": 0},
        {"name": None, "args": "1}", "id": None, "index": 0},
    ]
    for cls in (AIMessageChunk, Own):
        chunk = cls(content="hel", tool_call_chunks=pieces[:1], id="x") + cls(content="lo", tool_call_chunks=pieces[1:])
        back = from_message(to_message(chunk))
        assert back == AIMessage("hello", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}], id="x")
    assert from_message(to_message(HumanMessageChunk(content="hi", id="y"))) == HumanMessage("hi", id="y")


def test_a_subclass_becomes_the_class_it_extends() -> None:
    class Rated(HumanMessage):
        stars: int = 3

    assert from_message(to_message(Rated(content="good", id="r"))) == HumanMessage("good", id="r")
    assert from_message(to_message(Rated(content="good", id="r", stars=5))) == HumanMessage("good", id="r", stars=5)


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


@pytest.mark.parametrize(
    ("message", "left_out", "expected"),
    [
        (
            ToolMessage("r", tool_call_id="c", id="t", artifact=np.ones(2)),
            "ToolMessage: stored without artifact (ndarray is not a JSON value)",
            ToolMessage("r", tool_call_id="c", id="t"),
        ),
        (
            ToolMessage("r", tool_call_id="c", id="t", artifact={"frame": np.ones(2), "rows": 2}, status="error"),
            "ToolMessage: stored without artifact (ndarray is not a JSON value)",
            ToolMessage("r", tool_call_id="c", id="t", status="error"),
        ),
        (
            HumanMessage("q", id="a", additional_kwargs={"x": {1}, "y": 1}, response_metadata={"z": object()}),
            "HumanMessage: stored without additional_kwargs['x'] (set is not a JSON value), "
            "response_metadata['z'] (object is not a JSON value)",
            HumanMessage("q", id="a", additional_kwargs={"y": 1}),
        ),
        (
            HumanMessage([{"type": "x", "y": {1}}, {"type": "text", "text": "hi", "z": {1}}], id="a"),
            "HumanMessage: stored without content[0] (set is not a JSON value), content[1] (set is not a JSON value)",
            HumanMessage(["hi"], id="a"),
        ),
        (
            HumanMessage("q", id="a", additional_kwargs={"grounding": [Document("one", metadata={"x": {1}})]}),
            "HumanMessage: stored without what else is in additional_kwargs['grounding'] (set is not a JSON value)",
            HumanMessage("q", id="a", additional_kwargs={"grounding": ["one"]}),
        ),
        (
            AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"x": {1}}, "id": "c"}]),
            "AIMessage: stored without tool_calls (set is not a JSON value)",
            AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"x": "{1}"}, "id": "c"}]),
        ),
        (
            AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"x": {(1, 2): {3}}}, "id": "c"}]),
            "AIMessage: stored without tool_calls (set is not a JSON value)",
            AIMessage(
                "", id="a", invalid_tool_calls=[{"name": "f", "args": "{'x': {(1, 2): {3}}}", "id": "c", "error": None}]
            ),
        ),
    ],
)
def test_what_cannot_be_stored_is_left_out_with_one_warning(
    message: BaseMessage, left_out: str, expected: BaseMessage
) -> None:
    with pytest.warns(UnstorableWarning) as seen:
        neutral = to_message(message)
    assert [str(warning.message) for warning in seen] == [left_out]
    assert Path(seen[0].filename) == Path(__file__)
    back = from_message(stored(neutral))
    assert back == expected
    assert content_of(to_message(back)) == content_of(neutral)


def test_a_value_in_itself_is_left_out() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.warns(UnstorableWarning, match="nested too deeply"):
        neutral = to_message(HumanMessage("q", id="a", additional_kwargs={"x": endless}))
    assert neutral == Message.user("q", id="a")


@pytest.mark.parametrize("value", [{1, 2}, object(), np.int64(3), Message.user("a")])
def test_nothing_else_is_encoded(value: Any) -> None:
    with pytest.raises(UnstorableError):
        CODEC.encode([{"deep": value}])


def test_a_value_that_looks_like_a_reference_is_not_one() -> None:
    values: list[Any] = [
        {"$text": [0, 1]},
        {"$bytes": "AA=="},
        {"$map": []},
        {"$": 1, "b": 2},
        {1: {"$item": 0}},
        {"$document": {}},
    ]
    for value in values:
        assert CODEC.decode(json.loads(json.dumps(CODEC.encode(value)))) == value


def test_a_reference_that_cannot_be_resolved_is_an_error() -> None:
    with pytest.raises(KeyError, match="text"):
        CODEC.decode([{"$text": [0, 1]}])


@pytest.mark.parametrize("odd", [{"$map": 1}, {"$text": "b"}, {7: "c"}, {(1, 2): 3, "d": "text"}])
def test_a_text_block_may_have_odd_keys(odd: dict[Any, Any]) -> None:
    for block in ({**odd, "text": "hi"}, {**odd, "text": "hi", "type": "text"}):
        message = HumanMessage([block, "there"], id="a")
        neutral = to_message(message)
        assert neutral.content == "hi\nthere"
        assert from_message(stored(neutral)) == message


# Media


def test_a_block_costs_its_figure_and_never_its_bytes(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, Any], int]] = [
        (PICTURE, 1_105),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}, 85),
        ({"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"}, LOW_IMAGE_TOKENS),
        ({"image": {"format": "png", "source": {"$bytes": "AA=="}}}, IMAGE_TOKENS),
        ({"type": "audio", "base64": "A" * 4_000_000}, 1_920),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, AUDIO_TOKENS),
        ({"type": "video", "url": "https://example.org/a.mp4"}, 2_630),
        ({"type": "file", "base64": "A" * 1_000_000, "mime_type": "application/pdf"}, 3_000),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AA"}}, FILE_TOKENS),
        ({"type": "file", "base64": "AA", "mime_type": "image/png"}, IMAGE_TOKENS),
        ({"type": "media", "data": "AA", "mime_type": "video/mp4"}, VIDEO_TOKENS),
        ({"type": "document", "source": {"type": "base64", "data": "AA"}}, FILE_TOKENS),
        ({"type": "document", "source": {"type": "text", "data": "x" * 30}}, 10),
        ({"type": "text-plain", "text": "x" * 30, "mime_type": "text/plain"}, 10),
        ({"type": "tool_use", "id": "c", "name": "f", "input": {"x": "y" * 30}}, 0),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "x" * 30}], "encrypted_content": "zz"}, 10),
        ({"type": "thinking", "thinking": "x" * 30, "signature": "z" * 99}, 10),
        ({"type": "redacted_thinking", "data": "z" * 99}, 0),
        ({"type": ["not", "hashable"], "note": "abc"}, 1),
    ]
    for block, tokens in rows:
        with subtests.test(block=block, tokens=tokens):
            assert block_tokens(block) == tokens
            assert to_message(HumanMessage([block, "and text"])).media_tokens in (tokens, IMAGE_TOKENS)


def test_a_third_of_the_bytes_is_enough_for_prose_in_any_script() -> None:
    count = TiktokenCounter("o200k_base")
    if count.name != "tiktoken/o200k_base":
        pytest.skip("tiktoken's table o200k_base is not on this machine")
    for text in (
        "The ferry to Porto leaves at 07:45 from pier nine, but not on Sundays.",
        "Der Zug nach Köln hält in Düren.",
        "東京の旅行は四月です。",
        "رقم الخزانة هو أربعة آلاف",
        "기차는 다섯 시에 떠납니다.",
        "Поезд уходит в пять часов утра.",
        "",
    ):
        assert text_tokens(text) >= count(text)


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
            assert from_message(stored(neutral)) == message


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


def test_blocks_around_another_text_are_kept_with_that_text() -> None:
    neutral = to_message(HumanMessage(["what is", PICTURE, {"type": "text", "text": "this?"}]))
    for text in ("cut", "something else, and longer than it was"):
        assert from_message(neutral.replace(content=text)).content == [{"type": "text", "text": text}, PICTURE]


# Written without LangChain


def test_messages_of_the_core_come_back_as_plain_ones(tmp_path: Path) -> None:
    said = [
        Message.system("be brief", id="s"),
        Message.user("q", id="q", name="Ana", grounding="passage"),
        Message.assistant("", id="a", tool_calls=(ToolCall(id="c", name="f", arguments='{"x":1}'),)),
        Message.tool("r", "c", id="t", name="f"),
        Message.assistant("done", id="b"),
    ]
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(said)
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        back = [from_message(message) for message in memory.messages()]
        assert back == [
            SystemMessage("be brief", id="s"),
            HumanMessage("q", id="q", name="Ana", additional_kwargs={"grounding": ["passage"]}),
            AIMessage("", id="a", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}]),
            ToolMessage("r", tool_call_id="c", id="t", name="f"),
            AIMessage("done", id="b"),
        ]
        memory.add([to_message(message) for message in back])
        assert [message.id for message in memory.messages()] == ["s", "q", "a", "t", "b"]


_neutral = st.builds(
    Message,
    role=st.sampled_from(("user", "assistant", "system")),
    content=st.text(max_size=8),
    id=st.text(min_size=1, max_size=5),
    name=st.one_of(st.none(), st.text(max_size=3)),
    grounding=st.one_of(st.none(), groundings),
    pinned=st.booleans(),
    media_tokens=st.integers(0, 3),
    payload=st.one_of(
        st.none(), st.builds(Payload, format=st.just("other/1"), data=st.sampled_from((None, {}, {"a": [{"$map": 1}]})))
    ),
)
_written = st.sampled_from(('{"a":1}', '{"a": 1}', "", "{}", "[1]", "null", "oops", '{"a":\n"b\nc"}'))
_asked = st.lists(st.builds(ToolCall, id=st.text(max_size=2), name=st.text(max_size=2), arguments=_written), max_size=3)


@given(_neutral, _asked)
def test_any_message_of_the_core_comes_back_with_the_same_content(message: Message, calls: list[ToolCall]) -> None:
    if message.role == "assistant":
        message = message.replace(tool_calls=tuple(calls))
    back = to_message(from_message(message))
    assert back == message
    assert from_message(back) == from_message(message)


def test_arguments_changed_since_are_not_undone() -> None:
    written = Message.assistant("", id="a", tool_calls=(ToolCall(id="c", name="f", arguments='{"x": 1}'),))
    message = from_message(written)
    assert isinstance(message, AIMessage)
    message.tool_calls[0]["args"] = {"x": 2}
    neutral = to_message(message)
    assert neutral.tool_calls == (ToolCall(id="c", name="f", arguments='{"x":2}'),)
    assert from_message(neutral) == message


def test_another_payload_gives_way_to_what_was_added_here() -> None:
    written = Message.user("q", id="a", payload=Payload(format="other/1", data={"x": 1}))
    message = from_message(written)
    message.response_metadata = {"y": 2}
    neutral = to_message(message)
    assert neutral.payload is not None
    assert neutral.payload.format == "langchain/1"
    assert from_message(neutral) == message


@pytest.mark.parametrize(
    "payload",
    [
        Payload(format="langchain/2", data={"content": 7}),
        Payload(format="langchain/1", data=["no", "mapping"]),
        Payload(format="langchain/1", data={"$type": "remove"}),
    ],
)
def test_a_payload_not_understood_is_carried_along(payload: Payload) -> None:
    written = Message.user("q", id="a", payload=payload)
    back = from_message(written)
    kept = {"infinite_memory": {"payload": payload.model_dump()}}
    assert back == HumanMessage("q", id="a", additional_kwargs=kept)
    assert to_message(back) == written


@pytest.mark.parametrize(
    "value", ["pinned", {"pinned": "yes"}, {"media_tokens": -1}, {"colour": 1}, {"payload": {"data": {1}}}]
)
def test_what_is_not_ours_under_our_key_is_only_kept(value: Any) -> None:
    message = HumanMessage("q", id="a", additional_kwargs={"infinite_memory": value})
    if value == {"payload": {"data": {1}}}:
        with pytest.warns(UnstorableWarning):
            assert to_message(message) == Message.user("q", id="a")
        return
    neutral = to_message(message)
    assert (neutral.pinned, neutral.media_tokens) == (False, 0)
    assert from_message(neutral) == message


def test_what_cannot_be_stored_under_our_key_is_left_out() -> None:
    kept = {"infinite_memory": {"payload": {"format": "other/1", "data": {1}}}}
    with pytest.warns(UnstorableWarning, match="set is not a JSON value"):
        assert to_message(HumanMessage("q", id="a", additional_kwargs=kept)) == Message.user("q", id="a")


def test_a_tool_message_of_the_core_that_names_no_call() -> None:
    assert from_message(Message(role="tool", content="r", id="t")) == ToolMessage("r", tool_call_id="", id="t")


# The package


def test_every_public_name_is_there() -> None:
    names = langchain_infinite_memory.__all__
    assert list(names) == sorted(names)
    assert set(names) <= set(dir(langchain_infinite_memory))
    for name in names:
        assert getattr(langchain_infinite_memory, name).__name__ == name
    for module, public in langchain_infinite_memory._MODULES.items():
        assert import_module(f"langchain_infinite_memory.{module}").__all__ == public
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = langchain_infinite_memory.no_such_name


WITHOUT = """
import sys
{hide}
import shared_core
try:
    import langchain_infinite_memory
except ImportError as error:
    print(type(error).__name__, error.name, error)
"""
HOOK = """
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "langchain_core":
            raise ModuleNotFoundError("hidden", name=name)
sys.meta_path.insert(0, Hide())
"""


@pytest.mark.parametrize("hide", ["sys.modules['langchain_core'] = None", HOOK])
def test_without_langchain_core_the_extra_is_named(hide: str) -> None:
    said = in_new_process(WITHOUT.format(hide=hide))
    expected = "langchain-core is not installed: pip install 'infinite-memory[langchain]'"
    assert said == f"MissingExtraError langchain_core {expected}"


def test_importing_the_package_loads_nothing() -> None:
    script = "import sys, langchain_infinite_memory; print({'langchain_core', 'numpy', 'pydantic'} & set(sys.modules))"
    assert in_new_process(script) == "set()"
