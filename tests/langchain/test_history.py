"""A session as LangChain's chat message history: all of it, and the window that fits."""

import asyncio
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core._api.deprecation import LangChainDeprecationWarning
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_infinite_memory.chains.history import InfiniteChatMessageHistory, SessionHistories, session_factory
from shared_core import DuplicateError, InfiniteMemory, SessionPool, SQLiteStore
from shared_core.testing import HashingEmbedder
from shared_core.tokens import as_counter
from tests.langchain.agents import Model
from tests.langchain.sample_messages import EVERY
from tests.support.event_loop import nothing_blocks

SMALL: dict[str, Any] = {
    "max_tokens": 200, "reserve_tokens": 0, "token_counter": "characters/4",
}  # fmt: skip
ONE: Any = {"configurable": {"session_id": "1"}}


def said(history: BaseChatMessageHistory) -> list[str]:
    return [f"{message.type}: {message.text}" for message in history.messages]


def talk(history: BaseChatMessageHistory, exchanges: int) -> None:
    for number in range(exchanges):
        history.add_messages(
            [HumanMessage(f"my number {number} is code{number}"), AIMessage(f"noted, {number}, and what is next?")]
        )


# Arguments


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"max_token": 9}, r"unknown argument 'max_token'; did you mean 'max_tokens'\?"),
        ({"token_limit": 9}, r"unknown argument 'token_limit'; did you mean 'max_tokens'\?"),
        ({"embed_model": 9}, r"unknown argument 'embed_model'; did you mean 'embedder'\?"),
        ({"zebra": 9}, "unknown argument 'zebra'"),
        ({"embeddings": HashingEmbedder(), "embedder": HashingEmbedder()}, "pass one of them"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(TypeError, match=match):
        InfiniteChatMessageHistory("1", **arguments)
    with pytest.raises(TypeError, match=match):
        session_factory(None, **arguments)


def test_a_store_that_is_given_has_its_own_settings() -> None:
    with SessionPool() as pool, pytest.raises(TypeError, match="max_tokens: the store given has its own"):
        InfiniteChatMessageHistory("1", store=pool, max_tokens=9)
    with InfiniteMemory() as memory, pytest.raises(TypeError, match="serves one session only"):
        session_factory(memory)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="session_id=3"):
        InfiniteChatMessageHistory(3)  # type: ignore[arg-type]


# All of it


def test_the_interface() -> None:
    history = InfiniteChatMessageHistory("1")
    history.add_message(SystemMessage("system"))
    history.add_user_message("human 1")
    history.add_user_message(HumanMessage("human 2"))
    history.add_ai_message("ai")
    history.add_ai_message(AIMessage("ai 2"))
    assert str(history) == "System: system\nHuman: human 1\nHuman: human 2\nAI: ai\nAI: ai 2"
    assert repr(InfiniteChatMessageHistory("1", user_id="u")) == "InfiniteChatMessageHistory('1', user_id='u')"
    history.clear()
    assert history.messages == []
    history.add_user_message("again")
    assert said(history) == ["human: again"]


def test_every_kind_of_message_comes_back_equal_and_in_order_also_later(tmp_path: Path) -> None:
    with closing(InfiniteChatMessageHistory("1", store=tmp_path / "chat.db")) as history:
        history.add_messages(EVERY)
        assert history.messages == EVERY
    with closing(InfiniteChatMessageHistory("1", store=tmp_path / "chat.db")) as history:
        assert history.messages == EVERY
        assert asyncio.run(history.aget_messages()) == EVERY


def test_chunks_are_stored_whole_and_what_is_no_message_is_refused() -> None:
    history = InfiniteChatMessageHistory("1")
    history.add_messages([HumanMessage("hi"), AIMessageChunk(content="hel") + AIMessageChunk(content="lo")])
    assert [type(message) for message in history.messages] == [HumanMessage, AIMessage]
    with pytest.raises(TypeError, match="RemoveMessage cannot be stored"):
        history.add_messages([RemoveMessage(id="x")])


def test_a_known_id_is_stored_once() -> None:
    history = InfiniteChatMessageHistory("1")
    exchange = [HumanMessage("hello", id="q"), AIMessage("hi", id="a")]
    history.add_messages([exchange[0], *exchange])
    history.add_messages([*exchange, exchange[1], HumanMessage("ok"), HumanMessage("ok")])
    assert said(history) == ["human: hello", "ai: hi", "human: ok", "human: ok"]
    with pytest.raises(DuplicateError, match="'q'"):
        history.add_messages([HumanMessage("another", id="q")])
    with pytest.raises(DuplicateError, match="'b' is given twice"):
        history.add_messages([AIMessage("one", id="b"), AIMessage("two", id="b")])
    assert len(history.messages) == 4


def test_sessions_and_users_do_not_meet() -> None:
    with SessionPool() as pool:
        ann, bob = (InfiniteChatMessageHistory("1", user_id=name, store=pool) for name in ("ann", "bob"))
        ann.add_user_message("a secret")
        assert said(ann) == ["human: a secret"]
        assert bob.messages == InfiniteChatMessageHistory("1", store=pool).messages == []
        bob.clear()
        assert said(ann) == ["human: a secret"]


# What fits


def test_the_window_fits_and_recalls() -> None:
    history = InfiniteChatMessageHistory("1", embeddings=HashingEmbedder(), **SMALL)
    talk(history, 40)
    window = history.window("which code is my number 3? code3?")
    assert sum(as_counter("characters/4")(message.text) + 4 for message in window) <= 200
    assert "my number 3 is code3" in window[-1].text
    assert window[-1].text.endswith("which code is my number 3? code3?")
    assert len(history.messages) == 80
    before = history.window("what is code3?", include_question=False)
    assert before[-1] == AIMessage("noted, 39, and what is next?")
    asked = HumanMessage("what of code3?", additional_kwargs={"grounding": ["code3 is a good one"]})
    assert "code3 is a good one" in history.window(asked)[-1].text
    assert history.window()[-2].text.endswith("my number 39 is code39")


# The event loop


def test_the_event_loop_is_not_held_up(tmp_path: Path) -> None:
    async def work() -> list[Any]:
        get_history = await asyncio.to_thread(
            session_factory, tmp_path / "chat.db", window=False, embedder=HashingEmbedder(), **SMALL
        )
        histories = [get_history("1"), get_history("2")]
        for history in histories * 30:
            await history.aadd_messages([HumanMessage("what is code3 of the garden?"), AIMessage("it is code3, 8, 9")])
        await get_history("3").aadd_messages(EVERY)
        seen: list[Any] = [await history.aget_messages() for history in histories]
        seen += [await histories[0].awindow("code3?")]
        await histories[0].aclear()
        seen.append(await histories[0].aget_messages())
        await asyncio.to_thread(get_history.close)
        return seen

    with nothing_blocks():
        one, other, window, cleared = asyncio.run(work())
    assert one == other == [HumanMessage("what is code3 of the garden?"), AIMessage("it is code3, 8, 9")] * 30
    assert 0 < len(window) < 60
    assert cleared == []


# In RunnableWithMessageHistory: upstream's cases, restated


def echo(value: Any) -> str:
    """What the chain was asked: the user's texts so far, joined."""
    messages = value if isinstance(value, list) else [*value.get("history", []), *as_list(value["input"])]
    return "you said: " + "\n".join(message.text for message in messages if message.type == "human")


def as_list(value: str | BaseMessage | Sequence[BaseMessage]) -> list[BaseMessage]:
    if isinstance(value, str):
        return [HumanMessage(value)]
    return [value] if isinstance(value, BaseMessage) else list(value)


def remembering(chain: Runnable[Any, Any], get_history: Callable[..., BaseChatMessageHistory], **keys: Any) -> Any:
    with warnings.catch_warnings():  # it is deprecated since LangChain 1.3
        warnings.simplefilter("ignore", LangChainDeprecationWarning)
        return RunnableWithMessageHistory(chain, get_history, **keys)


EXPECTED = [
    HumanMessage("hello"), AIMessage("you said: hello"), HumanMessage("good bye"),
    AIMessage("you said: hello\ngood bye"),
]  # fmt: skip


# The window of a run


KEYS: dict[str, dict[str, str]] = {
    "list": {}, "model": {}, "dict": {"input_messages_key": "input"},
    "history": {"input_messages_key": "input", "history_messages_key": "history"},
}  # fmt: skip


@pytest.mark.parametrize("form", KEYS)
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream", "batch", "abatch"])
def test_the_chain_is_given_what_fits_and_each_message_is_stored_once(way: str, form: str) -> None:
    given: list[list[BaseMessage]] = []

    def answer(value: Any) -> AIMessage:
        if form in ("list", "model"):
            given.append(list(value))
        elif form == "dict":
            given.append(list(value["input"]))
        else:
            given.append([*value["history"], *value["input"]])
        return AIMessage(f"fine, {len(given)}")

    store = SQLiteStore(":memory:")
    history = InfiniteChatMessageHistory("1", store=store, window=True, embedder=HashingEmbedder(), **SMALL)
    talk(history, 40)
    inner: Runnable[Any, Any] = Model(reply=answer) if form == "model" else RunnableLambda(answer)
    chain = remembering(inner, lambda: history, **KEYS[form])

    async def ask(text: str) -> None:
        value: Any = [HumanMessage(text)] if form in ("list", "model") else {"input": [HumanMessage(text)]}
        if way in ("invoke", "ainvoke"):
            await chain.ainvoke(value) if way == "ainvoke" else chain.invoke(value)
        elif way in ("batch", "abatch"):
            await chain.abatch([value]) if way == "abatch" else chain.batch([value])
        else:
            [chunk async for chunk in chain.astream(value)] if way == "astream" else list(chain.stream(value))

    for number in range(4):
        asyncio.run(ask(f"what is code{number}?"))
    everything = InfiniteChatMessageHistory("1", store=store).messages
    asked = [(f"what is code{number}?", f"fine, {number + 1}") for number in range(4)]
    assert [message.text for message in everything[80:]] == [text for exchange in asked for text in exchange]
    assert len(everything) == 88
    assert all(sum(len(message.text) / 4 + 4 for message in sent) <= 200 for sent in given)
    recalled, *newest, question = given[-1]
    assert recalled.type == "system"  # of the exchange before: the question is not known
    assert "my number 2 is code2" in recalled.text
    assert [message.text for message in newest] == [message.text for message in everything[86 - len(newest) : 86]]
    assert question == HumanMessage("what is code3?")
    store.close()


def test_who_reads_the_window() -> None:
    with SessionPool(**SMALL) as pool:
        everything, window = (InfiniteChatMessageHistory("1", store=pool, window=window) for window in (False, True))
        assert window.messages == []
        talk(everything, 40)
        assert len(everything.messages) == 80
        assert window.messages == asyncio.run(window.aget_messages())
        assert 2 < len(window.messages) < 10
        kept = window.messages[-2:]
        window.add_messages([HumanMessage("and now?")])
        assert window.messages[-1] == HumanMessage("and now?")  # unanswered
        window.clear()
        window.add_messages(kept)  # the usual way of trimming
        assert everything.messages == kept


class FailsFirst:
    """A chain that fails once, and notes what it is given."""

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    def __call__(self, messages: list[BaseMessage]) -> str:
        self.given.append([message.text for message in messages])
        if len(self.given) == 1:
            raise ArithmeticError("no")
        return "fine"


def test_after_a_run_that_failed_the_next_is_given_the_newest_window() -> None:
    answer = FailsFirst()
    history = InfiniteChatMessageHistory("1", window=True)
    chain = remembering(RunnableLambda(answer), lambda: history)
    with pytest.raises(ArithmeticError) as failed:
        chain.invoke([HumanMessage("one?")])
    history.add_messages([HumanMessage("hello"), AIMessage("hi")])  # said elsewhere
    chain.invoke([HumanMessage("two?")])
    chain.invoke([HumanMessage("three?")])
    assert answer.given[1:] == [["hello", "hi", "two?"], ["hello", "hi", "two?", "fine", "three?"]]
    assert [message.text for message in history.messages] == [*answer.given[2], "fine"]
    assert failed.value.args == ("no",)


# The factory


def test_what_was_cleared_after_a_failed_run_is_not_sent() -> None:
    answer = FailsFirst()
    history = InfiniteChatMessageHistory("1", window=True)
    history.add_messages([HumanMessage("my password is hunter2"), AIMessage("noted")])
    chain = remembering(RunnableLambda(answer), lambda: history)
    with pytest.raises(ArithmeticError):
        chain.invoke([HumanMessage("one?")])
    history.clear()
    chain.invoke([HumanMessage("two?")])
    assert answer.given[1] == ["two?"]


def test_a_message_with_other_calls_under_a_stored_id_is_refused() -> None:
    history = InfiniteChatMessageHistory("1")
    call = {"args": {}, "id": "c", "type": "tool_call"}
    history.add_messages([HumanMessage("go"), AIMessage("", tool_calls=[{"name": "look", **call}], id="x")])
    with pytest.raises(DuplicateError):
        history.add_messages([AIMessage("", tool_calls=[{"name": "transfer", **call}], id="x")])


def test_a_question_with_passages_is_stored_once(tmp_path: Path) -> None:
    with SessionPool(keep_grounding="all") as pool:
        chain = remembering(
            FakeListChatModel(responses=["fine"]), lambda name: InfiniteChatMessageHistory(name, store=pool)
        )
        asked = HumanMessage("how old?", additional_kwargs={"grounding": ["the tower is old"]})
        for question in (asked, HumanMessage("how tall?")):
            chain.invoke([question], ONE)
        assert [message.text for message in InfiniteChatMessageHistory("1", store=pool).messages] == [
            "how old?", "fine", "how tall?", "fine"
        ]  # fmt: skip


def test_the_factory_is_bounded_and_keeps_what_is_stored(tmp_path: Path) -> None:
    with session_factory(tmp_path / "chat.db", size=2) as get_history:
        assert isinstance(get_history, SessionHistories)
        for name in "123":
            get_history(name).add_user_message(f"i am {name}")
        assert said(get_history("1")) == ["human: i am 1"]
    with SessionPool(tmp_path / "chat.db") as pool:
        with session_factory(pool) as get_history:
            assert said(get_history("2")) == ["human: i am 2"]
        with pool.use("2") as memory:  # what was given stays open
            assert [message.content for message in memory.messages()] == ["i am 2"]
    with pytest.raises(ValueError, match="max_tokens=0"):
        session_factory(max_tokens=0)
    with pytest.raises(ValueError, match="size=-1"):
        session_factory(size=-1)


def test_what_is_added_again_after_clearing_is_stored(tmp_path: Path) -> None:
    """The usual way of trimming: keep the newest messages, clear, and add them again."""
    history = InfiniteChatMessageHistory("s", store=tmp_path / "chat.db")
    history.add_messages([HumanMessage("one", id="h1"), AIMessage("two", id="a1"), HumanMessage("three", id="h2")])
    kept = history.messages[1:]
    history.clear()
    for message in kept:
        history.add_message(message)
    assert history.messages == kept
    with closing(InfiniteChatMessageHistory("s", store=tmp_path / "chat.db")) as other:
        other.add_messages([HumanMessage("one", id="h1"), HumanMessage("four", id="h3")])
        assert said(other) == ["ai: two", "human: three", "human: four"], "what another object forgot stays forgotten"
    history.close()
