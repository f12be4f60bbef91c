"""Which conversation a request belongs to: never another one by accident."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from shared_core import InfiniteMemory, Message, SessionPool
from shared_core.doors.openai_proxy.prompts import Prompts, _standing_still
from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, completion, proxied


class Caller:
    """Sends requests to one server."""

    def __init__(self, url: str, model: ModelServer, store: Store) -> None:
        self.url, self.model, self.store = url, model, store
        self.http = httpx.Client(base_url=url, timeout=60)

    def say(self, *texts: str, headers: dict[str, str] | None = None, **fields: Any) -> str:
        """Send a history of texts of user and assistant, and return the answer."""
        roles = ("user", "assistant")
        messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
        sent = {"model": "m", "messages": messages, **fields}
        response = self.http.post("/chat/completions", json=sent, headers=headers or {})
        assert response.status_code == 200, response.text
        answer: str = response.json()["choices"][0]["message"]["content"]
        return answer

    def sessions(self, user: str | None = None) -> dict[str, int]:
        """Return the conversations of a user with the number of their messages."""
        return {info.session_id: info.messages for info in self.store.overview(user)}

    def prompt(self) -> str:
        """Return what the model was sent last."""
        return "\n".join(self.model.texts())


@pytest.fixture
def caller(store: Store) -> Iterator[Caller]:
    with proxied(lambda body: f"Answer to {body['messages'][-1]['content'].split()[-1]}", store) as (url, model):
        opened = Caller(url, model, store)
        with opened.http:
            yield opened


def test_a_conversation_without_a_name_goes_on_by_its_beginning(caller: Caller) -> None:
    answer = caller.say("I am Ann")
    second = caller.say("I am Ann", answer, "What is new")
    caller.say("I am Ann", answer, "What is new", second, "And now")
    assert list(caller.sessions().values()) == [6]


def test_two_that_begin_alike_are_two_and_meet_in_no_prompt(caller: Caller) -> None:
    one, other = caller.say("Hello"), caller.say("Hello")
    assert one == other
    assert list(caller.sessions().values()) == [2, 2]
    secret = caller.say("Hello", one, "My code is 4471")
    caller.say("Hello", other, "What is my code")
    assert "4471" not in caller.prompt()
    caller.say("Hello", one, "My code is 4471", secret, "Which code did I say")
    assert caller.prompt().count("4471") == 2
    assert sorted(caller.sessions().values()) == [4, 6]


def test_examples_in_front_are_not_one_conversation(caller: Caller) -> None:
    """A program puts the same made-up exchange before each of its questions."""
    caller.say("2 + 2", "4", "My code is 4471")
    caller.say("2 + 2", "4", "What is my code")
    assert "4471" not in caller.prompt()


def test_a_history_from_elsewhere_becomes_a_conversation(caller: Caller) -> None:
    caller.say("My code is 4471", "Noted", "What is my code")
    caller.say("My code is 4471", "Noted", "What is my code", "Answer to code", "Thanks")
    assert list(caller.sessions().values()) == [6]


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-session-id": "trip"}, {}),
        ({"x-openwebui-chat-id": "trip"}, {}),
        ({"x-session-id": "trip", "x-openwebui-chat-id": "other"}, {"conversation": "a third"}),
        ({}, {"conversation": "trip"}),
        ({}, {"conversation": {"id": "trip"}}),
        ({}, {"metadata": {"session_id": "trip"}}),
        ({}, {"metadata": {"thread_id": "trip"}}),
        ({}, {"conversation": "trip", "metadata": {"session_id": "other"}}),
    ],
)
def test_a_named_conversation_takes_only_what_is_new(
    caller: Caller, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    caller.say("My code is 4471", headers=headers, **fields)
    caller.say("What is my code", headers=headers, **fields)
    assert caller.model.texts() == ["My code is 4471", "Answer to 4471", "What is my code"]
    assert caller.sessions() == {"trip": 4}


@pytest.mark.parametrize("nothing", ["", "null", "undefined", "None", "new"])
def test_a_name_that_a_program_has_not_set_is_shared_by_nobody(caller: Caller, nothing: str) -> None:
    for text in ("My code is 4471", "What is my code"):
        named = {"x-session-id": nothing, "x-user-id": nothing}
        caller.say(text, headers=named, conversation=nothing, user=nothing, metadata={"chat_id": nothing})
    assert caller.model.texts() == ["What is my code"]
    assert list(caller.sessions().values()) == [2, 2]


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-user-id": "änn".encode().decode("latin-1")}, {}),
        ({"x-openwebui-user-id": "änn".encode().decode("latin-1")}, {"user": "other"}),
        ({}, {"user": "änn"}),
        ({}, {"safety_identifier": "änn"}),
        ({}, {"metadata": {"user_id": "änn"}}),
    ],
)
def test_a_user_is_named_in_a_header_or_a_field(
    caller: Caller, headers: dict[str, str], fields: dict[str, Any]
) -> None:
    raw = {"x-session-id": "s", **headers}
    messages = [{"role": "user", "content": "Hi"}]
    sent = {"model": "m", "messages": messages, **fields}
    encoded = [(key.encode(), value.encode("latin-1")) for key, value in raw.items()]
    assert caller.http.post("/chat/completions", json=sent, headers=encoded).status_code == 200
    assert caller.sessions("änn") == {"s": 2}
    assert caller.sessions() == {}


def test_users_with_one_conversation_name_do_not_meet(caller: Caller) -> None:
    caller.say("My code is 4471", headers={"x-session-id": "s", "x-user-id": "ann"})
    for user in ({"x-user-id": "ben"}, {}):
        caller.say("What is my code", headers={"x-session-id": "s", **user})
        assert caller.model.texts() == ["What is my code"]


def test_an_edited_question_is_a_branch(caller: Caller) -> None:
    named = {"x-session-id": "s"}
    first = caller.say("Where to", headers=named)
    caller.say("Where to", first, "To Porto", headers=named)
    caller.say("Where to", first, "To Faro", headers=named)
    assert "Porto" not in caller.prompt()
    with InfiniteMemory(caller.store, session_id="s") as memory:
        assert [branch.name for branch in memory.branches()] == ["main", "branch-1"]


def test_without_memory_nothing_is_stored_and_all_is_sent(caller: Caller) -> None:
    answer = caller.say("My code is 4471", headers={"x-session-id": "s", "x-memory": "off"})
    caller.say("Only this", headers={"x-session-id": "s", "x-memory": "0"})
    assert answer == "Answer to 4471"
    assert caller.model.texts() == ["Only this"]
    assert caller.sessions() == {}


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_what_asks_nothing_goes_on_as_it_is(caller: Caller, role: str) -> None:
    messages = [{"role": role, "content": "Say something new"}]
    response = caller.http.post("/chat/completions", json={"messages": messages})
    assert response.headers["x-memory"] == "off"
    assert caller.model.bodies[-1]["messages"] == messages
    assert caller.sessions() == {}
    named = caller.http.post("/chat/completions", json={"messages": messages}, headers={"x-session-id": "s"})
    assert named.status_code == 200
    assert caller.model.bodies[-1]["messages"] == messages


def test_a_retried_question_of_a_named_conversation_is_stored_once(caller: Caller) -> None:
    named = {"x-session-id": "s"}
    caller.say("Hi", headers=named)
    script, caller.model.script = caller.model.script, lambda _: JSONResponse({"error": {"message": "later"}}, 529)
    sent = {"messages": [{"role": "user", "content": "Where to"}]}
    assert caller.http.post("/chat/completions", json=sent, headers=named).status_code == 529
    caller.model.script = script
    caller.say("Where to", headers=named)
    assert caller.sessions() == {"s": 4}


@pytest.mark.parametrize("headers", [{}, {"x-stainless-retry-count": "0"}])
def test_the_same_words_in_a_named_conversation_are_said_again(caller: Caller, headers: dict[str, str]) -> None:
    named = {"x-session-id": "s", **headers}
    for text in ("Tell me a story", "next", "next", "next"):
        caller.say(text, headers=named)
    answered = ["Tell me a story", "Answer to story", "next", "Answer to next", "next", "Answer to next", "next"]
    assert caller.model.texts() == answered
    with InfiniteMemory(caller.store, session_id="s") as memory:
        assert [message.content for message in memory.messages()] == [*answered, "Answer to next"]
        assert len(memory.branches()) == 1


@pytest.mark.parametrize(
    ("said", "stored"), [(["next"], 1), (["Tell me a story", "next"], 1), (["Tell me a story", "next", "next"], 2)]
)
def test_an_answer_that_a_client_has_not_received_is_asked_for_again(
    caller: Caller, said: list[str], stored: int
) -> None:
    """OpenAI's clients count in a header how often they have sent a request before."""
    named = {"x-session-id": "s"}
    for text in said:
        caller.say(text, headers=named)
    sent = caller.model.texts()
    caller.say("next", headers={**named, "x-stainless-retry-count": "1"})
    assert caller.model.texts() == sent
    with InfiniteMemory(caller.store, session_id="s") as memory:
        found = set()
        for branch in memory.branches():
            memory.checkout(branch.name)
            found |= {message.id for message in memory.messages() if message.content == "next"}
    assert len(found) == stored
    caller.say("And now", headers=named)
    assert caller.model.texts().count("next") == stored


@pytest.mark.parametrize("headers", [{}, {"x-stainless-retry-count": "1"}])
def test_a_result_whose_answer_a_client_has_not_received_is_stored_once(
    caller: Caller, headers: dict[str, str]
) -> None:
    """Half of an answer may be stored already; a prompt that ended with it would ask for nothing."""
    named, function = {"x-session-id": "s"}, {"name": "look", "arguments": "{}"}
    call = {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    script = caller.model.script
    for asked in ("Where is the key", "And the lock"):  # many programs number the calls of each turn anew
        caller.model.script = lambda _: JSONResponse(completion(call, "tool_calls"))
        asks = {"messages": [{"role": "user", "content": asked}]}
        assert caller.http.post("/chat/completions", json=asks, headers=named).status_code == 200
        caller.model.script = script
        found = {"messages": [{"role": "tool", "tool_call_id": "c", "content": "In the hall"}]}
        for again in ({}, headers):
            assert caller.http.post("/chat/completions", json=found, headers=named | again).status_code == 200
            assert [one["role"] for one in caller.model.bodies[-1]["messages"]][-3:] == ["user", "assistant", "tool"]
    assert [one["role"] for one in caller.model.bodies[-1]["messages"]].count("tool") == 2
    with InfiniteMemory(caller.store, session_id="s") as memory:
        told = [entry.message for entry in memory.log() if entry.message is not None]
    assert [message.role for message in told].count("tool") == 2


def test_the_window_of_a_model_and_the_reply_bound_the_prompt(store: Store) -> None:
    """A client that allows a longer reply than fits leaves half of the window for the prompt."""
    long = [f"Turn {number} about boats and rivers and rain" for number in range(81)]
    with proxied(lambda _: "Yes.", store, windows={"small": 300}, settings={"max_tokens": 4096}) as (url, model):
        caller, sizes = Caller(url, model, store), []
        for name, reply in (("large", 100), ("small", 100), ("small", 9999)):
            caller.say(*long, model=name, max_tokens=reply, headers={"x-session-id": f"{name}-{reply}"})
            sizes.append(len(model.texts()))
        assert sizes[0] == 81 > sizes[1] > sizes[2] >= 1
        messages = [{"role": "user", "content": "word " * 400}]
        large = caller.http.post("/chat/completions", json={"model": "small", "messages": messages})
        caller.http.close()
        assert (large.status_code, large.headers["x-memory"]) == (200, "over-limit")


def test_memories_that_search_all_of_a_user_s_conversations_are_not_served(store: Store) -> None:
    with SessionPool(store, scope="user") as pool, pytest.raises(ValueError, match='scope="session"'):
        Prompts(pool)


def test_a_prompt_that_fails_leaves_the_memory_on_its_branch(store: Store) -> None:
    with InfiniteMemory(store, session_id="s") as memory:
        history = memory.follow([Message.user("Hi")])
        memory.add(Message.assistant("Of another request"))
        with suppress(KeyError), _standing_still(memory, history):
            assert [message.content for message in memory.newest(2)] == ["Hi"]
            raise KeyError
        assert memory.branch == "main"
