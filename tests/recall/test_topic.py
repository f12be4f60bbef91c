"""A question is understood as the next message of its conversation, and by itself where it needs nothing else."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.prompt.hits import Kind
from shared_core.recall.query import (
    FADE,
    HEARD,
    borrowed_terms,
    in_conversation,
    lending,
    parse_query,
    points_back,
    tells,
    towards,
)

WORDS = ["boiler", "plumber", "roses", "Lisbon", "marathon", "violin", "passport", "hamster", "lantern", "glacier"]


def test_a_message_that_says_something_is_told_from_a_question(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, bool]] = [
        ("The draft is done. What is next?", True),
        ("I'm back from the dentist", True),
        ("Which roses did Ann plant?", False),
        ("List the books I mentioned.", False),
        ("Please summarise what we said on roses. What came first?", False),
        ("locker code", False),
        ("", False),
        ("...?!", False),
        ("\u30d0\u30e9\u304c\u54b2\u3044\u305f\u3002\u6b21\u306f\uff1f", True),
        ("\u6b21\u306f\uff1f", False),
    ]
    for text, says in rows:
        with subtests.test(text=text, says=says):
            assert tells(text) is says


def test_only_a_question_with_few_words_of_its_own_points_back(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, bool]] = [
        ("And how much was it?", True),
        ("what about the price", True),
        ("Who recommended her?", True),
        ("and the second one?", True),
        ("and the price?", True),
        ("what about the roses of Lisbon?", False),
        ("When did Ann sell her boat?", False),
        ("lol", False),
        ("haha, that's so true", False),
        ("Which roses did Ann plant beside the shed?", False),
        ("When did it rain on the marathon in Lisbon?", False),
        ("How are you today?", False),
    ]
    for text, back in rows:
        with subtests.test(text=text, back=back):
            assert points_back(parse_query(text, [])) is back


def test_terms_of_the_newest_messages_join_with_less_weight() -> None:
    query = parse_query("and how much was it?", [])
    most = 0.9
    assert borrowed_terms([("a boiler", 1.0)], query) == (("boiler", most),)
    # A message with four terms lends each a half, an older one with one term lends it a half as well.
    assert dict(borrowed_terms([("roses", 0.5), ("boiler plumber roses Monday", 1.0)], query)) == pytest.approx(
        {"rose": most, "boiler": most / 2, "monday": most / 2, "plumber": most / 2}
    )
    assert borrowed_terms([("ok great, thanks", 1.0), ("lol", 1.0)], query) == ()
    assert in_conversation(query, [("a boiler", 1.0)]).words == ("much", "boiler")
    assert in_conversation(query, []).words == ("much",)


def test_a_user_says_what_a_talk_is_about() -> None:
    assert lending([]) == []
    assert lending([False, True]) == [FADE, HEARD]
    assert lending([False, True, False]) == [FADE**2, FADE * HEARD, 1.0]


def test_a_vector_turns_towards_the_newest() -> None:
    east, north, up = np.eye(3, dtype=np.float32)
    assert towards(east, np.empty((0, 3), np.float32), [], 0.9).tolist() == [1, 0, 0]
    assert towards(east, np.stack([north]), [1.0], 0.0).tolist() == [1, 0, 0]
    turned = towards(east, np.stack([up, north]), [FADE, 1.0], 1.0)
    topic = np.array([0, 1, FADE]) / np.hypot(1, FADE)
    assert turned == pytest.approx((np.array([1, 0, 0]) + topic) / np.sqrt(2), abs=1e-6)


SMALL_THINGS = [
    ("The weather was lovely in the garden today.", "Nice, did the roses bloom?"),
    ("We watched a film about whales.", "Which one was it?"),
    ("My sister called from Lisbon.", "How is she doing?"),
    ("I baked bread with rye flour.", "Did it rise well?"),
    ("The train was late again.", "Annoying, how long did you wait?"),
    ("I ran five kilometres along the river.", "Great pace!"),
]


@pytest.fixture(scope="module")
def memory() -> Iterator[InfiniteMemory]:
    """A talk that comes back to the boiler after many other things."""
    memory = InfiniteMemory(embedder="static", max_tokens=420, reserve_tokens=0)
    memory.add([
        Message.user("The plumber sent the quote for the new boiler: 3,200 euros with installation.", id="price"),
        Message.assistant("That is a fair price for such a boiler."),
    ])  # fmt: skip
    for day in range(6):
        for told, reply in SMALL_THINGS:
            memory.add([Message.user(f"{told} That was on day {day}."), Message.assistant(f"{reply} ({day})")])
    memory.add([
        Message.user("The plumber will come on Monday to put the boiler in."),
        Message.assistant("Good, then the boiler will be running before the frost."),
    ])  # fmt: skip
    memory.index()
    with memory:
        yield memory


def recalled(memory: InfiniteMemory, question: str) -> list[str | None]:
    return [line.id for line in memory.context(question).report.included if line.kind == Kind.RECALLED]


@pytest.mark.parametrize("question", ["And how much was it?", "and how much?"])
def test_a_question_that_points_back_recalls_what_the_talk_is_about(memory: InfiniteMemory, question: str) -> None:
    assert "price" in recalled(memory, question)
    assert "price" not in [hit.message.id for hit in memory.search(question, 6)]
    assert "price" in [hit.message.id for hit in memory.search(question, 6, in_conversation=True)]


@pytest.mark.parametrize(
    "text", ["lol", "thanks!", "haha, isn't it", "How are you today?", "And what is the capital of Australia?"]
)
def test_small_talk_and_another_topic_recall_nothing_after_the_boiler_either(memory: InfiniteMemory, text: str) -> None:
    assert recalled(memory, text) == []


@given(st.lists(st.sampled_from(WORDS), min_size=3, max_size=5, unique=True))
def test_a_question_with_words_of_its_own_is_searched_as_without_the_talk(
    memory: InfiniteMemory, asked: list[str]
) -> None:
    question = f"When did it happen to the {' and the '.join(asked)}?"
    assert memory.search(question, in_conversation=True) == memory.search(question)


def test_a_message_that_goes_on_finds_how_its_sittings_began() -> None:
    with InfiniteMemory(embedder="static") as memory:
        for day in range(1, 9):
            topic = "pergola" if day % 2 else "tax return"
            at = f"2026-03-{day:02}T10:00"
            memory.add([
                Message.user(f"Let us look at the {topic} again.", id=f"open-{day}", created_at=at),
                Message.assistant(f"Gladly. For the {topic}, beams or forms first?", created_at=at),
                Message.user("The first, of course, sharp as ever.", created_at=at),
                Message.assistant(f"Then the plan for the {topic} is set.", created_at=at),
            ])  # fmt: skip
        memory.index()
        text = "The pergola stands. What comes next?"
        assert [hit.message.id for hit in memory.search(text, 3, in_conversation=True)] == [
            "open-7",
            "open-5",
            "open-3",
        ]
        assert memory.search("Which pergola?", in_conversation=True) == memory.search("Which pergola?")


def test_a_message_that_goes_on_is_answered_by_what_many_messages_hold_together() -> None:
    told = ["The boiler in our cellar leaks again.", "My knee hurts when I run downhill."]
    told += ["The dentist wants to see Romy in June.", "We booked the ferry to Corsica."]
    told += ["The violin teacher costs 60 francs.", "Our garden fence needs paint."]
    with InfiniteMemory(embedder="static", max_tokens=900, reserve_tokens=100) as memory:
        for number in range(72):
            if number % 12 == 0:
                text = told[number // 12]
                memory.add([Message.user(text, id=text[:10]), Message.assistant("Noted.")])
            memory.add([
                Message.user(f"Today I read chapter {number} of the novel about the lighthouse."),
                Message.assistant(f"Chapter {number} is about the storm."),
            ])  # fmt: skip
        memory.index()
        done = "I called the plumber for the boiler, wrote to the dentist, painted half of the fence"
        found = recalled(memory, f"{done} and paid the violin teacher. What is left for me?")
        assert {"The boiler", "The violin"} <= set(found)
        other = "I sold my stamps, mended the radio, wrote to the bank and cleaned the windows. What is left for me?"
        assert recalled(memory, other) == []
