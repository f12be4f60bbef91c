"""Many threads, users, sub-agents and fan-outs at once: no prompt holds what was said to another.

Every text has a marker that tells whose it is: `[user/thread/part/number]`. The part is `main` for what a person says,
and one of its own for each run of a helper. The model notes each prompt with the run that it belongs to.
"""

import asyncio
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from pydantic import Field
from typing_extensions import TypedDict

from langchain_infinite_memory import HistoryRetriever, recall_tool
from shared_core.pool import SessionPool
from tests.langchain.agents import Model, Words, agent, memory

THREADS, USERS, TURNS = (50, 8, 20) if os.environ.get("SOAK") else (4, 2, 3)
AMPLE, TIGHT = 100_000, 260
MARKER = re.compile(r"\[([\w-]+)/([\w-]+)/([\w-]+)/(\d+)\]")
DEEDS = ["nothing", "delegate", "look_back", "fan", "look_back delegate", "fan look_back"]
"""What the model is to do before it answers: these tools, one after the other."""


class Run(NamedTuple):
    """Whose words a prompt may hold."""

    user: str
    thread: str
    part: str = "main"

    def says(self, number: int, deeds: str = "nothing") -> HumanMessage:
        return HumanMessage(f"do {deeds} for the note of today [{'/'.join(self)}/{number}]")


class Seen(NamedTuple):
    """A prompt, and the run that it was built for."""

    run: Run
    messages: list[BaseMessage]


def markers(messages: Iterable[BaseMessage]) -> set[tuple[Run, int]]:
    found = MARKER.findall("\n".join(str(message.text) for message in messages))
    return {(Run(user, thread, part), int(number)) for user, thread, part, number in found}


def act(messages: Sequence[BaseMessage]) -> AIMessage:
    """Do one tool after the other, as the newest question says, and then answer with its marker."""
    asked = max(n for n, message in enumerate(messages) if isinstance(message, HumanMessage))
    question = str(messages[asked].text)
    deeds, whose = re.findall(r"do ([\w ]+) for", question)[-1].split(), MARKER.findall(question)[-1]
    done = sum(isinstance(message, ToolMessage) for message in messages[asked:])
    if deeds == ["nothing"] or done == len(deeds):
        return AIMessage(f"noted [{'/'.join(whose)}]")
    arguments = {"query": "the note of today"} if deeds[done] == "look_back" else {"task": question}
    return AIMessage("", tool_calls=[{"name": deeds[done], "args": arguments, "id": f"call-{next(COUNT)}"}])


COUNT = itertools.count()


class Witness(Model):
    """Notes each prompt with its run, which the configuration's metadata name."""

    seen: list[Seen] = Field(default_factory=list)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        assert run_manager is not None
        self.seen.append(Seen(Run(*run_manager.metadata["run"].split("/")), list(messages)))
        return super()._generate(messages, stop, run_manager, **kwargs)


class Task(TypedDict):
    """A task, and whose it is."""

    task: str


class World:
    """An agent with a helper in a tool, and a graph that sends three helpers out; all on one pool."""

    def __init__(self, pool: SessionPool) -> None:
        self.pool, self.model = pool, Witness(reply=act)
        look_back = recall_tool(pool, name="look_back", top_k=4)
        self.helper = agent(self.model, memory(pool), tools=[look_back])
        fan = StateGraph(Task)
        fan.add_node("work", self.work)
        fan.add_conditional_edges(START, lambda state: [Send("work", state)] * 3, ["work"])
        saver = InMemorySaver()
        self.fan = fan.compile(checkpointer=saver)
        nested = fan.compile()
        tools = [
            look_back,
            StructuredTool.from_function(self.delegate, self.adelegate, name="delegate"),
            StructuredTool.from_function(
                lambda task: str(nested.invoke({"task": task}))[:0], name="fan", description="x"
            ),
        ]
        self.agent = agent(self.model, memory(pool), tools=tools, checkpointer=saver)

    def work(self, state: Task) -> dict[str, str]:
        self.delegate(state["task"])
        return {}

    def errand(self, task: str) -> tuple[dict[str, Any], Any]:
        user, thread = MARKER.findall(task)[-1][:2]
        run = Run(user, thread, f"helper-{next(COUNT)}")
        return {"messages": [run.says(0, "look_back")]}, {"metadata": {"run": "/".join(run)}}

    def delegate(self, task: str) -> str:
        """Have a helper do it."""
        return f"the helper has done it{self.helper.invoke(*self.errand(task))['messages'][-1].text[:0]}"

    async def adelegate(self, task: str) -> str:
        """Have a helper do it."""
        await self.helper.ainvoke(*self.errand(task))
        return "the helper has done it"

    def talk(self, run: Run, number: int) -> None:
        """Ask on a thread, again and again."""
        names = {"user_id": run.user, "thread_id": f"{run.user}-{run.thread}"}
        config: Any = {"configurable": names, "metadata": {"run": "/".join(run)}, "recursion_limit": 25}
        fan_config: Any = {"configurable": {**names, "thread_id": f"fan-{run.thread}"}}
        for turn in range(TURNS):
            question = run.says(turn, DEEDS[(number + turn) % len(DEEDS)])
            given = {"messages": [question]}
            if (number + turn) % 2:
                asyncio.run(self.agent.ainvoke(given, config))
            else:
                self.agent.invoke(given, config)
            if turn % 3 == 2:
                task = f"[{run.user}/{run.thread}/fan/{turn}]"
                self.fan.invoke({"task": task}, fan_config)


def allowed(run: Run, said: Run, scope: str) -> bool:
    return run == said or (scope == "user" and run.user == said.user)


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[SessionPool]:
    settings: dict[str, Any] = {"token_counter": Words(), "embedder": "words", "reserve_tokens": 0, "top_k": 20}
    with SessionPool(None, on_overflow="keep", **settings, **request.param) as made:
        yield made


def conversations(pool: SessionPool) -> tuple[list[Run], list[Seen]]:
    """Let all of them talk at once; return them, and the prompts."""
    world = World(pool)
    runs = [Run(f"u{number % USERS}", f"t{number}") for number in range(THREADS)]
    with ThreadPoolExecutor(len(runs)) as threads:
        list(threads.map(world.talk, runs, range(len(runs))))
    return runs, world.model.seen


def check_prompts(runs: Sequence[Run], seen: Sequence[Seen], *, scope: str, whole: bool) -> None:
    """Raise unless each question was asked once, in a prompt that ends with it and holds nothing of others."""
    held = [(run, said) for run, messages in seen for said, _ in markers(messages)]
    assert {(run, said) for run, said in held if not allowed(run, said, scope)} == set()
    first = [(run, messages) for run, messages in seen if isinstance(messages[-1], HumanMessage)]
    asked = [(run, MARKER.findall(str(messages[-1].text))[-1]) for run, messages in first]
    helpers = {run for run, _ in first if run.part != "main"}
    assert len(helpers) > THREADS
    expected = [(run, turn) for run in runs for turn in range(TURNS)] + [(run, 0) for run in helpers]
    assert sorted(asked) == sorted((run, (*run, str(turn))) for run, turn in expected)
    if whole:
        shown = [
            (run, markers(messages), int(question[-1]))
            for (run, messages), (_, question) in zip(first, asked, strict=True)
        ]
        assert [one for one in shown if one[1] != {(one[0], turn) for turn in range(one[2] + 1)}] == []


def check_searches(pool: SessionPool, runs: Sequence[Run], seen: Sequence[Seen], scope: str) -> None:
    """Raise unless searches find what the thread has said, and nothing else."""
    retriever = HistoryRetriever(pool=pool, session_key="thread_id", k=10 * TURNS * THREADS)
    for run in runs:
        names: Any = {"configurable": {"thread_id": f"{run.user}-{run.thread}", "user_id": run.user}}
        found = markers(AIMessage(document.page_content) for document in retriever.invoke("the note of today", names))
        assert {said for said, _ in found if not allowed(run, said, scope)} == set()
        assert {one for one in found if one[0] == run} == {(run, turn) for turn in range(TURNS)}
    looks = [(run, messages[-1]) for run, messages in seen if messages[-1].name == "look_back" and run.part == "main"]
    assert len([run for run, answer in looks if markers([answer])]) > len(looks) // 2 > 0, "it finds something"


ALL_FITS, RECALL = {"max_tokens": AMPLE}, {"max_tokens": TIGHT}
OF_A_USER = {"max_tokens": TIGHT, "scope": "user"}


@pytest.mark.parametrize("pool", [ALL_FITS, RECALL, OF_A_USER], indirect=True, ids=["all fits", "recall", "of a user"])
def test_a_thread_is_shown_nothing_of_another(pool: SessionPool) -> None:
    scope = str(pool.settings.get("scope", "session"))
    runs, seen = conversations(pool)
    check_prompts(runs, seen, scope=scope, whole=pool.settings["max_tokens"] == AMPLE)
    check_searches(pool, runs, seen, scope)
