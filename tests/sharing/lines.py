"""Lines of export files, written by hand."""

import hashlib
import json
from pathlib import Path
from typing import Any

Lines = list[dict[str, Any]]

AT = "2026-01-01T00:00:00+00:00"


def segment(number: int, tip: int, *parent: int, **more: Any) -> dict[str, Any]:
    return {"type": "segment", "segment": number, "tip": tip, **({"parent": parent} if parent else {}), **more}


def said(id_: str, number: int, depth: int, *, role: str = "user", turn_no: int = 0, **more: Any) -> dict[str, Any]:
    line = {"type": "message", "id": id_, "at": [number, depth], "role": role, "content": "hi", "created_at": AT}
    return line | {"turn_no": turn_no} | more


def branch(name: str, number: int, depth: int) -> dict[str, Any]:
    return {"type": "branch", "name": name, "at": [number, depth]}


def write(path: Path, lines: Lines) -> Path:
    messages = sum(line["type"] == "message" for line in lines)
    head = {"format": "infinite-memory", "version": 1, "type": "header", "sessions": 1, "messages": messages}
    everything = [head, {"type": "session", "session_id": "s"}, *lines]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in everything)
    end = {"type": "end", "lines": len(everything), "messages": messages, "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(body + json.dumps(end).encode() + b"\n")
    return path
