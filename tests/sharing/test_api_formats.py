"""Requests of the Anthropic and the Gemini API, and lists of messages whose speakers have other names."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import InputFileError
from shared_core.messages import ToolCall
from shared_core.sharing.readers import read_foreign
from tests.support.histories import texts

DATA = Path(__file__).parent / "data"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk.json"


def read(file: Path, data: Any) -> tuple[str, list[Message]]:
    """Import a file twice, and return its format and its messages."""
    text = data if isinstance(data, str) else json.dumps(data)
    file.write_text(text, encoding="utf-8")
    with InfiniteMemory() as memory:
        result = memory.import_file(file)
        again = memory.import_file(file)
        assert (again.new, again.known) == (0, result.new)
        return result.format, list(memory.messages())


def test_blocks_of_anthropic_are_calls_and_results(file: Path) -> None:
    format, messages = read(file, (DATA / "anthropic.json").read_text())
    system, question, call, first, second, more, answer = messages
    assert format == "anthropic"
    assert [one.role for one in messages] == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert texts([system, question, call]) == ["Be brief.", "Which ferry is in the picture?", "I look it up."]
    assert texts([first, second, more, answer]) == ["07:45", "no name", "So?", "It leaves at 07:45."]
    assert call.tool_calls == (
        ToolCall(id="toolu_1", name="find", arguments='{"name": "Marko"}'),
        ToolCall(id="toolu_2", name="find", arguments="{}"),
    )
    assert (first.tool_call_id, second.tool_call_id, more.tool_call_id) == ("toolu_1", "toolu_2", None)
    said = json.loads((DATA / "anthropic.json").read_text())["messages"]
    assert question.payload is not None
    assert question.payload.data == {"content": said[0]["content"][:1]}
    assert call.payload is not None
    assert call.payload.data == {"content": said[1]["content"][:1]}
    assert second.payload is not None
    assert second.payload.data == {"content": [{"is_error": True}]}
    assert (first.payload, more.payload, answer.payload) == (None, None, None)


def test_messages_of_anthropic_have_many_forms(file: Path) -> None:
    reply: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "stop_reason": "end_turn",
    }
    reply |= {"content": [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "ferry"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [
            {"type": "web_search_result", "title": "Ferries", "url": "https://example.org", "encrypted_content": "x"}]},
        {"type": "text", "text": "At 07:45", "citations": [{"url": "https://example.org"}]},
        {"type": "text", "text": "daily."},
    ]}  # fmt: skip
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Split, 07:45"}}
    lines = [{"role": "user", "content": [document, {"type": "text", "text": "When?"}]}, reply]
    format, (question, call, result, answer) = read(file, "\n".join(map(json.dumps, lines)))
    assert (format, question.content) == ("anthropic", "Split, 07:45\nWhen?")
    assert [one.id for one in (call, result, answer)] == ["msg_1", "msg_1#2", "msg_1#3"]
    assert (result.tool_call_id, answer.content) == ("srv_1", "At 07:45\ndaily.")
    assert call.payload is not None
    assert call.payload.data == {"model": "claude", "stop_reason": "end_turn"}
    assert result.payload is not None
    assert result.payload.data["content"][0]["content"][0]["title"] == "Ferries"
    assert answer.payload is not None
    assert answer.payload.data == {"content": [reply["content"][2]]}
    plain = {"system": "Be brief.", "messages": [{"role": "human", "content": "hi"}]}
    assert read(file, plain)[0] == "anthropic"
    assert read(file, {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]})[0] == "openai"


def test_every_request_has_its_system_prompt(file: Path) -> None:
    requests = [{"system": f"s{n}", "messages": [{"role": "user", "content": f"{n}"}]} for n in range(2)]
    for data in (json.dumps(requests), "\n".join(map(json.dumps, requests))):
        file.write_text(data)
        (entry,) = read_foreign(file).entries
        assert [(one.role, one.content) for one in entry.read().messages] == [
            ("system", "s0"), ("user", "0"), ("system", "s1"), ("user", "1"),
        ]  # fmt: skip


def test_contents_of_the_gemini_api(file: Path) -> None:
    text = (DATA / "gemini_api.json").read_text()
    format, (system, question, call, result, answer) = read(file, text)
    assert (format, system.role, system.content) == ("gemini-api", "system", "Be brief.")
    assert question.payload is not None
    assert question.payload.data == {"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}]}
    assert (call.role, call.content) == ("assistant", "")
    assert call.tool_calls == (ToolCall(id="function:find", name="find", arguments='{"port": "Split"}'),)
    assert (result.role, result.content, result.tool_call_id) == ("tool", '{"first": "07:45"}', "function:find")
    assert texts([question, answer]) == ["Which ferry?", "The one at 07:45."]
    format, alone = read(file, json.loads(text)["contents"])
    assert (format, texts(alone)) == ("gemini-api", texts([question, call, result, answer]))


WRONG: list[tuple[Any, str]] = [
    ([{"role": "user", "text": "hi"}], "message 1: has \"text\" instead of \"content\"; rename the field"),
    ([{"role": "user", "parts": "hi"}], "message 1: has \"parts\" instead of \"content\""),
    ({"contents": [{"role": "user", "parts": ["hi"]}]}, "contents, message 1: {'role': 'user', "),
    ({"contents": [{"role": "pilot", "parts": []}]}, "contents, message 1: unknown role 'pilot'"),
    ({"contents": [{"role": "model", "parts": [{"functionCall": 3}]}]}, "function call 3 is invalid"),
    ({"contents": [{"role": "user", "parts": [{"functionResponse": {"a": 1}}]}]}, "function response {'a': 1} is"),
    ({"systemInstruction": "x", "contents": []}, "systemInstruction: 'x' is not a message"),
    ({"system": "x", "messages": [{"role": "pilot", "content": ""}]}, "message 1: unknown role 'pilot'"),
    ({"system": "x", "messages": [{"role": "user", "content": 3}]}, "message 1: content is 3; expected text"),
    ({"system": "x", "messages": [3]}, "message 1: 3 is not a message"),
    ({"system": "x", "messages": [{"role": "user", "content": ["hi"]}]}, "block 'hi' is invalid"),
    ({"system": [{"type": "text"}], "messages": []}, "system: block {'type': 'text'} is invalid"),
    ([{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}], "\"name\" and \"input\""),
    ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 3}]}], "the id of a call as tool_use_id"),
    ([{"role": "user", "id": "a", "content": [{"type": "thinking"}]}] * 2, "message 2: id 'a' belongs to another"),
    ([{"role": "user", "id": 7, "content": [{"type": "thinking"}]}], "message 7: id=7: Input should be"),
]  # fmt: skip


def test_a_wrong_message_is_named_in_one_line(file: Path, subtests: pytest.Subtests) -> None:
    for data, expected in WRONG:
        file.write_text(json.dumps(data), encoding="utf-8")
        with subtests.test(expected), InfiniteMemory() as memory:
            with pytest.raises(InputFileError) as caught:
                memory.import_file(file)
            assert expected in str(caught.value)
            assert "\n" not in str(caught.value)
            assert not memory.stats()["messages"]


def test_what_is_nested_too_deeply_is_refused(file: Path) -> None:
    deep = json.loads('{"a":' * 400 + "1" + "}" * 400)
    said = {"author": {"role": "user"}, "content": {"parts": ["hi"]}, "metadata": deep}
    for data in (
        [{"mapping": {"x": {"parent": None, "message": said}}}],
        {"system": "x", "messages": [{"role": "user", "content": "", "more": deep}]},
        [{"role": "user", "content": "a", "more": json.loads("[" * 900 + "]" * 900)}],
    ):
        file.write_text(json.dumps(data))
        with InfiniteMemory() as memory, pytest.raises(InputFileError, match="too deeply"):
            memory.import_file(file)


@pytest.mark.parametrize("apart", [False, True])
def test_calls_of_one_function_have_ids_of_their_own(file: Path, apart: bool) -> None:
    """Requests of the Gemini API may link the results to the calls by their order alone."""
    calls = [{"functionCall": {"name": "f", "args": {"n": number}}} for number in range(2)]
    results = [{"functionResponse": {"name": "f", "response": {"n": number}}} for number in range(2)]
    answers = [[one] for one in results] if apart else [results]
    turn = [{"role": "model", "parts": calls}, *({"role": "user", "parts": parts} for parts in answers)]
    _, said = read(file, {"contents": [*turn, *turn]})
    found = ["function:f", "function:f#2"]
    assert [call.id for message in said for call in message.tool_calls] == found * 2
    assert [(m.tool_call_id, json.loads(m.content)["n"]) for m in said if m.role == "tool"] == [
        *zip(found, range(2), strict=True)
    ] * 2
