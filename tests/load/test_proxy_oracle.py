"""What judges the load of the proxy notices each kind of fault."""

from collections.abc import Callable

import pytest

from shared_core import Message, ToolCall
from shared_core.messages import Payload
from tests.load.proxy_client import Note
from tests.load.proxy_oracle import Lines, faults, foreign, mixed

CALL = ToolCall(id="call-3-1-2", name="look", arguments="{}")
LINE = [
    Message.user("[[q 3 0]] Where?", id="m0"),
    Message.assistant("[[a 3 0 1]] There.", id="m1"),
    Message.user("[[q 3 1]] And then?", id="m2"),
    Message.assistant("", tool_calls=[CALL], id="m3"),
    Message(role="tool", content="[[r 3 2]] found", tool_call_id=CALL.id, id="m4"),
    Message.assistant("[[a 3 2 3]] Here.", id="m5"),
]
NOTES = [Note(LINE[at].to_openai(), LINE[at + 1].to_openai(), 0.1, streamed=False) for at in range(0, len(LINE), 2)]
PART = Message.assistant("[[a 3 1 9]] It", id="part", payload=Payload(format="infinite-memory-serve/1", data={}))


def test_what_was_told_is_there_once_and_parts_may_be_beside_it() -> None:
    assert list(faults(3, NOTES, {"talk-3": [LINE, [*LINE[:3], PART]], "talk-4": [[Message.user("[[q 4 0]]")]]})) == []


def doubled(line: list[Message]) -> list[Message]:
    return [*line, line[2].replace(id="again")]


def test_a_fault_is_noticed(subtests: pytest.Subtests) -> None:
    rows: list[Callable[[list[Message]], Lines]] = [
        lambda line: {"talk-3": [line[:-1]]},
        lambda line: {"talk-3": [[*line[:1], *line[2:]]]},
        lambda line: {"talk-3": [[*line[2:], *line[:2]]]},
        lambda line: {"talk-3": [line[:4], [*line[:2], *line[4:]]]},
        lambda line: {"talk-3": [doubled(line)]},
        lambda line: {"talk-3": [line, doubled(line)]},
        lambda line: {"talk-3": [line], "talk-9": [line[:2]]},
        lambda line: {"other": [line]},
        lambda _: {},
    ]
    for wrong in rows:
        with subtests.test(wrong=wrong):
            assert list(faults(3, NOTES, wrong(LINE)))


def test_words_of_another_client_are_noticed() -> None:
    assert not [*foreign({"talk-3": [LINE]}), *mixed([(3, {3})])]
    assert list(foreign({"talk-3": [[*LINE, Message.user("[[q 4 0]]")]]}))
    assert len(list(mixed([(3, {3, 4}), (3, {4}), (4, {4})]))) == 2
