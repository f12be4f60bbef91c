"""Messages of Anthropic's Messages API, as fields and back."""

import base64
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from shared_core.display import short
from shared_core.formats.fields import CallFields, MessageFields, own_copy, role_named, write_each
from shared_core.formats.openai_chat import OWN_FIELDS
from shared_core.formats.parts import (
    ANTHROPIC_FORMAT,
    CHAT_PARTS,
    FILE_TOKENS,
    IMAGE_TOKENS,
    chat_parts,
    chat_text,
    check_parts,
    fitted,
    part_text,
    text_of,
    with_name,
)

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*+)(?:(?!;base64,)[^,])*+(?P<base64>;base64)?,", re.ASCII)
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
"""What the id of a call must not hold."""

OPENING = "[The conversation begins.]"
"""What a user says before a greeting, because Anthropic's API has refused requests that begin with an assistant's."""

THOUGHTS = ("thinking", "redacted_thinking")
"""Blocks that must be sent back, signed as they are, until the calls that follow them are answered for good."""

_OF_API = ("server_tool_use", "mcp_tool_use", "container_upload", "search_result")
_UNSENT = ("cache_control", "parsed_output")
"""Fields of blocks that no later request has: marks are put where its own cache ends."""

Block = dict[str, Any]

# Reading


def is_anthropic(given: Any) -> bool:
    """Return whether a value is a message of Anthropic's: a reply, or a dict with blocks that only this API has."""
    content = given.get("content") if isinstance(given, Mapping) else None
    if not isinstance(content, list):
        return False
    reply = given.get("type") == "message" and given.get("role") == "assistant" and ("stop_reason" in given or content)
    return any(map(_own, content)) or bool(reply and all(_kind(block) == "text" for block in content))


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, Mapping) else ""


def _own(block: Any) -> bool:
    """Return whether a block is of a kind that no other API has."""
    kind = _kind(block)
    if kind in ("image", "document"):
        return isinstance(block.get("source"), Mapping)
    return kind in ("tool_use", *THOUGHTS, *_OF_API) or kind.endswith("tool_result")


def read_anthropic(item: Mapping[str, Any]) -> list[MessageFields]:
    """Return the fields of the messages that a message of Anthropic's means: each result of a call is one of its own.

    The id of a reply is left out, since a message gets an id of its own.

    Raises:
        ValueError: the role is unknown, or a block is invalid.
    """
    role = role_named(item.get("role"))
    found: list[MessageFields] = []
    run: list[Block] = []
    for number, block in enumerate(item["content"]):
        _check_block(f"content[{number}]", block)
        clean = {key: value for key, value in block.items() if value is not None and key not in _UNSENT}
        if clean["type"] != "tool_result":
            run.append(clean)
            continue
        found += [_said(role, run)] if run else []
        found.append(_result(clean))
        run = []
    found += [_said(role, run)] if run or not found else []
    own: Any = {key: item[key] for key in (*OWN_FIELDS, "created_at") if item.get(key) is not None}
    found[-1].update({} if item.get("type") == "message" else own)
    return found


def _check_block(name: str, block: Any) -> None:
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        raise ValueError(f'{name} is {short(block)}; expected a block with "type"')
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "base64" and not {"media_type", "data"} <= source.keys():
        raise ValueError(f'{name} is {short(block)}; expected a source with "media_type" and "data"')


def _said(role: str, blocks: Sequence[Block]) -> MessageFields:
    fields: MessageFields = {
        "role": role,
        "content": text_of([block for block in blocks if block["type"] == "text"]),
        "tool_calls": [_call(block) for block in blocks if block["type"] == "tool_use"],
        "media_tokens": sum(map(_tokens, blocks)),
    }
    if [*_text_blocks(fields["content"]), *map(_tool_use, fields["tool_calls"])] != list(blocks):
        fields["payload"] = {"format": ANTHROPIC_FORMAT, "data": {"content": own_copy(list(blocks))}}
    return fields


def _call(block: Block) -> CallFields:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str):
        raise ValueError(f'the tool_use {short(block)} is invalid; expected "id", "name" and "input"')
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return {"id": block["id"], "name": block["name"], "arguments": arguments}


def _result(block: Block) -> MessageFields:
    if not isinstance(block.get("tool_use_id"), str):
        raise ValueError('a tool_result has no "tool_use_id"; expected the id of the call it answers')
    content = block.get("content", "")
    if not isinstance(content, str | list):
        raise ValueError(f"the content of a tool_result is {short(content)}; expected text or a list of blocks")
    parts = [chat_text(content)] if isinstance(content, str) else content
    for number, part in enumerate(parts):
        _check_block(f"content[{number}] of a tool_result", part)
    fields: MessageFields = {
        "role": "tool",
        "content": text_of([part for part in parts if _kind(part) == "text"]),
        "tool_call_id": block["tool_use_id"],
        "media_tokens": sum(map(_tokens, parts)),
    }
    data: dict[str, Any] = {"is_error": True} if block.get("is_error") else {}
    data |= {"content": own_copy(parts)} if any(_kind(part) != "text" for part in parts) else {}
    return fields | {"payload": {"format": ANTHROPIC_FORMAT, "data": data}} if data else fields


def _tokens(block: Any) -> int:
    """Return what a block costs beside the text that is said: a picture, a file, or thoughts, at three characters."""
    kind = _kind(block)
    if kind == "image":
        return IMAGE_TOKENS
    if kind in THOUGHTS:
        return len(str(block.get("thinking") or block.get("data") or "")) // 3 + 1
    if kind == "document":
        source = block.get("source") or {}
        return len(str(source.get("data"))) // 3 + 1 if source.get("type") == "text" else FILE_TOKENS
    return 0


# Writing


def write_anthropic(messages: Sequence[MessageFields], *, open_turn: int | None = None) -> dict[str, Any]:
    """Return messages as the arguments `system` and `messages` of a request.

    System messages are joined; without any, `system` is missing. Tool results are blocks of the user's, and what one
    role says in a row is one message. The text of somebody with a name begins with the name. A message without text is
    left out, because the API refuses blank text. Thoughts are sent in the open turn only, where its calls need them.

    Args:
        messages: the messages.
        open_turn: the index of the first message of the open turn, after its question. None: it is found.

    Raises:
        ValueError: a message holds sound, a file or a call that the API has no form for.
    """
    system = write_each(messages, lambda fields: _system(fields) if fields["role"] == "system" else [])
    calls = _CallIds()
    since = _open_turn(messages) if open_turn is None else open_turn
    indexes = iter(range(len(messages)))
    turns = write_each(messages, lambda fields: _turn(fields, calls, whole=next(indexes) >= since))
    merged: list[dict[str, Any]] = []
    for turn in turns:
        if merged and merged[-1]["role"] == turn["role"]:
            merged[-1]["content"] += turn["content"]
        else:
            merged.append(turn)
    request: dict[str, Any] = {"messages": [{**turn, "content": _short_form(turn["content"])} for turn in merged]}
    return {"system": "\n\n".join(block["text"] for block in system), **request} if system else request


def _open_turn(messages: Sequence[MessageFields]) -> int:
    """Return the index after the newest user message; what a user says along with results of calls closes no turn."""
    end = len(messages)
    while end and messages[end - 1]["role"] in ("user", "system"):
        end -= 1
    beside = bool(end) and messages[end - 1]["role"] == "tool"
    asked = (index for index, fields in enumerate(messages[: end if beside else None]) if fields["role"] == "user")
    return max(asked, default=-1) + 1


def anthropic_request(
    messages: Sequence[MessageFields], *, stable: int = 0, mark: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a prompt as `write_anthropic` does, with a user's message before a greeting.

    Args:
        messages: the messages.
        stable: how many of them the next prompt begins with, too.
        mark: the `cache_control` that is put on the last block of these. None: none.
    """
    request = write_anthropic(messages)
    if mark is not None:
        beginning = write_anthropic(messages[:stable], open_turn=_open_turn(messages))
        request = _marked(request, beginning, mark)
    if request["messages"] and request["messages"][0]["role"] == "assistant":
        request["messages"].insert(0, {"role": "user", "content": OPENING})
    return request


def _marked(request: Mapping[str, Any], beginning: Mapping[str, Any], mark: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with a `cache_control` on the last block of its beginning; none for an empty one."""
    messages = [*request["messages"]]
    if beginning["messages"]:
        index, last = len(beginning["messages"]) - 1, len(_long_form(beginning["messages"][-1]["content"])) - 1
        blocks = _long_form(messages[index]["content"])
        blocks[last] = {**blocks[last], "cache_control": dict(mark)}
        messages[index] = {**messages[index], "content": blocks}
    elif "system" in beginning:
        return {**request, "system": [{"type": "text", "text": request["system"], "cache_control": dict(mark)}]}
    return {**request, "messages": messages}


def _long_form(content: str | Sequence[Block]) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


class _CallIds:
    """The ids of calls in a request, where no two calls may have the same id and few characters are allowed.

    Some models number their calls anew in each turn, so calls with the same id are told apart by a number.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._uses: defaultdict[str, int] = defaultdict(lambda: 1)
        self._open: dict[str, list[str]] = {}

    def of_calls(self, given: Sequence[str]) -> list[str]:
        """Return the ids of the calls of one message."""
        for one in given:
            self._open[one] = []
        for one in given:
            self._open[one].append(self._free(_NOT_IN_IDS.sub("_", one) or "call"))
        written = {one: iter(ids) for one, ids in self._open.items()}
        return [next(written[one]) for one in given]

    def of_result(self, given: str) -> str:
        """Return the id of the call that a result answers: the newest with this id."""
        ids = self._open.get(given) or [_NOT_IN_IDS.sub("_", given)]
        return ids.pop(0) if len(ids) > 1 else ids[0]

    def _free(self, wanted: str) -> str:
        free = wanted
        while free in self._taken:
            self._uses[wanted] += 1
            free = f"{wanted}_{self._uses[wanted]}"
        self._taken.add(free)
        return free


def _short_form(blocks: Sequence[Block]) -> str | Sequence[Block]:
    """Return the text if there is nothing else."""
    plain = len(blocks) == 1 and blocks[0]["type"] == "text"
    return str(blocks[0]["text"]) if plain else blocks


def _system(fields: MessageFields) -> list[Block]:
    blocks = _blocks(fields)
    if any(block["type"] != "text" for block in blocks):
        raise ValueError("a system message can hold nothing but text in Anthropic's format")
    return blocks


def _turn(fields: MessageFields, calls: _CallIds, *, whole: bool) -> list[dict[str, Any]]:
    """Return the message as one of the API's, with blocks; none if it says nothing, or is the system's."""
    if fields["role"] == "system":
        return []
    if fields["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": calls.of_result(fields.get("tool_call_id") or "")}
        result |= {"content": _short_form(_blocks(fields)) or ""}  # type: ignore[dict-item]
        result |= {"is_error": True} if _own_data(fields).get("is_error") else {}  # type: ignore[dict-item]
        return [{"role": "user", "content": [result]}]
    if fields["role"] == "assistant":
        made = fields.get("tool_calls", ())
        uses = [*map(_tool_use, made, calls.of_calls([call["id"] for call in made]))]
        blocks = _given_blocks(fields, uses) if whole else None
        blocks = [*_spoken_blocks(fields), *uses] if blocks is None else blocks
    else:
        blocks = _blocks(with_name(fields))
    return [{"role": fields["role"], "content": blocks}] if blocks else []


def _own_data(fields: MessageFields) -> Mapping[str, Any]:
    """Return what was kept of a message of this API."""
    payload = fields.get("payload")
    own = payload is not None and payload["format"] == ANTHROPIC_FORMAT and isinstance(payload["data"], Mapping)
    return payload["data"] if payload is not None and own else {}


def _given_blocks(fields: MessageFields, uses: Sequence[Block]) -> list[Block] | None:
    """Return the blocks of a reply as they were given, with thoughts; None if it has none, or says something else."""
    given = [dict(block) for block in _own_data(fields).get("content") or () if _kind(block)]
    thoughts = [block for block in given if block["type"] in THOUGHTS]
    if not thoughts and not any(block["type"] in _OF_API for block in given):
        return None
    said = [block for block in given if block["type"] == "text"]
    if text_of(said) != fields["content"] or sum(block["type"] == "tool_use" for block in given) != len(uses):
        return [*thoughts, *_spoken_blocks(fields), *uses]
    written = iter(uses)
    kept = [block for block in given if block["type"] != "text" or block["text"].strip()]
    return [next(written) if block["type"] == "tool_use" else block for block in kept]


def _spoken_blocks(fields: MessageFields) -> list[Block]:
    blocks = _blocks(with_name(fields))
    if any(block["type"] != "text" for block in blocks):
        raise ValueError("an assistant's message can hold no images and files in Anthropic's format")
    _check_voice(fields)
    return blocks


def _text_blocks(text: str) -> list[Block]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _check_voice(fields: MessageFields) -> None:
    payload = fields.get("payload")
    data = payload["data"] if payload is not None else None
    if not fields["content"] and isinstance(data, Mapping) and "audio" in data:
        raise ValueError("a spoken answer without a transcript has no form in Anthropic's format")


def _tool_use(call: CallFields, id_: str | None = None) -> Block:
    try:
        given = json.loads(call["arguments"] or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ValueError(
            f"the arguments of the call {call['id']!r} are {short(call['arguments'])}; "
            "Anthropic's format takes a JSON object only"
        )
    return {"type": "tool_use", "id": call["id"] if id_ is None else id_, "name": call["name"], "input": given}


def _blocks(fields: MessageFields) -> list[Block]:
    own = [block for block in _own_data(fields).get("content") or () if _kind(block) in ("text", "image", "document")]
    if own and fields["role"] != "assistant":
        given = fitted(own, fields["content"], chat_text)
        return [dict(block) for block in given if block["type"] != "text" or block["text"].strip()]
    parts = chat_parts(fields)
    blocks = [{"type": "text", "text": parts}] if isinstance(parts, str) else [_block(part) for part in parts]
    return [block for block in blocks if block["type"] != "text" or block["text"].strip()]


def _block(part: Mapping[str, Any]) -> Block:
    kind = part["type"]
    if kind in CHAT_PARTS:
        check_parts([part], CHAT_PARTS)  # a file that was imported may hold anything
    if kind in ("text", "refusal"):
        return {"type": "text", "text": part_text(part)}
    if kind == "image_url":
        return {"type": "image", "source": _image(part["image_url"]["url"])}
    if kind == "file":
        return _document(part["file"])
    raise ValueError(f"a part of the type {kind!r} has no form in Anthropic's format")


def _image(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    media_type, data = _data_of(url)
    if media_type not in IMAGE_TYPES:
        raise ValueError(f"an image of the type {media_type!r} is not one of Anthropic's: {', '.join(IMAGE_TYPES)}")
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


def _document(file: Mapping[str, Any]) -> Block:
    if not isinstance(file.get("file_data"), str):
        raise ValueError("a file that was uploaded to OpenAI (file_id) has no form in Anthropic's format")
    media_type, data = _data_of(file["file_data"])
    title = {"title": file["filename"]} if file.get("filename") else {}
    if media_type == "application/pdf":
        source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    elif media_type == "text/plain":
        source = {"type": "text", "media_type": media_type, "data": _text(data)}
    else:
        raise ValueError(f"a file of the type {media_type!r} is none of Anthropic's: application/pdf, text/plain")
    return {"type": "document", "source": source, **title}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"a text file is not UTF-8 (byte {error.start})") from None


def _data_of(url: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of a data URL."""
    found = _DATA_URL.match(url)
    if found is None:
        raise ValueError(f"{short(url)} is not a data URL")
    data = url[found.end() :]
    try:
        content = base64.b64decode(unquote_to_bytes(data), validate=True) if found["base64"] else unquote_to_bytes(data)
    except ValueError:
        raise ValueError(f"{short(url)} does not hold base64") from None
    return found["type"].lower() or "text/plain", content
