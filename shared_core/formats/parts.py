"""The content of a message as parts: texts, images, sound and files in the forms of OpenAI's two APIs."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared_core.display import short
from shared_core.formats.fields import MessageFields, PayloadFields

# What media cost in tokens, where only their kind is known.

LOW_IMAGE_TOKENS = 85
"""An image requested in low detail (OpenAI, "Images and vision": 85 tokens whatever its size)."""

IMAGE_TOKENS = 85 + 6 * 170
"""An image: six of OpenAI's tiles (85 tokens and 170 a tile, same page), enough for any picture up to 16:9 in high
detail. Gemini takes 258 a tile of 768 pixels, that is 1,032 for four; Anthropic width * height / 750, that is 1,106 for
1080 x 768."""

AUDIO_TOKENS = 60 * 32
"""A minute of sound (Gemini, "Understand and count tokens": 32 tokens a second; OpenAI takes 10 a second)."""

VIDEO_TOKENS = 10 * 263
"""Ten seconds of video (Gemini, same page: 263 tokens a second)."""

FILE_TOKENS = 3_000
"""A file: a dense page by Anthropic's figure ("PDF support": 1,500 to 3,000 tokens a page), eleven by Gemini's 258."""

OPENAI_FORMAT = "openai/1"
"""The payload format for what a chat-completions dict holds and `Message` does not, by the names of its keys.

"content", "role", "tool_calls" and "function_call" are there only if the other fields do not give them back as they
were: parts, the role "developer", calls with more than a name and arguments.
"""

RESPONSES_FORMAT = "openai-responses/1"
"""The payload format for items of the Responses API: "items" is the list of those that one message was made of."""

ANTHROPIC_FORMAT = "anthropic/1"
"""The payload format for blocks of Anthropic's Messages API: "content" is a list of them, and "is_error" marks the
result of a call that failed."""

CHAT_PARTS = ("text", "image_url", "input_audio", "file", "refusal")
RESPONSES_PARTS = ("input_text", "output_text", "input_image", "input_file", "refusal")

APPROVAL_REQUEST = "mcp_approval_request"
_APPROVAL_RESPONSE = "mcp_approval_response"
_LINKED_BY = {APPROVAL_REQUEST: "id", _APPROVAL_RESPONSE: "approval_request_id"}
"""The items of a call and its result that are not linked by a `call_id`, and the key that links them."""

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The kinds of parts that are text, and the key of the text."""

_BODIES: Mapping[str, tuple[str, ...]] = {
    "image_url": ("url",),
    "input_audio": ("data", "format"),
    "file": (),
}
"""The parts of a chat that are objects, and what these objects must hold."""

_MEDIA = {
    "image_url": IMAGE_TOKENS,
    "input_image": IMAGE_TOKENS,
    "input_audio": AUDIO_TOKENS,
    "file": FILE_TOKENS,
    "input_file": FILE_TOKENS,
}


def check_parts(content: Any, kinds: Sequence[str]) -> None:
    """Raise ValueError if a content is a list with a part that is not of these kinds, or incomplete."""
    if not isinstance(content, list):
        return
    for number, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise ValueError(f'content[{number}] is {short(part)}; expected an object with "type"')
        if kind not in kinds:
            raise ValueError(f"content[{number}] is of the unknown type {kind!r}; expected one of {', '.join(kinds)}")
        if kind in _BODIES:
            body = part.get(kind)
            if not isinstance(body, Mapping) or not all(isinstance(body.get(key), str) for key in _BODIES[kind]):
                needs = " and ".join(f'"{key}"' for key in _BODIES[kind])
                raise ValueError(
                    f'content[{number}] is incomplete; expected an object "{kind}"{needs and f" with {needs}"}'
                )


def text_of(content: Any) -> str:
    """Return the text of a content, which is text or a list of parts; ValueError if it is something else."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"content is {short(content)}; expected text, null or a list of parts")
    texts = [part if isinstance(part, str) else part_text(part) for part in content]
    return "\n".join(text for text in texts if text is not None)


def part_text(part: Any) -> str | None:
    """Return the text of a part; None if it is not a text."""
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise ValueError(f'content part {short(part)} is invalid; expected an object with "type"')
    key = _TEXTS.get(part["type"])
    if key is None:
        return None
    if not isinstance(part.get(key), str):
        raise ValueError(f'{part["type"]} part {short(part)} is invalid; expected a "{key}" field')
    return str(part[key])


def media_tokens(content: Any) -> int:
    """Return what the parts of a content cost beside their text."""
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return sum(_part_tokens(part) for part in parts)


def _part_tokens(part: Mapping[str, Any]) -> int:
    tokens = _MEDIA.get(str(part.get("type")), 0)
    body = part.get("image_url")
    detail = body.get("detail") if isinstance(body, Mapping) else part.get("detail")
    return LOW_IMAGE_TOKENS if tokens == IMAGE_TOKENS and detail == "low" else tokens


def fitted(parts: Sequence[Any], text: str, text_part: Callable[[str], dict[str, Any]]) -> list[Any]:
    """Return parts that say `text`.

    Text before what the parts say, such as grounding, becomes a part of its own at the front. If the text is another
    one, it is the only text, before the other parts.

    Args:
        parts: the parts as they were given.
        text: what the message says now.
        text_part: makes a part of a text.
    """
    said = text_of(list(parts))
    if text.endswith(said):
        before = text[: len(text) - len(said)]
        return [*([text_part(before)] if before else []), *parts]
    others = [part for part in parts if not isinstance(part, str) and part_text(part) is None]
    return [*([text_part(text)] if text else []), *others]


def with_name(fields: MessageFields) -> MessageFields:
    """Return a message whose text begins with the name of who speaks, for formats without a field for it."""
    name = fields.get("name")
    return fields | {"content": f"{name}: {fields['content']}", "name": None} if name and fields["content"] else fields


def chat_text(text: str) -> dict[str, Any]:
    """Return a text as a part of a chat message."""
    return {"type": "text", "text": text}


def chat_parts(fields: MessageFields) -> str | list[Any]:
    """Return what a message says: its text, or its parts in the form of chat completions.

    Raises:
        ValueError: a part has no such form, or the message holds media in another framework's form.
    """
    payload, text = fields.get("payload"), fields["content"]
    if payload is None:
        return text
    if payload["format"] not in (OPENAI_FORMAT, RESPONSES_FORMAT, ANTHROPIC_FORMAT):
        if fields.get("media_tokens"):
            raise ValueError(f"its images, sound or files are kept in the form of {payload['format']!r} only")
        return text
    given = _given_content(payload)
    if not isinstance(given, list):
        return text
    parts = [chat_part(part) for part in fitted(given, text, chat_text)]
    plain = payload["format"] != OPENAI_FORMAT and all(part["type"] == "text" for part in parts)
    return text if plain else parts


def _given_content(payload: PayloadFields) -> Any:
    """Return the content that a payload of OpenAI's keeps; None if it keeps none."""
    data = payload["data"] if isinstance(payload["data"], Mapping) else {}
    if payload["format"] == ANTHROPIC_FORMAT:
        return [*filter(None, map(_part_of_block, data.get("content") or ()))]
    return data.get("content") if payload["format"] == OPENAI_FORMAT else items_content(data.get("items") or ())


def _part_of_block(block: Any) -> dict[str, Any] | None:
    """Return a block of Anthropic's as a part of a chat; None if nobody says it, such as a thought or a call."""
    kind, source = (block.get("type"), block.get("source")) if isinstance(block, Mapping) else (None, None)
    if kind == "text":
        return chat_text(block["text"])
    if kind not in ("image", "document") or not isinstance(source, Mapping):
        return None
    data = source.get("url") if source.get("type") == "url" and kind == "image" else None
    if source.get("type") == "base64":
        data = f"data:{source['media_type']};base64,{source['data']}"
    elif source.get("type") == "text":
        data = f"data:text/plain;base64,{base64.b64encode(str(source['data']).encode()).decode()}"
    if data is None:
        raise ValueError(f"the source {short(source)} of Anthropic's has no form in another API")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": data}}
    return {"type": "file", "file": {"file_data": data, "filename": str(block.get("title") or "document")}}


def items_content(items: Sequence[Mapping[str, Any]]) -> Any:
    """Return what items of the Responses API say: one content, or the parts of all."""
    contents = [_item_content(item) for item in items if says(item)]
    if len(contents) == 1:
        return contents[0]
    parts: list[Any] = []
    for content in contents:
        parts += [{"type": "output_text", "text": content}] if isinstance(content, str) else content or ()
    return parts or None


def says(item: Mapping[str, Any]) -> bool:
    """Return whether an item of the Responses API holds words: a message, or the output of a call."""
    kind = str(item.get("type"))
    return "role" in item or kind.endswith("_call_output") or kind == _APPROVAL_RESPONSE


def link_of(item: Mapping[str, Any]) -> Any:
    """Return the id that links a call with its result."""
    return item.get(_LINKED_BY.get(str(item.get("type")), "call_id"))


def _item_content(item: Mapping[str, Any]) -> Any:
    """Return what an item says, as text or parts: a screenshot is an image, and the output of a shell is text."""
    content = item.get("content", item.get("output"))
    if "role" in item or item.get("type") in ("function_call_output", "custom_tool_call_output"):
        return content
    if isinstance(content, Mapping):
        return [{"type": "input_image", **{key: content[key] for key in ("image_url", "file_id") if key in content}}]
    if isinstance(content, list):
        runs = [run for run in content if isinstance(run, Mapping)]
        said = [run[key] for run in runs for key in ("stdout", "stderr") if isinstance(run.get(key), str)]
        return "\n".join(text for text in said if text)
    return content if isinstance(content, str) else None


def chat_part(part: Any) -> dict[str, Any]:
    """Return a part in the form of chat completions; a part of an unknown kind is returned as it is."""
    if isinstance(part, str):
        return chat_text(part)
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return chat_text(part["text"]) | _cache_mark(part)
    if kind == "input_image":
        if not isinstance(part.get("image_url"), str):
            raise ValueError("an image that was uploaded (file_id) has no form in chat completions")
        detail = {"detail": part["detail"]} if part.get("detail") else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}} | _cache_mark(part)
    if kind == "input_file":
        if part.get("file_url"):
            raise ValueError("a file that is given by its URL (file_url) has no form in chat completions")
        keys = ("file_data", "file_id", "filename")
        return {"type": "file", "file": {key: part[key] for key in keys if part.get(key)}} | _cache_mark(part)
    return dict(part)


def _cache_mark(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mark up to which both APIs cache a prompt, if the part has one."""
    return {key: part[key] for key in ("prompt_cache_breakpoint",) if key in part}


def responses_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a chat in the form of the Responses API; ValueError if it has none."""
    check_parts([part], CHAT_PARTS)
    kind = part["type"]
    if kind in ("text", "refusal"):
        return {"type": "input_text", "text": part_text(part)} | _cache_mark(part)
    if kind == "image_url":
        image = part["image_url"]
        written = {"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")}
        return written | _cache_mark(part)
    if kind == "file":
        return {"type": "input_file", **part["file"]} | _cache_mark(part)
    raise ValueError(f"a part of the type {kind!r} has no form in the Responses API")
