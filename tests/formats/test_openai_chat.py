"""Chat-completions dicts become messages and come back as they were; what cannot be expressed is named."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from openai.types.chat import ChatCompletionMessage

from shared_core import Context, ContextReport, Grounding, InfiniteMemory, Message, ToolCall
from shared_core.formats.parts import AUDIO_TOKENS, FILE_TOKENS, IMAGE_TOKENS, LOW_IMAGE_TOKENS, OPENAI_FORMAT
from shared_core.messages import Payload
from shared_core.sharing.readers.openai import read_messages
from tests.formats.requests import PDF, PNG, chat_dicts, check_chat, messages

LOOK = {"type": "text", "text": "What is this?"}
PICTURE = {"type": "image_url", "image_url": {"url": PNG}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Porto"}'}}


@given(item=chat_dicts)
def test_a_dict_comes_back_as_it_was(item: dict[str, Any]) -> None:
    check_chat([item])
    before = copy.deepcopy(item)
    message = Message.from_openai(item)
    assert message.to_openai() == item == before
    check_chat([message.to_openai()])
    assert Message.from_openai(message.to_openai()) == message


@given(message=messages)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    check_chat([message.to_openai()])
    assert Message.from_openai(message.to_openai()) == message


def test_what_a_message_and_its_dict_hold() -> None:
    user = Message.from_openai({"role": "user", "content": [LOOK, PICTURE], "name": "ann"})
    assert (user.role, user.content, user.name, user.media_tokens) == ("user", "What is this?", "ann", IMAGE_TOKENS)
    called = Message.from_openai({"role": "assistant", "content": None, "tool_calls": [CALL]})
    assert called == Message.assistant(
        tool_calls=(ToolCall(id="c1", name="weather", arguments='{"city": "Porto"}'),), payload=None
    )
    assert called.to_openai() == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert Message.from_openai({"role": "tool", "tool_call_id": "c1", "content": "18"}) == Message.tool("18", "c1")
    assert Message.from_openai({"role": "developer", "content": "Be brief."}).role == "system"
    assert Message.system("Be brief.").to_openai() == {"role": "system", "content": "Be brief."}


def test_old_function_calls_are_calls_and_results() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}}
    result = {"role": "function", "name": "now", "content": "noon"}
    called, answered = Message.from_openai(call), Message.from_openai(result)
    assert [one.id for one in called.tool_calls] == [answered.tool_call_id]
    assert [called.to_openai(), answered.to_openai()] == [call, result]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [("refusal", "I cannot.", "I cannot."), ("audio", {"id": "a1", "transcript": "By train."}, "By train.")],
)
def test_what_is_said_in_another_field_is_remembered(field: str, value: Any, text: str) -> None:
    message = Message.from_openai({"role": "assistant", "content": None, field: value})
    assert message.content == text
    back = message.to_openai()
    assert (back["content"], back[field]) == (None, {"id": "a1"} if field == "audio" else value)


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (PICTURE, IMAGE_TOKENS),
        ({"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}, LOW_IMAGE_TOKENS),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, AUDIO_TOKENS),
        ({"type": "file", "file": {"file_data": PDF}}, FILE_TOKENS),
        (LOOK, 0),
    ],
)
def test_media_are_charged(part: dict[str, Any], tokens: int) -> None:
    assert Message.from_openai({"role": "user", "content": [part]}).media_tokens == tokens
    assert Message.from_openai({"role": "user", "content": [part], "media_tokens": 7}).media_tokens == 7


def test_an_unknown_field_is_kept_and_given_back() -> None:
    said = {"role": "assistant", "content": "Hi.", "reasoning_content": "A greeting."}
    message = Message.from_openai({**said, "annotations": [], "audio": None})
    assert message.payload == Payload(format=OPENAI_FORMAT, data={"reasoning_content": "A greeting."})
    assert message.to_openai() == said


def test_fields_of_the_message_are_taken_and_not_sent() -> None:
    own = {"id": "m1", "created_at": "2025-03-01T10:00:00+00:00", "pinned": True, "grounding": "found", "turn_id": "m1"}
    message = Message.from_openai({"role": "user", "content": "q", **own})
    assert (message.id, message.pinned, message.grounding, message.turn_id) == ("m1", True, Grounding.of("found"), "m1")
    assert message.created_at is not None
    assert message.created_at.isoformat() == own["created_at"]
    assert message.payload is None
    assert message.to_openai() == {"role": "user", "content": "found\n\nq"}


def test_text_before_the_parts_is_a_part_and_another_text_replaces_theirs() -> None:
    message = Message.from_openai({"role": "user", "content": [LOOK, PICTURE]})
    before = {"type": "text", "text": "found\n\n"}
    assert message.replace(grounding=Grounding.of("found")).to_openai()["content"] == [before, LOOK, PICTURE]
    other = {"type": "text", "text": "other"}
    assert message.replace(content="other").to_openai()["content"] == [other, PICTURE]
    assert message.replace(content="").to_openai()["content"] == [PICTURE]


def test_changed_calls_and_roles_are_written_as_they_are_now() -> None:
    item = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}]}
    message = Message.from_openai(item)
    assert message.to_openai() == item
    call = message.tool_calls[0].model_copy(update={"arguments": "{}"})
    function = {"name": "weather", "arguments": "{}"}
    assert message.replace(tool_calls=(call,)).to_openai()["tool_calls"] == [{**CALL, "function": function}]
    told = Message.from_openai({"role": "developer", "content": "x"})
    assert told.replace(role="user").to_openai() == {"role": "user", "content": "x"}


def test_what_was_read_and_what_was_written_share_nothing_with_the_message() -> None:
    item: dict[str, Any] = {"role": "user", "content": [LOOK, copy.deepcopy(PICTURE)]}
    message = Message.from_openai(item)
    expected = copy.deepcopy(item)
    item["content"][1]["image_url"]["url"] = "changed"
    message.to_openai()["content"][1]["image_url"]["url"] = "changed"
    assert message.to_openai() == expected


def test_an_object_of_the_sdk_is_a_message() -> None:
    reply = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [CALL]}
    )
    assert Message.from_openai(reply) == Message.from_openai({"role": "assistant", "tool_calls": [CALL]})
    with InfiniteMemory() as memory:
        memory.add({"role": "user", "content": "q"})
        assert memory.add(reply)[0].tool_calls[0].name == "weather"
        assert memory.add([reply])[0].to_openai() == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    by_hand = {"role": "assistant", "content": None, "tool_calls": reply.tool_calls}
    assert Message.from_openai(by_hand) == Message.from_openai(reply)


WRONG: list[tuple[Any, str]] = [
    (
        {"role": "you", "content": "x"},
        "unknown role 'you'; expected one of system, developer, user, human, assistant, ai, agent, model",
    ),
    ({"object": "chat.completion", "choices": []}, "pass completion.choices[0].message"),
    ({"object": "response", "output": []}, "pass response.output"),
    ({"content": "x"}, 'there is no "role"'),
    ({"role": "user", "text": "x"}, 'the message has "text"; expected the text as "content"'),
    ({"role": "user"}, 'the message has no "content"'),
    ({"role": "user", "content": 3}, "content is 3; expected text, null or a list of parts"),
    ({"role": "user", "content": ["x"]}, "content[0] is 'x'; expected an object with \"type\""),
    ({"role": "user", "content": [LOOK, {"type": "video"}]}, "content[1] is of the unknown type 'video'"),
    ({"role": "user", "content": [{"type": "sculpture", "id": "c"}]}, "unknown type 'sculpture'; expected one of text"),
    ({"role": "user", "content": [{"type": "text"}]}, 'expected a "text" field'),
    ({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, 'an object "image_url" with "url"'),
    ({"role": "user", "content": [{"type": "file"}]}, 'expected an object "file"'),
    ({"role": "assistant", "tool_calls": "x"}, "tool_calls is 'x'; expected a list"),
    ({"role": "assistant", "tool_calls": [{"id": "c"}]}, 'expected "id" and "function"'),
    ({"role": "tool", "content": "x"}, 'has no "tool_call_id"'),
    ({"role": "user", "content": "x", "name": 7}, "name=7: Input should be"),
]


def test_a_wrong_dict_is_named_with_its_index(subtests: pytest.Subtests) -> None:
    for item, reason in WRONG:
        with subtests.test(item=item, reason=reason):
            with pytest.raises(ValueError) as alone:  # noqa: PT011 - the text is compared below
                Message.from_openai(item)
            memory = InfiniteMemory()
            with pytest.raises(ValueError) as listed:  # noqa: PT011
                memory.add([{"role": "user", "content": "first"}, item])
            assert reason in str(alone.value)
            assert str(listed.value) == f"messages[1]: {alone.value}"
            assert list(memory.messages()) == []


def test_parts_that_were_imported_are_given_back_and_not_sent_elsewhere(tmp_path: Path) -> None:
    parts = ["look", {"type": "video", "url": "https://example.org/a.mp4"}]
    (tmp_path / "talk.json").write_text(json.dumps([{"role": "user", "content": parts, "id": "m1"}]))
    (message,) = read_messages(tmp_path / "talk.json")
    assert message.to_openai()["content"] == [{"type": "text", "text": "look"}, parts[1]]
    context = Context((message,), ContextReport(0, 0, ()))
    with pytest.raises(ValueError, match=r"'m1'.*'video'"):
        context.to_responses()
    with pytest.raises(ValueError, match=r"'m1'.*'video'"):
        context.to_anthropic()


def test_nesting_without_end_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        Message.from_openai({"role": "user", "content": "x", "more": deep})


def test_a_name_is_written_as_the_api_takes_it() -> None:
    assert Message.user("hi", name="Ben Ode <ben>").to_openai()["name"] == "Ben_Ode__ben_"
    assert "name" not in Message.user("hi", name="").to_openai()
    ben = Message.from_openai({"role": "user", "content": "hi", "name": "Ben Ode"})
    assert (ben, ben.to_openai()["name"]) == (Message.user("hi", name="Ben Ode"), "Ben_Ode")


def test_media_of_another_framework_are_named_not_dropped() -> None:
    message = Message.user("look", payload=Payload(format="langchain/1", data={"content": []}), media_tokens=9)
    for write in (message.to_openai, message.to_responses):
        with pytest.raises(ValueError, match="'langchain/1'"):
            write()
    assert message.replace(media_tokens=0).to_openai() == {"role": "user", "content": "look"}
