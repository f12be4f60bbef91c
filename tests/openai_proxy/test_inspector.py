"""The data of the inspector: each user's own alone, from the inspector's own page alone, and erased only as shown."""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from shared_core import InfiniteMemory
from shared_core.doors.openai_proxy.inspector import live_sessions
from shared_core.doors.openai_proxy.inspector.endpoints import ALLOWED, API, PAGE
from shared_core.doors.serving.bearer_tokens import BearerTokens
from shared_core.doors.view import page as html
from shared_core.store import Store
from tests.openai_proxy.servers import proxied, until

ANN, BEN, GATEWAY = "ann-secret-0123456789", "ben-secret-0123456789", "gateway-secret-0123456789"
TOKENS = BearerTokens({ANN: "ann", BEN: "ben", GATEWAY: "*"})
OWN = {"x-inspector": "1"}
SETTINGS: dict[str, Any] = {"max_tokens": 120, "reserve_tokens": 20, "token_counter": len}


class Page:
    """Asks what the page asks, as one user."""

    def __init__(self, url: str, token: str | None = None, user: str | None = None) -> None:
        self.root = url.removesuffix("/v1")
        self.client = httpx.Client(base_url=self.root, headers=OWN, timeout=60)
        if token is not None:
            self.client.headers["authorization"] = f"Bearer {token}"
        if user is not None:
            self.client.headers.update(httpx.Headers({"x-user-id": user}, encoding="utf-8"))

    def get(self, name: str, status: int = 200, /, **query: Any) -> Any:
        response = self.client.get(f"{API}/{name}", params=query)
        assert response.status_code == status, response.text
        return response.json()

    def post(self, name: str, status: int = 200, /, **body: Any) -> Any:
        response = self.client.post(f"{API}/{name}", json=body)
        assert response.status_code == status, response.text
        return response.json()

    def say(self, *texts: str, session: str | None = None, **fields: Any) -> None:
        """Send a history of texts of user and assistant to the model."""
        said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        headers = {"x-session-id": session} if session is not None else {}
        sent = {"model": "m", "messages": said, **fields}
        assert self.client.post("/v1/chat/completions", json=sent, headers=headers).status_code == 200


@pytest.fixture
def pages(store: Store) -> Iterator[Callable[..., Page]]:
    """Pages of one server that needs tokens."""
    opened = []
    with proxied(lambda _: "Noted.", store, settings=SETTINGS, tokens=TOKENS, inspector=True) as (url, _):

        def page(token: str | None, user: str | None = None) -> Page:
            opened.append(Page(url, token, user))
            return opened[-1]

        yield page
        for one in opened:
            one.client.close()


@pytest.fixture
def mine(store: Store) -> Iterator[Page]:
    """The page of a server that needs no token."""
    with proxied(lambda _: "Noted.", store, settings=SETTINGS, inspector=True) as (url, _):
        one = Page(url)
        with one.client:
            yield one


def texts(data: dict[str, Any]) -> list[str]:
    return [node["text"] for node in data["nodes"]]


def test_the_page_comes_without_a_token_and_its_data_does_not(pages: Callable[..., Page]) -> None:
    nobody = pages(None)
    page = nobody.client.get(PAGE)
    assert (page.status_code, page.text) == (200, html({"token": True}, ALLOWED))
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\son\w+=", page.text)
    assert page.headers["x-frame-options"] == "DENY"
    for token in (None, f"{ANN}x", "none"):
        other = pages(token)
        for name in ("me", "sessions", "session?session=s", "search?query=x", "requests", "request?number=1"):
            refused = other.client.get(f"{API}/{name}")
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert other.client.post(f"{API}/forget", json={}).status_code == 401


def test_a_user_sees_nothing_of_another_one(pages: Callable[..., Page]) -> None:
    ann, ben = pages(ANN), pages(BEN)
    ann.say("My code is 4471", session="s")
    assert [one["session_id"] for one in ann.get("sessions")["sessions"]] == ["s"]
    assert ben.get("sessions") == {"sessions": [], "more": False}
    number = ann.get("requests")["requests"][0]["number"]
    assert ben.get("requests")["requests"] == []
    assert ben.get("request", 404, number=number) == ben.get("request", 404, number=1)
    assert ben.get("search", query="code")["found"] == []
    id = ann.get("session", session="s")["nodes"][0]["id"]
    others: list[tuple[str, dict[str, Any]]] = [
        ("forget", {"ids": [id]}),
        ("forget", {"whole": True}),
    ]
    for session in ("s", "unknown"):
        assert ben.get("session", 404, session=session)["error"]["message"] == "there is no such session"
        for name, body in others:
            assert ben.post(name, 404, session=session, **body)["error"]["message"] == "there is no such session"
    assert texts(ann.get("session", session="s")) == ["My code is 4471", "Noted."]


def test_the_token_for_many_users_must_name_one(pages: Callable[..., Page]) -> None:
    assert pages(GATEWAY).get("me") == {"user": None, "may_name": True, "must_name": True}
    pages(GATEWAY).get("sessions", 400)
    zoe = pages(GATEWAY, "Zoë")
    assert zoe.get("me") == {"user": "Zoë", "may_name": True, "must_name": False}
    zoe.say("Hello", session="z")
    assert [one["user_id"] for one in zoe.get("sessions")["sessions"]] == ["Zoë"]
    assert pages(ANN).get("me") == {"user": "ann", "may_name": False, "must_name": False}
    pages(ANN, "ben").get("sessions", 403)


FOREIGN: tuple[dict[str, str], ...] = (
    {"x-inspector": ""},
    {"x-inspector": "0"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"host": "evil.example", "origin": "http://evil.example"},
    {"host": "127.0.0.1.evil.example"},
)


def test_a_page_of_another_origin_cannot_ask(mine: Page, store: Store) -> None:
    mine.say("My code is 4471", session="s")
    bodies = {"forget": {"session": "s", "whole": True}}
    for headers in FOREIGN:
        for name in ("me", "sessions", "requests"):
            assert mine.client.get(f"{API}/{name}", headers=headers).status_code == 403
        for name, body in bodies.items():
            assert mine.client.post(f"{API}/{name}", json=body, headers=headers).status_code == 403
        named = {"host", "origin"} & headers.keys()
        assert mine.client.get(PAGE, headers=headers).status_code == (403 if named else 200)
    own = {"origin": mine.root, "sec-fetch-site": "same-origin", "host": urlsplit(mine.root).netloc}
    assert mine.client.get(f"{API}/me", headers=own).status_code == 200


def test_no_other_site_is_let_in_by_a_header_of_the_response(mine: Page) -> None:
    asked = {
        "origin": "https://evil.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "x-inspector",
    }
    answer = mine.client.options(f"{API}/forget", headers=asked)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]
    form = {"content-type": "text/plain"}
    assert mine.client.post(f"{API}/forget", content=b"{}", headers=form).status_code == 415
    assert mine.client.get(f"{API}/me").headers["cross-origin-resource-policy"] == "same-origin"


def test_the_page_is_off_unless_it_is_asked_for(store: Store) -> None:
    with proxied(lambda _: "", store) as (url, _), httpx.Client(base_url=url.removesuffix("/v1")) as client:
        for path in (PAGE, f"{API}/me"):
            assert client.get(path, headers=OWN).status_code == 404


def test_a_session_that_is_too_long_is_refused_with_what_to_do(mine: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    mine.say("Hello", session="s")
    monkeypatch.setattr(live_sessions, "MOST_MESSAGES", 1)
    assert "infinite-memory view" in mine.get("session", 413, session="s")["error"]["message"]


def test_the_report_of_a_request_is_there_as_it_happens(mine: Page) -> None:
    for number in range(4):
        mine.say(f"Tell me about the number {number}", session="s")
    listed = mine.get("requests")
    assert mine.get("requests", after=listed["stamp"]) == {"stamp": listed["stamp"]}
    mine.get("requests", 400, after="x")
    assert [one["question"] for one in listed["requests"]] == [
        f"Tell me about the number {number}" for number in (3, 2, 1, 0)
    ]
    newest = listed["requests"][0]
    one = mine.get("request", number=newest["number"])
    assert {**one, **newest} == one
    assert (one["session"], one["model"], one["budget"], one["reserve"]) == ("s", "m", 100, 20)
    assert sum(one["totals"]) == one["total_tokens"] <= 100
    asked = [one["messages"][line[0]] for line in one["lines"] if one["kinds"][line[1]] == "question"]
    assert asked == [{"id": newest["id"], "role": "user", "text": "Tell me about the number 3"}]
    assert len({line[0] for line in one["lines"]}) == len(one["messages"]) > 1
    assert newest["seconds"] > 0
    nodes = mine.get("session", session="s")["nodes"]
    assert [node["id"] for node in nodes if node["text"] == newest["question"]] == [newest["id"]]


def test_what_is_kept_off_the_memory_is_in_no_list(mine: Page) -> None:
    mine.client.headers["x-memory"] = "off"
    mine.say("Hello", session="s")
    assert mine.get("requests") == {
        "stamp": 0,
        **{key: mine.get("requests")[key] for key in ("kinds", "bands", "reasons")},
        "requests": [],
    }


def test_search_finds_messages_of_all_sessions_of_the_user(pages: Callable[..., Page]) -> None:
    ann, ben = pages(ANN), pages(BEN)
    for session, text in (
        ("home", "The key to the cellar hangs in the hall"),
        ("work", "The key to the archive is red"),
        ("trip", "We sail to Norway"),
    ):
        ann.say(text, session=session)
    ben.say("The key to the safe is under the mat", session="home")
    found = ann.get("search", query="where is the key")["found"]
    assert sorted((hit["session"], hit["text"]) for hit in found if "key" in hit["text"]) == [
        ("home", "The key to the cellar hangs in the hall"), ("work", "The key to the archive is red"),
    ]  # fmt: skip
    assert "safe" not in str(found)
    ann.get("search", 400, query="")


def test_nothing_is_erased_that_was_not_shown_before(mine: Page) -> None:
    for number in range(2):
        mine.say(f"Tell me about the number {number}", session="s")
    nodes = mine.get("session", session="s")["nodes"]
    first, last = nodes[0]["id"], nodes[2]["id"]
    dry = mine.post("forget", session="s", ids=[first])
    assert (dry["messages"], dry["shown"]) == (1, [{"id": first, "role": "user", "text": "Tell me about the number 0"}])
    assert [one["text"] for one in dry["stay"]] == ["Noted."], "the reply may repeat it"
    for other in ({"ids": [last]}, {"ids": [first, last]}, {"whole": True}):
        stale = mine.post("forget", 409, session="s", **other, confirmation=dry["confirmation"])
        assert stale["error"]["code"] == "stale_confirmation"
    for wrong in ("yes", dry["confirmation"][:-1], dry["confirmation"] + "0"):
        mine.post("forget", 409, session="s", ids=[first], confirmation=wrong)
    assert len(mine.get("session", session="s")["nodes"]) == 4
    done = mine.post("forget", session="s", ids=[first], confirmation=dry["confirmation"])
    assert done == {"erased": 1, "scrubbed": True, "reason": None}
    assert first not in [node.get("id") for node in mine.get("session", session="s")["nodes"]]
    mine.post("forget", 404, session="s", ids=[first])


def test_a_session_to_which_something_was_added_since_is_not_erased(mine: Page) -> None:
    mine.say("Hello", session="s")
    dry = mine.post("forget", session="s", whole=True)
    mine.say("One more thing", session="s")
    mine.post("forget", 409, session="s", whole=True, confirmation=dry["confirmation"])
    assert len(mine.get("session", session="s")["nodes"]) == 4
    again = mine.post("forget", session="s", whole=True)
    assert mine.post("forget", session="s", whole=True, confirmation=again["confirmation"])["erased"] == 4
    assert mine.get("sessions")["sessions"] == []
    assert mine.get("requests")["requests"] == []


def test_a_confirmation_is_for_one_user(pages: Callable[..., Page]) -> None:
    ann, ben = pages(ANN), pages(BEN)
    for page in (ann, ben):
        page.say("Hello", "Noted.", "Hello again", session="s")
    dry = ann.post("forget", session="s", whole=True)
    ben.post("forget", 409, session="s", whole=True, confirmation=dry["confirmation"])
    assert len(ben.get("session", session="s")["nodes"]) == 4


def test_a_report_that_shows_a_forgotten_message_is_dropped(mine: Page, store: Store) -> None:
    """Also if another program erases it."""
    mine.say("My code is 4471", session="s")
    mine.say("What is my code?", session="s")
    mine.say("Hello", session="other")
    id = mine.get("session", session="s")["nodes"][0]["id"]
    numbers = [one["number"] for one in mine.get("requests")["requests"]]
    with InfiniteMemory(store, session_id="s") as memory:
        memory.forget(ids=[id])
    mine.get("request", 404, number=numbers[1])
    assert [one["session"] for one in mine.get("requests")["requests"]] == ["other"]
    assert "4471" not in str(mine.get("session", session="s"))


WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"session": "s"},
    {"session": "s", "ids": []},
    {"session": "s", "ids": [1]},
    {"session": "s", "ids": "x"},
    {"session": "s", "ids": ["x"] * 201},
    {"session": "s", "ids": ["x"], "whole": True},
    {"session": "s", "whole": 1},
    {"session": 1, "whole": True},
    {"session": "s" * 300, "whole": True},
    {"session": "s", "whole": True, "confirmation": 1},
)


def test_a_change_of_another_form_is_refused(mine: Page) -> None:
    for body in WRONG:
        mine.post("forget", 400, **body)
    mine.post("forget", 413, session="s", ids=["x" * 70_000])


def test_the_log_names_no_session_and_does_not_fill_with_polls(mine: Page, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shared_core.doors.openai_proxy.access")
    mine.get("requests")
    mine.get("session", 404, session="secret")
    mine.get("requests", 400, after="x")
    mine.client.get(PAGE)
    until(lambda: len(caplog.records) == 3)
    lines = [record.getMessage().rsplit(" ", 2)[0] for record in caplog.records]
    assert lines == ["GET /inspector/api/* 404", "GET /inspector/api/* 400", "GET / 200"]
