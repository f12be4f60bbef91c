"""Items of the Responses API become messages, one for what the model said at once, and come back as they were."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from openai.types.responses import Response

from shared_core import Context, ContextReport, InfiniteMemory, Message, ToolCall
from shared_core.messages import message_list
from tests.formats.requests import PNG, chat_dicts, check_chat, check_responses, item_lists, messages

REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "I look it up.", "annotations": []}],
}
CALLS = [
    {"type": "function_call", "id": f"fc_{town}", "call_id": town, "name": "weather", "arguments": "{}"}
    for town in ("porto", "lisbon")
]
RESULTS = [{"type": "function_call_output", "call_id": town, "output": "sunny"} for town in ("porto", "lisbon")]
QUESTION = {"type": "message", "role": "user", "content": "What is the weather?"}


def sent(given: list[Message]) -> Context:
    return Context(tuple(given), ContextReport(0, 0, ()))


@given(items=item_lists)
def test_items_come_back_as_they_were(items: list[dict[str, Any]]) -> None:
    check_responses(items)
    before = copy.deepcopy(items)
    read = message_list(items)
    assert sent(read).to_responses() == items == before
    outputs = [item["call_id"] for item in items if item["type"].endswith("output")]
    assert [message.tool_call_id for message in read if message.role == "tool"] == outputs


@given(message=messages.filter(lambda message: message.name is None))
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    items = message.to_responses()
    check_responses(items)
    assert message_list(items) == [message]


@given(item=chat_dicts)
def test_a_chat_is_written_as_items_or_the_part_is_named(item: dict[str, Any]) -> None:
    try:
        items = sent([Message.from_openai(item)]).to_responses()
    except ValueError as error:
        assert str(error) == "messages[0]: a part of the type 'input_audio' has no form in the Responses API"  # noqa: PT017
        assert any(part["type"] == "input_audio" for part in item["content"])
    else:
        check_responses(items)


def test_reasoning_words_and_calls_in_a_row_are_one_message() -> None:
    read = message_list([QUESTION, REASONING, SAID, *CALLS, *RESULTS, REASONING, SAID | {"id": "msg_2"}])
    assert [message.role for message in read] == ["user", "assistant", "tool", "tool", "assistant"]
    calls = tuple(ToolCall(id=town, name="weather", arguments="{}") for town in ("porto", "lisbon"))
    assert (read[1].id, read[1].content, read[1].tool_calls) == (None, "I look it up.", calls)
    assert [message.tool_call_id for message in read[2:4]] == ["porto", "lisbon"]
    assert read[4].tool_calls == ()


def test_a_conversation_of_items_is_sent_to_chat_completions_and_back() -> None:
    picture = {"type": "input_image", "image_url": PNG, "detail": "low"}
    question = {"role": "user", "content": [{"type": "input_text", "text": "Where is this?"}, picture]}
    custom = {"type": "custom_tool_call", "call_id": "c3", "name": "sql", "input": "select 1"}
    result = {"type": "custom_tool_call_output", "call_id": "c3", "output": "1"}
    chat = sent(message_list([question, REASONING, CALLS[0], custom, RESULTS[0], result])).to_openai()
    check_chat(chat)
    assert chat == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Where is this?"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "porto", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
                {"id": "c3", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "porto"},
        {"role": "tool", "content": "1", "tool_call_id": "c3"},
    ]
    items = sent(message_list(chat)).to_responses()
    check_responses(items)
    unnamed = {key: value for key, value in CALLS[0].items() if key != "id"}
    assert items == [question | {"type": "message"}, unnamed, custom, RESULTS[0], result]


def test_text_before_the_parts_is_sent_with_them() -> None:
    (message,) = message_list([{"role": "user", "content": [{"type": "input_text", "text": "q"}]}])
    (item,) = message.replace(content="found\n\nq").to_responses()
    assert item["content"] == [{"type": "input_text", "text": "found\n\n"}, {"type": "input_text", "text": "q"}]
    (tool,) = message_list([RESULTS[0]])
    assert tool.replace(content="cut").to_responses() == [RESULTS[0] | {"output": "cut"}]


def test_what_was_changed_is_written_as_it_is_now() -> None:
    (said,) = message_list([REASONING, SAID, CALLS[0]])
    call = said.tool_calls[0].model_copy(update={"arguments": "[]"})
    unnamed = {key: value for key, value in CALLS[0].items() if key != "id"}
    words = {"type": "message", "role": "assistant", "content": "I look it up."}
    assert said.replace(tool_calls=(call,)).to_responses() == [words, unnamed | {"arguments": "[]"}]
    (twice,) = message_list([SAID, CALLS[0], SAID])
    assert (twice.content, twice.to_responses()) == ("I look it up.\nI look it up.", [SAID, CALLS[0], SAID])
    assert twice.replace(content="cut").to_responses() == [words | {"content": "cut"}, unnamed]
    assert twice.to_openai()["content"] == twice.content


def test_the_mark_of_a_cached_prompt_is_kept_in_both_apis() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    items = [
        {"type": "input_text", "text": "a", **mark},
        {"type": "input_image", "image_url": PNG, "detail": "low", **mark},
        {"type": "input_file", "file_data": "data:,x", **mark},
    ]
    chat = Message.from_openai({"role": "user", "content": items}).to_openai()
    check_chat([chat])
    assert [part["prompt_cache_breakpoint"] for part in chat["content"]] == 3 * [mark["prompt_cache_breakpoint"]]
    assert Message.from_openai(chat).to_responses() == [{"type": "message", "role": "user", "content": items}]


SCREEN = {"type": "computer_screenshot", "image_url": PNG}
OWN_CALLS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"type": "computer_call", "action": {"type": "wait"}}, {"type": "computer_call_output", "output": SCREEN}, ""),
    (
        {"type": "shell_call", "action": {"commands": ["ls", "cat x"]}},
        {"type": "shell_call_output", "output": [{"stdout": "a.txt", "stderr": ""}, {"stdout": "", "stderr": "no x"}]},
        "a.txt\nno x",
    ),
    (
        {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "x"}},
        {"type": "apply_patch_call_output", "status": "completed"},
        "",
    ),
    ({"type": "x_call"}, {"type": "x_call_output", "output": "Done."}, "Done."),
]


@pytest.mark.parametrize(("call", "output", "text"), OWN_CALLS)
def test_a_call_of_a_tool_of_the_api_s_own_goes_with_its_result(
    call: dict[str, Any], output: dict[str, Any], text: str
) -> None:
    items = [
        QUESTION,
        REASONING,
        {**call, "id": "i", "call_id": "c", "status": "completed"},
        {**output, "call_id": "c"},
    ]
    question, asked, result = read = message_list(items)
    (made,) = asked.tool_calls
    assert (made.id, made.name, result.role, result.tool_call_id) == ("c", call["type"], "tool", "c")
    assert json.loads(made.arguments) == {key: value for key, value in call.items() if key != "type"}
    assert (result.content, result.media_tokens > 0) == (text, output.get("output") is SCREEN)
    assert sent(read).to_responses() == items
    # Nothing can be cut out of a result of such a form.
    assert result.replace(content="[…]").to_responses() == items[-1:]
    chat = sent(read).to_openai()
    assert [one["role"] for one in chat] == ["user", "assistant", "tool"]
    assert question.content == "What is the weather?"


def test_an_approval_answers_the_request_with_its_id() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "server_label": "s", "arguments": "{}"}
    response = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    asked, answer = read = message_list([request, response])
    assert ([call.id for call in asked.tool_calls], answer.tool_call_id) == (["mcpr_1"], "mcpr_1")
    assert sent(read).to_responses() == [request, response]


def test_the_output_of_a_response_is_stored_as_the_sdk_returns_it() -> None:
    response = Response.model_validate(
        {
            "id": "resp_1", "object": "response", "created_at": 0, "model": "m", "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "output": [REASONING, SAID, *CALLS],
        }
    )  # fmt: skip
    with InfiniteMemory() as memory:
        memory.add(QUESTION)
        (reply,) = memory.add(response.output)
        memory.add(RESULTS)
        assert [call.id for call in reply.tool_calls] == ["porto", "lisbon"]
        items = memory.context().to_responses()
    check_responses(items)
    assert items == [QUESTION, REASONING, SAID, *CALLS, *RESULTS]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"type": "computer_call", "id": "c"}, "unknown item type 'computer_call'; expected a message with a role, or"),
    ({"type": "human", "data": {}}, "unknown item type 'human'"),
    ({"type": "message", "role": "tool", "content": "x"}, "unknown role 'tool'; expected one of user, assistant"),
    ({"type": "message", "role": "user"}, 'the message has no "content"'),
    ({"type": "message", "role": "user", "content": [{"type": "text", "text": "x"}]}, "unknown type 'text'"),
    ({"role": "user", "content": [{"type": "input_text"}]}, 'expected a "text" field'),
    ({"type": "function_call", "call_id": "c", "name": "f"}, 'the function_call has None as "arguments"'),
    ({"type": "function_call_output", "output": "x"}, 'the function_call_output has None as "call_id"'),
    ({"type": "function_call_output", "call_id": "c"}, 'the function_call_output has no "output"'),
    ({"type": "reasoning", "summary": []}, "there is no message and no call after these items: reasoning"),
]


def test_a_wrong_item_is_named_with_its_index(subtests: pytest.Subtests) -> None:
    for item, reason in WRONG:
        with subtests.test(item=item, reason=reason):
            with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
                message_list([QUESTION, item])
            assert str(caught.value).startswith("messages[1]: ")
            assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "input_image", "file_id": "file-1", "detail": "auto"}, "an image that was uploaded"),
        ({"type": "input_file", "file_url": "https://example.org/a.pdf"}, "a file that is given by its URL"),
    ],
)
def test_what_chat_completions_cannot_express_is_named(part: dict[str, Any], reason: str) -> None:
    (message,) = message_list([{"role": "user", "content": [part]}])
    context = sent([Message.user("first"), message.replace(id="m2")])
    with pytest.raises(ValueError, match=rf"^messages\[1\] \(id 'm2'\): {reason}"):
        context.to_openai()
    assert context.to_responses()[1]["content"] == [part]
