"""Files of other programs: recognised by their content, read with their branches, and never stored twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, UnknownReferenceError
from shared_core.errors import InputFileError
from tests.support.histories import history, ids, texts

NODES: dict[str, Any] = {
    "root": {"id": "root", "message": None, "parent": None, "children": ["sys"]},
    "sys": {"message": {"author": {"role": "system"}, "content": {"content_type": "text", "parts": [""]}},
            "parent": "root"},
    "q1": {"message": {"author": {"role": "user"}, "create_time": 1_714_560_000.5,
                       "content": {"content_type": "text", "parts": ["Which ", "ferry?"]}}, "parent": "sys"},
    "a1": {"message": {"author": {"role": "assistant"}, "create_time": 1_714_560_001,
                       "content": {"content_type": "text", "parts": ["The early one."]}, "recipient": "all"},
           "parent": "q1"},
    "a2": {"message": {"author": {"role": "assistant"}, "create_time": 1_714_560_009,
                       "content": {"content_type": "code", "text": "find('ferry')"}, "recipient": "python"},
           "parent": "q1"},
    "t2": {"message": {"author": {"role": "tool", "name": "python"}, "create_time": 1_714_560_010,
                       "content": {"content_type": "execution_output", "text": "07:45"}}, "parent": "a2"},
    "b2": {"message": {"author": {"role": "assistant"}, "create_time": 1_714_560_011,
                       "content": {"content_type": "multimodal_text", "parts": ["At 07:45.", {"image": "x"}]}},
           "parent": "t2"},
}  # fmt: skip
CHATGPT = {"title": "Ferries", "conversation_id": "c1", "create_time": 1_714_550_000, "current_node": "b2",
           "mapping": NODES}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "conversations.json"


def write(file: Path, data: Any) -> Path:
    file.write_text(json.dumps(data), encoding="utf-8")
    return file


def test_a_tree_of_chatgpt_has_its_branches(file: Path) -> None:
    with InfiniteMemory(session_id="mine") as memory:
        result = memory.import_file(write(file, [CHATGPT]))
        assert (result.format, result.session_id, result.new) == ("chatgpt", "mine", 5)
        assert dict(result.branches) == {"main": "main", "version-a1": "version-a1"}
        assert memory.branch == "main"
        question, call, reply, answer = memory.messages()
        assert texts([question, reply, answer]) == ["Which \nferry?", "07:45", "At 07:45."]
        assert (call.tool_calls[0].name, call.tool_calls[0].arguments) == ("python", "find('ferry')")
        assert (reply.role, reply.tool_call_id, reply.name) == ("tool", call.tool_calls[0].id, "python")
        assert {message.turn_id for message in (question, call, reply, answer)} == {"q1"}
        assert question.created_at is not None
        assert question.created_at.isoformat() == "2024-05-01T10:40:00.500000+00:00"
        assert answer.payload is not None
        assert answer.payload.data["content"]["parts"][1] == {"image": "x"}
        memory.checkout("version-a1")
        assert texts(memory.messages()) == ["Which \nferry?", "The early one."]
        assert (memory.import_file(file).new, memory.import_file(write(file, CHATGPT)).known) == (0, 5)


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"q1": NODES["q1"] | {"parent": "none"}}, "node 'q1' has the parent 'none', which does not exist"),
    ({"q1": NODES["q1"] | {"parent": "b2"}}, "leads back to itself"),
    ({"q1": NODES["q1"] | {"parent": []}}, "has the parent []"),
    ({"q1": 1}, "expected an object of nodes"),
    ({"q1": {"message": {"author": {"role": "robot"}}, "parent": None}}, "no author with a known role"),
    ({"q1": {"message": [1], "parent": None}}, "no author with a known role"),
    ({"q1": {"message": {"author": {"role": "user"}, "create_time": 1e300}, "parent": None}}, "is not a time"),
    ({"": NODES["q1"]}, "node '': id='': String should have"),
    ({"\ud800": NODES["q1"]}, "node '\\ud800': id='\\ud800': Input should be a valid string"),
]


def test_a_broken_tree_is_refused(file: Path, subtests: pytest.Subtests) -> None:
    for change, expected in BROKEN:
        write(file, CHATGPT | {"mapping": NODES | change})
        with subtests.test(expected), InfiniteMemory() as memory:
            memory.add(history(2))
            with pytest.raises(InputFileError) as error:
                memory.import_file(file)
            assert str(error.value).startswith(f"{str(file)!r}, conversation 1: ")
            assert expected in str(error.value)
            assert ids(memory.messages()) == ["m0", "m1"]


def test_a_list_goes_where_one_stands_and_clashes_with_nothing(file: Path) -> None:
    said = [{"role": "user", "content": "uno", "id": "m0"}, {"role": "assistant", "content": "dos", "id": "n1"}]
    with InfiniteMemory() as memory:
        memory.add(history(2))
        memory.checkout("m1")
        result = memory.import_file(write(file, said))
        assert (result.format, result.new, list(result.remapped)) == ("openai", 2, ["m0"])
        assert memory.branch == "branch-1"
        one, two = list(memory.messages())[2:]
        assert (one.id, one.content, two.id, two.turn_id) == (result.remapped["m0"], "uno", "n1", one.id)
        again = memory.import_file(file)
        assert (again.new, again.known, again.remapped) == (0, 2, result.remapped)
        assert memory.get("m0").content == history(1)[0].content
        many = [{"role": ("user", "assistant")[n % 2], "content": f"{n}"} for n in range(1_100)]
        seen: list[tuple[int, int]] = []
        memory.import_file(write(file, many), progress=lambda done, total: seen.append((done, total)))
        assert (len(seen) > 1, seen[-1]) == (True, (1_100, 1_100))
        assert len({message.turn_id for message in list(memory.messages())[4:]}) == 550


def test_a_list_is_imported_whole_or_not_at_all(file: Path) -> None:
    many = [{"role": "user", "content": f"{n}"} for n in range(1_100)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with InfiniteMemory() as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.import_file(write(file, many), progress=stop)
        assert memory.stats()["messages"] == 0
        memory.add(Message.user("goes on"))
        with pytest.raises(UnknownReferenceError, match="'x'"):
            memory.import_file(file, session="x")
        assert memory.import_file(write(file, [])).new == 0
        assert len(list(memory.messages())) == 1
