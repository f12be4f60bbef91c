"""Random LangChain histories, sound and broken, and what providers object to."""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

__all__ = [
    "PROVIDERS",
    "accepted",
    "called",
    "group_ids",
    "ids",
    "models",
    "needs_providers",
    "objections",
    "sent_objections",
    "sound_histories",
    "wild_histories",
]

PROVIDERS = all(find_spec(name) for name in ("langchain_openai", "langchain_anthropic", "langchain_google_genai"))
"""Whether the providers' packages are here, whose formatters show what would be sent."""

needs_providers = pytest.mark.skipif(
    not PROVIDERS, reason="langchain-openai, langchain-anthropic and langchain-google-genai are not all installed"
)


def ids(messages: Iterable[BaseMessage]) -> list[int]:
    """The places that messages had in their history."""
    return [int(message.id or "-1") for message in messages]


class Talk:
    """Writes a history; each message has its place as its id.

    With `renumber`, calls are numbered anew in each turn, as some models do it.
    """

    def __init__(self, draw: st.DrawFn, *, renumber: bool = False) -> None:
        self.draw = draw
        self.renumber = renumber
        self.messages: list[BaseMessage] = []
        self.open: list[str] = []
        self.closed: list[str] = []
        self.number = 0

    def _add(self, cls: type[BaseMessage], **fields: Any) -> None:
        content = "\n".join("w " * self.draw(st.integers(1, 6)) for _ in range(self.draw(st.integers(1, 3))))
        if self.draw(st.integers(0, 3)) == 0:
            fields["content"] = [{"type": "text", "text": line} for line in content.split("\n")]
        self.messages.append(cls(**{"content": content, "id": str(len(self.messages)), **fields}))

    def system(self) -> None:
        self._add(SystemMessage)

    def human(self) -> None:
        if self.renumber:
            self.number = 0
        self._add(HumanMessage)

    def ai(self) -> None:
        self._add(AIMessage)

    def _new_id(self) -> str:
        self.number += 1
        return f"call_{self.number}"

    def call(self) -> None:
        """Ask for tools, some of them in a broken way."""
        calls, invalid = [], []
        for place in range(self.draw(st.integers(1, 3))):
            call_id = self._new_id()
            if self.draw(st.integers(0, 3)) == 0:
                invalid.append({"name": "tool", "args": '{"x": ', "id": call_id, "error": "cut off"})
            else:
                calls.append({"name": "tool", "args": {"x": place}, "id": call_id})
            self.open.append(call_id)
        self._add(AIMessage, tool_calls=calls, invalid_tool_calls=invalid)

    def result(self) -> None:
        if self.open:
            call_id = self.open.pop(self.draw(st.integers(0, len(self.open) - 1)))
            self.closed.append(call_id)
            self._add(ToolMessage, tool_call_id=call_id)

    def results(self) -> None:
        while self.open:
            self.result()

    def orphan(self) -> None:
        known = [*self.closed, "call_unknown"]
        self._add(ToolMessage, tool_call_id=self.draw(st.sampled_from(known)))


WILD = ["human", "human", "ai", "call", "call", "result", "results", "results", "orphan", "system"]


@st.composite
def wild_histories(draw: st.DrawFn) -> list[BaseMessage]:
    """Anything in any order: parallel and invalid calls, late, missing and doubled results, a person in between."""
    talk = Talk(draw, renumber=draw(st.booleans()))
    for step in draw(st.lists(st.sampled_from(WILD), max_size=14)):
        getattr(talk, step)()
    return talk.messages


@st.composite
def sound_histories(draw: st.DrawFn, *, tools: bool = True, systems: int = 1) -> list[BaseMessage]:
    """What a well-behaved agent leaves: nothing in it has to be repaired."""
    talk = Talk(draw)
    for _ in range(draw(st.integers(0, systems))):
        talk.system()
    if draw(st.integers(0, 4)) == 0:
        talk.ai()
    for _ in range(draw(st.integers(0, 5))):
        talk.human()
        for _ in range(draw(st.integers(0, 2)) if tools else 0):
            talk.call()
            talk.results()
        if draw(st.booleans()):
            talk.ai()
    if tools and talk.messages and draw(st.integers(0, 3)) == 0:
        talk.call()
        if draw(st.booleans()):
            talk.result()
    return talk.messages


def called(message: BaseMessage) -> list[str | None]:
    if not isinstance(message, AIMessage):
        return []
    return [call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]]


def answers(message: BaseMessage) -> str | None:
    return message.tool_call_id if isinstance(message, ToolMessage) else None


def group_ids(messages: Sequence[BaseMessage]) -> list[list[int]]:
    """The tool groups of a sound list, by places."""
    groups: list[list[int]] = []
    for message in messages:
        if answers(message) is not None:
            groups[-1] += ids([message])
        else:
            groups.append(ids([message]))
    return groups


def objections(messages: Sequence[BaseMessage], *, window: bool = False) -> list[str]:
    """What providers object to (calls at the end may wait); `window`: a person has to begin."""
    found: list[str] = []
    rest = list(messages)
    while rest and isinstance(rest[0], SystemMessage):
        rest.pop(0)
    if window and rest and not isinstance(rest[0], HumanMessage):
        found.append(f"begins with {rest[0].type}")
    while rest:
        message = rest.pop(0)
        if isinstance(message, SystemMessage):
            found.append("a system message in between")
        if answers(message) is not None:
            found.append(f"a result without its call: {answers(message)}")
        results: list[str | None] = []
        asked = called(message)
        while asked and rest and answers(rest[0]) in set(asked) - set(results):
            results.append(answers(rest.pop(0)))
        if rest and sorted(map(str, asked)) != sorted(map(str, results)):
            found.append(f"calls {asked} with results {results}")
    return found


@cache
def models() -> tuple[Any, Any, Any]:
    """Made once: making them takes longer than formatting."""
    from langchain_anthropic import ChatAnthropic
    from langchain_google_genai import ChatGoogleGenerativeAI
    from langchain_openai import ChatOpenAI

    return (
        ChatOpenAI(model="gpt-4.1", api_key="none"),  # type: ignore[arg-type]
        ChatAnthropic(model="claude-sonnet-4-5", api_key="none"),  # type: ignore[call-arg,arg-type]
        ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key="none"),
    )


def accepted(messages: Sequence[BaseMessage]) -> tuple[list[Any], list[Any], list[Any]]:
    """What would be sent to OpenAI, Anthropic and Google; raises what their formatters raise.

    Google's refuses a list of system messages alone, to which nothing can be added here.
    """
    openai, anthropic, google = models()
    said = any(not isinstance(message, SystemMessage) for message in messages)
    return (
        openai._get_request_payload(list(messages))["messages"],
        anthropic._get_request_payload(list(messages))["messages"],
        list(google._prepare_request(list(messages)).contents) if said else [],
    )


def sent_objections(messages: Sequence[BaseMessage]) -> list[str]:
    """What the providers' servers would object to in what is sent; calls at the end may wait."""
    openai, anthropic, google = accepted(messages)
    found = [f"OpenAI: {problem}" for problem in _openai_objections(openai)]
    found += [f"Anthropic: {problem}" for problem in _anthropic_objections(anthropic)]
    for content, after in pairwise(google[:-1]):
        asked = [part.function_call.name for part in content.parts if part.function_call]
        got = [part.function_response.name for part in after.parts if part.function_response]
        if asked != got:
            found.append(f"Google: calls {asked}, results {got}")
    return found


def _openai_objections(sent: Sequence[dict[str, Any]]) -> Iterable[str]:
    waiting: set[str] = set()
    for message in sent:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"result of {message['tool_call_id']}"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            yield f"no result of {waiting}"
        waiting = {call["id"] for call in message.get("tool_calls", ())}


def _anthropic_objections(sent: Sequence[dict[str, Any]]) -> Iterable[str]:
    def of(message: dict[str, Any], kind: str, key: str) -> list[str]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        return [block[key] for block in blocks if block["type"] == kind]

    before: list[str] = []
    for place, message in enumerate(sent):
        results = of(message, "tool_result", "tool_use_id")
        waits = place == len(sent) - 1 and set(results) <= set(before) and len(results) == len(message["content"])
        if sorted(results) != sorted(before) and not waits:
            yield f"calls {before}, results {results}"
        before = of(message, "tool_use", "id")
