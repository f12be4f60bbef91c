"""Our search by words beside tantivy's: `python benchmarks/lexical.py [FILE …] [--sizes N …]`.

Tantivy is Lucene's design in Rust (`pip install tantivy`; only this script needs it). Compared are

- the time of the best 100 for a question, of building the index, and its size, at several numbers of messages: those of
  the files, said again and again with every twelfth word replaced, or made up ones without files;
- with files (see `recall_talks.read_talks`), how much of the evidence for a question is in the best messages.

Ours is the index alone, without the ranking around it: with the words of neighbours, as `InfiniteMemory` has it, and
without, which is BM25. Tantivy's is BM25 with its English stemmer, and over our stems, without our stop words. Times
are processor time, of all threads for building. Prints Markdown tables; `--json FILE` writes the figures too.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count, islice, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import latency
import numpy as np
import tantivy
from recall import score_ranking
from recall_ablations import Ablation
from recall_measures import BUDGETS, Piece, Score
from recall_talks import Talk, read_talks

from shared_core.index.lexical import LexicalIndex
from shared_core.index.lines import Line, LinePrefix
from shared_core.index.text import terms
from shared_core.recall.query import parse_query
from shared_core.tokens import as_counter

TOP_K = 100
RANKED = 400
QUESTIONS = 200
SIZES = (10_000, 100_000, 1_000_000)
BATCH = 5_000
REPLACED = 12
SHOWN = (1_000, 4_000)

Said = tuple[str, float]
"""A text and when it was said, in seconds."""


class Index(Protocol):
    """Finds messages by their words."""

    def add(self, said: Sequence[Said]) -> None:
        """Add messages."""

    def finish(self) -> int:
        """Make everything searchable and return the size in bytes."""

    def best(self, question: str, top_k: int) -> list[int]:
        """Return the places of the best messages, best first."""


class Ours:
    """Our index.

    Args:
        neighbours: whether a message is also found by what those around it say.
    """

    def __init__(self, *, neighbours: bool) -> None:
        off = {("shared_core.index.lexical", "NEIGHBOURS"): dict[int, float]()}
        self._alone = None if neighbours else Ablation("neighbours", off)
        self._index = LexicalIndex()
        self._line = Line()
        self._times: list[float] = []

    def add(self, said: Sequence[Said]) -> None:
        """Add messages."""
        start = len(self._index)
        self._index.add(terms(text) for text, _ in said)
        self._times.extend(moment for _, moment in said)
        every, nothing = np.arange(len(self._index), dtype=np.int32), np.zeros(len(self._index), dtype=np.int32)
        columns = {"turns": every, "speakers": nothing, "languages": nothing, "lengths": self._index.lengths}
        self._line.extend(every[start:], columns | {"times": np.array(self._times)})

    def finish(self) -> int:
        """Return the size of a snapshot."""
        return sum(array.nbytes for array in self._index.arrays().values())

    def best(self, question: str, top_k: int) -> list[int]:
        """Return the places of the best messages, best first."""
        line = LinePrefix(self._line, len(self._index))
        applied: AbstractContextManager[None] = self._alone.applied() if self._alone else nullcontext()
        with applied:
            scores = self._index.score(parse_query(question, ()).terms, line)
            best: list[int] = scores.best(top_k, np.ones(line.upto, dtype=np.bool_)).tolist()
        return best


class Tantivy:
    """Tantivy's index in a folder, written by one thread.

    Args:
        folder: an empty one.
        stemmed: whether our terms are indexed, instead of what its English analyser makes of a text.
    """

    def __init__(self, folder: str, *, stemmed: bool) -> None:
        self._folder = Path(folder)
        self._stemmed = stemmed
        analyser = "whitespace" if stemmed else "en_stem"
        schema = tantivy.SchemaBuilder().add_text_field("text", tokenizer_name=analyser)
        self._schema = schema.add_unsigned_field("place", stored=True).build()
        self._index = tantivy.Index(self._schema, folder)
        self._index.register_tokenizer(
            "whitespace", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        )
        self._writer = self._index.writer(128_000_000, 1)
        self._places = count()

    def add(self, said: Sequence[Said]) -> None:
        """Add messages."""
        for text, _ in said:
            words = " ".join(terms(text).elements()) if self._stemmed else text
            document = tantivy.Document(text=words)
            document.add_unsigned("place", next(self._places))
            self._writer.add_document(document)

    def finish(self) -> int:
        """Make everything searchable and return the size of the files, without the places of the messages."""
        self._writer.commit()
        self._writer.wait_merging_threads()
        self._index.reload()
        self._searcher = self._index.searcher()
        return sum(file.stat().st_size for file in self._folder.iterdir() if file.suffix != ".store")

    def best(self, question: str, top_k: int) -> list[int]:
        """Return the places of the best messages, best first."""
        if self._stemmed:
            asked = [tantivy.Query.term_query(self._schema, "text", t) for t in parse_query(question, ()).terms]
            query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in asked])
        else:
            query, _ = self._index.parse_query_lenient(question, ["text"])
        found = self._searcher.search(query, top_k, count=False).hits
        return [self._searcher.doc(address)["place"][0] for _, address in found]


def indexes(folder: str) -> dict[str, Index]:
    """Return what is compared, empty; `folder` is for files."""
    return {
        "ours": Ours(neighbours=True),
        "ours, no neighbours": Ours(neighbours=False),
        "tantivy": Tantivy(tempfile.mkdtemp(dir=folder), stemmed=False),
        "tantivy, our stems": Tantivy(tempfile.mkdtemp(dir=folder), stemmed=True),
    }


def said_in(talk: Talk) -> list[Said]:
    """Return what is said in a conversation, after the speaker's name."""
    return [
        (f"{m.name}: {m.content}" if m.name else m.content, m.created_at.timestamp() if m.created_at else 0.0)
        for m in talk.messages
    ]


def said_again(talks: Sequence[Talk]) -> Iterator[Said]:
    """Yield what is said in conversations, again and again; from the second time on some words are others."""
    chance, moment = random.Random(7), 0.0
    vocabulary = [word for talk in talks for text, _ in said_in(talk)[:50] for word in text.split()]
    for again in count():
        for talk in talks:
            parted = [False, *(a != b for a, b in pairwise(talk.sessions))]
            for (text, _), opens in zip(said_in(talk), parted, strict=True):
                moment += 43_200 if opens else 30
                words = text.split()
                for _ in range(-(-len(words) // REPLACED) if again else 0):
                    words[chance.randrange(len(words))] = chance.choice(vocabulary)
                yield " ".join(words), moment


def made_up() -> Iterator[Said]:
    """Yield messages that nobody said."""
    for message in latency.conversation(max(SIZES)):
        assert message.created_at is not None
        yield message.content, message.created_at.timestamp()


def measure_times(index: Index, said: Iterable[Said], size: int, questions: Sequence[str]) -> dict[str, float]:
    """Return the figures of an index of so many messages."""
    building, parts = 0.0, iter(said)
    for first in range(0, size, BATCH):
        part = list(islice(parts, min(BATCH, size - first)))
        start = time.process_time()
        index.add(part)
        building += time.process_time() - start
    start = time.process_time()
    size_in_bytes = index.finish()
    building += time.process_time() - start
    index.best(questions[0], TOP_K)
    taken = []
    for question in questions:
        start = time.thread_time()
        index.best(question, TOP_K)
        taken.append((time.thread_time() - start) * 1000)
    return {
        "build s": building, "MB": size_in_bytes / 1e6, "p50 ms": latency.p50(taken), "p95 ms": latency.p95(taken)
    }  # fmt: skip


def measure_quality(talks: Sequence[Talk], folder: str) -> dict[str, list[Score]]:
    """Return the scores of each index for each question."""
    scores: dict[str, list[Score]] = {}
    for talk in talks:
        for name, index in indexes(folder).items():
            index.add(said_in(talk))
            index.finish()
            for question in talk.questions:
                ranking = [Piece((place,), talk.tokens[place]) for place in index.best(question.text, RANKED)]
                scores.setdefault(name, []).append(score_ranking(talk, question, ranking))
    return scores


def summary(scores: Sequence[Score]) -> dict[str, float]:
    """Return the means in per cent."""
    kept = {f"in {budget:,}": 100 * fmean(s.kept[BUDGETS.index(budget)] for s in scores) for budget in SHOWN}
    return kept | {"NDCG@10": 100 * fmean(s.ndcg_10 or 0.0 for s in scores)}


def print_table(first: str, rows: Sequence[tuple[str, str, Mapping[str, float]]]) -> None:
    """Print figures, a line for each (what they are about, method, figures)."""
    print(f"\n| {first} | | " + " | ".join(rows[0][2]) + " |\n|---|---|" + " ---: |" * len(rows[0][2]))
    for about, method, figures in rows:
        shown = (f"{value:,.1f}" if value >= 10 else f"{value:.2f}" for value in figures.values())
        print(f"| {about} | {method} | " + " | ".join(shown) + " |")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, metavar="N", help="numbers of messages")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N conversations of each file")
    parser.add_argument("--json", type=Path, help="write the figures")
    arguments = parser.parse_args(argv)
    counter = as_counter("o200k_base")
    files = [read_talks(path, counter, arguments.first) for path in arguments.files]
    talks = [talk for file in files for talk in file]
    questions = [question.text for talk in talks for question in talk.questions]
    if not talks:
        questions = [" ".join(m.content.split()[:9]) for m in latency.conversation(4 * QUESTIONS, seed=11)]
    questions = random.Random(7).sample(questions, min(QUESTIONS, len(questions)))
    times: list[tuple[str, str, dict[str, float]]] = []
    quality: list[tuple[str, str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            for name, index in indexes(folder).items():
                said = said_again(talks) if talks else made_up()
                times.append((f"{size:,}", name, measure_times(index, said, size, questions)))
        for file in files:
            found = measure_quality(file, folder)
            quality += [(file[0].dataset, name, summary(scores)) for name, scores in found.items()]
    for title, rows in (("messages", times), ("data", quality)):
        if rows:
            print_table(title, rows)
    if arguments.json:
        found_all: dict[str, Any] = {"times": times, "quality": quality}
        arguments.json.write_text(json.dumps(found_all) + "\n")


if __name__ == "__main__":
    main()
