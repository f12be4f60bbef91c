"""The estimated cost of recalled messages beside their cost once they are written down and counted."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from shared_core.messages import Message
from shared_core.prompt.template import RecallEstimate, RecallTemplate
from shared_core.session.turns import Entry
from shared_core.tokens import as_counter, message_tokens

OVERHEAD = 4
DAY = datetime(2024, 5, 7, tzinfo=UTC)
WORDS = [
    "the",
    "harbour",
    "bridge",
    "opens",
    "at",
    "nine",
    "on",
    "4",
    "June",
    "and",
    "Ann's",
    "piano",
    "was",
    "moved;",
    "why",
    "not,",
    "she",
    "said",
]
TIMED = RecallTemplate(day="", item="[{time}] {speaker} said: {text}")


def talk(random: Random) -> list[Message]:
    """Return messages of three days, some with names, some that end a sentence."""
    texts = [
        " ".join(random.choices(WORDS, k=random.randint(3, 30))) + random.choice(["", ".", "?"]) for _ in range(40)
    ]
    return [
        Message(role=random.choice(["user", "assistant"]), name=random.choice([None, "Ann"]), content=text,
                created_at=DAY + timedelta(hours=2 * number))
        for number, text in enumerate(texts)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counter", "template", "least", "most"),
    [
        ("o200k_base", RecallTemplate(), 0.99, 1.02),
        ("cl100k_base", RecallTemplate(), 0.99, 1.02),
        ("o200k_base", TIMED, 0.99, 1.1),
        ("characters/4", RecallTemplate(), 0.96, 1.04),
    ],
)
def test_it_is_about_right(counter: str, template: RecallTemplate, least: float, most: float) -> None:
    counts, random = as_counter(counter), Random(7)
    estimate = RecallEstimate(template, counts)
    shares = []
    for _ in range(20):
        said = talk(random)
        entries = [Entry(message, message_tokens(message, counts), 0, 0) for message in said]
        days = len({message.created_at.date() for message in said if message.created_at})
        about = estimate.wording + estimate.lines(entries) + estimate.day * days
        shares.append(about / counts(template.render(said) + "\n\n"))
    assert least <= min(shares) <= max(shares) <= most


def test_wording_that_is_not_there_costs_nothing() -> None:
    estimate = RecallEstimate(RecallTemplate(header="", footer="", day=""), as_counter("o200k_base"))
    assert (estimate.lines([]), estimate.day) == (0, 0)


@pytest.mark.parametrize("ends", ["\r\n", *"\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"])
def test_no_line_of_a_message_begins_where_a_message_would(ends: str) -> None:
    said = RecallTemplate().render_line(Message.user(f"one{ends}two{ends}"))
    assert said == "- user: one\n  two\n  "
    assert RecallTemplate(continuation="\n").render_line(Message.user(ends)) == "- user: \n"
