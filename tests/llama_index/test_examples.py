"""The examples for LlamaIndex and the code in docs/llama_index.md work as shown."""

import inspect
import re
from itertools import compress
from typing import Any

import pytest
from llama_index.core import llms
from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory import DEFAULT_STRIPPERS, EchoLLM, InfiniteChatMemoryBuffer, InfiniteMemoryBlock
from tests.support.documents import ROOT, Ran, blocks_of, run

SAID = {
    "llama_index_agent.py": [
        "> What is my locker code?\nYour locker code is 4471. (I was shown ",
        "> Remind me to buy chalk.\nReminder set: to buy chalk.\n128 messages are stored\n\n",
        "I see. (I was shown 3 messages.)\n4 messages are on 'what if'\n128 messages are on 'main'\n",
    ],
    "llama_index_chat.py": [
        "607 messages are stored\n",
        "my locker at the climbing hall is number 118 and the code is 4093.",
        " of 1300 tokens used\n",
        "**kiwi, cashew and pistachio**",
        "\n\n611 messages are stored\n",
    ],
    "llama_index_context.py": [
        "It says: Refunds take five working days.\n",
        "You said: My customer number is 4471.\n",
        "It says: Vouchers expire after a year.\n",
        "70 messages are stored, passages among the questions: False\n",
    ],
    "llama_index_workflow.py": [
        "1 whole and 0 shortened catalogues shown\n2 whole and 0 shortened catalogues shown\n",
        "1 whole and 3 shortened catalogues shown\n24 messages are stored, 4 catalogues\n",
        "\nQuestion 0: how heavy is a ladder?\n",
    ],
    "migration/llama_index_chat_memory_buffer.py": [
        "before: I was shown 111 messages, and nothing matches.\n",
        "\nnow: You said: My locker code is 4471.\nstored: 204 messages\n",
    ],
    "migration/llama_index_memory.py": ["with the block: True ", "\nwith the buffer: True "],
    "migration/llama_index_vector_memory.py": [
        "['My favourite town is Lisbon.', 'Noted.'] and ",
        " more\nuser: My favourite town is Lisbon.\nTrue\n",
    ],
}


PAGE = [
    "You said: My locker code is 4471.\n",
    "It is 2.\nIt is 6.\n['user', 'assistant', 'tool', 'assistant', 'user', 'assistant', 'tool', 'assistant']\n",
    "Dora, Ladder Street 5 1\n",
    "True False\n",
    "['dora'] [ChatMessage(",
    "[0.0, 0.0]\n",
]


WITH_TOOLS = "MockFunctionCallingLLM"
"""LlamaIndex's model that stands for one with tools; the oldest releases have none."""

OLD = f"this LlamaIndex has no {WITH_TOOLS}"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[Ran | None]:
    """What each example did, and then each block of the page; None: this LlamaIndex has no such model."""
    folder = tmp_path_factory.mktemp("scripts")
    scripts = [*(ROOT / "examples" / name for name in SAID), *blocks_of("docs/llama_index.md", folder)]
    known = [hasattr(llms, WITH_TOOLS) or WITH_TOOLS not in one.read_text(encoding="utf-8") for one in scripts]
    found = run([*compress(scripts, known)], folder)
    assert not any(one.err for one in found)
    results = iter(found)
    return [next(results) if one else None for one in known]


def test_an_example_runs_without_a_network_and_leaves_no_file(ran: list[Ran | None], subtests: pytest.Subtests) -> None:
    for (name, expected), example in zip(SAID.items(), ran, strict=False):
        with subtests.test(name):
            if example is None:
                pytest.skip(OLD)
            assert [text for text in expected if text not in example.out] == []
            assert all(int(total) <= int(limit) for total, limit in re.findall(r"(\d+) of (\d+) tokens", example.out))
            assert example.files == []


def test_a_block_of_the_page_runs(ran: list[Ran | None], subtests: pytest.Subtests) -> None:
    for number, (expected, block) in enumerate(zip(PAGE, ran[len(SAID) :], strict=True)):
        with subtests.test(number=number):
            if block is None:
                pytest.skip(OLD)
            assert expected in block.out


def test_every_example_and_block_is_run(ran: list[Ran | None]) -> None:
    found = (ROOT / "examples").rglob("llama_index_*.py")
    assert {path.relative_to(ROOT / "examples").as_posix() for path in found} == set(SAID)
    assert len(ran) == len(SAID) + len(PAGE)


def test_the_page_names_every_argument() -> None:
    page = (ROOT / "docs" / "llama_index.md").read_text(encoding="utf-8")
    words = {word for code in re.findall(r"`[^`]*`", page) for word in re.findall(r"\w+", code)}
    makers: list[Any] = [InfiniteChatMemoryBuffer.from_defaults, InfiniteMemoryBlock.__init__]
    for made in makers:
        assert set(inspect.signature(made).parameters) <= words | {"self", "kwargs", "settings"}
    assert {stripper.name.upper() for stripper in DEFAULT_STRIPPERS} <= words


# The model that stands for one


def test_the_echo_says_which_line_matches_word_by_word_in_a_stream() -> None:
    model = EchoLLM()
    messages = [
        ChatMessage(role="system", content="Be brief.\nRefunds take five days."),
        ChatMessage(role="user", content="My locker code is 4471."),
        ChatMessage(role="assistant", content="You said: the locker is for refunds"),
        ChatMessage(role="user", content="And what of the refunds, and the locker?"),
    ]
    assert model.chat(messages).message.content == "You said: My locker code is 4471."
    streamed = list(model.stream_chat(messages))
    assert "".join(part.delta or "" for part in streamed) == streamed[-1].message.content
    assert streamed[-1].message.content == model.chat(messages).message.content
    assert model.chat(messages[:1]).message.content == "I was shown 1 message, and no question."
    assert model.complete("Hello").text == "Noted. I was shown 1 message."
    assert [part.text for part in model.stream_complete("Hello")] == [model.complete("Hello").text]
    engine_s = "Rephrase it.\n\nChat History:\nnone\nFollow Up Input: And the locker?\nStandalone question:"
    assert model.complete(engine_s).text == "And the locker?"
    assert EchoLLM.class_name() == "EchoLLM"
