"""What every prompt of an agent obeys, whatever its thread has been through."""

import re
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_infinite_memory import InfiniteMemoryMiddleware
from shared_core import SQLiteStore
from shared_core.prompt.report import ContextReport
from tests.langchain.agents import Model, Sent, Words, agent, config, memory, noting, said, size, typed
from tests.langchain.random_histories import PROVIDERS, objections, sent_objections
from tests.langchain.repaired import repaired, tokens


def look(item: str) -> str:
    """Look at an item."""
    return f"{item} is there, and it looks as it did when somebody looked at it before"


def sign(item: str) -> str:
    """Sign for an item, if a person agrees."""
    return f"{item} is signed"


class Ask(NamedTuple):
    """A question, and in rounds the calls it takes: o is one that is cut off, s one a person has to agree to."""

    words: int
    rounds: list[str]
    grounded: bool


class Resume(NamedTuple):
    agrees: bool


class Back(NamedTuple):
    """To the end of an earlier run, and a question there."""

    runs: int
    ask: Ask


class Edit(NamedTuple):
    """Another text for an earlier question."""

    place: int


asks = st.builds(Ask, st.integers(0, 12), st.lists(st.text("los", min_size=1, max_size=3), max_size=3), st.booleans())
scripts = st.lists(
    st.one_of(
        asks,
        asks,
        asks,
        st.builds(Resume, st.booleans()),
        st.builds(Back, st.integers(0, 3), asks),
        st.builds(Edit, st.integers(0, 9)),
    ),
    min_size=1,
    max_size=8,
)


def reply(messages: Sequence[BaseMessage]) -> AIMessage:
    """Make the calls of the next round, or answer."""
    asked = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    question = typed(messages[asked])
    number, *rounds = re.findall(r"(?<=[#:])\w+", question)
    made = [call["id"] for m in messages[asked:] if isinstance(m, AIMessage) for call in m.tool_calls]
    made += [call["id"] for m in messages[asked:] if isinstance(m, AIMessage) for call in m.invalid_tool_calls]
    done = max((int(str(id_).split(".")[1]) for id_ in made), default=-1)
    if done + 1 == len(rounds):
        return AIMessage(f"answer to {number}")
    ids = [(kind, f"{number}.{done + 1}.{place}") for place, kind in enumerate(rounds[done + 1])]
    names = {"l": "look", "s": "sign"}
    calls = [{"name": names[kind], "args": {"item": id_}, "id": id_} for kind, id_ in ids if kind != "o"]
    odd = [
        {"name": "look", "args": '{"item": ', "id": id_, "error": "cut off", "type": "invalid_tool_call"}
        for kind, id_ in ids
        if kind == "o"
    ]
    return AIMessage("", tool_calls=calls, invalid_tool_calls=odd)


class Thread:
    """An agent's thread, and what its model was sent."""

    def __init__(self, middleware: Callable[[], InfiniteMemoryMiddleware]) -> None:
        self.model = Model(reply=reply)
        self.states: list[list[BaseMessage]] = []
        self._middleware = middleware
        self._saver = InMemorySaver()
        self._number = 0

    def play(self, step: Any) -> None:
        """Do one step; one that cannot be done now is passed over."""
        one = self._agent()
        if isinstance(step, Ask):
            one.invoke({"messages": [self._question(step)]}, config())
            return
        state = one.get_state(config())
        waiting = [request for found in state.interrupts for request in found.value["action_requests"]]
        if isinstance(step, Resume) and waiting:
            decision = {"type": "approve"} if step.agrees else {"type": "reject", "message": "no"}
            one.invoke(Command(resume={"decisions": [decision] * len(waiting)}), config())
        elif isinstance(step, Back):
            ends = [found for found in one.get_state_history(config()) if found.values and not found.next]
            at = ends[min(step.runs, len(ends) - 1)].config if ends else config()
            one.invoke({"messages": [self._question(step.ask)]}, at)
        elif isinstance(step, Edit) and state.values and not state.next:
            asked = [m for m in state.values["messages"] if isinstance(m, HumanMessage)]
            old = asked[step.place % len(asked)]
            new = HumanMessage(re.sub(r"\w+ ", "edited ", str(old.content), count=1), id=old.id)
            one.update_state(config(), {"messages": [new]})

    def _question(self, ask: Ask) -> HumanMessage:
        self._number += 1
        text = " ".join(["word", *[f"w{self._number}"] * ask.words, f"#{self._number}", *(f":{r}" for r in ask.rounds)])
        more = {"grounding": [f"fact {self._number}"]} if ask.grounded else {}
        return HumanMessage(text, additional_kwargs=more)

    def _agent(self) -> Any:
        given = (Watching(self.states), self._middleware(), HumanInTheLoopMiddleware(interrupt_on={"sign": True}))
        return agent(self.model, *given, tools=[look, sign], checkpointer=self._saver)


class Watching(AgentMiddleware):
    """Keeps what the state has at each model call, and changes nothing."""

    def __init__(self, states: list[list[BaseMessage]]) -> None:
        super().__init__()
        self.states = states

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self.states.append([message.model_copy(deep=True) for message in request.messages])
        answer = handler(request)
        assert bare(request.messages) == bare(self.states[-1]), "the state is as it was"
        return answer


def bare(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """The messages without ids: LangChain gives some of them theirs only after they were sent."""
    return [message.model_dump(exclude={"id"}) for message in messages]


def without_open_calls(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages without calls that nobody answered, of which the prompt holds what stands beside them."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    left: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage):
            calls = [call for call in message.tool_calls if call["id"] in answered]
            odd = [{**call, "error": None} for call in message.invalid_tool_calls if call["id"] in answered]
            if len(calls) + len(odd) < len(message.tool_calls) + len(message.invalid_tool_calls):
                if not (message.text or calls or odd):
                    continue
                message = AIMessage(message.content, id=message.id, tool_calls=calls, invalid_tool_calls=odd)
        left.append(message)
    return left


def check(sent: Sent, state: Sequence[BaseMessage], report: ContextReport, budget: int) -> None:
    system, *body = sent.messages
    assert (system.type, system.text) == ("system", "be brief"), "law 3"
    asked = max(place for place, message in enumerate(state) if isinstance(message, HumanMessage))
    question = max(place for place, message in enumerate(body) if isinstance(message, HumanMessage))
    assert typed(body[question]) == state[asked].text, "law 2"
    now = body[question + 1 :]
    newest = max((place for place, message in enumerate(state) if isinstance(message, AIMessage)), default=0)
    newest = max(
        newest, asked + 1
    )  # before it, calls stay open where LangChain adds no results of those that are cut off
    groups = grouped(repaired([*without_open_calls(state[asked + 1 : newest]), *state[newest:]]))
    kept = max(count for count in range(len(groups) + 1) if bare(now) in as_sent(groups[len(groups) - count :]))
    assert kept >= min(1, len(groups)), "law 2: the newest group"
    past, window = repaired(without_open_calls(state[:asked]), pending=False), body[:question]
    assert bare(window) == bare(past[len(past) - len(window) :]), (
        "laws 4 and 5: the newest turns, in order, as they were said"
    )
    assert not window or isinstance(window[0], HumanMessage), "law 4"
    if size(sent) > budget:
        assert report.over_budget
        assert (window, kept) == ([], min(1, len(groups))), "law 1"
    assert objections(sent.messages, window=True) == [], "law 4"
    # The results stand as the graph has them, which is not always the order of the calls; no provider asks for that.
    ordered = [m for first, *results in grouped(sent.messages) for m in (first, *sorted(results, key=call_of))]
    assert not PROVIDERS or sent_objections(ordered) == []
    before = body[question].text.removesuffix(typed(body[question]))
    shown = [number for message in window for number in re.findall(r"#\d+", message.text)]
    assert not set(shown) & set(re.findall(r"#\d+", before)), "law 5: nothing twice"
    facts = re.findall(r"fact \d+", "".join(message.text for message in body))
    assert facts in ([], [f"fact {n}" for n in re.findall(r"#(\d+)", state[asked].text)]), "law 6"


def as_sent(groups: Sequence[Sequence[BaseMessage]]) -> list[list[dict[str, Any]]]:
    """How tool groups may be sent: the newest whole, and older ones with stubs from some group on."""
    ways = []
    for whole in range(min(1, len(groups)), len(groups) + 1):
        older, newest = groups[: len(groups) - whole], groups[len(groups) - whole :]
        ways.append(bare([*map(stub, chain.from_iterable(older)), *chain.from_iterable(newest)]))
    return ways


def stub(message: BaseMessage) -> BaseMessage:
    """What is sent in the place of a result, if that is smaller."""
    if not isinstance(message, ToolMessage):
        return message
    short = message.model_copy(
        update={"content": f"[result of {message.name} left out, {tokens([message], Words()):,} tokens]"}
    )
    return short if tokens([short], Words()) < tokens([message], Words()) else message


def call_of(result: BaseMessage) -> str:
    assert isinstance(result, ToolMessage)
    return result.tool_call_id


def grouped(messages: Sequence[BaseMessage]) -> list[list[BaseMessage]]:
    groups: list[list[BaseMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


@settings(max_examples=max(10, settings().max_examples // 5))  # each is a conversation with an agent
@given(scripts, st.sampled_from([80, 110, 150, 220, 2000]))
@example([Ask(0, ["os"], False), Ask(0, [], False)], 110)  # one of two calls has a result
def test_every_prompt(script: list[Any], budget: int) -> None:
    reports: list[ContextReport] = []
    store, other = SQLiteStore(":memory:"), SQLiteStore(":memory:")
    given: dict[str, Any] = {"max_tokens": budget, "on_overflow": "keep"}
    one = memory(store, **given, on_report=noting(reports))
    warm, fresh = Thread(lambda: one), Thread(lambda: memory(other, **given))
    for step in script:
        start = len(warm.model.sent)
        for thread in (warm, fresh):
            thread.play(step)
        new = warm.model.sent[start:]
        for sent, state, report in zip(new, warm.states[start:], reports[start:], strict=True):
            check(sent, state, report, budget)
        for (before, state), (after, later) in pairwise(zip(new, warm.states[start:], strict=True)):
            grown = [*before.messages, *later[len(state) :]]
            can_be_sent = size(before._replace(messages=grown)) <= budget and objections(grown, window=True) == []
            assert bare(after.messages) == bare(grown) or not can_be_sent, "law 8"
    assert [said(sent.messages) for sent in fresh.model.sent] == [said(sent.messages) for sent in warm.model.sent], (
        "law 7: whoever builds it"
    )
    for found in (store, other):
        found.close()
