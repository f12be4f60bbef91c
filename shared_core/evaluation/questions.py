"""Questions about a store's conversations, with what a good prompt for each of them holds."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from shared_core.arguments import file_path
from shared_core.errors import InputFileError
from shared_core.field_errors import shown

__all__ = ["Problems", "Question", "read_questions"]

FORM = '{"question": "…", "ids": ["…"]} or {"question": "…", "text": "…"}'

FIELDS = ("question", "ids", "text", "session", "user", "at", "before", "kind", "answer")

OTHER_NAMES = {"evidence": "ids", "category": "kind", "texts": "text"}
"""Names that other files give to the same field."""

NAMED = 10
"""Problems of a file that are named at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and what must be in the prompt for it.

    Attributes:
        question: as asked.
        ids: of the messages that answer it.
        texts: what else must be in the prompt, each within one message. Case and white space do not matter.
        session: the conversation that it is asked in.
        user: the user whom that belongs to; None: no user.
        at: it is asked after this: the id of a message, a branch, or a time. None: at the end of the branch.
        before: it is asked before this: the id of a message, or a time.
        kind: what kind of question it is; empty: none in particular.
        answer: the right answer, whose informative words are looked for in the prompt; None: they are not.
        where: where it comes from, such as `"line 3"`.
    """

    question: str
    ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    session: str = "default"
    user: str | None = None
    at: str | None = None
    before: str | None = None
    kind: str = ""
    answer: str | None = None
    where: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether anything must be in the prompt. Otherwise, the best prompt recalls nothing."""
        return bool(self.ids or self.texts)


class Problems:
    """Collects what is wrong with a file of questions, so that one error names all of it.

    Args:
        name: of the file.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[str] = []

    def add(self, where: str, what: str) -> None:
        """Note what is wrong at one spot."""
        self.found.append(f"{where}: {what}")

    def raise_any(self) -> None:
        """Raise InputFileError if anything is wrong."""
        if self.found:
            more = [f"and {len(self.found) - NAMED:,} more"] if len(self.found) > NAMED else []
            raise InputFileError(f"{self.name}: " + ";\n".join([*self.found[:NAMED], *more]))


def read_questions(
    source: str | os.PathLike[str] | Iterable[Question | Mapping[str, Any] | str], *,
    session_id: str = "default", user_id: str | None = None,
) -> list[Question]:  # fmt: skip
    """Return the questions of a file, or of a list.

    Each line of the file is an object with the field `question` and one of these two, or both: `ids`, the messages that
    answer it, and `text`, one or several texts that must be in the prompt. An empty list of `ids` says that the
    conversation has no answer. The other fields of `Question` are optional, under their names. A JSON list of such
    objects will do, too.

    Args:
        source: a file, or the questions themselves: as objects of Python, or as lines of JSON.
        session_id: the conversation of the questions that name none.
        user_id: the user of the questions that name none.

    Raises:
        InputFileError: there is no such file, or some lines are invalid. The error names each of them.
    """
    if isinstance(source, Iterable) and not isinstance(source, str | os.PathLike):
        name, given = "questions", list(_numbered(source))
    else:
        name, given = _read(file_path("questions", source))
    problems, found = Problems(name), []
    for where, one in given:
        try:
            made = one if isinstance(one, Question) else _question(one, where, session_id, user_id)
            found.append(replace(made, where=made.where or where))
        except ValueError as error:
            problems.add(where, str(error))
    problems.raise_any()
    if not found:
        raise InputFileError(f"{name} holds no questions: write one on each line, {FORM}")
    return found


def _read(path: str | os.PathLike[str]) -> tuple[str, list[tuple[str, Any]]]:
    """Return the name of a file and its objects, each with where it stands; one that is no JSON stays a text."""
    name = repr(os.fspath(path))
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputFileError(f"{name} is not UTF-8: save it as UTF-8, a question on each line, {FORM}") from error
    except OSError as error:
        raise InputFileError(f"{name} cannot be read: {error.strerror or error}") from error
    if not text.lstrip().startswith("["):
        return name, list(_numbered(text.split("\n")))
    try:
        return name, list(_numbered(json.loads(text)))
    except ValueError as error:
        raise InputFileError(f"{name} is not valid JSON: {error}; write a question on each line, {FORM}") from error


def _numbered(given: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each object with where it stands. A text is a line of JSON, and stays a text if it is none."""
    for number, one in enumerate(given, start=1):
        if not isinstance(one, str):
            yield f"question {number}", one
        elif one.strip():
            yield f"line {number}", _parsed(one)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _question(given: Any, where: str, session_id: str, user_id: str | None) -> Question:
    if not isinstance(given, Mapping):
        what = "not valid JSON" if isinstance(given, str) else f"not an object but {shown('value', given)[6:]}"
        raise ValueError(f"{what}; write {FORM}")
    fields: dict[str, Any] = {OTHER_NAMES.get(str(name), str(name)): value for name, value in given.items()}
    for name in fields.keys() - {*FIELDS}:
        if near := get_close_matches(name, FIELDS, n=1, cutoff=0.6):
            raise ValueError(f"there is no field {name!r}; did you mean {near[0]!r}?")
    question = _text(fields, "question")
    if not question or not question.strip():
        raise ValueError(f"'question' is missing or empty; write {FORM}")
    if "ids" not in fields and "text" not in fields:
        raise ValueError("give 'ids' or 'text', what must be in the prompt; \"ids\": [] says that there is no answer")
    if fields.get("at") is not None and fields.get("before") is not None:
        raise ValueError("give 'at' or 'before', not both")
    return Question(
        question=question, ids=_texts(fields, "ids"), texts=_texts(fields, "text"),
        session=_text(fields, "session") or session_id, user=_text(fields, "user") or user_id, at=_text(fields, "at"),
        before=_text(fields, "before"), kind=_text(fields, "kind") or "", answer=_text(fields, "answer"), where=where,
    )  # fmt: skip


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name!r} is {value!r}: expected a text")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(one, str) and one.strip() for one in values):
        raise ValueError(f"{name!r} is {value!r}: expected a text that is not empty, or a list of them")
    return tuple(dict.fromkeys(values))


def by_session(questions: Sequence[Question]) -> Iterator[tuple[tuple[str | None, str], list[Question]]]:
    """Yield each user and session with its questions, in the order of the first of them."""
    for key in dict.fromkeys((one.user, one.session) for one in questions):
        yield key, [one for one in questions if (one.user, one.session) == key]
