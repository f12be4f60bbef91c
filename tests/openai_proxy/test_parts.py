"""The parts that do no I/O: events cut out of bytes, and answers put together from chunks."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import Message, ToolCall
from shared_core.doors.openai_proxy.answer import StreamedAnswer, answer_of
from shared_core.doors.openai_proxy.event_stream import EventSplitter, chunk_of, data_of, event
from shared_core.doors.openai_proxy.refusal import Refused
from tests.support.strategies import storable_texts

ENDS = (b"\n", b"\r\n", b"\r")


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """Return bytes in pieces."""
    places = sorted({min(place, len(data)) for place in at} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(
    st.lists(storable_texts(min_size=1, max_size=20), max_size=6), st.sampled_from(ENDS), st.lists(st.integers(0, 200))
)
def test_events_are_the_same_however_their_bytes_arrive(texts: list[str], end: bytes, at: list[int]) -> None:
    data = b"".join(b"data: " + json.dumps(text).encode() + end + end for text in texts)
    splitter = EventSplitter()
    events = [each for piece in cut(data, at) for each in splitter.feed(piece)]
    assert b"".join(events) + splitter.rest() == data
    found = [json.loads(one) for each in events if (one := data_of(each)) is not None]
    assert found == texts


def test_comments_and_fields_of_events_are_passed_and_not_read() -> None:
    splitter = EventSplitter()
    one, other, last = splitter.feed(b": ping\n\nevent: x\r\ndata: a\r\ndata:b\r\n\r\ndata: [DONE]\n\n")
    assert (data_of(one), data_of(other), data_of(last)) == (None, "a\nb", "[DONE]")
    assert splitter.feed(b"data: half") == []
    assert splitter.rest() == b"data: half"
    assert chunk_of("[1]") is chunk_of("{") is None
    assert data_of(event({"a": 1})) == '{"a": 1}'


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.doors.openai_proxy.event_stream.MOST_BYTES", 10)
    with pytest.raises(Refused, match="too long"):
        EventSplitter().feed(b"data: 12345")


calls = st.builds(
    ToolCall,
    id=storable_texts(min_size=1, max_size=5),
    name=storable_texts(min_size=1, max_size=5),
    arguments=storable_texts(max_size=20),
)


@given(storable_texts(max_size=30), st.lists(calls, max_size=3), st.lists(st.integers(0, 30)), st.booleans())
def test_an_answer_in_chunks_is_the_whole_answer(
    text: str, called: list[ToolCall], at: list[int], indexed: bool
) -> None:
    whole = Message.assistant(text, tool_calls=called)
    answer = StreamedAnswer()
    pieces = [text[start:end] for start, end in zip([0, *sorted(at)], [*sorted(at), None], strict=True)]
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
    for index, call in enumerate(called):
        own = {"index": index} if indexed else {}
        deltas.append({"tool_calls": [{**own, "id": call.id, "type": "function", "function": {"name": call.name}}]})
        more = [{**own, "function": {"arguments": letter}} for letter in call.arguments]
        deltas += [{"tool_calls": [one]} for one in more]
    for delta in deltas:
        assert not answer.ended
        answer.add({"choices": [{"index": 1, "delta": {"content": "another"}}, {"index": 0, "delta": delta}]})
    answer.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    made = answer.message()
    assert answer.ended
    assert made == (whole if text or called else None)
    assert answer_of({"choices": [{"message": whole.to_openai()}]}) == made


def test_what_a_request_may_not_hold_is_not_stored() -> None:
    own = {"content": "Yes.", "reasoning_content": "hm", "annotations": [{"type": "url_citation"}], "role": "model"}
    assert answer_of({"choices": [{"index": 1}, {"index": 0, "message": own}]}) == Message.assistant("Yes.")
    refusal = answer_of({"choices": [{"message": {"content": None, "refusal": "No."}}]})
    assert refusal is not None
    assert refusal.to_openai() == {"role": "assistant", "content": None, "refusal": "No."}
