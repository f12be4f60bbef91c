"""Halves of surrogate pairs come back from a file as they were, also where two of them stand together."""

from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.sharing.format import encode, parse, read_line
from tests.sharing.lines import said

PAIR = "\ud83d\ude00"
TEXTS = st.text(st.sampled_from('\ud83d\ude00\U0001f600\ue000\ue001x\\"'), max_size=8)


@given(content=TEXTS, name=TEXTS, data=st.dictionaries(TEXTS, TEXTS | st.just(float("inf")), max_size=2))
@example(PAIR, PAIR, {PAIR: PAIR})
@example("\ue000" + PAIR, "\U0001f600", {"$json": PAIR})
@example("x", "x", {PAIR: float("inf")})
def test_a_line_is_read_as_it_was_written(content: str, name: str, data: dict[str, Any]) -> None:
    payload = {"format": "test", "data": data}
    line = said("m", 0, 0) | {"content": content, "name": name, "payload": payload}
    read = read_line(parse(encode(line)))
    assert isinstance(read, Message)
    assert (read.content, read.name) == (content, name)
    assert read.payload is not None
    assert read.payload.data == data


def test_a_file_that_is_imported_where_it_came_from_stores_nothing(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    text = f"{PAIR} and \U0001f600"
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(Message.user(text, id="m"))
        memory.export(file)
        again = memory.import_file(file)
        assert (again.new, again.known, again.remapped) == (0, 1, {})
    with InfiniteMemory(tmp_path / "other.db") as other:
        assert other.import_file(file).new == 1
        assert [one.content for one in other.messages()] == [text]
