"""Message lists in OpenAI's form: every accepted variant, stable ids, and one clear line for everything else."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.errors import InputFileError
from shared_core.formats.parts import IMAGE_TOKENS, OPENAI_FORMAT
from shared_core.messages import Message, Payload, ToolCall
from shared_core.sharing.readers.openai import read_messages
from tests.support.strategies import storable_texts

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Porto?", "id": "u1", "name": "ana", "created_at": "2025-03-01"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Porto"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
    {"role": "assistant", "content": "18 degrees.", "timestamp": 1_740_830_400},
    {"role": "user", "content": "ok"},
    {"role": "user", "content": "ok"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "talk.json"


def write(file: Path, data: Any) -> Path:
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


def read(file: Path, data: Any) -> list[Message]:
    return read_messages(write(file, data))


def lines(*entries: Any) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def test_a_list_of_messages(file: Path) -> None:
    system, question, call, result, answer, ok, again = read(file, TALK)
    assert (system.role, system.content) == ("system", "Be brief.")
    assert (question.id, question.name, question.created_at) == ("u1", "ana", datetime(2025, 3, 1, tzinfo=UTC))
    assert call.tool_calls == (ToolCall(id="c1", name="weather", arguments='{"city":"Porto"}'),)
    assert (call.content, result.tool_call_id, result.content) == ("", "c1", "18 degrees")
    assert answer.created_at == datetime(2025, 3, 1, 12, tzinfo=UTC)
    assert ok.content == again.content == "ok"
    assert ok.id != again.id


def test_every_form_gives_the_same_messages(file: Path) -> None:
    expected = read(file, TALK)
    for text in (
        json.dumps(TALK, indent=2),
        json.dumps({"messages": TALK, "model": "any"}),
        "\ufeff" + json.dumps(TALK),
        lines(*TALK),
        lines(*TALK).replace("\n", "\r\n\r\n"),
        lines({"messages": TALK}),
        lines({"messages": TALK[:3]}, {"messages": TALK[3:]}),
        lines(TALK[:3], TALK[3:]),
        json.dumps([{"messages": TALK[:3]}, {"messages": TALK[3:]}]),
    ):
        file.write_bytes(text.encode())
        assert read_messages(str(file)) == expected, text


def test_a_line_ends_at_a_line_feed_only(file: Path) -> None:
    texts = ["a\u2028b", "c\x85d"]
    rows = [json.dumps({"role": "user", "content": text}, ensure_ascii=False) for text in texts]
    file.write_text("\n".join(rows), encoding="utf-8")
    assert [message.content for message in read_messages(file)] == texts


def test_other_names_of_roles(file: Path) -> None:
    old = {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}}
    system, call, result = read(
        file, [{"role": "developer", "content": "x"}, old, {"role": "function", "name": "now", "content": "noon"}]
    )
    assert system.role == "system"
    assert result.role == "tool"
    assert [call.id for call in call.tool_calls] == [result.tool_call_id]


def test_a_tool_call_may_be_custom_or_hold_an_object(file: Path) -> None:
    calls = [
        {"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
        {"id": "b", "type": "function", "function": {"name": "f", "arguments": {"x": "é"}}},
    ]
    (message,) = read(file, [{"role": "assistant", "tool_calls": calls}])
    assert [call.arguments for call in message.tool_calls] == ["select 1", '{"x": "é"}']


def test_parts_of_text_are_joined_and_others_kept(file: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    parts = [{"type": "text", "text": "look"}, picture, {"type": "input_text", "text": "here"}, "now"]
    plain, rich = read(
        file, [{"role": "user", "content": [parts[0], parts[3]]}, {"role": "user", "content": parts, "model": "m"}]
    )
    assert plain.content == "look\nnow"
    assert plain.payload == Payload(format=OPENAI_FORMAT, data={"content": [parts[0], parts[3]]})
    assert rich.content == "look\nhere\nnow"
    assert rich.payload == Payload(format=OPENAI_FORMAT, data={"model": "m", "content": parts})
    assert (plain.media_tokens, rich.media_tokens) == (0, IMAGE_TOKENS)


def test_ids_do_not_change_between_versions(file: Path) -> None:
    (message,) = read(file, [{"role": "user", "content": "hello"}])
    assert message.id == "import-b2854ed00e37d1c8cd7270a7e37a40fc"


@given(texts=st.lists(storable_texts(), max_size=6), cut=st.integers(0, 6))
def test_any_text_comes_back_and_a_prefix_keeps_its_ids(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], cut: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    messages = read(file, [{"role": "user", "content": text} for text in texts])
    assert [message.content for message in messages] == texts
    assert len({message.id for message in messages}) == len(texts)
    file.write_text(lines(*({"role": "user", "content": text} for text in texts[:cut])) or "[]", encoding="utf-8")
    assert read_messages(file) == messages[:cut]


BAD_FILES = {
    b"": "is empty; expected JSON",
    b"\x89PNG\r\n": "is not text in UTF-8 (byte 0)",
    b"hello": "line 1, column 1: Expecting value; expected JSON",
    b'[{"role": "user"},\n]': "line 2, column 1: ",
    b'{"role": "user"}\n{"role"\n': "line 2 is not JSON",
    b'{"role": "user"}\n{"role": "you"}\n': "line 2: unknown role 'you'; expected one of system, developer, user",
    b'{"messages": [{"role": "user"}]}\n{"messages": [{"role": 1}]}\n': "line 2, message 1: unknown role 1",
    b"[" * 100_000: "nested too deeply",
    b'[{"role": "user", "n": NaN}]': "NaN is not JSON",
    b"[" + b"1" * 5_000 + b"]": "integer",
    b"3": "message 1: 3 is not a message; expected an object",
    b'{"messages": "hi"}': "message 1: 'hi' is not a message",
    b'{"model": "x"}': 'message 1: there is no "role"',
    b'[{"role": "user", "text": "hi"}]': 'message 1: the message has "text"; expected the text as "content"',
}


def test_a_file_that_is_something_else_is_named_in_one_line(file: Path, subtests: pytest.Subtests) -> None:
    for data, message in BAD_FILES.items():
        file.write_bytes(data)
        with subtests.test(message):
            with pytest.raises(InputFileError) as caught:
                read_messages(file)
            assert str(caught.value).startswith(repr(str(file)))
            assert message in str(caught.value)
            assert "\n" not in str(caught.value)


BAD_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"role": ["user"]}, "unknown role ['user']"),
    ({"content": 3}, "content is 3; expected text, null or a list of parts"),
    ({"content": [3]}, "content part 3 is invalid"),
    ({"content": [{"text": "x"}]}, 'expected an object with "type"'),
    ({"content": [{"type": "text"}]}, 'expected a "text" field'),
    ({"id": 7}, "id=7: Input should be"),
    ({"id": ""}, "id='': String should have"),
    ({"name": ["x" * 100]}, "name=['xxx"),
    ({"created_at": "yesterday"}, "the time 'yesterday' is invalid; expected ISO 8601"),
    ({"timestamp": 1e30}, "the time 1e+30 is invalid"),
    ({"timestamp": True}, "the time True is invalid"),
    ({"tool_calls": 3}, "tool_calls is 3; expected a list"),
    ({"tool_calls": ["f"]}, "tool call 'f' is invalid"),
    ({"tool_calls": [{"function": {"name": "f"}}]}, 'expected "id" and "function"'),
    ({"tool_calls": [{"id": "c", "function": {}}]}, 'with "name" and "arguments"'),
    ({"function_call": {"arguments": ""}}, 'with "name" and "arguments"'),
    ({"role": "tool"}, 'has no "tool_call_id"'),
    ({"grounding": {"other\nthing": 1}}, "grounding.other"),
    ({"id": "a"}, "id 'a' belongs to another message"),
]


def test_a_wrong_message_is_named_in_one_line(file: Path, subtests: pytest.Subtests) -> None:
    good = {"role": "user", "content": "first", "id": "a"}
    for fields, message in BAD_MESSAGES:
        with subtests.test(message):
            with pytest.raises(InputFileError) as caught:
                read(file, [good, {"role": "user", "content": "second"} | fields])
            assert str(caught.value).startswith(f"{str(file)!r}, message 2: ")
            assert message in str(caught.value)
            assert "\n" not in str(caught.value)


def test_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("none.json", ".", "a\0b"):
        with pytest.raises(InputFileError):
            read_messages(f"{tmp_path}/{name}")
