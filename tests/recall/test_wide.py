"""What prompts hold for questions about many messages at once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Kind
from shared_core.recall.excerpts import EXCERPT_MARK, SHORTEST, excerpt_size, recalled_tokens

SIZES = st.lists(st.integers(0, 2_000), max_size=40).map(lambda sizes: np.array(sizes, dtype=np.float64))


@given(tokens=SIZES, room=st.integers(0, 5_000), most=st.integers(1, 400))
def test_excerpts_are_as_long_as_lets_all_fit(tokens: "np.ndarray[Any, Any]", room: int, most: int) -> None:
    def fits(size: int) -> bool:
        return bool(recalled_tokens(tokens, size).sum() <= room)

    sizes = range(min(SHORTEST, most), most + 1)
    assert excerpt_size(tokens, room, most) == max(filter(fits, sizes), default=sizes[0])


BOOKS = (
    "Dune", "Emma", "Ulysses", "Middlemarch", "Walden", "Candide", "Persuasion", "Beloved", "Ivanhoe", "Kim", "Carrie",
    "Utopia",
)  # fmt: skip
SAID = (
    "I finished the book {} last night and loved the ending.",
    "My aunt gave me {} today, a book I have wanted for years.",
    "Started reading {} on the train. The book is slower than I thought.",
    "{} was the book of the month in our club.",
)
FILLER = (
    "The gym was full again, so I went for a swim.",
    "My boss moved the budget meeting to Thursday.",
    "We had noodles and the children went to bed early.",
    "The car needs new tyres before the winter comes.",
    "I planted tomatoes behind the shed.",
)
REPLY = "That sounds like a full day. {} Take it easy tonight, drink enough water, and see how you feel tomorrow. "


def talk(*, long: bool = False) -> list[Message]:
    """Return a year in which a book comes up every month, among other things."""
    messages, day = [], datetime(2025, 1, 3, 18, tzinfo=UTC)
    for month, book in enumerate(BOOKS):
        for number in range(12):
            said = SAID[month % len(SAID)].format(book) if number == 5 else FILLER[(month + number) % len(FILLER)]
            heard = REPLY.format(said if number == 5 else "") * (8 if long else 1)
            key = f"{book}-{number}"
            messages += [
                Message.user(said, id=f"{key}-said", created_at=day),
                Message.assistant(heard, id=f"{key}-heard", created_at=day),
            ]
            day += timedelta(days=2)
        day += timedelta(days=6)
    return messages


def asked(question: str, *, max_tokens: int = 1_000, long: bool = False, **settings: Any) -> Context:
    with InfiniteMemory(reserve_tokens=0, max_tokens=max_tokens, **settings) as memory:
        memory.add(talk(long=long))
        return memory.context(question)


@pytest.mark.parametrize(
    ("question", "embedder"),
    [
        ("List all books I mentioned.", "static"),
        ("In which order did I bring up the books?", "words"),
        ("Summarise what I said about books.", "static"),
    ],
)
def test_a_list_question_finds_every_item_in_order_of_time(question: str, embedder: str) -> None:
    context = asked(question, embedder=embedder)
    prompt = context.messages[-1].content
    places = [prompt.find(book) for book in BOOKS]
    assert -1 not in places
    assert places == sorted(places)
    assert context.report.total_tokens <= 1_000


@pytest.mark.parametrize(
    "question", ["List all volcanoes in Iceland.", "Summarise the French Revolution.", "How many times did Rome burn?"]
)
def test_a_list_of_something_else_recalls_nothing(question: str) -> None:
    report = asked(question, embedder="static", max_tokens=4_000).report
    assert report.totals[Kind.RECALLED] == 0
    assert report.stopped.startswith("nothing recalled: ")


def excerpts(context: Context) -> dict[str | None, str]:
    """Return the excerpts in a prompt, without their marks, by message."""
    found: dict[str | None, str] = {}
    for line in context.report.included:
        if line.part and line.kind is Kind.RECALLED:
            mark = EXCERPT_MARK.format(text="", id=line.id)
            assert line.text.endswith(mark)
            found[line.id] = line.text.removesuffix(mark).removeprefix("… ").removesuffix(" …")
    return found


@pytest.mark.parametrize(("recall", "max_tokens"), [("balanced", 1_200), ("thorough", 3_000)])
def test_excerpts_are_parts_of_their_messages_and_stay_in_the_share(recall: str, max_tokens: int) -> None:
    context = asked("List all books I mentioned.", max_tokens=max_tokens, long=True, recall=recall, recall_tokens=0.8)
    said = {message.id: message.content for message in talk(long=True)}
    assert excerpts(context)
    assert all(part in said[id] for id, part in excerpts(context).items())
    assert context.report.totals[Kind.RECALLED] <= 0.8 * max_tokens
    assert context.report.total_tokens <= max_tokens


def test_an_ordinary_question_that_fills_its_share_has_excerpts_of_the_size_asked_for() -> None:
    question = "Which book did my aunt give me?"
    thorough, balanced = (
        asked(question, long=True, max_tokens=1_200, recall=recall) for recall in ("thorough", "balanced")
    )
    assert max(map(len, excerpts(thorough).values())) > max(map(len, excerpts(balanced).values()))
