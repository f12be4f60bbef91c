"""`prune`: which messages of a list are kept, in which order, and how many calls that costs the embedder."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import Message, prune
from shared_core.errors import EmbedderError
from shared_core.messages import ToolCall
from shared_core.plugins.embedders import CallableEmbedder
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.tokens import as_counter, message_tokens
from tests.support.scripted_embedder import ScriptedEmbedder

ASKED = "which boat did we hire?"


def talk(*texts: str) -> list[Message]:
    """A conversation in which user and assistant take turns."""
    roles = [Message.user, Message.assistant]
    return [roles[place % 2](text) for place, text in enumerate(texts)]


def calls(name: str, id_: str, arguments: str = "{}") -> Message:
    return Message.assistant(tool_calls=(ToolCall(id=id_, name=name, arguments=arguments),))


HISTORY = talk("q0", "a1", "q2", "a3", "q4", "a5", "q6", "a7")
# The scores that were measured for the published example with the question worded "go back".
SCORES = {"q0": 0.0746, "a1": 0.1248, "q2": 0.0102, "a3": 0.0576, "q4": 0.3918, "a5": 0.1385}


def kept(history: Sequence[Message], embedder: ScriptedEmbedder | None = None, **options: Any) -> list[str]:
    """The texts kept, without the question, which always comes last."""
    result = prune(history, ASKED, embedder=embedder or ScriptedEmbedder(SCORES), **options)
    assert result[-1] == Message.user(ASKED)
    return [message.content for message in result[:-1]]


def test_f1_f3_f5_the_two_most_alike_then_the_last_turn_then_the_question() -> None:
    assert kept(HISTORY) == ["q4", "a5", "q6", "a7"]


def test_f4_the_text_alone_is_embedded_without_role_name_or_grounding() -> None:
    history = [Message.user("q0", name="Ann", grounding="found it"), *HISTORY[1:]]
    embedder = ScriptedEmbedder(SCORES)
    prune(history, Message.user(ASKED, grounding="and more"), embedder=embedder)
    assert embedder.documents == ["q0", "a1", "q2", "a3", "q4", "a5"]
    assert embedder.queries == [ASKED]


def test_f6_the_chosen_stand_in_the_order_they_were_said_not_by_score() -> None:
    scores = {"q0": 0.5, "a1": 0.125, "q2": 0.75, "a3": 0.0, "q4": 0.25, "a5": 0.625}
    assert kept(HISTORY, ScriptedEmbedder(scores), top_k=3) == ["q0", "q2", "a5", "q6", "a7"]


def test_f7_the_list_given_is_not_changed_and_its_own_messages_come_back() -> None:
    history = list(HISTORY)
    question = Message.user(ASKED, id="mine", grounding="kept")
    result = prune(history, question, embedder=ScriptedEmbedder(SCORES))
    assert history == HISTORY
    assert all(any(message is given for given in history) for message in result[:-1])
    assert result[-1] is question


def test_f10_top_k_from_none_to_everything(subtests: pytest.Subtests) -> None:
    rows: list[tuple[int, list[int]]] = [
        (0, []),
        (1, [4]),
        (2, [1, 4]),
        (3, [1, 4, 5]),
        (4, [1, 3, 4, 5]),
        (5, [0, 1, 3, 4, 5]),
        (6, [0, 1, 2, 3, 4, 5]),
        (99, [0, 1, 2, 3, 4, 5]),
    ]
    for top_k, chosen in rows:
        with subtests.test(top_k=top_k, chosen=chosen):
            scores = dict(zip(SCORES, (0.087118, 0.160691, 0.017369, 0.087499, 0.408410, 0.132393), strict=True))
            embedder = ScriptedEmbedder(scores)
            assert kept(HISTORY, embedder, top_k=top_k) == [HISTORY[place].content for place in [*chosen, 6, 7]]
            assert len(embedder.batches) == (0 < top_k < 6)


class TestF13:
    def test_a_question_without_an_answer_is_the_last_turn_and_no_pair_is_split(self) -> None:
        history = [*HISTORY[:7], Message.user("one more thing")]
        assert kept(history, top_k=0) == ["one more thing"]

    def test_all_that_answers_the_last_question_belongs_to_its_turn(self) -> None:
        last = [Message.user("weather?"), calls("weather", "c"), Message.tool("sunny", "c"), Message.assistant("sun!")]
        assert kept([*HISTORY, *last], top_k=0) == ["weather?", "", "sunny", "sun!"]

    def test_system_messages_stay_wherever_they_stand_and_are_not_compared(self) -> None:
        history = [Message.system("rule 1"), *HISTORY[:4], Message.system("rule 2"), *HISTORY[4:]]
        embedder = ScriptedEmbedder(SCORES)
        assert kept(history, embedder) == ["rule 1", "rule 2", "q4", "a5", "q6", "a7"]
        assert "rule 1" not in embedder.documents

    def test_a_pinned_turn_stays_whole(self) -> None:
        history = [HISTORY[0], HISTORY[1].replace(pinned=True), *HISTORY[2:]]
        assert kept(history, top_k=1) == ["q0", "a1", "q4", "q6", "a7"]

    def test_a_tool_call_and_its_results_come_together_and_are_found_by_the_call(self) -> None:
        tools = [calls("boats", "c", "harbour"), Message.tool("the Petrel", "c")]
        history = [Message.user("go on"), *tools, Message.assistant("done"), *HISTORY[6:]]
        embedder = ScriptedEmbedder({"boats harbour": 0.5})
        assert prune(history, ASKED, top_k=1, embedder=embedder)[:-1] == [*tools, *HISTORY[6:]]
        assert embedder.batches == [["go on", "boats harbour", "done"]]

    def test_a_result_that_came_a_turn_late_keeps_its_call(self) -> None:
        history = [Message.user("go on"), calls("boats", "c"), Message.user("well?"), Message.tool("Petrel", "c")]
        assert prune(history, ASKED, top_k=0, embedder=ScriptedEmbedder({}))[:-1] == history[1:]

    def test_half_a_tool_group_is_never_kept(self) -> None:
        broken = [calls("boats", "c"), Message.tool("nobody asked", "x")]
        history = [Message.user("go on"), *broken, *HISTORY[6:], calls("boats", "e")]
        assert kept(history, top_k=99) == ["go on", "q6", "a7"]


def test_f14_repeated_texts_count_once() -> None:
    embedder = ScriptedEmbedder({"fleet": 0.75, "trucks": 0.5, "rain": 0.25})
    history = [*talk("fleet", "trucks", "fleet", "rain", "fleet", "fine"), *HISTORY[6:]]
    assert kept(history, embedder) == ["trucks", "fleet", "q6", "a7"]


def test_f14_equal_scores_of_different_texts_are_both_kept_the_newest_first() -> None:
    embedder = ScriptedEmbedder({"q0": 0.5, "a1": 0.25, "q2": 0.5, "a3": 0.5})
    assert kept(HISTORY, embedder, top_k=2) == ["q2", "a3", "q6", "a7"]
    assert kept(HISTORY, embedder, top_k=3) == ["q0", "q2", "a3", "q6", "a7"]


def test_a_message_without_text_is_never_chosen() -> None:
    history = talk("", " ", "q2", "a3", "q4", "a5", "q6", "a7")
    scores = dict.fromkeys(("q2", "a3", "q4", "a5"), -0.5)
    assert kept(history, ScriptedEmbedder(scores), top_k=3) == ["a3", "q4", "a5", "q6", "a7"]


def test_f15_everything_is_embedded_once_in_one_batch() -> None:
    embedder = HashingEmbedder()
    batches: list[list[str]] = []

    def embed(texts: list[str]) -> Any:
        batches.append(texts)
        return embedder.embed_documents(texts)

    counting = CallableEmbedder(embed, name="counting", dimension=64, query=embedder.embed_query)
    history = [*talk(*(f"message {number % 300}" for number in range(400))), *HISTORY[6:]]
    prune(history, ASKED, embedder=counting)
    assert [sorted(batch) for batch in batches] == [sorted({message.content for message in history[:-2]})]
    assert embedder.queries == [ASKED]


def test_f16_a_long_text_is_compared_by_its_best_piece() -> None:
    class Pieces(ScriptedEmbedder):
        def split(self, text: str) -> list[str]:
            return text.split("|")

    embedder = Pieces({"the boat": 0.75, "q2": 0.5, "a3": 0.25})
    history = [*talk("much|ado|the boat", "a1", "q2", "a3"), *HISTORY[6:]]
    assert kept(history, embedder, top_k=1) == ["much|ado|the boat", "q6", "a7"]
    assert embedder.batches == [["much", "ado", "the boat", "a1", "q2", "a3"]]


def test_f17_a_failing_embedder_is_an_error_not_a_worse_choice() -> None:
    embedder = ScriptedEmbedder(SCORES)
    embedder.failing = EmbedderError("no service")
    with pytest.raises(EmbedderError):
        prune(HISTORY, ASKED, embedder=embedder)


def test_f17_without_an_embedder_pruning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared_core.lists.as_embedder", lambda value: None)
    with pytest.raises(EmbedderError, match="embedder="):
        prune(HISTORY, ASKED)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=12), st.integers(0, 4))
def test_f18_what_is_kept_is_smaller_a_subsequence_and_ends_with_the_last_turn(texts: list[str], top_k: int) -> None:
    counter = as_counter("conservative")
    history = talk(*(text for text in texts for _ in (0, 1)))
    result = prune(history, ASKED, top_k=top_k, embedder=HashingEmbedder())

    def tokens(messages: Sequence[Message]) -> int:
        return sum(message_tokens(message, counter) for message in messages)

    places = [next(i for i, given in enumerate(history) if given is message) for message in result[:-1]]
    assert places == sorted(set(places))
    assert places[-2:] == [len(history) - 2, len(history) - 1]
    assert len(places) <= top_k + 2
    if len(history) > top_k + 2:
        assert tokens(result) < tokens(history) + tokens(result[-1:])
    else:
        assert result[:-1] == history


class TestF19:
    def test_whole_exchanges_as_units_keep_the_question_with_its_answer(self) -> None:
        embedder = ScriptedEmbedder({"q0 a1": 0.054, "q2 a3": 0.138, "q4 a5": 0.288})
        assert kept(HISTORY, embedder, unit="turn", top_k=1) == ["q4", "a5", "q6", "a7"]
        assert embedder.batches == [["q0 a1", "q2 a3", "q4 a5"]]

    def test_tool_results_belong_to_the_turn_but_are_not_compared(self) -> None:
        turn = [Message.user("weather?"), calls("sky", "c"), Message.tool("18.5 C", "c"), Message.assistant("mild")]
        embedder = ScriptedEmbedder({"weather? mild sky {}": 0.5})
        history = [*turn, *HISTORY[2:]]
        assert kept(history, embedder, unit="turn", top_k=1) == ["weather?", "", "18.5 C", "mild", "q6", "a7"]
