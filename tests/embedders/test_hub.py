"""An embedder's name is looked up here first, then the hub is asked once; a wrong name fails at once."""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from shared_core import InfiniteMemory
from shared_core.errors import EmbedderError, MissingExtraError, installed
from shared_core.plugins.embedders import as_embedder, hub

constants = pytest.importorskip("huggingface_hub.constants")


class Hub(BaseHTTPRequestHandler):
    """Knows `org/model`, answers nothing about `org/slow` until it is told to, and keeps what it was asked."""

    asked: ClassVar[list[str]] = []
    released: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/"):  # the client asks for more on its own account, once per process
            self.asked.append(self.path)
        if "slow" in self.path:
            self.released.wait(30)
        known = self.path == "/api/models/org/model"
        revision = self.path.startswith("/api/models/org/model/revision/")
        body = b'{"id": "org/model", "modelId": "org/model", "siblings": []}' if known else b"{}"
        status = 200 if known else 503 if "broken" in self.path else 404
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "RevisionNotFound" if revision else "RepoNotFound")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Stand in for the hub, and return the paths that it is asked for."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    Hub.asked.clear()
    Hub.released.clear()
    yield Hub.asked
    Hub.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_name_that_the_hub_has_is_confirmed_by_one_request(asked: list[str]) -> None:
    hub.confirm("org/model")
    assert asked == ["/api/models/org/model"]


@pytest.mark.parametrize(
    ("name", "revision", "said", "requests"),
    [
        ("org/none", None, r"^embedder='org/none': neither on this machine nor on the Hugging Face hub\. Choose", 1),
        ("none", None, "neither on this machine nor on the Hugging Face hub", 1),
        ("all-MiniLM-L6", None, "Did you mean 'all-MiniLM-L6-v2'", 1),
        ("org/model", "v9", "RevisionNotFoundError", 1),
        ("org/broken", None, "the Hugging Face hub does not say that it has it", 1),
        ("./none", None, "there is no such folder", 0),
        ("a/b/c", None, "there is no such folder", 0),
        ("no model", None, "no model has such a name", 0),
    ],
)
def test_a_wrong_name_is_an_error_after_one_attempt(
    asked: list[str], name: str, revision: str | None, said: str, requests: int
) -> None:
    with pytest.raises(EmbedderError, match=said) as error:
        hub.confirm(name, revision)
    assert "'static', 'all-MiniLM-L6-v2'" in str(error.value)
    assert len(asked) == requests


def test_a_hub_that_does_not_answer_is_not_waited_for(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "SECONDS", 0.2)
    with pytest.raises(EmbedderError, match=r"0.2 s|ReadTimeout"):
        hub.confirm("org/slow")
    assert asked == ["/api/models/org/slow"]


def test_a_memory_with_a_wrong_name_is_not_made(asked: list[str]) -> None:
    if not installed("sentence_transformers"):
        pytest.skip("sentence-transformers is not installed")
    for count in (1, 2):
        with pytest.raises(EmbedderError, match="'org/none'"):
            InfiniteMemory(embedder="org/none")
        assert len(asked) == count


def test_what_needs_a_package_names_the_smaller_one_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingExtraError, match=r'"infinite-memory\[onnx\]".*"infinite-memory\[sentence-transformers\]"'
    ):
        as_embedder("all-MiniLM-L6-v2")
    with pytest.raises(MissingExtraError, match="'org/other'"):
        as_embedder("org/other")
