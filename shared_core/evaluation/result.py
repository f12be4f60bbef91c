"""What an evaluation found, as values, as JSON data and as text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

from shared_core.evaluation.comparison import Comparison, Figures, compared
from shared_core.evaluation.figures import FEW, Lead, interval, percent
from shared_core.evaluation.prompts import Gain
from shared_core.evaluation.questions import Question

__all__ = ["Answer", "Evaluation", "Outcome", "Place", "Sums"]

OWN, UNANSWERED, FOREIGN = "your questions", "questions without an answer", "another session's questions"
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
        question: what is said; small talk is a question without an answer.
        purpose: `OWN`, `UNANSWERED` or `FOREIGN`, or what small talk it is.
        gain: evidence, facts and tokens.
        milliseconds: the time of one processor that the prompt took.
        missing: the ids and texts that are not in the prompt, each with the reason.
        embedder: the key of the embedder whose vectors were used; None: none.
        notes: what could not be done, as the report says.
    """

    question: Question
    purpose: str
    gain: Gain
    milliseconds: float
    missing: Mapping[str, str]
    embedder: str | None
    notes: tuple[str, ...]


class Sums(NamedTuple):
    """What a setting brings for some lines, on average.

    Attributes:
        lines: how many these are.
        evidence: the share of the evidence that is in the prompt, with its interval; None if there is none.
        facts: the share of the informative words of the answers; None if no question has an answer in words.
        often: the share of the lines for which anything is recalled.
        recalled: tokens of what is recalled.
        tokens: tokens of the whole prompt.
        milliseconds: the time of one processor that a prompt takes, the median.
    """

    lines: int
    evidence: Lead | None
    facts: Lead | None
    often: Lead
    recalled: float
    tokens: float
    milliseconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {name: one._asdict() if isinstance(one, Lead) else one for name, one in self._asdict().items()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one setting brings: its name, and the answers to each line, in the same order for all settings."""

    name: str
    answers: tuple[Answer, ...]

    def __repr__(self) -> str:
        return f"<Outcome: {self.name}, {len(self.answers):,} answers>"

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
        """Return what it brings for each kind of question; empty unless there are several."""
        names = sorted({one.question.kind for one in self.own})
        kinds = {name: _sums([one for one in self.own if one.question.kind == name]) for name in names}
        return kinds if len(kinds) > 1 else {}

    def silence(self) -> dict[str, Sums]:
        """Return what it recalls for lines without an answer, by what they are."""
        purposes = [purpose for purpose in dict.fromkeys(one.purpose for one in self.answers) if purpose != OWN]
        return {purpose: _sums([one for one in self.answers if one.purpose == purpose]) for purpose in purposes}

    def figures(self) -> Figures:
        """Return its figures for each question."""
        own = self.own
        return Figures(
            [one.gain.evidence or 0.0 for one in own], [one.gain.recalled for one in own],
            [one.gain.tokens for one in own], [one.milliseconds for one in own], _clusters(own),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, without the single answers."""
        groups = {"kinds": self.kinds(), "silence": self.silence()}
        return {
            "name": self.name,
            "embedder": self.embedder,
            "notes": self.notes,
            "all": self.overall().to_dict() if self.own else None,
            **{name: {key: one.to_dict() for key, one in group.items()} for name, group in groups.items()},
        }


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

    def comparisons(self) -> list[Comparison]:
        """Return how each other setting compares with the present one; empty if no question has an answer."""
        if not self.present.own:
            return []
        now = self.present.figures()
        return [compared(one.name, one.figures(), now) for one in self.outcomes[1:]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        rows = []
        for number, (asked, purpose, *_) in enumerate(self.present.answers):
            found = {one.name: _as_json(one.answers[number]) for one in self.outcomes}
            where = {name: getattr(asked, name) for name in ("where", "question", "session", "user", "kind")}
            rows.append({**where, "purpose": purpose, "settings": found})
        return {
            "questions": sum(len(place.questions) for place in self.places),
            "sessions": [
                {key: getattr(place, key) for key in ("session", "user", "branch", "messages")} for place in self.places
            ],
            "budget": self.budget,
            "settings": [one.to_dict() for one in self.outcomes],
            "comparisons": [one.to_dict() for one in self.comparisons()],
            "rows": rows,
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
            yield ""
            yield from table(
                [["setting", "evidence, %", "facts, %", "recalled", "prompt", "ms"], *map(_row, self.outcomes)]
            )
        if kinds := [one.kinds() for one in self.outcomes if one.kinds()]:
            yield "\nEvidence in %, and tokens recalled, by kind:\n"
            rows = [[name or "(none)", f"{first.lines:,}", *(_short(one[name].evidence, one[name]) for one in kinds)]
                    for name, first in kinds[0].items()]  # fmt: skip
            yield from table([["kind", "questions", *names], *rows])
        yield from self._missed()
        silences = [one.silence() for one in self.outcomes]
        yield "\nLines that need nothing: how often anything is recalled, in %, and how many tokens:\n"
        rows = [[name, f"{first.lines:,}", *(_short(one[name].often, one[name]) for one in silences)]
                for name, first in silences[0].items()]  # fmt: skip
        yield from table([["line", "lines", *names], *rows])
        for comparison in self.comparisons():
            yield f"\n{comparison.name}: {comparison.verdict}\n  {comparison.why}"
        yield ""
        yield from (f"! {outcome.name}: {note}" for outcome in self.outcomes for note in outcome.notes)
        if own:
            sessions = len({(one.question.user, one.question.session) for one in own})
            drawn = f"{sessions:,} resampled sessions" if sessions > 1 else f"{len(own):,} resampled questions"
            drawn += f" or {len(own):,} questions, whichever is wider" if 1 < sessions < FEW else ""
            rough = ", so few that they are rough" if len(own) < FEW else ""
            yield f"Intervals are 95 %, of {drawn}{rough}. An excerpt counts as its message."

    def _missed(self) -> Iterator[str]:
        missed = [one for one in self.present.own if one.missing]
        if missed:
            yield f"\nNot all of the evidence is in the prompt of {len(missed):,}:\n"
        for one in missed[:MISSED_SHOWN]:
            reasons = "; ".join(f"{name!r} {why}" for name, why in one.missing.items())
            yield f"{one.question.where}: {one.question.question}\n  {reasons}"
        if len(missed) > MISSED_SHOWN:
            yield f"... and {len(missed) - MISSED_SHOWN:,} more"


def _clusters(answers: Sequence[Answer]) -> list[str]:
    """Return what each question is drawn with: its session, or, if there is one only, nothing else."""
    sessions = [repr((one.question.user, one.question.session)) for one in answers]
    return sessions if len(set(sessions)) > 1 else [str(number) for number in range(len(answers))]


def _sums(answers: Sequence[Answer]) -> Sums:
    def mean(values: Sequence[float | None]) -> Lead | None:
        known = [(one, value) for one, value in zip(answers, values, strict=True) if value is not None]
        clusters = _clusters([one for one, _ in known])
        return interval([value for _, value in known], [0.0] * len(known), clusters) if known else None

    gains = [one.gain for one in answers]
    often = mean([float(one.recalled > 0) for one in gains])
    assert often is not None
    return Sums(
        len(answers), mean([one.evidence for one in gains]), mean([one.facts for one in gains]), often,
        fmean(one.recalled for one in gains), fmean(one.tokens for one in gains),
        median(one.milliseconds for one in answers),
    )  # fmt: skip


def _as_json(answer: Answer) -> dict[str, Any]:
    gain = {name: getattr(answer.gain, name) for name in ("evidence", "facts", "recalled", "tokens")}
    return {**gain, "milliseconds": answer.milliseconds, "missing": dict(answer.missing)}


def _row(outcome: Outcome) -> list[str]:
    sums = outcome.overall()
    shares = [percent(share) if share is not None else "" for share in (sums.evidence, sums.facts)]
    return [outcome.name, *shares, f"{sums.recalled:,.0f}", f"{sums.tokens:,.0f}", f"{sums.milliseconds:.1f}"]


def _short(share: Lead | None, sums: Sums) -> str:
    return f"{100 * share.mean:.1f}, {sums.recalled:,.0f}" if share is not None else ""


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table whose columns are aligned; the first row is the head, the first column is text.

    A column without text in any row is left out.
    """
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    wide = [max(map(len, column)) for column in columns]
    lines = [
        " | ".join(f"{text:<{size}}" if not at else f"{text:>{size}}" for at, (text, size) in enumerate(cells))
        for cells in (list(zip(row, wide, strict=True)) for row in zip(*columns, strict=True))
    ]
    rule = "|".join("-" * (size + 2) if not at else "-" * (size + 1) + ":" for at, size in enumerate(wide))
    yield f"| {lines[0]} |"
    yield f"|{rule}|"
    yield from (f"| {line} |" for line in lines[1:])
