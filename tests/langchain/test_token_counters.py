"""Token counters as LangChain users give them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_infinite_memory import as_token_counter
from shared_core.tokens import ConservativeCounter, TiktokenCounter, TokenFallbackWarning

SPECIAL = "<|endoftext|>"


def plain_model() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage("ok")]))


# Of texts


def test_what_the_engine_takes_is_passed_on() -> None:
    own = ConservativeCounter()
    assert as_token_counter(own) is own
    assert as_token_counter("cl100k_base").name == TiktokenCounter("cl100k_base").name
    assert as_token_counter(lambda text: len(text.split()))("a b c") == 3
    assert as_token_counter(lambda text: 1).name is None


@given(st.text())
def test_approximate_is_langchains_for_a_message(text: str) -> None:
    framing, role = 3, len("user")
    one = count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=framing)
    assert one == framing + as_token_counter("approximate")("x" * role + text)


def test_another_model_is_not_asked() -> None:
    class Remote(FakeListChatModel):
        responses: list[str] = ["ok"]  # noqa: RUF012 - a field of the model

        def get_num_tokens(self, text: str) -> int:
            raise AssertionError("a request")

    for model in (Remote(), plain_model()):
        with pytest.warns(TokenFallbackWarning, match=f"{type(model).__name__} is not asked to count tokens"):
            count = as_token_counter(model)
        assert count("one two three") == ConservativeCounter()("one two three")


@pytest.mark.parametrize("own", [True, False])
def test_a_tokenizer_given_to_a_model_is_used(own: bool) -> None:
    openai = None if own else pytest.importorskip("langchain_openai")
    model = plain_model() if openai is None else openai.ChatOpenAI(model="gpt-4o", api_key="none")
    model.custom_get_token_ids = lambda text: [ord(letter) for letter in text]
    assert as_token_counter(model)("abc") == 3


@pytest.mark.parametrize(
    ("model", "table"),
    [
        ({"model": "gpt-4o"}, "o200k_base"),
        ({"model": "gpt-4"}, "cl100k_base"),
        ({"model": "my-own", "tiktoken_model_name": "gpt-4"}, "cl100k_base"),
        ({"model": "my-own"}, "o200k_base"),
    ],
)
@pytest.mark.parametrize("kind", ["ChatOpenAI", "OpenAI"])
def test_a_model_of_openai_is_counted_with_its_table(kind: str, model: Any, table: str) -> None:
    counter = as_token_counter(getattr(pytest.importorskip("langchain_openai"), kind)(**model, api_key="none"))
    assert counter.name == TiktokenCounter(table).name
    assert counter(f"one {SPECIAL}") == TiktokenCounter(table)(f"one {SPECIAL}"), "a special token counts as text"


@pytest.mark.parametrize("counter", [3, [1], ConservativeCounter])
def test_anything_else_is_refused(counter: Any) -> None:
    with pytest.raises(TypeError):
        as_token_counter(counter)
