"""Evaluate recall: every question to every setting, on a copy of the store."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from shared_core.errors import BudgetError, StoreError, UnknownReferenceError
from shared_core.evaluation.questions import Question, raise_any, read_questions
from shared_core.evaluation.result import OWN, UNANSWERED, Answer, Evaluation, Outcome, Place
from shared_core.memory import InfiniteMemory
from shared_core.plugins.base import Embedder
from shared_core.prompt.hits import Kind
from shared_core.prompt.report import ContextReport
from shared_core.recall.excerpts import EXCERPT_MARK
from shared_core.records import MAIN
from shared_core.sharing.files import export_sessions, import_sessions
from shared_core.store import Store
from shared_core.stores import SQLiteStore, database_path, read_address, store_exists

__all__ = ["evaluate", "small_talk", "texts_of"]

NOTHING: Mapping[str, Sequence[Any]] = MappingProxyType({})

PRESENT = "present"
"""The name of the setting that the others are compared with."""

NOT_AMONG_BEST = "is not among the best matches"
SILENT = "is not recalled, nor is anything else"
"""Why a message is missing that the report says nothing of; the second where recall is silent."""

NO_SETTINGS = {"store", "session_id", "user_id"}
"""Arguments of `InfiniteMemory` that no setting is made of: each question names its conversation."""

MOST_SESSIONS = 10
"""Sessions that small talk is said to at most."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

Setting = Mapping[str, Any]
"""Arguments for `InfiniteMemory`."""


def evaluate(
    store: str | Path | Store,
    questions: str | os.PathLike[str] | Iterable[Question | Mapping[str, Any] | str], *,
    tries: Mapping[str, Sequence[Any]] = NOTHING, session_id: str = "default", user_id: str | None = None,
    branch: str | None = None, progress: Progress = lambda *_: None, **arguments: Any,
) -> Evaluation:  # fmt: skip
    """Return how much of what answers your questions is in the prompts for them, and what the prompts cost.

    Besides your questions, small talk and questions of general knowledge are said to the conversations: what is
    recalled for those is waste. Everything happens on a copy of the store, which needs as much room in the folder for
    temporary files as the store takes. The store is only read.

    Args:
        store: the path of an SQLite database, or a `Store`.
        questions: a file, or a list, as `read_questions` takes it.
        tries: values of arguments of `InfiniteMemory` to compare with the present ones, each by itself:
            `{"recall": ["precise"], "embedder": ["static", "all-MiniLM-L6-v2"]}`. What has no vector of an embedder yet
            is embedded in the copy.
        session_id: the conversation of the questions that name none.
        user_id: the user of the questions that name none.
        branch: the branch that is asked. None: the one that the command has checked out, or `main`.
        progress: called with what is being done, how much of it is done, and how much there is.
        arguments: the present setting, as your program passes it to `InfiniteMemory`.

    Raises:
        InputFileError: questions are invalid, or about sessions, messages and times that there are not; the error names
            each of them.
        StoreError: the store cannot be read or copied.
        ValueError, TypeError: an argument is unknown or out of range.
        EmbedderError: an embedder is the name of no model on this machine.
    """
    for name in sorted(NO_SETTINGS & tries.keys()):
        raise ValueError(f"{name}: no setting to try; each question names its conversation")
    given: dict[tuple[str | None, str], list[Question]] = {}
    for one in read_questions(questions):
        given.setdefault((one.user or user_id, one.session or session_id), []).append(one)
    settings = {PRESENT: arguments} | {
        f"{name}={_short(value)}": {**arguments, name: value} for name, values in tries.items() for value in values
    }
    user = None if any(of is None for of, _ in given) else next(iter(given))[0]
    budgets = [_budget(setting, user) for setting in settings.values()]
    by_user = any(setting.get("scope") == "user" for setting in settings.values())
    with _copy_of(store) as copy:
        problems: list[str] = []
        places = [_place(copy, of, name, asked, branch, problems, by_user=by_user)
                  for (of, name), asked in given.items()]  # fmt: skip
        raise_any("questions", problems)
        lines = _lines(places)
        # A memory without an embedder of its own takes that of the vectors stored last, so those come first.
        in_turn = sorted(settings, key=lambda name: settings[name].get("embedder") is not None)
        outcomes = {
            name: Outcome(name, tuple(_answers(copy, name, settings[name], lines, progress))) for name in in_turn
        }
    return Evaluation(tuple(places), tuple(outcomes[name] for name in settings), budgets[0])


def _short(value: Any) -> Any:
    """Return the value of an argument as the name of a setting shows it."""
    return value.fingerprint.key if isinstance(value, Embedder) else "none" if value is None else value


def _budget(setting: Setting, user: str | None) -> int:
    """Return what a prompt may take; an error before the work begins if an argument is wrong."""
    try:
        with InfiniteMemory(user_id=user, **setting) as memory:
            return memory.max_tokens - memory.reserve_tokens
    except TypeError as error:
        raise ValueError(str(error)) from error


@contextmanager
def _copy_of(store: str | Path | Store) -> Iterator[Store]:
    """Provide a copy of a store, in the folder for temporary files, until the block ends; StoreError: there is none."""
    with TemporaryDirectory(prefix="infinite-memory-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "copy.db"
        if isinstance(store, Store) or isinstance(read_address(store), str):
            exported = Path(folder) / "sessions.jsonl"
            if export_sessions(store, exported, vectors=True):
                import_sessions(path, exported)
            exported.unlink()
        else:
            if not store_exists(store):
                raise StoreError(f"no store at {os.fspath(store)!r}")
            with closing(SQLiteStore.to_check(database_path(store))) as source:
                source.backup(path)
        with closing(SQLiteStore(path, durability="process")) as copy:
            yield copy


def _place(
    store: Store, user: str | None, session: str, asked: Sequence[Question], branch: str | None, problems: list[str], *,
    by_user: bool,
) -> Place:  # fmt: skip
    """Return the conversation of some questions, with the whole ids of their evidence; note what there is not."""
    key = store.session(user, session)
    heads = [ref.name for ref in store.refs(key, "head", limit=1)] if key is not None else []
    branches = {one.name for one in store.branches(key)} if key is not None else set()
    name = branch or next((head for head in heads if head in branches), MAIN)
    if name not in branches:
        known = ", ".join(repr(one.session_id) for one in store.overview(user, limit=10)) or "none"
        of_user = f" of user {user!r}" if user is not None else ""
        cure = f"name one in the question's field session, or with session_id: {known}"
        problems.append(f"{asked[0].where}: no session {session!r}{of_user} with a branch {name!r}; {cure}")
        return Place(user, session, name, 0, ())
    with InfiniteMemory(store, session_id=session, user_id=user, embedder="words") as memory:
        memory.checkout(name)
        ids = [message.id or "" for message in memory.messages()]
        others = [one.key for one in store.sessions(user)] if by_user else []
        found = [_located(memory, one, ids, problems, lambda id_: any(store.get(other, [id_]) for other in others))
                 for one in asked]  # fmt: skip
    return Place(user, session, name, len(ids), tuple(found))


def _located(
    memory: InfiniteMemory, question: Question, known: Sequence[str], problems: list[str],
    elsewhere: Callable[[str], bool],
) -> Question:  # fmt: skip
    """Return a question with the whole ids of its evidence."""
    try:
        memory.search(" ", as_of=question.at)
    except (ValueError, UnknownReferenceError) as error:
        problems.append(f"{question.where}: {str(error).replace('as_of=', 'at=')}")
    ids = []
    for id_ in question.ids:
        near = [id_] if id_ in known else [one for one in known if one.startswith(id_)]
        if len(near) != 1 and not elsewhere(id_):
            problems.append(f"{question.where}: {id_!r} is no message of the branch of session {memory.session_id!r}")
        ids.append(near[0] if len(near) == 1 else id_)
    return question.model_copy(update={"ids": tuple(ids)})


def small_talk() -> dict[str, list[str]]:
    """Return lines that no conversation has an answer to, by kind."""
    kinds: dict[str, list[str]] = json.loads(Path(__file__).with_name("small_talk.json").read_text(encoding="utf-8"))
    return kinds


Lines = Mapping[Place, Sequence[tuple[str, Question]]]
"""What is said to each conversation, with its purpose."""


def _lines(places: Sequence[Place]) -> Lines:
    """Return what is said to each conversation: its questions, and small talk."""
    found: dict[Place, list[tuple[str, Question]]] = {}
    for number, place in enumerate(places):
        said = small_talk() if number < MOST_SESSIONS else {}
        found[place] = [
            *((OWN if one.ids or one.text else UNANSWERED, one) for one in place.questions),
            *((purpose, Question(question=text, ids=())) for purpose, texts in said.items() for text in texts),
        ]
    return found


def _answers(store: Store, name: str, setting: Setting, lines: Lines, progress: Progress) -> Iterator[Answer]:
    """Yield what a setting brings for every line, in their order."""
    done, total = count(1), sum(map(len, lines.values()))
    for place, asked in lines.items():
        opened = partial(InfiniteMemory, store, user_id=place.user, **setting)
        everywhere = store.sessions(place.user) if setting.get("scope") == "user" else []
        for session in dict.fromkeys([*(one.session_id for one in everywhere), place.session]):
            with opened(session_id=session) as memory:
                again = setting.get("embedder") is not None
                memory.index(partial(progress, f"embedding for {name}"), again=again)
        with opened(session_id=place.session) as memory:
            memory.checkout(place.branch)
            for purpose, question in asked:
                try:
                    yield _answer(memory, place, purpose, question)
                except BudgetError as error:
                    raise ValueError(f"{name}, {question.where or purpose}: {error}") from error
                progress(f"asking with {name}", next(done), total)


def _answer(memory: InfiniteMemory, place: Place, purpose: str, question: Question) -> Answer:
    started = time.process_time()
    report = memory.context(question.question, as_of=question.at).report
    milliseconds = 1_000 * (time.process_time() - started)
    texts = texts_of(report)
    reasons = {line.id: line.why for line in report.lines if line.id and not line.included}
    unseen = NOT_AMONG_BEST if report.totals[Kind.RECALLED] else SILENT
    missing = {id_: reasons.get(id_, unseen) for id_ in question.ids if id_ not in dict(texts)}
    for text in question.text:
        if not any(_plain(text) in _plain(one) for _, one in texts):
            missing[text] = "is in no part of the prompt"
    wanted = len(question.ids) + len(question.text)
    return Answer(
        place, question, purpose, (wanted - len(missing)) / wanted if wanted else 0.0, report.totals[Kind.RECALLED],
        report.total_tokens, milliseconds, missing, report.embedder, report.degraded,
    )  # fmt: skip


def _plain(text: str) -> str:
    """Return a text without regard to case and white space."""
    return " ".join(text.casefold().split())


def texts_of(report: ContextReport) -> list[tuple[str | None, str]]:
    """Return what is in a prompt besides the question: texts, each with the id of its message if it is one.

    The texts are without names, dates, and the marks of excerpts.
    """
    lines = [line for line in report.included if line.kind not in (Kind.QUESTION, Kind.TOOLS) and line.text]
    return [(line.id, line.text.removesuffix(EXCERPT_MARK.format(text="", id=line.id))) for line in lines]
