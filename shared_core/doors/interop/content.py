"""Texts, media and tool calls of a framework's messages, as both adapters read and store them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar
from zlib import crc32

from shared_core.messages import ToolCall

Block = TypeVar("Block")

BYTES_PER_TOKEN = 3
"""UTF-8 bytes. o200k_base needs fewer tokens than that for prose in any script."""


def text_tokens(text: str) -> int:
    """Return an upper estimate of the tokens in a text, for code that does not know which counter will be used."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def text_mark(text: str) -> list[int]:
    """Return the length and the checksum of a text, by which `unpack_blocks` recognizes it."""
    return [len(text), crc32(text.encode("utf-8", "surrogatepass"))]


def references(texts: Iterable[str | None], separator: str) -> list[dict[str, list[int]] | None]:
    """Return for each text the reference into all texts, joined by `separator`; None where there is no text."""
    given = list(texts)
    steps = [0 if text is None else len(text) + len(separator) for text in given]
    starts = accumulate(steps, initial=len(separator) - sum(steps))
    return [
        None if text is None else {"$text": [start, start + len(text)]}
        for text, start in zip(given, starts, strict=False)
    ]


def text_slice(text: str, reference: Sequence[int]) -> str:
    """Return the part of a text that a reference stands for."""
    start, end = (len(text) + number for number in reference)
    return text[max(start, 0) : end]


def unpack_blocks(
    text: str, blocks: Sequence[Any], mark: Sequence[int], *, text_block: Callable[[str], Block],
    block: Callable[[Any], Block], is_text: Callable[[Any], bool],
) -> list[Block]:  # fmt: skip
    """Return the blocks of a message.

    Text that was put before the stored text becomes a block of its own at the front. If the text is another one, it is
    the only text block, before the others.

    Args:
        text: the content.
        blocks: as stored.
        mark: what `text_mark` returned for the stored text.
        text_block: makes a block of a text.
        block: makes a block of a stored one.
        is_text: whether a stored block holds text.
    """
    before = len(text) - mark[0]
    if before < 0 or text_mark(text[before:]) != list(mark):
        return [text_block(text), *(block(stored) for stored in blocks if not is_text(stored))]
    added = [text_block(text[:before])] if before else []
    return added + [block(stored) for stored in blocks]


def function_call_id(name: str) -> str:
    """Return the id that pairs a `function_call` with its result.

    Function calls, which came before tool calls, have no id: a call and its result share only the function's name.
    """
    return f"function:{name}"


def legacy_call(call: Mapping[str, Any]) -> ToolCall | None:
    """Return the call that a `function_call` is; None if it does not name its function."""
    name = call.get("name")
    if not isinstance(name, str):
        return None
    return ToolCall(id=function_call_id(name), name=name, arguments=arguments_text(call.get("arguments")))


def arguments_text(arguments: Any) -> str:
    """Return arguments as text: text as it is, nothing as the empty text, anything else as JSON."""
    return arguments or "" if arguments is None or isinstance(arguments, str) else compact_json(arguments)


def compact_json(arguments: Any) -> str:
    """Return arguments as JSON text, with the `repr` of whatever JSON cannot express; never raises.

    The text is only stored and counted. A call with arguments of a model's own making must not stop the conversation.
    """
    try:
        return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(arguments)


def arguments_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a call's arguments are; None if they are something else.

    No text at all is an empty object. Control characters within strings are accepted, because models write them.
    """
    if not text:
        return {}
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
