"""Requests of the Anthropic API, and lists of messages whose speakers have other names."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import DuplicateError, InputFileError
from shared_core.messages import ToolCall, content_of
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
    assert question.payload.data == {"content": said[0]["content"]}
    assert call.payload is not None
    assert call.payload.data == {"content": said[1]["content"]}
    assert second.payload is not None
    assert second.payload.data == {"is_error": True}
    assert (first.payload, more.payload, answer.payload) == (None, None, None)


def test_messages_of_anthropic_are_stored_as_when_they_are_added(file: Path) -> None:
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "ferry"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"title": "Ferries"}]}
    cited = {"type": "text", "text": "At 07:45", "citations": [{"url": "https://example.org"}]}
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn"}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Split, 07:45"}}
    lines: list[dict[str, Any]] = [
        {"role": "user", "content": [document, {"type": "text", "text": "When?"}]},
        reply | {"content": [search, found, cited, {"type": "text", "text": "daily."}]},
    ]
    format, imported = read(file, "\n".join(map(json.dumps, lines)))
    with InfiniteMemory() as memory:
        memory.add(lines)
        assert [content_of(one) for one in imported] == [content_of(one) for one in memory.messages()]
    assert (format, texts(imported)) == ("anthropic", ["When?", "At 07:45\ndaily."])
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


WRONG: list[tuple[Any, str]] = [
    ([{"role": "user", "text": "hi"}], 'message 1: the message has "text"; expected the text as "content"'),
    ([{"role": "user", "parts": "hi"}], "message 1: has \"parts\" instead of \"content\"; rename the field"),
    ({"contents": [{"role": "user", "parts": ["hi"]}]}, "holds an object with the fields 'contents'"),
    ({"system": "x", "messages": [{"role": "pilot", "content": ""}]}, "message 1: unknown role 'pilot'"),
    ({"system": "x", "messages": [{"role": "user", "content": 3}]}, "message 1: content is 3; expected text"),
    ({"system": "x", "messages": [3]}, "message 1: 3 is not a message"),
    ({"system": [{"type": "text"}], "messages": []}, "system: text part {'type': 'text'} is invalid"),
    ([{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}], "\"name\" and \"input\""),
    ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 3}]}], "expected the id of the call"),
    ([{"role": "user", "id": "a", "content": [{"type": "thinking", "thinking": n}]} for n in "xy"], "2: id 'a'"),
    ([{"role": "user", "id": 7, "content": [{"type": "thinking"}]}], "message 1: Message: id=7: Input should be"),
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


def test_a_list_of_which_a_part_is_put_aside_is_refused(file: Path) -> None:
    said = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    with InfiniteMemory() as memory:
        file.write_text(json.dumps(said[:2]), encoding="utf-8")
        memory.import_file(file)
        memory.rewind(after=memory.messages()[0].id)
        file.write_text(json.dumps(said), encoding="utf-8")
        with pytest.raises(DuplicateError, match="is stored, but not on branch 'main'"):
            memory.import_file(file)
        assert texts(memory.messages()) == ["one"]
