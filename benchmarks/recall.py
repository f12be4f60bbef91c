"""How much of the answer reaches the prompt, and for what: `python benchmarks/recall.py FILE …`.

Each file holds conversations with questions and the messages that answer them, as gzipped JSON lines (see
`recall_talks.read_talks`). The data is not part of this package. Its originals are public:

- LoCoMo, two people over months (Maharana et al. 2024): snap-research/locomo on GitHub
- BEAM, user and assistant with long replies (Tavakoli et al. 2025)
- QMSum, meetings (Zhong et al. 2021): Yale-LILY/QMSum on GitHub

- RealMem, months with an assistant, asked in the middle of the talk (AvatarMemory 2026)

Rankings: `search`, its messages taken best first until a budget of tokens (o200k_base, `speaker: text`) is full, what
does not fit skipped; and `context` with all its default shares, where the budget is the whole prompt. Beside them, in
the same run, with the same tokens and the same embedder, what others do (`recall_rankers.peers`). "Excerpts": a message
that `context` would cut costs what the passage of it costs there, and counts as kept; the labels do not tell whether
the passage is the right one. All is asked at the end; files whose questions come in the middle have no such tables.

Prompts: what a user gets from `context`, asked when the file says so, also with `recall="thorough"` and `"precise"`.
"Evidence" is the share of the labelled messages that are in the prompt. "Rare facts" are the words of the answer that
the question does not hold, but the labelled messages do, and at most 5 % of all messages: the share of them that occurs
in the messages and excerpts of the prompt. "Recalled" and "prompt" are tokens. "BM25 in its place" has the window of
`context`, and as many tokens of what BM25 ranks first as `context` recalls. What is recalled for questions about the
next conversation of the file, or for small talk and general knowledge (`shared_core/evaluation/small_talk.json`), is
waste; in sets of one subject, such as the meetings of one project, the next conversation is not quite foreign.

Prints Markdown tables. Intervals are 95 %, of 10,000 resamples of whole conversations. `--json FILE` writes a row for
each question, `--plot FILE` draws the evidence over the tokens spent, `--ablate` switches off our ingredients one by
one.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from recall_ablations import ABLATIONS, PROMPT_ABLATIONS, Ablation
from recall_measures import BUDGETS, Piece, Score, filled, score
from recall_prompt_tables import gain_lead_table, gain_table, kind_table, silence_table, without_table
from recall_prompts import OWN, Asked, foreign_kind, measure_prompts, measure_without
from recall_rankers import Ours, Ranker, Remembering, peers
from recall_tables import Row, ablation_table, as_json, category_table, lead_table, method_table
from recall_talks import Question, Talk, foreign_questions, read_talks

from shared_core.evaluation.runner import small_talk
from shared_core.plugins.base import TokenCounter
from shared_core.plugins.embedders import as_embedder
from shared_core.tokens import as_counter

EMBEDDERS = {"static": "static", "minilm": "all-MiniLM-L6-v2", "int8": "all-MiniLM-L6-v2-int8"}

WHOLE_TOKENS, EXCERPT_TOKENS = 150, 110
"""What a message costs at most that is carried whole, and as a passage with its mark, speaker and all, by default."""

EXCERPTED = ("search", "dense", "RRF")

OURS = ("search", "search, excerpts", "context")

RIVALS = (
    "BM25", "BM25, named", "dense", "dense, named", "RRF", "RRF, named", "LangChain VectorStoreRetrieverMemory",
    "LlamaIndex VectorMemory",
)  # fmt: skip


def score_ranking(talk: Talk, question: Question, ranking: Sequence[Piece]) -> Score:
    """Return the score of a ranking that is filled into each budget."""
    order = [place for piece in ranking[:10] for place in piece.places]
    return _score(talk, question, [filled(ranking, budget) for budget in BUDGETS], order)


def _score(talk: Talk, question: Question, kept: Sequence[Collection[int]], order: Sequence[int] | None) -> Score:
    said = {place for place in question.evidence if talk.messages[place].role == "assistant"}
    return score(kept, question.evidence, said, order)


def _rankings(ranking: Sequence[Piece], name: str) -> dict[str, Sequence[Piece]]:
    """Return a ranking, and for some also with long messages carried as excerpts."""
    if name not in EXCERPTED:
        return {name: ranking}
    excerpts = [piece._replace(tokens=EXCERPT_TOKENS) if piece.tokens > WHOLE_TOKENS else piece for piece in ranking]
    return {name: ranking, f"{name}, excerpts": excerpts}


def score_ours(talk: Talk, question: Question, ours: Ours) -> dict[str, Score]:
    """Return the scores of what our memory finds and puts into the prompt."""
    rankings = _rankings(ours.rank(question.text), "search")
    prompts = [ours.prompt(question.text, budget).places for budget in BUDGETS]
    scores = {name: score_ranking(talk, question, ranking) for name, ranking in rankings.items()}
    return scores | {"context": _score(talk, question, prompts, None)}


def score_peers(talk: Talk, question: Question, rankers: dict[str, Ranker]) -> dict[str, Score]:
    """Return the scores of the others."""
    return {
        variant: score_ranking(talk, question, ranking)
        for name, ranker in rankers.items()
        for variant, ranking in _rankings(ranker.rank(question.text), name).items()
    }


def measure(
    talk: Talk, embedder: Remembering | None, count: TokenCounter, ablations: Sequence[Ablation]
) -> Iterator[Row]:
    """Yield a row for each question about a conversation, asked at its end."""
    rankers = peers(talk, embedder, count)
    with Ours(talk, embedder) as ours:
        scores = [score_ours(talk, asked, ours) | score_peers(talk, asked, rankers) for asked in talk.questions]
    for ablation in ablations:
        weighed = embedder.weighing(ablation.weight) if embedder and ablation.weight is not None else embedder
        with ablation.applied(), Ours(talk, weighed, **ablation.arguments) as ours:
            for found, asked in zip(scores, talk.questions, strict=True):
                without = score_ours(talk, asked, ours)
                found |= {f"{method} without {ablation.name}": value for method, value in without.items()}
    for number, (found, asked) in enumerate(zip(scores, talk.questions, strict=True)):
        yield Row(talk.dataset, talk.name, number, asked.category, len(asked.evidence), found)


def print_tables(talks: Sequence[Talk], rows: Sequence[Row], ablations: Sequence[Ablation]) -> None:
    """Print what was found for one file."""
    methods = [method for method in rows[0].scores if " without " not in method]
    rivals = [method for method in RIVALS if method in methods]
    pairs = [(ours, rival) for ours in ("search", "context") for rival in rivals]
    pairs += [("search, excerpts", f"{rival}, excerpts") for rival in rivals if rival in EXCERPTED]
    pairs += [("context", "search"), ("context", "search, excerpts")]
    messages = sum(len(talk.messages) for talk in talks)
    about = f"{len(rows):,} questions over {len(talks):,} conversations of {messages:,} messages"
    print(f"\n## {talks[0].dataset}: {about}\n", *method_table(rows, methods), sep="\n")
    print("\nFraction within 1,000 / 4,000 tokens, by category:\n")
    print(*category_table(rows, [*OURS, *rivals]), sep="\n")
    print("\nLead in points, fraction, with its 95 % interval:\n", *lead_table(rows, pairs), sep="\n")
    if ablations:
        names = [ablation.name for ablation in ablations]
        print("\nGained by switching off, in points:\n", *ablation_table(rows, OURS, names), sep="\n")


def print_prompts(talks: Sequence[Talk], rows: Sequence[Asked]) -> None:
    """Print what a user gets of one file."""
    questions = sum(row.kind == OWN for row in rows)
    print(f"\n## {talks[0].dataset}, what a user gets: {questions:,} questions, {len(talks):,} conversations\n")
    print(*gain_table(rows), sep="\n")
    print("\nLead in points, with its 95 % interval:\n", *gain_lead_table(rows), sep="\n")
    print("\nBy category:\n", *kind_table(rows), sep="\n")
    print("\nHow often anything is recalled, %, with its 95 % interval:\n", *silence_table(rows), sep="\n")


def measure_file(
    path: Path, arguments: argparse.Namespace, embedder: Remembering | None
) -> tuple[list[Row], list[Asked]]:
    """Measure one file, print its tables, and return a row for each line that was asked, of rankings and of prompts."""
    count = as_counter("o200k_base")
    ablations = [one for one in ABLATIONS if embedder or one.weight is None] if arguments.ablate else []
    talks, rows, asked = read_talks(path, count, arguments.first), list[Row](), list[Asked]()
    talks = [replace(talk, questions=talk.questions[:: arguments.every]) for talk in talks]
    without = list[Asked]()
    questions = [[question.text for question in talk.questions] for talk in talks]
    for at, talk in enumerate(talks):
        if arguments.only != "prompts" and all(question.at is None for question in talk.questions):
            rows += measure(talk, embedder, count, ablations)
        if arguments.only != "rankings" and arguments.ablate:
            others = foreign_questions(questions, at)[:: arguments.every]
            without += measure_without(talk, others, embedder, PROMPT_ABLATIONS)
        elif arguments.only != "rankings":
            lines = {foreign_kind(talk): foreign_questions(questions, at), **small_talk()}
            asked += measure_prompts(talk, lines, embedder)
        seconds = f"{time.process_time():.0f} s of processor time"
        print(f"{path.name}: {at + 1} of {len(talks)}, {seconds}", file=sys.stderr)
    if rows:
        print_tables(talks, rows, ablations)
    if asked:
        print_prompts(talks, asked)
    if without:
        print(
            f"\n## {talks[0].dataset}, prompts: gained by switching off, in points\n", *without_table(without), sep="\n"
        )
    return rows, [*asked, *without]


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--embedder", choices=[*EMBEDDERS, "none"], default="static")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N conversations of each file")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one of N questions")
    parser.add_argument("--only", choices=["rankings", "prompts"], help="leave out the other tables")
    parser.add_argument(
        "--ablate",
        action="store_true",
        help="switch off each ingredient of our ranking and of our prompts, instead of what else prompts are asked",
    )
    parser.add_argument("--json", type=Path, help="write a row for each question")
    parser.add_argument("--plot", type=Path, help="draw the evidence over the tokens spent, as .svg or .png")
    parser.add_argument("--vectors", type=Path, help="a file .npz that keeps the vectors for the next run")
    arguments = parser.parse_args(argv)
    if arguments.plot and (find_spec("matplotlib") is None or arguments.only == "rankings"):
        parser.error("--plot draws prompts, and needs matplotlib: pip install matplotlib")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    inner = as_embedder(EMBEDDERS[arguments.embedder]) if arguments.embedder in EMBEDDERS else None
    embedder = Remembering(inner, arguments.vectors) if inner is not None else None
    every, asked = list[Row](), list[Asked]()
    for path in arguments.files:
        found = measure_file(path, arguments, embedder)
        every += found[0]
        asked += found[1]
        if embedder is not None:
            embedder.save()
    if arguments.json:
        kept = {"rows": as_json(every), "prompts": as_json(asked)}
        arguments.json.write_text(json.dumps({"embedder": arguments.embedder, "budgets": BUDGETS, **kept}) + "\n")
    if arguments.plot:
        from recall_plot import draw

        draw(asked, arguments.plot)


if __name__ == "__main__":
    main()
