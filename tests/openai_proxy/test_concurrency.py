"""Many clients at a time: everybody's turns are stored once, and nobody's words are in another one's prompt."""

import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared_core import InfiniteMemory, Message, SessionPool, SQLiteStore
from shared_core.doors.openai_proxy.chat_request import ChatRequest, read_chat_request
from shared_core.doors.openai_proxy.prompts import LOCKS, Prompts, _make_main
from shared_core.doors.serving.bearer_tokens import BearerTokens
from shared_core.records import Appended, Change, Delete, Draft
from shared_core.store import Store
from shared_core.testing import HashingEmbedder
from tests.openai_proxy.servers import chunk, proxied, stream

CLIENTS, TURNS = (32, 200) if os.environ.get("SOAK") else (8, 4)
SECRET = re.compile(r"secret-\d+")


def script(body: dict[str, Any]) -> Any:
    """Answer with all secrets of the prompt, in a stream that breaks off for every third question."""
    text = " ".join(str(message["content"]) for message in body["messages"])
    said = f"I know {sorted(set(SECRET.findall(text)))} of {len(body['messages'])}."
    if not body.get("stream"):
        return said
    cut = [None] if body["messages"][-1]["content"].endswith("0?") else [chunk({}, "stop"), "[DONE]"]
    return stream([chunk({"content": said}), *cut])


def talk(url: str, number: int) -> list[str]:
    """Hold a conversation without a name that begins like all others, and return what the client saw of it."""
    token = f"token-of-user-{number % 2}-0123456789"
    seen = ["Hello", ""]
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=120) as client:
        for turn in range(TURNS):
            asked = "Hello" if turn == 0 else f"My secret-{number}, turn {turn}, {turn % 3}?"
            seen = [*(seen if turn else []), asked]
            roles = ("user", "assistant")
            messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(seen)]
            sent = {"model": "m", "messages": messages, "stream": turn % 2 == 1}
            response = client.post("/chat/completions", json=sent)
            assert response.status_code == 200, response.text
            found = re.findall(r"I know [^\n\"]*?\.", response.text)
            assert len(found) == 1, response.text
            assert set(SECRET.findall(found[0])) <= {f"secret-{number}"}
            seen.append(found[0])
    return seen


def test_clients_that_begin_alike_do_not_meet(store: Store) -> None:
    tokens = BearerTokens({f"token-of-user-{number}-0123456789": f"user-{number}" for number in (0, 1)})
    with (
        proxied(script, store, tokens=tokens, settings={"max_tokens": 20_000}) as (url, _),
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        seen = list(threads.map(lambda number: talk(url, number), range(CLIENTS)))
    for user in ("user-0", "user-1"):
        held: list[list[str]] = []
        for info in store.overview(user):
            with InfiniteMemory(store, session_id=info.session_id, user_id=user) as memory:
                for branch in memory.branches():
                    memory.checkout(branch.name)
                    held.append([message.content for message in memory.messages()])
        for number in range(CLIENTS):
            if user.endswith(str(number % 2)):
                assert held.count(seen[number]) == 1


class Meeting(SQLiteStore):
    """Stores the first question only once another request has stored one meanwhile, or waits until it may."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.first: str | None = None
        self.begun, self.met = threading.Event(), threading.Event()

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **given: Any) -> Appended:
        if any(draft.message.content == self.first for draft in drafts):
            self.begun.set()
            assert self.met.wait(60)
            return super().append(session, branch, drafts, **given)
        appended = super().append(session, branch, drafts, **given)
        self.met.set()
        return appended


class TellingLock:
    """A lock that tells when somebody waits for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._waited_for = waited_for
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def asked(*said: str) -> ChatRequest:
    roles = ("user", "assistant")
    return read_chat_request(
        {"messages": [{"role": roles[number % 2], "content": text} for number, text in enumerate(said)]}
    ).read()


def test_a_question_that_comes_while_another_is_stored_is_not_in_its_prompt() -> None:
    """Both continue a conversation without a name that began alike; one waits until the other has its prompt."""
    store = Meeting()
    with closing(store), SessionPool(store, embedder=HashingEmbedder()) as pool, ThreadPoolExecutor(1) as threads:
        prompts = Prompts(pool)
        prompts._locks = [TellingLock(store.met)] * LOCKS  # type: ignore[list-item]
        begun = prompts.prompt(asked("Hello"), user="u", session=None, report=False)
        prompts.keep(begun, [Message.assistant("Hi.")])
        store.met.clear()
        store.first = "My secret-1."
        first = threads.submit(prompts.prompt, asked("Hello", "Hi.", store.first), user="u", session=None, report=False)
        assert store.begun.wait(60)
        second = prompts.prompt(asked("Hello", "Hi.", "My secret-2."), user="u", session=None, report=False)
        for prompt, own in ((first.result(60), "My secret-1."), (second, "My secret-2.")):
            assert prompt.session == second.session
            assert [message["content"] for message in prompt.messages or ()] == ["Hello", "Hi.", own]


class Interrupted(SQLiteStore):
    """Lets another process do something before a branch is deleted."""

    meanwhile: Callable[[], object]

    def change(self, session: int, changes: Sequence[Change]) -> None:
        if any(isinstance(one, Delete) for one in changes):
            self.meanwhile()
        super().change(session, changes)


@pytest.mark.parametrize("meanwhile", ["nothing", "more is said", "the longer line is gone"])
def test_a_line_keeps_a_name_whatever_another_process_does_when_main_moves(tmp_path: Path, meanwhile: str) -> None:
    path = tmp_path / "chat.db"
    with closing(Interrupted(path)) as store, closing(SQLiteStore(path)) as other:
        one = InfiniteMemory(store, embedder=HashingEmbedder())
        one.add([Message.user("q1", id="q1"), Message.assistant("a1")])
        one.fork("longer")
        one.add([Message.user("q2"), Message.assistant("a2")])
        one.fork("again", at="q1")
        one.add(Message.assistant("b1"))
        two = InfiniteMemory(other, embedder=HashingEmbedder())

        def go_on() -> None:
            if meanwhile == "more is said":
                two.checkout("again")
                two.add(Message.user("q3"))
            elif meanwhile == "the longer line is gone":
                two.delete_branch("longer")

        store.meanwhile = go_on
        _make_main(one)
        ends = {"main": "b1"} | {"nothing": {"longer": "a2"}, "more is said": {"longer": "a2", "again": "q3"}}.get(
            meanwhile, {"again": "a1"}
        )
        assert {name: one.messages(at=name)[-1].content for name, _ in one.branches()} == ends
