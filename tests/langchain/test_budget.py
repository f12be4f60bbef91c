"""How large prompts may be: by profile, share and number, by what providers count, and after they refused one."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core import exceptions
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import Field

from langchain_infinite_memory.budget import OVERFLOW, UNKNOWN, Budget, MaxTokens, must_send, shrunk_tokens
from shared_core.prompt.report import ContextReport, ReportLine
from shared_core.results import Kind, Reason


class Named(FakeListChatModel):
    """A model with a name, and perhaps a profile."""

    model_name: str
    responses: list[str] = Field(default_factory=list)
    profile: Any = None


GPT = Named(model_name="gpt-4o-mini", profile={"max_input_tokens": 128_000})
CLAUDE = Named(model_name="claude-sonnet-4-5", profile={"max_input_tokens": 200_000})
OWN = Named(model_name="my-own")


class TooLarge(Exception):
    """Stands for LangChain's own error, which the oldest releases do not have."""


def openai() -> Any:
    return pytest.importorskip("langchain_openai").ChatOpenAI(model="gpt-4o-mini", api_key="no-key")


def azure() -> Any:
    known = pytest.importorskip("langchain_openai").AzureChatOpenAI
    return known(model="gpt-4o", api_key="no-key", azure_endpoint="https://x.test", api_version="1")


def anthropic() -> Any:
    return pytest.importorskip("langchain_anthropic").ChatAnthropic(model="claude-sonnet-4-5", api_key="no-key")


def google() -> Any:
    known = pytest.importorskip("langchain_google_genai").ChatGoogleGenerativeAI
    return known(model="gemini-2.5-flash", google_api_key="no-key")


@pytest.mark.parametrize(
    ("made", "limit"), [(openai, 128_000), (azure, 128_000), (anthropic, 200_000), (google, 1_048_576)]
)
def test_the_profile_says_how_much_a_model_takes(made: Callable[[], Any], limit: int) -> None:
    model = made()
    assert Budget().tokens(model) == limit
    assert Budget().tokens(model.bind(temperature=0.5).with_retry(), extra=lambda: 50_000) == limit
    assert Budget(("fraction", 0.8)).tokens(model) == int(0.8 * limit)
    assert Budget(9_000).tokens(model, extra=lambda: 7_000) == 9_000


def test_a_share_of_an_unknown_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match="'my-own'"):
        Budget(("fraction", 0.8)).tokens(OWN)


def test_a_wrong_limit_is_an_error_at_once(subtests: pytest.Subtests) -> None:
    rows: list[Any] = [
        0,
        -1,
        1.5,
        True,
        "9",
        ("fraction", 0),
        ("fraction", 1.2),
        ("fraction", "x"),
        ("messages", 9),
        ("tokens", 9),
    ]
    for wrong in rows:
        with subtests.test(wrong=wrong), pytest.raises(ValueError, match="max_tokens="):
            Budget(wrong)


def answered(tokens: int) -> AIMessage:
    usage: Any = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    return AIMessage("well", usage_metadata=usage)


class Response:
    """What the handler of a middleware returns."""

    def __init__(self, *result: Any) -> None:
        self.result = result


def test_real_usage_calibrates_the_limit_per_model() -> None:
    budget = Budget()
    budget.observe(GPT, 10_000, answered(12_400))
    assert budget.tokens(GPT) == int(128_000 / 1.25), "rounded up to 5 %"
    assert budget.tokens(CLAUDE) == 200_000
    budget.observe(GPT.bind(stop=["x"]), 10_000, Response(answered(14_000), HumanMessage("x")))
    for _ in range(7):
        budget.observe(GPT, 10_000, answered(9_000))
        assert budget.tokens(GPT) == int(128_000 / 1.4), "the largest of the newest eight"
    budget.observe(GPT, 10_000, answered(9_000))
    assert budget.tokens(GPT) == int(128_000 / 0.9)


@given(
    limit=st.one_of(st.integers(1, 10**6), st.floats(0.01, 1).map(lambda share: ("fraction", share))),
    seen=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=20),
)
def test_the_factor_is_bounded_and_never_below_what_was_just_seen(
    limit: MaxTokens, seen: list[tuple[int, int]]
) -> None:
    budget, first = Budget(limit), Budget(limit).tokens(GPT)
    for estimated, real in seen:
        budget.observe(GPT, estimated, answered(real))
        found = budget.tokens(GPT)
        assert first // 2 <= found <= first / 0.8 + 1
        if estimated >= 1_000 and real <= 2 * estimated:
            assert found <= first * max(1.25, estimated / real) + 1
            assert found * real <= (first + 1) * estimated * 1.001 or real <= 0.8 * estimated


def report(total: int, reserve: int) -> ContextReport:
    return ContextReport(total, reserve, (ReportLine("q", "user", Kind.QUESTION, True, Reason.QUESTION, total, 0),))


REFUSED = {
    "prompt is too long: 210000 tokens > 200000 maximum": 200 / 210 * 0.95,
    "Error code: 400 - This model's maximum context length is 128,000 tokens. However, your messages resulted in "
    "160,000 tokens (150,000 in the messages, 10,000 in the functions). (context_length_exceeded)": 0.8 * 0.95,
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 340000 tokens.": 0.8 * 0.95,
    "Your input exceeds the context window of this model. (req_8812345678)": 2 / 3,
    "the limit is 9000; req_8812345678": 2 / 3,
    "": 2 / 3,
}


@pytest.mark.skipif(
    not hasattr(exceptions, "ContextOverflowError"), reason="this LangChain does not tell that a prompt is too large"
)
def test_an_overflow_is_langchains_own_error() -> None:
    assert (exceptions.ContextOverflowError,) == OVERFLOW


@pytest.mark.parametrize("text", REFUSED)
def test_after_an_overflow_a_prompt_is_as_much_smaller_as_the_error_says(text: str) -> None:
    assert shrunk_tokens(report(9_000, 1_000), TooLarge(text)) == int(10_000 * REFUSED[text])


def test_later_prompts_for_the_model_do_not_overflow_either() -> None:
    budget = Budget()
    assert budget.overflowed(OWN, report(9_000, 600), TooLarge("no")) == 6_400
    assert budget.tokens(OWN, extra=lambda: 9_000) == UNKNOWN + 9_000, "its limit is not known"
    error = TooLarge("maximum context length is 8000, but you sent 10000")
    assert budget.overflowed(OWN, report(9_000, 1_000), error) == 7_600
    assert budget.tokens(OWN, extra=lambda: 9_000) == int(8_000 / 1.1)
    assert budget.overflowed(GPT, report(95_000, 1_000), TooLarge("no")) == 64_000
    assert budget.tokens(GPT) == 64_000
    for _ in range(8):
        budget.observe(GPT, 50_000, answered(50_000))
    assert budget.tokens(GPT) == 128_000, "one prompt says nothing about those to come"


def test_a_prompt_that_older_text_does_not_make_too_large_is_the_callers() -> None:
    """Such as one with a document whose pages take far more than was counted."""
    budget, error = Budget(), TooLarge("212,000 tokens > 200,000 maximum")
    for size in ((2_500, 1_000), (100, 99_900)):
        with pytest.raises(TooLarge) as raised:
            budget.overflowed(GPT, report(*size), error)
        assert raised.value is error
    assert budget.tokens(GPT) == 128_000


def test_the_question_and_the_newest_tool_group_must_be_sent() -> None:
    messages = [
        HumanMessage("a"),
        AIMessage("b"),
        HumanMessage("c"),
        AIMessage("d"),
        ToolMessage("e", tool_call_id="1"),
        AIMessage("f"),
        ToolMessage("g", tool_call_id="2"),
        ToolMessage("h", tool_call_id="3"),
    ]
    assert must_send(messages) == [messages[2], *messages[5:]]
    assert must_send(messages[:5]) == messages[2:5]
    assert must_send(messages[:3]) == messages[2:3]
    assert must_send(messages[1:2]) == messages[1:2]
    assert must_send([]) == []
