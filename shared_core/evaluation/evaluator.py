"""Evaluate recall: every question to every setting, on a copy of the store."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared_core.evaluation.moments import Place, placed
from shared_core.evaluation.questions import Problems, Question, read_questions
from shared_core.evaluation.result import Evaluation, Outcome
from shared_core.evaluation.scratch import scratch
from shared_core.evaluation.settings import Setting, budget_of, settings_of
from shared_core.evaluation.trial import Line, Progress, lines_for, trial
from shared_core.store import Store

__all__ = ["evaluate"]

NOTHING: Mapping[str, Sequence[Any]] = MappingProxyType({})


def _silent(what: str, done: int, total: int) -> None:
    pass


def evaluate(
    store: str | Path | Store,
    questions: str | os.PathLike[str] | Iterable[Question | Mapping[str, Any] | str], *,
    tries: Mapping[str, Sequence[Any]] = NOTHING, session_id: str = "default", user_id: str | None = None,
    branch: str | None = None, progress: Progress = _silent, **arguments: Any,
) -> Evaluation:  # fmt: skip
    """Return how much of what answers your questions is in the prompts for them, and what the prompts cost.

    Besides your questions, small talk and general knowledge are said to the conversations, and, if there are several,
    the questions of another one: what is recalled for those is waste. Everything happens on a copy of the store, which
    needs as much room in the folder for temporary files as the store takes. The store is only read.

    Args:
        store: the path of an SQLite database, or a `Store`.
        questions: a file, or a list, as `read_questions` takes it.
        tries: values of arguments of `InfiniteMemory` to compare with the present ones, each by itself:
            `{"recall": ["precise"], "embedder": ["static", "all-MiniLM-L6-v2"]}`. What has no vector of an embedder yet
            is embedded in the copy.
        session_id: the conversation of the questions that name none.
        user_id: the user of the questions that name none.
        branch: the branch that is asked, unless a question says otherwise. None: the one that the command has checked
            out, or `main`.
        progress: called with what is being done, how much of it is done, and how much there is.
        arguments: the present setting, as your program passes it to `InfiniteMemory`.

    Raises:
        InputFileError: questions are invalid, or about sessions, messages and times that there are not; the error names
            each of them.
        StoreError: the store cannot be read or copied.
        ValueError, TypeError: an argument is unknown or out of range.
        EmbedderError: an embedder is the name of no model on this machine.
    """
    given = read_questions(questions, session_id=session_id, user_id=user_id)
    name = repr(os.fspath(questions)) if isinstance(questions, str | os.PathLike) else "questions"
    nobody = any(one.user is None for one in given)
    settings = settings_of(arguments, tries, user_id=None if nobody else given[0].user)
    with scratch(store) as copy:
        problems = Problems(name)
        by_user = any(setting.arguments.get("scope") == "user" for setting in settings)
        places = placed(copy, given, branch, problems, by_user=by_user)
        problems.raise_any()
        lines = lines_for(places, by_user=by_user)
        outcomes = _outcomes(copy, settings, places, lines, progress)
    return Evaluation(tuple(places), outcomes, budget_of(settings[0]))


def _outcomes(
    copy: Store, settings: Sequence[Setting], places: Sequence[Place], lines: Sequence[Sequence[Line]],
    progress: Progress,
) -> tuple[Outcome, ...]:  # fmt: skip
    """Return what the settings bring, in their order."""
    found: dict[str, Outcome] = {}
    done, total = 0, len(settings) * sum(map(len, lines))

    def asked() -> None:
        nonlocal done
        done += 1
        progress("asking", done, total)

    # A memory without an embedder of its own takes that of the vectors stored last, so those come first.
    for setting in sorted(settings, key=lambda one: one.reindexes):
        embedding: Callable[[int, int], None] = partial(progress, f"embedding for {setting.name}")
        found[setting.name] = Outcome(setting, tuple(trial(copy, setting, places, lines, embedding, asked)))
    return tuple(found[setting.name] for setting in settings)
