"""Clients that refer to the items of earlier responses instead of sending them, as Vercel's AI SDK does."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from shared_core import InfiniteMemory
from shared_core.store import Store
from tests.openai_proxy.response_shapes import call_item, named, reasoning_item, response, said_item, spoken_events
from tests.openai_proxy.servers import proxied, stream
from tests.openai_proxy.test_access import ANN, BEN, TOKENS
from tests.openai_proxy.test_rewritten_answers import shape

TURNS = 8


def script(body: dict[str, Any]) -> Any:
    """Think, and answer in every fourth turn with a call first."""
    newest = body["input"][-1]
    asked = newest.get("role") == "user"
    turn = int((newest["content"] if asked else newest["call_id"]).split()[-1])
    item = call_item("weather", "{}", f"call {turn}") if asked and turn % 4 == 0 else said_item(f"Answer {turn}.")
    whole = response([reasoning_item(), item])
    return stream([*map(named, spoken_events(whole))]) if body.get("stream") else JSONResponse(whole)


def turn_with_references(
    http: httpx.Client, said: list[dict[str, Any]], turn: int, headers: Mapping[str, str] = {}
) -> list[dict[str, Any]]:
    """Ask, answer a call, and refer to what came; return the last output."""
    said.append({"role": "user", "content": f"Question {turn}"})
    while True:
        told = http.post("/responses", json={"model": "m", "input": said}, headers=headers).raise_for_status()
        output: list[dict[str, Any]] = told.json()["output"]
        said += [{"type": "item_reference", "id": item["id"]} for item in output]
        if output[-1]["type"] == "message":
            return output
        said.append({"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "sunny"})


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("tokens", [True, False])
def test_a_talk_by_references_is_one_line(store: Store, *, named: bool, tokens: bool) -> None:
    headers = {"authorization": f"Bearer {ANN}", **({"x-session-id": "talk"} if named else {})}
    said: list[dict[str, Any]] = []
    for half in (range(TURNS // 2), range(TURNS // 2, TURNS)):  # another server takes over
        with (
            proxied(script, store, tokens=TOKENS if tokens else None) as (url, model),
            httpx.Client(base_url=url, timeout=60, headers=headers) as http,
        ):
            for turn in half:
                turn_with_references(http, said, turn)
            sent = model.bodies[-1]["input"]
            assert all(item.get("type") != "item_reference" for item in sent)
            assert "Answer 1." in [item.get("content") for item in sent]
    user = "ann" if tokens else None
    assert shape(store, user) == [(2 * TURNS + 2 * (TURNS // 4), ["main"])]


def test_some_servers_number_the_items_of_every_response_alike(store: Store) -> None:
    said: list[dict[str, Any]] = []
    with proxied(lambda body: JSONResponse(response([said_item(f"{len(body['input'])}.", id="msg_0")])), store) as (
        url, _,
    ), httpx.Client(base_url=url) as http:  # fmt: skip
        for turn in range(5):
            turn_with_references(http, said, turn)
    assert shape(store) == [(10, ["main"])]


def test_nobody_refers_to_items_of_others(store: Store) -> None:
    with proxied(script, store, tokens=TOKENS) as (url, model), httpx.Client(base_url=url, timeout=60) as http:
        output = turn_with_references(http, [], 1, {"authorization": f"Bearer {ANN}"})
        asked, given = {"role": "user", "content": "Question 1"}, {"type": "item_reference", "id": output[-1]["id"]}
        for items in ([given], [asked, given, {**asked, "content": "Question 2"}], [{"id": output[-1]["id"]}, asked]):
            for headers in ({}, {"x-session-id": "s"}):
                answer = http.post(
                    "/responses", json={"input": items}, headers={**headers, "authorization": f"Bearer {BEN}"}
                )
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "item_not_found")
        off = {"authorization": f"Bearer {BEN}", "x-memory": "off"}
        assert http.post("/responses", json={"input": [given]}, headers=off).status_code == 403
        assert len(model.bodies) == 1


def test_a_reference_to_what_was_forgotten_is_left_out(store: Store) -> None:
    said: list[dict[str, Any]] = []
    headers = {"authorization": f"Bearer {ANN}", "x-session-id": "talk"}
    with proxied(script, store, tokens=TOKENS) as (url, model), httpx.Client(base_url=url, headers=headers) as http:
        for turn in (1, 2):
            turn_with_references(http, said, turn)
        with InfiniteMemory(store.for_user("ann"), user_id="ann", session_id="talk") as memory:
            memory.forget(ids=[memory.messages()[1].id or ""])
        turn_with_references(http, said, 3)
        told = [item["content"] for item in model.bodies[-1]["input"]]
        assert told == ["Question 1", "Question 2", "Answer 2.", "Question 3"]
    assert shape(store, "ann") == [(5, ["main"])]
