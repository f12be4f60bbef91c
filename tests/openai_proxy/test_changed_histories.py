"""The rules of docs/serve.md: whatever a client changes in what it sends again, a talk is one line of one session."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from shared_core import InfiniteMemory, Message, SessionPool
from shared_core.doors.openai_proxy.app import create_app
from shared_core.doors.openai_proxy.chat_request import read_chat_request
from shared_core.doors.openai_proxy.prompts import Prompts
from shared_core.doors.openai_proxy.upstream import Upstream
from shared_core.store import Store
from shared_core.stores import SQLiteStore
from shared_core.testing import HashingEmbedder
from tests.openai_proxy.test_rewritten_answers import shape

Answer = dict[str, Any]
Post = Callable[[list[Answer]], Answer]


class Model:
    """Thinks, answers in Markdown, calls a tool for each third question, and says something else each time."""

    def __init__(self) -> None:
        self.said = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        newest = json.loads(request.content)["messages"][-1]
        asked = newest["role"] == "user"
        number = int(newest["content"].split()[1] if asked else newest["tool_call_id"].split("-")[0])
        self.said += 1
        text = f"**Answer {number}** of `{self.said}`: the ferry leaves at {number} and comes back.  \n"
        message: Answer = {"role": "assistant", "content": f"<think>\nHm.\n</think>\n\n{text}"}
        if asked and number % 3 == 2:
            function = {"name": "time", "arguments": '{"port": "Oslo", "day": 3}'}
            calls = [{"id": f"{number}-{self.said}", "type": "function", "function": function}]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        return httpx.Response(200, json={"id": "c", "choices": [{"index": 0, "message": message}]})


def with_text(change: Callable[[str], str]) -> Callable[[Answer], Answer]:
    return lambda answer: {**answer, "content": change(answer["content"])} if answer.get("content") else answer


def without_thought(text: str) -> str:
    return text.partition("</think>")[2]


def with_arguments(written: str) -> Callable[[Answer], Answer]:
    def change(answer: Answer) -> Answer:
        calls = [
            {**call, "function": {**call["function"], "arguments": written}} for call in answer.get("tool_calls", ())
        ]
        return {**answer, "content": answer.get("content") or "", "tool_calls": calls} if calls else answer

    return change


CHANGES: dict[str, Callable[[Answer], Answer]] = {
    "nothing": lambda answer: answer,
    "space": with_text(str.strip),
    "thoughts": with_text(without_thought),
    "parts": lambda answer: {**answer, "content": [{"type": "text", "text": answer["content"] or ""}]},
    "JSON of arguments": with_arguments('{"day":3,"port":"Oslo"}'),
    "arguments": with_arguments('{"port": "Oslo"}'),
    "markup": with_text(lambda text: re.sub(r"[*`]", "", without_thought(text))),
    "its end": with_text(lambda text: without_thought(text)[: len(without_thought(text)) // 2]),
    "another text": with_text(lambda _: "Zusammengefasst: die Abfahrt und die Rückkehr."),
}
"""What clients do to an answer before they send it again."""


@contextmanager
def asking(
    store: Store, *, named: bool, model: Callable[[httpx.Request], httpx.Response] | None = None
) -> Iterator[Post]:
    """Yield what sends a history through the memory, and returns the answer."""
    pool = SessionPool(store, embedder=HashingEmbedder())
    app = create_app(pool, Upstream("http://model.invalid/v1", transport=httpx.MockTransport(model or Model())))
    headers = {"x-session-id": "talk"} if named else {}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as http:

        def post(messages: list[Answer]) -> Answer:
            told = http.post("/v1/chat/completions", json={"model": "m", "messages": messages})
            message: Answer = told.raise_for_status().json()["choices"][0]["message"]
            return message

        yield post


def turn(
    post: Post, said: list[Answer], question: str, change: Callable[[Answer], Answer], window: int = 0,
    reminder: str = "",
) -> None:  # fmt: skip
    """Ask, answer a call, and note the answers as the client writes them, and the question without the reminder."""
    said.append({"role": "user", "content": question})
    while True:
        asked = {**said[-1], "content": said[-1]["content"] + reminder} if said[-1]["role"] == "user" else said[-1]
        answer = post([*said[-window:-1], asked])
        said.append(change(answer))
        if not answer.get("tool_calls"):
            return
        said.append({"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "at nine"})


def lines(store: Store) -> tuple[list[str], int]:
    """Return what is said on the line that everybody sees without naming a branch, and how many branches there are."""
    (info,) = store.overview(None)
    with InfiniteMemory(store, session_id=info.session_id) as memory:
        return [one.content for one in memory.messages() if one.role == "user"], len(memory.branches())


WAYS = [(change, named, 0) for change in CHANGES for named in (True, False)] + [(one, True, 5) for one in CHANGES]
# Who names no conversation keeps half of the words of the first answer.


@pytest.mark.parametrize(("change", "named", "window"), [way for way in WAYS if way[:2] != ("another text", False)])
def test_a_talk_is_one_line(store: Store, change: str, *, named: bool, window: int) -> None:
    said: list[Answer] = []
    with asking(store, named=named) as post:
        for number in range(10):
            turn(post, said, f"Question {number} of mine", CHANGES[change], window)
    assert shape(store) == [(len(said), ["main"])]


@pytest.mark.parametrize("change", ["nothing", "thoughts"])
def test_a_reminder_behind_the_newest_question_is_no_edit(store: Store, change: str) -> None:
    said: list[Answer] = []
    with asking(store, named=True) as post:
        for number in range(10):
            turn(post, said, f"Question {number} of mine", CHANGES[change], reminder="\n\nAnswer in English.")
    assert shape(store) == [(len(said), ["main"])]


steps = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "regenerate", "edit"]), st.sampled_from([*CHANGES]), st.integers(0, 3)),
    min_size=3, max_size=8,
)  # fmt: skip


@settings(max_examples=25)
@given(steps=steps, named=st.booleans())
def test_only_edits_and_answers_asked_anew_are_branches(steps: list[tuple[str, str, int]], *, named: bool) -> None:
    """The line that was answered last is the conversation, whatever branches there are."""
    said: list[Answer] = []
    with closing(SQLiteStore(":memory:")) as store, asking(store, named=named) as post:
        turn(post, said, "Question 0 of mine", CHANGES["space"])
        branches = 1
        for number, (step, change, back) in enumerate(steps, 1):
            asked = [n for n, one in enumerate(said) if one["role"] == "user"]
            question = f"Question {number} of mine"
            if step != "ask" and len(asked) > 1:
                at = asked[max(1, len(asked) - 1 - back)]
                question = said[at]["content"] if step == "regenerate" else question
                del said[at:]
                branches += 1
            turn(post, said, question, CHANGES[change])
            assert lines(store) == ([one["content"] for one in said if one["role"] == "user"], branches)


@pytest.mark.parametrize("named", [True, False])
def test_an_answer_that_comes_again_as_it_is_stored_is_the_end_of_the_conversation(
    store: Store, *, named: bool
) -> None:
    def same(request: httpx.Request) -> httpx.Response:
        """Answer the same question alike."""
        said = f"To: {json.loads(request.content)['messages'][-1]['content']}"
        return httpx.Response(200, json={"choices": [{"index": 0, "message": {"role": "assistant", "content": said}}]})

    with asking(store, named=named, model=same) as post:

        def ask(*questions: str) -> None:
            """Send a history whose answers are as they were, and compare the conversation with it."""
            said = [
                m
                for q in questions
                for m in ({"role": "user", "content": q}, {"role": "assistant", "content": f"To: {q}"})
            ]
            post(said[:-1])
            assert lines(store)[0] == [*questions]

        ask("one")
        ask("one", "two")
        ask("one", "two", "three")
        ask("one", "two")
        ask("one", "two", "four")
        ask("one", "two", "three")
        ask("one", "two")
        ask("one", "two", "three", "five")
    assert lines(store)[1] == 2, "the lines that end with five and with four"


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 300), min_size=2, max_size=10), limit=st.integers(300, 900))
def test_an_answer_that_was_edited_is_sent_as_the_client_says_it_within_the_limit(
    lengths: list[int], limit: int
) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        prompts = Prompts(SessionPool(store, embedder=HashingEmbedder(), max_tokens=limit, reserve_tokens=100))
        said: list[Answer] = []
        for number, length in enumerate(lengths):
            said.append({"role": "user", "content": f"Question {number}?"})
            request = prompts.read(read_chat_request({"messages": said}), user=None, session="talk", shared=False)
            prompt = prompts.prompt(request, user=None, session="talk", report=False)
            assert prompt.messages is not None
            with InfiniteMemory(store, session_id="talk") as memory:
                sent = [*prompt.messages]
                assert sum(memory._count(one) for one in sent) <= limit - 100
                before = [one for one in said[:-1] if one in sent]
                newest = said[-3:-1]
                grown = memory._count(newest[1]) if newest else 0
                if 0 < grown <= (limit - 100) // 2 - 10:
                    assert before[-2:] == newest
            prompts.keep(prompt, [Message.assistant(f"Answer {number}.")])
            said.append({"role": "assistant", "content": f"Answer {number}, edited" + " word" * length})


def test_an_answer_that_was_made_longer_is_sent_as_it_is_stored_where_a_long_question_leaves_no_room() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        prompts = Prompts(SessionPool(store, embedder=HashingEmbedder(), max_tokens=500, reserve_tokens=100))
        said: list[Answer] = []
        for question in ("Hello?", "word " * 300):
            said.append({"role": "user", "content": question})
            request = prompts.read(read_chat_request({"messages": said}), user=None, session="talk", shared=False)
            prompt = prompts.prompt(request, user=None, session="talk", report=False)
            prompts.keep(prompt, [Message.assistant("Hi.")])
            said.append({"role": "assistant", "content": "Hi, edited" + " word" * 150})
        assert prompt.header is None
        assert prompt.messages == (said[0], {"role": "assistant", "content": "Hi."}, said[2])
