"""Open WebUI, driven in a browser, and aider through the server: what they show is what is stored, user by user.

`make clients-large` installs both in environments of their own, in a folder which CHAT_PROGRAMS names, and runs this.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from shared_core import SessionPool
from shared_core.stores import SQLiteStore
from tests.openai_proxy.servers import Script, proxied

DRIVER = Path(__file__).parent / "clients" / "open_webui.py"
PORT = 8_791
ANSWER, EDITED = "Answer 7", "Answer 7, and bring boots."

ANN = [
    ["say", "My locker code is 4471."],
    ["say", "I plan a trip to Norway in June."],
    ["say", "What should I pack?"],
    ["regenerate"],
    ["say", "My sister is called Ida."],
    ["edit", "I plan a trip to Norway in June.", "I plan a trip to Iceland in May."],
    ["say", "How long is the flight?"],
    ["say", "I like hiking."],
    ["edit", ANSWER, EDITED],
    ["say", "And museums?"],
    ["say", "What is my locker code?"],
]
BEN = [["say", "My bike lock opens with 9911."], ["say", "What is my locker code?"]]


@pytest.fixture
def programs() -> Path:
    """The folder in which the programs are installed."""
    if "CHAT_PROGRAMS" not in os.environ:
        pytest.skip("needs other environments: `make clients-large`")
    return Path(os.environ["CHAT_PROGRAMS"]).absolute()


def thinker() -> Script:
    """Return a model that thinks aloud before its answers, which it numbers, and that writes titles."""
    numbers = count(1)

    def answer(body: dict[str, Any]) -> str:
        if body["messages"][-1]["content"].lstrip().startswith("### Task"):
            return json.dumps({"title": "A title", "tags": [], "follow_ups": []})
        return f"<think>Hm, {len(body['messages'])}.</think>\n\nAnswer {next(numbers)}"

    return answer


@contextmanager
def open_webui(program: Path, folder: Path, base_url: str) -> Iterator[str]:
    """Start Open WebUI with one connection, to a base URL, and yield its address."""
    settings = {
        "DATA_DIR": str(folder), "OPENAI_API_BASE_URL": base_url, "OPENAI_API_KEY": "none", "WEBUI_SECRET_KEY": "test",
        "ENABLE_FORWARD_USER_INFO_HEADERS": "true", "ENABLE_OLLAMA_API": "false", "OFFLINE_MODE": "true",
        "RAG_EMBEDDING_ENGINE": "openai", "DEFAULT_USER_ROLE": "user", "BYPASS_MODEL_ACCESS_CONTROL": "true",
        "ENABLE_SIGNUP": "true",
    }  # fmt: skip
    url = f"http://127.0.0.1:{PORT}"
    with (folder / "log.txt").open("wb") as log:
        command = [str(program), "serve", "--host", "127.0.0.1", "--port", str(PORT)]
        server = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
        try:
            wait_for(f"{url}/health")
            yield url
        finally:
            server.terminate()
            server.wait(30)


def wait_for(url: str) -> None:
    for _ in range(240):
        try:
            urlopen(url, timeout=5).close()
        except (URLError, ConnectionError):
            time.sleep(0.5)
        else:
            return
    raise AssertionError(f"{url} does not answer")


def account(name: str) -> dict[str, str]:
    return {"name": name, "email": f"{name.lower()}@example.org", "password": "correct horse battery staple"}


def asked(url: str, body: dict[str, str], token: str = "") -> Any:
    """Return what an address answers to a body."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    with urlopen(Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)


def driven(python: Path, url: str, name: str, steps: Any) -> dict[str, str]:
    """Return what Open WebUI shows to somebody after these steps."""
    person = account(name)
    command = [str(python), str(DRIVER), url, person["email"], person["password"]]
    done = subprocess.run(command, input=json.dumps(steps), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown: dict[str, str] = json.loads(done.stdout)
    return shown


def told(shown: str) -> list[str]:
    """Return what Open WebUI shows of questions and answers."""
    return [
        line for line in shown.splitlines() if line in {step[-1] for step in ANN + BEN} or line.startswith("Answer")
    ]


def stored(pool: SessionPool, user_id: str | None) -> tuple[list[str], int]:
    """Return what the only conversation of a user says on main, without what the model thought, and its branches."""
    (session,) = pool.sessions(user_id)
    with pool.use(session.session_id, user_id) as memory:
        said = [
            message.content.split("</think>")[-1].strip() for message in memory.messages() if message.role != "system"
        ]
        return said, len(memory.branches())


def test_open_webui(programs: Path, tmp_path: Path) -> None:
    bin_folder, store = programs / "open-webui" / "bin", SQLiteStore(tmp_path / "chat.db")
    with (
        proxied(thinker(), store, settings={"max_tokens": 32_000}) as (base_url, model),
        open_webui(bin_folder / "open-webui", tmp_path, base_url) as url,
    ):
        administrator = asked(f"{url}/api/v1/auths/signup", account("Ann"))
        other = asked(f"{url}/api/v1/auths/add", account("Ben") | {"role": "user"}, administrator["token"])
        ann, ben = (driven(bin_folder / "python", url, name, steps) for name, steps in (("Ann", ANN), ("Ben", BEN)))
    assert ann["title"] == ben["title"] == "A title / Open WebUI"
    pool = SessionPool(store)
    said, branches = stored(pool, administrator["id"])
    # Open WebUI shows the newest turns, and more when one scrolls. An edited answer is stored as the model gave it.
    assert [text.replace(EDITED, ANSWER) for text in told(ann["shown"])] == said[-len(told(ann["shown"])) :]
    assert branches == 3, "the other answer and the edited question left a branch each"
    assert stored(pool, other["id"]) == (told(ben["shown"]), 1)
    to_ben = json.dumps([body["messages"] for body in model.bodies if "9911" in json.dumps(body)])
    assert "4471" not in to_ben
    to_ann = [body["messages"] for body in model.bodies if "museums" in json.dumps(body)]
    assert EDITED in json.dumps(to_ann[0]), "the model sees the answer as it was edited"


def test_aider(programs: Path, tmp_path: Path) -> None:
    store, said = SQLiteStore(tmp_path / "chat.db"), ["My locker code is 4471.", "I go to Norway.", "What is my code?"]
    with proxied(thinker(), store, settings={"max_tokens": 32_000}) as (base_url, model):
        command = [
            str(programs / "aider" / "bin" / "aider"), "--model", "openai/scripted", "--chat-mode", "ask", "--no-git",
            "--yes-always", "--no-pretty", "--no-analytics", "--no-check-update", "--no-show-model-warnings",
        ]  # fmt: skip
        environment = {"OPENAI_API_BASE": base_url, "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | environment, input="\n".join([*said, "/exit", ""]), text=True,
            capture_output=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Answer 3" in done.stdout
    assert len(model.bodies) == len(said)
    # Aider reminds the model of the language behind the newest question, and leaves that out when it sends it again.
    told, branches = stored(SessionPool(store), None)
    questions = [text.partition("\n")[0] for text in told[2::2]]
    assert (questions, told[3::2], branches) == (said, ["Answer 1", "Answer 2", "Answer 3"], 1)
