"""An agent's thread goes back, is edited, is interrupted or loops over tools: what the model is shown of it then."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.langchain.agents import (
    Model,
    agent,
    ask,
    branches_of,
    calls,
    config,
    memory,
    reply,
    said,
    size,
    stored,
    typed,
)
from tests.langchain.random_histories import objections

FACT, TALK = "my code is 4471", "tell me of the weather " * 12


def checkpoint(one: Any, messages: int, text: str = "") -> Any:
    """The configuration of the newest checkpoint with so many messages, one of them this, and nothing left to do."""
    for state in one.get_state_history(config()):
        texts = [message.text for message in state.values.get("messages", ())]
        if len(texts) == messages and not state.next and (not text or text in texts):
            return state.config
    raise LookupError(messages)


def in_prompt(model: Model) -> str:
    return "\n".join(message.text for message in model.last)


class TestBranches:
    @pytest.mark.parametrize("fresh", [True, False], ids=["new object", "same object"])
    def test_a_run_from_an_old_checkpoint_is_a_branch(self, tmp_path: Any, *, fresh: bool) -> None:
        model, saver = Model(), InMemorySaver()
        opened = [memory(tmp_path / "memory.db", max_tokens=150)]

        def now() -> Any:
            if fresh:
                opened.append(memory(tmp_path / "memory.db", max_tokens=150))
            return agent(model, opened[-1], checkpointer=saver)

        ask(now(), "hello")
        before = checkpoint(now(), 2)
        ask(now(), FACT)
        for _ in range(4):
            ask(now(), TALK)
        assert ask(now(), "what is my code?")[-1].text == "4471"
        # Back before the fact: it is only on the other branch now.
        now().invoke({"messages": [HumanMessage(TALK)]}, before)
        for _ in range(3):
            ask(now(), TALK)
        assert ask(now(), "what is my code?")[-1].text == "I do not know"
        assert "4471" not in in_prompt(model)
        ask(now(), "my code is 9999")
        for _ in range(4):
            ask(now(), TALK)
        assert ask(now(), "what is my code?")[-1].text == "9999"
        assert "4471" not in in_prompt(model)
        found = branches_of(opened[-1])
        known = {name: ("4471" in text, "9999" in text) for name, text in found.items()}
        assert known == {"main": (False, True), "branch-1": (True, False)}, "the live line is main"
        # And back onto the first one.
        end = checkpoint(now(), 14, FACT)
        messages = now().invoke({"messages": [HumanMessage("what is my code?")]}, end)["messages"]
        assert messages[-1].text == "4471"
        assert "9999" not in in_prompt(model)
        assert len(branches_of(opened[-1])) == 2
        for middleware in opened:
            middleware.close()

    def test_a_changed_text_under_an_old_id_is_a_branch(self) -> None:
        model, middleware = Model(), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, FACT)
        messages = ask(one, "hello")
        one.update_state(config(), {"messages": [HumanMessage("my code is 9999", id=messages[0].id)]})
        assert ask(one, "what is my code?")[-1].text == "9999"
        assert "my code is 4471" not in [message.text for message in model.last]
        assert branches_of(middleware) == {
            "main": "my code is 9999 | fine: my code is 4471 | hello | fine: hello | what is my code? | 9999",
            "branch-1": "my code is 4471 | fine: my code is 4471 | hello | fine: hello",
        }
        state = one.get_state(config()).values["messages"]
        assert [message.id for message in model.last[1:]] == [message.id for message in state][:-1]

    def test_an_answer_generated_again_is_a_branch(self) -> None:
        numbers = iter(range(9))
        model, middleware = Model(reply=lambda messages: AIMessage(f"answer {next(numbers)}")), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "hello")
        messages = ask(one, "and?")
        again = next(state for state in one.get_state_history(config()) if len(state.values["messages"]) == 3)
        one.invoke(None, again.config)
        assert said(model.last[1:]) == said(messages[:3])
        ask(one, "so")
        assert branches_of(middleware) == {
            "main": "hello | answer 0 | and? | answer 2 | so | answer 3",
            "branch-1": "hello | answer 0 | and? | answer 1",
        }


class TestToolLoops:
    @pytest.mark.parametrize("budget", [2000, 330, 250])
    def test_the_prompt_only_grows_at_its_end_while_it_fits(self, budget: int) -> None:
        model = Model()
        one = agent(model, memory(max_tokens=budget), checkpointer=InMemorySaver())
        ask(one, FACT)
        for _ in range(8):
            ask(one, TALK)
        for text in ("look at a, b then c then d, e, f", "what is my code?", "look at g then h then i then j"):
            start = len(model.sent)
            ask(one, text)
            requests = model.sent[start:]
            assert len(requests) == text.count("then") + (2 if "look" in text else 1)
            for before, after in pairwise(requests):
                new = len([m for m in after.messages if m not in before.messages])
                grown = [*before.messages, *after.messages[-new:]]
                assert after.messages == grown or size(before._replace(messages=grown)) > budget
                assert budget < 2000 or after.messages == grown
                assert typed([m for m in after.messages if isinstance(m, HumanMessage)][-1]) == text

    def test_parallel_and_invalid_calls_come_whole(self) -> None:
        def odd(messages: Sequence[BaseMessage]) -> AIMessage:
            if typed(messages[-1]) == "odd":
                wrong = {"name": "look", "args": '{"item": ', "id": "wrong", "error": "cut off"}
                return AIMessage("", tool_calls=calls("x", "y").tool_calls, invalid_tool_calls=[wrong])
            return reply(messages)

        model, middleware = Model(reply=odd), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "odd")
        ask(one, "look at a, b, c")
        messages = ask(one, "hello")
        results = [m.tool_call_id for m in model.last if isinstance(m, ToolMessage)]
        if any(isinstance(m, ToolMessage) and m.tool_call_id == "wrong" for m in messages):
            assert sorted(results) == ["a", "b", "c", "wrong", "x", "y"]
            assert said(model.last[1:]) == said(messages[:-1])
            assert list(branches_of(middleware)) == ["main"]
        else:  # this LangChain leaves the invalid call without a result, and a provider would refuse the group
            assert sorted(results) == ["a", "b", "c"]
        assert objections(model.last, window=True) == []

    def test_a_turn_that_ended_with_an_invalid_call(self) -> None:
        def odd(messages: Sequence[BaseMessage]) -> AIMessage:
            wrong = {"name": "look", "args": '{"item": ', "id": "wrong", "error": "cut off"}
            return AIMessage("", invalid_tool_calls=[wrong] if typed(messages[-1]) == "odd" else [])

        model, middleware = Model(reply=odd), memory()
        one = agent(model, middleware, checkpointer=InMemorySaver())
        ask(one, "odd")
        for text in ("hello", "and now?"):
            messages = ask(one, text)
            assert objections(model.last, window=True) == []
            if any(isinstance(m, ToolMessage) for m in messages):  # this LangChain answers the call before the question
                assert said(model.last[1:]) == said(messages[:-1])
                assert list(branches_of(middleware)) == ["main"]

    def test_an_interrupt_and_its_resumption(self) -> None:
        model, middleware = Model(), memory()
        ask_first = HumanInTheLoopMiddleware(interrupt_on={"look": True})
        one = agent(model, middleware, ask_first, checkpointer=InMemorySaver())
        ask(one, "look at a, b")
        decisions = [{"type": "approve"}, {"type": "reject", "message": "not that one"}]
        messages = one.invoke(Command(resume={"decisions": decisions}), config())["messages"]
        assert said(model.last[1:]) == said(messages[:-1])
        assert objections(model.last, window=True) == []
        rejected, approved = sorted(stored(middleware)[2:4], key=lambda text: text == "[a is there]")
        assert approved == "[a is there]"
        assert "not that one" in rejected
        assert stored(middleware)[4:] == ["fine: look at a, b"]
        assert len(branches_of(middleware)) == 1

    def test_a_call_that_was_edited_before_it_was_approved(self) -> None:
        model, middleware = Model(), memory()
        one = agent(
            model, middleware, HumanInTheLoopMiddleware(interrupt_on={"look": True}), checkpointer=InMemorySaver()
        )
        ask(one, "look at a")
        edited = {"type": "edit", "edited_action": {"name": "look", "args": {"item": "z"}}}
        messages = one.invoke(Command(resume={"decisions": [edited]}), config())["messages"]
        assert model.last[1:] == messages[:-1], "as the state has it"
        assert "z is there" in stored(middleware)[2]
        assert objections(model.last, window=True) == []

    def test_a_new_question_while_a_call_is_pending(self) -> None:
        model, middleware = Model(), memory()
        one = agent(
            model, middleware, HumanInTheLoopMiddleware(interrupt_on={"look": True}), checkpointer=InMemorySaver()
        )
        ask(one, "look at a, b")
        messages = ask(one, "never mind")
        assert said(model.last[1:]) == [("human", "look at a, b"), ("human", "never mind")]
        assert [m.type for m in messages] == ["human", "ai", "human", "ai"], "the state keeps the call"
        assert stored(middleware) == ["look at a, b", "a,b", "never mind", "fine: never mind"]
        ask(one, "hello")
        assert objections(model.last, window=True) == []
