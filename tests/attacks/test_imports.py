"""Files of other programs with a wrong value anywhere: an `InputFileError` that names the file, or an import."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory
from shared_core.errors import InputFileError

CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CHATGPT = {
    "title": "Trip", "create_time": 1.0, "current_node": "a",
    "mapping": {
        "root": {"id": "root", "message": None, "parent": None, "children": ["a"]},
        "a": {"id": "a", "parent": "root", "children": [], "message": {
            "id": "a", "author": {"role": "user"}, "create_time": 2.0,
            "content": {"content_type": "text", "parts": ["Hi."]},
        }},
    },
}  # fmt: skip
CLAUDE = {
    "uuid": "1", "name": "Trip", "created_at": "2026-01-01T00:00:00Z",
    "chat_messages": [{
        "uuid": "a", "sender": "human", "text": "Hi.", "content": [{"type": "text", "text": "Hi."}],
        "created_at": "2026-01-01T00:00:00Z",
    }],
}  # fmt: skip
LLAMA_INDEX = {"store": {"trip": [
    {"role": "user", "blocks": [{"block_type": "text", "text": "Hi."}], "additional_kwargs": {}},
    {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [CALL]}},
]}}  # fmt: skip
LANGCHAIN = [{"type": "human", "data": {"content": "Hi.", "type": "human", "additional_kwargs": {}}}]
OPENAI = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]

ODD = st.sampled_from([None, 7, 1e300, -1, True, "", "x", [], [7], {}, {"x": 7}, "\ud800", "\x1b[2J"])


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths to all values inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *path) for key, one in inner for path in places(one))]


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """Return a JSON value in which the value at a path is another one."""
    if not path:
        return odd
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = changed(copy[key], tuple(rest), odd)
    return copy


@pytest.mark.parametrize(
    "whole",
    [[CHATGPT], [CLAUDE], LLAMA_INDEX, LANGCHAIN, OPENAI],
    ids=["chatgpt", "claude", "llama_index", "langchain", "openai"],
)
@given(data=st.data())
def test_a_wrong_value_anywhere_is_named_or_imported(whole: Any, data: st.DataObject, tmp_path_factory: Any) -> None:
    path: Path = tmp_path_factory.mktemp("import") / "talk.json"
    given = changed(whole, data.draw(st.sampled_from(places(whole))), data.draw(ODD))
    path.write_text(json.dumps(given), encoding="utf-8")
    with InfiniteMemory(embedder="words") as memory:
        try:
            memory.import_file(path)
        except InputFileError as error:
            refused = str(error)
        else:
            return
        assert str(path) in refused
        assert memory.stats()["messages"] == 0
