"""A real browser without a window, driven by its own protocol: pages, clicks, keys, and what a page did behind them."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

__all__ = ["Browser", "Tab", "browsing", "needs_browser", "quiet"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
"""The browser of this machine."""

PATIENCE = 30.0
"""Seconds to wait for the browser."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--no-first-run", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0", "--mute-audio",
)  # fmt: skip

KEYS = {
    "ArrowDown": 40, "ArrowUp": 38, "Home": 36, "End": 35, "PageDown": 34, "PageUp": 33, "Enter": 13, "Escape": 27,
    "Tab": 9, "/": 191,
}  # fmt: skip
"""Key -> its code on the keyboard."""


def needs_browser() -> str:
    """Return the browser's command; skip the test if there is none."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return CHROMIUM


class Tab:
    """One page, and a record of what it asked for, complained of and tried to pop up."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._loaded = False
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Mapping[str, Any]:
        """Have the browser do something and return its answer."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: Mapping[str, Any] = message["result"]
                return result

    def _next(self) -> Mapping[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE))
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method in {"Runtime.consoleAPICalled", "Log.entryAdded"}:
            self.complaints.append(json.dumps(params))
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            self._number += 1
            close = {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}}
            self._socket.send(json.dumps(close))
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, path: Path, fragment: str = "", *, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Open a file and wait until it is drawn."""
        for record in (self.requests, self.complaints, self.dialogs):
            record.clear()
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.visit(path.as_uri() + fragment)
        self.settle()

    def open_messages(self, path: Path, **how: Any) -> None:
        """Open a file and go from its overview to its messages."""
        self.open(path, **how)
        self.run("document.getElementById('to-messages').click()")
        self.settle()

    def visit(self, address: str) -> None:
        """Load a page anew and wait until all of it is there."""
        for url in ("about:blank", address):  # from elsewhere, since another fragment alone loads nothing
            self._loaded = False
            self.call("Page.navigate", url=url)
            while not self._loaded:
                self._next()
        self.requests = [url for url in self.requests if url != "about:blank"]

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        how = {"returnByValue": True, "awaitPromise": True, "allowUnsafeEvalBlockedByCSP": False}
        answer = self.call("Runtime.evaluate", expression=expression, **how)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until the page has drawn twice."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def key(self, *names: str) -> None:
        """Press keys, one after the other."""
        for name in names:
            text = {"text": "\r"} if name == "Enter" else {"text": name} if len(name) == 1 else {}
            event = {"key": name, "code": name, "windowsVirtualKeyCode": KEYS.get(name, 0), **text}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        self.settle()

    def type(self, text: str) -> None:
        """Put text where the cursor is."""
        self.call("Input.insertText", text=text)
        self.settle()

    def click(self, selector: str) -> None:
        """Click in the middle of an element, which is scrolled into sight before."""
        where = self.run(
            f"(() => {{ const element = document.querySelector({json.dumps(selector)});"
            "element.scrollIntoView({block: 'nearest'}); const at = element.getBoundingClientRect();"
            "return {x: at.x + at.width / 2, y: at.y + at.height / 2}; })()"
        )
        for event in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=event, button="left", clickCount=1, **where)
        self.settle()


class Browser:
    """A browser that runs, found through the file in which it says where it listens."""

    def __init__(self, profile: Path) -> None:
        said = profile / "DevToolsActivePort"
        limit = time.monotonic() + PATIENCE
        while not (said.exists() and said.read_text().count("\n")):
            assert time.monotonic() < limit, "the browser does not start"
            time.sleep(0.02)
        port, path = said.read_text().split()
        self._address = f"ws://127.0.0.1:{port}"
        with connect(self._address + path, max_size=None) as socket:
            socket.send(json.dumps({"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
            self._target = json.loads(socket.recv(timeout=PATIENCE))["result"]["targetId"]

    @contextmanager
    def tab(self) -> Iterator[Tab]:
        """Give the page of this browser."""
        with connect(f"{self._address}/devtools/page/{self._target}", max_size=None) as socket:
            yield Tab(socket)


@contextmanager
def browsing(profile: Path) -> Iterator[Tab]:
    """Start a browser with an empty profile, and give its page."""
    command = [needs_browser(), *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Browser(profile).tab() as tab:
            yield tab
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def quiet(tab: Tab, path: Path) -> None:
    """Assert that a page asked for nothing but itself, complained of nothing and popped nothing up."""
    assert {url.partition("#")[0] for url in tab.requests} == {path.as_uri()}
    assert tab.complaints == []
    assert tab.dialogs == []
