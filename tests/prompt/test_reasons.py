"""Each reason in a report says what really happened: the codes, a case for each, and the sums behind the rooms."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import Context, Grounding, InfiniteMemory, Message, ToolCall
from shared_core.prompt.assembler import SHARE
from shared_core.prompt.template import RecallTemplate
from shared_core.results import Kind, Reason
from tests.support.summarizers import Reading

CODES = {
    "always_sent", "question", "summary", "newest", "recalled", "neighbour",
    "wording", "no_room", "older", "top_k", "weak", "repeated", "in_window", "in_summary", "incomplete", "no_grounding",
}  # fmt: skip
"""Programs compare with these, so they never change."""

SENT = list(Reason)[: list(Reason).index(Reason.NO_ROOM)]


def test_the_codes_are_stable_and_each_has_a_sentence() -> None:
    assert {reason.value for reason in Reason} == {reason.name.lower() for reason in Reason} == CODES
    assert all(Reason(code) == code for code in CODES)
    assert len({reason.why for reason in Reason}) == len(CODES)


# Sizes are counted in words, so that the estimate of recalled text is exact and sums can be done by hand.


class WordCounter:
    """Counts words."""

    name = "words"
    overhead = 0

    def __call__(self, text: str) -> int:
        return len(text.split())


TEMPLATE = RecallTemplate(header="", footer="", day="", item="{text}", separator="\n")
SETTINGS: dict[str, Any] = {
    "reserve_tokens": 0, "token_counter": WordCounter(), "recall_template": TEMPLATE,
    "fill": "stop", "recall_unit": "message", "recall": "thorough",
}  # fmt: skip


def words(text: str, count: int) -> str:
    """A text of so many words that contains these."""
    return " ".join([*text.split(), *["x"] * (count - len(text.split()))])


def asked(said: Sequence[str], question: str, tools: Sequence[str] = (), **settings: Any) -> Context:
    """The prompt for a question after an exchange about each text, with ids m0, m1, ... for the user's messages."""
    talk = [Message.user(text, id=f"m{number}") for number, text in enumerate(said)]
    with InfiniteMemory(**{"embedder": "words"} | SETTINGS | settings) as memory:
        memory.add(talk)
        return memory.context(question, tools=tools)


def reasons(context: Context, *kinds: Kind) -> dict[str | None, Reason]:
    lines = context.report.lines
    return {line.id: line.reason for line in lines if not kinds or line.kind in kinds}


FILLERS = [words(f"other{number}", 10) for number in range(4)]


@pytest.mark.parametrize(("share", "sizes"), [(50, (60, 30, 30)), (1_000, (120, 60, 50))])
def test_what_does_not_fit_beside_better_matches_has_no_room(share: int, sizes: Sequence[int]) -> None:
    """Neither in the share of recall nor, where that is larger, in the whole budget."""
    said = [words(*one) for one in zip(("locker code", "locker", "locker code is"), sizes, strict=True)]
    found = reasons(asked([*said, *FILLERS], "locker code", max_tokens=100, recall_tokens=share), Kind.RECALLED)
    assert (found["m2"], found["m1"], found["m0"]) == (Reason.RECALLED, Reason.NO_ROOM, Reason.NO_ROOM)


def test_the_turn_before_the_window_is_too_large_for_it() -> None:
    context = asked([words("a", 10), words("b", 21), words("c", 10), words("d", 10)], "well", max_tokens=41)
    assert reasons(context) == {
        None: Reason.QUESTION, "m3": Reason.NEWEST, "m2": Reason.NEWEST, "m1": Reason.NO_ROOM,
    }  # fmt: skip
    skipping = asked([words("a", 10), words("b", 21), words("c", 10)], "well", max_tokens=21, fill="skip")
    assert reasons(skipping)["m1"] is Reason.NO_ROOM
    assert reasons(skipping)["m0"] is Reason.NEWEST


def test_a_neighbour_of_matches_does_not_match_the_question() -> None:
    """More than sixty good matches lift what was said between them, and the report tells one from the other."""
    pairs = [(f"the boat tower {number}", f"and {number} then") for number in range(70)]
    talk = [message for said, reply in pairs for message in (Message.user(said), Message.assistant(reply))]
    with InfiniteMemory(**SETTINGS | {"max_tokens": 400, "embedder": "words", "recall_tokens": 380}) as memory:
        memory.add([*talk, *(Message.user(words(f"later{number}", 30)) for number in range(8))])
        lines = memory.context("boat tower").report.lines
    recalled = [line for line in lines if line.kind is Kind.RECALLED and line.included and line.id]
    assert {line.reason for line in recalled} >= {Reason.RECALLED}
    for line in recalled:
        assert (line.reason is Reason.RECALLED) is ("boat" in line.text), line.text


def test_in_a_turn_only_the_message_that_was_found_matches() -> None:
    talk = [
        Message.user("where is it", id="q"), Message.assistant("the locker code is 4093", id="a"),
        *(Message.user(words(f"other{number}", 20)) for number in range(4)),
    ]  # fmt: skip
    with InfiniteMemory(
        **SETTINGS | {"max_tokens": 60, "embedder": "words", "recall_unit": "turn", "recall_tokens": 30}
    ) as memory:
        memory.add(talk)
        found = reasons(memory.context("locker code"), Kind.RECALLED)
    assert (found["q"], found["a"]) == (Reason.NEIGHBOUR, Reason.RECALLED)


def grounded(question: Message, **settings: Any) -> Reason:
    with InfiniteMemory(**SETTINGS | {"embedder": "words", "max_tokens": 20} | settings) as memory:
        return reasons(memory.context(question), Kind.GROUNDING)[None]


def test_grounding() -> None:
    def passages(*texts: str) -> Message:
        return Message.user("well", grounding=Grounding.model_validate({"items": [{"text": text} for text in texts]}))

    assert grounded(passages(words("one", 5))) is Reason.QUESTION
    assert grounded(passages(words("one", 15), words("two", 15))) is Reason.QUESTION
    assert grounded(passages(words("one", 5)), keep_grounding="none") is Reason.NO_GROUNDING
    assert grounded(passages()) is Reason.NO_GROUNDING
    assert grounded(passages(words("one", 15)), max_tokens=1) is Reason.NO_ROOM


def test_older_steps_of_the_turn_give_way() -> None:
    talk = [Message.user("find it", id="q")]
    for step in range(3):
        call = ToolCall(id=f"c{step}", name="look", arguments="{}")
        talk += [
            Message.assistant(id=f"a{step}", tool_calls=(call,)),
            Message.tool(words("x", 30), f"c{step}", id=f"t{step}"),
        ]
    with InfiniteMemory(**SETTINGS | {"max_tokens": 60, "embedder": "words"}) as memory:
        memory.add(talk)
        context = memory.context()
        tight = memory.context(max_tokens=46)
    found = reasons(context)
    assert (found["q"], found["t2"]) == (Reason.QUESTION, Reason.QUESTION)
    assert [line.id for line in context.report.lines if line.part] == ["t0", "t1"]
    assert context.report.degraded == ("tool results of this turn replaced by stubs: 2 (62 tokens) do not fit",)
    dropped = reasons(tight)
    assert [dropped[id] for id in ("a1", "t1", "a0", "t0")] == [Reason.NO_ROOM] * 4
    assert tight.report.degraded == ("messages of this turn left out: 4 (68 tokens) do not fit",)
    assert {message.id for message in context.messages} == {id for id, why in found.items() if why in SENT}


def test_a_match_leaves_the_window_for_a_larger_turn() -> None:
    said = ["locker code u", words("locker u", 13), words("code u", 5), words("locker u", 20)]
    found = reasons(asked(said, "locker code", max_tokens=40, recall_tokens=20, fill="skip"))
    assert (found["m0"], found["m3"]) == (Reason.OLDER, Reason.IN_WINDOW)


def test_a_prompt_without_room_for_what_would_help_says_so() -> None:
    said = [words("the locker code is 4093", 30), *FILLERS]
    report = asked(said, "what is the locker code", max_tokens=45, recall_tokens=10, recall="balanced").report
    assert reasons(asked(said, "what is the locker code", max_tokens=45, recall_tokens=10))["m0"] is Reason.NO_ROOM
    assert report.stopped == "nothing recalled: what may help does not fit"


@pytest.mark.parametrize("name", ["top_k", "recall_tokens"])
def test_a_report_says_that_recall_is_off(name: str) -> None:
    off: dict[str, Any] = {name: 0}
    report = asked([words("the locker code is 4093", 30), *FILLERS], "what is the locker code", **off).report
    assert report.stopped == f"nothing recalled: {name}=0 turns recall off"
    assert all(line.score is None for line in report.lines), "nothing is searched for"


def test_what_is_not_worth_recalling() -> None:
    said = ["my locker is red", "what is the locker code", "my locker is red", "nothing here", *FILLERS]
    found = reasons(asked(said, "what is the locker code", max_tokens=45), Kind.RECALLED)
    assert found == {
        "m1": Reason.REPEATED, "m2": Reason.RECALLED, "m0": Reason.REPEATED, "m3": Reason.NEIGHBOUR,
    }  # fmt: skip


def test_turns_that_were_found_and_are_not_recalled_again() -> None:
    talk = [
        Message.user("the locker code is where", id="q1"), Message.assistant("the locker is there", id="a1"),
        Message.user(" ", id="q2"), Message.tool("locker code", "no such call", id="t2"),
        *(Message.user(words(f"other{number}", 20)) for number in range(4)),
    ]  # fmt: skip
    with InfiniteMemory(**SETTINGS | {"embedder": "words", "max_tokens": 70, "placement": "messages"}) as memory:
        memory.add(talk)
        found = [(line.id, line.reason) for line in memory.context("locker code").report.lines]
    assert [why for id, why in found if id == "q1"] == [Reason.NEIGHBOUR, Reason.REPEATED]
    assert [why for id, why in found if id == "a1"] == [Reason.RECALLED, Reason.REPEATED]


def test_broken_groups_and_replies_to_nobody() -> None:
    call = ToolCall(id="c", name="look", arguments="{}")
    talk = [
        Message.system("be kind", id="s"), Message.assistant("hello", id="a0"),
        Message.assistant("looking", id="c0", tool_calls=(call,)),
        Message.user("look", id="q"), Message.assistant(id="a1", tool_calls=(call,)),
        Message.user("and then", id="q2"),
    ]  # fmt: skip
    with InfiniteMemory(**SETTINGS | {"embedder": "words", "max_tokens": 90}) as memory:
        memory.add(talk)
        report = memory.context("well", tools=[{"name": "look"}]).report
    assert [(line.id, line.reason) for line in report.lines] == [
        (None, Reason.ALWAYS_SENT), ("s", Reason.ALWAYS_SENT), (None, Reason.QUESTION), ("q2", Reason.NEWEST),
        ("q", Reason.NEWEST), ("a1", Reason.INCOMPLETE), ("a0", Reason.NEWEST), ("c0", Reason.INCOMPLETE),
    ]  # fmt: skip


def test_the_summary_and_what_stands_in_it() -> None:
    said = [words("the locker code is 4093", 12), *(words(f"other{number}", 12) for number in range(6))]

    def summarize(previous: str | None, messages: Sequence[Message]) -> str:
        return "the locker code is 4093 " + "x " * 7

    settings = {"summarizer": Reading(summarize, 320), "max_tokens": 70, "recall_tokens": 20}
    with InfiniteMemory(**SETTINGS | {"embedder": "words"} | settings) as memory:
        memory.add([Message.user(text, id=f"m{number}") for number, text in enumerate(said)])
        found = reasons(memory.context("locker code"))
        assert found[None] is Reason.SUMMARY
        assert found["m0"] is Reason.IN_SUMMARY
        memory.add(Message.user("locker code", id="q"))
        calls = [ToolCall(id=f"c{number}", name="look", arguments="{}") for number in range(2)]
        for call in calls:
            memory.add([Message.assistant(tool_calls=(call,)), Message.tool(words("x", 33), call.id)])
        report = memory.context().report
        assert not report.totals[Kind.SUMMARY]
        assert {line.id: line.reason for line in report.lines}["m0"] is Reason.NO_ROOM


# Laws


texts = st.lists(
    st.tuples(st.sampled_from(["locker", "code", "locker code", "tower", ""]), st.integers(1, 40)),
    min_size=4,
    max_size=30,
)
settings = st.fixed_dictionaries({
    "max_tokens": st.integers(10, 400),
    "recall_tokens": st.one_of(st.none(), st.floats(0.1, 1.0), st.integers(1, 300)),
    "top_k": st.sampled_from([None, 1, 3]),
    "fill": st.sampled_from(["steady", "stop", "skip"]),
})  # fmt: skip


@given(texts, settings, st.sampled_from([(), ("look",)]))
def test_by_default_recall_also_takes_what_no_turn_can_use(
    texts: list[tuple[str, int]], settings: dict[str, Any], tools: Sequence[str]
) -> None:
    """What is there with the share is there by default, in the same window. With tools, that is all."""
    said = [words(f"{text} u{number}", size) for number, (text, size) in enumerate(texts)]
    settings |= {"max_tokens": settings["max_tokens"] + 20}  # there is room for the schemas
    reports = [
        asked(said, "locker code", tools, **settings | {"recall_tokens": tokens}).report for tokens in (SHARE, None)
    ]
    by_share, by_default = ({line.id: line.kind for line in report.included if line.id} for report in reports)
    more = [by_default[id] for id in by_default.keys() - by_share.keys()]
    assert by_default | by_share == by_default
    assert set(more) <= (set() if tools else {Kind.RECALLED})


@given(texts, settings)
def test_each_line_says_what_became_of_it(texts: list[tuple[str, int]], settings: dict[str, Any]) -> None:
    said = [words(f"{text} u{number}", size) for number, (text, size) in enumerate(texts)]
    report = asked(said, "locker code", **settings).report
    window = {line.id for line in report.included if line.kind is Kind.WINDOW}
    free = report.budget - report.total_tokens
    for line in report.lines:
        assert line.included == (line.reason in SENT)
        if line.kind is Kind.WINDOW:
            assert line.reason is not Reason.NO_ROOM or line.tokens > free
        elif line.kind is Kind.RECALLED:
            assert line.reason is not Reason.IN_WINDOW or line.id in window
            assert line.id not in window or line.reason not in (*SENT, Reason.NO_ROOM, Reason.TOP_K, Reason.OLDER)
            assert line.reason is not Reason.RECALLED or {"locker", "code"} & set(line.text.split())
