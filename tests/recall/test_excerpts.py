"""The excerpt of a long message that is recalled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, RecallTemplate
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Reason
from shared_core.recall.excerpts import WHOLE, excerpt

FILLER = "The weather was fine and we walked along the river for a while. "
texts = st.lists(
    st.sampled_from([FILLER, "ferry ", "The locker code is 4471.\n", "東京の旅行は四月です。", "\n\n", "x" * 60, " "]),
    max_size=30,
).map("".join)


def characters(text: str) -> int:
    return len(text)


@given(
    text=texts, words=st.lists(st.sampled_from(["ferri", "ferr", "locker", "旅行", "code"])), size=st.integers(1, 90)
)
def test_an_excerpt_is_a_part_of_the_text_and_no_longer_than_asked(text: str, words: list[str], size: int) -> None:
    found = excerpt(text, words, size, characters, len(text))
    assert (found is None) == (len(text) <= WHOLE * size)
    if found is not None:
        part = found.removeprefix("… ").removesuffix(" …")
        assert part in text
        assert len(found) <= max(size, 5)
        assert found.startswith("… ") or text.lstrip().startswith(part)


def test_it_is_the_passage_with_most_of_the_words(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, list[str], str]] = [
        (FILLER * 9 + "The locker code is 4471. " + FILLER * 9, ["locker", "code"], "The locker code is 4471."),
        (FILLER * 9 + "My code. " + FILLER * 9 + "The locker code is 4471. " + FILLER, ["locker", "code"], "4471"),
        ("the plan\n" + FILLER * 9, ["nothing"], "the plan\n"),
        ("the plan\n" + FILLER * 9, [], "the plan\n"),
        ("木の話。" * 60 + "東京の旅行は四月です。" + "木の話。" * 60, ["東京", "旅行"], "東京の旅行は四月です。"),
        (FILLER * 9 + "The battery is flat. " + FILLER * 9, ["batteri"], "battery"),
        (FILLER * 9 + "We are moving house. " + FILLER * 9, ["move", "hous"], "moving"),
        (FILLER * 9 + "Weiß: the LOCKER is 4471. " + FILLER * 9, ["locker"], "4471"),
        (FILLER * 9 + "The lamas spit. " + FILLER * 9 + "The lamp is new. " + FILLER * 3, ["lamp"], "lamp"),
        (FILLER * 9 + "relocker " + FILLER * 9 + "lockers! " + FILLER * 3, ["locker"], "lockers!"),
    ]
    for text, words, found in rows:
        with subtests.test(text=text, words=words, found=found):
            passage = excerpt(text, words, 150, characters, len(text))
            assert passage is not None
            assert found in passage
            assert len(passage) <= 150


def test_it_begins_and_ends_between_sentences() -> None:
    text = FILLER * 9 + "The code is 4471. " + FILLER * 9
    passage = excerpt(text, ["code"], 160, characters, len(text))
    assert passage == f"… The code is 4471. {FILLER}{FILLER.strip()} …"


def test_it_reaches_the_end_of_the_text() -> None:
    text = FILLER * 9 + "The code is 4471. It is new. Keep it"
    assert excerpt(text, ["code"], 60, characters, len(text)) == "… The code is 4471. It is new. Keep it"


def test_of_equal_passages_it_is_the_first() -> None:
    text = "".join(f"{FILLER * 3}The code is {number}. {FILLER * 3}" for number in (4471, 4472))
    passage = excerpt(text, ["code"], 100, characters, len(text))
    assert passage is not None
    assert "4471" in passage


LONG = FILLER * 60 + "The locker code at the climbing hall is 4093. " + FILLER * 60


def asked(**arguments: object) -> Context:
    talk = [Message.user("hello"), Message.assistant(LONG, id="long")]
    talk += [Message.user(f"number {number} of the things we speak of") for number in range(60)]
    given: dict[str, object] = {"max_tokens": 700, "reserve_tokens": 0, "embedder": "words"}
    with InfiniteMemory(**given | arguments) as memory:  # type: ignore[arg-type]
        memory.add(talk)
        return memory.context("what is the code of my locker?")


def test_a_long_message_comes_back_in_part_and_the_report_says_so() -> None:
    context = asked()
    prompt = context.messages[-1].content
    assert "The locker code at the climbing hall is 4093." in prompt
    assert "(excerpt of message long)" in prompt
    [line] = [line for line in context.report.lines if line.id == "long"]
    assert (line.included, line.reason, line.part) == (True, Reason.RECALLED, True)
    assert 0 < line.tokens < 150
    assert context.report.total_tokens <= 700


def test_or_whole_or_not_at_all() -> None:
    whole = RecallTemplate(excerpt_tokens=None)
    [line] = [line for line in asked(recall_template=whole).report.lines if line.id == "long"]
    assert (line.included, line.reason) == (False, Reason.NO_ROOM)
    context = asked(recall_template=whole, max_tokens=6_000, recall_tokens=5_000)
    assert LONG.strip() in context.messages[0].content or any(message.content == LONG for message in context.messages)
