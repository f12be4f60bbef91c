"""A wrong argument fails at the call, with a message of one or two lines that says what to pass instead."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from shared_core import (
    AsyncInfiniteMemory,
    BudgetError,
    EmbedderError,
    Grounding,
    IndexCache,
    InfiniteMemory,
    Message,
    SessionPool,
    StoreError,
    ToolCall,
    UnknownReferenceError,
    prune,
    sliding_window,
)
from shared_core.arguments import moment, suggestion
from shared_core.errors import InputFileError, MessageTooLargeError
from shared_core.messages import GroundingItem

HI = Message.user("hello")

NAMES = {
    "AsyncInfiniteMemory": AsyncInfiniteMemory, "Grounding": Grounding, "GroundingItem": GroundingItem, "HI": HI,
    "IndexCache": IndexCache, "InfiniteMemory": InfiniteMemory, "Message": Message, "SessionPool": SessionPool,
    "ToolCall": ToolCall,
    "datetime": datetime, "nan": float("nan"), "prune": prune, "sliding_window": sliding_window,
}  # fmt: skip
"""What the calls below refer to, besides a `memory` with a message `u1` and its answer `a1`."""

Wrong = dict[str, tuple[type[Exception], str]]
"""Calls, with the class of the error and a part of its message."""

CONSTRUCTOR: Wrong = {
    "InfiniteMemory(store=5)": (TypeError, "store=5: expected the path of a database file, a Store, or None"),
    "InfiniteMemory(b'x.db')": (TypeError, "store=b'x.db': expected the path"),
    "InfiniteMemory('')": (ValueError, "store='': expected the path"),
    "InfiniteMemory('mysql://here')": (
        ValueError,
        "this version knows SQLite and PostgreSQL; give a path, sqlite:///path, postgresql://",
    ),
    "InfiniteMemory('folder')": (StoreError, "folder' is a folder; give the path of a database file"),
    "InfiniteMemory('text')": (StoreError, "not a readable SQLite database"),
    "InfiniteMemory('none/x.db')": (StoreError, "'none/x.db' cannot be created: No such file or directory; make the"),
    "InfiniteMemory('a.db', 'anna')": (TypeError, "positional arguments"),
    "InfiniteMemory(max_token=9)": (
        TypeError,
        "InfiniteMemory() has no argument 'max_token'; did you mean 'max_tokens'",
    ),
    "InfiniteMemory(sesion_id='a')": (TypeError, "did you mean 'session_id'?"),
    "InfiniteMemory(embeddings='static')": (TypeError, "did you mean 'embedder'?"),
    "InfiniteMemory(zebra=9)": (TypeError, "InfiniteMemory() has no argument 'zebra'"),
    "InfiniteMemory(session_id='')": (ValueError, "leave it out for 'default'"),
    "InfiniteMemory(session_id=5)": (ValueError, "session_id=5: expected a text"),
    "InfiniteMemory(session_id=None)": (ValueError, "session_id=None: expected a text"),
    "InfiniteMemory(user_id=5)": (ValueError, "user_id=5: expected a text"),
    "InfiniteMemory(user_id='')": (ValueError, "None means that there is none"),
    "InfiniteMemory(system=5)": (TypeError, "system=5: expected a function, () -> str | None, or a text"),
    "InfiniteMemory(system_prompt='x')": (TypeError, "did you mean 'system'?"),
    "InfiniteMemory(scope='x')": (ValueError, "choose one of 'session', 'user'"),
    "InfiniteMemory(scope='user')": (ValueError, "pass the user_id"),
    "InfiniteMemory(max_tokens=100)": (BudgetError, "max_tokens=100 is not larger than reserve_tokens=500: "),
    "InfiniteMemory(max_tokens=500)": (BudgetError, "max_tokens=500 is not larger than reserve_tokens=500: "),
    "InfiniteMemory(max_tokens='4096')": (ValueError, "max_tokens='4096': expected a whole number of at least 1"),
    "InfiniteMemory(max_tokens=4096.0)": (ValueError, "max_tokens=4096.0: expected a whole number"),
    "InfiniteMemory(max_tokens=True)": (ValueError, "max_tokens=True: expected a whole number"),
    "InfiniteMemory(reserve_tokens=-1)": (ValueError, "reserve_tokens=-1: expected a whole number of at least 0"),
    "InfiniteMemory(token_counter='gpt-99')": (ValueError, "'o200k_base', "),
    "InfiniteMemory(token_counter=5)": (TypeError, "token_counter=5: expected"),
    "InfiniteMemory(message_overhead=-1)": (ValueError, "message_overhead=-1: expected a whole number of at least 0"),
    "InfiniteMemory(window_slack=2)": (ValueError, "window_slack=2: expected a number from 0 to 1"),
    "InfiniteMemory(window_slack=True)": (ValueError, "window_slack=True: expected a number"),
    "InfiniteMemory(embedder=object())": (TypeError, "CallableEmbedder(function, name="),
    "InfiniteMemory(embedder='')": (EmbedderError, "embedder='': there is no such folder. Choose 'static', "),
    "InfiniteMemory(embedder='all-MiniLM-L6')": (EmbedderError, "Did you mean 'all-MiniLM-L6-v2'? Choose 'static', "),
    "InfiniteMemory(embedder='folder')": (EmbedderError, "the folder holds no model"),
    "InfiniteMemory(embedder='./none')": (EmbedderError, "there is no such folder"),
    "InfiniteMemory(ranking='x')": (ValueError, "choose one of 'hybrid', 'dense', 'lexical'"),
    "InfiniteMemory(recall='eager')": (ValueError, "choose one of 'balanced', 'thorough', 'precise'"),
    "InfiniteMemory(ranking=[])": (ValueError, "choose one of 'hybrid'"),
    "InfiniteMemory(recall_unit='x')": (ValueError, "choose one of 'message', 'turn'"),
    "InfiniteMemory(embed_text=5)": (TypeError, "embed_text=5: expected a function, (messages) -> str"),
    "InfiniteMemory(top_k=-1)": (ValueError, "top_k=-1: expected a whole number of at least 0"),
    "InfiniteMemory(recall_tokens=2.0)": (ValueError, "recall_tokens=2.0: expected a number from 0 to 1"),
    "InfiniteMemory(recall_tokens=-1)": (ValueError, "recall_tokens=-1: expected a whole number"),
    "InfiniteMemory(recall_tokens=nan)": (ValueError, "recall_tokens=nan: expected a number"),
    "InfiniteMemory(min_score='x')": (ValueError, "min_score='x': expected a number from -1 to 1"),
    "InfiniteMemory(min_lexical='x')": (ValueError, "min_lexical='x': expected a number"),
    "InfiniteMemory(excerpt_tokens=0)": (ValueError, "excerpt_tokens=0: expected a whole number of at least 1"),
    "InfiniteMemory(recall_tools='x')": (ValueError, "choose one of 'replies'"),
    "InfiniteMemory(standing_tokens=-1)": (ValueError, "standing_tokens=-1: expected a whole number of at least 0"),
    "InfiniteMemory(placement='x')": (ValueError, "choose one of 'grounding'"),
    "InfiniteMemory(recall_template='{text}')": (TypeError, "write recall_template=RecallTemplate(…)"),
    "InfiniteMemory(keep_grounding=-1)": (ValueError, "keep_grounding=-1: expected a whole number"),
    "InfiniteMemory(grounding_overflow='x')": (ValueError, "choose one of 'trim', 'error'"),
    "InfiniteMemory(on_overflow='x')": (ValueError, "choose one of 'raise', 'keep'"),
    "InfiniteMemory(fill='x')": (ValueError, "choose one of 'stop', 'skip'"),
    "InfiniteMemory(summarizer=5)": (TypeError, "summarizer=5: expected a callable(previous_summary, messages)"),
    "InfiniteMemory(summary_tokens=0)": (ValueError, "summary_tokens=0: expected a whole number"),
    "InfiniteMemory(summarizer_tokens='x')": (ValueError, "summarizer_tokens='x': expected a whole number"),
    "InfiniteMemory(strippers='x')": (TypeError, "strippers='x': expected a list of Stripper; [] sets nothing apart"),
    "InfiniteMemory(strippers=[1])": (TypeError, "strippers holds 1; expected Stripper(name, function)"),
    "InfiniteMemory(summary_placement='x')": (ValueError, "choose one of 'system', 'grounding'"),
    "InfiniteMemory(summary_template=5)": (TypeError, "write summary_template=SummaryTemplate(…)"),
    "InfiniteMemory(embed_budget_ms='x')": (ValueError, "embed_budget_ms='x': expected a number of at least 0"),
    "InfiniteMemory(reranker=5)": (TypeError, "reranker=5: pass the folder or the full hub name of a sentence-transf"),
    "InfiniteMemory(reranker=str)": (TypeError, "as_reranker of the LangChain or LlamaIndex package makes"),
    "InfiniteMemory(reranker='')": (ValueError, "reranker='': pass the folder or the full hub name of a sentence-tra"),
    "InfiniteMemory(rerank_budget_ms=nan)": (ValueError, "rerank_budget_ms=nan: expected a number of at least 0"),
    "InfiniteMemory(rerank_model='x')": (TypeError, "did you mean 'reranker'?"),
    "InfiniteMemory(durability='x')": (ValueError, "durability='x': choose one of 'full', 'process'"),
    "InfiniteMemory(on_event=5)": (TypeError, "on_event=5: expected a function, (event) -> None"),
    "InfiniteMemory(on_event=list)": (TypeError, "expected a function, (event) -> None"),
    "InfiniteMemory(index_cache=10**9)": (TypeError, "write index_cache=IndexCache("),
    "IndexCache(-1)": (ValueError, "max_bytes=-1: expected a whole number"),
    "IndexCache('1 GB')": (ValueError, "max_bytes='1 GB': expected a whole number"),
    "InfiniteMemory(clock=5)": (TypeError, "clock=5: expected a function, () -> datetime"),
    "InfiniteMemory(clock=lambda: 5).add(HI)": (ValueError, "clock returned 5; it must return a datetime"),
    "InfiniteMemory(new_id=5)": (TypeError, "new_id=5: expected a function, () -> str"),
    "InfiniteMemory(new_id=lambda: 5).add(HI)": (ValueError, "new_id returned 5; it must return a text"),
    "AsyncInfiniteMemory('a.db', max_tokens=9)": (TypeError, "await AsyncInfiniteMemory.open('a.db', max_tokens=9)"),
    "AsyncInfiniteMemory(store='a.db')": (TypeError, "await AsyncInfiniteMemory.open(store='a.db')"),
    "AsyncInfiniteMemory()": (TypeError, "await AsyncInfiniteMemory.open()"),
    "SessionPool(5)": (TypeError, "store=5: expected the path"),
    "SessionPool('pool.db', max_token=9)": (TypeError, "did you mean 'max_tokens'?"),
    "SessionPool('pool.db', max_tokens=9)": (BudgetError, "max_tokens=9 is not larger than reserve_tokens=500"),
    "SessionPool('pool.db', size=-1)": (ValueError, "size=-1: expected a whole number"),
}

METHODS: Wrong = {
    "memory.add(5)": (TypeError, "expected messages, not 5: write Message.user(text)"),
    "memory.add(None)": (TypeError, "expected messages, not None: write"),
    "memory.add('text')": (TypeError, "expected messages, not 'text': write"),
    "memory.add([HI, 'text'])": (TypeError, "expected messages, not 'text': write"),
    "memory.add(Message.assistant('x'), turn=5)": (ValueError, "turn=5: expected the id of a turn's user message"),
    "memory.follow('text')": (TypeError, "expected messages, not 'text': write"),
    "memory.follow([HI], after=5)": (TypeError, "after=5: expected what an earlier follow() returned"),
    "memory.context(5)": (TypeError, "question=5: expected a text or a user message"),
    "memory.context([HI])": (TypeError, "store a history with follow() or add()"),
    "memory.context(Message.assistant('x'))": (ValueError, "expected a user message, not one of role 'assistant'"),
    "memory.context('x', reserve_tokens='9')": (ValueError, "reserve_tokens='9': expected a whole number"),
    "memory.context('x', max_tokens=0)": (ValueError, "max_tokens=0"),
    "memory.context('x', max_tokens='9')": (ValueError, "max_tokens='9': expected a whole number"),
    "memory.context('x', max_tokens=500)": (BudgetError, "max_tokens=500 is not larger than reserve_tokens=500: "),
    "memory.context('x', reserve_tokens=5000)": (BudgetError, "max_tokens=4096 is not larger than reserve_tokens=5000"),
    "memory.context('x', reserve_tokens=4096)": (
        MessageTooLargeError,
        "the question needs 5 tokens, but 0 are left of a budget",
    ),
    "memory.context('x', system=5)": (TypeError, "pass a text or a function that returns one; not 5"),
    "memory.context('x', tools=5)": (TypeError, "tools=5: expected a list of tool schemas"),
    "memory.context('x', tools={'name': 'f'})": (TypeError, "put a single one in a list"),
    "memory.search(5)": (ValueError, "query=5: expected a text"),
    "memory.search('x', top_k='5')": (ValueError, "top_k='5': expected a whole number"),
    "memory.search('x', role='boss')": (ValueError, "role='boss': choose one of 'system', 'developer', 'user'"),
    "memory.search('x', since='yesterday')": (ValueError, "since='yesterday': expected a time, such as '2026-01-31'"),
    "memory.search('x', repeats=0)": (ValueError, "repeats=0: expected a whole number of at least 1"),
    "memory.search('x', until=5)": (TypeError, "until=5: expected a time, such as '2026-01-31'"),
    "memory.forget()": (ValueError, "pass exactly one of"),
    "memory.forget(ids='a1')": (ValueError, "ids='a1': expected a list; write ids=['a1']"),
    "memory.forget(ids=5)": (ValueError, "ids=5: expected a list of texts"),
    "memory.forget(before='soon')": (ValueError, "before='soon': expected a time, such as '2026-01-31'"),
    "memory.rename_session('')": (ValueError, "session_id='': expected the name of the conversation"),
    "memory.count('text')": (TypeError, "expected messages, not 'text': write Message.user(text)"),
    "memory.newest('5')": (ValueError, "limit='5': expected a whole number"),
    "memory.get('zz')": (UnknownReferenceError, "no message 'zz'"),
    "memory.index(progress=5)": (TypeError, "progress=5: expected a function, (done, total) -> None"),
    "memory.summarize()": (ValueError, "pass summarizer= to InfiniteMemory"),
    "memory.fork(5)": (ValueError, "name=5: expected a text"),
    "memory.fork('')": (ValueError, "a branch or a tag needs a name"),
    "memory.fork('x', at=5)": (ValueError, "expected the name of a branch or a tag, or the id of a message"),
    "memory.checkout(None)": (ValueError, "expected the name of a branch or a tag, or the id of a message"),
    "memory.checkout('zz')": (UnknownReferenceError, "no branch or message 'zz'; branches: 'main'"),
    "memory.rename(5, 'x')": (ValueError, "name=5: expected a text"),
    "memory.delete_branch(5)": (ValueError, "name=5: expected a text"),
    "memory.tag(5)": (ValueError, "name=5: expected a text"),
    "memory.merge('main', how='x')": (ValueError, "how='x': choose one of 'auto', "),
    "memory.merge('main', summarizer=5)": (TypeError, "summarizer=5: expected a function"),
    "memory.cherry_pick(5)": (ValueError, "ids=5: expected a list of texts"),
    "memory.export(5)": (TypeError, "path=5: expected the path of a file, as a text or a Path"),
    "memory.export('')": (ValueError, "path='': expected the path of a file"),
    "memory.export('folder')": (StoreError, "'folder' is a folder; give the path of a file in it"),
    "memory.export('none/x.json')": (StoreError, "'none/x.json' cannot be written: No such file or directory; check"),
    "memory.import_file(5)": (TypeError, "path=5: expected the path of a file"),
    "memory.import_file('none.json')": (InputFileError, "'none.json' cannot be read (No such file or directory)"),
    "memory.import_file('folder')": (InputFileError, "'folder' cannot be read (Is a directory)"),
    "sliding_window('text', max_tokens=9)": (TypeError, "expected messages, not 'text': write"),
    "sliding_window([HI], max_tokens='9')": (ValueError, "max_tokens='9': expected a whole number"),
    "sliding_window([HI], max_tokens=9, reserve_tokens=9)": (BudgetError, "max_tokens=9 is not larger than"),
    "prune([HI], 5)": (TypeError, "query=5: expected a text or a user message"),
    "prune('text', 'x')": (TypeError, "expected messages, not 'text': write"),
    "prune([HI], 'x', top_k=-1)": (ValueError, "top_k=-1: expected a whole number"),
    "prune([HI], 'x', embedder=5)": (TypeError, "embedder=5: expected an Embedder"),
}

MESSAGES: Wrong = {
    "Message('user', 'hi')": (TypeError, "name the fields of a Message: Message(role=…, content=…)"),
    "Message()": (ValueError, "Message: role= is missing"),
    "Message(role='boss')": (ValueError, "role='boss': choose one of 'system', 'user', 'assistant' or 'tool'"),
    "Message(role='user', contnt='x')": (ValueError, "there is no field 'contnt'; did you mean 'content'?"),
    "Message(role='user', zebra=1)": (ValueError, "there is no field 'zebra'; there are role, content, id, "),
    "Message.user(None)": (ValueError, "content=None: expected a text"),
    "Message.user(5)": (ValueError, "content=5: expected a text"),
    "Message.user('x', id='')": (ValueError, "id='': expected a text that is not empty"),
    "Message.user('x', id='\\ud800')": (ValueError, "expected a text without lone surrogates"),
    "Message.user('x', created_at='soon')": (
        ValueError,
        "created_at='soon': expected a time, such as '2026-01-31T10:00'",
    ),
    "Message.user('x', pinned='maybe')": (ValueError, "pinned='maybe': expected True or False"),
    "Message.user('x', media_tokens=-1)": (ValueError, "media_tokens=-1: expected a whole number of at least 0"),
    "Message.user('x', media_tokens='x')": (ValueError, "media_tokens='x': expected a whole number"),
    "Message.user('x', grounding=5)": (ValueError, "grounding=5: expected a Grounding or a text"),
    "Message.user('x', tool_calls=5)": (ValueError, "tool_calls=5: expected a list"),
    "Message.assistant(tool_calls=[{'id': 1}])": (
        ValueError,
        "tool_calls[0].id=1: expected a text\ntool_calls[0].name= is",
    ),
    "Message(role='x', content=1, id=1, a=1, b=1)": (ValueError, "\nid=1: expected a text\nand 2 more"),
    "ToolCall(id='1', name='f', arguments={})": (ValueError, "write json.dumps(…)"),
    "GroundingItem(text='x', score='high')": (ValueError, "score='high': expected a number"),
    "Grounding.of(5)": (ValueError, "text=5: expected a text"),
    "setattr(HI, 'content', 'x')": (TypeError, "a Message is frozen; copy it: value.model_copy(update={'content': …})"),
}


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InfiniteMemory]:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("once upon a time\n" * 100)
    monkeypatch.chdir(tmp_path)
    with InfiniteMemory() as memory:
        memory.add([Message.user("hello", id="u1"), Message.assistant("hi", id="a1")])
        yield memory
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "text"}, "what fails leaves no file"


@pytest.mark.parametrize("call", [*CONSTRUCTOR, *METHODS, *MESSAGES])
def test_a_wrong_argument_fails_at_the_call(memory: InfiniteMemory, call: str) -> None:
    kind, part = (CONSTRUCTOR | METHODS | MESSAGES)[call]
    with pytest.raises(kind) as caught:
        eval(call, {**NAMES, "memory": memory})
    said = str(caught.value)
    assert caught.type is kind
    assert part in said
    assert "pydantic" not in said
    assert len(said) <= 320
    assert caught.value.__suppress_context__ or not type(caught.value.__context__).__module__.startswith("pydantic")
    assert [message.id for message in memory.messages()] == ["u1", "a1"], "and nothing is stored"


def test_a_limit_that_was_lowered_to_the_reserve_is_named(memory: InfiniteMemory) -> None:
    memory.max_tokens = 500
    with pytest.raises(BudgetError, match="max_tokens=500 is not larger than reserve_tokens=500") as error:
        memory.context("hi")
    assert (error.value.needed, error.value.available) == (1, 0)


ASYNC: Wrong = {
    "memory.context(5)": METHODS["memory.context(5)"],
    "memory.search('x', since='yesterday')": METHODS["memory.search('x', since='yesterday')"],
    "memory.forget(before='soon')": METHODS["memory.forget(before='soon')"],
    "memory.checkout(None)": METHODS["memory.checkout(None)"],
}


@pytest.mark.parametrize("call", ASYNC)
def test_the_async_memory_says_the_same(memory: InfiniteMemory, call: str) -> None:
    async def wrong() -> None:
        await eval(call, {"memory": AsyncInfiniteMemory(memory)})

    kind, part = ASYNC[call]
    with pytest.raises(kind) as caught:
        asyncio.run(wrong())
    assert part in str(caught.value)


# Times


@pytest.mark.parametrize(
    ("given", "beginning", "end"),
    [
        ("2026-01-31", (2026, 1, 31), (2026, 1, 31, 23, 59, 59, 999_999)),
        (" 2026-01-31 ", (2026, 1, 31), (2026, 1, 31, 23, 59, 59, 999_999)),
        (date(2026, 1, 31), (2026, 1, 31), (2026, 1, 31, 23, 59, 59, 999_999)),
        ("2026-01-31T10:00", (2026, 1, 31, 10), (2026, 1, 31, 10)),
        ("2026-01-31T10:00Z", (2026, 1, 31, 10), (2026, 1, 31, 10)),
        ("2026-01-31T10:00+01:00", (2026, 1, 31, 9), (2026, 1, 31, 9)),
        (datetime(2026, 1, 31, 10), (2026, 1, 31, 10), (2026, 1, 31, 10)),
        (datetime(2026, 1, 31, tzinfo=UTC), (2026, 1, 31), (2026, 1, 31)),
    ],
)
def test_a_time_may_be_a_datetime_a_date_or_text(given: Any, beginning: tuple[int, ...], end: tuple[int, ...]) -> None:
    assert moment("since", given) == datetime(*beginning, tzinfo=UTC)  # type: ignore[misc, arg-type]
    assert moment("until", given, end=True) == datetime(*end, tzinfo=UTC)  # type: ignore[misc, arg-type]


def test_text_limits_searches_and_erasures() -> None:
    memory = InfiniteMemory(ranking="lexical")
    days = [datetime(2026, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
    memory.add([Message.user("needle", id=f"{at:%d}", created_at=at) for at in days])

    def found(**limits: Any) -> set[str | None]:
        return {hit.message.id for hit in memory.search("needle", **limits)}

    assert found(since="2026-01-02") == {"02", "03"}
    assert found(until="2026-01-02") == {"01", "02"}
    assert found(since=date(2026, 1, 2), until="2026-01-02T11:59") == set()
    assert memory.forget(before="2026-01-02", dry_run=True).ids == ("01",)

    async def later() -> set[str | None]:
        return {hit.message.id for hit in await AsyncInfiniteMemory(memory).search("needle", since="2026-01-03")}

    assert asyncio.run(later()) == {"03"}


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("max_token", ["max_tokens", "top_k"], "; did you mean 'max_tokens'?"),
        ("k", ["max_tokens", "top_k"], "; did you mean 'top_k'?"),
        ("max_tokens", ["token_limit", "token_counter"], "; did you mean 'token_limit'?"),
        ("token_limit", ["max_tokens", "token_counter"], "; did you mean 'max_tokens'?"),
        ("path", ["max_tokens", "top_k"], ""),
    ],
)
def test_names_of_other_libraries_are_understood(name: str, known: list[str], near: str) -> None:
    assert suggestion(name, known) == near
