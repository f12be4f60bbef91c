"""Older turns: long results whole while everything fits, and media given up from the oldest on, before any text."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.messages import CUT, Payload
from shared_core.prompt.window import MEDIA_LEFT_OUT, abridged, tokens_without_media, with_results, without_media
from shared_core.session.turns import Entry, Turn
from shared_core.strippers import TOOL_RESULTS, strip
from shared_core.tokens import body_tokens

PICTURE = Payload(format="test/1", data={"image": "..."})
LONG = "w " * 300


def size(message: Message) -> int:
    return body_tokens(message, lambda text: len(text.split()))


def turn(number: int, *messages: Message) -> Turn:
    return Turn(f"t{number}", number, tuple(Entry(one, size(one), number, order) for order, one in enumerate(messages)))


def pictured(number: int, media: int = 50) -> Turn:
    return turn(
        number, Message.user("what is this", media_tokens=media, payload=PICTURE), Message.assistant("a ladder")
    )


def told(turns: Sequence[Turn]) -> list[list[tuple[str, int]]]:
    return [[(entry.message.content, entry.message.media_tokens) for entry in one.entries] for one in turns]


def never() -> int:
    raise AssertionError("the text fits, so recalled messages need no room")


def test_results_are_whole_only_while_everything_fits() -> None:
    result = strip(Message.tool(LONG, "1"), [TOOL_RESULTS])
    turns = [turn(1, Message.user("b")), turn(0, Message.user("a"), result)]
    needed = sum(map(size, (Message.user("b"), Message.user("a"), result.whole)))
    assert told(abridged(turns, size, room=needed, window=never)) == [[("b", 0)], [("a", 0), (LONG, 0)]]
    short = told(abridged(turns, size, room=needed - 1, window=never))
    assert short == told(turns)
    assert short[1][1][0].endswith(CUT)
    assert with_results(turns[0], size) is turns[0]


def test_what_an_assistant_thought_stays() -> None:
    thought = Message.assistant("so", media_tokens=9, payload=PICTURE)
    assert without_media(thought) is thought
    assert without_media(Message.user("hi")) == Message.user("hi")
    tool = Message.tool("", "1", media_tokens=9, payload=PICTURE)
    assert without_media(tool) == Message.tool(MEDIA_LEFT_OUT, "1")


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(0, 400), st.integers(0, 400))
def test_media_are_kept_from_the_newest_on(media: list[int], room: int, window: int) -> None:
    turns = [pictured(len(media) - number, tokens) for number, tokens in enumerate(media)]
    found = abridged(turns, size, room=room, window=lambda: window)
    assert [one.turn_id for one in found] == [one.turn_id for one in turns]
    larger = [old.entries[0].message.media_tokens > 3 for old in turns]  # than the note
    given_up = [new is not old for new, old, more in zip(found, turns, larger, strict=True) if more]
    assert all(new is old for new, old, more in zip(found, turns, larger, strict=True) if not more)
    assert given_up == sorted(given_up)
    assert all(tokens_without_media([one]) <= one.tokens for one in turns)
    if sum(one.tokens for one in turns) <= room:
        assert found == turns


def test_a_prompt_of_the_engine_gives_media_up_before_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://e.org/cat.png"}}
    with InfiniteMemory(max_tokens=1_500, reserve_tokens=0, embedder="words") as memory:
        for number in range(2):
            content = [{"type": "text", "text": f"What is {number}?"}, image]
            memory.add([{"role": "user", "content": content}, {"role": "assistant", "content": f"{number} is a cat."}])
        sent = memory.context("Which is older?").to_openai()
    assert [message["content"] for message in sent] == [
        f"What is 0?\n{MEDIA_LEFT_OUT}", "0 is a cat.", [{"type": "text", "text": "What is 1?"}, image], "1 is a cat.",
        "Which is older?",
    ]  # fmt: skip
