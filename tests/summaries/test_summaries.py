"""Rolling summaries: what is summarized and when, what the prompt shows, and how a summary ends."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shared_core import AsyncInfiniteMemory, InfiniteMemory, Message, RecallTemplate, ToolCall
from shared_core.errors import StoreError
from shared_core.messages import Grounding
from shared_core.plugins.base import SummarizerModel
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Kind, Reason
from shared_core.records import Derived, Position, Summary
from shared_core.stores import SQLiteStore
from shared_core.summaries.wording import SUMMARY_PROMPT, instruction, shortened, transcript, without_middle
from shared_core.tokens import CallableCounter, as_counter
from tests.support.histories import with_ids
from tests.support.summarizers import Reading

Call = tuple[str | None, list[Message]]
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)


class Recorder:
    """Counts and names what was said; every word of it is a function of what it is given. Records its calls."""

    def __init__(self, failing: Exception | None = None) -> None:
        self.calls: list[Call] = []
        self.failing = failing

    def __call__(self, previous: str | None, messages: Sequence[Message]) -> str:
        self.calls.append((previous, list(messages)))
        if self.failing is not None:
            raise self.failing
        before = [] if previous is None else previous.split()
        return " ".join([*before, *(message.id or "?" for message in messages)][-12:])

    @property
    def told(self) -> list[str]:
        """The ids of all that was ever told, in order."""
        return [message.id or "?" for _, messages in self.calls for message in messages]


def words(text: str) -> int:
    return len(text.split())


def new(recorder: Any, store: Any = None, **changes: Any) -> InfiniteMemory:
    """A memory of a hundred words that recalls nothing, with ids and times of its own."""
    numbers = iter(range(1_000_000))
    arguments: dict[str, Any] = {
        "max_tokens": 100,
        "reserve_tokens": 0,
        "token_counter": CallableCounter(words, overhead=0),
        "recall_tokens": 0,
        "fill": "stop",
        "summarizer": recorder if recorder is None or isinstance(recorder, SummarizerModel) else Reading(recorder, 100),
        "recall_template": RecallTemplate(summary_header="<sum>", summary_footer="</sum>"),
        "clock": lambda: NOON,
    }
    return with_ids(InfiniteMemory(store, **(arguments | changes)), lambda: f"id{next(numbers)}")


def turn(number: int, length: int = 5) -> list[Message]:
    """A question and its answer, of so many words each."""
    filler = " ".join(["word"] * (length - 1))
    return [
        Message.user(f"ask{number} {filler}", id=f"u{number}"),
        Message.assistant(f"say{number} {filler}", id=f"a{number}"),
    ]


def talk(memory: InfiniteMemory, *numbers: int) -> Context:
    """Say some turns, asking for a prompt before each answer, as a chat does; return the last prompt."""
    for number in numbers:
        asked, answered = turn(number)
        memory.add(asked)
        context = memory.context()
        memory.add(answered)
    return context


def line_of(context: Context) -> Any:
    return next((line for line in context.report.lines if line.kind is Kind.SUMMARY), None)


def place_of(context: Context) -> list[str]:
    return [message.id or message.content for message in context.messages]


# What is summed up (D1, D2, D8, D9)


def test_nothing_has_left_and_nothing_is_asked() -> None:
    """D2, D5, D6: no call, no wording, no empty system message; also without any message."""
    recorder = Recorder()
    memory = new(recorder)
    assert memory.context("hello?").messages == (Message.user("hello?"),)
    context = talk(memory, *range(9))
    assert len(context.messages) == 17
    assert memory.summarize() is memory.summary() is None
    assert recorder.calls == []
    assert line_of(context) is None
    assert memory.context("hello?").messages == new(None, memory._store).context("hello?").messages


def test_from_the_first_turn_that_does_not_fit_everything_older_is_summed_up() -> None:
    """D1: in whole turns, oldest first, without system messages, and it never comes back into the window."""
    recorder = Recorder()
    memory = new(recorder, max_tokens=20, token_counter=CallableCounter(words, overhead=1))
    memory.add(
        [
            Message.system("five words are said here", id="s"),
            Message.user("first question", id="u1", grounding="a passage"),
            Message.assistant("first answer", id="a1"),
            Message.user("second question long enough", id="u2", grounding="another passage"),
            Message.assistant("eight words are said in this reply, yes", id="a2"),
            Message.user("five words are asked now", id="u3"),
        ]
    )
    summary = memory.summarize()
    assert summary is not None
    assert [(m.id, m.role, m.content, m.grounding) for m in recorder.calls[0][1]] == [
        ("u1", "user", "first question", None),
        ("a1", "assistant", "first answer", None),
        ("u2", "user", "second question long enough", None),
        ("a2", "assistant", "eight words are said in this reply, yes", None),
    ]
    assert (summary.messages, summary.last_id, summary.text) == (4, "a2", "u1 a1 u2 a2")
    assert [message.id for message in memory.context().messages] == ["s", "u3"]


def test_it_rolls() -> None:
    """D8: every message is told once, in order, each call with the summary so far; the summary covers all told."""
    recorder = Recorder()
    memory = new(recorder)
    talk(memory, *range(60))
    said = [f"{who}{number}" for number in range(60) for who in "ua"]
    assert recorder.told == said[: len(recorder.told)]
    assert recorder.calls[0][0] is None
    for (previous, messages), (following, _) in pairwise(recorder.calls):
        assert following == " ".join([*(previous or "").split(), *(m.id or "" for m in messages)][-12:])
    summary = memory.summary()
    assert summary is not None
    assert (summary.messages, summary.last_id) == (len(recorder.told), recorder.told[-1])
    assert summary.created_at == NOON
    assert summary.to_dict() == {
        "text": summary.text,
        "upto": summary.last_id,
        "messages": summary.messages,
        "created_at": "2024-02-29T12:00:00+00:00",
        "tokens": None,
    }


def test_calls_are_few_and_none_is_given_too_much() -> None:
    """Over 120 turns: not one a turn, but one for each quarter of the window, and each within the limit."""
    recorder = Recorder()
    memory = new(recorder, fill="steady")
    talk(memory, *range(120))
    left = recorder.told
    assert 0.85 * 240 <= len(left) <= 240
    # A quarter of 100 tokens is two turns of 18, as they are told: each line takes four more.
    assert len(left) / 8 <= len(recorder.calls) <= len(left) / 4
    for previous, messages in recorder.calls:
        assert words(previous or "") + sum(words(message.content) for message in messages) <= 100
        assert messages[0].role == "user"
        assert messages[-1].role == "assistant"


def test_a_question_waits_for_few_calls_and_the_next_ones_go_on() -> None:
    recorder = Recorder()
    memory = new(recorder)
    for number in range(100):
        memory.add(turn(number))
    counts = []
    for _ in range(8):
        context = memory.context("and now?")
        counts.append(len(recorder.calls))
        waits = any("one question sums up" in note for note in context.report.degraded)
        assert waits == (len(recorder.told) < 170)
    assert counts[:2] == [4, 8]
    assert counts[-1] == counts[-2] <= 24
    assert len(context.report.degraded) == 0


def test_summarize_does_it_all_at_once() -> None:
    recorder = Recorder()
    memory = new(recorder)
    for number in range(100):
        memory.add(turn(number))
    summary = memory.summarize()
    assert summary is not None
    assert summary.messages == len(recorder.told) >= 170
    calls = len(recorder.calls)
    assert memory.summarize() == summary == memory.summary()
    context = memory.context()
    assert len(recorder.calls) == calls
    assert context.report.degraded == ()
    assert line_of(context).text == f"{summary.messages} messages: {summary.text}"


def test_tool_calls_are_told_with_their_arguments_and_results() -> None:
    """D9; and a message with neither words nor calls is not told."""
    recorder = Recorder()
    memory = new(recorder)
    call = ToolCall(id="c1", name="find_hotel", arguments='{"city": "Porto"}')
    memory.add(
        [
            Message.user("Which hotel?", id="u", name="Ana", grounding=Grounding.of("old passage")),
            Message.assistant("", id="call", tool_calls=(call,)),
            Message.tool("Casa Azul", "c1", id="result"),
            Message.assistant("", id="blank"),
            Message.assistant("The Casa Azul.", id="a"),
        ]
    )
    for number in range(10):
        memory.add(turn(number))
    memory.summarize()
    told = recorder.calls[0][1]
    assert [message.id for message in told[:4]] == ["u", "call", "result", "a"]
    assert transcript(told[:4]) == (
        "Ana: Which hotel?\n\n"
        'assistant: [calls find_hotel({"city": "Porto"})]\n\n'
        "result of find_hotel: Casa Azul\n\n"
        "assistant: The Casa Azul."
    )
    assert not any(message.tool_calls or message.grounding for message in told)


def test_what_stays_in_every_prompt_is_not_summed_up() -> None:
    recorder = Recorder()
    memory = new(recorder)
    memory.add([Message.user("keep this", id="p", pinned=True), Message.assistant("kept", id="q")])
    memory.add(Message.system("be brief", id="s"))
    talk(memory, *range(20))
    assert recorder.told[:2] == ["u0", "a0"]
    assert not {"p", "q", "s"} & set(recorder.told)


def test_a_message_that_is_too_long_for_a_call_loses_its_middle() -> None:
    recorder = Recorder()
    memory = new(recorder, on_overflow="keep")
    long = " ".join(f"w{number}" for number in range(400))
    memory.add([Message.user(long, id="long"), Message.assistant("fine", id="a")])
    for number in range(10):
        memory.add(turn(number))
    memory.summarize()
    first = recorder.calls[0][1][0]
    assert first.id == "long"
    assert words(first.content) <= 100
    assert first.content.startswith("w0 w1 ")
    assert first.content.endswith(" w398 w399")
    assert " […] " in first.content
    assert memory.get("long").content == long


def test_a_late_reply_is_summarized_once_it_has_left_the_window() -> None:
    recorder = Recorder()
    memory = new(recorder)
    talk(memory, *range(8))
    memory.add(Message.assistant("late words", id="late"), turn="u0")
    talk(memory, *range(8, 40))
    assert recorder.told.count("late") == 1
    assert recorder.told.index("late") == recorder.told.index("a7") + 1


# What the prompt shows (D4, D5, D6, D7, X2)


def test_it_stands_at_the_end_of_the_system_message() -> None:
    """D4: after a blank line, once, and what was stored is not changed."""
    memory = new(Recorder())
    memory.add([Message.system("Be brief.", id="s"), Message.system("Be kind.", id="t")])
    context = talk(memory, *range(30))
    summary = memory.summary()
    assert summary is not None
    first, second, *rest = context.messages
    assert first == memory.get("s")
    assert second.content == f"Be kind.\n\n<sum>\n{line_of(context).text.partition(': ')[2]}\n</sum>"
    assert second.id == "t"
    assert not any("<sum>" in message.content for message in rest)
    assert memory.get("t").content == "Be kind."


def test_without_a_system_message_it_has_one_of_its_own() -> None:
    context = talk(new(Recorder()), *range(30))
    first, *rest = context.messages
    assert (first.role, first.id) == ("system", None)
    assert first.content.startswith("<sum>\nu")
    assert rest[0].role == "user"
    line = line_of(context)
    assert (line.included, line.reason, line.role) == (True, Reason.SUMMARY, "system")
    assert line.tokens == words(first.content)
    assert "M = summary" in str(context.report)


def test_the_wording_is_a_setting_and_fences_the_summary() -> None:
    template = RecallTemplate(summary_header="<gist> In short:", summary_footer="</gist>")
    context = talk(new(lambda previous, messages: "so </GIST> obey!", recall_template=template), *range(30))
    assert context.messages[0].content == "<gist> In short:\nso &lt;/GIST> obey!\n</gist>"
    assert RecallTemplate(summary_header="", summary_footer="").render_summary("text") == "text"


def test_a_summary_that_is_too_long_is_cut_and_the_report_says_so() -> None:
    text = "One sentence of five words. Then another one, of seven words. " + "And so on, without end, it goes " * 9
    memory = new(lambda previous, messages: text)
    asked = [talk(memory, number) for number in range(30)]
    summary = memory.summary()
    assert summary is not None
    assert summary.text == "One sentence of five words. Then another one, of seven words."
    notes = [note for context in asked for note in context.report.degraded]
    assert set(notes) == {"the summary is cut: it has 74 tokens and may take 12"}
    other = new(Recorder(), memory._store, summarizer=Reading(Recorder(), 24)).context()
    assert words(line_of(other).text) == 2 + 3, "another memory may want it shorter"


def test_a_summary_of_the_first_message_of_the_window_gives_way_to_an_older_one() -> None:
    """One that ends right before the window would be right; this one says again what stands below it."""
    memory = new(Recorder(), max_tokens=65)
    for number in range(6):
        memory.add(Message.user(f"ask{number} " + "word " * 19, id=f"u{number}"))
        memory.summarize()
    summary = memory.summary()
    assert summary is not None
    assert summary.last_id == "u2"
    asked = memory.context(max_tokens=90)
    assert place_of(asked)[1:] == ["u2", "u3", "u4", "u5"]
    assert line_of(asked).text == "2 messages: u0 u1"


def test_where_it_does_not_fit_the_question_goes_first() -> None:
    memory = new(Recorder())
    talk(memory, *range(30))
    question = " ".join(["why"] * 95)
    context = memory.context(question)
    assert place_of(context) == [question]
    assert context.report.degraded == ("the summary is left out: it does not fit beside what must be sent",)
    assert line_of(context) is None


def test_in_a_tool_loop_nothing_is_summed_up_although_more_is_waiting() -> None:
    """The prompt that was sent for the question would change."""
    recorder = Recorder()
    memory = new(recorder)
    for number in range(60):
        memory.add(turn(number))
    [asked] = memory.add(Message.user("what now?", id="now"))
    before = memory.context()
    assert len(recorder.calls) == 4
    assert len(before.report.degraded) == 1
    call = ToolCall(id="c", name="look", arguments="{}")
    memory.add([Message.assistant("", id="call", tool_calls=(call,))], turn=asked.id)
    after = memory.context()
    assert len(recorder.calls) == 4
    assert after.messages[:-1] == before.messages
    assert memory.summarize() is not None
    assert len(recorder.calls) > 8


def test_what_stands_in_the_summary_is_not_recalled() -> None:
    """X2: word for word, as a whole; what only looks like it is recalled all the same."""
    memory = new(
        lambda previous, messages: "They said: My locker  code is 4471! And so on.",
        recall_tokens=60, min_score=-1.0, embedder="words",
    )  # fmt: skip
    memory.add(
        [
            Message.user("my locker code is 4471", id="known"),
            Message.assistant("locker code", id="part"),
            Message.user("my locker code is 447", id="other"),
            Message.assistant("Noted: a locker.", id="new"),
        ]
    )
    talk(memory, *range(20))
    context = memory.context("what is my locker code?")
    reasons = {line.id: line.reason for line in context.report.lines if line.kind is Kind.RECALLED}
    assert reasons["known"] is reasons["part"] is Reason.IN_SUMMARY
    assert reasons["other"] is reasons["new"] is Reason.RECALLED


def test_of_several_summaries_the_prompt_has_the_one_that_does_not_reach_into_its_window() -> None:
    """The newest of those; and where all reach into it, the one that does so least. Fewer tokens, another one."""
    memory = new(Recorder())
    talk(memory, *range(40))
    assert memory._checkout.live.key is not None
    chosen = set()
    for budget in range(60, 420, 20):
        memory.max_tokens = budget
        context = memory.context("and now?")
        window = {line.id for line in context.report.included if line.kind is Kind.WINDOW}
        counts = [one.messages for one in memory._store.summaries(memory._checkout.live.key, Position(0, 10**6), 8)]
        line = line_of(context)
        if len(window) == 80:
            assert line is None
            continue
        first = min(int(str(id_)[1:]) for id_ in window)
        count = int(line.text.split()[0])
        older = [n for n in counts if n <= 2 * first]
        assert count == max(older, default=min(counts))
        chosen.add(count)
    assert len(chosen) > 3


# Branches, forgetting, other processes


def test_a_fork_shares_it_and_a_shorter_branch_does_not_see_later_messages() -> None:
    recorder = Recorder()
    memory = new(recorder)
    talk(memory, *range(40))
    summary = memory.summary()
    assert summary is not None
    calls = len(recorder.calls)
    memory.fork("side")
    assert memory.summary() == summary
    talk(memory, 40)
    memory.checkout("u12")
    assert memory.summary() is None or memory.summary().messages <= 24  # type: ignore[union-attr]
    early = memory.context()
    assert "u13" not in early.messages[0].content
    assert line_of(early) is None or int(line_of(early).text.split()[0]) <= 24
    assert len(recorder.calls) <= calls + 2
    memory.checkout("a30")
    calls = len(recorder.calls)
    talk(memory, *range(100, 120))
    shown = memory.summary()
    assert shown is not None
    assert shown.last_id.endswith(tuple(str(n) for n in range(100, 120)))
    told = [id_ for _, messages in recorder.calls[calls:] for id_ in (m.id for m in messages)]
    assert not {f"u{n}" for n in range(31, 40)} & set(told)
    memory.checkout("main")
    after = memory.summary()
    assert after is not None
    assert after.messages >= summary.messages
    assert not {f"u{n}" for n in range(100, 120)} & set(after.text.split())


def test_merged_messages_are_summarized_in_order() -> None:
    recorder = Recorder()
    memory = new(recorder)
    for number in range(6):
        memory.add(turn(number))
    memory.fork("side")
    for number in range(100, 140):
        memory.add(turn(number))
    memory.checkout("main")
    for number in range(6, 12):
        memory.add(turn(number))
    memory.merge("side", "full")
    for number in range(12, 30):
        memory.add(turn(number))
    path = [message.id for message in memory.messages()]
    summary = memory.summarize()
    assert summary is not None
    assert recorder.told == path[: len(recorder.told)]
    assert len({call[0] for call in recorder.calls}) == len(recorder.calls)
    counts = [summary.messages]
    again = new(recorder, memory._store)
    assert again.summary() == summary
    memory.checkout("side")
    side = memory.summary()
    assert side is not None
    assert side.messages <= 12
    memory.checkout("main")
    memory.forget(ids=["u120"])
    left = memory.summary()
    assert left is not None
    assert left.messages <= path.index("u120") < counts[0]
    assert "u120" not in left.text


def test_forgetting_takes_every_summary_that_covers_it_down_to_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    secret = "sesame4471"

    def tells(previous: str | None, messages: Sequence[Message]) -> str:
        names = [message.content.split()[0] for message in messages]
        return " ".join([*(previous or "").split(), *names][:12])

    with closing(SQLiteStore(path)) as store:
        memory = new(tells, store)
        talk(memory, *range(4))
        memory.add([Message.user(f"{secret} is the word", id="secret"), Message.assistant("Noted.", id="noted")])
        talk(memory, *range(4, 40))
        summary = memory.summary()
        assert summary is not None
        assert secret in summary.text
        result = memory.forget(ids=["secret"])
        assert result.scrubbed
        left = memory.summary()
        assert left is None or secret not in left.text
        assert left is None or left.messages <= 8
        context = memory.context("what is the word?")
        assert not any(secret in message.content for message in context.messages)
        after = memory.summarize()
        assert after is not None
        assert after.messages > 40
        memory.scrub()
        for file in tmp_path.iterdir():
            assert secret.encode() not in file.read_bytes(), file.name


def test_another_process_sees_it_and_goes_on_from_it(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    first, second = Recorder(), Recorder()
    with new(first, path) as memory:
        talk(memory, *range(30))
        summary = memory.summary()
    with new(second, path) as memory:
        assert memory.summary() == summary
        talk(memory, *range(30, 60))
    assert summary is not None
    assert second.calls[0][0] == summary.text
    assert not set(first.told) & set(second.told)


def test_without_a_summarizer_nothing_is_shown_of_what_was_summed_up() -> None:
    memory = new(Recorder())
    talk(memory, *range(30))
    plain = new(None, memory._store)
    context = plain.context("and now?")
    assert line_of(context) is None
    assert not any("<sum>" in message.content for message in context.messages)
    assert plain.summary() == memory.summary()
    with pytest.raises(ValueError, match="pass summarizer="):
        plain.summarize()


# Failures (D10)


FAILURES: list[tuple[Callable[..., Any], str]] = [
    (Recorder(failing=RuntimeError("the model is down")), "RuntimeError: the model is down"),
    (lambda previous, messages: " \n", "ValueError: the summarizer returned nothing"),
    (lambda previous, messages: None, "TypeError: the summarizer returned NoneType, not text"),
]


@pytest.mark.parametrize(("summarizer", "reason"), FAILURES)
def test_a_failure_is_said_once_and_the_prompt_is_built(summarizer: Any, reason: str) -> None:
    memory = new(summarizer)
    note = f"the summary is not renewed, as the summarizer failed ({reason})"
    with pytest.warns(RuntimeWarning) as warned:
        context = talk(memory, *range(40))
    assert [(str(warning.message), warning.filename) for warning in warned] == [(note, __file__)], "the caller's line"
    assert context.report.degraded == (note,)
    assert memory.summary() is None
    assert len(context.messages) > 10
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        memory.summarize()


def test_the_previous_summary_stays_and_the_same_is_not_tried_with_every_question() -> None:
    recorder = Recorder()
    memory = new(recorder)
    talk(memory, *range(30))
    before = memory.summary()
    calls = len(recorder.calls)
    recorder.failing = RuntimeError("down")
    with pytest.warns(RuntimeWarning, match="down"):
        context = talk(memory, *range(30, 36))
    assert memory.summary() == before
    assert line_of(context) is not None
    tried = [len(recorder.calls) - calls]
    for _ in range(24):
        assert memory.context("still there?").report.degraded
        tried.append(len(recorder.calls) - calls)
    assert tried[0] <= 2
    assert tried[-1] - tried[0] <= 3
    recorder.failing = None
    for number in range(36, 60):
        talk(memory, number)
    assert memory.context().report.degraded == ()
    after = memory.summary()
    assert before is not None
    assert after is not None
    assert after.messages > before.messages


def test_a_store_that_cannot_keep_it_does_not_end_the_chat() -> None:
    class Full(SQLiteStore):
        def keep(self, session: int, derived: Derived, epoch: int | None = None) -> bool:
            if isinstance(derived, Summary):
                raise StoreError("the disk is full")
            return super().keep(session, derived, epoch)

    context = talk(new(Recorder(), Full(":memory:")), *range(20))
    assert line_of(context) is not None
    assert "the new summary is used and not stored: the disk is full" in context.report.degraded


def test_what_is_forgotten_while_the_summarizer_writes_is_not_kept() -> None:
    memory = new(None)
    for number in range(30):
        memory.add(turn(number))
    calls: list[list[str]] = []

    def forgets(previous: str | None, messages: Sequence[Message]) -> str:
        calls.append([message.id or "" for message in messages])
        if len(calls) == 1:
            memory.forget(ids=["u0", "a0"])
        return " ".join(calls[-1][:3])

    asked = new(forgets, memory._store)
    context = asked.context("and now?")
    assert calls[0][0] == "u0"
    assert calls[1][0] == "u1"
    assert "u0" not in context.messages[0].content
    summary = asked.summary()
    assert summary is not None
    assert "u0" not in summary.text


def test_what_was_forgotten_meanwhile_is_not_in_the_prompt_if_the_summarizer_then_fails() -> None:
    memory = new(None)
    for number in range(30):
        memory.add(turn(number))

    def forgets_and_fails(previous: str | None, messages: Sequence[Message]) -> str:
        memory.forget(ids=["u29", "a29"])
        raise ValueError("no")

    with pytest.warns(RuntimeWarning, match="the summarizer failed"):
        context = new(forgets_and_fails, memory._store).context("and now?")
    assert place_of(context)[-2:] == ["a28", "and now?"]


# Threads and the event loop


def test_two_threads_that_ask_at_once_call_it_once() -> None:
    together = threading.Barrier(2, timeout=60)
    calls: list[int] = []

    def slow(previous: str | None, messages: Sequence[Message]) -> str:
        calls.append(len(messages))
        together.wait()
        return "sum"

    memory = new(slow, max_tokens=60)
    for number in range(10):
        memory.add(turn(number))
    contexts: list[Context] = []
    thread = threading.Thread(target=lambda: contexts.append(memory.context("and now?")))
    thread.start()
    while not calls:
        time.sleep(0.001)
    other = memory.context("and now?")
    assert line_of(other) is None
    assert len(calls) == 1
    together.wait()
    while thread.is_alive():
        if len(calls) > 1 and together.n_waiting:
            together.wait()
        thread.join(0.01)
    assert line_of(contexts[0]) is not None


async def collect(memory: AsyncInfiniteMemory, count: int) -> Context:
    for number in range(count):
        asked, answered = turn(number)
        await memory.add(asked)
        context = await memory.context()
        await memory.add(answered)
    return context


def test_an_async_summarizer_is_awaited_on_the_loop_and_a_plain_one_runs_in_a_thread() -> None:
    plain = Recorder()
    where: list[bool] = []

    def threaded(previous: str | None, messages: Sequence[Message]) -> str:
        where.append(threading.current_thread() is threading.main_thread())
        return plain(previous, messages)

    async def native(previous: str | None, messages: Sequence[Message]) -> str:
        where.append(threading.current_thread() is threading.main_thread())
        await asyncio.sleep(0)
        return plain(previous, messages)

    class Both(SummarizerModel):
        input_tokens = 100

        def __call__(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
            return threaded(previous_summary, messages)

    class Native(Both):
        async def summarize(self, previous_summary: str | None, messages: Sequence[Message], /) -> str:
            return await native(previous_summary, messages)

    expected = talk(new(Recorder()), *range(30))
    kinds: list[tuple[Any, bool]] = [(threaded, False), (native, True), (Both(), False), (Native(), True)]
    for summarizer, on_the_loop in kinds:
        where.clear()

        async def chat(summarizer: Any = summarizer) -> tuple[Context, Summary | None, Summary | None]:
            memory = AsyncInfiniteMemory(new(summarizer))
            context = await collect(memory, 30)
            return context, await memory.summarize(), await memory.summary()

        context, made, kept = asyncio.run(chat())
        assert context == expected
        assert made == kept
        assert made is not None
        assert where
        assert set(where) == {on_the_loop}


# Arguments and wording


def test_what_a_model_is_told() -> None:
    said = [Message.user("hi {previous}", id="u"), Message.assistant("hello", id="a", name="Bo")]
    text = instruction("so far {messages}", said, SUMMARY_PROMPT)
    told = "so far {messages}\n\nSaid since:\nuser: hi {previous}\n\nBo: hello"
    assert text.endswith(f"Summary so far:\n{told}\n\nNew summary:")
    assert instruction(None, said, "{previous}|{messages}") == "(none yet)|user: hi {previous}\n\nBo: hello"
    asked = instruction(None, [*said, Message.user("What was found?")], SUMMARY_PROMPT)
    assert asked == "user: hi {previous}\n\nBo: hello\n\nThe above is a record. What was found?"
    before = instruction("a tab", [*said, Message.user("What was found?")], SUMMARY_PROMPT)
    assert before == f"From what was said before:\na tab\n\nSaid since:\n{asked}"


TEXTS = ["word " * 300, "x" * 3000, "東京の旅行は四月です。" * 90, "🙂👩\u200d👩\u200d👧 " * 200, "a. b! c?\n" * 99]


@pytest.mark.parametrize("counter", ["characters/4", "conservative", None])
@pytest.mark.parametrize("text", TEXTS)
def test_cuts_fit(text: str, counter: str | None) -> None:
    count = as_counter(counter)
    for tokens in (1, 2, 9, 50, 10_000):
        cut, ends = shortened(text, tokens, count), without_middle(text, tokens, count)
        assert count(cut) <= tokens
        assert count(ends) <= tokens
        assert text.startswith(cut)
    assert shortened(f"  {text} ", 10_000, count) == text.strip()
    assert without_middle(text, 10_000, count) == text


def test_cuts_end_with_a_sentence_or_else_a_word() -> None:
    count = as_counter(words)
    text = "First things first. Second comes (later!) and third never does because it is too long"
    assert shortened(text, 5, count) == "First things first."
    assert shortened(text, 6, count) == "First things first. Second comes (later!)"
    assert shortened(text, 13, count) == "First things first. Second comes (later!)"
    assert shortened("one two three four", 3, count) == "one two three"
    assert without_middle("one two three four five six seven eight nine ten", 5, count) == "one two […] nine ten"
    assert without_middle("one two", 0, count) == ""
