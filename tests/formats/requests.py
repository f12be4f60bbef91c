"""Random requests in OpenAI's formats, and checks of requests by the types of the SDKs."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionDeveloperMessageParam,
    ChatCompletionFunctionMessageParam,
    ChatCompletionMessageParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from shared_core.messages import Message, ToolCall
from tests.support.strategies import storable_texts


@cache
def _chat() -> TypeAdapter[Any]:
    return TypeAdapter(ChatCompletionMessageParam)


@cache
def _responses() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseInputItemParam)


@cache
def _anthropic() -> TypeAdapter[Any]:
    from anthropic.types import MessageParam  # this takes a second, which each process would pay that collects tests

    return TypeAdapter(MessageParam)


_CHAT_KEYS = {
    "developer": ChatCompletionDeveloperMessageParam,
    "system": ChatCompletionSystemMessageParam,
    "user": ChatCompletionUserMessageParam,
    "assistant": ChatCompletionAssistantMessageParam,
    "tool": ChatCompletionToolMessageParam,
    "function": ChatCompletionFunctionMessageParam,
}

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF-1.7").decode()


def _consume(value: Any) -> None:
    """Read through a value: pydantic validates the iterables of a TypedDict only while they are read."""
    if isinstance(value, Mapping):
        for inner in value.values():
            _consume(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            _consume(inner)


def check_chat(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise if these are not messages for a request to chat completions."""
    for message in messages:
        _consume(_chat().validate_python(message))
        assert set(message) <= set(_CHAT_KEYS[message["role"]].__annotations__)


def check_responses(items: Sequence[Mapping[str, Any]]) -> None:
    """Raise if these are not items for a request to the Responses API."""
    for item in items:
        _consume(_responses().validate_python(item))


def check_anthropic(request: Mapping[str, Any]) -> None:
    """Raise if this is not a request to Anthropic: also if a role speaks twice, or a result is not beside its call."""
    assert set(request) <= {"system", "messages"}
    assert isinstance(request.get("system", ""), str)
    for message in request["messages"]:
        _consume(_anthropic().validate_python(message))
    roles = [message["role"] for message in request["messages"]]
    assert all(one != other for one, other in pairwise(roles))


# Strategies

texts = storable_texts(max_size=8)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True)
arguments = st.sampled_from(("{}", '{"city": "Porto"}', "", "not JSON", "[]"))


def _objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


text_parts = _objects(type=st.just("text"), text=texts)
image_parts = _objects(
    type=st.just("image_url"),
    image_url=st.fixed_dictionaries(
        {"url": st.sampled_from((PNG, "https://example.org/a.png"))},
        optional={"detail": st.sampled_from(("auto", "low", "high"))},
    ),
)
file_parts = _objects(
    type=st.just("file"),
    file=st.sampled_from(({"file_data": PDF, "filename": "a.pdf"}, {"file_id": "file-1"})),
)
audio_parts = st.just({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})
refusal_parts = _objects(type=st.just("refusal"), refusal=texts)

function_calls = _objects(id=names, type=st.just("function"), function=_objects(name=names, arguments=arguments))
custom_calls = _objects(id=names, type=st.just("custom"), custom=_objects(name=names, input=texts))

_text_contents = st.one_of(texts, st.lists(text_parts, max_size=3))
_named = {"name": names}

system_dicts = st.fixed_dictionaries(
    {"role": st.sampled_from(("system", "developer")), "content": _text_contents}, optional=_named
)
user_dicts = st.fixed_dictionaries(
    {
        "role": st.just("user"),
        "content": st.one_of(texts, st.lists(st.one_of(text_parts, image_parts, file_parts, audio_parts), max_size=3)),
    },
    optional=_named,
)
assistant_dicts = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.one_of(st.none(), texts, st.lists(st.one_of(text_parts, refusal_parts), max_size=3)),
    },
    optional={
        **_named,
        "tool_calls": st.lists(st.one_of(function_calls, custom_calls), min_size=1, max_size=3),
        "function_call": _objects(name=names, arguments=arguments),
        "refusal": texts,
        "audio": _objects(id=names),
    },
).filter(
    lambda item: item["content"] is not None or not {"tool_calls", "function_call", "refusal", "audio"}.isdisjoint(item)
)
tool_dicts = _objects(role=st.just("tool"), tool_call_id=names, content=_text_contents)
function_dicts = _objects(role=st.just("function"), name=names, content=texts)

chat_dicts = st.one_of(system_dicts, user_dicts, assistant_dicts, tool_dicts, function_dicts)
"""Valid messages of chat completions."""

calls = st.builds(ToolCall, id=names, name=names, arguments=arguments)
messages = st.one_of(
    st.builds(Message.system, texts, name=st.none() | names),
    st.builds(Message.user, texts, name=st.none() | names),
    st.builds(Message.assistant, texts, name=st.none() | names, tool_calls=st.lists(calls, max_size=3).map(tuple)),
    st.builds(Message.tool, texts, names),
)
"""Messages that were never in another format."""

_input_parts = st.one_of(
    _objects(type=st.just("input_text"), text=texts),
    _objects(type=st.just("input_image"), image_url=st.just(PNG), detail=st.sampled_from(("auto", "low"))),
    _objects(type=st.just("input_file"), file_data=st.just(PDF), filename=st.just("a.pdf")),
)
_status = st.just("completed")
input_messages = _objects(
    type=st.just("message"),
    role=st.sampled_from(("user", "system", "developer")),
    content=st.one_of(texts, st.lists(_input_parts, max_size=3)),
)
output_messages = _objects(
    type=st.just("message"),
    id=names,
    role=st.just("assistant"),
    status=_status,
    content=st.lists(
        st.one_of(_objects(type=st.just("output_text"), text=texts, annotations=st.just([])), refusal_parts),
        min_size=1,
        max_size=2,
    ),
)
reasoning = _objects(type=st.just("reasoning"), id=names, summary=st.just([]))
_function_ids, _custom_ids = names.map("f".__add__), names.map("c".__add__)
call_items = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("function_call"), "call_id": _function_ids, "name": names, "arguments": arguments},
        optional={"id": names, "status": _status},
    ),
    _objects(type=st.just("custom_tool_call"), call_id=_custom_ids, name=names, input=texts),
)
_outputs = st.one_of(texts, st.lists(_input_parts, min_size=1, max_size=2))
output_items = st.one_of(
    _objects(type=st.just("function_call_output"), call_id=_function_ids, output=_outputs),
    _objects(type=st.just("custom_tool_call_output"), call_id=_custom_ids, output=_outputs),
)
_answers = st.builds(
    lambda thoughts, said, made: [*thoughts, *said, *made],
    st.lists(reasoning, max_size=1),
    st.lists(output_messages, max_size=1),
    st.lists(call_items, max_size=3),
).filter(lambda items: bool(items) and items[-1]["type"] != "reasoning")
item_lists = st.lists(
    st.one_of(input_messages.map(lambda item: [item]), output_items.map(lambda item: [item]), _answers), max_size=5
).map(lambda groups: [item for group in groups for item in group])
"""Valid inputs of the Responses API."""
