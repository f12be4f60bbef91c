"""One setting, asked every question: what each prompt brings, what it costs, and what is missing in it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from shared_core.errors import BudgetError
from shared_core.evaluation.figures import facts, mentioned
from shared_core.evaluation.moments import Place
from shared_core.evaluation.prompts import Gain, Prompt, foreign_questions, prompt_of, small_talk
from shared_core.evaluation.questions import Question
from shared_core.evaluation.settings import Setting
from shared_core.memory import InfiniteMemory
from shared_core.prompt.context import ContextReport
from shared_core.store import Store

__all__ = ["FOREIGN", "OWN", "UNANSWERED", "Answer", "Line", "Progress", "lines_for", "trial"]

OWN, UNANSWERED, FOREIGN = "your questions", "questions without an answer", "another session's questions"
"""Kinds of lines; small talk has others."""

NOT_FOUND = "was not found by the search"
"""Why a message is missing that the report says nothing of."""

MOST_SESSIONS = 10
"""Sessions that small talk is said to at most."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class Line:
    """What is said to a conversation.

    Attributes:
        question: the question; small talk is one without an answer.
        purpose: `OWN`, `UNANSWERED` or `FOREIGN`, or what small talk it is.
        reference: what is checked out when it is said.
    """

    question: Question
    purpose: str
    reference: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What one setting brings for a line.

    Attributes:
        line: the line.
        gain: evidence, facts and tokens.
        milliseconds: the time of one processor that the prompt took.
        missing: the ids and texts that are not in the prompt, each with the reason.
        embedder: the key of the embedder whose vectors were used; None: none.
        notes: what could not be done, as the report says.
    """

    line: Line
    gain: Gain
    milliseconds: float
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    embedder: str | None = None
    notes: tuple[str, ...] = ()


def lines_for(places: Sequence[Place], *, by_user: bool) -> list[list[Line]]:
    """Return what is said to each conversation: its questions, those of the next one, and small talk.

    Args:
        places: the conversations.
        by_user: whether recall may search all sessions of a user, so that only another user's questions are foreign.
    """
    found = []
    for at, place in enumerate(places):
        lines = [
            Line(one.question, OWN if one.question.is_answered else UNANSWERED, one.reference)
            for one in place.questions
        ]
        said = {FOREIGN: _foreign(places, at, by_user=by_user), **(small_talk() if at < MOST_SESSIONS else {})}
        for purpose, texts in said.items():
            asked = (Question(text, session=place.session, user=place.user) for text in texts)
            lines += [Line(one, purpose, place.branch) for one in asked]
        found.append(lines)
    return found


def _foreign(places: Sequence[Place], at: int, *, by_user: bool) -> list[str]:
    """Return questions about another conversation."""
    others = [
        [one.question.question for one in place.questions]
        for other, place in enumerate(places)
        if other == at or not (by_user and place.user == places[at].user)
    ]
    before = sum(not (by_user and place.user == places[at].user) for place in places[:at])
    return foreign_questions(others, before)


def trial(
    store: Store, setting: Setting, places: Sequence[Place], lines: Sequence[Sequence[Line]],
    embedding: Callable[[int, int], None], asked: Callable[[], None],
) -> Iterator[Answer]:  # fmt: skip
    """Yield what one setting brings for every line, in their order.

    Args:
        store: a copy, to which vectors are added.
        setting: how the memory is set up.
        places: the conversations.
        lines: what is said to each.
        embedding: called with how many messages are embedded, and how many there are.
        asked: called after each line.
    """
    for place, said in zip(places, lines, strict=True):
        if setting.arguments.get("scope") == "user":
            _index_others(store, setting, place, embedding)
        with _opened(store, setting, place.user, place.session) as memory:
            _index(memory, setting, embedding)
            reference = None
            for line in said:
                if line.reference != reference:
                    memory.checkout(line.reference)
                    reference = line.reference
                try:
                    yield _answer(memory, line)
                except BudgetError as error:
                    where = f"{setting.name}, {line.question.where or line.purpose}"
                    raise ValueError(f"{where}: {error}") from error
                asked()


def _index_others(store: Store, setting: Setting, place: Place, embedding: Callable[[int, int], None]) -> None:
    for other in store.sessions(place.user):
        if other.session_id != place.session:
            with _opened(store, setting, other.user_id, other.session_id) as memory:
                _index(memory, setting, embedding)


def _opened(store: Store, setting: Setting, user: str | None, session: str) -> InfiniteMemory:
    arguments = {**setting.arguments, "user_id": user, "session_id": session}
    return InfiniteMemory(store, **arguments)


def _index(memory: InfiniteMemory, setting: Setting, progress: Callable[[int, int], None]) -> None:
    if setting.reindexes:
        memory.reindex(progress)
    else:
        memory.index(progress)


def _answer(memory: InfiniteMemory, line: Line) -> Answer:
    started = time.process_time()
    report = memory.context(line.question.question).report
    milliseconds = 1_000 * (time.process_time() - started)
    prompt, question = prompt_of(report), line.question
    missing = _missing(question, prompt, report)
    wanted = len(question.ids) + len(question.texts)
    evidence = (wanted - len(missing)) / wanted if wanted else None
    words = facts(question.answer, question.question) if wanted else frozenset()
    said = mentioned(words, [*prompt.texts.values(), prompt.summary])
    gain = Gain(prompt.recalled, prompt.tokens, evidence, said)
    return Answer(line, gain, milliseconds, missing, report.embedder, report.degraded)


def _missing(question: Question, prompt: Prompt, report: ContextReport) -> dict[str, str]:
    """Return what should be in the prompt and is not, with the reason; of a text there is none."""
    reasons = {line.id: line.why for line in report.lines if line.id and not line.included}
    missing = {id_: reasons.get(id_, NOT_FOUND) for id_ in question.ids if id_ not in prompt.texts}
    texts = [*map(_plain, prompt.texts.values()), _plain(prompt.summary)]
    for text in question.texts:
        if not any(_plain(text) in one for one in texts):
            missing[text] = "is in no part of the prompt"
    return missing


def _plain(text: str) -> str:
    """Return a text without regard to case and white space."""
    return " ".join(text.casefold().split())
