"""Nothing that was said can run in the page, in a real browser."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shared_core.doors.view import gather
from shared_core.memory import InfiniteMemory
from shared_core.messages import Grounding, Message, ToolCall
from tests.view.browser import Tab, browsing, needs_browser, quiet
from tests.view.pages import Written

pytestmark = pytest.mark.browser

SETTINGS: dict[str, Any] = {"embedder": "words", "max_tokens": 300, "reserve_tokens": 100}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page of one browser for all of these tests."""
    needs_browser()
    with browsing(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


SCRIPT = "<script>window.__hacked = 1</script>"
EVENT = '"><img src=x onerror="window.__hacked = 2; alert(2)"><svg onload=alert(3)>'
NASTY = (
    f"</script>{SCRIPT}<!--<script>{EVENT}{{{{script}}}}{{{{data}}}}\u2028\u2029\x01\u202e&lt;b&gt;javascript:alert(4)"
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A chat in which everything that has a name or a text tries to become part of the page."""
    folder = tmp_path_factory.mktemp("hostile")
    names: dict[str, Any] = {"session_id": f"s{NASTY}", "user_id": f"u{NASTY}"}
    passage = Grounding.of(NASTY, header=EVENT, footer=SCRIPT)
    with InfiniteMemory(folder / "chat.db", **names, **SETTINGS) as memory:
        memory.add(
            [
                Message.user(NASTY, id=f"id{NASTY}", name="javascript:alert(1)", grounding=passage),
                Message.assistant(
                    EVENT, id="__proto__", tool_calls=(ToolCall(id=EVENT, name=SCRIPT, arguments=NASTY),)
                ),
                Message.tool('{"__proto__": {"x": 1}}', EVENT, id="constructor", name=EVENT),
                Message.assistant("half \ud83d", id="toString"),
            ]
        )
        memory.tag(f"tag{NASTY}")
        memory.fork(f"branch{NASTY}")
        memory.add([Message.user(SCRIPT, id="x1"), Message.assistant(EVENT, id="x2")])
        memory.checkout("main")
        memory.merge(f"branch{NASTY}", "squash", prompt=EVENT, summarizer=lambda *_: NASTY)
        memory.merge(f"branch{NASTY}")
        memory.add([Message.user(EVENT, id="hasOwnProperty"), Message.assistant(SCRIPT)])
        memory.cherry_pick(["x1"])
        memory.stash(note=NASTY)
    return Written(folder / "page.html", gather(folder / "chat.db", questions=None, **names, **SETTINGS))


def test_nothing_that_was_said_runs(tab: Tab, hostile: Written) -> None:
    tab.open(hostile.path)
    assert tab.run("document.getElementById('session').textContent").startswith("</script><script>window.__hacked")
    assert tab.run("document.querySelector('#counts b').textContent") == f"u{NASTY} / s{NASTY}"
    assert tab.run("document.querySelectorAll('#overview .card').length") == 3
    tab.open_messages(hostile.path)
    tab.run("document.getElementById('list').focus()")
    tab.key("Home")
    for number, node in enumerate(hostile.data["nodes"]):
        if number:
            tab.key("ArrowDown")
        tab.run("document.querySelectorAll('details').forEach((group) => { group.open = true; })")
        tab.settle()
        if node.get("text"):
            wanted = json.dumps(node["text"])
            assert tab.run(f"document.querySelector('.said').textContent === {wanted}")
        if node.get("id"):
            assert tab.run(f"document.querySelector('.facts dd').textContent === {json.dumps(node['id'])}")
    tab.key("/")
    tab.type("<img")
    names = tab.run("[...document.querySelectorAll('#branches button')].map((chip) => chip.textContent)")
    assert names == [branch["name"] for branch in hostile.data["branches"]]
    kinds = set(tab.run("[...document.querySelectorAll('*')].map((element) => element.tagName.toLowerCase())"))
    assert not kinds & {"img", "a", "iframe", "object", "embed", "form", "link"}
    assert tab.run("document.scripts.length") == 2
    assert tab.run("typeof window.__hacked") == "undefined"
    assert not tab.run(
        "[...document.querySelectorAll('*')].some((e) => [...e.attributes].some((a) => /^on/.test(a.name)))"
    )
    assert tab.run("document.title").startswith("</script><script>window.__hacked")
    quiet(tab, hostile.path)


TRIES = {
    "const it = document.createElement('script'); it.append('__hacked = 5'); document.body.append(it);": None,
    "document.body.insertAdjacentHTML('beforeend', '<b onclick=1>')": "TypeError",
    "eval('__hacked = 6')": "EvalError",
}


@pytest.mark.parametrize("code", TRIES)
def test_a_script_that_got_in_all_the_same_is_stopped(tab: Tab, hostile: Written, code: str) -> None:
    tab.open(hostile.path)
    assert tab.run(f"(() => {{ try {{ {code} }} catch (error) {{ return error.name; }} }})()") == TRIES[code]
    assert tab.run("typeof window.__hacked") == "undefined"
    assert tab.complaints, "the browser says what it refused"
