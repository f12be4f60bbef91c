"""Token counters as LangChain users give them."""

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_infinite_memory import as_token_counter
from langchain_infinite_memory.token_counters import ModelCounter
from shared_core.tokens import ConservativeCounter, TiktokenCounter, TokenFallbackWarning

SPECIAL = "<|endoftext|>"


class Words(FakeListChatModel):
    """Counts words, and raises as OpenAI's models do."""

    responses: list[str] = ["ok"]  # noqa: RUF012 - a field of the model

    def get_token_ids(self, text: str) -> list[int]:
        if SPECIAL in text:
            raise ValueError("disallowed special token")
        return list(range(len(text.split())))

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Any = None) -> int:
        raise AssertionError("may ask a server")


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


def test_a_model_counts_with_its_own_tokenizer() -> None:
    count = as_token_counter(Words())
    assert isinstance(count, ModelCounter)
    assert count("one two three") == 3
    assert count.name is None


def test_a_model_that_raises_is_replaced_for_that_text_with_one_warning() -> None:
    count = as_token_counter(Words())
    with pytest.warns(TokenFallbackWarning, match="Words raised ValueError: disallowed special token") as seen:
        assert count(f"a {SPECIAL}") == ConservativeCounter()(f"a {SPECIAL}")
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(f"b {SPECIAL}") == ConservativeCounter()(f"b {SPECIAL}")
        assert count("one two three") == 3


def test_a_model_without_a_tokenizer_downloads_none() -> None:
    with pytest.warns(TokenFallbackWarning, match="GenericFakeChatModel is GPT-2's, which would have to be downloaded"):
        count = as_token_counter(plain_model())
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


def test_a_tokenizer_that_cannot_be_reached_is_tried_once_per_process() -> None:
    tried: list[str] = []

    class Far(FakeListChatModel):
        responses: list[str] = ["ok"]  # noqa: RUF012 - a field of the model

        def get_num_tokens(self, text: str) -> int:
            tried.append(text)
            raise ConnectionError("no route to host")

    first, second = as_token_counter(Far()), as_token_counter(Far())
    with pytest.warns(TokenFallbackWarning, match="Far raised ConnectionError: no route to host") as seen:
        assert [count(text) for count in (first, second) for text in ("one", "two")] == [
            ConservativeCounter()(text) for text in ("one", "two", "one", "two")
        ]
    assert (tried, len(seen)) == (["one"], 1)


def test_a_model_that_asks_a_server_is_not_asked() -> None:
    class Remote(FakeListChatModel):
        responses: list[str] = ["ok"]  # noqa: RUF012 - a field of the model

        def get_num_tokens(self, text: str) -> int:
            raise AssertionError("a request")

    Remote.get_num_tokens.__module__ = "langchain_google_genai.chat_models"
    with pytest.warns(TokenFallbackWarning, match="Remote asks a server for each text"):
        count = as_token_counter(Remote())
    assert count("abc") == ConservativeCounter()("abc")


@pytest.mark.parametrize("counter", [3, [1], ConservativeCounter])
def test_anything_else_is_refused(counter: Any) -> None:
    with pytest.raises(TypeError):
        as_token_counter(counter)
