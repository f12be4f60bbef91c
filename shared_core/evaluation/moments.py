"""When a question is asked: what has been said by then, and whether its evidence is among it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from shared_core.arguments import moment
from shared_core.errors import UnknownReferenceError
from shared_core.evaluation.questions import Problems, Question, by_session
from shared_core.paths import SHORTEST_PREFIX, Path, read, resolve, walk
from shared_core.records import MAIN, IdPrefix, Record
from shared_core.store import Store

__all__ = ["Place", "Placed", "checked_out", "placed"]


@dataclass(frozen=True, slots=True)
class Place:
    """A conversation with its questions.

    Attributes:
        user: whom it belongs to; None: no user.
        session: its id.
        branch: the branch that is asked, unless a question says otherwise.
        messages: how many are on that branch.
        questions: in the order of the moments at which they are asked.
    """

    user: str | None
    session: str
    branch: str
    messages: int
    questions: tuple["Placed", ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A question, and what is checked out when it is asked.

    Attributes:
        question: the question.
        reference: a branch, or the id of a message.
        index: how many messages come before it on its path.
    """

    question: Question
    reference: str
    index: int


def checked_out(store: Store, user_id: str | None, session_id: str) -> str:
    """Return the branch that the command has checked out in a session; `main` if there is none, or it is gone."""
    session = store.session(user_id, session_id)
    if session is None:
        return MAIN
    heads = [ref.name for ref in store.refs(session, "head", limit=1)]
    return next((branch.name for branch in store.branches(session) if [branch.name] == heads), MAIN)


def placed(
    store: Store, questions: Sequence[Question], branch: str | None, problems: Problems, *, by_user: bool = False
) -> list[Place]:
    """Return the conversations of some questions, and note every one that cannot be asked, and all unknown ids.

    Args:
        store: holds the conversations.
        questions: about any of them.
        branch: the branch that is asked; None: the one that the command has checked out.
        problems: notes them.
        by_user: whether evidence may be in any session of the user.
    """
    found = []
    for (user, session), asked in by_session(questions):
        key = store.session(user, session)
        name = branch or checked_out(store, user, session)
        ends = {one.name: one.head for one in store.branches(key)} if key is not None else {}
        if key is None or ends.get(name) is None or not store.stats(key)["messages"]:
            _note_missing(store, asked, branch if ends else None, problems)
            continue
        others = [one.key for one in store.sessions(user) if one.key != key] if by_user else []
        line = _Line(store, key, name, others)
        located = [one for question in asked if (one := line.place(question, problems)) is not None]
        located.sort(key=lambda one: (one.index, one.reference))
        found.append(Place(user, session, name, line.count(), tuple(located)))
    return found


def _note_missing(store: Store, asked: Sequence[Question], branch: str | None, problems: Problems) -> None:
    first = asked[0]
    of_user = f" of user {first.user!r}" if first.user is not None else ""
    known = ", ".join(repr(one.session_id) for one in store.overview(first.user, limit=10)) or "none"
    what = (
        f"no session {first.session!r}{of_user} with messages: name another in the field 'session'; there are {known}"
    )
    if branch is not None:
        what = f"session {first.session!r} has no branch {branch!r}"
    others = f" and {len(asked) - 1:,} more" if len(asked) > 1 else ""
    problems.add(f"{first.where}{others}", what)


class _Line:
    """One session, the branch of it that is asked, and other sessions that may have the evidence."""

    def __init__(self, store: Store, key: int, branch: str, others: Sequence[int]) -> None:
        self._store, self._key, self._branch, self._others = store, key, branch, others
        self._segment = lru_cache(maxsize=None)(lambda number: store.segment(key, number))
        self._paths: dict[str, Path] = {}
        self._times: list[tuple[datetime | None, str]] | None = None

    def place(self, question: Question, problems: Problems) -> Placed | None:
        """Return a question with its moment; note what is wrong, and return None."""
        try:
            path, reference = self._moment(question)
        except (ValueError, UnknownReferenceError) as error:
            problems.add(question.where, str(error))
            return None
        found = {id_: self._record(id_) for id_ in question.ids}
        missing = [id_ for id_, record in found.items() if record is None]
        elsewhere = {one.message.id for key in self._others for one in self._store.get(key, missing)}
        if unknown := [id_ for id_ in missing if id_ not in elsewhere]:
            problems.add(question.where, f"session {question.session!r} has no message {_listed(unknown)}")
        if later := [id_ for id_, record in found.items() if record is not None and not path.covers(record.position)]:
            end = f"branch {reference!r}" if reference == self._branch else f"message {reference!r}, where it is asked"
            problems.add(question.where, f"{_listed(later)} is not on the way to {end}")
        ids = tuple(record.message.id or id_ if record is not None else id_ for id_, record in found.items())
        return Placed(replace(question, ids=ids), reference, path.index_of(path.head))

    def _record(self, id_: str) -> Record | None:
        """Return the message with this id, or the only one whose id begins so, as lists on a terminal show ids."""
        if found := self._store.get(self._key, [id_]):
            return found[0]
        alike = self._store.find(self._key, IdPrefix(id_, 2)) if len(id_) >= SHORTEST_PREFIX else []
        return alike[0] if len(alike) == 1 else None

    def count(self) -> int:
        """Return how many messages the branch has."""
        return self._store.count(self._key, [span.stretch for span in self._path(self._branch).spans])

    def _path(self, reference: str) -> Path:
        if reference not in self._paths:
            head = resolve(self._store, self._key, reference)
            ends = {branch.name: branch.head for branch in self._store.branches(self._key)}
            self._paths[reference] = walk(head.at if head.at is not None else ends[head.branch or ""], self._segment)
        return self._paths[reference]

    def _moment(self, question: Question) -> tuple[Path, str]:
        """Return the path that ends where a question is asked, and what names its end."""
        if question.at is None and question.before is None:
            return self._path(self._branch), self._branch
        given = question.at or question.before or ""
        if not self._is_named(given):
            reference = self._timed(given, past=question.before is None)
        else:
            reference = given if question.before is None else self._before(given)
        return self._path(reference), reference

    def _is_named(self, given: str) -> bool:
        """Return whether a text names a message, a branch or a tag; False if it is a time instead."""
        if self._store.get(self._key, [given]) or any(one.name == given for one in self._store.branches(self._key)):
            return True
        try:
            moment("at", given)
        except ValueError as error:
            try:
                resolve(self._store, self._key, given)
            except UnknownReferenceError as unknown:
                known = f"one of {', '.join(map(repr, unknown.candidates))}" if unknown.candidates else "a branch"
                raise ValueError(f"{given!r} is no message, {known}, or a time such as '2026-01-31'") from error
            return True
        return False

    def _before(self, reference: str) -> str:
        """Return the id of the message before the one that ends a path."""
        path = self._path(reference)
        for index in reversed(range(path.index_of(path.head))):
            for record in self._store.get(self._key, [path.at(index)]):
                return record.message.id or ""
        raise ValueError(f"nothing was said before {reference!r}")

    def _said(self) -> Sequence[tuple[datetime | None, str]]:
        """Return when each message of the branch was said, and its id."""
        if self._times is None:
            records = read(self._store, self._key, self._path(self._branch).spans)
            self._times = [(record.message.created_at, record.message.id or "") for record in records]
        return self._times

    def _timed(self, given: str, *, past: bool) -> str:
        """Return the id of the last message said until a time, or before it; a date means its end, or its beginning."""
        limit = moment("at" if past else "before", given, end=past)
        is_later: Callable[[datetime], bool] = (lambda when: when > limit) if past else (lambda when: when >= limit)
        newest = None
        for when, id_ in self._said():
            if when is not None and is_later(when):
                break
            newest = id_
        if newest is None:
            raise ValueError(f"nothing was said {'until' if past else 'before'} {given}")
        return newest


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids))
