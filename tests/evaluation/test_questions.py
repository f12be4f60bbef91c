"""Files of questions: what they may say, and one error for everything that is wrong with one."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core.errors import InputFileError
from shared_core.evaluation import Question, read_questions
from tests.support.documents import ROOT


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines), encoding="utf-8")
    return path


def test_each_line_is_a_question(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.jsonl",
        {"question": "Where?", "ids": ["m1", "m2"], "kind": "places"},
        "",
        {"question": "What?", "text": "4471", "session": "ana", "user": "u", "at": "m3"},
        {"question": "Who?", "text": ["Ann", "Bob"], "comment": "of no interest"},
        {"question": "Never said?", "ids": []},
    )
    found = read_questions(path)
    assert found == [
        Question(question="Where?", ids=("m1", "m2"), kind="places", where="line 1"),
        Question(question="What?", text=("4471",), session="ana", user="u", at="m3", where="line 3"),
        Question(question="Who?", text=("Ann", "Bob"), where="line 4"),
        Question(question="Never said?", ids=(), where="line 5"),
    ]


def test_a_list_of_json_and_the_names_of_other_files_will_do() -> None:
    found = read_questions(ROOT / "examples" / "data" / "questions.json")
    assert len(found) == 85
    assert (found[0].ids, found[0].kind, found[0].where) == (("m0122",), "single", "question 1")


def test_questions_may_be_objects() -> None:
    given: list[Any] = [{"question": "Where?", "ids": "m1"}, Question(question="What?", text=("x",))]
    assert [(one.question, one.ids, one.where) for one in read_questions(given)] == [
        ("Where?", ("m1",), "question 1"), ("What?", (), "question 2"),
    ]  # fmt: skip


WRONG: list[tuple[Any, str]] = [
    ('{"question": ', "not valid JSON"),
    ([1], "instance of Question"),
    ({"ids": ["m1"]}, "question= is missing"),
    ({"question": "", "ids": ["m1"]}, "question=''"),
    ({"question": 3, "ids": ["m1"]}, "question=3: Input should be"),
    ({"question": "x"}, "give 'ids' or 'text'"),
    ({"question": "x", "ids": [1]}, "ids[0]=1: Input should be"),
    ({"question": "x", "text": {"a": 1}}, "text={'a': 1}: Input should be"),
    ({"question": "x", "ids": [], "session": 4}, "session=4: Input should be"),
    *[({}, "question= is missing")] * 2,
]


def test_all_bad_lines_are_named_in_one_error(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", *(line for line, _ in WRONG))
    with pytest.raises(InputFileError) as caught:
        read_questions(path)
    *lines, last = str(caught.value).removeprefix(f"{str(path)!r}: ").split(";\n")
    assert last == "and 1 more"
    for number, (line, (_, what)) in enumerate(zip(lines, WRONG, strict=False), start=1):
        assert line.startswith(f"line {number}: ")
        assert what in line


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\n \n", "holds no questions: write one on each line"),
        (b'[{"question": "x", "ids": []},]', "cannot be read: "),
        (b'{"question": "\xff"}', "cannot be read: "),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "mine.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read_questions(path)
    assert str(caught.value).startswith(f"{str(path)!r} {what}")
