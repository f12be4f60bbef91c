"""The agent middleware: it changes what the model is shown, and nothing else."""

import asyncio
import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_infinite_memory import InfiniteMemoryMiddleware
from langchain_infinite_memory.testing import EchoChatModel
from shared_core import SQLiteStore
from shared_core.pool import SessionPool
from tests.langchain.agents import (
    Model,
    Words,
    agent,
    ask,
    branches_of,
    config,
    look,
    memory,
    noting,
    said,
    size,
    sqlite_saver,
    stored,
)

ROUNDS = ["my code is 4471", "look at a, b then c", "what is my code?", "look at d"]


class TestNothingElseChanges:
    def test_the_state_is_as_without_it(self) -> None:
        tight = memory(max_tokens=150)
        with_it, without = (agent(Model(), *given, checkpointer=InMemorySaver()) for given in ([tight], []))
        for text in ROUNDS * 5:
            assert said(ask(with_it, text))[:-1] == said(ask(without, text))[:-1]
        states = [list(one.get_state(config()).values["messages"]) for one in (with_it, without)]
        assert [m.model_dump(exclude={"id"}) for m in states[0]] != [], "there is a state"
        changed = [(a.text, b.text) for a, b in zip(*states, strict=True) if a.text != b.text]
        assert changed == [], "the fact is found although the window does not reach it"
        assert set(with_it.get_state(config()).values) == {"messages", "infinite_memory"}
        hooks = {f"InfiniteMemoryMiddleware.{hook}" for hook in ("before_agent", "after_agent")}
        assert set(with_it.get_graph().nodes) == set(without.get_graph().nodes) | hooks

    @pytest.mark.parametrize("mode", ["updates", "messages", "values", "custom", "tasks"])
    def test_nothing_more_in_the_stream(self, mode: str) -> None:
        def events(*middleware: Any) -> list[tuple[str, Any]]:
            model = Model()
            one = agent(model, *middleware)
            found = list(one.stream({"messages": [HumanMessage("look at a then b")]}, config(), stream_mode=mode))
            assert len(model.sent) == 3
            return [shape(event) for event in found if not ours(event)]

        def ours(event: Any) -> bool:
            """Whether it is the step of a hook, which changes nothing."""
            if mode not in ("tasks", "updates"):
                return False
            steps = {event["name"]: event.get("result")} if mode == "tasks" else event
            return all(name.startswith("InfiniteMemoryMiddleware.") and not change for name, change in steps.items())

        def shape(event: Any) -> Any:
            if isinstance(event, dict):
                return {key: shape(value) for key, value in event.items() if key not in ("id", "input", "metadata")}
            if isinstance(event, list | tuple):
                return [shape(value) for value in event]
            return getattr(event, "text", None) if hasattr(event, "text") else type(event).__name__

        assert events(memory()) == events()


class TestWhoseMemory:
    def test_by_argument_then_thread_then_session(self, caplog: pytest.LogCaptureFixture) -> None:
        given = SessionPool(token_counter=Words(), max_tokens=4096)
        for middleware, configurable in (
            (memory(given, session_id="own"), {"thread_id": "t", "session_id": "s"}),
            (memory(given), {"thread_id": "t", "session_id": "s"}),
            (memory(given), {"thread_id": 0, "session_id": "s"}),
            (memory(given), {"session_id": "s"}),
        ):
            agent(Model(), middleware).invoke({"messages": [HumanMessage("hello")]}, {"configurable": configurable})
        assert [one.session_id for one in given.store.sessions(None)] == ["own", "t", "0", "s"]
        assert caplog.text == ""


class TestStoredOnce:
    def test_every_message_once_and_nothing_read_twice(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows: list[int] = []
        for name in ("get", "newest"):
            real = getattr(SQLiteStore, name)

            def counted(self: SQLiteStore, *args: Any, real: Any = real) -> Any:
                found = real(self, *args)
                rows.append(len(found))
                return found

            monkeypatch.setattr(SQLiteStore, name, counted)
        middleware = memory()
        with sqlite_saver(tmp_path / "graph.db") as checkpointer:
            one = agent(Model(), middleware, checkpointer=checkpointer)
            per_call = []
            for text in ROUNDS * 8:
                rows.clear()
                messages = ask(one, text)
                per_call.append(sum(rows))
        assert stored(middleware) == stored_form(messages)
        assert max(per_call) <= 4 * (5 + 2), "up to 4 model calls of 5 messages at most, and 2 more each"
        assert max(per_call[-8:]) <= max(per_call[:8])

    @pytest.mark.parametrize("outside", [True, False])
    def test_a_model_call_that_is_tried_again(self, *, outside: bool) -> None:
        failures = [True, True, False, True, False, False]

        def flaky(messages: Any) -> AIMessage:
            if failures.pop(0):
                raise RuntimeError("try again")
            return AIMessage("at last")

        middleware, model = memory(), Model(reply=flaky)
        retry = ModelRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
        order = [retry, middleware] if outside else [middleware, retry]
        one = agent(model, *order, checkpointer=InMemorySaver())
        for text in ("one", "two", "three"):
            ask(one, text)
        assert stored(middleware) == ["one", "at last", "two", "at last", "three", "at last"]
        assert len(branches_of(middleware)) == 1
        prompts = [said(sent.messages) for sent in model.sent]
        assert prompts[0] == prompts[1] == prompts[2]
        assert prompts[3] == prompts[4]


def stored_form(messages: Any) -> list[str]:
    """What `stored` returns, from the state."""
    return [
        f"[{m.text}]" if isinstance(m, ToolMessage) else m.text or ",".join(call["id"] for call in m.tool_calls)
        for m in messages
    ]


class TestClientsWithoutCheckpointer:
    @pytest.mark.parametrize("fresh", [True, False], ids=["new object", "same object"])
    def test_histories_sent_again_as_dicts(self, tmp_path: Path, *, fresh: bool) -> None:
        history: list[dict[str, str]] = []
        middleware = memory(tmp_path / "memory.db")
        model = Model()
        for text in ("my code is 4471", "ok", "ok", "what is my code?"):
            if fresh:
                middleware.close()
                middleware = memory(tmp_path / "memory.db")
            history.append({"role": "user", "content": text})
            messages = agent(model, middleware).invoke({"messages": history}, config())["messages"]
            history.append({"role": "assistant", "content": messages[-1].text})
        assert stored(middleware) == [entry["content"] for entry in history]
        assert history[-1]["content"] == "4471"
        # the third question anew
        again = [*history[:4], {"role": "user", "content": "no, what is my code?"}]
        messages = agent(model, middleware).invoke({"messages": again}, config())["messages"]
        assert [text for _, text in said(model.last[1:])] == [entry["content"] for entry in again]
        assert stored(middleware) == [*(entry["content"] for entry in again), "4471"]
        assert len(branches_of(middleware)) == 2
        middleware.close()

    def test_tool_calls_that_a_client_leaves_out(self) -> None:
        middleware, model, history = memory(), Model(), []
        for text in ("look at a", "look at b", "and now?"):
            history.append({"role": "user", "content": text})
            messages = agent(model, middleware).invoke({"messages": history}, config())["messages"]
            history.append({"role": "assistant", "content": messages[-1].text})
        assert "and now?" in stored(middleware)
        assert said(model.last[1:])[-1] == ("human", "and now?")
        assert history[-1]["content"] == "fine: and now?"


class TestBudget:
    @pytest.mark.parametrize("reserve", [0, 15])
    def test_every_request_fits_with_system_prompt_and_tools(self, reserve: int) -> None:
        reports: list[Any] = []
        middleware = memory(max_tokens=150, reserve_tokens=reserve, on_report=noting(reports))
        model = Model()
        one = agent(model, middleware, system_prompt="be brief " * 10, checkpointer=InMemorySaver())
        for text in [*ROUNDS, "what is my code?", *["tell me of the weather " * 3] * 9, "what is my code?"]:
            messages = ask(one, text)
        sizes = [size(sent) for sent in model.sent]
        assert max(sizes) <= 150 - reserve
        assert max(sizes) > 110
        charged = size(model.sent[0]._replace(messages=model.sent[0].messages[:1], tools=[]))
        assert [report.total_tokens + charged for report in reports] == sizes
        assert messages[-1].text == "4471"
        assert isinstance(model.last[0], SystemMessage)

    def test_tools_of_providers_are_charged_as_they_are(self) -> None:
        strange = [{"google_search": {}}, {"type": "code_execution", "note": "a b c"}, look]
        reports: list[Any] = []
        for tools in ([look], strange):
            agent(Model(), memory(on_report=noting(reports)), tools=tools).invoke(
                {"messages": [HumanMessage("hi")]}, config()
            )
        less, more = (report.total_tokens for report in reports)
        assert more > less

    def test_grounding_only_with_the_newest_question(self) -> None:
        middleware, model = memory(), Model()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        for number in range(3):
            fact = HumanMessage("look at a", additional_kwargs={"grounding": [f"fact {number}"]})
            one.invoke({"messages": [fact]}, config())
        assert len(model.sent) == 6
        for place, sent in enumerate(model.sent):
            asked = [m.text for m in sent.messages if isinstance(m, HumanMessage)]
            assert asked == ["look at a"] * (place // 2) + [f"fact {place // 2}\n\nlook at a"]
        state = one.get_state(config()).values["messages"]
        assert [m.text for m in state if isinstance(m, HumanMessage)] == ["look at a"] * 3


class TestSeveralUsers:
    def test_what_one_said_elsewhere_is_recalled_and_never_anothers(self) -> None:
        middleware, model = memory(scope="user"), Model()
        one = agent(model, middleware, context_schema=dict)

        def say(text: str, thread: str, user: str) -> str:
            given = {"messages": [HumanMessage(text)]}
            return str(one.invoke(given, config(thread), context={"user_id": user})["messages"][-1].text)

        say("my locker code is 4471", "ann-1", "ann")
        say("my locker code is 9999", "bob-1", "bob")
        assert say("what is my locker code?", "ann-2", "ann") == "4471"
        assert say("what is my locker code?", "bob-2", "bob") == "9999"
        assert say("what is my locker code?", "ann-1", "cay") == "I do not know"
        assert [one.session_id for one in middleware.pool.store.sessions("ann")] == ["ann-1", "ann-2"]

    def test_the_user_may_stand_in_the_configuration(self) -> None:
        middleware = memory(user_key="who")
        agent(Model(), middleware).invoke({"messages": [HumanMessage("hello")]}, config(who=7))
        assert [one.session_id for one in middleware.pool.store.sessions("7")] == ["t"]

    @pytest.mark.parametrize("on_error", ["window", "raise"])
    def test_a_run_without_a_user(self, on_error: Any, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        model = Model()
        one = agent(model, memory(scope="user", on_error=on_error), checkpointer=InMemorySaver())
        assert ask(one, "hello", user_id="ann")[-1].text == "fine: hello"
        for thread in ("t", "other"):
            with pytest.raises(ValueError, match=r'scope="user".*name the user_id in each run'):
                ask(one, "hello", thread)
        with pytest.raises(ValueError, match=r'scope="user".*name the user_id in each run'):
            asyncio.run(one.ainvoke({"messages": [HumanMessage("hello")]}, config("other")))
        assert (len(model.sent), caplog.records) == (1, [])


def test_the_echo_model_takes_an_agent_with_tools() -> None:
    with closing(InfiniteMemoryMiddleware(recall_tool=True)) as memory:
        one = create_agent(EchoChatModel(), middleware=[memory], checkpointer=InMemorySaver())
        one.invoke({"messages": [HumanMessage("My locker code is 4471.")]}, config())
        told = one.invoke({"messages": [HumanMessage("What is my locker code?")]}, config())
    assert told["messages"][-1].text == "You said: My locker code is 4471."
