"""An agent's thread goes back, is edited, is interrupted or loops over tools: what the model is shown of it then."""

from typing import Any

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.langchain.agents import (
    Model,
    agent,
    ask,
    branches_of,
    config,
    memory,
    said,
    stored,
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
    def test_a_run_from_an_old_checkpoint_is_a_branch(self, tmp_path: Any) -> None:
        model, saver = Model(), InMemorySaver()
        opened: list[Any] = []

        def now() -> Any:
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


class TestToolLoops:
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
