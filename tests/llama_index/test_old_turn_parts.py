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
from shared_core import InfiniteMemory, Message
from shared_core.strippers import PASTED_CONTEXT, Stripper, set_apart
from shared_core.strippers import strip as strip_with
from shared_core.tokens import CallableCounter


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


def test_other_replies_stay() -> None:
    for text in (
        "Thought: I know.\nAnswer: Two.",
        "Thought: I need a tool.\nAction: add\nAction Input: {}\nObservation: 2",
        "Two.\nObservation: it is",
    ):
        assert strip(Message.assistant(text)) == Message.assistant(text)


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


def test_what_came_with_grounding_keeps_it() -> None:
    message = Message.user(RAG, grounding="attached")
    assert strip(message) == message
    assert message.whole == message
    assert set_apart(message, 3, 8) == message


def test_the_list_is_the_users() -> None:
    message = Message.user(DEFAULT_STATE_PROMPT.format(state={}, msg=TAGGED))
    assert strip(message, ()) == message
    assert [stripper.name for stripper in DEFAULT_STRIPPERS] == [
        "state_prompts", "pasted_context", "react_observations", "execution_results", "tool_results",
    ]  # fmt: skip
    assert strip(message, [PASTED_CONTEXT]) == message
    signature = Stripper("signature", lambda given: set_apart(given, 0, given.content.find("\n--\n")))
    assert strip(Message.user("Hello\n--\nTom, Lisbon"), [signature]).content == "Hello"


def test_a_stripper_must_not_lose_text() -> None:
    losing = Stripper("losing", lambda message: message.replace(content=message.content[:1]))
    with pytest.raises(ValueError, match="'losing'"):
        strip(Message.user("hello"), [losing])


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


def test_old_turns_lose_it_and_nothing_is_lost() -> None:
    memory = InfiniteMemory(token_counter=CallableCounter(len, overhead=0), max_tokens=2_000, reserve_tokens=0)
    asked = [text for text, _ in USER[:3]]
    for text in asked:
        memory.add([strip(Message.user(text)), Message.assistant("Five days.")])
    memory.add(strip(Message.user(asked[0])))
    sent = [message.content for message in memory.context().messages]
    assert sent[:-1] == ["How long?", "Five days.", "How\nlong?", "Five days.", "How long?", "Five days."]
    assert all(passage in sent[-1] for passage in PASSAGES.split("\n\n"))
    assert [message.whole.content for message in memory.messages() if message.role == "user"] == [*asked, asked[0]]
    memory.close()
