"""The inspector in a real browser: what it shows, what it changes, and that nothing that was said runs in it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shared_core.doors.serving.bearer_tokens import BearerTokens
from tests.openai_proxy.servers import proxied, until
from tests.view.browser import Tab, browsing, needs_browser

pytestmark = pytest.mark.browser

ANN, GATEWAY = "ann-secret-0123456789", "gateway-secret-0123456789"
SETTINGS: dict[str, Any] = {"max_tokens": 400, "reserve_tokens": 100}
NASTY = '</script><img src=x onerror="alert(1)"><b>bold</b> is the code'


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page of one browser for all of these tests."""
    needs_browser()
    with browsing(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def server() -> Iterator[str]:
    """A server without tokens, on which something was said."""
    needs_browser()
    with proxied(lambda _: "Noted.", settings=SETTINGS, inspector=True) as (url, _):
        root = url.removesuffix("/v1")
        for session, text in (("trip", "We sail to Norway"), ("home", NASTY), ("home", "What is the code?")):
            say(root, session, text)
        yield root


def say(root: str, session: str, text: str, token: str | None = None, user: str | None = None) -> None:
    headers = {"x-session-id": session} | ({"authorization": f"Bearer {token}"} if token else {})
    headers |= {"x-user-id": user} if user else {}
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    assert httpx.post(f"{root}/v1/chat/completions", json=body, headers=headers, timeout=60).status_code == 200


def visit(tab: Tab, root: str, fragment: str = "", *, width: int = 1280) -> None:
    """Open the page, as somebody who was never here."""
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    tab.call("Emulation.setDeviceMetricsOverride", **metrics)
    tab.visit(root)
    tab.run("sessionStorage.clear()")
    for record in (tab.requests, tab.complaints, tab.dialogs):
        record.clear()
    tab.visit(f"{root}/{fragment}")


def shown(tab: Tab, selector: str = "body") -> str:
    return str(tab.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.innerText).join('|')"))


def sees(tab: Tab, text: str, selector: str = "body") -> None:
    """Wait until something is to be seen."""
    until(lambda: text in shown(tab, selector))


def press(tab: Tab, name: str) -> None:
    """Click the button or link with a text that is to be seen."""
    named = f"one.innerText.trim() === {json.dumps(name)} && one.checkVisibility()"
    found = f"[...document.querySelectorAll('button, a')].find((one) => {named})"
    until(lambda: bool(tab.run(f"!!{found}")))
    tab.run(f"{found}.setAttribute('data-pressed', '')")
    tab.click("[data-pressed]")
    tab.run("document.querySelector('[data-pressed]')?.removeAttribute('data-pressed')")


def quiet(tab: Tab, root: str) -> None:
    """Assert that the page asked this server alone, and neither complained nor popped anything up."""
    assert [url for url in tab.requests if not url.startswith((f"{root}/", "data:"))] == []
    assert (tab.complaints, tab.dialogs) == ([], [])


def test_what_was_said_is_shown_as_text(tab: Tab, server: str) -> None:
    visit(tab, server)
    sees(tab, NASTY, ".entry .head")
    assert len(shown(tab, ".entries li .head").split("|")) == 2
    press(tab, "Requests")
    sees(tab, "What is the code?", ".panel h2")
    sees(tab, NASTY, ".entry .head")
    press(tab, "Open the session here")
    sees(tab, NASTY, "#list")
    assert tab.run("document.querySelectorAll('#stage img, #stage b > script').length") == 0
    quiet(tab, server)


def test_a_request_and_its_report_appear_as_they_happen(tab: Tab, server: str) -> None:
    visit(tab, server, "#/requests")
    sees(tab, "3 requests")
    say(server, "trip", "Which boat do we take?")
    sees(tab, "Which boat do we take?", ".entry")
    sees(tab, "Which boat do we take?", ".panel h2")
    assert "We sail to Norway" in shown(tab, ".entries")
    assert "of 300 tokens" in shown(tab, ".panel")
    quiet(tab, server)


def test_a_message_is_erased_after_it_was_shown(tab: Tab, server: str) -> None:
    visit(tab, server, "#/session/trip")
    press(tab, "Messages")
    press(tab, "Erase this message")
    sees(tab, "Erase 1 message for good", "#dialog")
    assert "We sail to Norway" in shown(tab, "#dialog")
    assert tab.run("document.activeElement.innerText") == "Cancel"
    tab.key("Escape")
    assert not tab.run("document.getElementById('dialog').open")
    press(tab, "Erase this message")
    press(tab, "Erase 1 message for good")
    sees(tab, "1 message", "#counts")
    assert "Norway" not in shown(tab)
    press(tab, "Sessions")
    sees(tab, "2 sessions")
    assert "Norway" not in shown(tab)
    quiet(tab, server)


def test_what_came_in_while_it_was_shown_is_shown_before_it_is_erased(tab: Tab, server: str) -> None:
    visit(tab, server, "#/session/trip")
    press(tab, "Erase this session")
    sees(tab, "Erase 2 messages for good", "#dialog")
    say(server, "trip", "Which boat do we take?")
    tab.run("document.querySelector('.danger').click()")
    sees(tab, "Erase 4 messages for good", "#dialog")
    assert "Nothing was erased" in shown(tab, "#dialog .warn")
    tab.complaints.clear()  # the browser's own line on the response 409
    press(tab, "Erase 4 messages for good")
    sees(tab, "1 session.")
    assert shown(tab, ".entry .head") == NASTY
    quiet(tab, server)


def test_nothing_is_asked_for_before_there_is_a_token(tab: Tab) -> None:
    tokens = BearerTokens({ANN: "ann", GATEWAY: "*"})
    with proxied(lambda _: "Noted.", settings=SETTINGS, tokens=tokens, inspector=True) as (url, _):
        root = url.removesuffix("/v1")
        say(root, "s", "I am Ann", ANN)
        say(root, "s", "I am Zoe", GATEWAY, "zoe")
        visit(tab, root)
        sees(tab, "Token")
        assert tab.requests == [f"{root}/", *(one for one in tab.requests if one.startswith("data:"))]
        quiet(tab, root)
        tab.type("wrong")
        tab.key("Enter")
        sees(tab, "This token is unknown.", ".warn")
        tab.complaints.clear()  # the browser's own line on the response 401
        tab.type(ANN)
        tab.key("Enter")
        sees(tab, "I am Ann", ".entry")
        tab.visit(f"{root}/#/requests")  # as long as the tab is open
        sees(tab, "I am Ann", ".panel h2")
        assert ANN not in "".join([*tab.requests, tab.run("document.cookie + JSON.stringify(localStorage)")])
        press(tab, "Sign out")
        sees(tab, "Token")
        assert "I am Ann" not in shown(tab)
        assert tab.run("sessionStorage.length") == 0
        tab.type(GATEWAY)
        tab.key("Enter")
        sees(tab, "Whose sessions")
        tab.type("zoe")
        tab.key("Enter")
        sees(tab, "I am Zoe", ".entry")
        quiet(tab, root)
