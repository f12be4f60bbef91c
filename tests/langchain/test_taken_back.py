"""What others redact, remove or sum up in a graph's state, and what is stored, sent and found of it then."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
)
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_infinite_memory import infinite_memory_node
from langchain_infinite_memory.followed_lists import FollowedLists
from langchain_infinite_memory.identity import Thread
from langchain_infinite_memory.threads import ModelInput
from shared_core.errors import UnknownReferenceError
from shared_core.events import MemoryEvent
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.records import Restored
from tests.langchain.agents import Model, Words, agent, ask, branches_of, config, memory, reply, said, stored
from tests.langchain.test_node import graph

SECRET = "my password is hunter2"


def prompt_of(model: Model) -> str:
    return "\n".join(str(message.text) for message in model.last)


def found(middleware: Any, query: str, thread: str = "t") -> str:
    """What the main line of a thread has about a query."""
    with middleware.pool.use(thread) as one:
        one.checkout("main")
        return " | ".join(hit.message.content for hit in one.search(query))


class Redacts(AgentMiddleware):
    """A guardrail that redacts the newest message at one hook."""

    def __init__(self, hook: str, *, in_place: bool = False) -> None:
        super().__init__()
        self.hook, self.in_place = hook, in_place

    @property
    def name(self) -> str:
        return f"Redacts{self.hook}"

    def _redacted(self, hook: str, state: Any) -> dict[str, Any] | None:
        last = state["messages"][-1]
        if self.hook != hook or "hunter2" not in last.text:
            return None
        redacted = last.text.replace("hunter2", "[gone]")
        if self.in_place:
            last.content = redacted
            return None
        return {"messages": [last.model_copy(update={"content": redacted})]}

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._redacted("before_model", state)

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._redacted("after_model", state)

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self._redacted("after_agent", state)


class TestRedaction:
    @pytest.mark.parametrize("first", [True, False])
    @pytest.mark.parametrize(
        ("hook", "in_place"),
        [  # what is changed in place when the run ends is not in the next checkpoint
            *[("before_model", False), ("after_model", False), ("after_agent", False)],
            *[("before_model", True), ("after_model", True)],
        ],
    )
    def test_a_guardrail_at_any_place(self, hook: str, *, first: bool, in_place: bool) -> None:
        """What is redacted in the state is redacted in the memory, at the latest with the next call of the model."""
        said_by_model = "hunter2 it is" if hook != "before_model" else "fine"
        model, middleware = Model(reply=lambda messages: AIMessage(said_by_model)), memory()
        guard = Redacts(hook, in_place=in_place)
        order = [middleware, guard] if first else [guard, middleware]
        one = agent(model, *order, checkpointer=InMemorySaver())
        question = SECRET if hook == "before_model" else "say it"
        ask(one, question)
        if first or hook != "after_agent":  # whose after_agent hook runs after the memory's is told to stand after it
            assert "hunter2" not in " ".join(branches_of(middleware).values())
            assert "[gone]" in " ".join(stored(middleware))
        model.reply = reply
        ask(one, "what is the password?")
        assert "hunter2" not in prompt_of(model)
        assert "hunter2" not in " ".join(stored(middleware))
        assert found(middleware, "hunter2") == ""
        assert len(stored(middleware)) == 4


class Reminds(AgentMiddleware):
    """Adds a message to each request, at its end or before its last message."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        messages = [*request.messages]
        messages.insert(len(messages) + self.at, HumanMessage("REMINDER: be kind"))
        return handler(request.override(messages=messages))


class TestRequests:
    @pytest.mark.parametrize("at", [0, -1])
    @pytest.mark.parametrize("outside", [True, False])
    def test_a_reminder_is_sent_where_it_stands_and_never_stored(self, at: int, *, outside: bool) -> None:
        reports: list[Any] = []
        model = Model(reply=lambda messages: AIMessage("fine"))
        middleware = memory(on_report=lambda report, run: reports.append(report))
        order = [Reminds(at), middleware] if outside else [middleware, Reminds(at)]
        one = agent(model, *order, checkpointer=InMemorySaver())
        for text in ("one", "two", "three"):
            messages = ask(one, text)
            sent = said(model.last[1:])
            expected = said(messages[:-1])
            expected.insert(len(expected) + at, ("human", "REMINDER: be kind"))
            assert sent == expected
        assert stored(middleware) == ["one", "fine", "two", "fine", "three", "fine"]
        assert list(branches_of(middleware)) == ["main"]

    def test_messages_that_share_ids_are_never_paired_by_their_index(self) -> None:
        """The request leaves out two messages and adds two: as many as there were, of the same types."""
        question = HumanMessage("what is 6 times 7?", id="h2")
        whole = [HumanMessage("old " * 900, id="h1"), AIMessage("a1", id="a1"), question]
        sent = [question, AIMessage("I looked it up.", id="n1"), HumanMessage("REMINDER: be brief", id="n2")]
        memories = memory(max_tokens=700)._memory
        assert memories.prompt(Thread("t", removed="leave_out"), whole, ModelInput(sent)).messages == sent

    def test_what_another_middleware_clears_in_the_request_is_sent_cleared(self) -> None:
        model, middleware = Model(), memory()
        edits = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=0, placeholder="[cleared]")])
        one = agent(model, edits, middleware, checkpointer=InMemorySaver())
        for text in ("look at a", "look at b", "and?"):
            ask(one, text)
        assert [message.text for message in model.last if message.type == "tool"] == ["[cleared]", "[cleared]"]
        assert stored(middleware) == [
            "look at a", "a", "[a is there]", "fine: look at a", "look at b", "b", "[b is there]", "fine: look at b",
            "and?", "fine: and?",
        ]  # fmt: skip
        assert list(branches_of(middleware)) == ["main"]

    def test_what_is_redacted_in_the_request_only_is_not_recalled_as_it_was(self) -> None:
        class Masks(AgentMiddleware):
            def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
                masked = [
                    message.model_copy(update={"content": message.text.replace("hunter2", "[gone]")})
                    for message in request.messages
                ]
                return handler(request.override(messages=masked))

        model, middleware = Model(reply=lambda messages: AIMessage("fine")), memory(max_tokens=120)
        one = agent(model, Masks(), middleware, checkpointer=InMemorySaver())
        for text in (SECRET, *["tell me of the rain " * 8] * 5, "what is my password?"):
            ask(one, text)
            assert "hunter2" not in prompt_of(model)
        assert SECRET in stored(middleware), "the state has it, too"


class TestRemoval:
    @pytest.mark.parametrize("fresh", [True, False], ids=["new object", "same object"])
    def test_messages_removed_by_id(self, tmp_path: Any, *, fresh: bool) -> None:
        model, saver = Model(), InMemorySaver()
        middleware = memory(tmp_path / "memory.db")
        one = agent(model, middleware, checkpointer=saver)
        ask(one, "hello")
        messages = ask(one, SECRET)
        ask(one, "and?")
        one.update_state(config(), {"messages": [RemoveMessage(id=message.id or "") for message in messages[-2:]]})
        if fresh:
            middleware.close()
            middleware = memory(tmp_path / "memory.db")
            one = agent(model, middleware, checkpointer=saver)
        ask(one, "what is my password?")
        assert "hunter2" not in prompt_of(model)
        assert stored(middleware) == [
            "hello", "fine: hello", "and?", "fine: and?", "what is my password?", "I do not know",
        ]  # fmt: skip
        assert "hunter2" not in found(middleware, "hunter2 password")
        assert "hunter2" in " ".join(branches_of(middleware).values()), "it stays on record"
        middleware.close()

    def test_a_graph_that_trims_its_state_may_keep_what_it_removes(self) -> None:
        model, middleware = Model(), memory(removed="keep")
        one = agent(model, middleware, checkpointer=InMemorySaver())
        messages = [*ask(one, "my code is 4471"), *ask(one, "hello")[2:]]
        one.update_state(config(), {"messages": [RemoveMessage(id=message.id or "") for message in messages[:2]]})
        assert ask(one, "what is my code?")[-1].text == "4471"
        assert len(branches_of(middleware)) == 1

    def test_a_system_message_within_the_list(self) -> None:
        model, middleware = Model(), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        rule = SystemMessage("answer in rhymes", id="rule")
        one.invoke({"messages": [HumanMessage("hello"), rule, HumanMessage("go on")]}, config())
        assert rule.text in prompt_of(model)
        one.update_state(config(), {"messages": [RemoveMessage(id="rule")]})
        ask(one, "and now?")
        assert rule.text not in prompt_of(model)
        assert "go on" in prompt_of(model)


class TestForgetting:
    @pytest.mark.parametrize("way", ["forget", "aforget"])
    def test_what_is_erased_is_neither_stored_again_nor_sent(self, way: str) -> None:
        def forget(**given: Any) -> Any:
            return middleware.forget(**given) if way == "forget" else asyncio.run(middleware.aforget(**given))

        model, middleware = Model(), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        messages = ask(one, SECRET)
        ids = [str(message.id) for message in messages[2:]]
        assert forget(thread_id="t", message_ids=ids).ids == tuple(ids)
        ask(one, "what is my password?")
        assert "hunter2" not in prompt_of(model)
        assert "hunter2" not in " ".join(branches_of(middleware).values())
        with pytest.raises(UnknownReferenceError, match=ids[0]):
            forget(thread_id="t", message_ids=ids[:1])
        assert forget(thread_id="t", message_ids=[]).ids == ()
        assert len(forget(thread_id="t").ids) == 4
        ask(one, "hello again")
        assert said(model.last[1:]) == [("human", "hello again")]
        assert stored(middleware) == ["hello again", "fine: hello again"]

    @pytest.mark.parametrize("later", [False, True], ids=["same process", "later process"])
    def test_while_the_store_is_away_a_process_that_knows_of_it_does_not_send_it(
        self, tmp_path: Any, *, later: bool
    ) -> None:
        model, saver, middleware = Model(), InMemorySaver(), memory(tmp_path / "memory.db")
        one = agent(model, middleware, checkpointer=saver)
        ids = [str(message.id) for message in ask(one, SECRET)]
        middleware.forget(thread_id="t", message_ids=ids)
        middleware.close()
        if later:
            middleware = memory(tmp_path / "memory.db")
            one = agent(model, middleware, checkpointer=saver)
            ask(one, "hello")
            middleware.close()
        ask(one, "what is my password?")
        assert "what is my password?" in prompt_of(model)
        assert "hunter2" not in prompt_of(model)

    def test_while_the_store_is_away_nothing_is_said_to_an_erased_question(self) -> None:
        model, middleware = Model(), memory()
        one = agent(
            model, middleware, HumanInTheLoopMiddleware(interrupt_on={"look": True}), checkpointer=InMemorySaver()
        )
        ask(one, "hello")
        asked = ask(one, "look at a")[2]
        middleware.forget(thread_id="t", message_ids=[str(asked.id)])
        middleware.close()
        with pytest.raises(ValueError, match="the newest question of this thread was erased"):
            one.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config())
        assert len(model.sent) == 2

    def test_a_hook_erases_what_was_just_stored(self, tmp_path: Any) -> None:
        def moderate(event: MemoryEvent) -> None:
            with middleware.pool.use("t") as own:
                banned = [str(message.id) for message in own.messages() if message.content == SECRET]
            if banned:
                middleware.forget(thread_id="t", message_ids=banned)

        model, middleware = Model(), memory(tmp_path / "memory.db", on_event=moderate, on_error="raise")
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        with pytest.raises(ValueError, match="the newest question of this thread was erased"):
            ask(one, SECRET)
        assert stored(middleware) == ["hello", "fine: hello"]
        ask(one, "and now?")
        assert said(model.last[1:]) == [("human", "hello"), ("ai", "fine: hello"), ("human", "and now?")]

    def test_in_a_thread_that_goes_on(self) -> None:
        model, middleware = Model(), memory(on_error="raise")
        one = agent(model, middleware)
        for text in ("good morning", "my PIN is 1", "fine"):
            ask(one, text)
        with middleware.pool.use("t") as own:
            pin = [message.id or "" for message in own.messages() if message.content == "my PIN is 1"]
        middleware.forget(thread_id="t", message_ids=pin)
        ask(one, "my PIN is 1")
        line = [
            "good morning", "fine: good morning", "fine: my PIN is 1", "fine", "fine: fine",
            "my PIN is 1", "fine: my PIN is 1",
        ]  # fmt: skip
        assert [message.text for message in model.last[1:]] == [line[0], line[1], *line[3:6]]
        assert stored(middleware) == line

    def test_a_client_that_sends_all_again(self) -> None:
        """What was erased stays erased in the middle, and what was said again stays."""
        model, middleware = Model(), memory(on_error="raise")
        one, messages = agent(model, middleware), [HumanMessage("hello")]
        for text in ("my PIN is 1", "and?"):
            messages = [*one.invoke({"messages": messages}, config())["messages"], HumanMessage(text)]
        with middleware.pool.use("t") as own:
            pin = [message.id or "" for message in own.messages() if message.content == "my PIN is 1"]
        middleware.forget(thread_id="t", message_ids=pin)
        one.invoke({"messages": messages}, config())
        assert [message.text for message in model.last[1:]] == ["hello", "fine: hello", "and?"]
        middleware.forget(thread_id="t")
        for text in ("more", "and more"):
            messages = [*one.invoke({"messages": messages}, config())["messages"], HumanMessage(text)]
            assert [m.text for m in model.last[1:]] == [m.text for m in messages[4:-2]]
        assert stored(middleware) == ["and?", "fine: and?", "more", "fine: more"]

    @pytest.mark.parametrize("fresh", [True, False], ids=["new object", "same object"])
    def test_a_node_forgets_the_answer_that_it_has_not_seen(self, tmp_path: Any, *, fresh: bool) -> None:
        saver = InMemorySaver()

        def pool() -> SessionPool:
            return SessionPool(tmp_path / "memory.db", token_counter=Words(), embedder="words")

        def sent(one: Any, text: str) -> list[str]:
            state = one.invoke({"messages": [HumanMessage(text)]}, config())
            return [message.text for message in state["llm_input_messages"]]

        with pool() as first, pool() as second:  # as in two processes
            one = graph(infinite_memory_node(first), checkpointer=saver)
            sent(one, "my code is 4471")
            sent(one, "what is my code?")
            with second.use("t") as own:
                own.forget(session=True)
            if fresh:
                one = graph(infinite_memory_node(second), checkpointer=saver)
            assert sent(one, "hello") == ["hello"]
            assert sent(one, "and?") == ["hello", "fine: hello", "and?"]
            with second.use("t") as own:
                assert [message.content for message in own.messages()] == ["hello", "fine: hello", "and?"]

    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    @pytest.mark.parametrize("goes_on", [True, False])
    def test_a_run_that_waits_forgets_what_it_did(self, way: str, *, goes_on: bool) -> None:
        model, middleware = Model(), memory()
        asks = HumanInTheLoopMiddleware(interrupt_on={"look": True})
        one = agent(model, middleware, asks, checkpointer=InMemorySaver())

        def say(given: Any) -> None:
            one.invoke(given, config()) if way == "invoke" else asyncio.run(one.ainvoke(given, config()))

        ask(one, "look at a")
        middleware.forget(thread_id="t")
        if goes_on:
            with pytest.raises(ValueError, match="the newest question of this thread was erased"):
                say(Command(resume={"decisions": [{"type": "approve"}]}))
            assert len(model.sent) == 1
        say({"messages": [HumanMessage("hello")]})
        assert said(model.last[1:]) == [("human", "hello")]
        assert list(branches_of(middleware).values()) == ["hello | fine: hello"]

    def test_what_failed_before_it_was_stored_is_forgotten_with_its_thread(self) -> None:
        class Fails(AgentMiddleware):
            def before_model(self, state: Any, runtime: Any) -> None:
                if "blocked" in state["messages"][-1].text:
                    raise RuntimeError("no")

            def after_agent(self, state: Any, runtime: Any) -> None:
                if "hunter2" in state["messages"][-1].text:
                    raise RuntimeError("no")

        model, middleware = Model(), memory()
        one = agent(model, middleware, Fails(), checkpointer=InMemorySaver())
        for text in ("hello", SECRET, "blocked"):
            with suppress(RuntimeError):
                ask(one, text)
        middleware.forget(thread_id="t")
        ask(one, "what is my password?")
        assert said(model.last[1:]) == [("human", "blocked"), ("human", "what is my password?")]
        assert "hunter2" not in " ".join(branches_of(middleware).values())

    def test_edited_messages_and_nested_graphs_are_included(self) -> None:
        from tests.langchain.test_identity import with_sub_agent

        middleware = memory()
        one, _ = with_sub_agent(middleware)
        ask(one, "look at a")
        assert len(middleware.pool.sessions()) == 2
        assert len(middleware.forget(thread_id="t").ids) == 6
        assert middleware.pool.sessions() == []
        with pytest.raises(UnknownReferenceError, match=r"'t'.*'ann'"):
            middleware.forget(thread_id="t", user_id="ann")
        with pytest.raises(ValueError, match="thread_id"):
            middleware.forget()

    def test_a_thread_that_only_has_a_longer_name_is_not_included(self) -> None:
        middleware = memory()
        one = agent(Model(), middleware, checkpointer=InMemorySaver())
        for thread in ("acme", "acme/ticket-7", "acme//tools"):
            ask(one, "hello", thread)
        assert len(middleware.forget(thread_id="acme").ids) == 4
        assert [session.session_id for session in middleware.pool.sessions()] == ["acme/ticket-7"]


class TestTheToolOfTheAgent:
    def searching(self, middleware: Any, own: Sequence[Any] = (), **arguments: Any) -> tuple[Any, Model]:
        def search(messages: Sequence[BaseMessage]) -> AIMessage:
            if messages[-1].type == "human" and messages[-1].text.endswith("?"):
                query = {"query": messages[-1].text.splitlines()[-1]}  # without what is recalled
                return AIMessage("", tool_calls=[{"name": "search_earlier_messages", "args": query, "id": "s"}])
            return AIMessage("done")

        model = Model(reply=search)
        return agent(model, middleware, tools=[*own], **arguments), model

    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    def test_it_searches_the_line_of_the_run(self, way: str) -> None:
        one, _ = self.searching(memory(recall_tool=True), checkpointer=InMemorySaver())

        def say(text: str, at: Any = None) -> str:
            given, settings = {"messages": [HumanMessage(text)]}, at or config()
            state = one.invoke(given, settings) if way == "invoke" else asyncio.run(one.ainvoke(given, settings))
            return next((str(message.text) for message in reversed(state["messages"]) if message.type == "tool"), "")

        say("hello")
        before = one.get_state(config()).config
        say("my code is 4471")
        assert "4471" in say("what is my code?")
        assert "4471" not in say("what is my code?", before)
        say("my code is 9999")
        answer = say("what is my code?")
        assert ("9999" in answer, "4471" in answer) == (True, False)


# The letters of a list: e, an erased message; s, a stored one; h, a, c and t are neither, by their roles
BEHIND_AN_ERASED_MESSAGE = {
    "": "", "h": "", "hah": "", "sah": "", "ssah": "", "eh": "", "eah": "1", "eacth": "123", "eact": "123", "ect": "12",
    "eha": "", "ehah": "", "ehh": "", "seh": "", "seah": "2", "seahh": "2", "esah": "", "easah": "1",
}  # fmt: skip
OF_A_REFUSED_RUN = {"": "", "s": "", "sh": "1", "sah": "2", "sacth": "4", "shah": "123", "seh": "2", "h": "0"}


@pytest.mark.parametrize(
    ("erase", "rows"),
    [(FollowedLists.erase_answers, BEHIND_AN_ERASED_MESSAGE), (FollowedLists.erase_brought, OF_A_REFUSED_RUN)],
)
def test_what_is_erased_unstored(erase: Callable[..., None], rows: dict[str, str]) -> None:
    kinds: Any = {"e": HumanMessage, "s": HumanMessage, "h": HumanMessage, "a": AIMessage, "c": AIMessage}
    for letters, erased in rows.items():
        messages = [
            kinds.get(letter, partial(ToolMessage, tool_call_id="c"))(letter, id=f"{index}")
            for index, letter in enumerate(letters)
        ]
        with SessionPool(token_counter=Words()) as pool:
            key = pool.store.create_session(None, "t")
            before = tuple(str(m.id) for m in messages if m.text == "e")
            pool.store.restore(key, Restored(forgotten=before))
            with pool.use("t") as own:
                own.add([Message.user("s", id=message.id) for message in messages if message.text == "s"])
            erase(FollowedLists(pool.store), Thread("t"), messages)
            gone = pool.store.are_forgotten(key, [str(message.id) for message in messages])
            assert "".join(sorted(gone - set(before))) == erased, letters
