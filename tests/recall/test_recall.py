"""Recall from the history: what is embedded, what is brought back, and how it is written."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared_core import Context, InfiniteMemory, Message, RecallTemplate, SQLiteStore, ToolCall
from shared_core.pipeline import REPEATS
from shared_core.prompt.hits import Kind
from shared_core.prompt.report import ReportLine
from shared_core.results import Reason
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import CountingStore
from tests.support.scripted_embedder import ScriptedEmbedder, minilm

QUESTION = "where do i like to swim?"

WET = "anywhere wet?"
"""A question that shares no word with what is stored."""

LIMIT = 400
"""Tokens of the prompts below."""

FILLER = 25
"""Turns of small talk that are more than a prompt holds, so that nothing before them is in the window."""

Pair = tuple[str, str]

LAKE: Pair = ("the lake was lovely", "I am glad you enjoyed the water.")
POOLS: Pair = ("which pools are open", "The one at the station, and the old baths.")
PRAGUE: Pair = ("where do i like to swim in prague", "At the weir below the bridge.")


def text(pair: Pair) -> str:
    return f"{pair[0]} {pair[1]}"


def scripted(cosines: Mapping[Pair, float]) -> ScriptedEmbedder:
    """Exchanges are as near to any question as given, and small talk is far from it."""
    return ScriptedEmbedder({text(pair): cosine for pair, cosine in cosines.items()})


def memory_of(
    pairs: Sequence[Pair], embedder: Any, *, store: Any = None, filler: int = FILLER, **options: Any
) -> InfiniteMemory:
    """A memory set as in the first write-up: whole exchanges above a threshold."""
    settings: dict[str, Any] = {
        "recall_unit": "turn", "recall": "thorough", "min_score": 0.5, "max_tokens": LIMIT, "reserve_tokens": 0,
        "token_counter": "characters/4", "fill": "stop",
    }  # fmt: skip
    memory = InfiniteMemory(store, embedder=embedder, **settings | options)
    for pair in [*pairs, *map(small_talk, range(filler))]:
        say(memory, pair)
    return memory


def small_talk(number: int) -> Pair:
    return f"small talk number {number}", f"so it is, {number} times over, as one says"


def say(memory: InfiniteMemory, pair: Pair) -> None:
    memory.add([Message.user(pair[0]), Message.assistant(pair[1])])


def lines(context: Context, *, included: bool = True) -> list[ReportLine]:
    found = [line for line in context.report.lines if line.kind is Kind.RECALLED and line.id]
    return [line for line in found if line.included is included]


def recalled(memory: InfiniteMemory, question: str | None = QUESTION) -> list[str]:
    """What is brought back, best first, in the words of the report, which shows the beginning of each message."""
    context = memory.context(question)
    assert context.report.degraded == ()
    assert context.report.pending == 0
    return [line.preview for line in lines(context)]


def both(*pairs: Pair) -> list[str]:
    return [side for pair in pairs for side in pair]


def asked(memory: InfiniteMemory, question: str = QUESTION) -> str:
    """The question as it is sent."""
    return memory.context(question).messages[-1].content


class TestWhatIsEmbedded:
    def test_c1_an_exchange_is_one_text_without_roles_names_or_grounding(self) -> None:
        embedder = scripted({})
        with memory_of([], embedder, filler=0) as memory:
            memory.add([Message.user("q", name="Ann", grounding="found"), Message.assistant("a")])
            say(memory, LAKE)
            memory.index()
        assert sorted(embedder.documents) == sorted(["q a", text(LAKE)])

    def test_c2_the_question_is_embedded_alone_and_scored_by_the_dot_product(self) -> None:
        embedder = scripted({LAKE: 0.75, POOLS: 0.625})
        with memory_of([LAKE, POOLS], embedder) as memory:
            context = memory.context(Message.user(QUESTION, grounding="found"))
        assert embedder.queries == [QUESTION]
        assert [(line.preview, line.dense) for line in lines(context)] == [
            *((side, 0.75) for side in LAKE), *((side, 0.625) for side in POOLS)
        ]  # fmt: skip

    def test_c15_what_is_embedded_is_a_setting(self) -> None:
        embedder = ScriptedEmbedder({"LAKE": 0.75})

        def first_noun(messages: Sequence[Message]) -> str:
            return messages[0].content.split(" ")[1].upper()

        with memory_of([LAKE, POOLS], embedder, embed_text=first_noun) as memory:
            assert recalled(memory) == both(LAKE)
        assert {"LAKE", "POOLS", "TALK"} == set(embedder.documents)


class TestC3Threshold:
    """Nothing unless the best is above the threshold; then everything that reaches it."""

    @pytest.mark.parametrize(
        ("best", "second", "found"),
        [(0.5, 0.5, []), (0.5, 0.25, []), (0.53125, 0.5, [LAKE, POOLS]), (0.53125, 0.46875, [LAKE]),
         (0.46875, 0.25, [])],
    )  # fmt: skip
    def test_above_for_the_best_and_at_for_the_rest(self, best: float, second: float, found: list[Pair]) -> None:
        with memory_of([LAKE, POOLS], scripted({LAKE: best, POOLS: second}), min_score=0.5) as memory:
            assert recalled(memory) == both(*found)

    @pytest.mark.parametrize(
        ("best", "second", "found"),
        [
            (0.3125, 0.1875, [LAKE, POOLS]),
            (0.1875, 0.1875, []),
            (0.3125, 0.0625, [LAKE]),
            (0.3125, 0.125, [LAKE, POOLS]),
        ],
    )
    def test_by_default_one_must_reach_the_floor_of_the_embedder_and_others_come_along(
        self, best: float, second: float, found: list[Pair]
    ) -> None:
        embedder = scripted({LAKE: best, POOLS: second})
        with memory_of([LAKE, POOLS], embedder, min_score=None) as memory:
            assert recalled(memory) == both(*found)


class TestC4NothingRelevant:
    def test_an_empty_memory_leaves_the_question_as_it_is_and_embeds_nothing(self) -> None:
        embedder = scripted({})
        with memory_of([], embedder, filler=0) as memory:
            context = memory.context(QUESTION)
        assert context.messages == (Message.user(QUESTION),)
        assert embedder.documents == embedder.queries == []

    def test_with_nothing_above_the_threshold_too(self) -> None:
        with memory_of([LAKE, POOLS], scripted({LAKE: 0.25})) as memory:
            context = memory.context(QUESTION)
        assert context.messages[-1] == Message.user(QUESTION)
        assert lines(context) == []
        assert {line.reason for line in lines(context, included=False)} == {Reason.WEAK}


SEED_TEMPLATE = RecallTemplate(
    header="Following are some older interactions from this chat:",
    footer="\n\nUse the above information to answer the following question:",
    day="", item="{text}", separator="\n\n", turn_separator=" ", order="score",
)  # fmt: skip


class TestWording:
    def test_c5_the_published_wording_to_the_letter_c6_the_best_match_last(self) -> None:
        with memory_of([LAKE, POOLS], scripted({LAKE: 0.75, POOLS: 0.625}), recall_template=SEED_TEMPLATE) as memory:
            assert asked(memory) == (
                "Following are some older interactions from this chat:\n\n"
                + text(POOLS) + "\n\n" + text(LAKE) + "\n\n"
                + "\n\nUse the above information to answer the following question:\n\n"
                + QUESTION
            )  # fmt: skip

    def test_what_fits_is_recalled_although_it_costs_more_than_estimated(self) -> None:
        dear = RecallTemplate(turn_separator=f"\n{'=- ' * 40}\n")
        with memory_of([LAKE, POOLS, PRAGUE], scripted({LAKE: 0.75, POOLS: 0.625, PRAGUE: 0.5}), filler=40,
                       recall_template=dear, recall_tokens=120) as memory:  # fmt: skip
            context = memory.context(WET)
        assert [line.preview for line in lines(context)] == both(LAKE)
        assert 60 < context.report.totals[Kind.RECALLED] <= 120

    def test_c14_c16_by_default_recalled_text_is_dated_and_marked_as_no_instruction(self) -> None:
        start = datetime(2026, 2, 27, 8, tzinfo=UTC)
        hours = iter(range(1000))
        clock = lambda: start + timedelta(hours=next(hours))  # noqa: E731
        with memory_of([LAKE], scripted({LAKE: 0.75}), clock=clock) as memory:
            fence, about, *said, question = asked(memory).split("\n")
        assert fence == "<earlier_messages>"
        assert "not instructions" in about
        assert "may not matter" in about
        assert said == ["2026-02-27", f"- user: {LAKE[0]}", f"- assistant: {LAKE[1]}", "</earlier_messages>", ""]
        assert question == QUESTION


# The cosines that MiniLM gives the two published questions and exchanges; the sentences are ours.


class TestC9AnswersBecomeMemory:
    def test_an_earlier_copy_of_the_question_is_no_evidence(self) -> None:
        answer = "In the lake, you said."
        cosines = {QUESTION: 1.0, answer: 0.625, LAKE[0]: 0.5625}
        with memory_of(
            [LAKE, (QUESTION, answer)], ScriptedEmbedder(cosines), recall_unit="message", top_k=2
        ) as memory:  # fmt: skip
            context = memory.context(QUESTION)
            assert [line.preview for line in lines(context)] == [answer, LAKE[0]]
            assert [line.preview for line in context.report.lines if line.reason is Reason.REPEATED] == [QUESTION]

    def test_asked_every_day_it_does_not_keep_its_answer_out(self) -> None:
        fact, asked_daily = "The spare key is under the blue pot.", "Where is the spare key of the house?"
        with InfiniteMemory(embedder=None, max_tokens=LIMIT, reserve_tokens=0, token_counter="characters/4") as memory:
            memory.add(Message.user(fact))
            memory.add([Message.user(f"{asked_daily}{'!' * (day % 3)}") for day in range(300)])
            context = memory.context(asked_daily)
            assert [line.preview for line in lines(context)] == [fact]
            refused = [line for line in context.report.lines if line.reason is Reason.REPEATED]
            assert len(refused) == REPEATS
            assert len(memory.search(asked_daily, 200)) == 200, "a search shows them all"


class TestC10TheQuestionCannotFindItself:
    @pytest.mark.parametrize("unit", ["message", "turn"])
    @pytest.mark.parametrize("replied", [False, True])
    def test_nor_a_stored_one_nor_what_answers_it(self, unit: str, replied: bool) -> None:
        cosines = {QUESTION: 1.0, "wait": 0.75, f"{QUESTION} wait": 1.0, text(LAKE): 0.75, LAKE[0]: 0.75}
        with memory_of([LAKE], ScriptedEmbedder(cosines), recall_unit=unit) as memory:
            memory.add(Message.user(QUESTION))
            if replied:
                memory.add(Message.assistant("wait", tool_calls=(ToolCall(id="c", name="think"),)))
            assert recalled(memory, None) == (both(LAKE) if unit == "turn" else [LAKE[0]])


REOPEN = textwrap.dedent("""
    import json, sys
    from shared_core import InfiniteMemory
    from shared_core.testing.hashing_embedder import HashingEmbedder

    path, question, settings = json.loads(sys.stdin.read())
    embedder = HashingEmbedder()
    with InfiniteMemory(path, embedder=embedder, **settings) as memory:
        report = memory.context(question).report
    found = [line.preview for line in report.lines if line.kind == "recalled" and line.included and line.id]
    sys.stdout.write(json.dumps([found, embedder.documents, embedder.queries]))
""")


def test_c11_a_new_process_remembers_and_computes_no_vector_again(tmp_path: Path) -> None:
    path, question = str(tmp_path / "chat.db"), "which lake was lovely?"
    settings: dict[str, Any] = {"recall_unit": "turn", "min_score": 0.25, "max_tokens": LIMIT,
                "reserve_tokens": 0, "token_counter": "characters/4"}  # fmt: skip
    with memory_of([LAKE, POOLS], HashingEmbedder(), store=path, **settings) as memory:
        memory.index()
        here = recalled(memory, question)
    assert here == both(LAKE)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", REOPEN], input=json.dumps([path, question, settings]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [here, [], [question]]


class TestC12:
    def test_what_is_in_the_window_is_not_also_recalled(self) -> None:
        newest: Pair = ("the swimming news", "You swam in the lake today.")
        embedder = scripted({LAKE: 0.625, newest: 0.875})
        with memory_of([LAKE], embedder) as memory:
            say(memory, newest)
            context = memory.context(QUESTION)
        assert text(newest) not in embedder.documents
        everything = "\n".join(message.content for message in context.messages)
        assert [everything.count(side) for side in both(newest, LAKE)] == [1, 1, 1, 1]
        assert [line.preview for line in lines(context)] == both(LAKE)

    def test_while_everything_fits_nothing_is_recalled_or_embedded(self) -> None:
        embedder = scripted({LAKE: 0.75})
        with memory_of([LAKE, POOLS], embedder, filler=0) as memory:
            context = memory.context(QUESTION)
        assert [message.content for message in context.messages] == [*both(LAKE, POOLS), QUESTION]
        assert embedder.documents == embedder.queries == []


WEATHER = "what is the weather like?"


class TestC13ToolTurns:
    """Live data goes stale: of a turn that used a tool, the text is recalled, and not the results."""

    turn = (
        Message.user(WEATHER),
        Message.assistant("let me look", tool_calls=(ToolCall(id="c", name="weather"),)),
        Message.tool("cloudless weather, 31 C", "c"),
        Message.assistant("The weather is fine, 31 degrees."),
    )
    plain: Pair = ("i love this weather", "So do the swifts.")

    def memory(self, embedder: Any, **options: Any) -> InfiniteMemory:
        memory = memory_of([], embedder, filler=0, **options)
        memory.add(self.turn)
        for pair in [self.plain, *map(small_talk, range(FILLER))]:
            say(memory, pair)
        return memory

    @pytest.mark.parametrize("unit", ["message", "turn"])
    def test_what_comes_back(self, unit: str) -> None:
        question = "weather, fine or cloudless?"
        with self.memory(HashingEmbedder(), recall_unit=unit, min_score=None) as memory:
            prompt = asked(memory, question).removesuffix(question)
        assert self.plain[0] in prompt
        assert "fine, 31" in prompt
        assert "cloudless" not in prompt

    def test_asked_again_the_old_answer_stands_in_for_the_tool(self) -> None:
        said = " ".join(self.turn[index].content for index in (0, 1, 3))
        with self.memory(ScriptedEmbedder({said: 0.75})) as memory:
            assert len(recalled(memory, WEATHER)) == 3


class TestC17EqualScores:
    @pytest.mark.parametrize("newer", [0.625, 0.75, 0.875])
    def test_c14_what_was_said_twice_is_recalled_once_the_newer_whichever_scores_higher(self, newer: float) -> None:
        again: Pair = (f"{LAKE[0].upper()}!", LAKE[1])
        with memory_of([LAKE, POOLS, again], scripted({LAKE: 0.75, again: newer})) as memory:
            stored = [message.id for message in memory.messages()]
            context = memory.context(QUESTION)
        assert [line.id for line in lines(context)] == stored[4:6]
        assert [line.id for line in context.report.lines if line.reason is Reason.REPEATED] == stored[0:2]

    def test_a_word_or_two_said_again_is_another_answer(self) -> None:
        yes: Pair = ("yes", "Noted then.")
        again: Pair = ("Yes!", "It is done.")
        with memory_of([yes, again], ScriptedEmbedder({"yes": 0.75, "Yes!": 0.75}), recall_unit="message") as memory:
            assert {"yes", "Yes!"} <= set(recalled(memory))


class TestC18Caps:
    cosines: Mapping[Pair, float] = {LAKE: 0.625, POOLS: 0.875, PRAGUE: 0.75}

    @pytest.mark.parametrize(
        ("top_k", "found"), [(0, []), (1, [POOLS]), (2, [POOLS, PRAGUE]), (None, [POOLS, PRAGUE, LAKE])]
    )
    def test_the_best_top_k(self, top_k: int | None, found: list[Pair]) -> None:
        with memory_of(list(self.cosines), scripted(self.cosines), top_k=top_k) as memory:
            assert recalled(memory, WET) == both(*found)

    def test_the_best_that_fit_the_tokens_given_to_recall(self) -> None:
        # What is better and does not fit is passed over for what does: the lake is shorter than Prague.
        expected = {
            0: [],
            61: [LAKE],
            64: [POOLS],
            83: [POOLS, LAKE],
            86: [POOLS, PRAGUE],
            105: [POOLS, PRAGUE, LAKE],
        }
        costs = {0: 0, 61: 60, 64: 63, 83: 81, 86: 84, 105: 103}
        around = {max(0, tokens + more) for tokens in expected for more in (-1, 0, 1)}
        for tokens in sorted({*around, 159}):
            step = max(least for least in expected if least <= tokens)
            with memory_of(list(self.cosines), scripted(self.cosines), recall_tokens=tokens) as memory:
                context = memory.context(WET)
            assert [line.preview for line in lines(context)] == both(*expected[step]), tokens
            assert context.report.totals[Kind.RECALLED] == costs[step] <= tokens
            assert context.tokens <= LIMIT


class TestC20Users:
    @pytest.mark.parametrize("placement", ["grounding", "messages", "system"])
    @pytest.mark.parametrize("filler", [0, 1])
    def test_also_by_a_session_that_has_said_nothing_or_little(self, filler: int, placement: Any) -> None:
        """Nothing of the session itself needs recall then; what is elsewhere does."""
        embedder = scripted({LAKE: 0.75, POOLS: 0.875})
        with closing(SQLiteStore(":memory:")) as store:
            memory_of([LAKE], embedder, store=store, user_id="ann", session_id="1").close()
            memory_of([POOLS], embedder, store=store, user_id="ben", session_id="1").close()
            settings: dict[str, Any] = {"store": store, "user_id": "ann", "session_id": "2", "scope": "user"}
            with memory_of([], embedder, filler=filler, placement=placement, **settings) as memory:
                assert recalled(memory) == both(LAKE)
                sent = [message.content for message in memory.context(QUESTION).messages]
                assert [content.count(LAKE[0]) for content in sent if LAKE[0] in content] == [1]
                window = both(*map(small_talk, range(filler)))
                assert [content for content in sent if content in window] == window
                assert [hit.message.content for hit in memory.search(QUESTION)] == [LAKE[1]]
            assert len(store.sessions("ann")) == 1 + (filler > 0), "a question creates no session"

    def test_a_turn_of_another_session_stays_together(self) -> None:
        """Two exchanges at one moment, in two sessions, are two exchanges; the older one comes first."""
        moment = datetime(2026, 2, 27, 8, tzinfo=UTC)
        embedder = scripted({LAKE: 0.75, POOLS: 0.875, PRAGUE: 0.625})
        with closing(SQLiteStore(":memory:")) as store:
            settings: dict[str, Any] = {"store": store, "user_id": "ann", "filler": 0}
            for session, pair, hours in (("1", LAKE, 0), ("2", POOLS, 0), ("3", PRAGUE, -1)):
                clock = lambda hours=hours: moment + timedelta(hours=hours)  # noqa: E731
                memory_of([pair], embedder, session_id=session, clock=clock, **settings).close()
            with memory_of(
                [], embedder, session_id="4", scope="user", placement="messages", **settings
            ) as memory:  # fmt: skip
                sent = [message.content for message in memory.context(QUESTION).messages]
        assert sent == [*both(PRAGUE, LAKE, POOLS), QUESTION]

    def test_another_session_keeps_its_own_embedder(self) -> None:
        """It is searched by words, which the report says, and nothing is written to it."""
        mine, theirs = HashingEmbedder(), HashingEmbedder(32, name="other")
        settings: dict[str, Any] = {"recall_unit": "message", "min_score": None, "user_id": "ann"}
        with closing(CountingStore(":memory:")) as store:
            for session, embedder in (("1", theirs), ("2", mine), ("3", None)):
                with memory_of([LAKE], embedder, store=store, session_id=session, filler=4, **settings) as memory:
                    if embedder is not None:
                        memory.index()
            store.reset()
            with memory_of([], mine, store=store, session_id="4", scope="user", filler=0, **settings) as memory:
                context = memory.context("the lovely lake?")
                again = memory.context("the lovely lake?")
            assert again == context
            assert LAKE[0] in [line.preview for line in lines(context)]
            (note,) = context.report.degraded
            assert note == "sessions not searched by meaning, because their vectors are another embedder's: 1"
            assert context.report.embedder == "hashing/64"
            keys = {one.session_id: one.key for one in store.sessions("ann")}
            # A session without vectors is given some: it has no embedder of its own yet.
            assert [store.spaces(keys[name]) for name in "123"] == [["other/32"], ["hashing/64"], ["hashing/64"]]
            assert store.calls["keep_vectors"] == 1

    def test_a_session_taken_over_by_another_embedder_is_left_to_it(self) -> None:
        mine, theirs = HashingEmbedder(), HashingEmbedder(32, name="other")
        settings: dict[str, Any] = {"recall_unit": "message", "user_id": "ann"}
        with closing(SQLiteStore(":memory:")) as store:
            other = memory_of([LAKE], theirs, store=store, session_id="1", filler=0, **settings)
            with memory_of([], mine, store=store, session_id="2", scope="user", filler=0, **settings) as memory:
                memory.context("the lovely lake?")
                other.index(again=True)
                say(other, POOLS)
                other.index()
                assert POOLS[0] in {hit.message.content for hit in memory.search("which pools?")}
            assert store.spaces(store.session("ann", "1") or 0) == ["other/32"]
        assert POOLS[0] not in mine.documents


@pytest.mark.model
@pytest.mark.parametrize("unit", ["message", "turn"])
def test_c21_what_stands_behind_the_model_s_last_piece_is_found(unit: str) -> None:
    model = minilm()
    garden = "We spoke about the garden, the rain and the long train ride to the coast. " * 16
    reply = f"{garden}My locker code is 4471."
    assert len(model.split(reply)) > 1
    assert model.embed_documents([reply])[0] @ model.embed_query("what is my locker code?") < 0.1
    talk = [("tell me about that day", reply), ("and then?", "the train was late and we waited " * 110)]
    with memory_of(
        talk, model, filler=0, recall_unit=unit, min_score=0.4, max_tokens=800, recall_tokens=500
    ) as memory:  # fmt: skip
        context = memory.context("what is my locker code?")
    found = [line for line in lines(context) if line.role == "assistant"]
    assert [(line.reason, line.part) for line in found] == [(Reason.RECALLED, True)]
    assert "My locker code is 4471. (excerpt of message" in context.messages[-1].content
    assert found[0].dense is not None
    assert found[0].dense > 0.4
    assert "4471" in context.messages[-1].content


def test_a_search_may_reach_beyond_the_session(tmp_path: Path) -> None:
    """The best come first whatever session they are of, and each names it; sessions of other users are not searched."""
    said = {
        ("ann", "gym"): ["My locker code is 4471.", "The sauna is closed on Mondays."],
        ("ann", "work"): ["The code review is on Monday.", "Ask Bob about the build."],
        ("bob", "gym"): ["My locker code is 9902."],
        (None, "gym"): ["My locker code is 1111."],
    }
    with closing(SQLiteStore(tmp_path / "chat.db")) as store:
        for (user, session), contents in said.items():
            with InfiniteMemory(store, session_id=session, user_id=user, embedder=HashingEmbedder()) as memory:
                memory.add([Message.user(content) for content in contents])
                memory.fork("side")
                memory.add(Message.user(f"The locker code, on the side of {session}."))
        for session in ("gym", "work", "not stored yet"):
            memory = InfiniteMemory(store, session_id=session, user_id="ann", embedder=HashingEmbedder())
            found = memory.search("what is my locker code", scope="user")
            best = {hit.session_id: hit.message.content for hit in reversed(found)}
            assert best == {"gym": "My locker code is 4471.", "work": "The code review is on Monday."}
            assert found[0].session_id == "gym"
            assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
            assert {hit.message.content for hit in found} <= {*said["ann", "gym"], *said["ann", "work"]}
            assert {hit.session_id for hit in memory.search("locker code")} <= {session}
            assert found[0].dense is not None
        nobody = InfiniteMemory(store, session_id="other", embedder=HashingEmbedder())
        (hit,) = nobody.search("locker code", scope="user")
        assert (hit.session_id, hit.message.content) == ("gym", "My locker code is 1111.")
        wide = InfiniteMemory(store, session_id="work", user_id="ann", scope="user", embedder=HashingEmbedder())
        assert wide.search("locker code")[0].session_id == "gym"
        assert {hit.session_id for hit in wide.search("locker code", scope="session")} == {"work"}
        with pytest.raises(ValueError, match="scope='all'"):
            wide.search("x", scope="all")  # type: ignore[arg-type]
        wide.close()


@pytest.mark.parametrize("said", ["Day {n} I had soup number {n}.", "Weight today: {n}.4 kg, walked {n}13 steps."])
def test_a_line_that_differs_from_earlier_ones_by_its_numbers_recalls_none_of_them(said: str) -> None:
    with InfiniteMemory(embedder="static", max_tokens=600, reserve_tokens=0) as memory:
        for day in range(90):
            memory.add([Message.user(said.format(n=day)), Message.assistant("Noted.")])
        context = memory.context(said.format(n=90))
        recalled = [line.text for line in context.report.included if line.kind is Kind.RECALLED]
        assert not [text for text in recalled if text.startswith(said[:3])]
        assert context.report.totals[Kind.WINDOW] > 300
