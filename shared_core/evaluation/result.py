"""What an evaluation found, as values, as JSON data and as text."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, NamedTuple

from shared_core.display import counted
from shared_core.evaluation.figures import FEW, Lead, interval, percent, points
from shared_core.evaluation.questions import Question

__all__ = ["Answer", "Evaluation", "Outcome", "Place", "Sums"]

OWN, UNANSWERED = "your questions", "questions without an answer"
"""Kinds of lines; small talk has others."""

MISSED_SHOWN = 10
"""Questions whose evidence is missing that the text names."""


class Place(NamedTuple):
    """A conversation with its questions, the branch that is asked, and how many messages that has."""

    user: str | None
    session: str
    branch: str
    messages: int
    questions: tuple[Question, ...]


class Answer(NamedTuple):
    """What one setting brings for a line.

    Attributes:
        place: the conversation.
        question: what is said; small talk is a question without an answer.
        purpose: `OWN` or `UNANSWERED`, or what small talk it is.
        evidence: the share of the evidence that is in the prompt; 0 if there is none.
        recalled: tokens of what was recalled.
        tokens: those of the whole prompt.
        milliseconds: the time of one processor that the prompt took.
        missing: the ids and texts that are not in the prompt, each with the reason.
        embedder: the key of the embedder whose vectors were used; None: none.
        notes: what could not be done, as the report says.
    """

    place: Place
    question: Question
    purpose: str
    evidence: float
    recalled: int
    tokens: int
    milliseconds: float
    missing: Mapping[str, str]
    embedder: str | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, without what is the same for all answers of a setting."""
        asked, place = self.question, self.place
        said = {"where": asked.where, "question": asked.question, "kind": asked.kind, "purpose": self.purpose}
        figures = {name: getattr(self, name) for name in ("evidence", "recalled", "tokens", "milliseconds", "missing")}
        return {**said, "session": place.session, "user": place.user, **figures}


class Sums(NamedTuple):
    """What a setting brings for some lines, on average.

    Attributes:
        lines: how many these are.
        evidence: the share of the evidence that is in the prompt, with its interval.
        often: the share of the lines for which anything is recalled.
        recalled: tokens of what is recalled.
        tokens: tokens of the whole prompt.
        milliseconds: the time of one processor that a prompt takes, the median.
    """

    lines: int
    evidence: Lead
    often: Lead
    recalled: float
    tokens: float
    milliseconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {**self._asdict(), "evidence": self.evidence._asdict(), "often": self.often._asdict()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one setting brings: its name, and the answers to each line, in the same order for all settings."""

    name: str
    answers: tuple[Answer, ...] = field(repr=False)

    @property
    def embedder(self) -> str | None:
        """The key of the embedder whose vectors were used; None: none, only words."""
        return next((one.embedder for one in self.answers if one.embedder is not None), None)

    @property
    def notes(self) -> list[str]:
        """What could not be done, such as searching with an embedder that is not installed."""
        return list(dict.fromkeys(note for one in self.answers for note in one.notes))

    @property
    def own(self) -> list[Answer]:
        """What it brings for the questions that have an answer."""
        return [one for one in self.answers if one.purpose == OWN]

    def overall(self) -> Sums:
        """Return what it brings for all questions that have an answer, of which there must be one."""
        return _sums(self.own)

    def kinds(self) -> dict[str, Sums]:
        """Return what it brings for each kind of question."""
        return _by(lambda one: one.question.kind, self.own)

    def silence(self) -> dict[str, Sums]:
        """Return what it recalls for lines without an answer, by what they are."""
        return _by(lambda one: one.purpose, [one for one in self.answers if one.purpose != OWN])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "name": self.name,
            "embedder": self.embedder,
            "notes": self.notes,
            "all": self.overall().to_dict() if self.own else None,
            "kinds": {name: one.to_dict() for name, one in self.kinds().items()},
            "silence": {name: one.to_dict() for name, one in self.silence().items()},
            "rows": [one.to_dict() for one in self.answers],
        }


def _by(name: Callable[[Answer], str], answers: Sequence[Answer]) -> dict[str, Sums]:
    return {each: _sums([one for one in answers if name(one) == each]) for each in dict.fromkeys(map(name, answers))}


def _sums(answers: Sequence[Answer]) -> Sums:
    sessions = [repr(one.place[:2]) for one in answers]
    return Sums(
        len(answers), interval([one.evidence for one in answers], sessions),
        interval([float(one.recalled > 0) for one in answers], sessions), fmean(one.recalled for one in answers),
        fmean(one.tokens for one in answers), median(one.milliseconds for one in answers),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What your own questions say about recall: `str()` is a text with tables, `to_dict()` has every figure.

    Attributes:
        places: the conversations that were asked.
        outcomes: what each setting brings, the present one first.
        budget: the tokens that a prompt may take in the present setting.
    """

    places: tuple[Place, ...]
    outcomes: tuple[Outcome, ...]
    budget: int

    @property
    def present(self) -> Outcome:
        """What the present setting brings."""
        return self.outcomes[0]

    def lead(self, outcome: Outcome) -> Lead:
        """Return how much more of the evidence a setting brings than the present one, question by question."""
        pairs = list(zip(outcome.own, self.present.own, strict=True))
        return interval([one.evidence - now.evidence for one, now in pairs], [repr(one.place[:2]) for one, _ in pairs])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        leads = [self.lead(one)._asdict() if one.own else None for one in self.outcomes]
        return {
            "questions": sum(len(place.questions) for place in self.places),
            "sessions": [
                {key: getattr(place, key) for key in ("session", "user", "branch", "messages")} for place in self.places
            ],
            "budget": self.budget,
            "settings": [{**one.to_dict(), "lead": lead} for one, lead in zip(self.outcomes, leads, strict=True)],
        }

    def __repr__(self) -> str:
        return f"<Evaluation: {self._head()}; {', '.join(one.name for one in self.outcomes)}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _head(self) -> str:
        questions = sum(len(place.questions) for place in self.places)
        messages = sum(place.messages for place in self.places)
        sessions = f"{len(self.places):,} session{'' if len(self.places) == 1 else 's'}"
        embedder = f"; embedder {self.present.embedder}" if self.present.embedder else ""
        asked = f"{questions:,} question{'' if questions == 1 else 's'} to {sessions} of {messages:,} messages"
        return f"{asked}; prompts of at most {self.budget:,} tokens{embedder}"

    def _lines(self) -> Iterator[str]:
        yield self._head()
        own, names = self.present.own, [one.name for one in self.outcomes]
        if own:
            yield from _table(
                "",
                ["setting", "evidence, %", "more than now", "recalled", "prompt", "ms"],
                map(self._cells, self.outcomes),
            )
        if len(self.present.kinds()) > 1:
            rows = _side_by_side([one.kinds() for one in self.outcomes], lambda one: one.evidence)
            yield from _table("Evidence in %, and tokens recalled, by kind:", ["kind", "questions", *names], rows)
        yield from self._missed()
        title = "Lines that need nothing: how often anything is recalled, in %, and how many tokens:"
        rows = _side_by_side([one.silence() for one in self.outcomes], lambda one: one.often)
        yield from _table(title, ["line", "lines", *names], rows)
        yield ""
        yield from (f"! {outcome.name}: {note}" for outcome in self.outcomes for note in outcome.notes)
        if own:
            sessions = len({one.place[:2] for one in own})
            drawn = f"{sessions:,} resampled sessions" if sessions >= FEW else counted(len(own), "resampled question")
            rough = ", so few that they are rough" if len(own) < FEW else ""
            yield f"Intervals are 95 %, of {drawn}{rough}. An excerpt counts as its message."

    def _cells(self, outcome: Outcome) -> list[str]:
        sums = outcome.overall()
        lead = "" if outcome is self.present else points(self.lead(outcome))
        figures = f"{sums.recalled:,.0f}", f"{sums.tokens:,.0f}", f"{sums.milliseconds:.1f}"
        return [outcome.name, percent(sums.evidence), lead, *figures]

    def _missed(self) -> Iterator[str]:
        missed = [one for one in self.present.own if one.missing]
        if missed:
            yield f"\nNot all of the evidence is in the prompt of {len(missed):,}:\n"
        for one in missed[:MISSED_SHOWN]:
            reasons = "; ".join(f"{name!r} {why}" for name, why in one.missing.items())
            yield f"{one.question.where}: {one.question.question}\n  {reasons}"
        if len(missed) > MISSED_SHOWN:
            yield f"... and {len(missed) - MISSED_SHOWN:,} more"


def _side_by_side(settings: Sequence[Mapping[str, Sums]], share: Callable[[Sums], Lead]) -> Iterator[list[str]]:
    """Yield a row for each group of lines: its size, and in each setting a share in per cent and tokens recalled."""
    for name, first in sorted(settings[0].items()):
        found = [one[name] for one in settings]
        cells = [f"{100 * share(one).mean:.1f}, {one.recalled:,.0f}" for one in found]
        yield [name or "(none)", f"{first.lines:,}", *cells]


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table whose columns are aligned, the first one left. A column without text is left out."""
    columns = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    wide = [max(map(len, column)) for column in columns]
    yield f"\n{title}\n" if title else ""
    for number, cells in enumerate(zip(*columns, strict=True)):
        sized = zip(cells, wide, strict=True)
        shown = [f"{text:>{size}}" if at else f"{text:<{size}}" for at, (text, size) in enumerate(sized)]
        yield f"| {' | '.join(shown)} |"
        if not number:
            yield f"|{'|'.join('-' * (size + 1) + (':' if at else '-') for at, size in enumerate(wide))}|"
