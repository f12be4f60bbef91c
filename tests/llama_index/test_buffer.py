"""InfiniteChatMemoryBuffer beside ChatMemoryBuffer: the same while everything fits, and within the limit after that."""

import asyncio
import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.utils import get_tokenizer

from llama_index_infinite_memory import (
    InfiniteChatMemoryBuffer,
    UnstorableWarning,
    from_message,
    line,
    to_message,
)
from shared_core import BudgetError, Message, ToolCall
from shared_core.events import MemoryEvent
from shared_core.testing import HashingEmbedder
from tests.llama_index.sample_messages import EVERY, chats, part

HASHING = HashingEmbedder(32)
CL100K = get_tokenizer()

fewer = settings(max_examples=settings().max_examples // 2)
"""Every example opens a store."""


def said(role: MessageRole, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def assistant(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text)


def system(text: str) -> ChatMessage:
    return ChatMessage(role="system", content=text)


def called(id: str) -> ChatMessage:
    call = {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})


def result(text: str, id: str) -> ChatMessage:
    return ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": id})


def ours(messages: Sequence[ChatMessage] = (), **arguments: Any) -> InfiniteChatMemoryBuffer:
    memory = InfiniteChatMemoryBuffer.from_defaults(**{"embed_model": HASHING, **arguments})
    memory.put_messages(messages)
    return memory


def theirs(messages: Sequence[ChatMessage], **arguments: Any) -> ChatMemoryBuffer:
    return ChatMemoryBuffer.from_defaults(chat_history=list(messages), **arguments)


def texts(messages: Sequence[ChatMessage]) -> list[str]:
    return [message.content or "" for message in messages]


def alternating(letters: str) -> list[ChatMessage]:
    return [user(letter) if number % 2 == 0 else assistant(letter) for number, letter in enumerate(letters)]


def branches(memory: InfiniteChatMemoryBuffer) -> list[str]:
    return [branch.name for branch in memory.memory.branches()]


def found_by(memory: InfiniteChatMemoryBuffer, query: str, **arguments: Any) -> list[ChatMessage]:
    """What a search of the engine finds, as it was put."""
    return [to_message(hit.message) for hit in memory.memory.search(query, **arguments)]


def spoken(messages: Sequence[ChatMessage], tokenizer: Any = str.split) -> int:
    """How many tokens ChatMemoryBuffer counts."""
    return len(tokenizer(" ".join(str(message.content) for message in messages)))


TALK = [
    user("my locker code is 4471"), assistant("I will remember that."),
    *(message for n in range(30) for message in (user(f"tell me tale {n} " + "once upon " * 8), assistant("so " * 9))),
]  # fmt: skip


# While everything fits


QUESTIONS = [message for message in EVERY if from_message(message).role == "user"]
REPLIES = [one for one in EVERY if from_message(one).role == "assistant" and not from_message(one).tool_calls]
turns = st.builds(
    lambda asked, group, replies: [asked, *group, *replies],
    st.sampled_from(QUESTIONS),
    st.sampled_from([[], [called("a"), result("12", "a")], [called("a"), result("12 " * 300, "a")]]),
    st.lists(st.sampled_from(REPLIES), max_size=2),
)  # fmt: skip
anything = st.builds(
    lambda system, talk: [*system, *(message for turn in talk for message in turn)],
    st.sampled_from([[], [system("be brief")], [system("be brief"), said(MessageRole.DEVELOPER, "and kind")]]),
    st.lists(turns, max_size=4),
)  # fmt: skip


@fewer
@given(anything, st.sampled_from([None, "ok", "unheard of"]))
def test_whatever_fits_is_the_same_list(talk: list[ChatMessage], asked: str | None) -> None:
    memory = ours(talk, token_limit=100_000)  # perhaps of nothing
    assert memory.get(input=asked) == memory.get_all() == theirs(talk, token_limit=100_000).get() == talk


@example([user("Köln"), *[assistant("ok"), assistant("ok"), user("ok")] * 2, *[assistant("ok")] * 2], 10, 0, CL100K)
@fewer
@given(chats(st.sampled_from(["ok", "0", "a b c", "12 34", "where is it?", ".", "Köln"])), st.integers(1, 40),
       st.integers(0, 3), st.sampled_from([str.split, list, CL100K]))  # fmt: skip
def test_what_fits_to_the_token_is_the_same_list(
    talk: list[ChatMessage], limit: int, initial: int, tokenizer: Any
) -> None:
    initial = min(initial, limit)
    arguments: dict[str, Any] = {"token_limit": limit, "tokenizer_fn": tokenizer}
    expected = theirs(talk, **arguments).get(initial_token_count=initial)
    found = ours(talk, **arguments).get(initial_token_count=initial)
    # Each message is counted with the space before it, so together they may count a little more than as one text.
    if sum(max(len(tokenizer(text)), len(tokenizer(f" {text}"))) for text in texts(talk)) + initial <= limit:
        assert found == expected == talk
    else:
        newest = [message.role for message in found].count(MessageRole.USER) == 1
        assert spoken(found, tokenizer) + initial <= limit or newest  # a turn that does not fit is sent all the same
    assert found[-1:] == talk[-1:]


# When it does not


@fewer
@given(
    chats(st.sampled_from(["ok", "a b c", "where is my locker code", "so " * 7])), st.integers(1, 30), st.integers(0, 9)
)
def test_every_list_obeys_the_rules_of_the_head_and_the_limit(
    talk: list[ChatMessage], limit: int, initial: int
) -> None:
    initial = min(initial, limit)
    memory = ours(talk, token_limit=limit, tokenizer_fn=str.split)
    for asked in (None, "where is my locker"):
        found = memory.get(input=asked, initial_token_count=initial)
        size = spoken(found) + initial + (4 if asked else 0)
        assert size <= limit or (asked is None and len(found) <= 2) or not found
        assert all(message in talk for message in found)
        if len(found) < len(talk) and found:
            assert found[0].role == MessageRole.USER
        places = iter(talk)
        assert all(any(message == other for other in places) for message in found)  # in order, none twice


def test_an_old_fact_is_recalled_in_its_order() -> None:
    memory = ours([*TALK, user("what is my locker code?")], token_limit=200)
    found = memory.get()
    assert texts(found)[0] == "my locker code is 4471"
    assert texts(found)[-1] == "what is my locker code?"
    assert found[:2] == TALK[:2]
    places = iter(TALK)
    assert all(any(message == other for other in places) for message in found[:-1]), "it stands where it was said"
    assert found[-3:-1] == TALK[-2:]
    assert "my locker code is 4471" not in texts(theirs(TALK, token_limit=200).get())
    assert texts(memory.get(input="what is my locker code?")) == texts(found)


def test_a_question_that_is_not_stored_takes_room_and_is_not_returned() -> None:
    memory = ours(TALK, token_limit=200)
    found = memory.get(input="what is my locker code?")
    assert texts(found)[0] == "my locker code is 4471"
    assert "what is my locker code?" not in texts(found)
    assert found[-1] == TALK[-1]
    whole = ours(TALK[:2], token_limit=spoken(TALK[:2]) + 3, tokenizer_fn=str.split)
    assert whole.get(input="one two three") == TALK[:2]
    assert whole.get(input="one two three four") == []
    assert memory.get_all() == TALK


def test_a_message_may_be_the_question() -> None:
    memory = ours(TALK, token_limit=200)
    asked = memory.get(input="what is my locker code?")
    assert memory.get(input=user("what is my locker code?")) == asked
    assert memory.get(user("what is my locker code?"), more="ignored") == asked
    assert memory.get(input="  ") == memory.get()


def test_the_newest_question_is_not_asked_twice() -> None:
    memory = ours([*TALK, user("what is my locker code?")], token_limit=200)
    assert memory.get(input="what is my locker code?") == memory.get()
    memory.put_messages([called("a"), result("looked up", "a")])
    assert memory.get(input="what is my locker code?") == memory.get()
    assert texts(memory.get())[-3:] == ["what is my locker code?", "", "looked up"]
    memory.put(assistant("4471"))
    again = memory.get(input="what is my locker code?")
    assert texts(again).count("what is my locker code?") == 1


def test_a_question_with_many_replies_is_not_asked_twice() -> None:
    steps = [step for number in range(10) for step in (called(str(number)), result("x", str(number)))]
    memory = ours([user("hi"), assistant("hello"), user("and?"), *steps])
    assert memory.get(input="and?") == memory.get() == memory.get_all()


def test_what_is_said_beside_a_call_without_a_result_stays() -> None:
    both = [*called("a").additional_kwargs["tool_calls"], *called("b").additional_kwargs["tool_calls"]]
    for more in ({}, {"seen": "yes"}):
        looks = ChatMessage(role="assistant", content="Let me look.", additional_kwargs={"tool_calls": both, **more})
        memory = ours([user("what time is it?"), looks, result("12:31", "b"), looks, user("well?")])
        sent = memory.get()
        assert texts(sent) == ["what time is it?", "Let me look.", "12:31", "Let me look.", "well?"]
        assert [[call.id for call in from_message(one).tool_calls] for one in sent[1:4]] == [["b"], [], []]
        assert memory.get_all()[1] == looks
        assert ours([user("what time is it?"), looks]).get()[-1] == looks  # its results may still come


def test_system_messages_stay() -> None:
    memory = ours([system("be brief"), *TALK], token_limit=100)
    assert memory.get()[0] == system("be brief")
    large = ours([system("be brief " * 50), *TALK, user("so?")], token_limit=20)
    assert texts(large.get()) == ["be brief " * 50, "so?"]
    with pytest.raises(BudgetError):
        ours([system("be brief " * 50), *TALK], token_limit=20, on_overflow="raise").get()


@pytest.mark.parametrize("together", [True, False])
def test_system_messages_keep_their_places(together: bool) -> None:
    def talked(talk: Sequence[ChatMessage], **arguments: Any) -> InfiniteChatMemoryBuffer:
        memory = ours(talk if together else (), **arguments)
        for message in () if together else talk:
            memory.put(message)
        return memory

    talk = [system("be brief"), *TALK[:2], system("and kind"), *TALK[2:6], system("be brief"), user("so?")]
    assert talked(talk).get() == talk
    again = talked(talk)
    again.set(again.get_all())
    again.put(system("be brief"))
    assert again.get() == [*talk, system("be brief")]
    small = talked([*talk[:6], *TALK, *talk[8:]], token_limit=200).get()
    assert [one for one in small if one.role == "system"] == [talk[0], talk[3], talk[8]]
    assert (small[0], small[-2:]) == (talk[0], talk[8:])


# Arguments


def test_the_limit_is_that_of_chat_memory_buffer() -> None:
    for llm in (None, MockLLM()):
        for limit in (None, 500):
            ours_, theirs_ = (
                kind.from_defaults(llm=llm, token_limit=limit) for kind in (InfiniteChatMemoryBuffer, ChatMemoryBuffer)
            )
            assert ours_.token_limit == theirs_.token_limit
    assert InfiniteChatMemoryBuffer.from_defaults(llm=MockLLM(), token_limit=0).token_limit == 2925


@pytest.mark.parametrize("kind", [InfiniteChatMemoryBuffer, ChatMemoryBuffer])
def test_errors_are_those_of_chat_memory_buffer(kind: Any) -> None:
    with pytest.raises(ValueError, match="'nothing'"):
        kind.from_defaults(nothing=1)
    for limit in (0, -1):
        with pytest.raises(ValueError, match="Token limit must be set and greater than 0"):
            kind.from_defaults(token_limit=limit)
    with pytest.raises(ValueError, match="Token limit must be set and greater than 0"):
        kind()
    memory = kind.from_defaults(token_limit=5)
    with pytest.raises(ValueError, match="Initial token count exceeds token limit"):
        memory.get(initial_token_count=6)


def test_a_limit_is_checked_whenever_it_is_set() -> None:
    with pytest.raises(ValueError, match=r"(?s)token_limit.*valid integer.*'a'"):
        InfiniteChatMemoryBuffer.from_defaults(token_limit="a")  # type: ignore[arg-type]
    memory = ours(token_limit=5)
    with pytest.raises(ValueError, match="greater than 0"):
        memory.token_limit = -5
    memory.token_limit = 7
    assert (memory.token_limit, memory.memory.max_tokens) == (7, 7)


def test_a_message_that_never_fits_is_sent_all_the_same() -> None:
    long = user("so long a message that it never fits")
    memory = ours([long], token_limit=5)
    assert memory.get() == memory.get(initial_token_count=5) == [long]
    memory.put_messages([assistant("I see " * 9)])
    assert memory.get() == [long, assistant("I see " * 9)]
    assert ours([assistant("only me " * 9)], token_limit=5).get() == [assistant("only me " * 9)]
    for only in ([called("a")], [called("a"), result("12", "a")]):
        assert ours(only, token_limit=5).get() == only, "no result without its call"


def test_arguments_with_another_name_here_are_unknown() -> None:
    for name, hint in (
        ("max_tokens", "; did you mean 'token_limit'?"),
        ("reserve_tokens", ""),
        ("token_counter", "; did you mean 'tokenizer_fn'?"),
        ("embedder", "; did you mean 'embed_model'?"),
        ("sesion_id", "; did you mean 'session_id'?"),
        ("window_slack", ""),
    ):
        with pytest.raises(ValueError, match=re.escape(f"Unexpected kwargs: {{'{name}': 1}}{hint}") + "$"):
            ours((), **{name: 1})


def test_arguments_of_something_else_say_what_to_do() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"tokenizer_fn": "gpt"}, "tokenizer_fn='gpt': expected a function"),
        ({"chat_store": "x"}, "chat_store='x': expected a BaseChatStore"),
        (
            {"chat_history": "x.db"},
            "chat_history='x.db': expected a list of ChatMessages; the path of a file is store=",
        ),
        ({"session_id": ""}, "session_id='': expected a name"),
        ({"chat_store_key": ""}, "chat_store_key='': expected a name"),
    ]
    for arguments, advice in wrong:
        with pytest.raises((TypeError, ValueError), match=advice):
            InfiniteChatMemoryBuffer.from_defaults(**arguments)
    memory: Any = ours([user("a")])
    for give in (memory.set, memory.put_messages):
        for nothing in (None, "hello", user("b")):
            with pytest.raises(TypeError, match="expected a list of ChatMessages"):
                give(nothing)
    memory.get("a")
    with pytest.raises((TypeError, ValueError)):
        memory.get(5)
    assert memory.explain().included


def test_the_history_given_is_what_is_stored(tmp_path: Path) -> None:
    given = [user("hi"), assistant("hello")]
    assert ours(chat_history=given).get_all() == given
    with ours(store=tmp_path / "a.db", session_id="s") as first:
        first.put_messages(TALK)
    with ours(store=tmp_path / "a.db", session_id="s", chat_history=given) as second:
        assert second.get_all() == given
        assert branches(second) == ["main", "main-2"]
    with ours(store=tmp_path / "a.db", session_id="s", chat_history=[]) as third:
        assert third.get_all() == []
    with ours(store=tmp_path / "a.db", session_id="s") as fourth:
        assert (fourth.get_all(), branches(fourth)) == ([], ["main", "main-2", "main-3"])
        fourth.memory.checkout("main-2")
        assert fourth.get_all() == TALK


# What goes in and out


def test_messages_are_copied_in_and_out() -> None:
    given = [user("hi"), assistant("hello"), user("and?")]
    memory = ours(chat_history=given)
    expected = copy.deepcopy(given)
    part(given[1], 0).text = "changed"
    memory.get_all()[1].additional_kwargs["x"] = 1
    memory.get()[1].blocks.clear()
    given.append(user("more"))
    assert memory.get() == memory.get_all() == expected


def test_the_newest_user_message_is_handed_out_live_and_stored_as_it_was_said() -> None:
    memory = ours([user("hi"), assistant("hello"), user("and?")])
    part(memory.get()[-1], 0).text = "Current state: {}\nand?"
    memory.put(called("a"))
    assert texts(memory.get())[2] == "Current state: {}\nand?"
    assert texts(memory.get(input="and?")) == texts(memory.get(input="Current state: {}\nand?")) == texts(memory.get())
    assert texts(memory.get_all())[2] == "and?"
    memory.put_messages([result("x", "a"), assistant("so"), user("thanks")])
    assert texts(memory.get())[2] == "and?"


class Thing:
    """What no store can hold."""


def test_what_no_store_can_hold_is_left_out_wherever_it_is_put() -> None:
    message = ChatMessage(role="assistant", content="a", additional_kwargs={"thing": Thing(), "list": [1]})
    memory = ours([user("q")])
    with pytest.warns(UnstorableWarning, match="additional_kwargs"):
        memory.put(message)
    assert memory.get()[1].additional_kwargs == memory.get_all()[1].additional_kwargs == {"list": [1]}
    memory.set([user("q"), message])
    assert branches(memory) == ["main"]


def test_what_was_built_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Message] = []

    def counted(message: Message) -> ChatMessage:
        built.append(message)
        return to_message(message)

    monkeypatch.setattr(line, "to_message", counted)
    memory = ours([*TALK, called("a"), result("12", "a")])
    memory.set(memory.get_all())
    before = len(built)
    assert before <= len(TALK) + 2 * 2, "one with calls is built once more, to tell whether somebody changed it"
    for turn in range(3):
        memory.set(memory.get_all())
        memory.put(user(f"{turn}"))
        memory.put(assistant("ok"))
    assert len(built) - before == 2 * 2, "what is new"
    changed = memory.get_all()
    part(changed[0], 0).text = "changed"
    changed[-7].additional_kwargs["more"] = 1
    assert memory.get_all()[: len(TALK)] == TALK
    assert memory.get_all()[-7] == result("12", "a")


# Beginning anew


def test_set_replaces_and_erases_nothing() -> None:
    memory = ours([user("a"), assistant("b"), user("c")])
    assert ours(), "an empty one is true, too, and has no length"
    memory.set([user("a"), assistant("b"), user("c"), assistant("d")])
    assert (texts(memory.get_all()), branches(memory)) == (["a", "b", "c", "d"], ["main"])
    memory.set([user("a"), assistant("other")])
    assert (texts(memory.get_all()), memory.memory.branch) == (["a", "other"], "main")
    memory.set([user("x")])
    assert (texts(memory.get_all()), branches(memory)) == (["x"], ["main", "main-2", "main-3"])
    memory.put(assistant("y"))
    assert texts(memory.get()) == ["x", "y"]
    memory.set([user("x"), assistant("y")])
    assert branches(memory) == ["main", "main-2", "main-3"]
    memory.memory.checkout("main-2")
    assert texts(memory.get_all()) == ["a", "b", "c", "d"]
    memory.reset()
    assert (memory.get_all(), memory.memory.branch) == ([], "main-2")
    memory.memory.checkout("main")
    assert texts(memory.get_all()) == ["x", "y"]


def test_reset_begins_anew_and_forget_erases() -> None:
    memory = ours([user("my secret is x"), assistant("b")])
    memory.reset()
    assert memory.get_all() == memory.get() == []
    memory.reset()
    assert branches(memory) == ["main", "main-2"]
    memory.put(user("a"))
    assert memory.get() == [user("a")]
    memory.memory.checkout("main-2")
    assert len(memory.get_all()) == 2
    stored = memory.get_all()
    assert (memory.memory.forget(ids=[]).ids, memory.get_all()) == ((), stored)
    assert len(memory.memory.forget(session=True).ids) == 3
    assert (memory.get_all(), branches(memory), found_by(memory, "secret")) == ([], ["main"], [])
    memory.put(user("my secret is x"))
    assert texts(memory.get()) == ["my secret is x"]


SIX = "abcdef"


@pytest.mark.parametrize("later", ["", "xy"])
@pytest.mark.parametrize("gone", ["a", "b", "ab", "cd", "c", "ef", "f", "ace", SIX])
@pytest.mark.parametrize("as_texts", [False, True])
def test_who_sends_a_history_again_does_not_bring_back_what_was_forgotten(
    gone: str, later: str, as_texts: bool
) -> None:
    memory = ours(alternating(SIX))
    held = copy.deepcopy(memory.get_all()) if as_texts else memory.get_all()
    memory.memory.forget(ids=[one.id or "" for one in memory.memory.messages() if one.content in gone])
    memory.put_messages(alternating(later))
    memory.set(held)
    assert texts(memory.get_all()) == [letter for letter in SIX if letter not in gone]
    memory.set([*held, *alternating(later)])
    assert texts(memory.get_all()) == [letter for letter in SIX + later if letter not in gone]
    assert not any(letter in texts(found_by(memory, letter)) for letter in gone)


def test_what_is_new_is_stored_where_messages_were_forgotten() -> None:
    memory = ours(alternating(SIX))
    memory.memory.forget(ids=[one.id or "" for one in memory.memory.messages() if one.content in "aef"])
    memory.set([*memory.get_all(), *alternating("xy")])  # who read it since knows what was forgotten
    assert texts(memory.get_all()) == [*"bcdxy"]
    memory.set([user("other"), assistant("answer")])
    assert texts(memory.get_all()) == ["other", "answer"]
    memory.set([system("a to c"), *alternating("dz")])
    assert texts(memory.get_all()) == ["a to c", "d", "z"]


@fewer
@given(st.lists(st.tuples(st.sampled_from(["put", "set", "get", "reset"]), chats()), max_size=8))
def test_whatever_is_done_all_is_what_chat_memory_buffer_has(steps: list[tuple[str, list[ChatMessage]]]) -> None:
    one, other = ours(), ChatMemoryBuffer.from_defaults()
    for verb, talk in steps:
        for memory in (one, other):
            if verb == "put":
                memory.put_messages(copy.deepcopy(talk))
            elif verb == "set":
                memory.set(copy.deepcopy(talk))
            elif verb == "reset":
                memory.reset()
        assert one.get() == one.get_all() == other.get_all() == other.get()


# Branches


def test_branches_of_the_engine_are_those_of_the_buffer() -> None:
    memory = ours([user("a"), assistant("b"), user("c")])
    second = memory.memory.search("b", role="assistant")[0].message.id
    memory.memory.fork("other", at=second)
    memory.put(user("d"))
    assert (texts(memory.get_all()), branches(memory)) == (["a", "b", "d"], ["main", "other"])
    memory.memory.checkout("main")
    assert texts(memory.get_all()) == ["a", "b", "c"]
    memory.memory.checkout(second or "")
    assert (texts(memory.get_all()), memory.memory.branch) == (["a", "b"], None)


def test_search_and_explain() -> None:
    events: list[MemoryEvent] = []
    memory = ours(TALK, token_limit=120, on_event=events.append)
    assert found_by(memory, "locker code", top_k=1) == TALK[:1]
    asked = memory.get(input="what is my locker code?")
    assert asyncio.run(memory.aget(input="what is my locker code?")) == asked
    first = memory.memory.search("locker code", 1)[0].message.id
    assert [event.ids[0] for event in events if event.name == "context"] == [first] * 2, "both are traced"
    report = memory.explain()
    assert sorted(line.text for line in report.included if line.id) == sorted(texts(asked))
    assert (report.budget, report.reserve) == (120, 0)
    assert memory.explain("tell me tale 7").budget == 120
    assert memory.explain(initial_token_count=20).budget == 100


# Elsewhere


def test_a_session_of_langchain_is_read_and_the_other_way_round(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    from langchain_infinite_memory import InfiniteChatMessageHistory

    calls = [{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}]
    said = [
        SystemMessage("be brief", id="0"),
        HumanMessage(["look", {"type": "image", "url": "https://e.org/a.png"}], id="1"),
        AIMessage("", tool_calls=calls, id="2"),
        ToolMessage("12", tool_call_id="c", id="3"),
        AIMessage("it is 12", id="4"),
    ]
    path = tmp_path / "chat.db"
    history = InfiniteChatMessageHistory("s", user_id="u", store=path, embedder=HASHING)
    history.add_messages(said)
    with ours(store=path, session_id="s", user_id="u") as memory:
        found = memory.get()
        assert [(m.role.value, m.content or "") for m in found] == [
            ("system", "be brief"), ("user", "look"), ("assistant", ""), ("tool", "12"), ("assistant", "it is 12"),
        ]  # fmt: skip
        assert found[3].additional_kwargs == {"tool_call_id": "c"}
        assert from_message(found[2]).tool_calls == (ToolCall(id="c", name="f", arguments='{"a":1}'),)
        memory.put_messages([user("and?"), called("d"), result("13", "d"), EVERY[7]])
        assert memory.get_all()[-1] == EVERY[7]
    back: list[Any] = [*history.messages]
    assert back[:5] == said
    assert [(m.type, m.text) for m in back[5:]] == [
        ("human", "and?"),
        ("ai", ""),
        ("tool", "13"),
        ("human", "What is\non it?"),
    ]
    assert back[6].tool_calls == [{"name": "f", "args": {}, "id": "d", "type": "tool_call"}]
    assert back[7].tool_call_id == "d"
    history.close()
