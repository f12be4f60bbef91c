"""A chat program with its defaults: its requests about a chat are answered and leave no trace."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from shared_core import InfiniteMemory
from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, proxied

TOOLS = [{"type": "function", "function": {"name": "search_notes", "description": "", "parameters": {}}}]
TITLE = "### Task:\nGenerate a concise title summarizing the chat history.\n### Guidelines:\n- ...\n<chat_history>\n"
FOLLOW_UPS = "### Task:\nPredict 3-5 useful messages this user might naturally send next to ..."
TAGS = "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history, ..."
OWN_WORDS = "Gib diesem Chat einen Titel mit höchstens drei Wörtern: ..."


class OpenWebUI:
    """Sends the requests that Open WebUI 0.12 sends: a question with the whole history, and what it asks beside it."""

    def __init__(self, url: str, model: ModelServer, headers: dict[str, str]) -> None:
        self.model, self.said = model, list[dict[str, str]]()
        self.http = httpx.Client(base_url=url, timeout=60, headers=headers)

    def ask(self, text: str) -> httpx.Response:
        """Ask a question, streamed and with tools, and keep the answer."""
        self.said.append({"role": "user", "content": text})
        body = {"stream": True, "model": "scripted", "messages": self.said, "tools": TOOLS}
        answer = self.http.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        spoken = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
        self.said.append({"role": "assistant", "content": spoken})
        return answer

    def aside(self, text: str, **fields: Any) -> httpx.Response:
        """Ask something about the chat."""
        messages = [{"role": "user", "content": text}]
        answer = self.http.post("/chat/completions", json={"model": "scripted", "messages": messages, **fields})
        assert answer.status_code == 200, answer.text
        return answer

    def prompt(self) -> list[Any]:
        """Return the texts of the prompt that reached the model last."""
        return self.model.texts()


@pytest.fixture(params=[{"x-openwebui-chat-id": "chat-1"}, {}], ids=["named", "unnamed"])
def webui(store: Store, request: pytest.FixtureRequest) -> Iterator[OpenWebUI]:
    number = count(1)
    with proxied(lambda _: f"Answer {next(number)}", store) as (url, model):
        client = OpenWebUI(url, model, request.param)
        with client.http:
            yield client


def test_five_questions_an_edit_and_a_regenerate_are_one_chat(webui: OpenWebUI, store: Store) -> None:
    questions = ["My boat is Heron", "Which rivers", "How long is the Elbe", "What to pack", "What is my boat called"]
    told = webui.aside(TITLE, stream=False, max_tokens=1000)
    assert (told.headers["x-memory"], told.headers.get("x-memory-session")) == ("aside", None)
    assert store.overview(None) == []
    for question in questions:
        webui.ask(question)
        assert webui.prompt() == [one["content"] for one in webui.said[:-1]]
        for text in (FOLLOW_UPS, TAGS):
            assert webui.aside(text, stream=False).headers["x-memory"] == "aside"
            assert webui.prompt() == [text]
    del webui.said[6:]
    webui.ask("What to pack for the Elbe")
    webui.aside(FOLLOW_UPS)
    del webui.said[-2:]
    webui.ask("What to pack for the Elbe")
    webui.aside(FOLLOW_UPS)
    webui.ask("And then")
    assert webui.prompt() == [one["content"] for one in webui.said[:-1]]
    (session,) = store.overview(None)
    assert session.messages == 15  # the answer that was regenerated stands beside the first one
    with InfiniteMemory(store, session_id=session.session_id) as memory:
        for branch in memory.branches():
            memory.checkout(branch.name)
            roles = [one.role for one in memory.messages()]
            assert roles == ["user", "assistant"] * (len(roles) // 2)
            assert not any("### Task" in one.content for one in memory.messages())


def test_a_prompt_in_other_words_is_an_aside_after_the_first_whole_history(store: Store) -> None:
    named = {"x-openwebui-chat-id": "chat-1"}
    with proxied(lambda body: f"Answer to {body['messages'][-1]['content']}", store) as (url, model):
        webui = OpenWebUI(url, model, named)
        webui.ask("My boat is Heron")
        webui.ask("Which rivers")
        assert webui.aside(OWN_WORDS).headers["x-memory"] == "aside"
        assert webui.prompt() == [OWN_WORDS]
        again = webui.aside("My boat is Heron")
        assert again.headers.get("x-memory") is None, "the first answer is regenerated"
        webui.said.clear()
        assert webui.ask("My boat is Egret").headers["x-memory"] == "aside", "the first question, edited"
        webui.ask("And where does it lie")  # is stored with the history that it begins
        assert webui.prompt() == [one["content"] for one in webui.said[:-1]]
        webui.ask("And when does it sail")
        assert webui.prompt() == [one["content"] for one in webui.said[:-1]]
        assert store.overview(None)[0].branches == 2
        new_only = OpenWebUI(url, model, {**named, "user-agent": "another program"})
        assert new_only.aside("What is my boat called").headers.get("x-memory") is None
        webui.http.close()
        new_only.http.close()
    assert store.overview(None)[0].messages == 4 + 6 + 2


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Provide a concise, 5-word-or-less title for the conversation, using ..."}],
        [{"role": "user", "content": "Analyze this conversation and provide:\n1. The detected language of ..."}],
        [{"role": "user", "content": "### Task:\nAnalyze the chat history to determine the necessity of ..."}],
        [{"role": "user", "content": "### Task:\nYou are an autocompletion system. ..."}],
        [{"role": "user", "content": "Your task is to reflect the speaker's likely facial expression through ..."}],
        [
            {"role": "system", "content": "Available Tools: []\n\nYour task is to choose and return the correct tool"},
            {"role": "user", "content": "Query: History: ..."},
        ],
        [{"role": "user", "content": [{"type": "text", "text": "Sum up the chat for me, briefly"}]}],
    ],
)  # fmt: skip
def test_known_prompts_are_asides(store: Store, messages: list[Any]) -> None:
    with proxied(lambda _: "Answer", store, asides=["Sum up the (chat|talk)"]) as (url, model):
        for headers in ({}, {"x-session-id": "s"}):
            answer = httpx.post(f"{url}/chat/completions", json={"messages": messages}, headers=headers)
            assert (answer.status_code, answer.headers["x-memory"]) == (200, "aside")
            assert model.bodies[-1] == {"messages": messages}
        inputs = {"input": messages[-1]["content"], "instructions": messages[0]["content"]}
        if len(messages) == 2:
            assert httpx.post(f"{url}/responses", json=inputs).headers["x-memory"] == "aside"
    assert store.overview(None) == []


def test_an_aside_goes_on_after_no_response_of_the_models_server(store: Store) -> None:
    """There, it may be another user's."""
    with proxied(lambda _: "Hi.", store) as (url, model):
        named = httpx.post(f"{url}/responses", json={"input": TITLE, "conversation": "c"})
        assert named.headers["x-memory"] == "aside"
        assert "conversation" not in model.bodies[-1]
        first = httpx.post(f"{url}/responses", json={"input": "My boat is Heron"}).json()["id"]
        after = httpx.post(f"{url}/responses", json={"input": TITLE, "previous_response_id": first})
        assert after.headers.get("x-memory") is None
        assert "previous_response_id" not in model.bodies[-1]
    assert store.overview(None)[0].messages == 4


# What must be sent does not fit


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nRespond to the user query using the provided context, ...\nWhat is my boat called?",
        "Please generate a title for my book",
        "Available Tools: hammer and saw. Which one for a nail?",
    ],
)
def test_a_question_that_looks_like_one_is_stored(store: Store, text: str) -> None:
    with proxied(lambda _: "Answer", store) as (url, _):
        answer = httpx.post(f"{url}/chat/completions", json={"messages": [{"role": "user", "content": text}]})
        assert answer.headers.get("x-memory") is None
    assert store.overview(None)[0].messages == 2


@pytest.mark.parametrize("headers", [{"x-session-id": "s"}, {}], ids=["named", "unnamed"])
def test_what_does_not_fit_goes_on_as_it_came_and_is_stored(
    store: Store, caplog: pytest.LogCaptureFixture, headers: dict[str, str]
) -> None:
    tools = [{"type": "function", "function": {"name": "x", "description": "word " * 600, "parameters": {}}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "tools": tools, "own_field": 1}
    with proxied(lambda _: "Hi.", store, settings={"max_tokens": 600}) as (url, model):
        answer = httpx.post(f"{url}/chat/completions", json=body, headers=headers)
        assert (answer.status_code, answer.headers["x-memory"]) == (200, "over-limit")
        assert model.bodies == [body]
        later = httpx.post(f"{url}/chat/completions", json={**body, "tools": None, "messages": [
            *body["messages"], {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "Bye"},  # type: ignore[misc]
        ]}, headers=headers)  # fmt: skip
        assert later.headers.get("x-memory") is None
    assert [info.messages for info in store.overview(None)] == [4]
    (said,) = [record.getMessage() for record in caplog.records if record.name == "shared_core.doors.openai_proxy"]
    assert said.startswith("a request went on as it came")
    assert "Hello" not in said


def test_a_response_that_does_not_fit_goes_on_after_the_one_before_it(store: Store) -> None:
    with proxied(lambda _: "Hi.", store, settings={"max_tokens": 600}) as (url, model):
        first = httpx.post(f"{url}/responses", json={"input": "My boat is Heron"}).json()["id"]
        long = {"instructions": "word " * 600, "previous_response_id": first, "input": "And now?"}
        answer = httpx.post(f"{url}/responses", json=long)
        assert (answer.status_code, answer.headers["x-memory"]) == (200, "over-limit")
        assert model.bodies[-1] == long
        named = {"instructions": "word " * 600, "conversation": "c", "input": "And now?"}
        assert httpx.post(f"{url}/responses", json=named).status_code == 200
        assert "conversation" not in model.bodies[-1], "it is a name of ours"
    assert sorted(info.messages for info in store.overview(None)) == [2, 4]


# The limit that the model's server tells


@pytest.mark.parametrize(
    ("models", "limit"),
    [
        ([{"id": "m", "max_model_len": 900}], 900),
        ([{"id": "m", "context_length": 900, "top_provider": {"context_length": 900}}, {"id": "n"}], 900),
        ([{"id": "m", "meta": {"n_ctx": 900, "n_ctx_train": 131072}}], 900),
        ([{"id": "m", "meta": {"n_ctx_train": 900}}], 900),
        ([{"id": "m", "loaded_context_length": 900, "max_context_length": 131072}], 900),
        ([{"id": "/models/of-a-file.gguf", "meta": {"n_ctx": 900}}], 900),
        ([{"id": "m", "context_length": None}, *({"id": each, "context_length": 700} for each in "no")], 5000),
        ([{"id": "m", "context_length": "900"}, "m", {"max_model_len": 1}], 5000),
        ("none", 5000),
    ],
)  # fmt: skip
def test_the_limit_is_what_the_models_server_tells(store: Store, models: Any, limit: int) -> None:
    answers = [JSONResponse({"object": "list", "data": models})]
    with proxied(lambda _: "Yes.", store, settings={"max_tokens": 5000}, listed=answers, windows={"w": 800}) as (
        url,
        model,
    ):
        for name, most in (("m", limit), ("w", 800)):
            body = {"model": name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}
            headers = {"x-memory-report": "1"}
            for _ in range(2):
                answer = httpx.post(f"{url}/chat/completions", json=body, headers=headers).json()
                assert answer["memory_report"]["budget"] == most - 100
        assert model.paths.count("/v1/models") == 1
