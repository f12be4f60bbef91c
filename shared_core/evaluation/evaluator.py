"""Evaluate recall: every question to every setting, on a copy of the store."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from shared_core.errors import BudgetError, UnknownReferenceError
from shared_core.evaluation.figures import facts, mentioned
from shared_core.evaluation.prompts import Gain, foreign_questions, prompt_of, small_talk
from shared_core.evaluation.questions import Question, raise_any, read_questions
from shared_core.evaluation.result import FOREIGN, OWN, UNANSWERED, Answer, Evaluation, Outcome, Place
from shared_core.evaluation.settings import Setting, settings_of
from shared_core.memory import InfiniteMemory
from shared_core.records import MAIN, ROOT
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.store import Store
from shared_core.stores import SQLiteStore, database_path, read_address
from shared_core.stores.sqlite.unopened_copy import copy_database

__all__ = ["evaluate"]

NOTHING: Mapping[str, Sequence[Any]] = MappingProxyType({})

NOT_FOUND = "was not found by the search"
"""Why a message is missing that the report says nothing of."""

MOST_SESSIONS = 10
"""Sessions that small talk is said to at most."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


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
    user = None if any(one.user is None for one in given) else given[0].user
    settings = settings_of(arguments, tries, user)
    by_user = any(setting.get("scope") == "user" for setting in settings.values())
    with _copy_of(store) as copy:
        problems: list[str] = []
        places = [_place(copy, list(asked), branch, problems, by_user=by_user) for asked in _by_session(given)]
        raise_any(repr(os.fspath(questions)) if isinstance(questions, str | os.PathLike) else "questions", problems)
        lines = _lines(places, by_user=by_user)
        total, done = len(settings) * sum(map(len, lines)), 0
        outcomes: dict[str, Outcome] = {}
        # A memory without an embedder of its own takes that of the vectors stored last, so those come first.
        for name in sorted(settings, key=lambda name: settings[name].get("embedder") is not None):
            answers = []
            for place, said in zip(places, lines, strict=True):
                for answer in _answers(copy, name, settings[name], place, said, progress):
                    answers.append(answer)
                    done += 1
                    progress("asking", done, total)
            outcomes[name] = Outcome(name, tuple(answers))
    with InfiniteMemory(user_id=user, **arguments) as memory:
        budget = memory.max_tokens - memory.reserve_tokens
    return Evaluation(tuple(places), tuple(outcomes[name] for name in settings), budget)


@contextmanager
def _copy_of(store: str | Path | Store) -> Iterator[Store]:
    """Provide a copy of a store, in the folder for temporary files. It is deleted when the block ends.

    Raises:
        StoreError: the store cannot be read, or the copy cannot be written.
    """
    with TemporaryDirectory(prefix="infinite-memory-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "copy.db"
        if isinstance(store, Store) or isinstance(read_address(store), str):
            exported = Path(folder) / "sessions.jsonl"
            if export_sessions(store, exported, vectors=True):
                import_sessions(path, exported)
            exported.unlink()
        else:
            copy_database(database_path(store), path)
        copy = SQLiteStore(path, durability="process")
        try:
            yield copy
        finally:
            copy.close()


def _by_session(questions: Sequence[Question]) -> Iterator[Iterable[Question]]:
    """Yield the questions of each session, in the order of the first of them."""
    order = {key: number for number, key in reversed(list(enumerate((one.user, one.session) for one in questions)))}
    ordered = sorted(questions, key=lambda one: order[one.user, one.session])
    for _, asked in groupby(ordered, key=lambda one: (one.user, one.session)):
        yield asked


def _place(store: Store, asked: Sequence[Question], branch: str | None, problems: list[str], *, by_user: bool) -> Place:
    """Return the conversation of some questions; note what cannot be asked, and unknown ids."""
    user, session = asked[0].user, asked[0].session
    key = store.session(user, session)
    branches = {one.name for one in store.branches(key)} if key is not None else set()
    heads = [ref.name for ref in store.refs(key, "head", limit=1)] if key is not None else []
    name = branch or next((head for head in heads if head in branches), MAIN)
    others = f" and {len(asked) - 1:,} more" if len(asked) > 1 else ""
    if key is None or not store.stats(key)["messages"]:
        known = ", ".join(repr(one.session_id) for one in store.overview(user, limit=10)) or "none"
        of_user = f" of user {user!r}" if user is not None else ""
        what = f"no session {session!r}{of_user} with messages: name another in the field 'session'; there are {known}"
    elif name not in branches:
        what = f"session {session!r} has no branch {name!r}"
    else:
        others_of_user = [one.key for one in store.sessions(user) if one.key != key] if by_user else []
        with InfiniteMemory(store, session_id=session, user_id=user, embedder="words") as memory:
            memory.checkout(name)
            messages = len(memory.messages())
            found = [_located(memory, one, name, others_of_user, problems) for one in asked]
        return Place(user, session, name, messages, tuple(found))
    problems.append(f"{asked[0].where}{others}: {what}")
    return Place(user, session, name, 0, ())


def _located(
    memory: InfiniteMemory, question: Question, branch: str, others: Sequence[int], problems: list[str]
) -> Question:
    """Return a question with the whole ids of its evidence, and `at` as what is checked out when it is asked."""
    try:
        at = _reference(memory, question.at or branch, branch)
    except (ValueError, UnknownReferenceError) as error:
        problems.append(f"{question.where}: {str(error).replace('as_of=', 'at=')}")
        return question
    key, live = memory._checkout.existing(), memory._checkout.live
    store, ids = live.store, []
    for id_ in question.ids:
        try:
            position = memory._checkout.position_of(id_)
        except UnknownReferenceError:
            if not any(store.get(other, [id_]) for other in others):
                problems.append(f"{question.where}: session {question.session!r} has no message {id_!r}")
            ids.append(id_)
            continue
        if not live.path.covers(position):
            problems.append(f"{question.where}: {id_!r} is not on the way to {at!r}, where it is asked")
        ids += [record.message.id or id_ for record in store.get(key, [position])]
    return replace(question, ids=tuple(ids), at=at)


def _reference(memory: InfiniteMemory, at: str, branch: str) -> str:
    """Check out a message, a branch, or the last message until a time; return its name or id."""
    try:
        memory.checkout(at)
    except UnknownReferenceError:
        memory.checkout(branch)
        past = memory._past(at)
        assert past is not None
        if past.position == ROOT:
            raise ValueError(f"nothing was said until {at}") from None
        (record,) = memory._checkout.store.get(memory._checkout.existing(), [past.position])
        at = record.message.id or ""
        memory.checkout(at)
    return at


def _lines(places: Sequence[Place], *, by_user: bool) -> list[list[tuple[str, Question]]]:
    """Return what is said to each conversation, with its purpose: its questions, those of the next one, and small talk.

    Args:
        places: the conversations.
        by_user: whether recall may search all sessions of a user, so that only another user's questions are foreign.
    """
    whose = [(place.user, "" if by_user else place.session) for place in places]
    asked = {key: [one.question for place, own in zip(places, whose, strict=True) if own == key
                   for one in place.questions] for key in whose}  # fmt: skip
    found = []
    for number, (place, key) in enumerate(zip(places, whose, strict=True)):
        foreign = foreign_questions(list(asked.values()), list(asked).index(key))
        said = {FOREIGN: foreign, **(small_talk() if number < MOST_SESSIONS else {})}
        found.append(
            [(OWN if one.is_answered else UNANSWERED, one) for one in place.questions]
            + [(purpose, Question(text, session=place.session, user=place.user, at=place.branch))
               for purpose, texts in said.items() for text in texts]
        )  # fmt: skip
    return found


def _answers(
    store: Store, name: str, setting: Setting, place: Place, lines: Sequence[tuple[str, Question]], progress: Progress
) -> Iterator[Answer]:
    """Yield what a setting brings for every line of a conversation, in their order."""
    opened = partial(InfiniteMemory, store, **setting)
    everywhere = store.sessions(place.user) if setting.get("scope") == "user" else []
    sessions = [one.session_id for one in everywhere if one.session_id != place.session]
    for session in (*sessions, place.session):
        with opened(user_id=place.user, session_id=session) as memory:
            index = memory.index if setting.get("embedder") is None else memory.reindex
            index(partial(progress, f"embedding for {name}"))
    with opened(user_id=place.user, session_id=place.session) as memory:
        for reference, said in groupby(lines, key=lambda line: line[1].at):
            memory.checkout(reference or place.branch)
            for purpose, question in said:
                try:
                    yield _answer(memory, purpose, question)
                except BudgetError as error:
                    raise ValueError(f"{name}, {question.where or purpose}: {error}") from error


def _answer(memory: InfiniteMemory, purpose: str, question: Question) -> Answer:
    started = time.process_time()
    report = memory.context(question.question).report
    milliseconds = 1_000 * (time.process_time() - started)
    prompt = prompt_of(report)
    reasons = {line.id: line.why for line in report.lines if line.id and not line.included}
    missing = {id_: reasons.get(id_, NOT_FOUND) for id_ in question.ids if id_ not in prompt.texts}
    texts = [*map(_plain, prompt.texts.values()), _plain(prompt.summary)]
    for text in question.texts:
        if not any(_plain(text) in one for one in texts):
            missing[text] = "is in no part of the prompt"
    wanted = len(question.ids) + len(question.texts)
    words = facts(question.answer, question.question) if wanted else frozenset()
    gain = Gain(
        prompt.recalled, prompt.tokens, (wanted - len(missing)) / wanted if wanted else None,
        mentioned(words, [*prompt.texts.values(), prompt.summary]),
    )  # fmt: skip
    return Answer(question, purpose, gain, milliseconds, missing, report.embedder, report.degraded)


def _plain(text: str) -> str:
    """Return a text without regard to case and white space."""
    return " ".join(text.casefold().split())
