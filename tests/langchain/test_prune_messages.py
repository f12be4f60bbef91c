"""`prune_messages`: `trim_messages` with windows that providers accept, and with recall."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.messages.utils import count_tokens_approximately
from pydantic import Field

from langchain_infinite_memory.lists import prune_messages
from langchain_infinite_memory.repair import repair_messages
from langchain_infinite_memory.token_counters import list_counter
from shared_core.testing import HashingEmbedder
from shared_core.tokens import TokenFallbackWarning
from tests.langchain.random_histories import (
    PROVIDERS,
    called,
    group_ids,
    ids,
    models,
    needs_providers,
    objections,
    sent_objections,
    sound_histories,
    wild_histories,
)


def words(message: BaseMessage) -> int:
    """One for each word, and one for the message."""
    texts = [message.content] if isinstance(message.content, str) else [block["text"] for block in message.content]  # type: ignore[index]
    return 1 + sum(len(text.split()) for text in texts)


def all_words(messages: list[BaseMessage]) -> int:
    return sum(map(words, messages))


def characters(messages: list[BaseMessage]) -> int:
    return sum(len(message.text) for message in messages)


def is_known_upstream(counter: Any) -> bool:
    """Whether `trim_messages` takes this counter; older ones do not know "approximate"."""
    try:
        trim_messages([HumanMessage("")], max_tokens=9, token_counter=counter)
    except ValueError:
        return False
    return True


COUNTERS: list[Any] = list(filter(is_known_upstream, [all_words, len, "approximate", count_tokens_approximately]))


class WordCounter:
    """Counts one message at a time, as `all_words` does, and keeps the texts that it was given."""

    name: str | None = None
    overhead = 1

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> int:
        self.texts.append(text)
        return len(text.split())


def same(returned: Sequence[BaseMessage], given_: Sequence[BaseMessage]) -> bool:
    """Whether these are the same objects."""
    return list(map(id, returned)) == list(map(id, given_))


# ---------------------------------------------------------------------- the window


def expected(messages: Sequence[BaseMessage], most: int) -> list[BaseMessage]:
    """The default window of a sound list, by trying every beginning."""
    head: list[BaseMessage] = [message for message in messages if isinstance(message, SystemMessage)]
    body = [message for message in messages if not isinstance(message, SystemMessage)]
    begins = [place for place, message in enumerate(body) if isinstance(message, HumanMessage)]
    room = most - all_words(head)
    opening = body[: begins[0]] if begins else body
    if all_words(body) <= room and not any(called(message) for message in opening):
        return head + body
    for place in begins:
        if all_words(body[place:]) <= room:
            return head + body[place:]
    if not begins:
        return head
    question, answers = body[begins[-1]], body[begins[-1] + 1 :]
    groups = group_ids(answers)
    for count in range(len(groups), -1, -1):
        left = {place for group in groups[len(groups) - count :] for place in group}
        kept = [question, *(answer for answer in answers if int(answer.id or "") in left)]
        if all_words(kept) <= room or count == min(1, len(groups)):
            return head + kept
    raise AssertionError


class TestWindow:
    @given(sound_histories(systems=2), st.integers(0, 80))
    def test_it_is_the_longest_that_begins_with_a_person_and_fits(self, messages: list[BaseMessage], most: int) -> None:
        kept = prune_messages(messages, max_tokens=most, token_counter=all_words)
        assert same(kept, expected(messages, most))

    @given(wild_histories(), st.integers(0, 60))
    def test_laws_for_any_history(self, messages: list[BaseMessage], most: int) -> None:
        before = [message.model_copy(deep=True) for message in messages]
        kept = prune_messages(messages, max_tokens=most, token_counter=all_words)
        assert messages == before
        assert same(prune_messages(messages, max_tokens=most, token_counter=all_words), kept)
        repaired = repair_messages(messages)
        assert same(kept, expected(repaired, most))
        # valid: whole groups, a person first or a greeting, system messages at the front, all of them
        assert objections(kept, window=len(kept) < len(repaired)) == []
        assert not PROVIDERS or sent_objections(kept) == []
        assert [m for m in kept if isinstance(m, SystemMessage)] == [
            m for m in messages if isinstance(m, SystemMessage)
        ]
        # a subset in order, the same objects
        known = list(map(id, repaired))
        places = [known.index(id(message)) for message in kept]
        assert places == sorted(set(places))
        # the newest question is there
        asked = [message for message in messages if isinstance(message, HumanMessage)]
        assert not asked or asked[-1] in kept

    def test_a_long_tool_loop_keeps_the_question_and_the_newest_results(self) -> None:
        messages: list[BaseMessage] = [SystemMessage("be brief"), HumanMessage("find it")]
        for step in range(6):
            calls = [{"name": "search", "args": {}, "id": f"{step}{side}"} for side in "ab"]
            results = [ToolMessage("page " * 9, tool_call_id=str(call["id"])) for call in calls]
            messages += [AIMessage("I look", tool_calls=calls), *results]
        upstream = trim_messages(
            messages, max_tokens=30, token_counter=all_words, start_on="human", include_system=True
        )
        assert same(upstream, messages[:1])
        for most, groups in [(1, 1), (29, 1), (52, 2), (75, 3), (144, 6)]:
            kept = prune_messages(messages, max_tokens=most, token_counter=all_words)
            assert same(kept, messages[:2] + messages[-3 * groups :])

    def test_late_results_and_system_messages_in_between_are_sorted_in(self) -> None:
        call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "x"}])
        question, result, more, rule = (
            HumanMessage("q"), ToolMessage("r", tool_call_id="x"), HumanMessage("and?"), SystemMessage("s"),
        )  # fmt: skip
        kept = prune_messages([question, call, more, rule, result], max_tokens=100, token_counter=all_words)
        assert same(kept, [rule, question, call, result, more])

    def test_a_pending_call_is_left_alone_and_one_that_was_passed_over_goes(self) -> None:
        call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "x"}])
        question, more = HumanMessage("q"), HumanMessage("never mind")
        assert same(prune_messages([question, call], max_tokens=1, token_counter=all_words), [question, call])
        assert same(prune_messages([question, call, more], max_tokens=99, token_counter=all_words), [question, more])

    def test_a_greeting_stays_if_everything_fits(self) -> None:
        messages = [AIMessage("9:40 to Porto or 11:15 to Faro?"), HumanMessage("The second, please.")]
        options: Any = {"token_counter": all_words}
        assert same(prune_messages(messages, max_tokens=12, **options), messages)
        assert same(prune_messages(messages, max_tokens=12, **options, top_k=2), messages)
        assert same(prune_messages(messages, max_tokens=11, **options), messages[1:])
        call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": "x"}])
        acting = [call, ToolMessage("r", tool_call_id="x"), *messages]
        assert same(prune_messages(acting, max_tokens=99, **options), messages[1:]), "which Gemini refuses"


# ---------------------------------------------------------------------- beside trim_messages


def without_split_groups(kept: Sequence[BaseMessage], messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    there = set(ids(kept))
    whole = {place for group in group_ids(messages) if there.issuperset(group) for place in group}
    return [message for message in kept if int(message.id or "") in whole]


class TestBesideUpstream:
    """Where what `trim_messages` does is right, the same comes out."""

    @given(sound_histories(), st.integers(0, 80), st.sampled_from(COUNTERS))
    def test_last(self, messages: list[BaseMessage], most: int, counter: Any) -> None:
        options = {"max_tokens": most, "token_counter": counter, "start_on": "human", "include_system": True}
        upstream = trim_messages(messages, **options)
        kept = prune_messages(messages, max_tokens=most, token_counter=counter)
        asked = [message for message in messages if isinstance(message, HumanMessage)]
        if not asked or asked[-1] in upstream:
            with_greeting = len(kept) == len(messages)  # which is kept if everything fits
            assert same(kept, messages if with_greeting else without_split_groups(upstream, messages))
        else:
            assert asked[-1] in kept


BLOCKS = AIMessage([{"type": "text", "text": "north"}, {"type": "text", "text": "south"}], id="blocks")
CHAT = [SystemMessage("rules", id="s"), HumanMessage("a b c", id="h1"), BLOCKS, HumanMessage("d e", id="h2")]


class TestTrimming:
    """What one expects of `trim_messages`, with its defaults."""

    def test_a_model_counts_texts(self) -> None:
        class Tokenizes(FakeListChatModel):
            responses: list[str] = Field(default_factory=list)

            def get_num_tokens(self, text: str) -> int:
                return len(text)

        # 5 + 5 + 10 + 3 characters, and framing of 4 for each message.
        for most, kept in ((38, [0, 3]), (39, [0, 1, 2, 3])):
            pruned = prune_messages(CHAT, max_tokens=most, token_counter=Tokenizes())
            assert same(pruned, [CHAT[place] for place in kept])

    @pytest.mark.parametrize("number", [None, pytest.param(1, marks=needs_providers)])
    def test_a_model_that_asks_a_server_or_has_only_gpt2_s_tokenizer_is_not_asked(self, number: int | None) -> None:
        model = FakeListChatModel(responses=[]) if number is None else models()[number]
        with pytest.warns(TokenFallbackWarning, match="downloaded"):
            kept = prune_messages(CHAT, max_tokens=10_000, token_counter=model)
        assert same(kept, CHAT)


# ---------------------------------------------------------------------- what is counted


def long_history(turns: int) -> list[BaseMessage]:
    messages: list[BaseMessage] = [SystemMessage("rules")]
    for turn in range(turns):
        call = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": f"{turn}"}])
        messages += [HumanMessage("q"), call, ToolMessage("r", tool_call_id=f"{turn}"), AIMessage("a")]
    return messages


class TestCounting:
    def test_each_message_is_counted_once_and_only_near_the_window(self) -> None:
        counter = WordCounter()
        messages = long_history(2_000)
        wanted = [messages[0], *messages[-40:]]
        kept = prune_messages(messages, max_tokens=list_counter(WordCounter())(wanted), token_counter=counter)
        assert same(kept, wanted)
        assert len(counter.texts) <= 4 * len(kept), "texts, and names and arguments of calls"

    @given(sound_histories(systems=2), st.integers(0, 80))
    def test_lists_are_in_order_with_groups_whole(self, messages: list[BaseMessage], most: int) -> None:
        seen: list[list[BaseMessage]] = []

        def count(given_: list[BaseMessage]) -> int:
            assert isinstance(given_, list)
            seen.append(given_)
            return all_words(given_)

        prune_messages(messages, max_tokens=most, token_counter=count)
        for listed in seen:
            assert listed
            assert ids(listed) == sorted(set(ids(listed)))
            assert without_split_groups(listed, messages) == listed


# ---------------------------------------------------------------------- recall


def topics(*names: str) -> list[BaseMessage]:
    """A turn for each topic, with a tool call."""
    messages: list[BaseMessage] = []
    for place, name in enumerate(names):
        call = AIMessage(f"look up {name}", tool_calls=[{"name": "find", "args": {}, "id": f"{place}"}])
        messages += [HumanMessage(f"tell {name}"), call, ToolMessage("page", tool_call_id=f"{place}"), AIMessage(name)]
    return [message.model_copy(update={"id": str(place)}) for place, message in enumerate(messages)]


TURNS = topics("tulips", "granite", "violins", "tulips fertilizer", "harbours", "glaciers", "zeppelins")
QUESTION = HumanMessage("water for tulips", id=str(len(TURNS)))


def recalled(most: int, *, messages: Sequence[BaseMessage] = (*TURNS, QUESTION), **options: Any) -> list[int]:
    """The first messages of the turns that are kept."""
    options = {"embeddings": HashingEmbedder(), **options}

    def count(listed: list[BaseMessage]) -> int:
        assert ids(listed) == sorted(set(ids(listed)))
        return all_words(listed)

    kept = prune_messages(list(messages), max_tokens=most, token_counter=count, **options)
    assert all_words(kept) <= most
    assert objections(kept, window=True) == []
    assert ids(kept) == sorted(ids(kept))
    return ids(message for message in kept if isinstance(message, HumanMessage))


class TestRecall:
    def test_matching_turns_are_recalled_in_chronological_order(self) -> None:
        # Turns of 11 tokens, the one about fertilizer 14, and a question of 4. The window has what recall leaves.
        assert recalled(50) == recalled(50, top_k=0) == [16, 20, 24, 28]
        assert recalled(50, query="granite") == [4, 16, 20, 24, 28]
        assert recalled(50, top_k=4) == [0, 16, 20, 24, 28]
        assert recalled(52) == [12, 16, 20, 24, 28]
        assert recalled(52, top_k=4) == [0, 12, 20, 24, 28]
        assert recalled(52, top_k=1) == [0, 16, 20, 24, 28]
        # Where the newer one matches better, it still comes later; and the window may reach what has been brought back.
        assert recalled(52, query="tulips fertilizer") == [0, 12, 20, 24, 28]
        assert recalled(63, query="fertilizer", top_k=1) == [8, 12, 16, 20, 24, 28]

    def test_nothing_comes_back_where_nothing_matches_or_all_fits_or_nothing_fits_beside_the_question(self) -> None:
        embedder = HashingEmbedder()
        assert recalled(50, query="quantum", embeddings=embedder) == [16, 20, 24, 28]
        assert set(embedder.queries) == {"quantum"}
        embedder.queries.clear()
        assert recalled(50, query=" ", embeddings=embedder) == [16, 20, 24, 28]
        assert recalled(84, top_k=4, embeddings=embedder) == [*range(0, 29, 4)]
        assert recalled(4, top_k=4, embeddings=embedder) == [28]
        assert prune_messages(
            [QUESTION], max_tokens=1, token_counter=all_words, top_k=4, embeddings=embedder
        ) == [QUESTION]  # fmt: skip
        assert prune_messages([], max_tokens=1, token_counter=all_words, query="x", embeddings=embedder) == []
        assert embedder.queries == []

    @given(
        sound_histories(systems=2), st.integers(0, 80), st.integers(0, 3), st.sampled_from(["w", "call", None]),
    )  # fmt: skip
    def test_laws(self, messages: list[BaseMessage], most: int, top_k: int, query: str | None) -> None:
        before = [message.model_copy(deep=True) for message in messages]
        options: Any = {"max_tokens": most, "token_counter": all_words}
        plain = prune_messages(messages, **options)
        kept = prune_messages(messages, **options, query=query, top_k=top_k, embeddings=HashingEmbedder())
        again = prune_messages(messages, **options, query=query, top_k=top_k, embeddings=HashingEmbedder())
        assert same(kept, again)
        assert messages == before
        assert objections(kept, window=len(kept) < len(messages)) == []
        assert not PROVIDERS or sent_objections(kept) == []
        assert ids(kept) == sorted(set(ids(kept)))
        if all_words(plain) <= most:
            assert all_words(kept) <= most
        else:
            assert same(kept, plain)
        # whole turns, and the newest always
        turn_of = [sum(isinstance(m, HumanMessage) for m in messages[: place + 1]) for place in range(len(messages))]
        said = [place for place in ids(kept) if not isinstance(messages[place], SystemMessage)]
        turns = {turn_of[place] for place in said}
        assert not said or max(turns) == max(turn_of)
        if not same(kept, plain):
            assert [place for place in range(len(messages)) if turn_of[place] in turns and turn_of[place]] == said

    def test_top_k_is_a_number_of_turns(self) -> None:
        with pytest.raises(ValueError, match="top_k=-1"):
            prune_messages(TURNS, max_tokens=50, token_counter=all_words, query="tulips", top_k=-1)


# ---------------------------------------------------------------------- as a Runnable


class TestRunnable:
    def test_sync_async_and_in_batches(self) -> None:
        pruner = prune_messages(max_tokens=5, token_counter=all_words)
        expected_ = prune_messages(CHAT, max_tokens=5, token_counter=all_words)
        assert same(pruner.invoke(CHAT), expected_)
        assert same(asyncio.run(pruner.ainvoke(CHAT)), expected_)
        assert pruner.batch([CHAT, [], CHAT[:1]]) == [expected_, [], CHAT[:1]]
