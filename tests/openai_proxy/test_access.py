"""Who may ask: tokens and their users, this machine and others, limits, and what the log says."""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, OpenAI

from shared_core.doors.openai_proxy.prompts import Prompts
from shared_core.doors.serving.bearer_tokens import BearerTokens
from shared_core.errors import StoreError
from shared_core.store import Store
from tests.openai_proxy.servers import ModelServer, proxied, stream, until

ANN, BEN, GATEWAY = "ann-secret-0123456789", "ben-secret-0123456789", "gateway-secret-0123456789"
TOKENS = BearerTokens({ANN: "ann", BEN: "ben", GATEWAY: "*"})
HELLO = {"model": "m", "messages": [{"role": "user", "content": "My code is 4471"}]}

Ask = Callable[..., httpx.Response]


@pytest.fixture
def guarded(store: Store) -> Iterator[tuple[Ask, ModelServer]]:
    with proxied(lambda _: "Noted.", store, tokens=TOKENS) as (url, model), httpx.Client(base_url=url) as client:

        def ask(*authorization: str, text: str = "My code is 4471", **headers: str) -> httpx.Response:
            named = [(name.replace("_", "-"), value) for name, value in headers.items()]
            named += [("authorization", value) for value in authorization]
            return client.post(
                "/chat/completions", json={"messages": [{"role": "user", "content": text}]}, headers=named
            )

        yield ask, model


def test_a_token_decides_whose_conversations_they_are(guarded: tuple[Ask, ModelServer], store: Store) -> None:
    ask, model = guarded
    for token, text in ((ANN, "My code is 4471"), (BEN, "My code is 4471"), (ANN, "What is my code?")):
        assert ask(f"Bearer {token}", text=text, x_session_id="s").status_code == 200
    assert ask(f"bearer  {GATEWAY}", x_session_id="s", x_user_id="cleo").status_code == 200
    assert [store.overview(user)[0].messages for user in ("ann", "ben", "cleo")] == [4, 2, 2]
    assert [len(body["messages"]) for body in model.bodies] == [1, 1, 3, 1]
    assert all("authorization" not in headers for headers in model.headers), "a token is for this server alone"


def test_without_the_memory_nobody_goes_on_after_what_upstream_has_stored(store: Store) -> None:
    """All users share the server's key there: a response or a conversation may be another user's."""
    given = {"model": "m", "input": "What is the code?"}
    fields: list[dict[str, Any]] = [{"previous_response_id": "resp_1"}, {"conversation": {"id": "c"}}]
    for tokens, statuses in ((TOKENS, [403, 403, 200, 200]), (None, [200, 200, 200, 200])):
        with proxied(lambda _: "Noted.", store, tokens=tokens) as (url, model):
            headers = {"authorization": f"Bearer {ANN}", "x-memory": "off"}
            bodies: list[dict[str, Any]] = [{**given, **more} for more in (*fields, {"conversation": None}, {})]
            answers = [httpx.post(f"{url}/responses", json=body, headers=headers) for body in bodies]
            assert [one.status_code for one in answers] == statuses
            assert model.bodies == [body for body, status in zip(bodies, statuses, strict=True) if status == 200]
            if tokens is not None:
                assert answers[0].json()["error"]["code"] == "memory_needed"


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", f"Basic {ANN}", ANN, f"Bearer {ANN}x", f"Bearer {ANN[:-1]}", f"Bearer {ANN}, {BEN}",
     "Bearer \u00e4\u00f6", f"Bearer {ANN.upper()}", "Bearer " + "x" * 10_000],
)  # fmt: skip
def test_without_a_known_token_nothing_is_told(
    guarded: tuple[Ask, ModelServer], store: Store, authorization: str
) -> None:
    ask, model = guarded
    raw: Any = authorization.encode("latin-1")
    refused = ask(raw, x_session_id="s", x_user_id="ann")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert "ann" not in refused.text + str(refused.headers)
    assert (model.bodies, store.sessions()) == ([], [])


def test_a_token_does_not_open_what_is_another_user_s(guarded: tuple[Ask, ModelServer], store: Store) -> None:
    ask, model = guarded
    assert ask().status_code == 401
    assert ask(f"Bearer {ANN}", x_user_id="ben").status_code == 403
    assert ask(f"Bearer {ANN}", x_openwebui_user_id="ben").status_code == 403
    assert ask(f"Bearer {GATEWAY}").status_code == 400, "the user is not named"
    assert ask(f"Bearer {ANN}", f"Bearer {BEN}").status_code == 400
    assert (model.bodies, store.sessions()) == ([], [])
    assert ask(f"Bearer {ANN}", x_user_id="ann").status_code == 200


def test_only_the_state_of_the_server_needs_no_token(store: Store) -> None:
    with (
        proxied(lambda _: "", store, tokens=TOKENS) as (url, model),
        httpx.Client(base_url=url.removesuffix("/v1")) as client,
    ):
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready"}
        for path in ("/v1/models", "/v1/models/m", "/", "/nothing", "/healthz/"):
            assert client.get(path).status_code == 401
        assert model.paths == []
        with OpenAI(base_url=url, api_key="none") as sdk, pytest.raises(AuthenticationError):
            sdk.models.list()
        with OpenAI(base_url=url, api_key=BEN) as sdk:
            assert [each.id for each in sdk.models.list()] == ["scripted"]


def test_the_server_s_own_key_goes_upstream(store: Store) -> None:
    with proxied(lambda _: "", store, key="sk-own", tokens=TOKENS) as (url, model):
        headers = {
            "authorization": f"Bearer {ANN}",
            "cookie": "a=b",
            "x-forwarded-for": "10.0.0.1",
            "openai-project": "p",
        }
        httpx.post(f"{url}/chat/completions", json=HELLO, headers=headers)
        httpx.get(f"{url}/models", headers=headers)
    for sent in model.headers:
        assert (sent["authorization"], sent["openai-project"]) == ("Bearer sk-own", "p")
        assert not {"cookie", "x-forwarded-for"} & set(sent)


def test_a_web_page_cannot_ask_with_the_browser_of_somebody_here(store: Store) -> None:
    with proxied(lambda _: "", store) as (url, _), httpx.Client(base_url=url) as client:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.1.1"):
            assert client.get("/models", headers={"host": host}).status_code == 403
        for host in ("localhost:1234", "127.0.0.1", "[::1]:80"):
            assert client.get("/models", headers={"host": host}).status_code == 200
        form = client.post("/chat/completions", content=b"{}", headers={"content-type": "text/plain"})
        assert form.status_code == 415


def test_only_pages_of_allowed_origins_may_ask(store: Store) -> None:
    own, chat, evil = "http://127.0.0.1", "https://chat.example", "https://evil.example"
    with proxied(lambda _: "Noted.", store, inspector=True) as (url, _):
        for origin in (evil, chat, "null"):
            assert httpx.post(f"{url}/chat/completions", json=HELLO, headers={"origin": origin}).status_code == 403
        assert httpx.get(f"{url}/models", headers={"origin": url.removesuffix("/v1")}).status_code == 200
        assert httpx.get(f"{url}/models", headers={"origin": own}).status_code == 403, "another port is another origin"
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-session-id"}
    with proxied(lambda _: "Noted.", store, tokens=TOKENS, inspector=True, allow_origins=[chat]) as (url, model):
        path, bearer = f"{url}/chat/completions", {"authorization": f"Bearer {ANN}"}
        let = httpx.options(path, headers={"origin": chat, **asks})
        assert (let.status_code, let.headers["access-control-allow-origin"]) == (200, chat)
        assert "x-session-id" in let.headers["access-control-allow-headers"]
        assert httpx.options(path, headers={"origin": evil, **asks}).status_code == 400
        told = httpx.post(path, json=HELLO, headers={"origin": chat, **bearer})
        assert (told.status_code, told.headers["access-control-allow-origin"]) == (200, chat)
        assert "access-control-allow-credentials" not in told.headers
        assert httpx.post(path, json=HELLO, headers={"origin": evil, **bearer}).status_code == 403
        data = f"{url.removesuffix('/v1')}/inspector/api/sessions"
        headers = {"origin": chat, "x-inspector": "1", **bearer}
        assert httpx.get(data, headers=headers).status_code == 403, "what is stored is for the inspector's own page"
        assert len(model.bodies) == 1
    for origin in ("*", "chat.example", "https://*.example", "https://chat.example/", ""):
        with pytest.raises(ValueError, match="is no origin"), proxied(lambda _: "", store, allow_origins=[origin]):
            pass


def test_more_requests_than_are_served_at_a_time_are_told_to_come_again(store: Store) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def script(_: dict[str, Any]) -> Any:
        arrived.set()
        return stream([None, "[DONE]"], wait=go_on)

    with proxied(script, store, most_requests=1) as (url, _), httpx.Client(base_url=url) as client:
        with client.stream("POST", "/chat/completions", json=HELLO | {"stream": True}):
            assert arrived.wait(20)
            full = client.get("/models")
            assert (full.status_code, full.headers["retry-after"]) == (503, "1")
            assert client.get(f"{url.removesuffix('/v1')}/healthz").status_code == 200
            go_on.set()
        until(lambda: client.get("/models").status_code == 200)


def test_a_body_that_is_too_large_or_too_slow_is_refused(store: Store) -> None:
    with (
        proxied(lambda _: "", store, most_bytes=1000, body_seconds=0.2) as (url, model),
        httpx.Client(base_url=url) as client,
    ):
        large = {**HELLO, "pad": "x" * 1000}
        assert client.post("/chat/completions", json=large).status_code == 413

        def pieces() -> Iterator[bytes]:
            for _ in range(20):
                yield b" " * 100

        json_type = {"content-type": "application/json"}
        assert client.post("/chat/completions", content=pieces(), headers=json_type).status_code == 413
        never = threading.Event()

        def slow() -> Iterator[bytes]:
            yield b"{"
            never.wait(1)
            yield b"}"

        assert client.post("/chat/completions", content=slow(), headers=json_type).status_code == 408
        assert client.post("/chat/completions", json=HELLO).status_code == 200
        assert len(model.bodies) == 1


def test_the_log_says_what_happened_and_nothing_that_was_said(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shared_core")
    with proxied(lambda _: "The answer is 4471", store) as (url, _), httpx.Client(base_url=url) as client:
        headers = {"x-session-id": "secret-session", "x-user-id": "secret-user"}
        client.post("/chat/completions?q=secret", json=HELLO, headers=headers)
        client.get("/models/secret-model")
        client.get("/secret-path%0Ainjected")
        client.post("/chat/completions", json={"messages": "secret"})
    lines = [record.getMessage() for record in caplog.records if record.name == "shared_core.doors.openai_proxy.access"]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "POST /v1/chat/completions 200", "GET /v1/models/* 404", "GET - 404", "POST /v1/chat/completions 400"
    ]  # fmt: skip
    assert "secret" not in "".join(record.getMessage() for record in caplog.records if record.name.startswith("shared"))


def test_a_failure_tells_the_client_nothing(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("what ann said")

    with proxied(lambda _: "", store) as (url, _):
        monkeypatch.setattr(store, "session", fail)
        failed = httpx.post(f"{url}/chat/completions", json=HELLO, headers={"x-session-id": "s"})
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")
    said = "".join(record.getMessage() for record in caplog.records if record.name.startswith("shared_core"))
    assert "KeyError" in said
    assert "test_access.py" in said
    assert "ann said" not in said + failed.text


def test_a_history_that_cannot_be_stored_is_named_in_the_log(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("what ann said")

    monkeypatch.setattr(Prompts, "prompt", fail)
    with proxied(lambda _: "", store) as (url, _):
        refused = httpx.post(f"{url}/chat/completions", json=HELLO)
    assert refused.status_code == 400
    said = "".join(record.getMessage() for record in caplog.records if record.name.startswith("shared_core"))
    assert "test_access.py" in said
    assert "ann said" not in said + refused.text


def test_a_store_that_cannot_be_read_is_not_ready(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("the password is x")

    with proxied(lambda _: "", store) as (url, _):
        monkeypatch.setattr(store, "sessions", fail)
        answer = httpx.get(f"{url.removesuffix('/v1')}/readyz")
    assert answer.status_code == 503
    assert "password" not in answer.text
