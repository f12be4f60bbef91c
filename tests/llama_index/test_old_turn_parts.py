"""What only served one turn is set apart, and every message can be given back as it was."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.agent.workflow.prompts import DEFAULT_STATE_PROMPT
from llama_index.core.chat_engine.context import DEFAULT_CONTEXT_TEMPLATE
from llama_index.core.prompts.chat_prompts import CHAT_REFINE_PROMPT_TMPL_MSGS
from llama_index.core.prompts.default_prompts import (
    DEFAULT_REFINE_PROMPT_TMPL,
    DEFAULT_TEXT_QA_PROMPT_TMPL,
    DEFAULT_TREE_SUMMARIZE_TMPL,
)

from llama_index_infinite_memory.strippers import DEFAULT_STRIPPERS
from shared_core import Message
from shared_core.strippers import Stripper, set_apart
from shared_core.strippers import strip as strip_with


def strip(message: Message, strippers: Sequence[Stripper] = DEFAULT_STRIPPERS) -> Message:
    return strip_with(message, strippers)


PASSAGES = "Refunds take five days.\n\nQuery: this line stands in a passage.\n\nVouchers expire."
RAG = (
    "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the "
    f"question. Be short.\nQuestion: How long?\nContext: {PASSAGES}\nAnswer:"
)
STUFFED = (
    "Use the following pieces of context to answer the question at the end. Never make up an answer.\n\n"
    f"{PASSAGES}\n\nQuestion: How long?\nHelpful Answer:"
)
TAGGED = (
    "Answer the following question based only on the provided context:\n\n"
    f"<context>\n{PASSAGES}\n</context>\n\nQuestion: How long?"
)
REACT = "Thought: I need a tool.\nAction: add\nAction Input: {'a': 1}\nObservation: 2\nThought: I know.\nAnswer: Two."

USER = [
    (DEFAULT_TEXT_QA_PROMPT_TMPL.format(context_str=PASSAGES, query_str="How long?"), "How long?"),
    (DEFAULT_TEXT_QA_PROMPT_TMPL.format(context_str=PASSAGES, query_str="How\nlong?"), "How\nlong?"),
    (DEFAULT_TREE_SUMMARIZE_TMPL.format(context_str=PASSAGES, query_str="How long?"), "How long?"),
    (
        DEFAULT_REFINE_PROMPT_TMPL.format(context_msg=PASSAGES, query_str="How long?", existing_answer="Five."),
        "How long?",
    ),
    (
        str(CHAT_REFINE_PROMPT_TMPL_MSGS[0].content).format(
            context_msg=PASSAGES, query_str="How\nlong?", existing_answer="5"
        ),
        "How\nlong?",
    ),
    (DEFAULT_CONTEXT_TEMPLATE.format(context_str=PASSAGES) + "How long?", "How long?"),
    (TAGGED, "How long?"),
    (RAG, RAG[: RAG.index("\nContext:")]),
    (STUFFED, "How long?"),
    (f"Answer the question based only on the following context:\n{PASSAGES}\n\nQuestion: How long?\n", "How long?"),
    (f"Context:\n{PASSAGES}\n\nQuestion: How long?\nAnswer:", "How long?"),
    (DEFAULT_STATE_PROMPT.format(state={"step": 1}, msg="How long?"), "How long?"),
    (DEFAULT_STATE_PROMPT.format(state={}, msg=TAGGED), "How long?"),
]
KEPT = [
    "How long?",
    "",
    "Context: I am Tom and live in Lisbon.\n\nQuestion: what is my name?",  # a person's own words are to be recalled
    "Context information is below.",
    DEFAULT_TEXT_QA_PROMPT_TMPL.format(context_str=PASSAGES, query_str=""),
    f"<context>{PASSAGES}</context>",
    f"<context>\n{PASSAGES}\n</context>\n\nHow long?",  # a tag of their own
    f'How long?\n\n<documents>\n<document index="1">{PASSAGES}</document>\n</documents>\n',
    "Before <context>a</context> after",
    "Current state:\nfine",
    "The original query is as follows: none",
]


def test_what_a_user_pasted_is_set_apart(subtests: pytest.Subtests) -> None:
    for text, kept in USER:
        with subtests.test(text=text, kept=kept):
            stripped = strip(Message.user(text))
            assert stripped.content == kept
            assert stripped.grounding is not None
            assert stripped.whole == Message.user(text)
            for other in (Message.system(text), Message.assistant(text)):
                assert strip(other) == other, "only a user's message has pasted text"


def test_what_a_person_says_stays() -> None:
    for text in KEPT:
        assert strip(Message.user(text)) == Message.user(text)


def test_of_react_the_last_step_stays() -> None:
    stripped = strip(Message.assistant(REACT))
    assert stripped.content == "Thought: I know.\nAnswer: Two."
    assert stripped.whole == Message.assistant(REACT)


def of_a_tool(text: str) -> Message:
    return Message.tool(text, "1")


@pytest.mark.parametrize("make", [of_a_tool, Message.user])
def test_of_a_long_result_the_beginning_stays(make: Callable[[str], Message]) -> None:
    head = "Result of executing the code given:\n\n"
    short = make(head + "x" * (400 - len(head)))
    assert strip(short) == short
    long = make(head + "seven " * 61)
    stripped = strip(long)
    assert stripped.content == (head + "seven " * 61)[:198].rstrip() + " […]"
    assert stripped.whole == long


PIECES = st.sampled_from(
    [
        "Thought: ", "\nThought: ", "\nAction: ", "\nObservation: ", "\nAnswer: ", "Current state:\n", " […]", "\n\n",
        "\n\nCurrent message:\n", "Context information is below.\n", "---------------------\n", "\nQuery: ", "\n", " ",
        "Question: ", "\nContext: ", "<context>", "</context>", "<documents>", "\n</documents>", "x" * 401,
        "Result of executing the code given:", "The original query is as follows: ", "\ud800", "word " * 90,
        "\nWe have provided an existing answer: ", "Use the following pieces of context",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join)
MESSAGES = st.builds(
    lambda role, text: Message(role=role, content=text, tool_call_id="1" if role == "tool" else None),
    st.sampled_from(["system", "user", "assistant", "tool"]),
    TEXTS,
)


@given(MESSAGES)
def test_every_message_is_given_back_as_it_was(message: Message) -> None:
    stripped = strip(message)
    assert stripped.whole == message
    assert strip(stripped) == stripped
    assert bool(message.content.strip()) == bool(stripped.content.strip())


@given(MESSAGES, st.integers(0, 400), st.integers(0, 400), st.integers(0, 400), st.integers(0, 400))
def test_parts_of_parts_are_given_back_too(message: Message, start: int, end: int, then: int, until: int) -> None:
    once = set_apart(message, start, end)
    twice = set_apart(once, then, until)
    assert once.whole == twice.whole == message
    assert twice.content in once.content
