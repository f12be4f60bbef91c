"""What a question costs: the messages it reads, the text it counts, the lines it makes. Counts, never seconds."""

import pickle
from collections.abc import Iterator
from contextlib import closing

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.prompt.hits import Kind
from shared_core.prompt.report import ContextReport, report_lines
from shared_core.recall.candidates import WEAK_SHOWN
from shared_core.tokens import TiktokenCounter
from tests.support.histories import CountingStore

OWN = "Which harbour has the old lighthouse?"
SILENT = ("lol", "What is 17 times 23?")


class RecordingCounter:
    """Counts as tiktoken does, and keeps what it is asked."""

    name = "recording"
    overhead = 4

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.count = TiktokenCounter()

    def __call__(self, text: str, /) -> int:
        self.asked.append(text)
        return self.count(text)


def talk(length: int) -> list[Message]:
    """Return a conversation about the weather, in whose beginning harbours are spoken about."""
    harbours = [f"The old lighthouse of harbour {n} is {n} metres high, and its lamp is green." for n in range(6)]
    weather = [f"It was warm and dry on day {n}, and we went for a walk in the woods behind us." for n in range(length)]
    return [Message.user(text, id=f"m{n}") for n, text in enumerate([*harbours, *weather])]


@pytest.fixture
def store() -> Iterator[CountingStore]:
    with closing(CountingStore(":memory:")) as store:
        with InfiniteMemory(store) as memory:
            memory.add(talk(400))
            memory.index()
        store.reset()
        yield store


def test_a_question_reads_what_it_recalls_and_a_few_more(store: CountingStore) -> None:
    with InfiniteMemory(store, max_tokens=1_000, reserve_tokens=0) as memory:
        memory.context("Good morning!")
        store.reset()
        context = memory.context(OWN)
        recalled = {line.id for line in context.report.included if line.kind is Kind.RECALLED} - {None}
        assert {f"m{n}" for n in range(6)} <= recalled
        assert +store.rows == {"at": store.rows["at"]}
        assert len(recalled) <= store.rows["at"] <= 2 * len(recalled) + WEAK_SHOWN


def rows_read(store: CountingStore, question: str) -> tuple[int, int]:
    """Return how many messages a question reads at their positions, and in how many calls."""
    with InfiniteMemory(store, session_id="rents", max_tokens=400, reserve_tokens=0) as memory:
        memory.context("Good morning!")
        store.reset()
        memory.context(question)
    return store.rows["at"], store.calls["at"]


def test_what_may_have_changed_is_looked_for_in_few_messages_more(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rents = [f"The rent of my flat is {800 + n} euros now, and the garden {n} is mine, too." for n in range(60)]
    with InfiniteMemory(store, session_id="rents") as memory:
        memory.add([Message.user(text) for text in (*rents, *(message.content for message in talk(100)))])
        memory.index()
    rows, calls = rows_read(store, "What is the rent of my flat?")
    monkeypatch.setattr("shared_core.recall.candidates.newer", lambda *_: None)
    without, once = rows_read(store, "What is the rent of my flat?")
    assert (calls <= 2, once) == (True, 1)
    assert without <= rows <= without + 1


@pytest.mark.parametrize("question", SILENT)
def test_a_silent_question_reads_only_the_window(store: CountingStore, question: str) -> None:
    with InfiniteMemory(store, max_tokens=1_000, reserve_tokens=0) as memory:
        report = memory.context(question).report
        assert report.totals[Kind.RECALLED] == 0
        assert report.stopped.startswith("nothing recalled")
        assert set(+store.rows) >= {"newest"}
        assert "at" not in +store.rows
        store.reset()
        memory.context(question)
        assert +store.rows == {}


def test_the_question_and_what_is_recalled_are_counted_and_nothing_else(store: CountingStore) -> None:
    counter = RecordingCounter()
    with InfiniteMemory(store, max_tokens=1_000, reserve_tokens=0, token_counter=counter) as memory:
        memory.context(OWN)  # counts the messages by this counter, which their sizes are not stored for
        counter.asked.clear()
        asked = f"{OWN} Please."  # the same one again would not be counted again
        context = memory.context(asked)
        assert counter.asked[0] == asked
        assert all("earlier_messages" in text or text in ("", asked) for text in counter.asked)
        assert len([text for text in counter.asked if text]) <= 3
        counter.asked.clear()
        memory.context(SILENT[0])
        assert counter.asked == [SILENT[0]]
        assert context.tokens <= 1_000


def test_lines_are_made_when_they_are_looked_at(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[int](), report_lines

    def counted(*given: object) -> object:
        made.append(1)
        return make(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("shared_core.prompt.report.report_lines", counted)
    with InfiniteMemory(store, max_tokens=1_000, reserve_tokens=0) as memory:
        first, second = memory.context(OWN).report, memory.context(OWN).report
    assert (first.total_tokens, first.over_budget, made) == (sum(first.totals.values()), False, [])
    lines = first.lines
    assert first.lines is lines
    assert made == [1]
    # A value like one whose lines were made at once.
    whole = ContextReport(first.budget, first.reserve, lines, embedder=first.embedder, stopped=first.stopped)
    assert first == second == whole == pickle.loads(pickle.dumps(memory_report := second))
    assert first.totals == whole.totals
    assert memory_report.to_dict() == whole.to_dict()
    with pytest.raises(AttributeError, match="'line'"):
        first.line  # noqa: B018
