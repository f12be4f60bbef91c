"""A client of the proxy under load: it asks, is cut off now and then, asks again, and notes what was acknowledged.

Every message holds a mark that names the client: `[[q 3 17]]` is the question of client 3 in its step 17, `[[r …]]` the
result of a tool, and `[[a 3 17 905]]` an answer to that step, the 905th of the model.
"""

import http.client
import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

USERS = 8
EVERYBODY = "token-for-everybody-0123456789"
INTRUDER = 1_000
"""What is added to the number of a client that asks for a conversation of another one's name, as another user."""

OWNER = re.compile(r"\[\[\w (\d+) |call-(\d+)-")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
TOPICS = ("garden", "bicycle", "locker", "passport", "recipe", "piano", "invoice", "umbrella", "harbour", "telescope")


def token_of(user: str) -> str:
    """Return the token of a user."""
    return f"token-of-{user}-0123456789"


def tokens_file() -> str:
    """Return the file of all tokens."""
    users = [f"user-{number}" for number in range(USERS)]
    return "".join(f"{user} {token_of(user)}\n" for user in users) + f"* {EVERYBODY}\n"


def user_of(number: int) -> str:
    """Return the user whom a client belongs to."""
    return f"user-{number % USERS}"


@dataclass(frozen=True)
class Note:
    """An exchange that was acknowledged.

    Attributes:
        sent: the message that was new in it.
        answer: the answer.
        took: seconds.
        streamed: whether it came in pieces.
    """

    sent: Mapping[str, Any]
    answer: Mapping[str, Any]
    took: float
    streamed: bool


def notes_in(path: Path) -> list[Note]:
    """Return what a client noted; the last line may have been cut off."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [Note(**json.loads(line)) for line in lines]


class CutOffError(Exception):
    """A request was not answered to its end."""


class ProxyClient:
    """A client with a conversation of its own.

    Args:
        port: of the server.
        folder: where it notes what was acknowledged, in `NUMBER.notes`; a successor goes on from there. A file `stop`
            ends it early.
        number: its number. It decides its user, and whether it names its conversation and sends only what is new
            (0 of 3), names it and sends its whole history (1), or only sends its history (2).
        turns: how many questions it asks. Every fifth one is answered with a call of a tool first.
    """

    def __init__(self, port: int, folder: Path, number: int, turns: int) -> None:
        self._port, self._number, self._turns = port, number, turns
        self._path, self._stop = folder / f"{number}.notes", folder / "stop"
        self._chance = random.Random(f"{number} {os.getpid()}")
        self.user, self.session = user_of(number), f"talk-{number}"
        self._connection: http.client.HTTPConnection | None = None
        self._again = True  # a predecessor may have asked the first question

    def run(self) -> None:
        """Ask all questions that are not answered yet."""
        notes = notes_in(self._path)
        history = [message for note in notes for message in (note.sent, note.answer)]
        with self._path.open("ab", buffering=0) as file:
            while (sent := self._next(history)) is not None:
                note = self._until_answered(history, sent)
                file.write(json.dumps(vars(note)).encode() + b"\n")
                history += [note.sent, note.answer]
        self._hang_up()

    def _next(self, history: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        step = len(history) // 2
        if history and history[-1].get("tool_calls"):
            call = history[-1]["tool_calls"][0]["id"]
            return {"role": "tool", "tool_call_id": call, "content": f"[[r {self._number} {step}]] found"}
        asked = sum(message["role"] == "user" for message in history)
        if asked == self._turns or self._stop.exists():
            return None
        topic = TOPICS[asked % len(TOPICS)]
        return {"role": "user", "content": f"[[q {self._number} {step}]] Where is the {topic} of turn {asked}?"}

    def _until_answered(self, history: Sequence[Mapping[str, Any]], sent: Mapping[str, Any]) -> Note:
        only_new = self._number % 3 == 0
        asked = sum(message["role"] == "user" for message in history)
        body: dict[str, Any] = {"model": "m", "messages": [sent] if only_new else [*history, sent]}
        body |= {"stream": self._chance.random() < 0.6} | ({"tools": [TOOL]} if asked % 5 == 4 else {})
        while True:
            self._intrude(body)
            began = time.perf_counter()
            try:
                answer = self._asked(body)
            except (CutOffError, OSError, http.client.HTTPException):
                self._hang_up()
                self._again = True
                time.sleep(0.02)
            else:
                self._again = False
                return Note(sent, answer, time.perf_counter() - began, body["stream"])

    def _headers(self) -> dict[str, str]:
        headers = {"authorization": f"Bearer {token_of(self.user)}"}
        if self._number % 8 == 7:  # a program that serves many users
            headers = {"authorization": f"Bearer {EVERYBODY}", "x-user-id": self.user}
        if self._again:
            headers["x-stainless-retry-count"] = "1"
        return headers | ({} if self._number % 3 == 2 else {"x-session-id": self.session})

    def _send(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        sent = json.dumps(body).encode()
        self._connection.request("POST", "/v1/chat/completions", sent, {"content-type": "application/json", **headers})
        return self._connection.getresponse()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, body: Mapping[str, Any]) -> dict[str, Any]:
        response = self._send(body, self._headers())
        if response.status in (502, 503):
            response.read()
            raise CutOffError
        assert response.status == 200, (response.status, response.read())
        if not body["stream"]:
            answer: dict[str, Any] = json.loads(response.read())["choices"][0]["message"]
            return answer
        enough = self._chance.randint(1, 8) if self._chance.random() < 0.08 else None
        return self._streamed(response, enough)

    def _streamed(self, response: http.client.HTTPResponse, enough: int | None) -> dict[str, Any]:
        """Read a streamed answer; go away after `enough` events."""
        answer: dict[str, Any] = {"role": "assistant", "content": ""}
        for number, data in enumerate(_events(response)):
            if number == enough:
                raise CutOffError
            if data == "[DONE]":
                response.read()
                return answer if answer["content"] or "tool_calls" not in answer else answer | {"content": None}
            chunk = json.loads(data)
            if "error" in chunk:
                raise CutOffError
            delta = chunk["choices"][0]["delta"]
            answer["content"] += delta.get("content") or ""
            if "tool_calls" in delta:
                answer["tool_calls"] = [{key: value for key, value in delta["tool_calls"][0].items() if key != "index"}]
        raise CutOffError

    def _intrude(self, body: Mapping[str, Any]) -> None:
        """Now and then, ask without a token, with a wrong one, or with that of another user."""
        if self._chance.random() > 0.04:
            return
        other = token_of(user_of(self._number + 1))
        named = {"x-session-id": self.session}
        ways = [
            (401, named), (401, {**named, "authorization": f"Bearer {other}x"}),
            (403, {**named, "authorization": f"Bearer {other}", "x-user-id": self.user}),
            (200, {**named, "authorization": f"Bearer {other}"}),
        ]  # fmt: skip
        expected, headers = self._chance.choice(ways)
        if expected == 200:
            said = f"[[q {INTRUDER + self._number} {time.monotonic_ns()}]] What was said before?"
            body = {"messages": [{"role": "user", "content": said}], "stream": False}
        try:
            response = self._send(body, headers)
            got = response.read().decode()
        except (OSError, http.client.HTTPException):
            self._hang_up()
            return
        assert response.status in (expected, 502, 503), (response.status, got)
        if expected != 200:
            assert not re.search(r"\[\[|user-\d|token-of", got), got


def _events(response: http.client.HTTPResponse) -> Iterator[str]:
    while line := response.readline():
        if line.startswith(b"data: "):
            yield line[6:].strip().decode()


def work(port: int, folder: Path, numbers: Sequence[int], turns: int) -> None:
    """Let some clients ask at a time: what a process does."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            ProxyClient(port, folder, number, turns).run()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [Thread(target=run, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        with (folder / "complaints").open("a", encoding="utf-8") as file:
            file.write(f"{failed!r}\n")
        raise SystemExit(1)
