"""Files of questions: what they may say, and one error for everything that is wrong with one."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core.errors import InputFileError
from shared_core.evaluation import Question, read_questions
from tests.support.documents import ROOT

FORM = r'write {"question": "…", "ids": ["…"]} or {"question": "…", "text": "…"}'


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines), encoding="utf-8")
    return path


def test_each_line_is_a_question(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.jsonl",
        {"question": "Where?", "ids": ["m1", "m2", "m1"], "kind": "places", "answer": "In Porto."},
        "",
        {"question": "What?", "text": "4471", "session": "ana", "user": "u", "at": "m3"},
        {"question": "Who?", "text": ["Ann", "Bob"], "at": "2026-03-01", "comment": "of no interest"},
        {"question": "Never said?", "ids": []},
    )
    assert read_questions(path, session_id="trip", user_id="v") == [
        Question("Where?", ("m1", "m2"), (), "trip", "v", kind="places", answer="In Porto.", where="line 1"),
        Question("What?", (), ("4471",), "ana", "u", at="m3", where="line 3"),
        Question("Who?", (), ("Ann", "Bob"), "trip", "v", at="2026-03-01", where="line 4"),
        Question("Never said?", session="trip", user="v", where="line 5"),
    ]
    assert [one.is_answered for one in read_questions(path)] == [True, True, True, False]


def test_a_list_of_json_and_the_names_of_other_files_will_do() -> None:
    found = read_questions(ROOT / "examples" / "data" / "questions.json")
    assert len(found) == 85
    assert (found[0].ids, found[0].kind, found[0].answer) == (("m0122",), "single", "4093 (locker 118)")
    assert found[0].where == "question 1"


def test_questions_may_be_objects() -> None:
    given: list[Any] = [{"question": "Where?", "ids": "m1"}, Question("What?", texts=("x",), session="s")]
    assert read_questions(given, session_id="trip") == [
        Question("Where?", ("m1",), session="trip", where="question 1"),
        Question("What?", texts=("x",), session="s", where="question 2"),
    ]


WRONG: list[tuple[Any, str]] = [
    ('{"question": ', f"not valid JSON; {FORM}"),
    ([1], f"not an object but [1]; {FORM}"),
    ({"ids": ["m1"]}, f"'question' is missing or empty; {FORM}"),
    ({"question": " ", "ids": ["m1"]}, f"'question' is missing or empty; {FORM}"),
    ({"question": 3, "ids": ["m1"]}, "'question' is 3: expected a text"),
    ({"question": "x"}, "give 'ids' or 'text', what must be in the prompt; \"ids\": [] says that there is no answer"),
    ({"question": "x", "id": "m1"}, "there is no field 'id'; did you mean 'ids'?"),
    ({"question": "x", "ids": [1]}, "'ids' is [1]: expected a text that is not empty, or a list of them"),
    ({"question": "x", "text": [""]}, "'text' is ['']: expected a text that is not empty, or a list of them"),
    ({"question": "x", "text": {"a": 1}}, "'text' is {'a': 1}: expected a text that is not empty, or a list of them"),
    ({"question": "x", "ids": [], "session": 4}, "'session' is 4: expected a text"),
]


@pytest.mark.parametrize(("line", "what"), WRONG, ids=[what for _, what in WRONG])
def test_a_bad_line_is_named_with_what_to_do(tmp_path: Path, line: Any, what: str) -> None:
    path = write(tmp_path / "mine.jsonl", {"question": "Where?", "ids": ["m1"]}, line)
    with pytest.raises(InputFileError) as caught:
        read_questions(path)
    assert str(caught.value) == f"{str(path)!r}: line 2: {what}"


def test_all_bad_lines_are_named_in_one_error(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", *(line for line, _ in WRONG))
    with pytest.raises(InputFileError) as caught:
        read_questions(path)
    first, *others = str(caught.value).split(";\n")
    assert first == f"{str(path)!r}: line 1: {WRONG[0][1]}"
    assert others == [*(f"line {number}: {WRONG[number - 1][1]}" for number in range(2, 11)), "and 1 more"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "holds no questions: write one on each line"),
        (b"\n \n", "holds no questions: write one on each line"),
        (b'[{"question": "x", "ids": []},]', "is not valid JSON: "),
        (b'{"question": "\xff"}', "is not UTF-8: save it as UTF-8"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "mine.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read_questions(path)
    assert str(caught.value).startswith(f"{str(path)!r} {what}")
