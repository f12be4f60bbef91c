"""Fit what decides whether recall answers, and how deep it goes: `python benchmarks/recall_gate.py FILE …`.

The files are those of `recall.py`; the example conversation joins them. Prints the constants of
`shared_core/recall/worth.py`, and for each file the area under the curve and how often recall opens, by kind of line,
with constants fitted on the other files only.

Lines with an answer: the questions of a conversation, and short ones that point back to an exchange about one of them
("And when was that?"). Lines without: questions of the next conversation of the file, small talk and tasks of
`recall_gate.json`, and short ones that point back to such a task. Every kind of a file counts the same, and all lines
with an answer together as much as all without.
"""

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from recall_rankers import Remembering
from recall_talks import Question, Talk, foreign_questions, read_talks

from shared_core import InfiniteMemory, Message
from shared_core.languages.language import ENGLISH
from shared_core.plugins.base import Embedder
from shared_core.plugins.embedders import as_embedder
from shared_core.recall import search
from shared_core.recall.search import Searcher
from shared_core.recall.worth import OPEN, Signs
from shared_core.tokens import as_counter

Floats = npt.NDArray[np.float64]

OWN, FOLLOWS = "own", "follow-up"
WITH = (OWN, FOLLOWS)
FOREIGN, TASK_FOLLOWS = "another conversation's", "follow-up of a task"

CONVERSATION = Path(__file__).parent.parent / "examples" / "data" / "conversation.json"
EXAMPLE = "example conversation"

HALF = 0.5
"""What a kind of made-up follow-ups counts against 1 for another kind."""

RIDGE = 3e-3
"""Against coefficients that these files alone would justify: all of their questions ask something."""

DEEPEST = 150
"""Messages of a question that tell how deep recall goes."""

TOKENS = 4_000
EVERY_FOLLOW_UP = 3
SOME = 12
"""Lines of each kind that are asked of one of many conversations."""

REPLIES = (
    "That sounds interesting. Would you like to plan something around it, or just talk?",
    "I see! What would you like to do next?",
    "Noted. Let me know if I can help with anything.",
)
SHORT = {
    "when": "And when was that?", "where": "Where was it again?", "who": "Who was that with?", "how": "How did it go?",
    "why": "Why was that?", "which": "Which one was it?",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line that was said to the memory of a conversation, and what the engine made of it.

    Attributes:
        file: the name of its file.
        kind: what it is.
        known: whether it was compared by meaning.
        signs: what the gate sees.
        spread: whether its answer is taken to be spread over many messages.
        scores: of the messages found, best first.
        evidence: which of these answer it.
    """

    file: str
    kind: str
    known: bool
    signs: Signs
    spread: bool
    scores: Floats
    evidence: npt.NDArray[np.bool_]


class Judged(NamedTuple):
    """What a question is judged by; see `Line`."""

    known: bool
    signs: Signs
    spread: bool
    scores: Floats
    indices: npt.NDArray[np.int64]


@contextmanager
def recorded() -> Iterator[list[Judged]]:
    """Keep what every question in the block is judged by."""
    seen: list[Judged] = []
    judge = Searcher._verdict

    def judged(self: Searcher, query: Any, scopes: Any, ranked: Any, dense: Any, *, searched_by_meaning: bool) -> Any:
        signs = search._signs(query, scopes, ranked, dense.embedder if searched_by_meaning else None)
        scores = ranked.scores[:DEEPEST].astype(np.float64)
        spread = query.goes_on or query.about_talk
        seen.append(Judged(searched_by_meaning, signs, spread, scores, ranked.indices[:DEEPEST]))
        return judge(self, query, scopes, ranked, dense, searched_by_meaning=searched_by_meaning)

    with patch.object(Searcher, "_verdict", judged):
        yield seen


class Asker:
    """The memory of a conversation, and what was judged in it.

    Args:
        talk: the conversation.
        memory: holds what was said before the next question.
        seen: what `recorded` keeps.
    """

    def __init__(self, talk: Talk, memory: InfiniteMemory, seen: list[Judged]) -> None:
        self._talk = talk
        self._memory = memory
        self._seen = seen
        self._held = 0

    def hold(self, count: int) -> None:
        """Add messages until the memory holds so many."""
        if count > self._held:
            self._memory.add(self._talk.messages[self._held : count])
            self._memory.index()
            self._held = count

    def ask(self, kind: str, text: str, evidence: Collection[int] = ()) -> list[Line]:
        """Return a line, if anything can be found for it."""
        self._seen.clear()
        self._memory.context(text)
        return [
            Line(
                self._talk.dataset,
                kind,
                one.known,
                one.signs,
                one.spread,
                one.scores,
                np.isin(one.indices, [*evidence]),
            )
            for one in self._seen[:1]
        ]

    def ask_after(self, said: Sequence[str], kind: str, text: str) -> list[Line]:
        """Return a line that comes after an exchange, which is not kept."""
        self._memory.fork("aside")
        self._memory.checkout("aside")
        self._memory.add([Message.user(said[0]), Message.assistant(said[1])])
        self._memory.index()
        lines = self.ask(kind, text)
        self._memory.checkout("main")
        self._memory.delete_branch("aside")
        return lines


def lines_of(
    talk: Talk, others: Sequence[str], made_up: dict[str, list[str]], embedder: Embedder | None
) -> Iterator[Line]:
    """Yield what is said to a conversation: its questions in the order they are asked, then all other lines."""
    memory = InfiniteMemory(embedder=embedder or "words", reserve_tokens=0, max_tokens=TOKENS)
    with recorded() as seen, memory:
        asker = Asker(talk, memory, seen)
        for number, question in enumerate(sorted(talk.questions, key=partial(_asked_at, talk))):
            asker.hold(_asked_at(talk, question))
            yield from asker.ask(OWN, question.text, question.evidence)
            if question.at is None and number % EVERY_FOLLOW_UP == 0:
                words = [word for word in re.findall(r"[\w'-]+", question.text) if word.lower() not in ENGLISH.stops]
                said = f"I was just thinking about {' '.join(words)}.", REPLIES[number % len(REPLIES)]
                yield from asker.ask_after(said, FOLLOWS, _short(question.text))
        asker.hold(len(talk.messages))
        for text in others:  # the example conversation has none
            yield from asker.ask(FOREIGN, text)
        for kind, texts in made_up.items():
            for number, text in enumerate(texts):
                yield from asker.ask(kind, text)
                if kind == "general knowledge":
                    yield from asker.ask_after((text, REPLIES[number % len(REPLIES)]), TASK_FOLLOWS, _short(text))


def _asked_at(talk: Talk, question: Question) -> int:
    return len(talk.messages) if question.at is None else question.at


def _short(text: str) -> str:
    """Return a short question of the same kind that points back."""
    return SHORT.get(text.split(maxsplit=1)[0].lower(), "What was it exactly?")


def read(path: Path, embedder: Embedder | None, every: int) -> Iterator[Line]:
    """Yield the lines of a file's conversations."""
    made_up: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    talks = read_talks(path, as_counter("o200k_base")) if path != CONVERSATION else [example()]
    talks = [replace(talk, questions=talk.questions[::every]) for talk in talks]
    questions = [[question.text for question in talk.questions] for talk in talks]
    step = max(1, len(talks) // SOME)
    for at, talk in enumerate(talks):
        some = {kind: lines[at % step :: step] for kind, lines in made_up.items()}
        yield from lines_of(talk, foreign_questions(questions, at), some, embedder)


def example() -> Talk:
    """Return the example conversation. It asks about those who talk, often in other words than the answer's."""
    rows = json.loads(CONVERSATION.read_text("utf-8"))
    said = [row for row in rows if row["role"] in ("user", "assistant") and row.get("content")]
    places = {row["id"]: place for place, row in enumerate(said)}
    messages = [
        Message(
            role=row["role"], content=row["content"], id=row["id"], created_at=datetime.fromisoformat(row["created_at"])
        )
        for row in said
    ]
    asked = json.loads(CONVERSATION.with_name("questions.json").read_text("utf-8"))
    questions = [
        Question(one["question"], frozenset(places[id_] for id_ in one["evidence"] if id_ in places), one["category"])
        for one in asked
    ]
    return Talk(EXAMPLE, EXAMPLE, tuple(messages), (), (), tuple(one for one in questions if one.evidence))


def weights(lines: Sequence[Line]) -> Floats:
    """Return what each line counts, so that every kind of every file counts the same."""
    size = Counter((line.file, line.kind) for line in lines)
    share = np.array(
        [(HALF if line.kind in (FOLLOWS, TASK_FOLLOWS) else 1) / size[line.file, line.kind] for line in lines]
    )
    with_answer = np.array([line.kind in WITH for line in lines])
    share[with_answer] /= share[with_answer].sum()
    share[~with_answer] /= share[~with_answer].sum()
    return share


def fit(inputs: Floats, truth: Floats, share: Floats, ridge: float) -> Floats:
    """Return the coefficients of a logistic regression, by Newton's method; the first is the constant."""
    inputs = np.column_stack([np.ones(len(inputs)), inputs])
    held = ridge * np.r_[1e-9, np.ones(inputs.shape[1] - 1)]
    found = np.zeros(inputs.shape[1])
    for _ in range(30):
        chance = _chance(inputs @ found)
        slope = inputs.T @ (share * (truth - chance)) - held * found
        found += np.linalg.solve((inputs.T * (share * chance * (1 - chance))) @ inputs + np.diag(held), slope)
    return found


def _chance(logits: Floats) -> Floats:
    chances: Floats = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
    return chances


def gate_inputs(lines: Sequence[Line]) -> Floats:
    """Return a row for each line: its signs, and whether its meaning is unknown, which counts as 0."""
    return np.array(
        [[*(line.signs if line.known else line.signs._replace(meaning=0.0)), not line.known] for line in lines], float
    )


def fit_gate(lines: Sequence[Line]) -> Floats:
    """Return the constant, the weights of `Signs`, and what is added where the meaning is unknown."""
    truth = np.array([line.kind in WITH for line in lines], float)
    return fit(gate_inputs(lines), truth, weights(lines), RIDGE)


def fit_part(lines: Sequence[Line]) -> Floats:
    """Return the constants of `Part`, from the questions of the files, every file weighted equally."""
    own = [line for line in lines if line.kind == OWN and line.file != EXAMPLE and len(line.scores) and line.known]
    size = Counter(line.file for line in own)
    rows = [
        np.column_stack([np.log1p(np.arange(len(line.scores))), (line.scores - line.scores[0]) * (not line.spread)])
        for line in own
    ]
    share = np.concatenate([np.full(len(line.scores), 1 / size[line.file]) for line in own])
    truth = np.concatenate([line.evidence.astype(float) for line in own])
    return fit(np.concatenate(rows), truth, share / share.sum(), 0.0)


def area(truth: Floats, chance: Floats, share: Floats) -> float:
    """Return the area under the curve: how often a line with an answer has the higher chance."""
    order = np.argsort(chance, kind="stable")
    positive, negative = (share * truth)[order], (share * (1 - truth))[order]
    return float((positive * (np.cumsum(negative) - negative / 2)).sum() / (positive.sum() * negative.sum()))


def print_left_out(lines: Sequence[Line]) -> None:
    """Print how each file does with constants fitted on the others."""
    kinds = list(dict.fromkeys(line.kind for line in lines))
    print("| left out | AUC |", " | ".join(f"{kind}, open %" for kind in kinds), "|")
    print("|---" * (len(kinds) + 2) + "|")
    for file in dict.fromkeys(line.file for line in lines):
        mine = [line for line in lines if line.file == file]
        found = fit_gate([line for line in lines if line.file != file])
        chance = _chance(np.column_stack([np.ones(len(mine)), gate_inputs(mine)]) @ found)
        truth = np.array([line.kind in WITH for line in mine], float)
        opened = [[c >= OPEN for c, line in zip(chance, mine, strict=True) if line.kind == kind] for kind in kinds]
        cells = [f"{100 * np.mean(some):.0f}" if some else "" for some in opened]
        print(f"| {file} | {area(truth, chance, weights(mine)):.3f} |", " | ".join(cells), "|")


def main() -> None:
    """Read, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--embedders", nargs="+", default=["static", "all-MiniLM-L6-v2", "none"])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one of N questions")
    parser.add_argument("--vectors", type=Path, help="a folder that keeps the vectors for the next run")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    lines: list[Line] = []
    for name in arguments.embedders:
        kept = arguments.vectors / f"{name}.npz" if arguments.vectors else None
        inner = as_embedder(name) if name != "none" else None
        embedder = Remembering(inner, kept) if inner is not None else None
        some = [line for path in [CONVERSATION, *arguments.files] for line in read(path, embedder, arguments.every)]
        print(f"\n{name}:\n")
        print_left_out(some)
        lines += some
        if embedder is not None:
            embedder.save()
    print("\nall together:\n")
    print_left_out(lines)
    gate, part = fit_gate(lines), fit_part(lines)
    counted = dict(zip(Signs._fields, gate[1:-1].round(2).tolist(), strict=True))
    print(f"\nGATE: constant {gate[0]:.2f}, {counted}")
    print(f"UNKNOWN: {gate[-1] / counted['meaning']:.2f}")
    print(f"PART: constant {part[0]:.2f}, rank {part[1]:.2f}, behind {part[2]:.2f}")


if __name__ == "__main__":
    main()
