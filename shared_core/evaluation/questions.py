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

__all__ = ["Question", "raise_any", "read_questions"]

FORM = '{"question": "…", "ids": ["…"]} or {"question": "…", "text": "…"}'

TEXTS, LISTS = ("question", "session", "user", "at", "kind", "answer"), ("ids", "text")
"""The fields of a question: those that hold a text, and those that hold one or several."""

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
    kind: str = ""
    answer: str | None = None
    where: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether anything must be in the prompt. Otherwise, the best prompt recalls nothing."""
        return bool(self.ids or self.texts)


def raise_any(name: str, problems: Sequence[str]) -> None:
    """Raise InputFileError if there are problems with the questions of this name; it names the first ones."""
    if problems:
        more = [f"and {len(problems) - NAMED:,} more"] if len(problems) > NAMED else []
        raise InputFileError(f"{name}: " + ";\n".join([*problems[:NAMED], *more]))


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
    name, given = _given(source)
    problems: list[str] = []
    found: list[Question] = []
    for where, one in given:
        try:
            made = one if isinstance(one, Question) else _question(one, session_id, user_id)
            found.append(replace(made, where=made.where or where))
        except ValueError as error:
            problems.append(f"{where}: {error}")
    raise_any(name, problems)
    if not found:
        raise InputFileError(f"{name} holds no questions: write one on each line, {FORM}")
    return found


def _given(source: str | os.PathLike[str] | Iterable[Any]) -> tuple[str, list[tuple[str, Any]]]:
    """Return what questions are called together, and each with where it stands."""
    if isinstance(source, Iterable) and not isinstance(source, str | os.PathLike):
        return "questions", list(_numbered(source))
    path = file_path("questions", source)
    name = repr(os.fspath(path))
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
        return name, list(_numbered(json.loads(text) if text.lstrip().startswith("[") else text.split("\n")))
    except UnicodeDecodeError as error:
        raise InputFileError(f"{name} is not UTF-8: save it as UTF-8, a question on each line, {FORM}") from error
    except ValueError as error:
        raise InputFileError(f"{name} is not valid JSON: {error}; write a question on each line, {FORM}") from error
    except OSError as error:
        raise InputFileError(f"{name} cannot be read: {error.strerror or error}") from error


def _numbered(given: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield each object with where it stands. A text is a line of JSON, and stays a text if it is none."""
    for number, one in enumerate(given, start=1):
        if not isinstance(one, str):
            yield f"question {number}", one
        elif one.strip():
            try:
                yield f"line {number}", json.loads(one)
            except ValueError:
                yield f"line {number}", one


def _question(given: Any, session_id: str, user_id: str | None) -> Question:
    if not isinstance(given, Mapping):
        what = "not valid JSON" if isinstance(given, str) else f"not an object but {shown('value', given)[6:]}"
        raise ValueError(f"{what}; write {FORM}")
    fields: dict[str, Any] = {OTHER_NAMES.get(str(name), str(name)): value for name, value in given.items()}
    for name in fields.keys() - {*TEXTS, *LISTS}:
        if near := get_close_matches(name, (*TEXTS, *LISTS), n=1, cutoff=0.6):
            raise ValueError(f"there is no field {name!r}; did you mean {near[0]!r}?")
    for name in TEXTS:
        if not isinstance(fields.get(name), str | None):
            raise ValueError(f"{name!r} is {fields[name]!r}: expected a text")
    if not (fields.get("question") or "").strip():
        raise ValueError(f"'question' is missing or empty; write {FORM}")
    if "ids" not in fields and "text" not in fields:
        raise ValueError("give 'ids' or 'text', what must be in the prompt; \"ids\": [] says that there is no answer")
    ids, texts = (_texts(fields, name) for name in LISTS)
    return Question(
        fields["question"], ids, texts, fields.get("session") or session_id, fields.get("user") or user_id,
        fields.get("at"), fields.get("kind") or "", fields.get("answer"),
    )  # fmt: skip


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence) or not all(isinstance(one, str) and one.strip() for one in values):
        raise ValueError(f"{name!r} is {value!r}: expected a text that is not empty, or a list of them")
    return tuple(dict.fromkeys(values))
