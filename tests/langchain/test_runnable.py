"""A chain that remembers: what it is given, what is stored, and whose turn it is."""

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import (
    AddableDict,
    Runnable,
    RunnableGenerator,
    RunnableLambda,
)
from langchain_core.tracers.base import BaseTracer
from pydantic import BaseModel

from langchain_infinite_memory.chains.runnable import InfiniteMemoryRunnable, MemoryFailedWarning, with_infinite_memory
from langchain_infinite_memory.identity import RunIds
from langchain_infinite_memory.messages import to_message
from shared_core import BudgetError, ContextReport, Message, SessionPool, SQLiteStore, StoreError
from shared_core.queries import Query
from shared_core.testing import HashingEmbedder
from tests.support.event_loop import nothing_blocks

ONE: Any = {"configurable": {"session_id": "1"}}
SMALL: dict[str, Any] = {
    "max_tokens": 200, "reserve_tokens": 0, "embedder": HashingEmbedder(), "token_counter": "characters/4",
}  # fmt: skip
WAYS = ["invoke", "ainvoke", "stream", "astream"]


class Chain:
    """Answers each question by "re: " and its last line, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self, value: Any) -> str:
        self.given.append(value)
        return "re: " + text_of(value)


def text_of(value: Any) -> str:
    value = value["question"] if isinstance(value, dict) else value
    text = value[-1] if isinstance(value, list) else value
    return (text.text if isinstance(text, BaseMessage) else str(text)).splitlines()[-1]


async def ask(chain: Runnable[Any, Any], value: Any, way: str = "invoke", config: Any = None) -> Any:
    config = config or ONE
    if way == "invoke":
        return chain.invoke(value, config)
    if way == "ainvoke":
        return await chain.ainvoke(value, config)
    if way == "stream":
        return "".join(chain.stream(value, config))
    return "".join([chunk async for chunk in chain.astream(value, config)])


def stored(chain: InfiniteMemoryRunnable, session: str = "1") -> list[BaseMessage]:
    return chain.history(session).messages


def neutral(chain: InfiniteMemoryRunnable, session: str = "1") -> list[Message]:
    with chain.pool.use(session) as memory:
        return list(memory.messages())


def exchange(question: str) -> list[BaseMessage]:
    return [HumanMessage(question), AIMessage(f"re: {question}")]


# What the chain is given


FORMS: dict[str, Any] = {
    "text": lambda text: text,
    "message": HumanMessage,
    "messages": lambda text: [HumanMessage(text)],
    "tuples": lambda text: [("user", text)],
    "prompt": lambda text: ChatPromptTemplate([("user", text)]).invoke({}),
}


@pytest.mark.parametrize(("form", "way"), [*((form, "invoke") for form in FORMS), *(("text", way) for way in WAYS[1:])])
def test_without_keys_it_is_given_the_whole_prompt(form: str, way: str) -> None:
    inner = Chain()
    with closing(with_infinite_memory(inner)) as chain:
        assert asyncio.run(ask(chain, FORMS[form]("hello"), way)) == "re: hello"
        assert asyncio.run(ask(chain, FORMS[form]("good bye"), way)) == "re: good bye"
        assert inner.given == [[HumanMessage("hello")], [*exchange("hello"), HumanMessage("good bye")]]
        assert stored(chain) == exchange("hello") + exchange("good bye")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["text", "messages"])
def test_with_a_history_key_the_question_keeps_its_form(name: str, way: str) -> None:
    form = FORMS[name]
    inner = Chain()
    with closing(with_infinite_memory(inner, input_key="question", history_key="past")) as chain:
        value = {"question": form("hello"), "past": "is replaced"}
        asyncio.run(ask(chain, value, way))
        asyncio.run(ask(chain, {"question": form("good bye")}, way))
        assert inner.given == [
            {"question": form("hello"), "past": []},
            {"question": form("good bye"), "past": exchange("hello")},
        ]
        assert value == {"question": form("hello"), "past": "is replaced"}


def test_what_is_said_long_ago_is_recalled_within_the_budget() -> None:
    inner, reports = Chain(), list[ContextReport]()
    chain = with_infinite_memory(
        inner, input_key="question", history_key="past", on_report=lambda report, run: reports.append(report), **SMALL
    )
    chain.invoke({"question": "my code is code3 exactly"}, ONE)
    for number in range(30):
        chain.invoke({"question": f"tell me about garden {number} please"}, ONE)
    chain.invoke({"question": "what is code3 exactly?"}, ONE)
    given = inner.given[-1]
    assert "my code is code3 exactly" in given["question"]
    assert given["question"].endswith("\nwhat is code3 exactly?")
    assert given["past"][-1] == AIMessage("re: tell me about garden 29 please")
    assert 0 < len(given["past"]) < 30
    assert all(report.total_tokens <= 200 for report in reports)
    assert len(stored(chain)) == 64
    assert stored(chain)[-2] == HumanMessage("what is code3 exactly?")


def test_system_messages_of_the_input_are_sent_charged_and_not_stored() -> None:
    inner, reports = Chain(), list[ContextReport]()
    chain = with_infinite_memory(inner, on_report=lambda report, run: reports.append(report))
    for question in ("hello", "good bye"):
        chain.invoke([SystemMessage("be kind " * 50), HumanMessage(question)], ONE)
    assert inner.given[1] == [SystemMessage("be kind " * 50), *exchange("hello"), HumanMessage("good bye")]
    assert stored(chain) == exchange("hello") + exchange("good bye")
    assert reports[0].totals["tools"] > 100  # type: ignore[index]


# What is stored


def test_tools_are_charged() -> None:
    def clock(zone: str) -> str:
        """Tell the time."""
        return zone

    reports = list[ContextReport]()
    chain = with_infinite_memory(Chain(), tools=[clock], on_report=lambda report, run: reports.append(report))
    chain.invoke("hello", ONE)
    assert reports[0].totals["tools"] > 20  # type: ignore[index]


CALL = {"name": "clock", "args": {}, "id": "c1", "type": "tool_call"}
LOOP = [
    AIMessage("", tool_calls=[CALL], id="a1"), ToolMessage("noon", tool_call_id="c1"), AIMessage("It is noon."),
]  # fmt: skip


class Verdict(BaseModel):
    good: bool


@dataclass
class Point:
    x: int
    y: tuple[int, int]


@pytest.mark.parametrize(
    ("output", "key", "expected"),
    [
        ("fine", None, [AIMessage("fine")]),
        (AIMessage("fine", id="x"), None, [AIMessage("fine", id="x")]),
        (AIMessageChunk(content="fine"), None, [AIMessage("fine")]),
        (LOOP, None, LOOP),
        ({"answer": "fine"}, None, [AIMessage("fine")]),
        ({"answer": LOOP, "other": 1}, "answer", LOOP),
        ({"messages": LOOP, "other": 1}, None, LOOP),
        (Verdict(good=True), None, [AIMessage('{"good":true}')]),
        (
            {"verdict": Verdict(good=True), "when": date(2026, 1, 31)},
            None,
            [AIMessage('{"verdict":{"good":true},"when":"2026-01-31"}')],
        ),
        ({"city": "Évora"}, None, [AIMessage('{"city":"Évora"}')]),
        ({"answer": 3}, None, [AIMessage('{"answer":3}')]),
        ({"answer": [1, 2]}, "answer", [AIMessage("[1,2]")]),
        ({"question": "x", "reply": "y"}, "answer", [AIMessage('{"question":"x","reply":"y"}')]),
        (["a", {"b": None}], None, [AIMessage('["a",{"b":null}]')]),
        (3, None, [AIMessage("3")]),
        (Point(1, (2, 3)), None, [AIMessage('{"x":1,"y":[2,3]}')]),
        (None, None, []),
        ([SystemMessage("not said"), AIMessage("fine")], None, [AIMessage("fine")]),
        ([], None, []),
    ],
)
def test_what_comes_out_is_stored(output: Any, key: str | None, expected: list[BaseMessage]) -> None:
    chain = with_infinite_memory(lambda value: output, output_key=key)
    assert chain.invoke("what time?", ONE) == output
    assert stored(chain) == [HumanMessage("what time?"), *expected]
    assert len({message.turn_id for message in neutral(chain)}) == 1


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output", [object(), iter(["x"]), looped()])
def test_an_answer_that_cannot_be_stored_is_the_callers_all_the_same(output: Any, way: str) -> None:
    class Answering(Runnable[Any, Any]):
        def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
            return output

    async def work() -> Any:
        if way == "stream":
            [chunk] = chain.stream("how?", ONE)
            return chunk
        if way == "astream":
            [chunk] = [chunk async for chunk in chain.astream("how?", ONE)]
            return chunk
        return await ask(chain, "how?", way)

    chain = with_infinite_memory(Answering())
    with pytest.warns(MemoryFailedWarning, match="the answer was not stored: "):
        assert asyncio.run(work()) is output
    assert stored(chain) == [HumanMessage("how?")]


def test_part_of_an_answer_that_cannot_be_stored_is_left_out_quietly() -> None:
    def objects(inputs: Iterator[Any]) -> Iterator[Any]:
        list(inputs)
        yield object()
        yield object()

    chain = with_infinite_memory(RunnableGenerator(objects))
    stream = chain.stream("how?", ONE)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert stored(chain) == [HumanMessage("how?")]


def test_json_that_comes_in_parts_is_stored_once() -> None:
    answer = '{"city": "Porto", "stops": [{"at": "9:40"}, {"at": "11:15"}], "price": 12.5}'
    chain = with_infinite_memory(FakeListChatModel(responses=[answer]) | JsonOutputParser())
    assert chain.invoke("when?", ONE) == json.loads(answer)
    parts = list(chain.stream("and now?", ONE))
    assert len(parts) > 10
    assert parts[-1] == json.loads(answer)
    texts = [message.text for message in stored(chain)[1::2]]
    assert [json.loads(text) for text in texts] == [json.loads(answer)] * 2


def test_an_agent_that_returns_all_its_messages_adds_only_what_is_new() -> None:
    def agent(value: list[BaseMessage]) -> dict[str, list[BaseMessage]]:
        sent = [message.model_copy(update={"id": message.id or uuid.uuid4().hex}) for message in value]
        called = LOOP[0].model_copy(update={"id": uuid.uuid4().hex})
        return {"messages": [*sent, called, LOOP[1], AIMessage(text_of(value))]}

    chain = with_infinite_memory(agent)
    for question in ("when?", "and now?"):
        chain.invoke(question, ONE)
    texts = [message.text for message in stored(chain)]
    assert texts == ["when?", "", "noon", "when?", "and now?", "", "noon", "and now?"]


def test_an_answer_with_an_id_that_is_taken_is_kept_under_another() -> None:
    texts = iter(["one", "two", "one"])
    chain = with_infinite_memory(lambda value: AIMessage(next(texts), id="answer-1"))
    for question in ("a", "b", "c"):
        chain.invoke(question, ONE)
    assert [message.text for message in stored(chain)] == ["a", "one", "b", "two", "c", "one"]
    assert stored(chain)[1].id == "answer-1"
    assert len({message.id for message in neutral(chain)}) == 6
    assert len({message.turn_id for message in neutral(chain)}) == 3


def test_a_user_who_speaks_in_the_output_opens_a_turn() -> None:
    chain = with_infinite_memory(lambda value: [AIMessage("who?"), HumanMessage("me"), AIMessage("ah")])
    chain.invoke("knock", ONE)
    first, second, third, fourth = neutral(chain)
    assert (second.turn_id, fourth.turn_id) == (first.id, third.id)


def test_results_of_tools_go_on_with_the_turn() -> None:
    inner = Chain()
    chain = with_infinite_memory(lambda value: LOOP[0] if len(value) == 1 else inner(value))
    chain.invoke("what time?", ONE)
    chain.invoke(LOOP[1], ONE)
    assert inner.given == [[HumanMessage("what time?"), *LOOP[:2]]]
    assert stored(chain) == [HumanMessage("what time?"), *LOOP[:2], AIMessage("re: noon")]
    assert len({message.turn_id for message in neutral(chain)}) == 1
    whole = [HumanMessage("hi", id="x"), AIMessage("hello"), HumanMessage("what time?"), *LOOP[:2]]
    chain.invoke(whole, {"configurable": {"session_id": "2"}})
    assert inner.given[1] == whole
    assert [message.text for message in stored(chain, "2")] == ["hi", "hello", "what time?", "", "noon", "re: noon"]


def test_results_of_tools_stay_under_the_input_key() -> None:
    inner = Chain()
    chain = with_infinite_memory(inner, input_key="question", history_key="past")
    with chain.pool.use("1") as memory:
        memory.add([to_message(message) for message in (HumanMessage("what time?"), LOOP[0])])
    chain.invoke({"question": [LOOP[1]]}, ONE)
    assert inner.given == [{"past": [HumanMessage("what time?"), LOOP[0]], "question": [LOOP[1]]}]


@pytest.mark.parametrize(
    ("value", "arguments", "match"),
    [
        ({"question": "x"}, {}, "name the question in it with input_key="),
        ("x", {"input_key": "question"}, "expected a dict, not str"),
        (3, {}, "expected a str, a message or a list of messages"),
        ({"question": "x", "docs": 3}, {"input_key": "question", "documents_key": "docs"}, "documents_key='docs'"),
    ],
)
def test_what_cannot_be_read_is_said(value: Any, arguments: dict[str, Any], match: str) -> None:
    chain = with_infinite_memory(lambda value: pytest.fail("the model was asked"), **arguments)
    with pytest.raises(TypeError, match=match):
        chain.invoke(value, ONE)
    with pytest.raises(TypeError, match=match):
        list(chain.stream(value, ONE))


def test_wrong_arguments() -> None:
    with pytest.raises(KeyError, match="input_key='question'"):
        with_infinite_memory(Chain(), input_key="question").invoke({"x": 1}, ONE)
    with pytest.raises(ValueError, match="name the question with input_key="):
        with_infinite_memory(Chain(), history_key="past")
    with pytest.raises(ValueError, match="on_error='ignore'"):
        with_infinite_memory(Chain(), on_error="ignore")
    with pytest.raises(ValueError, match="max_tokens=0"):
        with_infinite_memory(Chain(), max_tokens=0)
    with pytest.raises(TypeError, match="'max_token'"):
        with_infinite_memory(Chain(), max_token=9)


def test_a_report_that_cannot_be_taken_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(report: ContextReport, run: RunIds) -> None:
        raise ArithmeticError("the disk is full")

    chain = with_infinite_memory(Chain(), on_report=refuse)
    assert chain.invoke("how?", ONE) == "re: how?"
    assert "the disk is full" in caplog.text
    assert len(stored(chain)) == 2


# Whose memory


def test_sessions_come_from_the_config(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with closing(with_infinite_memory(Chain(), store=path)) as chain:
        for session, user in (("1", "ann"), ("2", "ann"), ("1", "bob")):
            chain.invoke(f"{user} in {session}", {"configurable": {"session_id": session, "user_id": user}})
        for missing in ({}, {"user_id": "ann"}):
            with pytest.raises(ValueError, match="'session_id'"):
                chain.invoke("x", {"configurable": missing})
        assert chain.history("1", "bob").messages == exchange("bob in 1")
        with pytest.raises(ValueError, match="user_id=''"):
            chain.invoke("x", {"configurable": {"session_id": "1", "user_id": ""}})
        chain.invoke("nobody in 2", {"configurable": {"session_id": "2"}})
        assert chain.history("2").messages == exchange("nobody in 2")
        assert chain.history("2", "ann").messages == exchange("ann in 2")
    with closing(with_infinite_memory(Chain(), store=path, session_key="thread")) as chain:
        bound = chain.with_config(configurable={"thread": "1"})
        assert bound.invoke("hello") == "re: hello"
        assert stored(chain) == exchange("hello")
        assert chain.history("1", "ann").messages == exchange("ann in 1")


# Streams


def chunks_of(text: str) -> Runnable[Any, str]:
    """Stream a text letter by letter; "!" fails."""

    def stream(inputs: Iterator[Any]) -> Iterator[str]:
        list(inputs)
        for letter in text:
            if letter == "!":
                raise ArithmeticError("no")
            yield letter

    async def astream(inputs: AsyncIterator[Any]) -> AsyncIterator[str]:
        [value async for value in inputs]
        for letter in text:
            if letter == "!":
                raise ArithmeticError("no")
            await asyncio.sleep(0)
            yield letter

    return RunnableGenerator(stream, astream)


@pytest.mark.parametrize("way", ["stream", "astream"])
@pytest.mark.parametrize(
    ("text", "taken", "why"), [("fine", 2, "stopped"), ("fi!ne", 4, "failed"), ("fine", 0, None), ("!", 4, None)]
)
def test_what_was_received_is_stored_as_incomplete(text: str, taken: int, why: str | None, way: str) -> None:
    chain = with_infinite_memory(chunks_of(text))

    def take() -> None:
        with closing(chain.stream("how?", ONE)) as stream:  # type: ignore[type-var]
            for _, _ in zip(range(taken), stream, strict=False):
                pass

    async def atake() -> None:
        async with aclosing(chain.astream("how?", ONE)) as stream:  # type: ignore[type-var]
            for _ in range(taken):
                if await anext(stream, None) is None:
                    break

    def run() -> None:
        asyncio.run(atake()) if way == "astream" else take()

    if "!" in text:
        with pytest.raises(ArithmeticError):
            run()
    else:
        run()
    asked = [HumanMessage("how?")] if taken else []
    received = [AIMessage("fi", additional_kwargs={"incomplete": why})] if why else []
    assert stored(chain) == [*asked, *received]


def test_a_cancelled_consumer_leaves_what_was_received() -> None:
    received = asyncio.Event()

    async def endless(inputs: AsyncIterator[Any]) -> AsyncIterator[AIMessageChunk]:
        [value async for value in inputs]
        yield AIMessageChunk(content="so ", id="a")
        yield AIMessageChunk(content="far", id="a")
        received.set()
        await asyncio.Event().wait()

    chain = with_infinite_memory(RunnableGenerator(endless))

    async def work() -> None:
        async def consume() -> None:
            async for _ in chain.astream("how?", ONE):
                pass

        task = asyncio.create_task(consume())
        await received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert stored(chain) == [
        HumanMessage("how?"), AIMessage("so far", id="a", additional_kwargs={"incomplete": "stopped"}),
    ]  # fmt: skip


# Failing chains


def test_streams_of_dicts_are_added_up() -> None:
    def dicts(inputs: Iterator[Any]) -> Iterator[dict[str, Any]]:
        list(inputs)
        yield AddableDict({"answer": "fi"})
        yield AddableDict({"answer": "ne", "sources": [1]})

    chain = with_infinite_memory(RunnableGenerator(dicts), output_key="answer")
    assert len(list(chain.stream("how?", ONE))) == 2
    assert stored(chain) == [HumanMessage("how?"), AIMessage("fine")]


def failing(times: int) -> tuple[Chain, Runnable[Any, Any]]:
    inner = Chain()

    def chain(value: Any) -> str:
        answer = inner(value)
        if len(inner.given) <= times:
            raise ArithmeticError("no")
        return answer

    return inner, RunnableLambda(chain)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_failed_question_is_kept_without_an_answer_and_asked_again_is_the_same(way: str) -> None:
    inner, chain = failing(1)
    memory = with_infinite_memory(chain)
    with pytest.raises(ArithmeticError):
        asyncio.run(ask(memory, "how?", way))
    assert stored(memory) == [HumanMessage("how?")]
    asyncio.run(ask(memory, "how?", way))
    assert inner.given == [[HumanMessage("how?")]] * 2
    assert stored(memory) == exchange("how?")
    asyncio.run(ask(memory, "how?", way))
    assert stored(memory) == exchange("how?") * 2


def test_a_prompt_that_cannot_be_made_keeps_the_question() -> None:
    with SessionPool(max_tokens=20, reserve_tokens=0) as pool:
        with pool.use("1") as memory:
            memory.add(Message.system("be kind " * 50))
        chain = with_infinite_memory(Chain(), store=pool)
        with pytest.raises(BudgetError):
            chain.invoke("how?", ONE)
        assert stored(chain)[1:] == [HumanMessage("how?")]


# A failing memory


class BrokenStore(SQLiteStore):
    """Fails while it is told to."""

    broken = False

    def read(self, session: int, *queries: Query) -> list[Any]:
        if self.broken:
            raise StoreError("the disk is gone")
        return super().read(session, *queries)

    def append(self, *arguments: Any, **named: Any) -> Any:
        if self.broken:
            raise StoreError("the disk is gone")
        return super().append(*arguments, **named)


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
def test_a_memory_that_fails_does_not_fail_the_chain(way: str) -> None:
    inner = Chain()
    with closing(BrokenStore(":memory:")) as store:
        chain = with_infinite_memory(inner, store=store)
        chain.invoke("hello", ONE)
        store.broken = True
        value = HumanMessage("how?", additional_kwargs={"grounding": ["a fact"]})
        with pytest.warns(MemoryFailedWarning, match="goes on without it: the disk is gone"):
            assert asyncio.run(ask(chain, [value], way)) == "re: how?"
        assert inner.given[1] == [HumanMessage("a fact\n\nhow?")]
        store.broken = False
        assert stored(chain) == exchange("hello")
        strict = with_infinite_memory(inner, store=store, on_error="raise")
        store.broken = True
        with pytest.raises(StoreError):
            asyncio.run(ask(strict, "how?", way))


@pytest.mark.parametrize("before", [[], exchange("hello")])
def test_an_answer_whose_question_was_forgotten_is_not_kept(before: list[BaseMessage]) -> None:
    with SessionPool() as pool:

        def forget(value: Any) -> str:
            with pool.use("1") as memory:
                memory.forget(session=True)
            return "a secret"

        chain = with_infinite_memory(forget, store=pool)
        with pytest.warns(MemoryFailedWarning, match="no turn"):
            assert chain.invoke([*before, HumanMessage("how?")], ONE) == "a secret"
        assert stored(chain) == []


# Several at a time


def in_threads(chain: Runnable[Any, Any], questions: list[str]) -> None:
    threads = [threading.Thread(target=chain.invoke, args=(text, ONE)) for text in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def in_tasks(chain: Runnable[Any, Any], questions: list[str]) -> None:
    await asyncio.gather(*(chain.ainvoke(text, ONE) for text in questions))


async def in_streams(chain: Runnable[Any, Any], questions: list[str]) -> None:
    async def consume(text: str) -> list[Any]:
        return [chunk async for chunk in chain.astream(text, ONE)]

    await asyncio.gather(*map(consume, questions))


AT_A_TIME: dict[str, Any] = {
    "threads": in_threads,
    "batch": lambda chain, questions: chain.batch(questions, ONE),
    "abatch": lambda chain, questions: asyncio.run(chain.abatch(questions, ONE)),
    "tasks": lambda chain, questions: asyncio.run(in_tasks(chain, questions)),
    "streams": lambda chain, questions: asyncio.run(in_streams(chain, questions)),
}


@pytest.mark.parametrize("way", AT_A_TIME)
def test_answers_find_their_questions_though_they_overtake_each_other(way: str) -> None:
    both = threading.Barrier(2, timeout=60)

    def meet(value: Any) -> str:
        both.wait()  # neither is answered before both have been asked
        return "re: " + text_of(value)

    async def ameet(value: Any) -> str:
        return await asyncio.to_thread(meet, value)

    with closing(with_infinite_memory(RunnableLambda(meet, ameet))) as chain:
        AT_A_TIME[way](chain, ["first", "second"])
        messages = neutral(chain)
    questions = {message.id: message.content for message in messages if message.role == "user"}
    replies = [message for message in messages if message.role == "assistant"]
    assert sorted(questions.values()) == ["first", "second"]
    assert sorted((questions[reply.turn_id], reply.content) for reply in replies) == [
        ("first", "re: first"), ("second", "re: second"),
    ]  # fmt: skip


def test_sessions_at_once_do_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    inner = RunnableLambda(lambda value: "re: " + text_of(value), lambda value: answer(value))

    async def answer(value: Any) -> str:
        await asyncio.sleep(0)
        return "re: " + text_of(value)

    chain = with_infinite_memory(inner, store=tmp_path / "chat.db", **SMALL)

    async def talk(session: str) -> None:
        config: Any = {"configurable": {"session_id": session}}
        await chain.ainvoke(f"i am {session}", config)
        await chain.ainvoke([HumanMessage("who?", additional_kwargs={"grounding": ["a fact"]})], config)
        assert [chunk async for chunk in chain.astream("and?", config)] == ["re: and?"]

    async def work() -> None:
        await asyncio.gather(*(talk(str(number)) for number in range(8)))

    with nothing_blocks():
        asyncio.run(work())
    for number in range(8):
        texts = [message.text for message in stored(chain, str(number))]
        assert texts == [f"i am {number}", f"re: i am {number}", "who?", "re: who?", "and?", "re: and?"]
    chain.close()


# Grounding


DOCUMENTS = [
    Document("the tower is old", metadata={"source": "a.txt"}),
    Document("the tower is tall", metadata={"source": "b.txt"}),
]


@pytest.mark.parametrize("history_key", [None, "past"])
def test_documents_are_sent_with_the_newest_question_only(history_key: str | None) -> None:
    inner = Chain()
    chain = with_infinite_memory(inner, input_key="question", documents_key="docs", history_key=history_key)
    chain.invoke({"question": "how old?", "docs": DOCUMENTS[:1]}, ONE)
    chain.invoke({"question": "how tall?", "docs": tuple(DOCUMENTS[1:])}, ONE)
    chain.invoke({"question": "really?", "docs": []}, ONE)
    chain.invoke({"question": "sure?"}, ONE)
    if history_key:
        asked = [[*value["past"], HumanMessage(value["question"])] for value in inner.given]
    else:
        asked = [value["question"] for value in inner.given]
    past = exchange("how old?") + exchange("how tall?") + exchange("really?")
    assert asked == [
        [HumanMessage("the tower is old\n\nhow old?")],
        [*past[:2], HumanMessage("the tower is tall\n\nhow tall?")],
        [*past[:4], HumanMessage("really?")],
        [*past, HumanMessage("sure?")],
    ]
    assert inner.given[0]["docs"] == DOCUMENTS[:1]
    assert stored(chain)[0] == HumanMessage("how old?", additional_kwargs={"grounding": ["the tower is old"]})
    assert neutral(chain)[0].grounding == to_message(stored(chain)[0]).grounding


# In other chains


def test_arguments_of_a_call_reach_the_chain() -> None:
    class Taking(Runnable[Any, Any]):
        def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
            return str(kwargs)

    chain = with_infinite_memory(Taking())
    assert chain.invoke("x", ONE, stop=["a"]) == "{'stop': ['a']}"
    assert list(chain.stream("x", ONE, stop=["a"])) == ["{'stop': ['a']}"]
    assert asyncio.run(chain.ainvoke("x", ONE, stop=["a"])) == "{'stop': ['a']}"


class Tracer(BaseTracer):
    """Keeps the roots of finished runs."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        self.roots.append(run)


@pytest.mark.parametrize("way", WAYS)
def test_the_chain_is_traced_as_a_child(way: str) -> None:
    tracer = Tracer()
    chain = with_infinite_memory(RunnableLambda(Chain()).with_config(run_name="inner"))
    callbacks: list[BaseCallbackHandler] = [tracer]
    asyncio.run(ask(chain, "how?", way, {**ONE, "callbacks": callbacks, "run_name": "outer"}))
    [root] = tracer.roots
    assert (root.name, root.error) == ("outer", None)
    recall, inner = root.child_runs
    assert (recall.run_type, recall.name, inner.name) == ("retriever", "infinite_memory", "inner")
    assert (recall.inputs, recall.outputs) == ({"query": "how?"}, {"documents": []})
    assert inner.inputs == {"input": [HumanMessage("how?")]}
    assert root.outputs == {"output": "re: how?"}


def test_a_history_that_is_brought_along_is_stored_before_the_question() -> None:
    inner = Chain()
    chain = with_infinite_memory(inner)
    whole = [*exchange("hello"), HumanMessage("how?")]
    chain.invoke(whole, ONE)
    assert inner.given == [whole]
    assert stored(chain) == [*whole, AIMessage("re: how?")]


@pytest.mark.parametrize(("forgotten", "way"), [(0, "invoke"), (2, "astream"), (4, "invoke")])
def test_what_was_forgotten_stays_away_when_the_history_is_sent_again(forgotten: int, way: str) -> None:
    inner = Chain()
    with closing(with_infinite_memory(inner)) as chain:
        past = exchange("the code is 4471") + exchange("my cat is Tom") + exchange("i like tea")
        for end in (1, 3, 5):
            asyncio.run(ask(chain, past[:end], way))
        assert stored(chain) == past
        with chain.pool.use("1") as memory:
            memory.forget(ids=[message.id or "" for message in memory.messages()[forgotten : forgotten + 2]])
        asyncio.run(ask(chain, [*past, HumanMessage("how?")], way))
        del past[forgotten : forgotten + 2]
        assert stored(chain) == past + exchange("how?")
        assert inner.given[-1] == [*past, HumanMessage("how?")]


def test_a_history_that_went_back_goes_on_with_a_branch_that_is_main() -> None:
    answers = iter("123456")
    with closing(with_infinite_memory(lambda value: next(answers))) as chain:
        past = [HumanMessage("a"), AIMessage("1"), HumanMessage("b"), AIMessage("2")]
        chain.invoke(past[:1], ONE)
        chain.invoke(past[:3], ONE)
        chain.invoke(past[:3], ONE)
        assert stored(chain) == [*past[:3], AIMessage("3")]
        chain.invoke([past[0], *past[2:], HumanMessage("c")], ONE)  # without the first answer
        assert stored(chain) == [past[0], *past[2:], HumanMessage("c"), AIMessage("4")]
        with chain.pool.use("1") as memory:
            lines = [[one.content for one in memory.messages(at=branch.name)] for branch in memory.branches()]
        assert sorted(lines) == [["a", "1", "b", "2"], ["a", "1", "b", "3"], ["a", "b", "2", "c", "4"]]
