"""What an evaluation found, as values, as JSON data and as text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from shared_core.evaluation.comparison import Comparison, Figures, compared
from shared_core.evaluation.figures import FEW, Lead, interval, percent
from shared_core.evaluation.moments import Place
from shared_core.evaluation.settings import Setting
from shared_core.evaluation.trial import OWN, Answer

__all__ = ["Evaluation", "Outcome", "Silence", "Sums"]

MISSED_SHOWN = 10
"""Questions whose evidence is missing that the text names."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What a setting brings for some questions, on average.

    Attributes:
        questions: how many these are.
        evidence: the share of the evidence that is in the prompt, with its interval; None without questions.
        facts: the share of the informative words of the answers; None if no question has an answer in words.
        recalled: tokens of what is recalled.
        tokens: tokens of the whole prompt.
        milliseconds: the time of one processor that a prompt takes, the median.
    """

    questions: int
    evidence: Lead | None
    facts: Lead | None
    recalled: float
    tokens: float
    milliseconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value._asdict() if isinstance(value, Lead) else value for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Silence:
    """What is recalled for lines that the conversation has no answer to.

    Attributes:
        lines: how many these are.
        often: the share of them for which anything is recalled, with its interval.
        recalled: tokens of it, on average over all of them.
    """

    lines: int
    often: Lead
    recalled: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"lines": self.lines, "often": self.often._asdict(), "recalled": self.recalled}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one setting brings.

    Attributes:
        setting: its name and arguments.
        answers: what it brings for each line, in the same order for all settings.
    """

    setting: Setting
    answers: tuple[Answer, ...]

    def __repr__(self) -> str:
        return f"<Outcome: {self.setting.name}, {len(self.answers):,} answers>"

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
        return [one for one in self.answers if one.line.purpose == OWN]

    def kinds(self) -> dict[str, Sums]:
        """Return what it brings for each kind of question; empty unless there are several."""
        names = sorted({one.line.question.kind for one in self.own})
        if len(names) < 2:
            return {}
        return {name: _sums([one for one in self.own if one.line.question.kind == name]) for name in names}

    def overall(self) -> Sums:
        """Return what it brings for all questions."""
        return _sums(self.own)

    def silence(self) -> dict[str, Silence]:
        """Return what it recalls for lines without an answer, by what they are."""
        purposes = dict.fromkeys(one.line.purpose for one in self.answers)
        return {purpose: self._silence(purpose) for purpose in purposes if purpose != OWN}

    def _silence(self, purpose: str) -> Silence:
        said = [one for one in self.answers if one.line.purpose == purpose]
        often = [float(one.gain.recalled > 0) for one in said]
        return Silence(len(said), _mean(often, _clusters(said)), fmean(one.gain.recalled for one in said))

    def figures(self) -> Figures:
        """Return its figures for each question."""
        own = self.own
        return Figures(
            [one.gain.evidence or 0.0 for one in own], [one.gain.recalled for one in own],
            [one.gain.tokens for one in own], [one.milliseconds for one in own], _clusters(own),
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

    def comparisons(self) -> list[Comparison]:
        """Return how each other setting compares with the present one; empty if no question has an answer."""
        if not self.present.own:
            return []
        now = self.present.figures()
        return [compared(one.setting.name, one.figures(), now) for one in self.outcomes[1:]]

    def missed(self) -> list[Answer]:
        """Return the questions whose evidence is not all in the prompt in the present setting."""
        return [one for one in self.present.own if one.missing]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "questions": sum(len(place.questions) for place in self.places),
            "sessions": [
                {"session": place.session, "user": place.user, "branch": place.branch, "messages": place.messages}
                for place in self.places
            ],
            "budget": self.budget,
            "settings": [_setting(one) for one in self.outcomes],
            "comparisons": [one.to_dict() for one in self.comparisons()],
            "rows": [self._row(at) for at in range(len(self.present.answers))],
        }

    def _row(self, at: int) -> dict[str, Any]:
        line = self.present.answers[at].line
        asked = line.question
        where = {"where": asked.where, "question": asked.question, "session": asked.session, "user": asked.user}
        found = {one.setting.name: _answer(one.answers[at]) for one in self.outcomes}
        return where | {"purpose": line.purpose, "kind": asked.kind, "settings": found}

    def __repr__(self) -> str:
        return f"<Evaluation: {self._head()}; {', '.join(one.setting.name for one in self.outcomes)}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self._head()
        if self.present.own:
            yield ""
            yield from table(_overall(self.outcomes))
            yield from self._kinds()
            yield from self._missed()
        yield from self._silences()
        for comparison in self.comparisons():
            yield f"\n{comparison.name}: {comparison.verdict}\n  {comparison.why}"
        yield from self._caveats()

    def _head(self) -> str:
        questions = sum(len(place.questions) for place in self.places)
        messages = sum(place.messages for place in self.places)
        sessions = f"{len(self.places):,} session{'' if len(self.places) == 1 else 's'}"
        embedder = f"; embedder {self.present.embedder}" if self.present.embedder else ""
        asked = f"{questions:,} question{'' if questions == 1 else 's'} to {sessions} of {messages:,} messages"
        return f"{asked}; prompts of at most {self.budget:,} tokens{embedder}"

    def _kinds(self) -> Iterator[str]:
        kinds = [one.kinds() for one in self.outcomes]
        if kinds[0]:
            yield "\nEvidence in %, and tokens recalled, by kind:\n"
            rows = [["kind", "questions", *(one.setting.name for one in self.outcomes)]]
            for name, sums in kinds[0].items():
                rows.append([name or "(none)", f"{sums.questions:,}", *(_short(one[name]) for one in kinds)])
            yield from table(rows)

    def _silences(self) -> Iterator[str]:
        silences = [one.silence() for one in self.outcomes]
        yield "\nLines that need nothing: how often anything is recalled, in %, and how many tokens:\n"
        rows = [["line", "lines", *(one.setting.name for one in self.outcomes)]]
        for name, first in silences[0].items():
            cells = [f"{100 * one[name].often.mean:.1f}, {one[name].recalled:,.0f}" for one in silences]
            rows.append([name, f"{first.lines:,}", *cells])
        yield from table(rows)

    def _missed(self) -> Iterator[str]:
        missed = self.missed()
        if missed:
            yield f"\nNot all of the evidence is in the prompt of {len(missed):,}:\n"
        for one in missed[:MISSED_SHOWN]:
            reasons = "; ".join(f"{name!r} {why}" for name, why in one.missing.items())
            yield f"{one.line.question.where}: {one.line.question.question}\n  {reasons}"
        if len(missed) > MISSED_SHOWN:
            yield f"... and {len(missed) - MISSED_SHOWN:,} more"

    def _caveats(self) -> Iterator[str]:
        yield ""
        for outcome in self.outcomes:
            yield from (f"! {outcome.setting.name}: {note}" for note in outcome.notes)
        if own := self.present.own:
            yield f"Intervals are 95 %, of {_drawn_from(own)}. An excerpt counts as its message."


def _drawn_from(own: Sequence[Answer]) -> str:
    """Return what intervals are drawn from, and whether that is little."""
    sessions, questions = len({(one.line.question.user, one.line.question.session) for one in own}), len(own)
    if sessions >= FEW:
        return f"{sessions:,} resampled sessions"
    rough = ", so few that they are rough" if questions < FEW else ""
    if sessions == 1:
        return f"{questions:,} resampled questions{rough}"
    return f"{sessions:,} resampled sessions or {questions:,} questions, whichever is wider{rough}"


def _clusters(answers: Sequence[Answer]) -> list[str]:
    """Return what each question is drawn with: its session, or, if there is one only, nothing else."""
    sessions = [repr((one.line.question.user, one.line.question.session)) for one in answers]
    return sessions if len(set(sessions)) > 1 else [str(number) for number in range(len(answers))]


def _mean(values: Sequence[float], clusters: Sequence[str]) -> Lead:
    return interval(values, [0.0] * len(values), clusters)


def _sums(answers: Sequence[Answer]) -> Sums:
    if not answers:
        return Sums(0, None, None, 0, 0, 0)

    def mean(figure: Callable[[Answer], float | None]) -> Lead | None:
        known = [(one, value) for one in answers if (value := figure(one)) is not None]
        return _mean([value for _, value in known], _clusters([one for one, _ in known])) if known else None

    return Sums(
        len(answers), mean(lambda one: one.gain.evidence), mean(lambda one: one.gain.facts),
        fmean(one.gain.recalled for one in answers), fmean(one.gain.tokens for one in answers),
        median(one.milliseconds for one in answers),
    )  # fmt: skip


def _setting(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.setting.name,
        "embedder": outcome.embedder,
        "notes": outcome.notes,
        "all": outcome.overall().to_dict(),
        "kinds": {name: sums.to_dict() for name, sums in outcome.kinds().items()},
        "silence": {name: silence.to_dict() for name, silence in outcome.silence().items()},
    }


def _answer(answer: Answer) -> dict[str, Any]:
    gain = answer.gain
    figures = {"evidence": gain.evidence, "facts": gain.facts, "recalled": gain.recalled, "tokens": gain.tokens}
    return figures | {"milliseconds": answer.milliseconds, "missing": dict(answer.missing)}


def _overall(outcomes: Sequence[Outcome]) -> Iterator[Sequence[str]]:
    sums = [one.overall() for one in outcomes]
    facts = any(one.facts for one in sums)
    yield ["setting", "evidence, %", *(["facts, %"] if facts else []), "recalled", "prompt", "ms"]
    for outcome, one in zip(outcomes, sums, strict=True):
        shares = [one.evidence, *([one.facts] if facts else [])]
        cells = [percent(share) if share is not None else "" for share in shares]
        yield [outcome.setting.name, *cells, f"{one.recalled:,.0f}", f"{one.tokens:,.0f}", f"{one.milliseconds:.1f}"]


def _short(sums: Sums) -> str:
    return f"{100 * sums.evidence.mean:.1f}, {sums.recalled:,.0f}" if sums.evidence is not None else ""


def table(rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table whose columns are aligned; the first row is the head, the first column is text."""
    cells = [list(row) for row in rows]
    wide = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for number, row in enumerate(cells):
        padded = [
            f"{text:<{size}}" if not at else f"{text:>{size}}"
            for at, (text, size) in enumerate(zip(row, wide, strict=True))
        ]
        yield f"| {' | '.join(padded)} |"
        if not number:
            yield (
                "|"
                + "|".join("-" * (size + 2) if not at else "-" * (size + 1) + ":" for at, size in enumerate(wide))
                + "|"
            )
