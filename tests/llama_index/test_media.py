"""Images and the like of older turns give way before any text does."""

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.sample_messages import PNG

PICTURE = ImageBlock(image=PNG)


def user(text: str, *media: object) -> ChatMessage:
    return ChatMessage(role="user", blocks=[TextBlock(text=text), *media])


def assistant(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def shown(messages: list[ChatMessage]) -> list[tuple[str, int]]:
    """The text of each message, and how many of its blocks are media."""
    return [(m.content or "", sum(block.block_type != "text" for block in m.blocks)) for m in messages]


def test_old_media_give_way_before_text_and_the_newest_are_always_sent() -> None:
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=2_600) as memory:
        for number in range(4):
            memory.put(user(f"What is on picture {number}?", PICTURE))
            sent = memory.get()
            assert shown(sent)[-1] == (f"What is on picture {number}?", 1)
            assert memory.explain().total_tokens <= 2_600
            memory.put(assistant(f"Number {number} shows a ladder."))
        # Two pictures fit, so the older ones are left out, and no text is.
        question = memory.get(input="Which of them is the tallest?")
        expected = [(f"What is on picture {number}?", 1) for number in range(4)]
        expected[:2] = [(f"What is on picture {number}?\n[media left out]", 0) for number in range(2)]
        assert shown(question)[::2] == expected
        assert [text for text, _ in shown(question)[1::2]] == [f"Number {n} shows a ladder." for n in range(4)]
        assert shown(memory.get_all())[::2] == [(f"What is on picture {number}?", 1) for number in range(4)]
        memory.put(user("And a fifth: " + "which " * 400, PICTURE))
        assert shown(memory.get())[0] == ("What is on picture 0?\n[media left out]", 0)
        assert [count for _, count in shown(memory.get())[::2]] == [0, 0, 0, 0, 1]


def test_media_of_the_newest_question_are_sent_although_they_do_not_fit() -> None:
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=200) as memory:
        memory.put_messages([user("My code is 4471."), assistant("Noted."), user("And this?", PICTURE)])
        assert shown(memory.get()) == [("And this?", 1)]
        memory.put_messages([assistant("A ladder."), user("What is on it?")])
        assert shown(memory.get())[-3:] == [("And this?\n[media left out]", 0), ("A ladder.", 0), ("What is on it?", 0)]
        assert shown(memory.get())[0] == ("My code is 4471.", 0)
