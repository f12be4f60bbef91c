"""Search finds messages by the words of their grounding; recall does not."""

from collections.abc import Iterator
from math import log1p
from pathlib import Path
from statistics import mean

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.index.text import terms
from shared_core.prompt.hits import Hit
from shared_core.recall.rank import with_grounding_hits
from shared_core.strippers import PASTED_CONTEXT, TOOL_RESULTS

DOCUMENT = "The voucher expires in March. Ladders weigh twelve kilos."


def pasted(text: str, question: str) -> str:
    return f"Context information is below.\n-----\n{text}\n-----\nQuery: {question}\nAnswer: "


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    with InfiniteMemory(embedder="words", strippers=[PASTED_CONTEXT, TOOL_RESULTS], max_tokens=900) as made:
        yield made


def ids(memory: InfiniteMemory, query: str, **arguments: object) -> list[str | None]:
    return [hit.message.id for hit in memory.search(query, **arguments)]  # type: ignore[arg-type]


def test_a_message_is_found_by_what_is_set_apart_and_by_what_it_carries(memory: InfiniteMemory) -> None:
    memory.add(
        [
            Message.user(pasted(DOCUMENT, "What now?"), id="pasted"), Message.assistant("Wait.", id="a"),
            Message.user("And then?", grounding="The ferry leaves at noon.", id="grounded"),
            Message.tool("Rungs. " * 60 + "The last one is dented.", "1", id="tool"),
        ]
    )  # fmt: skip
    assert ids(memory, "voucher march") == ["pasted"]
    assert ids(memory, "ferry noon") == ["grounded"]
    assert ids(memory, "dented") == []
    assert ids(memory, "dented", role="tool") == ["tool"]
    assert ids(memory, "zeppelin") == []
    (hit,) = memory.search("the voucher")
    assert (hit.source, hit.message.content, hit.dense) == ("grounding", "What now?", None)
    assert hit.message.whole.content == pasted(DOCUMENT, "What now?")
    # BM25 over the three messages that carry something; rare among all four is what weighs more.
    lengths = [sum(terms(one.grounding.text).values()) for one in memory.messages() if one.grounding is not None]
    assert len(lengths) == 3
    weight = 1 / (0.25 + 0.75 * lengths[0] / mean(lengths))
    assert hit.score == pytest.approx(1.9 * weight / (weight + 0.9), rel=1e-5)
    found, missing = log1p(3.5 / 1.5), log1p(4.5 / 0.5)
    (half,) = memory.search("voucher zeppelin")
    assert half.score == pytest.approx(hit.score * found / (found + missing), rel=1e-5)


def test_it_finds_what_the_branch_begins_with_and_nothing_of_other_branches(memory: InfiniteMemory) -> None:
    memory.add([Message.user("What?", id="first", grounding=DOCUMENT), Message.assistant("Wait.")])
    memory.fork("side")
    memory.add(Message.user("And?", id="side", grounding=DOCUMENT))
    memory.checkout("main")
    memory.add(Message.user("And then?", id="main", grounding="The voucher is lost."))
    assert ids(memory, "voucher ladders") == ["first", "main"]
    assert ids(memory, "voucher ladders", as_of="first") == ["first"]


def test_recall_does_not_look_there(memory: InfiniteMemory) -> None:
    memory.add([Message.user(pasted(DOCUMENT, "What now?"), id="q"), Message.assistant("Wait.")])
    memory.add([message for _ in range(40) for message in (Message.user("so " * 20), Message.assistant("well " * 20))])
    context = memory.context("When does the voucher expire?")
    assert "q" not in [line.id for line in context.report.best]
    assert ids(memory, "voucher expires") == ["q"]


def test_the_words_are_kept_in_a_snapshot_and_left_with_what_is_forgotten(tmp_path: Path) -> None:
    settings = {"embedder": "words", "strippers": [PASTED_CONTEXT]}
    with InfiniteMemory(tmp_path / "a.db", **settings) as first:  # type: ignore[arg-type]
        first.add([Message.user(pasted(DOCUMENT, f"Question {n}?"), id=f"m{n}") for n in range(3)])
        first.index()
    with InfiniteMemory(tmp_path / "a.db", **settings) as second:  # type: ignore[arg-type]
        assert ids(second, "voucher") == ["m2", "m1", "m0"]
        second.add(Message.user(pasted("Vouchers again.", "More?"), id="m3"))
        assert ids(second, "voucher")[0] == "m3"  # it says it in fewer words
        second.checkout("m1")
        assert ids(second, "voucher") == ["m1", "m0"]
        second.forget(ids=["m1"])
        assert ids(second, "voucher") == ["m0"]


def ranked(index: int, score: float, *, lexical: float = 0.0, dense: float | None = None) -> Hit:
    return Hit((0, index), score, lexical, dense)


def hit(index: int, share: float) -> Hit:
    return Hit((0, index), share, share, grounding=True)


def test_a_hit_comes_before_what_matches_less_and_scores_never_rise() -> None:
    found = [ranked(1, 2.0, lexical=0.8), ranked(2, 1.5, dense=0.4), ranked(3, 1.0, lexical=0.1)]
    merged = with_grounding_hits(found, [hit(4, 0.9), hit(5, 0.5), hit(3, 0.3), hit(6, 0.2), hit(2, 0.15)])
    assert [(one.place[1], one.score, one.grounding) for one in merged] == [
        (4, 2.0, True), (1, 2.0, False), (5, 1.5, True), (2, 1.5, False), (3, 1.0, True), (6, 1.0, True),
    ]  # fmt: skip
    assert with_grounding_hits([], [hit(1, 0.5), hit(2, 0.4)]) == [hit(1, 0.5), hit(2, 0.4)]
    assert with_grounding_hits(found, []) == found
    assert [one.score for one in with_grounding_hits([ranked(1, -1.0, lexical=0.9)], [hit(2, 0.5)])] == [-1.0, -1.0]
