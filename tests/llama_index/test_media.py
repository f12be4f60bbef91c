"""Images, sound and files cost what the buffer is told, and those of older turns give way before any text does."""

import pytest
from llama_index.core.base.llms.types import AudioBlock, ChatMessage, DocumentBlock, ImageBlock, TextBlock
from llama_index.core.memory import Memory

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.llama_index.sample_messages import PNG

PDF = DocumentBlock(data=b"%PDF-1.7 \0\xff", title="report")
PICTURE = ImageBlock(image=PNG)
SOUND = AudioBlock(audio=b"RIFF\0\0WAVE", format="wav")


def user(text: str, *media: object) -> ChatMessage:
    return ChatMessage(role="user", blocks=[TextBlock(text=text), *media])


def assistant(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def shown(messages: list[ChatMessage]) -> list[tuple[str, int]]:
    """The text of each message, and how many of its blocks are media."""
    return [(m.content or "", sum(block.block_type != "text" for block in m.blocks)) for m in messages]


def test_old_media_give_way_before_text_and_the_newest_are_always_sent() -> None:
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=700) as memory:
        for number in range(4):
            memory.put(user(f"What is on picture {number}?", PICTURE))
            sent = memory.get()
            assert shown(sent)[-1] == (f"What is on picture {number}?", 1)
            assert memory.explain().total_tokens <= 700
            memory.put(assistant(f"Number {number} shows a ladder."))
        # Two pictures fit, so the older ones are left out, and no text is.
        question = memory.get(input="Which of them is the tallest?")
        expected = [(f"What is on picture {number}?", 1) for number in range(4)]
        expected[:2] = [(f"What is on picture {number}?\n[media left out]", 0) for number in range(2)]
        assert shown(question)[::2] == expected
        assert [text for text, _ in shown(question)[1::2]] == [f"Number {n} shows a ladder." for n in range(4)]
        assert shown(memory.get_all())[::2] == [(f"What is on picture {number}?", 1) for number in range(4)]
        memory.put(user("And a fifth: " + "which " * 200, PICTURE))
        assert shown(memory.get())[0] == ("What is on picture 0?\n[media left out]", 0)
        assert [count for _, count in shown(memory.get())[::2]] == [0, 0, 0, 0, 1]


def test_media_of_the_newest_question_are_sent_although_they_do_not_fit() -> None:
    with InfiniteChatMemoryBuffer.from_defaults(token_limit=200) as memory:
        memory.put_messages([user("My code is 4471."), assistant("Noted."), user("And this?", PICTURE)])
        assert shown(memory.get()) == [("And this?", 1)]
        memory.put_messages([assistant("A ladder."), user("What is on it?")])
        assert shown(memory.get())[-3:] == [("And this?\n[media left out]", 0), ("A ladder.", 0), ("What is on it?", 0)]
        assert shown(memory.get())[0] == ("My code is 4471.", 0)


def test_what_media_cost_is_said_by_the_names_of_memory() -> None:
    names = [f"{kind}_token_size_estimate" for kind in ("image", "audio", "video", "document")]
    defaults = {name: Memory.model_fields[name].default for name in names if name in Memory.model_fields}
    with (
        InfiniteChatMemoryBuffer.from_defaults() as plain,
        InfiniteChatMemoryBuffer.from_defaults(**defaults) as same,
        InfiniteChatMemoryBuffer.from_defaults(image_token_size_estimate=1_000, document_token_size_estimate=9) as ours,
    ):
        for memory in (plain, same, ours):
            memory.put_messages([user("", PICTURE, PDF), user("", SOUND)])
            memory.get()
        sizes = [plain, same, ours]
        assert [one.explain().total_tokens for one in sizes[:2]] == [one.explain().total_tokens for one in sizes[1::-1]]
        assert ours._conversation.memory.newest(2)[0].media_tokens == 1_009
        assert plain._conversation.memory.newest(2)[0].media_tokens == 256 + 2048
        assert plain._conversation.memory.newest(1)[0].media_tokens == 256
    with pytest.raises(ValueError, match="image_token_size_estimate=-1"):
        InfiniteChatMemoryBuffer.from_defaults(image_token_size_estimate=-1)
