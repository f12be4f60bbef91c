"""The laws that every prompt obeys, over random conversations, each checked against what the store holds."""

import re
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.context import Context
from shared_core.stores import SQLiteStore
from tests.support.prompt_cases import (
    Case,
    Messages,
    bare,
    case_of,
    flat,
    ids,
    is_complete,
    prepare,
    recalled_in,
    sent_in,
    slack_rule,
    summary_in,
    told_by,
    units_in_order,
)
from tests.support.scenarios import Answer, Ask, Budget, Fork, Go, Say, Scenario, Step, Talk, new_memory
from tests.support.strategies import (
    answers,
    late_scenarios,
    long_loop_scenarios,
    pictured_scenarios,
    questions,
    scenarios,
    steps,
    summed_scenarios,
    tight_scenarios,
)


def said(text: str, make: Callable[..., Message] = Message.user, **fields: int) -> Say:
    return Say(make(text, **fields))


PICTURES = Scenario(
    steps=(said("ok"), said("ok", media_tokens=9), said("ok")),
    counter="words",
    arguments={
        "fill": "steady", "placement": "grounding", "window_turns": None,
        "recall_unit": "message", "recall_tokens": 0.5, "keep_grounding": "newest", "on_overflow": "raise",
        "top_k": None, "min_score": None,
    },
    budget=Budget("past", 10, 3),
    ask=Ask("stored"),
)  # fmt: skip
"""A picture is larger than the room for the past, and the text of all turns is not."""


@given(st.one_of(scenarios, long_loop_scenarios, summed_scenarios, pictured_scenarios))
def test_law_1_within_the_budget(scenario: Scenario) -> None:
    """The prompt, recounted message by message with the caller's counter (framing, names, tool calls and ids, media,
    grounding, recalled text and its wording included) plus the tool schemas, is what the report says, and within the
    budget. With `on_overflow="keep"` it may be larger, and the report says so, but only if it holds nothing but what
    must be sent. A question that is not returned is charged all the same.
    """
    case = case_of(scenario)
    context = case.prompt()
    assert all(message.grounding is None for message in context.messages)
    recount = case.tools + sum(map(case.told.size, context.messages))
    if scenario.ask.shown or case.question is None:
        assert recount == context.report.total_tokens == context.tokens
    else:
        current = [bare(case.question), *flat(sent_in(case, context))]
        assert recount + case.told.tokens(current) <= context.report.total_tokens
    assert context.report.over_budget == (context.report.total_tokens > case.budget)
    if context.report.over_budget:
        must = case.tools + case.told.tokens([*case.stays, *case.must])
        assert scenario.arguments["on_overflow"] == "keep"
        assert context.report.total_tokens == must


@given(st.one_of(scenarios, tight_scenarios, long_loop_scenarios))
def test_law_2_the_question_whole_with_its_newest_tool_group(scenario: Scenario) -> None:
    """The question ends with what was typed, word for word; of what answers it so far the newest group is there, with
    all results, and pinned ones, then older groups, newest first: whole as long as they and a quarter of the room for
    stubs of older ones fit beside the question (without its grounding), then with stubs in
    place of results as long as those fit, less a quarter of the room where not all fit whole and the window is steady.
    The report says what is missing.
    `MessageTooLargeError` exactly when the question, its newest group and pinned groups of its turn do not fit beside
    what stays (with `on_overflow="keep"` never); `needed` and `available` are those sums.
    """
    case = case_of(scenario)
    assume(case.available >= 0)
    must, question = case.told.tokens(case.must), case.question
    if question is not None and must > case.available and scenario.arguments["on_overflow"] == "raise":
        with pytest.raises(MessageTooLargeError) as caught:
            case.context()
        assert (caught.value.needed, caught.value.available) == (must, case.available)
        return
    context = case.context()
    sent = sent_in(case, context)
    assert len(sent) == len(case.answers) or any("left out" in note for note in context.report.degraded)
    needed = [[*map(bare, unit)] for unit in case.answers if unit[0] in case.must]
    assert [unit for unit in sent if unit in needed] == needed
    check_older_groups(case, [unit for unit in sent if unit not in needed], case.told.tokens(flat(needed)))
    answers = flat(sent)
    if question is None or not scenario.ask.shown:
        return
    said = [m for m in context.messages if m.role != "system"]
    asked, *answered = said[len(said) - len(answers) - 1 :]
    assert answered == answers
    assert asked.replace(content="") == bare(question).replace(content="")
    assert not question.content or f"\n\n{asked.content}".endswith(f"\n\n{question.content}")


def slack_of(scenario: Scenario) -> float:
    """The share of the room that may be left unused."""
    return 0.25 if scenario.arguments["fill"] == "steady" else 0.0


def check_older_groups(case: Case, older: list[Messages], needed: int) -> None:
    """The oldest are missing, then come those with stubs, then whole ones; and no group could have been sent better."""

    def tokens(units: list[Messages]) -> int:
        return case.told.tokens(flat(units))

    others = [[*map(bare, unit)] for unit in case.answers if unit[0] not in case.must]
    shorts = [case.short(unit) for unit in others]
    missing = len(others) - len(older)
    changed = [number for number in range(missing, len(others)) if older[number - missing] != others[number]]
    newest = max(changed, default=missing - 1)
    assert older == [*shorts[missing : newest + 1], *others[newest + 1 :]]
    question = [] if case.question is None else [bare(case.question)]
    room = (1 - slack_of(case.scenario)) * (case.available - case.told.tokens(question))
    if missing:
        assert tokens([shorts[missing - 1], *older]) + needed > room
    if changed:
        reserve = min(tokens(shorts[:newest]), 0.25 * max(0, room + 1))
        assert tokens(others[newest:]) + needed + reserve > room


@given(st.one_of(scenarios, tight_scenarios, long_loop_scenarios))
def test_law_3_system_and_pinned_messages_stay(scenario: Scenario) -> None:
    """Every system message of the branch and every pinned turn (but for tool groups that are broken) is in the prompt
    as it was said. A pinned message of the current turn stays with its tool
    group. `BudgetError` itself exactly when
    they and the tool schemas alone exceed the budget.
    """
    case = case_of(scenario)
    if case.available < 0:
        with pytest.raises(BudgetError) as caught:
            case.context()
        assert type(caught.value) is BudgetError
        needed = case.tools + case.told.tokens(case.stays)
        assert (caught.value.needed, caught.value.available) == (needed, case.budget)
        return
    try:
        context = case.context()
    except MessageTooLargeError:
        return
    there = {message.id: message for message in context.messages}
    current = [m for unit in case.answers if any(m.pinned for m in unit) for m in unit if scenario.ask.shown]
    for message in [*case.stays, *current]:
        assert there[message.id] == bare(message)


@given(st.one_of(scenarios, long_loop_scenarios))
@example(
    replace(
        PICTURES,
        steps=(said("ok, ok", Message.assistant), said("ok", Message.assistant), said("ok")),
        budget=Budget("turn", 0, 1),
    )
)
@example(replace(
    PICTURES, steps=(said("ok", Message.assistant), said("so " * 70), said("ok")), budget=Budget("turn", 0, 1),
    arguments=PICTURES.arguments | {"fill": "skip"},
))  # fmt: skip
def test_law_4_whole_turns_and_tool_groups(scenario: Scenario) -> None:
    """What the prompt holds of a past turn is all of it but broken tool groups; a turn recalled as real messages may
    come without its tool groups and without what was said after the question. Every result follows
    its call with nothing but results between; every call has all its results, but for one that still waits at the end
    of the current turn. The first message that is not a system message is a user's, or a greeting before the first of
    all user messages, and everything after that greeting is there.
    """
    case = case_of(scenario)
    context = case.prompt()
    messages = [m for m in context.messages if m.role != "system"]
    greeting = {m.id for m in case.told.greeting} & {m.id for m in messages} - set(recalled_in(context))
    opening = [m for m in messages if m.id not in greeting]
    assert not opening or opening[0].role == "user"
    assert [m.id for m in messages[: len(greeting)]] == [m.id for m in reversed(case.told.greeting) if m.id in greeting]
    after = [turn for turn in case.past if greeting and turn not in ids(case.told.greeting[len(greeting) :])]
    assert not set(after) - {m.id for m in messages}
    recalled = recalled_in(context)
    assert not [m for m in recalled if case.told.by_id[m].role == "tool"]
    for turn, members in case.told.turns.items():
        there = ids([m for m in messages if m.id in ids(members)])
        whole = case.sendable(turn, recalled)
        if turn == case.stored or not there:
            continue
        if case.sends_recalled(turn, recalled):
            whole = [u for u in whole if not u[0].tool_calls]
        assert there == ids(flat(whole)), turn
    sent = units_in_order(messages)
    for unit in sent:
        waits = unit is sent[-1] and case.stored is not None and unit[0].turn_id == case.stored and scenario.ask.shown
        assert is_complete(unit) or (waits and unit[0].role != "tool")


@given(st.one_of(scenarios, late_scenarios))
def test_law_5_chronological_and_nothing_twice(scenario: Scenario) -> None:
    """Messages stand in the order of their turns, in a turn as they were said with tool groups unbroken, a question
    that is not stored last; the system prompt stands in front, or where it was said while everything fits beside the
    question, and stays there when what answers the question pushes turns out. No message is there twice: not by id, and
    not as recalled text while its turn is in the prompt. The recalled text is what was said, in order of time (or best
    last), fenced by the template.
    """
    case = case_of(scenario)
    context = case.prompt()
    there = [m.id for m in context.messages if m.id is not None]
    answered = case.stored is not None and len(case.told.turns[case.stored]) > 1
    may_fit = answered or set(case.past) <= set(there)
    keys = [[case.told.keys(front=front)[id_] for id_ in there] for front in {True, not may_fit}]
    assert any(one == sorted(set(one)) for one in keys)
    prompt = context.messages
    unknown = [place for place, m in enumerate(prompt) if m.id is None and m.role != "system"]
    fresh = case.stored is None and case.question is not None and scenario.ask.shown
    assert unknown == ([len(prompt) - 1] if fresh else [])
    recalled = recalled_in(context)
    assert len(recalled) == len(set(recalled))
    if scenario.arguments["placement"] == "messages":
        assert set(recalled) <= set(there)
        assert not [m for m in prompt if m.id is None and m.role == "system"]
        return
    in_prompt = {m.turn_id for m in prompt if m.id is not None and m.role != "system"} | {case.stored}
    assert not {case.told.by_id[id_].turn_id for id_ in recalled} & in_prompt
    block = case.block(recalled)
    beside = scenario.arguments["placement"] == "grounding" and scenario.ask.shown
    written = [place for place, m in enumerate(prompt) if m.id is None and m.role == "system"]
    if block and not beside:
        assert [prompt[place].content for place in written] == [block]
        assert all(m.role == "system" for m in prompt[: written[0]])
        return
    assert written == []
    question = next((m for m in reversed(prompt) if m.role == "user"), None)
    assert not block or (question is not None and question.content.startswith(block))


@given(summed_scenarios)
def test_law_5_nothing_is_recalled_that_stands_in_the_summary(scenario: Scenario) -> None:
    """What is recalled by itself does not stand in the summary word for word. The summary is never longer than it may
    be, is there only if some turn is not, and is not made of more messages than the branch has.
    """
    case = case_of(scenario)
    context = case.prompt()
    if not (summary := summary_in(context)):
        return
    count, _, told = summary.partition(" message")
    said = told.removeprefix("s").removeprefix(": ")
    assert case.told.size(Message.user(said)) - scenario.overhead <= 80
    assert 0 < int(count) <= len([m for m in case.told.messages if m.role != "system"])
    assert set(case.past) - set(ids(context.messages))
    for id_ in recalled_in(context):
        words = " ".join(case.told.by_id[id_].content.split()).casefold()
        assert not re.search(rf"(?<!\w){re.escape(words)}(?!\w)", " ".join(said.split()).casefold())


@given(st.one_of(scenarios, tight_scenarios, long_loop_scenarios))
@example(PICTURES)
def test_law_6_grounding_on_the_newest_question_only(scenario: Scenario) -> None:
    """Only the newest user message carries grounding (`keep_grounding`: the n newest, all, none), every other message
    is as it was said, but for media that give way (the next law), as those of recalled messages do; grounding of a
    pinned or recalled old message never comes back with it. If the question's grounding does not fit whole, items go
    weakest first, as `fit_grounding` says. In a tool loop it is what fits beside the question and some of the groups:
    never more than alone, never less than beside all of them.
    """
    case = case_of(scenario)
    context = case.prompt()
    recalled, question, answers = recalled_in(context), None, flat(sent_in(case, context))
    for message in context.messages:
        if message.role == "user" and case.question is not None and message.id == case.question.id:
            question = message
        elif message.id is not None:
            told = case.told.by_id[message.id]
            told = {m.id: m for m in flat(case.sendable(told.turn_id, recalled))}.get(message.id, told)
            dresses = message.id in case.past and message.id not in recalled
            expected = case.dressed(message.id, [told])[0] if dresses else bare(told)
            expected = next((m for m in answers if m.id == message.id), expected)
            as_sent = [*([] if message.id in recalled else [expected]), *case.light([expected])]
            assert message in (as_sent if told.turn_id in case.past else [expected])
    if question is None or case.question is None:
        return
    block = case.block(recalled) if scenario.arguments["placement"] == "grounding" else ""
    assert question.content.startswith(block)
    sent = case.question.replace(grounding=None, content=question.content.removeprefix(block).removeprefix("\n\n"))
    if scenario.arguments["keep_grounding"] in ("none", 0):
        assert sent == bare(case.question)
        return
    size = case.told.size(sent)
    least = case.fitted(case.question, case.available - case.told.tokens(answers))
    assert case.told.size(least) <= size <= max(case.available, case.told.size(least))
    assert sent in (least, case.fitted(case.question, size))


@given(st.one_of(scenarios, pictured_scenarios))
@example(PICTURES)
def test_law_6_the_oldest_media_give_way_before_any_text(scenario: Scenario) -> None:
    """If not everything fits, media of past turns give way to a note, the oldest first and only if the note is smaller.
    Where all text of the past is there, no more of them give way than needed. (In a tool loop, those that gave way
    earlier stay away.)
    """
    case = case_of(scenario)
    context = case.prompt()
    recalled = recalled_in(context)
    there = {m.id: m for m in context.messages if m.id not in recalled}
    whole = [[m for m in members if m.id in there] for members in case.past.values()]
    light = [case.light(members) for members in whole]
    sent = [[there[m.id] for m in members] for members in whole]
    assert sent in [[*whole[:kept], *light[kept:]] for kept in range(len(whole) + 1)]
    gave_way = [(before, after) for before, after in zip(whole, sent, strict=True) if before != after]
    if gave_way and not recalled and not case.answers and all(whole):
        before, after = (sum(map(case.told.size, members)) for members in gave_way[0])
        assert before - after > case.budget - context.report.total_tokens


@given(st.one_of(scenarios, summed_scenarios))
def test_law_7_deterministic(scenario: Scenario) -> None:
    """The same stored messages, head and question give the same prompt by the same decisions: to the object that stored
    them and was asked after every step, to a new one on that store, and after `index()`. Nothing given is changed.
    """
    given, store = deepcopy(scenario), SQLiteStore(":memory:")
    busy = new_memory(scenario, store)
    talk = Talk(busy, scenario.reuse_call_ids)
    for step in scenario.steps:
        talk.take(step)
        busy.max_tokens = 80
        with suppress(BudgetError):
            busy.context("when does the ferry leave?")
    case = Case(scenario, busy, told_by(scenario, busy))
    case.set_budget()
    asked = answer(case.settled())
    for index in (False, True, False):
        memory = standing_with(busy, new_memory(scenario, store, max_tokens=busy.max_tokens))
        if index:
            memory.index()
        assert answer(case, memory) == asked
        assert answer(case) == asked
    assert list(busy.messages()) == case.told.messages
    assert scenario == given


def standing_with(other: InfiniteMemory, memory: InfiniteMemory) -> InfiniteMemory:
    """Let a memory stand where another does."""
    stand(memory, other.branch, other.newest(1))
    return memory


def stand(memory: InfiniteMemory, branch: str | None, newest: Messages) -> None:
    if newest and branch is None:
        memory.checkout(newest[0].id or "")
    elif branch is not None and memory.branches():
        memory.checkout(branch)


def answer(case: Case, memory: InfiniteMemory | None = None) -> tuple[Any, ...]:
    """The prompt and every decision with its scores; or the error."""
    try:
        context = case.context(memory)
    except BudgetError as error:
        return type(error), error.needed, error.available
    return context.messages, context.report.lines


@settings(max_examples=max(10, settings().max_examples // 20))
@given(scenarios)
def test_law_7_deterministic_after_reopening(scenario: Scenario) -> None:
    """A store in a file gives the same prompt after it was closed, also when the index was completed in between."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chat.db")
        with closing(SQLiteStore(path, durability="process")) as store:
            case, _ = prepare(scenario, store)
            branch, newest = case.memory.branch, case.memory.newest(1)
            first = answer(case.settled())
        for index in (False, True, False):
            with closing(SQLiteStore(path)) as store:
                memory = new_memory(scenario, store, max_tokens=case.memory.max_tokens)
                stand(memory, branch, newest)
                if index:
                    memory.index()
                assert answer(case, memory) == first


@given(st.one_of(scenarios, summed_scenarios), questions, st.lists(answers, min_size=1, max_size=6))
def test_law_8_a_tool_loop_only_appends(scenario: Scenario, question: Message, loop: list[Answer]) -> None:
    """When a message is added to the current turn, the prompt gains that message at its end and nothing else changes,
    as long as the earlier prompt and the message together fit the budget.
    """
    scenario = replace(scenario, ask=replace(scenario.ask, question="stored"))
    _, talk = prepare(scenario, SQLiteStore(":memory:"))
    [asked] = talk.add([question])
    case = Case(scenario, talk.memory, told_by(scenario, talk.memory))
    case.set_budget()
    before = unless_too_large(case.settled())
    for message in talk.messages(loop):
        [added] = talk.add([message], turn=asked.id)
        if before is not None and before.tokens + case.told.size(added) <= case.budget:
            after: Context | None = case.context()
            assert after is not None
            assert after.messages == (*before.messages, *([added] if scenario.ask.shown else []))
        else:
            after = unless_too_large(case)
        before = after


def unless_too_large(case: Case) -> Context | None:
    with suppress(BudgetError):
        return case.context()
    return None


@given(scenarios)
def test_law_8_the_window_starts_where_the_slack_rule_says(scenario: Scenario) -> None:
    """Of the turns that fit beside all else that is in the prompt, newest first up to the first that does not, the
    window drops so many of the oldest that it starts at the turn whose number has the most factors of two, but keeps
    at least three quarters of their tokens, or all with `fill="stop"`; if every turn fits, all are there. (For a
    prompt whose question has no answer yet: what a tool loop leaves is the law before.)
    """
    case = case_of(scenario)
    assume(scenario.arguments["fill"] != "skip" and scenario.arguments["window_turns"] is None and not case.answers)
    context = case.prompt()
    there = ids(context.messages)
    recalled = recalled_in(context)
    window = [turn for turn in case.past if turn in there and turn not in recalled]
    sizes = {turn: sum(map(case.told.size, members)) for turn, members in case.past.items()}
    room = case.budget - context.tokens + sum(sizes[turn] for turn in window)
    assert window == slack_rule(sizes, case.told.number, max(0, room), slack_of(scenario))


@given(st.one_of(scenarios, summed_scenarios, pictured_scenarios), questions, questions, st.lists(answers, max_size=2))
@example(replace(PICTURES, budget=Budget("past", 80, 3)), Message.user("so?"), Message.user("and?"), [])
def test_law_8_the_prefix_stands_while_the_window_start_does(
    scenario: Scenario, first: Message, second: Message, said: list[Answer]
) -> None:
    """With `placement="grounding"`, what stood before a question in its prompt stands unchanged at the beginning of the
    next question's prompt, as long as the window starts at the same turn and the summary is the same, but for media
    that give way in one of the two. (Not where `keep_grounding` takes grounding away from an older question on the way:
    then it is the newest, none, or all that keep theirs.)
    """
    assume(scenario.arguments["keep_grounding"] != 2)
    arguments = scenario.arguments | {"placement": "grounding", "fill": "steady"}
    scenario = replace(scenario, arguments=arguments, ask=replace(scenario.ask, question=first, shown=True))
    case, talk = prepare(scenario, SQLiteStore(":memory:"))
    assume(case.stored is None and case.question is not None)
    earlier = case.settled().prompt()
    [asked, *_] = talk.add([first, *talk.messages(said)])
    next_scenario = replace(scenario, ask=replace(scenario.ask, question=second))
    later_case = Case(next_scenario, talk.memory, told_by(scenario, talk.memory))
    assume(later_case.stored is None and later_case.question is not None)
    later = later_case.settled().prompt()
    assert asked.id is not None
    assume(summary_in(earlier) == summary_in(later))
    assume(start(case, earlier, asked.id) == start(later_case, later, asked.id))
    prefix = earlier.messages[:-1]
    stands = later.messages[: len(prefix)]
    assert case.light(list(stands)) == case.light(list(prefix))
    assert stands == prefix or [m.media_tokens for m in stands] != [m.media_tokens for m in prefix]
    assert asked.id not in ids(later.messages) or later.messages[len(prefix)].id == asked.id


def start(case: Case, context: Context, default: str) -> str:
    there = ids(context.messages)
    return next((turn for turn in reversed(case.past) if turn in there), default)


@given(scenarios, steps, st.integers(0, 20))
def test_law_8_other_branches_change_nothing(scenario: Scenario, elsewhere: tuple[Step, ...], place: int) -> None:
    """What is said on a branch that grows out of this one, or answers a turn both share there, changes no prompt here:
    neither of the object that stands here nor of a new one.
    """
    store = SQLiteStore(":memory:")
    case, _ = prepare(scenario, store)
    before = answer(case.settled())
    other = standing_with(case.memory, new_memory(scenario, store))
    at = case.told.messages[place % len(case.told.messages)].id if case.told.messages else None
    other.fork("elsewhere", at)
    Talk(other, scenario.reuse_call_ids, "elsewhere").play(
        [step for step in elsewhere if not isinstance(step, Fork | Go)]
    )
    assert answer(case) == before
    new = standing_with(case.memory, new_memory(scenario, store, max_tokens=case.memory.max_tokens))
    assert answer(case, new) == before
