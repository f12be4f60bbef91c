"""NUL and lone halves of surrogate pairs become U+FFFD; names and ids with them are refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import Grounding, InfiniteMemory, Message, SessionPool, ToolCall
from shared_core.messages import Payload, storable

ODD = "NUL \0, \ud800 half and \ud83d\ude00"
PLAIN = "NUL \ufffd, \ufffd half and \U0001f600"
DATA = PLAIN.replace("\ufffd", "\0", 1)  # JSON escapes it
TEXTS = st.text(st.sampled_from("\ud83d\ude00\U0001f600\0x\ufffdé"), max_size=8)


@given(TEXTS)
def test_a_text_becomes_one_that_utf_8_has_and_stays_it(text: str) -> None:
    plain = storable(text)
    assert storable(plain) == plain
    assert "\0" not in plain
    assert plain.encode().decode() == plain
    assert [a for a in plain if a in "xé"] == [a for a in text if a in "xé"]


def test_every_text_of_a_message_is_made_plain(tmp_path: Path) -> None:
    said = Message.assistant(
        ODD, name=ODD, grounding=Grounding.of(ODD, header=ODD), id="a",
        tool_calls=(ToolCall(id="c", name=ODD, arguments=ODD),),
        payload=Payload(format="x", data={ODD: [ODD]}),
    )  # fmt: skip
    assert (said.content, said.name, said.tool_calls[0].arguments) == (PLAIN, PLAIN, PLAIN)
    assert said.grounding == Grounding.of(PLAIN, header=PLAIN)
    assert said.payload == Payload(format="x", data={DATA: [DATA]})
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add([Message.user("?"), said])
        kept = memory.get("a")
        assert kept == said.replace(turn_id=kept.turn_id, created_at=kept.created_at)
        memory.set_title(ODD)
        assert memory.sessions()[0].title == PLAIN
        assert memory.export(tmp_path / "chat.jsonl") == 2
        again = memory.import_file(tmp_path / "chat.jsonl")
        assert (again.new, again.known, again.remapped) == (0, 2, {})
    with InfiniteMemory(tmp_path / "other.db") as other:
        assert other.import_file(tmp_path / "chat.jsonl").new == 2
        assert other.get("a") == kept


@pytest.mark.parametrize("odd", ["\0", "a\0", "\ud800", "\ud83d\ude00"])
def test_names_and_ids_are_refused(odd: str) -> None:
    with InfiniteMemory() as memory:
        memory.add(Message.user("hello", id="u"))
        with pytest.raises(ValueError, match="id="):
            Message.user("hello", id=odd)
        for refused in (
            lambda: memory.get(odd), lambda: memory.fork(odd),
            lambda: memory.tag(odd), lambda: memory.checkout(odd), lambda: memory.forget(ids=[odd]),
            lambda: memory.rename_session(odd), lambda: InfiniteMemory(session_id=odd),
            lambda: InfiniteMemory(session_id="s", user_id=odd),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="NUL and halves of surrogate pairs cannot be stored"):
                refused()


def test_a_name_with_nul_finds_nobody_elses_sessions(tmp_path: Path) -> None:
    with SessionPool(tmp_path / "chat.db") as pool:
        with pool.use("s", "ann") as memory:
            memory.add(Message.user("hello", id="u"))
        assert [one.session_id for one in pool.sessions("ann")] == ["s"]
        assert pool.sessions("ann\0x") == []
        assert pool.store.sessions("ann\0x") == pool.store.sessions_with("ann\0x", "u") == []
