"""Random stacks of middleware that redact and remove: what is gone from the state is gone from what memory shows.

Each text has secrets of its own. The state tells what may be shown of them: at each call of the model, and after each
run, a secret that stands in no message of the state may neither be sent nor found, unless a summary has replaced its
message. One thing takes longer: what a guard that stands before ours rewrites when the run ends may be found until the
thread's next call of the model, which is not sent it either.
"""

import asyncio
import itertools
import os
import random
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import pytest
from langchain.agents.middleware import (
    AgentMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    after_agent,
    after_model,
    before_agent,
    before_model,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_infinite_memory import HistoryRetriever, InfiniteMemoryMiddleware, recall_tool, to_message
from langchain_infinite_memory.request_view import request_view
from shared_core import Message, sliding_window
from tests.langchain.agents import Model, agent, config, memory

SEEDS = range(200 if os.environ.get("SOAK") else 4)
TURNS = 6
SECRET = re.compile(r"KEY\d+|FACT\d+|s\d+@example\.org")
COUNT = itertools.count()
NAMES = config(user_id="u")


def text(words: str) -> str:
    """A text with three secrets: an address, which PII middleware redacts, a key, which guards do, and a fact."""
    return f"{words}: s{next(COUNT)}@example.org, KEY{next(COUNT)} and FACT{next(COUNT)}"


def secrets(messages: Iterable[BaseMessage]) -> set[str]:
    return {secret for message in messages for secret in SECRET.findall(str(message.text))}


def reply(messages: Sequence[BaseMessage]) -> AIMessage:
    """Look something up if the question says so, and then answer."""
    if "look" in str(messages[-1].text) and isinstance(messages[-1], HumanMessage):
        call = {"name": "look_up", "args": {}, "id": f"call-{next(COUNT)}"}
        return AIMessage(text("the model looks"), tool_calls=[call])
    return AIMessage(text("the answer"))


def look_up() -> str:
    """Look up."""
    return text("the page says")


def without_keys(message: BaseMessage) -> BaseMessage:
    return message.model_copy(update={"content": re.sub(r"KEY\d+", "[key]", str(message.text))})


def rewrites(message: BaseMessage, *, anew: bool) -> dict[str, Any] | None:
    """The update that takes the keys out of a message; `anew`: by another message in its place."""
    if "KEY" not in str(message.text):
        return None
    clean = without_keys(message)
    return {"messages": [RemoveMessage(id=str(message.id)), clean.model_copy(update={"id": None})] if anew else [clean]}


@before_model
def guard_input(state: Any, runtime: Any) -> dict[str, Any] | None:
    """Take the keys out of what people wrote."""
    changed = [without_keys(m) for m in state["messages"] if isinstance(m, HumanMessage) and "KEY" in str(m.text)]
    return {"messages": changed} if changed else None


@after_model
def guard_answer(state: Any, runtime: Any) -> dict[str, Any] | None:
    """Take the keys out of what the model said."""
    return rewrites(state["messages"][-1], anew=False)


@after_agent
def guard_end(state: Any, runtime: Any) -> dict[str, Any] | None:
    """Take the keys out of the last answer."""
    return rewrites(state["messages"][-1], anew=False)


@after_agent
def guard_end_anew(state: Any, runtime: Any) -> dict[str, Any] | None:
    """Put another answer in the place of the last one."""
    return rewrites(state["messages"][-1], anew=True)


@before_agent
def retract(state: Any, runtime: Any) -> dict[str, Any] | None:
    """Remove the messages that were taken back."""
    back = [m for m in state["messages"][:-1] if isinstance(m, HumanMessage) and "retract" in str(m.text)]
    return {"messages": [RemoveMessage(id=str(m.id)) for m in back]} if back else None


def pii(rng: random.Random) -> PIIMiddleware:
    strategy: Any = rng.choice(["redact", "mask", "hash"])
    return PIIMiddleware(
        "email", strategy=strategy, apply_to_input=True, apply_to_output=True, apply_to_tool_results=True
    )


def summarizing() -> SummarizationMiddleware:
    model = Model(reply=lambda messages: AIMessage("what was said so far"))
    return SummarizationMiddleware(model, trigger=("messages", 10), keep=("messages", 6))


class Ledger(AgentMiddleware):
    """Knows what may be shown: what stands in the state, or stood in a message that a summary has replaced.

    Attributes:
        shown: the secrets that may be shown.
        back: the ids of messages that were taken back.
        allowed: `shown` at each call of the model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[str, str] = {}
        self.shown: set[str] = set()
        self.back: set[str] = set()
        self.allowed: list[set[str]] = []

    def look(self, messages: Sequence[BaseMessage]) -> None:
        ids = {message.id for message in messages}
        gone = self.shown - secrets(messages)
        self.shown -= {one for one in gone if self.holders[one] in ids | self.back}  # redacted, or taken back
        for message in messages:
            found = secrets([message])
            self.shown |= found
            self.holders |= dict.fromkeys(found, str(message.id))

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.look(request.state["messages"])
        self.allowed.append(set(self.shown))
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self.look(request.state["messages"])
        self.allowed.append(set(self.shown))
        return await handler(request)


class Thread:
    """A thread of an agent with a random stack, of which ours is one, and what memory shows of it elsewhere."""

    def __init__(self, ours: InfiniteMemoryMiddleware, rng: random.Random, *, saver: InMemorySaver | None) -> None:
        others = [pii(rng), guard_input, guard_answer, rng.choice([guard_end, guard_end_anew]), retract, summarizing()]
        self.others = [one for one in others if rng.random() < 0.6]
        self.stack = rng.sample([ours, *self.others], len(self.others) + 1)
        ends = [one for one in self.stack if one in (guard_end, guard_end_anew)]
        self.late = bool(ends) and guard_answer not in self.stack and self.stack.index(ends[0]) < self.stack.index(ours)
        self.rng, self.ledger, self.model, self.witness = rng, Ledger(), Model(reply=self.reply), Model()
        self.answer = AIMessage("")
        self.saver = saver
        self.agent = agent(self.model, self.ledger, *self.stack, tools=[look_up], checkpointer=saver)
        self.other = agent(self.witness, ours, tools=[])
        self.tool = recall_tool(ours.pool, top_k=50)
        keys: Any = {"session_key": "thread_id", "k": 100}
        self.retriever, self.pool = HistoryRetriever(pool=ours.pool, **keys), ours.pool
        self.state: list[BaseMessage] = []

    def reply(self, messages: Sequence[BaseMessage]) -> AIMessage:
        self.answer = reply(messages)
        return self.answer

    @property
    def shown(self) -> set[str]:
        """What may be found now."""
        late = {secret for secret in secrets([self.answer]) if secret.startswith("KEY")} if self.late else set()
        return self.ledger.shown | late

    def ask(self, question: HumanMessage) -> None:
        """Ask; without a checkpointer, with the whole conversation."""
        given = {"messages": [question] if self.saver else [*self.state, question]}
        if self.rng.random() < 0.5:
            self.state = self.agent.invoke(given, NAMES)["messages"]
        else:
            self.state = asyncio.run(self.agent.ainvoke(given, NAMES))["messages"]
        self.ledger.look(self.state)
        if retract in self.others:  # this happens when the next run begins
            self.ledger.back |= {str(m.id) for m in self.state if m.type == "human" and "retract" in str(m.text)}

    def take_back(self) -> None:
        """Remove a question, or all messages, from the state."""
        questions = [message for message in self.state if isinstance(message, HumanMessage) and secrets([message])]
        if self.rng.random() < 0.5:
            gone, self.ledger.back = REMOVE_ALL_MESSAGES, set(self.ledger.holders.values())
        else:
            gone = str(self.rng.choice(questions).id)
            self.ledger.back.add(gone)
        self.agent.update_state(NAMES, {"messages": [RemoveMessage(id=gone)]}, as_node="model")

    def found(self, query: str) -> set[str]:
        """What the tool, the retriever and a search of results find."""
        answers = [document.page_content for document in self.retriever.invoke(query, NAMES)]
        with self.pool.use(NAMES["configurable"]["thread_id"], NAMES["configurable"]["user_id"]) as memory:
            memory.checkout("main")
            answers += [hit.message.content for hit in memory.search(query, 100, role="tool")]
        return set(SECRET.findall("\n".join([self.tool.invoke({"query": query}, NAMES), *answers])))

    def recalled(self, query: str, thread: str) -> set[str]:
        """What the user is shown in another thread."""
        self.other.invoke({"messages": [HumanMessage(query)]}, config(thread, user_id="u"))
        return secrets(self.witness.last)


def test_what_left_the_state_is_neither_sent_nor_found(subtests: pytest.Subtests) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed):
            rng, query = random.Random(seed), "what are the address, the key and the fact?"
            saver = InMemorySaver() if rng.random() < 0.7 else None
            whole: Any = (
                {} if saver else {"removed": "leave_out"}
            )  # lists without ids that last are the whole conversation
            with closing(memory(scope="user", max_tokens=rng.choice([200, 100_000]), top_k=20, **whole)) as ours:
                thread = Thread(ours, rng, saver=saver)
                ledger, names = thread.ledger, [one.name for one in thread.stack]
                for turn in range(TURNS):
                    thread.ask(HumanMessage(text(rng.choice(["look, please", "say, please", "I may retract this"]))))
                    assert thread.recalled(query, f"other {turn}") - thread.shown == set(), (names, saver, turn)
                    assert thread.found(query) - thread.shown == set(), (names, saver, turn)
                    if saver and turn < TURNS - 1 and rng.random() < 0.2:
                        thread.take_back()
                sent = [
                    secrets(request.messages) - may
                    for request, may in zip(thread.model.sent, ledger.allowed, strict=True)
                ]
                assert sent == [set()] * len(sent), (names, saver)
                facts = {secret for secret in ledger.shown if "FACT" in secret}
                assert {fact for fact in facts if fact not in thread.found(fact)} == set(), (
                    names,
                    saver,
                    "nothing else is lost",
                )


@pytest.mark.parametrize("outside", [False, True], ids=["guard inside", "guard outside"])
def test_an_answer_that_is_rewritten_when_the_run_ends_is_not_found_as_it_was(outside: bool) -> None:
    """If the guard stands before ours, it comes last: what it rewrites is known at the next call of the model."""
    with closing(memory(scope="user")) as ours:
        stack = [guard_end, ours] if outside else [ours, guard_end]
        model, witness = Model(reply=lambda messages: AIMessage("the code is KEY1")), Model()
        one = agent(model, *stack, checkpointer=InMemorySaver())
        question = {"messages": [HumanMessage("what is the code?")]}

        def shown(thread: str) -> set[str]:
            agent(witness, ours, tools=[]).invoke(question, config(thread, user_id="u"))
            found = recall_tool(ours.pool).invoke({"query": "code"}, NAMES)
            return secrets(witness.last) | set(SECRET.findall(found))

        assert one.invoke(question, NAMES)["messages"][-1].text == "the code is [key]"
        assert shown("other") == ({"KEY1"} if outside else set())
        model.reply = lambda messages: AIMessage("fine")
        one.invoke(question, NAMES)
        assert shown("another") == set()
        assert [secrets(sent.messages) for sent in model.sent] == [set(), set()]


def test_what_was_taken_back_in_a_run_that_sums_up_is_not_found() -> None:
    model = Model(reply=lambda messages: AIMessage("so far"))
    summing = SummarizationMiddleware(model, trigger=("messages", 6), keep=("messages", 2))
    with closing(memory(scope="user", removed="leave_out")) as ours:
        answers = Model(reply=lambda messages: AIMessage("the answer"))
        one = agent(answers, retract, ours, summing, tools=[], checkpointer=InMemorySaver())
        for words in ("FACT1", "FACT2", "FACT3, retract", "FACT4"):
            one.invoke({"messages": [HumanMessage(words)]}, NAMES)
        found = recall_tool(ours.pool, top_k=50).invoke({"query": "FACT1 FACT2 FACT3 retract"}, NAMES)
        assert set(SECRET.findall(found)) == {"FACT1", "FACT2"}


def test_what_is_left_of_a_message_whose_call_has_no_result_stays_redacted() -> None:
    calls = [{"name": "look", "args": {}, "id": id_} for id_ in "ab"]
    own = [
        HumanMessage("look", id="1"), AIMessage("for 4471", tool_calls=calls, id="2"),
        ToolMessage("x", tool_call_id="b", id="3"),
    ]  # fmt: skip
    version = own[1].model_copy(update={"content": "for [redacted]"})
    prompt = sliding_window([*map(to_message, own), Message.user("so?")], max_tokens=1000)
    view = request_view(own, [own[0], version, own[2]])
    shown = view.show(prompt, {message.id or "": message for message in own}).messages
    assert [message.text for message in shown] == ["look", "for [redacted]", "x", "so?"]
    assert isinstance(shown[1], AIMessage)
    assert [call["id"] for call in shown[1].tool_calls] == ["b"]
