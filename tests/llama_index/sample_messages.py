"""One LlamaIndex message of every kind, and random ones."""

from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from llama_index.core.base.llms import types
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)

from tests.support.strategies import storable_texts

__all__ = ["EVERY", "PNG", "WITH_A_STREAM", "chats", "messages", "part"]

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + bytes(range(200))


def part(message: ChatMessage, place: int) -> Any:
    """A block, of whichever kind."""
    return message.blocks[place]


THOUGHT = ThinkingBlock(content="Hm, two tools.", additional_information={"signature": "c2ln", "raw": b"\xff"})
CALL = ToolCallBlock(tool_call_id="call-1", tool_name="weather", tool_kwargs={"city": "Köln", "days": 2.5})
RAW = ToolCallBlock(tool_name="clock", tool_kwargs='{"zone": ')

EVERY: list[ChatMessage] = [
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="developer", content="Never say so."),
    ChatMessage(role="user", content="hi"),
    ChatMessage(role="user", content=None),
    ChatMessage(role="user", content=""),
    ChatMessage(role="user", content="<|endoftext|> BEL \a and a private \ue000"),
    ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text=""), TextBlock(text="two\nthree")]),
    ChatMessage(role="user", blocks=[TextBlock(text="What is"), ImageBlock(image=PNG), TextBlock(text="on it?")]),
    ChatMessage(role="user", blocks=[ImageBlock(url="https://example.org/cat.png", detail="low")]),
    ChatMessage(role="user", blocks=[ImageBlock(path=Path(__file__))]),
    ChatMessage(role="user", blocks=[AudioBlock(audio=b"RIFF\0\0WAVE", format="wav"), TextBlock(text="Who is it?")]),
    ChatMessage(role="user", blocks=[AudioBlock(url="https://example.org/a.mp3")]),
    ChatMessage(role="user", blocks=[DocumentBlock(data=b"%PDF-1.7 \0\xff", title="report")]),
    ChatMessage(role="user", blocks=[DocumentBlock(path="no/such/file.pdf"), DocumentBlock(path=Path(__file__))]),
    ChatMessage(role="user", blocks=[TextBlock(text="a"), CachePoint(cache_control=CacheControl(type="ephemeral"))]),
    ChatMessage(
        role="user",
        blocks=[CitableBlock(title="t", source="s", content=[TextBlock(text="cited"), ImageBlock(image=PNG)])],
    ),
    ChatMessage(
        role="assistant",
        blocks=[
            TextBlock(text="so"),
            CitationBlock(
                cited_content=TextBlock(text="cited"), source="s", title="t", additional_location_info={"page": 3}
            ),
        ],
    ),
    ChatMessage(role="assistant", content="", additional_kwargs={
        "tool_calls": [{"id": "call-9", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]}),
    ChatMessage(role="tool", content="12:30", additional_kwargs={"tool_call_id": "call-9", "name": "f"}),
    ChatMessage(role="tool", blocks=[ImageBlock(image=PNG)], additional_kwargs={"tool_call_id": "call-9"}),
    ChatMessage(role="assistant", additional_kwargs={"function_call": {"name": "old", "arguments": "{}"}}),
    ChatMessage(role="function", content="42", additional_kwargs={"name": "old"}),
    ChatMessage(role="chatbot", content="I am"),
    ChatMessage(role="model", content="me, too"),
    ChatMessage(role="user", content="q", additional_kwargs={"name": "Ana", "sent": datetime(2026, 1, 2, tzinfo=UTC)}),
    ChatMessage(role="assistant", content="a", additional_kwargs={
        "thought_signature": b"\x00\xff", "ascii": b"abc", "set": {1, 2}, "tuple": (1, [2.5, None]),
        "day": date(2026, 1, 2), "path": Path("a/b"),
        "nan": float("inf"), "by number": {1: "one"}, "$odd": {"$text": [0, 1]}, "text": "x"}),
    ChatMessage(role="user", content="q", additional_kwargs={"$one": 1}),
    ChatMessage(role="user", content="q", additional_kwargs={"name": "", "tool_call_id": 7}),
    ChatMessage(role="user", blocks=[VideoBlock(url="https://example.org/film.mp4", fps=2)]),
    ChatMessage(role="user", blocks=[VideoBlock(video=b"\0\1\2film", detail="low")]),
    ChatMessage(role="assistant", blocks=[THOUGHT, TextBlock(text="Yes.")]),
    ChatMessage(role="assistant", blocks=[ThinkingBlock(num_tokens=90)]),
    ChatMessage(role="assistant", blocks=[CALL]),
    ChatMessage(role="assistant", blocks=[TextBlock(text="Let me look."), CALL, RAW]),
    ChatMessage(role="assistant", blocks=[CALL, TextBlock(text="and then"), RAW]),
    ChatMessage(
        role="assistant", blocks=[CALL], additional_kwargs={"tool_calls": [{"id": "call-1", "name": "weather"}]}
    ),
]  # fmt: skip

WITH_A_STREAM = ChatMessage(role="user", blocks=[TextBlock(text="What?"), ImageBlock(image=PNG)])
part(WITH_A_STREAM, 1).image = BytesIO(PNG)  # the oldest LlamaIndex takes no streams where it checks

_texts = st.one_of(st.sampled_from(["ok", "yes", "", " ", "where is it?", "a b c"]), storable_texts(max_size=12))
_json: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False),
        storable_texts(max_size=5), st.binary(max_size=5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(storable_texts(max_size=4), inner, max_size=3), st.tuples(inner)
    ),
    max_leaves=6,
)  # fmt: skip
_blocks = st.one_of(
    _texts.map(lambda text: TextBlock(text=text)),
    st.sampled_from([block for message in EVERY for block in message.blocks]),
)


def chats(text: st.SearchStrategy[str] = _texts) -> st.SearchStrategy[list[ChatMessage]]:
    """Conversations of plain messages, in turns that begin with a user's."""
    reply = text.map(lambda said: ChatMessage(role="assistant", content=said))
    asked = text.map(lambda said: ChatMessage(role="user", content=said))
    turn = st.tuples(asked, st.lists(reply, max_size=2)).map(lambda parts: [parts[0], *parts[1]])
    return st.lists(turn, max_size=6).map(lambda turns: [message for turn in turns for message in turn])


def messages() -> st.SearchStrategy[ChatMessage]:
    """Messages of every role, with blocks and entries of every kind."""
    return st.builds(
        lambda role, blocks, kwargs: ChatMessage(role=role, blocks=blocks, additional_kwargs=kwargs),
        st.sampled_from(list(types.MessageRole)),
        st.lists(_blocks, max_size=4),
        st.dictionaries(
            st.sampled_from(["name", "tool_call_id", "tool_calls", "function_call", "more", "$x"]), _json, max_size=3
        ),
    )
