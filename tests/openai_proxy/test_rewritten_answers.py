"""Clients that change an answer before they send it again: its space, its thoughts, how its arguments are written."""

import os
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from shared_core import InfiniteMemory
from shared_core.store import Store
from tests.openai_proxy.response_shapes import call_item, response
from tests.openai_proxy.servers import proxied

TURNS = 40 if os.environ.get("SOAK") else 12
TOOL = "weather"
CALLED, SENT_AGAIN = '{"city": "Oslo", "days": 3}', '{"days":3,"city":"Oslo"}'


def answer(turn: int) -> tuple[str, str]:
    """Return what the model says in a turn, and what the client makes of it."""
    thought = "<think>\nThey want to know.\n</think>\n\n" if turn % 2 else ""
    return f"{thought}Answer {turn}.  \n", f"Answer {turn}."


def script(body: dict[str, Any]) -> Any:
    """Answer in every fourth turn with a call first."""
    newest = body["input"][-1]
    if newest.get("role") != "user":
        return answer(int(newest["call_id"].split("-")[1]))[0]
    turn = int(newest["content"].split()[-1])
    return answer(turn)[0] if turn % 4 else JSONResponse(response([call_item(TOOL, CALLED, f"call-{turn}")]))


def responses_turn(http: httpx.Client, said: list[dict[str, Any]], turn: int, headers: dict[str, str]) -> None:
    """Ask, answer a call, and note the answers as this client writes them."""
    said.append({"role": "user", "content": f"Question {turn}"})
    while said[-1].get("role") != "assistant":
        body = {"model": "m", "input": said, "store": False}
        (item,) = http.post("/responses", json=body, headers=headers).raise_for_status().json()["output"]
        if item["type"] == "function_call":
            said += [
                {"type": "function_call", "call_id": item["call_id"], "name": TOOL, "arguments": SENT_AGAIN},
                {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"},
            ]
        else:
            said.append({"role": "assistant", "content": answer(turn)[1]})


def shape(store: Store, user: str | None = None) -> list[tuple[int, list[str]]]:
    """Return, for each conversation, how many messages it has, and its branches."""
    found = []
    for info in store.overview(user):
        with InfiniteMemory(store, session_id=info.session_id, user_id=user) as memory:
            found.append((memory.stats()["messages"], [branch.name for branch in memory.branches()]))
    return found


@pytest.mark.parametrize("named", [True, False])
def test_a_conversation_of_responses_stays_one_line(store: Store, *, named: bool) -> None:
    headers = {"x-session-id": "talk"} if named else {}
    said: list[dict[str, Any]] = []
    with proxied(script, store) as (url, _), httpx.Client(base_url=url, timeout=60) as http:
        for turn in range(TURNS):
            responses_turn(http, said, turn, headers)
    assert shape(store) == [(2 * TURNS + 2 * (TURNS // 4), ["main"])]
    with InfiniteMemory(store, session_id=store.overview(None)[0].session_id) as memory:
        messages = memory.messages()
        assert messages[-1].content == answer(TURNS - 1)[0], "what is stored stays as it came"
        assert [call.arguments for message in messages for call in message.tool_calls] == [CALLED] * (TURNS // 4)
        assert memory.search(f"Answer {TURNS - 1}")


@pytest.mark.parametrize("named", [True, False])
def test_who_goes_back_to_an_answer_goes_on_after_it(store: Store, *, named: bool) -> None:
    headers = {"x-session-id": "talk"} if named else {}
    answers = iter([f"Its name is {name}.\n\nIt is *far* away." for name in ("Rigel", "Vega", "Deneb", "Spica")])
    with (
        proxied(lambda _: next(answers), store) as (url, _),
        httpx.Client(base_url=url, timeout=60, headers=headers) as http,
    ):
        said: list[dict[str, Any]] = []

        def ask(*, again: bool = False) -> dict[str, Any]:
            if not again:
                said.append({"role": "user", "content": f"Question {len(said)}"})
            told = http.post("/chat/completions", json={"model": "m", "messages": said}).raise_for_status().json()
            content = told["choices"][0]["message"]["content"].replace("*far*", "far")
            return {"role": "assistant", "content": content}

        said.append(ask())
        first, _ = ask(), ask(again=True)
        said.append(first)
        ask()
    with InfiniteMemory(store, session_id=store.overview(None)[0].session_id) as memory:
        assert [one.content.split()[3] for one in memory.messages()[1::2]] == ["Rigel.", "Vega.", "Spica."]
