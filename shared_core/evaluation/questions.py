"""Questions about a store's conversations, with what a good prompt for each of them holds."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from shared_core.arguments import file_path
from shared_core.display import explained
from shared_core.errors import InputFileError

__all__ = ["Question", "raise_any", "read_questions"]

FORM = '{"question": "…", "ids": ["…"]} or {"question": "…", "text": "…"}'

NAMED = 10
"""Problems of a file that are named at most."""

Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class Question(BaseModel):
    """A question, and what must be in the prompt for it. Other fields, such as those of other tools, are left out.

    Attributes:
        question: as asked.
        ids: of the messages that answer it, or their beginnings. Empty: the best prompt recalls nothing.
        text: what else must be in the prompt, each within one message. Case and white space do not matter.
        session: the conversation that it is asked in.
        user: the user whom that belongs to; None: no user.
        at: it is asked after this: the id of a message, or a time. None: at the end of the branch.
        kind: what kind of question it is; empty: none in particular.
        where: where it comes from, such as `"line 3"`.
    """

    model_config = ConfigDict(frozen=True)

    question: Text
    ids: Texts = Field(default=(), validation_alias=AliasChoices("ids", "evidence"))
    text: Texts = ()
    session: str | None = None
    user: str | None = None
    at: str | None = None
    kind: str = Field(default="", validation_alias=AliasChoices("kind", "category"))
    where: str = ""

    @model_validator(mode="after")
    def _says_what_to_find(self) -> "Question":
        if not {"ids", "text"} & self.model_fields_set:
            raise ValueError("give 'ids' or 'text', what must be in the prompt; 'ids': [] says that there is no answer")
        return self


def raise_any(name: str, problems: list[str]) -> None:
    """Raise InputFileError if there are problems with the questions of this name; it names the first ones."""
    if problems:
        more = [f"and {len(problems) - NAMED:,} more"] if len(problems) > NAMED else []
        raise InputFileError(f"{name}: " + ";\n".join([*problems[:NAMED], *more]))


def read_questions(source: str | os.PathLike[str] | Iterable[Question | Mapping[str, Any] | str]) -> list[Question]:
    """Return the questions of a file, or of a list.

    Each line of the file is a JSON object with the field `question` and one of these two, or both: `ids`, the messages
    that answer it, and `text`, one or several texts that must be in the prompt. The other fields of `Question` are
    optional. A JSON list of such objects will do, too.

    Args:
        source: a file, or the questions themselves: as objects of Python, or as lines of JSON.

    Raises:
        InputFileError: there is no such file, or some lines are invalid. The error names each of them.
    """
    if isinstance(source, str | os.PathLike):
        name, given = repr(os.fspath(source)), _rows(source)
    else:
        name, given = "questions", list(source)
    problems: list[str] = []
    found: list[Question] = []
    for number, one in enumerate(given, start=1):
        where = f"line {number}" if isinstance(one, str) else f"question {number}"
        if isinstance(one, str) and not one.strip():
            continue
        try:
            question = Question.model_validate(json.loads(one) if isinstance(one, str) else one)
            found.append(question.model_copy(update={"where": question.where or where}))
        except ValidationError as error:
            problems.append(f"{where}: {explained(Question, error)}")
        except ValueError:
            problems.append(f"{where}: not valid JSON; write {FORM}")
    raise_any(name, problems)
    if not found:
        raise InputFileError(f"{name} holds no questions: write one on each line, {FORM}")
    return found


def _rows(source: str | os.PathLike[str]) -> list[Any]:
    """Return the objects of a file with a JSON list, or the lines of any other file."""
    path = Path(file_path("questions", source)).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows: list[Any] = json.loads(text) if text.lstrip().startswith("[") else text.split("\n")
    except (OSError, ValueError) as error:
        why = f"{getattr(error, 'strerror', None) or error}; write a question on each line, {FORM}"
        raise InputFileError(f"{os.fspath(source)!r} cannot be read: {why}") from error
    return rows
