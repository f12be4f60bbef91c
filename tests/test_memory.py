"""InfiniteMemory in use: its methods and arguments, what each call reads, and what the report says."""

import json
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared_core import (
    BudgetError,
    Context,
    DuplicateError,
    InfiniteMemory,
    Message,
    StoreError,
    ToolCall,
    UnknownReferenceError,
)
from shared_core.errors import EmbedderMismatchError
from shared_core.plugins.embedders import (
    MINILM,
    MINILM_INT8,
    STATIC,
    CallableEmbedder,
    StaticEmbedder,
    static_available,
)
from shared_core.queries import After
from shared_core.recall import settings as recall_settings
from shared_core.recall.scope import RecallScope
from shared_core.results import Kind, Reason
from shared_core.session.live import NEWS, TAIL_KEPT
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.tokens import as_counter, tools_tokens
from tests.support.histories import NOON, CountingStore, history, ids, texts, with_ids
from tests.support.scripted_embedder import minilm

SMALL: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 50}
"""Limits that leave most of a history outside the window."""


@pytest.fixture
def memory(store: CountingStore) -> InfiniteMemory:
    return InfiniteMemory(store, embedder="words", clock=lambda: NOON)


def of_kind(context: Context, kind: Kind, *, included: bool = True) -> list[str | None]:
    """The ids of the report's lines of one kind."""
    return [line.id for line in context.report.lines if line.kind is kind and line.included is included]


# Adding


def test_a_message_comes_back_as_it_is_stored(store: CountingStore) -> None:
    numbers = iter(range(9))
    memory = with_ids(InfiniteMemory(store, clock=lambda: NOON), lambda: f"n{next(numbers)}")
    assert memory.add(Message.user("hi")) == [Message.user("hi", id="n0", created_at=NOON, turn_id="n0")]
    later = NOON + timedelta(days=1)
    given = Message.assistant("yes", id="mine", created_at=later, name="Bo", grounding="fact", pinned=True)
    assert memory.add([given]) == [given.replace(turn_id="n0")]
    assert list(memory.messages()) == [memory.get("n0"), memory.get("mine")]


def test_a_time_without_a_zone_is_utc(store: CountingStore) -> None:
    memory = InfiniteMemory(store, clock=lambda: NOON.replace(tzinfo=None), embedder="words")
    (message,) = memory.add(Message.user("gardens"))
    assert message.created_at == NOON
    naive = NOON.replace(tzinfo=None)
    assert memory.search("gardens", since=naive, until=naive)
    assert memory.forget(before=naive, dry_run=True).ids == ()
    assert memory.forget(before=naive + timedelta(seconds=1), dry_run=True).ids == (message.id,)


def test_a_list_is_one_transaction(memory: InfiniteMemory, store: CountingStore) -> None:
    assert ids(memory.add(history(50))) == ids(memory.messages()) == ids(history(50))
    assert store.calls["append"] == 1
    with pytest.raises(DuplicateError, match="'m3'"):
        memory.add([Message.user("new", id="new"), Message.user("not what m3 says", id="m3")])
    assert ids(memory.messages()) == ids(history(50))


def test_nothing_to_add_creates_nothing(memory: InfiniteMemory, store: CountingStore) -> None:
    assert memory.add([]) == []
    assert store.session(None, "default") is None


def test_a_known_id_with_the_same_content_changes_nothing(memory: InfiniteMemory, store: CountingStore) -> None:
    stored = memory.add(history(4))
    rows = store.find(1, After(0, 99))
    again = [message.replace(created_at=None) for message in history(4)]
    assert memory.add(again) == stored
    assert memory.add([*again, Message.user("new", id="new")])[:4] == stored
    assert store.find(1, After(0, 99))[:-1] == rows


def test_a_late_reply_joins_the_turn_that_is_named(memory: InfiniteMemory) -> None:
    memory.add(history(4))
    (late,) = memory.add(Message.assistant("one more thing", id="late"), turn="m0")
    assert late.turn_id == "m0"
    assert ids(memory.messages())[-1] == "late"
    assert ids(memory.context("and now?").messages) == ["m0", "m1", "late", "m2", "m3", None]


def test_a_turn_is_named_rightly_or_refused(memory: InfiniteMemory) -> None:
    memory.add(history(2))
    with pytest.raises(ValueError, match="turn='m0'"):
        memory.add([Message.assistant("a"), Message.user("b")], turn="m0")
    for turn in ("m1", "nothing"):
        with pytest.raises(UnknownReferenceError, match=turn):
            memory.add(Message.assistant("a"), turn=turn)
    memory.fork("side", at="m0")
    memory.add(Message.user("c", id="c"))
    memory.checkout("main")
    with pytest.raises(UnknownReferenceError, match="'c'"):
        memory.add(Message.assistant("a"), turn="c")
    assert ids(memory.messages()) == ["m0", "m1"]


def test_a_reply_joins_the_turn_its_own_object_opened(store: CountingStore) -> None:
    ann, bob = InfiniteMemory(store), InfiniteMemory(store)
    ann.add(Message.user("what of ann?", id="ann"))
    bob.add([Message.user("what of bob?", id="bob"), Message.user("old", id="old")])
    bob.forget(ids=["old"])
    ann.forget(ids=[], dry_run=True)
    ann.add(Message.system("be brief", id="rule"))
    replies = [ann.add(Message.assistant(text))[0].turn_id for text in ("first", "second")]
    assert replies == ["ann", "ann"]
    assert bob.add(Message.assistant("third"))[0].turn_id == "bob"
    assert ann.get("rule").turn_id == "rule"
    assert InfiniteMemory(store).add(Message.assistant("fourth"))[0].turn_id == "bob"


def test_adding_never_calls_the_embedder(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = HashingEmbedder()
    memory = InfiniteMemory(store, embedder=embedder, **SMALL)
    memory.add(history(30))
    memory.index()
    store.reset()
    embedded = list(embedder.documents)
    for message in history(60, start=30):
        memory.add(message)
    assert embedder.documents == embedded


# Asking


def test_a_question_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    def dump(*, derived: bool) -> list[str]:
        with closing(sqlite3.connect(path)) as reader:
            lines = list(reader.iterdump())
        tables = ('"vectors"', '"spaces"')
        return lines if derived else [line for line in lines if not any(name in line for name in tables)]

    with InfiniteMemory(path, embedder=HashingEmbedder(), **SMALL) as memory:
        memory.add([Message.system("be brief"), *history(60)])
        before = dump(derived=False)
        assert of_kind(memory.context("what of item3?"), Kind.RECALLED)
        assert dump(derived=False) == before, "vectors are all that a question may leave"
        memory.index()
        before = dump(derived=True)
        for question in ("what of item5?", None, "", Message.user("item7", id="given", grounding="fact")):
            memory.context(question, tools=[{"name": "f"}], reserve_tokens=10)
            memory.context(question, include_question=False)
            memory.search("item9")
        assert dump(derived=True) == before


@pytest.mark.parametrize("question", [None, "", "  \n", Message.user(" ")])
def test_without_a_question_the_newest_user_message_is_it(memory: InfiniteMemory, question: str | None) -> None:
    memory.add([*history(4), Message.user("well?", id="u"), Message.assistant("wait", id="a")])
    context = memory.context(question)
    assert ids(context.messages) == [*ids(history(4)), "u", "a"]
    assert of_kind(context, Kind.QUESTION) == ["u", "a"]


def test_an_unanswered_question_is_not_asked_twice(memory: InfiniteMemory) -> None:
    memory.add([*history(2), Message.user("well?", id="u")])
    assert ids(memory.context("well?").messages) == ["m0", "m1", "u"]
    call = ToolCall(id="c", name="find")
    memory.add([Message.assistant(id="call", tool_calls=(call,)), Message.tool("found", "c", id="result")])
    assert ids(memory.context("well?").messages) == ["m0", "m1", "u", "call", "result"]
    assert ids(memory.context("well??").messages) == ["m0", "m1", "u", "call", "result", None]
    memory.add(Message.assistant("so", id="a"))
    assert ids(memory.context("well?").messages) == ["m0", "m1", "u", "call", "result", "a", None]


def test_a_question_is_the_users(memory: InfiniteMemory) -> None:
    with pytest.raises(ValueError, match="'assistant'"):
        memory.context(Message.assistant("well?"))


def test_a_question_that_is_not_included_takes_its_room(store: CountingStore) -> None:
    memory = InfiniteMemory(store, embedder="words", **SMALL)
    memory.add(history(60))
    shown, hidden = (memory.context("what of item3?", include_question=shown) for shown in (True, False))
    assert "item3 concerns" in shown.messages[-1].content
    assert of_kind(hidden, Kind.QUESTION) == [None]
    assert hidden.report.totals[Kind.QUESTION] == shown.report.totals[Kind.QUESTION] > 0
    assert "item3?" not in " ".join(texts(hidden.messages))
    assert hidden.messages[0].role == "system"
    assert "item3 concerns" in hidden.messages[0].content


def test_tools_and_the_reserve_are_charged(memory: InfiniteMemory) -> None:
    memory.add(history(4))
    tools: list[dict[str, Any] | str] = [
        {"type": "function", "function": {"name": "find", "parameters": {}}},
        "a schema as text",
    ]
    plain, charged = memory.context("well?"), memory.context("well?", tools=tools)
    cost = tools_tokens(tools, as_counter("characters/4"))
    assert charged.report.totals[Kind.TOOLS] == charged.tokens - plain.tokens
    assert charged.report.totals[Kind.TOOLS] > 0
    assert (
        InfiniteMemory(token_counter=as_counter("characters/4")).context("hi", tools=tools).report.totals[Kind.TOOLS]
        == cost
    )
    assert (plain.report.budget, plain.report.reserve) == (4096 - 500, 500)
    assert memory.context("well?", reserve_tokens=0).report.budget == 4096
    few = memory.context("well?", reserve_tokens=4096 - plain.tokens)
    assert (few.messages, few.report.budget) == (plain.messages, plain.tokens)
    assert len(memory.context("well?", reserve_tokens=4096 - plain.tokens + 1).messages) < len(plain.messages)
    with pytest.raises(BudgetError):
        memory.context("well?", reserve_tokens=4096)
    with pytest.raises(ValueError, match="reserve_tokens=-1"):
        memory.context("well?", reserve_tokens=-1)


def test_the_first_question_of_all(store: CountingStore) -> None:
    memory = InfiniteMemory(store)
    assert texts(memory.context("hello").messages) == ["hello"]
    assert memory.context().messages == ()
    assert [*memory.search("hello"), *memory.messages(), *memory.newest(9), *memory.branches()] == []
    counts = dict.fromkeys(("messages", "turns", "branches", "segments", "vectors", "forgotten"), 0)
    assert {**memory.stats(), "bytes": 0} == {"branch": "main", **counts, "bytes": 0, "embedders": []}
    memory.index()
    assert store.session(None, "default") is None


# Reading


def test_reading_finds_what_was_added(memory: InfiniteMemory) -> None:
    stored = memory.add(history(1_100))
    assert list(memory.messages()) == stored
    for limit in (0, 1, 64, 65, 1_100, 5_000):
        assert memory.newest(limit) == stored[len(stored) - min(limit, len(stored)) :]
    assert memory.get("m700") == stored[700]
    with pytest.raises(UnknownReferenceError, match="'m1100'"):
        memory.get("m1100")
    with pytest.raises(ValueError, match="limit=-1"):
        memory.newest(-1)


def test_search_ranks_and_filters(memory: InfiniteMemory) -> None:
    memory.add([Message.system("gardens", id="rule"), *history(30)])
    call, result = ToolCall(id="c", name="find"), Message.tool("gardens", "c", id="result")
    memory.add([Message.user("", id="q"), Message.assistant(id="call", tool_calls=(call,)), result])
    hits = memory.search("item7 gardens")
    assert (hits[0].message.id, hits[0].source, hits[0].dense) == ("m7", "lexical", None)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].message == memory.get("m7")

    def found(**wanted: Any) -> set[str | None]:
        return set(ids(hit.message for hit in memory.search("gardens", 99, **wanted)))

    everything = {f"m{number}" for number in range(30)}
    assert found() == everything, "tools and system messages are found by role only"
    moment = NOON + timedelta(minutes=10)
    assert found(since=moment, until=moment) == {"m10"}
    assert found(until=moment) == {f"m{number}" for number in range(11)}
    assert found(since=moment, until=NOON + timedelta(minutes=29)) == {f"m{number}" for number in range(10, 30)}
    assert found(role="assistant") == {f"m{number}" for number in range(1, 30, 2)}
    assert found(role="tool") == {"result"}
    assert found(role="system") == {"rule"}
    assert [len(memory.search("gardens", top_k)) for top_k in (0, 1, 7)] == [0, 1, 7]
    assert memory.search("zeppelin") == []
    with pytest.raises(ValueError, match="top_k=-1"):
        memory.search("gardens", -1)
    with pytest.raises(ValueError, match="role='boss'"):
        memory.search("gardens", role="boss")  # type: ignore[arg-type]


def test_a_hit_says_what_found_it(store: CountingStore) -> None:
    near = CallableEmbedder(lambda texts: [[1.0, 0.0] for _ in texts], name="near", dimension=2)
    memory = InfiniteMemory(store, embedder=near)
    memory.add(Message.user("The combination is 4471."))
    memory.index()
    assert [memory.search(query)[0].source for query in ("locker", "combination")] == ["dense", "both"]


def test_stats_count_the_session(store: CountingStore) -> None:
    memory = InfiniteMemory(store, embedder=HashingEmbedder())
    memory.add(history(6))
    memory.fork("side", at="m2")
    memory.add(Message.user("x", id="x"))
    memory.index()
    memory.forget(ids=["x"])
    expected = {"messages": 6, "turns": 3, "branches": 2, "segments": 2, "vectors": 6, "forgotten": 1}
    assert memory.stats().items() >= (expected | {"branch": "side"}).items()
    assert memory.stats()["embedders"] == ["hashing/64"]


# Indexing


def test_index_embeds_every_text_once(store: CountingStore) -> None:
    embedder = HashingEmbedder()
    memory = InfiniteMemory(store, embedder=embedder)
    memory.add([*history(700), *(Message.user(f"item{number % 5}", id=f"u{number}") for number in range(50))])
    steps: list[tuple[int, int]] = []
    memory.index(lambda done, total: steps.append((done, total)))
    assert Counter(embedder.documents) == Counter({*texts(history(700)), *(f"item{number}" for number in range(5))})
    assert steps == [(256, 750), (512, 750), (750, 750)]
    embedder.documents.clear()
    memory.index()
    memory.add(Message.user("item3", id="again"))
    memory.index()
    assert embedder.documents == [], "an equal text has its vector already"
    assert memory.stats()["vectors"] == 751


def test_index_reaches_every_branch_and_counts_what_they_share_once(store: CountingStore) -> None:
    embedder = HashingEmbedder()
    memory = InfiniteMemory(store, embedder=embedder)
    memory.add(history(20))
    memory.fork("side", at="m9")
    memory.add(history(5, start=20))
    memory.fork("third")
    memory.checkout("main")
    steps: list[tuple[int, int]] = []
    memory.index(lambda done, total: steps.append((done, total)))
    assert Counter(embedder.documents) == Counter(texts(history(25)))
    assert steps == [(20, 25), (25, 25)]


@pytest.mark.parametrize("ending", ["index", "close"])
def test_a_snapshot_is_read_instead_of_the_history(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = HashingEmbedder()
    store = CountingStore(tmp_path / "chat.db")
    memory = InfiniteMemory(store, embedder=embedder, **SMALL)
    memory.add(history(300))
    if ending == "index":
        memory.index()
    expected = memory.context("what of item3?"), memory.search("item5", 99)
    store.reset()
    memory.close()
    assert store.calls["put_snapshot"] == (2 if ending == "close" else 0)
    with closing(CountingStore(tmp_path / "chat.db")) as again:
        memory = InfiniteMemory(again, embedder=embedder, **SMALL)
        assert (memory.context("what of item3?"), memory.search("item5", 99)) == expected
        assert (again.rows["after"], again.rows["all_vectors"]) == (0, 0)
        memory.add(history(5, start=300))
        memory.search("item5")
        assert again.rows["after"] == 5
        assert again.rows["newest"] <= 64 + 5
    store.close()


# What a question reads


def reads(count: int, **settings: Any) -> list[tuple[Counter[str], Counter[str]]]:
    """Rows read and calls made by a question to a new object, and by the next one, after `count` unrelated messages."""
    with closing(CountingStore(":memory:")) as store:
        given: dict[str, Any] = {"embedder": HashingEmbedder(floor=0.9), "recall": "thorough"}
        settings = given | SMALL | settings
        memory = InfiniteMemory(store, **settings)
        memory.add([Message.user(f"the lighthouse of the harbour, part {n}", id=f"h{n}") for n in range(4)])
        memory.add(history(count))
        memory.index()
        memory = InfiniteMemory(store, **settings)
        counts = []
        for _ in range(2):
            store.reset()
            context = memory.context("what about the lighthouse of the harbour?")
            counts.append((+store.rows, +store.calls))
        around = {f"m{n}" for n in range(20)}
        recalled = set(of_kind(context, Kind.RECALLED)) - {None} - around
        assert recalled == ({f"h{n}" for n in range(4)} if settings.get("recall_tokens") != 0 else set())
    return counts


def test_a_question_reads_as_much_after_1200_messages_as_after_200() -> None:
    few, many = reads(200), reads(1_200)
    assert few == many
    (cold, _), (warm, _) = many
    assert cold == {"newest": 64, "spaces": 1, "at": cold["at"]}
    assert 4 <= cold["at"] <= 40, "what is recalled, and some of what is not"
    assert warm == Counter(), "what was read lately is not read again"


# Life


def test_a_path_is_closed_and_a_store_is_not(tmp_path: Path, store: CountingStore) -> None:
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(history(2))
    memory.close()
    with pytest.raises(StoreError):
        memory.context("well?")
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        assert ids(memory.messages()) == ["m0", "m1"]
    with InfiniteMemory(store) as memory:
        memory.add(history(2))
    assert ids(InfiniteMemory(store).messages()) == ["m0", "m1"]


# The report


def test_the_report_adds_up_and_gives_a_reason_for_everything(store: CountingStore) -> None:
    memory = InfiniteMemory(store, embedder=HashingEmbedder(), **SMALL)
    memory.add([Message.system("be brief", id="rule"), *history(60)])
    context = memory.context(Message.user("what does item3 <script> concern?", grounding="fact"), tools=[{"name": "f"}])
    report = context.report
    assert sum(report.totals.values()) == report.total_tokens == context.tokens <= report.budget
    assert sum(line.tokens for line in report.lines if line.included) == report.total_tokens
    assert report.lines[-1].left == report.budget - report.total_tokens
    assert all(isinstance(line.reason, Reason) and line.tokens >= 0 for line in report.lines)
    assert {line.kind for line in report.included} == set(Kind) - {Kind.SUMMARY}
    assert {message.id for message in context.messages if message.id} <= {line.id for line in report.included}
    assert len({(line.id, line.kind) for line in report.lines}) == len(report.lines)
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
    drawn = report.full(width=200)
    assert all(f"\n{reason}  " in drawn and reason.why in drawn for reason in {line.reason for line in report.lines})
    assert all(f"{report.total_tokens:,} of {report.budget:,} tokens" in text for text in (drawn, str(report)))
    assert report.embedder == "hashing/64"


def test_logging_says_just_the_report(memory: InfiniteMemory, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shared_core"):
        memory.add(history(40))
        memory.index()
        memory.search("item3")
        memory.forget(ids=["m7"])
        context = memory.context("what of item5?")
    ours = [record for record in caplog.records if record.name.startswith("shared_core")]
    assert [(record.levelname, record.getMessage()) for record in ours] == [("DEBUG", str(context.report))]


# Embedders


def recorded(store: CountingStore, embedder: Any) -> Callable[[Any], InfiniteMemory]:
    """Give a session vectors of an embedder; return what opens it with another."""
    with InfiniteMemory(store, embedder=embedder, **SMALL) as memory:
        memory.add(history(40))
        memory.index()
    return lambda other: InfiniteMemory(store, embedder=other, **SMALL)


@pytest.mark.skipif(not static_available(), reason="wordllama is not installed")
def test_without_an_embedder_the_static_one_is_used_and_found_again(store: CountingStore) -> None:
    context = recorded(store, None)(None).context("what of item3?")
    assert store.spaces(1) == [STATIC.key] == [StaticEmbedder().fingerprint.key]
    assert (context.report.embedder, context.report.degraded) == (STATIC.key, ())


@pytest.mark.model
def test_without_an_embedder_the_recorded_one_is_used(store: CountingStore) -> None:
    context = recorded(store, minilm())(None).context("what of item3?")
    assert context.report.embedder == MINILM.key
    assert store.spaces(1) == [MINILM.key]


@pytest.mark.model
def test_a_new_session_takes_minilm_and_an_old_one_keeps_its_own(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    minilm()
    recorded(store, "static")
    monkeypatch.delenv("INFINITE_MEMORY_EMBEDDER")

    def used(session: str, **arguments: Any) -> str | None:
        with InfiniteMemory(store, session_id=session, **SMALL, **arguments) as memory:
            memory.add(history(40))
            memory.index()
            return memory.context("what of item3?").report.embedder

    assert used("default") == STATIC.key
    assert used("new") == MINILM_INT8.key
    assert used("pinned", embedder="static") == STATIC.key
    assert used("ann's first", user_id="ann", embedder="static") == STATIC.key
    assert used("ann's second", user_id="ann", scope="user") == STATIC.key, "they are searched together"
    assert used("ann's third", user_id="ann") == MINILM_INT8.key


def test_new_sessions_may_be_searched_by_words_alone(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(store, HashingEmbedder(64))(HashingEmbedder(64)) as memory:
        memory.add(Message.user("and then?"))
    monkeypatch.setenv("INFINITE_MEMORY_EMBEDDER", "words")
    with InfiniteMemory(store, session_id="new", **SMALL) as memory:
        memory.add(history(40))
        report = memory.context("what of item3?").report
        assert (report.embedder, report.degraded, report.pending) == (None, (), 0)
        memory.index()
        assert memory.stats()["vectors"] == 0
        assert memory.search("item3")


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have new sessions take hashing/16, and hashing/64 be found by its key, too."""
    both = {f"hashing/{dimension}": HashingEmbedder(dimension) for dimension in (16, 64)}
    monkeypatch.setattr(recall_settings, "embedder_for_new", lambda: both["hashing/16"])
    monkeypatch.setattr(recall_settings, "embedder_named", both.get)


@pytest.mark.usefixtures("named")
def test_a_session_that_was_searched_before_it_had_vectors_takes_those_that_come(
    store: CountingStore, tmp_path: Path
) -> None:
    with recorded(store, HashingEmbedder(64))(None) as memory:
        memory.export(tmp_path / "chat.jsonl", vectors=True)
    with InfiniteMemory(store, session_id="other", **SMALL) as memory:
        memory.add(Message.user("hi"))
        memory.search("hi")
        memory.import_file(tmp_path / "chat.jsonl")
        memory.checkout("imported/main")
        assert memory.context("what of item3?").report.embedder == "hashing/64"
        memory.index()
        assert [*memory.stats()["embedders"]] == ["hashing/64"]


@pytest.mark.usefixtures("named")
@pytest.mark.parametrize("scopes", [("session", "user"), ("user", "session")])
def test_the_embedder_of_a_new_session_does_not_depend_on_what_was_asked_first(
    store: CountingStore, scopes: Sequence[RecallScope]
) -> None:
    with InfiniteMemory(store, session_id="old", user_id="ann", embedder=HashingEmbedder(64)) as memory:
        memory.add(history(9))
        memory.index()
    with InfiniteMemory(store, session_id="new", user_id="ann", **SMALL) as memory:
        memory.add(Message.user("hi"))
        choose = memory._prompts.searcher.embedder.choice
        found = {scope: choose(scope).space for scope in scopes}
        assert found == {"session": "hashing/16", "user": "hashing/64"}
        memory.index()
        assert {choose(scope).space for scope in scopes} == {"hashing/16"}


def test_a_recorded_embedder_that_is_not_at_hand_is_named(store: CountingStore) -> None:
    context = recorded(store, HashingEmbedder())(None).context("what of item3?")
    assert "m3" in of_kind(context, Kind.RECALLED)
    assert context.report.embedder is None
    (note,) = context.report.degraded
    assert "'hashing/64'" in note
    assert f"! {note}" in context.report.render(width=400).splitlines()


def test_another_embedder_is_refused_until_the_session_is_indexed_anew(store: CountingStore) -> None:
    old, new = HashingEmbedder(), HashingEmbedder(32, name="other")
    opened = recorded(store, old)
    memory = opened(new)
    for verb in (lambda: memory.search("item3"), lambda: memory.context("what of item3?"), memory.index):
        with pytest.raises(EmbedderMismatchError, match=r"(?s)hashing/64.*other/32|other/32.*hashing/64"):
            verb()
    memory.add(Message.user("still stored", id="new"))
    assert memory.forget(ids=["new"]).ids == ("new",)
    assert new.documents == []
    memory.index(again=True)
    assert Counter(new.documents) == Counter(texts(history(40)))
    assert memory.context("what of item3?").report.embedder == "other/32"
    assert set(store.spaces(1)) == {"hashing/64", "other/32"}
    old.documents.clear()
    assert opened(old).context("what of item3?").report.embedder == "hashing/64"
    assert old.documents == [], "the old vectors are still there"


def test_another_embedder_is_refused_before_anything_needs_recall(store: CountingStore) -> None:
    """At the first question to a session that holds vectors, also while all of it fits; later ones ask nothing."""
    with InfiniteMemory(store, embedder=HashingEmbedder()) as memory:
        memory.add(history(4))
        memory.index()
    other = InfiniteMemory(store, embedder=HashingEmbedder(32, name="other"))
    for _ in range(2):
        with pytest.raises(EmbedderMismatchError, match=r"hashing/64.*other/32"):
            other.context("what of item3?")
    same = InfiniteMemory(store, embedder=HashingEmbedder())
    store.reset()
    for _ in range(3):
        same.context("what of item3?")
    assert store.calls["spaces"] == 2


def test_what_another_object_adds_in_bulk_is_not_read_at_once(store: CountingStore) -> None:
    memory = InfiniteMemory(store, embedder="words")
    memory.add(history(10))
    memory.newest(1)
    for count in (100, TAIL_KEPT + 1):
        start = len(list(memory.messages()))
        InfiniteMemory(store, embedder="words").add(history(count, start))
        store.reset()
        assert ids(memory.newest(2)) == [f"m{start + count - 2}", f"m{start + count - 1}"]
        assert (store.rows["after"], store.rows["newest"]) == ((count, 0) if count <= NEWS else (NEWS, 64))
    memory.add(Message.user("more", id="more"))
    assert ids(memory.newest(3))[1:] == [f"m{start + count - 1}", "more"]
    assert ids(memory.messages()) == [*(f"m{number}" for number in range(start + count)), "more"]
