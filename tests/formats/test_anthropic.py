"""Requests to Anthropic: system apart, calls and results as blocks, one message for what one role says in a row."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import Context, ContextReport, InfiniteMemory, Message, ToolCall
from tests.formats.requests import PDF, PNG, chat_dicts, check_anthropic, messages

PICTURE = {"type": "image_url", "image_url": {"url": PNG}}
CALL = ToolCall(id="c1", name="weather", arguments='{"city": "Porto"}')


def request(given: Sequence[Message]) -> dict[str, Any]:
    return Context(tuple(given), ContextReport(0, 0, ())).to_anthropic()


def user(*parts: dict[str, Any]) -> Message:
    return Message.from_openai({"role": "user", "content": list(parts)})


def test_a_conversation_with_tools() -> None:
    said = [
        Message.system("Be brief."),
        Message.user("Weather in Porto and Lisbon?"),
        Message.assistant("I look.", tool_calls=(CALL, ToolCall(id="function:now", name="now"))),
        Message.tool("18 degrees", "c1"),
        Message.tool("", "function:now"),
        Message.user("And tomorrow?", name="Ann"),
        Message.assistant("Rain."),
        Message.system("Speak Portuguese."),
    ]
    made = request(said)
    check_anthropic(made)
    assert made == {
        "system": "Be brief.\n\nSpeak Portuguese.",
        "messages": [
            {"role": "user", "content": "Weather in Porto and Lisbon?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Porto"}},
                    {"type": "tool_use", "id": "function_now", "name": "now", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "18 degrees"},
                    {"type": "tool_result", "tool_use_id": "function_now", "content": ""},
                    {"type": "text", "text": "Ann: And tomorrow?"},
                ],
            },
            {"role": "assistant", "content": "Rain."},
        ],
    }


def test_before_a_greeting_a_user_says_something() -> None:
    made = request([Message.assistant("9:40 to Porto or 11:15 to Faro?"), Message.user("The second, please.")])
    check_anthropic(made)
    assert made["messages"] == [
        {"role": "user", "content": "[The conversation begins.]"},
        {"role": "assistant", "content": "9:40 to Porto or 11:15 to Faro?"},
        {"role": "user", "content": "The second, please."},
    ]


def test_calls_with_the_same_id_are_told_apart() -> None:
    """The API refuses a request in which an id of a call comes twice; some models number their calls anew each turn."""
    names = ["a", "b", "c", "d", "e", "f"]
    calls = [
        ToolCall(id=id_, name=name) for id_, name in zip(["f:0", "f_0", "f:0", "f:0", "f_0_2", ""], names, strict=True)
    ]
    said = [
        Message.assistant(tool_calls=calls[:2]), Message.tool("b's", "f_0"), Message.tool("a's", "f:0"),
        Message.assistant(tool_calls=calls[2:4]), Message.tool("c's", "f:0"), Message.tool("d's", "f:0"),
        Message.assistant(tool_calls=calls[4:]), Message.tool("f's", ""), Message.tool("e's", "f_0_2"),
    ]  # fmt: skip
    made = request([Message.user("look"), *said])
    check_anthropic(made)
    blocks = [block for turn in made["messages"][1:] for block in turn["content"]]
    ids = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert ids == {"f_0": "a", "f_0_2": "b", "f_0_3": "c", "f_0_4": "d", "f_0_2_2": "e", "call": "f"}
    assert results == {id_: f"{name}'s" for id_, name in ids.items()}


def test_blank_messages_are_left_out_and_their_neighbours_joined() -> None:
    made = request([Message.system(" "), Message.user("a"), Message.assistant("\n"), Message.user("b")])
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert made == {"messages": [{"role": "user", "content": texts}]}


def test_images_and_files_are_blocks() -> None:
    text = {"type": "file", "file": {"file_data": "data:text/plain,caf%C3%A9", "filename": "a.txt"}}
    document = {"type": "file", "file": {"file_data": PDF}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}
    made = request([user({"type": "text", "text": "Look:"}, PICTURE, document, text, linked)])
    check_anthropic(made)
    pdf = {"type": "base64", "media_type": "application/pdf", "data": PDF.partition(",")[2]}
    plain = {"type": "text", "media_type": "text/plain", "data": "café"}
    assert made["messages"][0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG.partition(",")[2]}},
        {"type": "document", "source": pdf},
        {"type": "document", "source": plain, "title": "a.txt"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    ]


def part(kind: str, **fields: Any) -> Message:
    return user({"type": kind, kind: fields})


CANNOT: list[tuple[Message, str]] = [
    (part("input_audio", data="AA", format="wav"), "a part of the type 'input_audio' has no form"),
    (part("file", file_id="file-1"), r"a file that was uploaded to OpenAI \(file_id\) has no form"),
    (part("file", file_data="data:text/csv,a"), "a file of the type 'text/csv' is none of Anthropic's"),
    (part("file", file_data="data:text/plain,%FF"), r"a text file is not UTF-8 \(byte 0\)"),
    (part("file", file_data="JVBERi0="), "'JVBERi0=' is not a data URL"),
    (part("image_url", url="data:image/bmp;base64,AA=="), "an image of the type 'image/bmp' is not one of"),
    (part("image_url", url="data:image/png;base64,A"), "does not hold base64"),
    (
        Message.assistant(tool_calls=(ToolCall(id="c1", name="f", arguments="[1]"),)),
        r"call 'c1' are '\[1\]'; .* object",
    ),
    (Message.assistant(tool_calls=(ToolCall(id="c1", name="f", arguments="{"),)), "Anthropic's format takes a JSON"),
    (Message.from_openai({"role": "assistant", "content": None, "audio": {"id": "a"}}), "a spoken answer without"),
    (user(PICTURE).replace(role="assistant"), "an assistant's message can hold no images"),
    (user(PICTURE).replace(role="system"), "a system message can hold nothing but text"),
]


def test_what_cannot_be_expressed_is_named(subtests: pytest.Subtests) -> None:
    for message, reason in CANNOT:
        named = rf"^messages\[1\] \(id 'm1'\): .*{reason}"
        with subtests.test(reason=reason), pytest.raises(ValueError, match=named):
            request([Message.user("first"), message.replace(id="m1")])


@given(said=st.lists(st.one_of(messages, chat_dicts.map(Message.from_openai)), max_size=4))
def test_a_request_is_valid_or_the_message_is_named(said: list[Message]) -> None:
    try:
        made = request(said)
    except ValueError as error:
        assert str(error).startswith("messages[")  # noqa: PT017
    else:
        check_anthropic(made)
        results = [block for turn in made["messages"] for block in turn["content"] if isinstance(block, dict)]
        count = sum(message.role == "tool" for message in said)
        assert sum(block["type"] == "tool_result" for block in results) == count


MARK = {"type": "ephemeral", "ttl": "1h"}
TALK = [
    Message.system("Be brief."),
    Message.assistant("Hello"),
    Message.user("Weather?"),
    Message.assistant("I look.", tool_calls=(CALL,)),
    Message.tool("18 degrees", "c1"),
    Message.user("And tomorrow?"),
]


def marked(stable: int) -> dict[str, Any]:
    return Context(tuple(TALK), ContextReport(0, 0, ()), stable).to_anthropic(cache_control=MARK)


def test_a_mark_is_where_the_part_ends_that_the_next_prompt_begins_with() -> None:
    assert marked(0) == request(TALK)
    assert marked(1) == {
        **request(TALK),
        "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
    }
    beginning = {"role": "assistant", "content": [{"type": "text", "text": "Hello", "cache_control": MARK}]}
    assert marked(2)["messages"] == [request(TALK)["messages"][0], beginning, *request(TALK)["messages"][2:]]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "18 degrees", "cache_control": MARK}
    assert marked(5)["messages"][-1]["content"] == [result, {"type": "text", "text": "And tomorrow?"}]
    assert marked(6)["messages"][-1]["content"][-1] == {"type": "text", "text": "And tomorrow?", "cache_control": MARK}


# Reading: what the client returns, and what people send it

THOUGHT = {"type": "thinking", "thinking": "I look it up.", "signature": "c2lnbmVk"}
USE = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Porto"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "18 degrees"}
USAGE = {"input_tokens": 1, "output_tokens": 1}


def reply(*blocks: dict[str, Any]) -> Any:
    """Return a reply as the client makes it."""
    from anthropic.types import Message as Reply  # this takes a second

    said = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(blocks)}
    return Reply.model_validate(said | {"stop_reason": "end_turn", "stop_sequence": None, "usage": USAGE})


def sent(memory: InfiniteMemory) -> list[dict[str, Any]]:
    made = memory.context().to_anthropic()
    check_anthropic(made)
    messages: list[dict[str, Any]] = made["messages"]
    return messages


def test_thoughts_are_sent_back_with_their_signature_until_the_turn_is_over() -> None:
    with InfiniteMemory(embedder="words") as memory:
        memory.add(Message.user("Weather in Porto?"))
        memory.add(reply(THOUGHT, {"type": "text", "text": "I look."}, USE))
        memory.add({"role": "user", "content": [RESULT]})
        in_loop = [THOUGHT, {"type": "text", "text": "I look."}, USE]
        assert sent(memory)[1:] == [{"role": "assistant", "content": in_loop}, {"role": "user", "content": [RESULT]}]
        marked = memory.context().to_anthropic(cache_control={"type": "ephemeral"})
        check_anthropic(marked)
        memory.add(reply({**THOUGHT, "thinking": "Done."}, {"type": "text", "text": "18 degrees."}))
        memory.add({"role": "user", "content": "And tomorrow?"})
        assert [message["content"] for message in sent(memory)] == [
            "Weather in Porto?", in_loop[1:], [RESULT], "18 degrees.", "And tomorrow?",
        ]  # fmt: skip
        assert [message.role for message in memory.messages()] == ["user", "assistant", "tool", "assistant", "user"]
        assert memory.newest(4)[0].media_tokens > 0, "thoughts take part of the budget"
        assert "thinking" not in str(memory.context().to_openai())


def test_thoughts_are_sent_back_where_the_user_speaks_beside_a_result() -> None:
    with InfiniteMemory(embedder="words") as memory:
        memory.add([Message.user("Weather in Porto?"), Message.from_anthropic(reply(THOUGHT, USE))])
        memory.add({"role": "user", "content": [RESULT, {"type": "text", "text": "Be quick."}]})
        assert sent(memory)[1]["content"] == [THOUGHT, USE]
        assert sent(memory)[2]["content"] == [RESULT, {"type": "text", "text": "Be quick."}]
        memory.add([Message.assistant("18 degrees."), Message.user("And tomorrow?")])
        assert sent(memory)[1]["content"] == [USE]


def test_thoughts_are_sent_back_beside_a_call_that_is_left() -> None:
    with InfiniteMemory(embedder="words") as memory:
        memory.add([Message.user("Weather?"), Message.from_anthropic(reply(THOUGHT, {**USE, "id": "c0"}, USE))])
        memory.add([{"role": "user", "content": [RESULT]}, Message.assistant("Wait.")])
        assert sent(memory)[1]["content"] == [THOUGHT, USE]


def test_a_plain_reply_is_a_plain_message() -> None:
    said = Message.from_anthropic(reply({"type": "text", "text": "Porto."}))
    assert said == Message.assistant("Porto.")
    assert Message.from_anthropic({"role": "user", "content": "Hi.", "id": "u"}) == Message.user("Hi.", id="u")
    called = Message.from_anthropic({"role": "assistant", "content": reply(USE).content})
    assert called.tool_calls == (CALL,)
    assert called.payload is None
    with pytest.raises(ValueError, match=r"2 messages: pass it to add\(\)"):
        Message.from_anthropic({"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]})
    with pytest.raises(ValueError, match='no "tool_use_id"'):
        Message.from_anthropic({"role": "user", "content": [{"type": "tool_result"}]})
    with pytest.raises(ValueError, match=r"content\[0\] is 'x'"):
        Message.from_anthropic({"role": "user", "content": ["x", RESULT]})
    for content in ({"type": "text"}, 5):
        with pytest.raises(ValueError, match="expected text or a list of blocks"):
            Message.from_anthropic(
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]}
            )
    with pytest.raises(ValueError, match=r"content\[0\] of a tool_result is None"):
        Message.from_anthropic(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [None]}]}
        )
    with pytest.raises(ValueError, match="media_type"):
        Message.from_anthropic(
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "AA=="}}]}
        )


def test_results_and_a_question_in_one_message_are_stored_one_by_one() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}
    failed = RESULT | {"tool_use_id": "c2", "is_error": True, "content": [{"type": "text", "text": "No."}, picture]}
    marked = {"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}
    with InfiniteMemory(embedder="words") as memory:
        memory.add([Message.user("Look."), reply(USE, {**USE, "id": "c2"})])
        tool, other, question = memory.add({"role": "user", "content": [RESULT, failed, marked], "id": "u2"})
        assert [tool.role, other.content, other.media_tokens > 0, question.id] == ["tool", "No.", True, "u2"]
        (*_, user) = sent(memory)
        assert user["content"] == [RESULT, failed, {"type": "text", "text": "Why?"}]
        assert other.to_openai()["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVB")


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        {"type": "text", "media_type": "text/plain", "data": "Once upon a time."},
        {"type": "url", "url": "https://example.org/a.pdf"},
    ],
)
def test_a_document_is_sent_as_it_was_given(source: dict[str, Any]) -> None:
    given = [{"type": "document", "source": source, "title": "tale"}, {"type": "text", "text": "What is it about?"}]
    with InfiniteMemory(embedder="words") as memory:
        (message,) = memory.add({"role": "user", "content": given})
        assert (message.content, message.media_tokens > 0) == ("What is it about?", True)
        assert sent(memory) == [{"role": "user", "content": given}]
        if source["type"] == "url":
            with pytest.raises(ValueError, match="no form in another API"):
                memory.context().to_openai()
        else:
            assert memory.context().to_openai()[0]["content"][0]["type"] == "file"


def test_searches_of_the_api_are_kept_within_their_turn() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Porto"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    with InfiniteMemory(embedder="words") as memory:
        memory.add([Message.user("Search."), reply(search, found, {"type": "text", "text": "Found."}, USE)])
        memory.add({"role": "user", "content": [RESULT]})
        assert [block["type"] for block in sent(memory)[1]["content"]] == [
            "server_tool_use", "web_search_tool_result", "text", "tool_use",
        ]  # fmt: skip
        memory.add([Message.assistant("Done."), Message.user("Thanks.")])
        assert [block["type"] for block in sent(memory)[1]["content"]] == ["text", "tool_use"]
