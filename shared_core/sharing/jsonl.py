"""One line of JSON as bytes and back: what JSON or UTF-8 has no form for, and what is too much, is seen to here."""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from shared_core.errors import InputFileError

__all__ = ["MAX_LINE", "Wrong", "encode", "is_mark", "parse", "refused"]

MAX_LINE = 100 * 2**20
"""Bytes a line may have, so that a file of one endless line does not fill the memory."""

MAX_NESTING = 300
"""Brackets within brackets that a line may have."""


class Wrong(ValueError):
    """What is wrong with a part of a file, without saying where."""


def encode(line: Mapping[str, Any]) -> bytes:
    """Return a line as UTF-8 with its line feed; what UTF-8 or JSON has no form for is escaped."""
    try:
        if "payload" in line and is_mark(line["payload"]["data"]):
            line = _finite(line)
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(line), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        data = text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        data = json.dumps(json.loads(text), separators=(",", ":")).encode() + b"\n"
    if len(data) > MAX_LINE:
        raise ValueError(f"{line.get('type')} {line.get('id')!r} is larger than {MAX_LINE:,} bytes; redact it")
    return data


def _finite(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message's line with NaN and infinity written as texts: scores in words, a payload whole."""
    changed = dict(line)
    if "payload" in line:
        payload = line["payload"]
        changed["payload"] = {"format": payload["format"], "data": {"$json": json.dumps(payload["data"])}}
    if "grounding" in line:
        items = [
            item | ({} if math.isfinite(item.get("score") or 0) else {"score": _word(item["score"])})
            for item in line["grounding"].get("items", ())
        ]
        changed["grounding"] = line["grounding"] | {"items": items}
    return changed


def is_mark(data: Any) -> bool:
    """Return whether data is what stands for a payload that JSON has no form for."""
    return isinstance(data, dict) and data.keys() == {"$json"}


def _word(score: float) -> str:
    return "NaN" if math.isnan(score) else "Infinity" if score > 0 else "-Infinity"


def parse(data: bytes) -> Any:
    """Return the value of a line of JSON.

    Raises:
        Wrong: it is not JSON in UTF-8, or larger or deeper than a line may be.
    """
    if len(data) > MAX_LINE:
        raise Wrong(f"is longer than {MAX_LINE:,} bytes; a line holds one message")
    try:
        value = _decoder.decode(data.decode())
    except Wrong:
        raise
    except UnicodeDecodeError as error:
        raise Wrong(f"is not text in UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise Wrong("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Wrong(f"is not JSON (column {error.colno}: {error.msg})") from None
    except ValueError as error:
        raise Wrong(f"is not JSON ({error})") from None
    if data.count(b"[") + data.count(b"{") > MAX_NESTING and _nesting(value) > MAX_NESTING:
        raise Wrong(f"is nested too deeply; {MAX_NESTING} levels are enough")
    return value


def _no_constant(name: str) -> NoReturn:
    raise Wrong(f"has {name}, which is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Wrong(f"has a number that is too large, {text[:20]}")
    return value


_decoder = json.JSONDecoder(parse_constant=_no_constant, parse_float=_float)


def _nesting(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [item for items in inner for item in items]
    return depth


def refused(name: str, number: int, wrong: Exception) -> InputFileError:
    """Return the error for a line of a file."""
    return InputFileError(f"{name!r}, line {number} {wrong}; nothing was stored: ask for a new copy of the file")
