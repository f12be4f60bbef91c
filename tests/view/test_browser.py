"""The page in a real browser: what is to be seen, and what keys and clicks do."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from shared_core.doors.view import gather
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.hits import Kind
from tests.view.browser import Tab, browsing, needs_browser, quiet
from tests.view.pages import NOON, Written

pytestmark = pytest.mark.browser

SETTINGS: dict[str, Any] = {"embedder": "words", "recall": "thorough", "max_tokens": 300, "reserve_tokens": 100}
LONG = 10_000
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """The page of one browser for all of these tests."""
    needs_browser()
    with browsing(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A chat of 40 exchanges with a branch beside it from the 38th on."""
    folder = tmp_path_factory.mktemp("talk")
    with InfiniteMemory(folder / "chat.db", **SETTINGS) as memory:
        memory.add(Message.system("Be short.", id="sys", created_at=NOON))
        for number in range(40):
            if number == 38:
                memory.fork("side")
                memory.add(Message.user("is amber 0 fine?", id="s0", created_at=NOON))
                memory.add(Message.assistant("yes", id="s1", created_at=NOON))
                memory.checkout("main")
            word = WORDS[number % len(WORDS)]
            memory.add(
                [
                    Message.user(f"tell me of {word} {number}", id=f"q{number}", created_at=NOON),
                    Message.assistant(f"{word} {number} is fine", id=f"a{number}", created_at=NOON),
                ]
            )
    data = gather(folder / "chat.db", questions=2, **SETTINGS)
    return Written(folder / "page.html", data)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A chat of 10,000 messages on many branches."""
    folder = tmp_path_factory.mktemp("long")
    with InfiniteMemory(folder / "chat.db", embedder="words") as memory:
        for part in range(20):
            if part == 1:
                for number in range(45):
                    memory.fork(f"twig {number}")
                memory.checkout("main")
            if part % 4 == 2:
                memory.fork(f"side {part}")
            if part % 4 == 3:
                memory.checkout("main")
            first = part * LONG // 20
            memory.add(
                [
                    (Message.assistant if number % 2 else Message.user)(
                        f"{WORDS[number % 7]} {number}", id=f"m{number}", created_at=NOON + timedelta(minutes=number)
                    )
                    for number in range(first, first + LONG // 20)
                ]
            )
    return Written(folder / "page.html", gather(folder / "chat.db", questions=0, embedder="words"))


def active(tab: Tab) -> str | None:
    """The id of the selected message, which must be in sight."""
    seen: dict[str, Any] = tab.run(
        "(() => { const id = document.getElementById('list').getAttribute('aria-activedescendant');"
        "const row = document.getElementById(id), box = document.getElementById('scroller').getBoundingClientRect();"
        "const at = row.getBoundingClientRect();"
        "const chosen = [...document.querySelectorAll('[aria-selected=true]')].map((each) => each.id);"
        "return {id, chosen, inside: at.top >= box.top - 1 && at.bottom <= box.bottom + 1}; })()"
    )
    assert seen["inside"], "the selected message is out of sight"
    assert seen["chosen"] == [seen["id"]]
    return tab.run(f"JSON.parse(document.getElementById('data').textContent).nodes[{seen['id'][4:]}].id")  # type: ignore[no-any-return]


def focused(tab: Tab) -> str:
    return str(tab.run("document.activeElement.id || document.activeElement.textContent"))


def shown(tab: Tab) -> str:
    return str(tab.run("document.getElementById('message').textContent"))


def seen(tab: Tab, id: str) -> bool:
    return bool(tab.run(f"document.getElementById('{id}').checkVisibility()"))


def texts(tab: Tab, selector: str) -> list[str]:
    found: list[str] = tab.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)"
    )
    return found


def test_the_page_opens_on_an_overview(tab: Tab, talk: Written) -> None:
    tab.open(talk.path)
    assert [seen(tab, id) for id in ("overview", "list", "message", "branches", "only")] == [True, *[False] * 4]
    assert texts(tab, "[aria-current=page]") == ["Overview"]
    assert texts(tab, "#session") == ["tell me of amber 0"]
    assert tab.run("document.title") == "tell me of amber 0 \N{EN DASH} infinite-memory"
    facts = ["session default", "83 messages", "2 branches", "41 questions", "4 May 2026 (UTC)"]
    assert texts(tab, "#counts > *") == facts
    assert texts(tab, "#overview h2") == ["The tree", "What was said when", "What recall found last"]
    assert texts(tab, ".names .chip") == ["main", "side"]
    assert texts(tab, ".names .quiet") == ["81 messages", "2 messages"]
    assert texts(tab, ".sitting > *") == ["4 May 12:00", "tell me of amber 0", "83 messages"]
    nodes, question = talk.data["nodes"], talk.row("s0")
    assert texts(tab, ".opening .asked") == [nodes[question]["text"]]
    assert texts(tab, ".opening blockquote")[0] == nodes[talk.row("a0")]["text"]
    assert texts(tab, ".opening .reply") == [nodes[talk.row("s1")]["text"]]
    pieces = "[...document.querySelectorAll('.opening .bar span')].map((piece) => Number(piece.dataset.tokens))"
    assert sum(tab.run(pieces)) == talk.data["reports"][str(question)]["total_tokens"]
    quiet(tab, talk.path)


def test_keys_walk_through_the_messages(tab: Tab, talk: Written) -> None:
    tab.open_messages(talk.path, height=600)
    ids = [node["id"] for node in talk.data["nodes"]]
    tab.run("document.getElementById('list').focus()")
    for key, expected in [
        ("Home", ids[0]), ("ArrowUp", ids[0]), ("ArrowDown", ids[1]), ("End", ids[-1]), ("ArrowDown", ids[-1]),
        ("ArrowUp", ids[-2]), ("Home", ids[0]),
    ]:  # fmt: skip
        tab.key(key)
        assert active(tab) == expected
    tab.key("PageDown")
    leap = ids.index(str(active(tab)))
    assert leap > 3
    tab.key("PageDown")
    assert active(tab) == ids[2 * leap]
    tab.key("PageUp", "PageUp")
    assert active(tab) == ids[0]
    tab.key("End", "Enter")
    assert focused(tab) == "message"
    tab.key("Escape")
    assert focused(tab) == "list"
    assert active(tab) == ids[-1]
    quiet(tab, talk.path)


def test_a_search_filters_and_leads_back(tab: Tab, talk: Written) -> None:
    tab.open_messages(talk.path)
    tab.run("document.getElementById('list').focus()")
    tab.key("/")
    assert focused(tab) == "search"
    tab.type("CEDAR 2")
    assert tab.run("[...document.querySelectorAll('.row mark')].map((mark) => mark.textContent)") == ["cedar 2"] * 4
    assert tab.run("document.getElementById('found').textContent") == "4 of 83 messages"
    tab.key("Enter")
    assert (focused(tab), active(tab)) == ("list", "q2")
    tab.key("End")
    assert active(tab) == "a23"
    tab.key("/", "Escape")
    assert (focused(tab), active(tab)) == ("list", "a23")
    assert tab.run("document.getElementById('found').textContent") == "83 messages"
    tab.key("/")
    tab.type("nowhere")
    assert not tab.run("document.getElementById('none').hidden")
    assert tab.run("document.querySelectorAll('.row').length") <= 1
    tab.open_messages(talk.path)
    tab.click("#only")
    assert tab.run("document.getElementById('found').textContent") == "41 of 83 messages"
    quiet(tab, talk.path)


def test_the_budget_bar_and_its_lines_add_up(tab: Tab, talk: Written) -> None:
    for row, report in talk.data["reports"].items():
        tab.open(talk.path, f"#{talk.data['nodes'][int(row)]['id']}")
        assert active(tab) == talk.data["nodes"][int(row)]["id"]
        pieces = tab.run(
            "[...document.querySelectorAll('#message .bar span')].map((piece) => [piece.className.slice(2),"
            "Number(piece.dataset.tokens), piece.style.width])"
        )
        totals = dict(zip([kind.value for kind in Kind], report["totals"], strict=True))
        assert {kind: tokens for kind, tokens, _ in pieces} == {kind: n for kind, n in totals.items() if n}
        assert sum(tokens for _, tokens, _ in pieces) == report["total_tokens"]
        assert sum(float(width.rstrip("%")) for *_, width in pieces) == pytest.approx(
            100 * report["total_tokens"] / report["budget"], abs=0.01
        )
        tab.run("document.querySelectorAll('#message details').forEach((group) => { group.open = true; })")
        tab.settle()
        costs = tab.run(
            "[...document.querySelectorAll('.card:has(.sum) details:not(.bands)')].map((group) => ["
            "group.querySelector('.dot').className,"
            "[...group.querySelectorAll('.cost')].reduce((sum, cost) => sum + Number(cost.textContent), 0)])"
        )
        assert {kind.partition("k-")[2]: n for kind, n in costs if "k-" in kind} == {
            k: n for k, n in totals.items() if n
        }
        stripes = tab.run("[...document.querySelectorAll('.row.sent')].map((row) => Number(row.dataset.row))")
        sent = {cells[0] for cells in report["lines"] if cells[2]}
        there = tab.run("[...document.querySelectorAll('.row')].map((row) => Number(row.dataset.row))")
        assert set(stripes) == sent & set(there)
    quiet(tab, talk.path)


def test_of_a_long_chat_only_what_is_in_sight_is_in_the_page(tab: Tab, long: Written) -> None:
    tab.open_messages(long.path, height=900)
    assert len(long.data["nodes"]) == LONG
    most = tab.run(
        "(async () => { const scroller = document.getElementById('scroller'); let most = [0, 0], seen = new Set();"
        "for (let at = 0; at < scroller.scrollHeight; at += 30000) { scroller.scrollTop = at;"
        "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
        "const rows = document.querySelectorAll('.row'); for (const row of rows) seen.add(row.id);"
        "most = [Math.max(most[0], rows.length), Math.max(most[1], document.querySelectorAll('*').length)]; }"
        "return [...most, seen.size]; })()"
    )
    assert most[0] <= 900 // 38 + 2 * 8 + 3
    assert most[1] <= 600
    tab.run("document.getElementById('list').focus()")
    tab.key("End")
    assert active(tab) == f"m{LONG - 1}"
    tab.key("Home")
    assert active(tab) == "m0"
    tab.key("/")
    tab.type("amber 7777")
    assert tab.run("document.getElementById('found').textContent") == "1 of 10,000 messages"
    quiet(tab, long.path)


def test_on_a_narrow_screen_one_thing_is_shown_at_a_time(tab: Tab, talk: Written) -> None:
    tab.open_messages(talk.path, width=360, height=640)
    assert (seen(tab, "list"), seen(tab, "message")) == (True, False)
    assert tab.run("document.documentElement.scrollWidth") <= 360
    tab.click(f"#row-{talk.row('q39')}")
    assert (seen(tab, "list"), seen(tab, "message"), focused(tab)) == (False, True, "message")
    assert tab.run("document.documentElement.scrollWidth") <= 360
    tab.click(".back")
    assert (seen(tab, "list"), seen(tab, "message"), focused(tab)) == (True, False, "list")
    assert active(tab) == "q39"
    size = "Number.parseFloat(getComputedStyle(document.querySelector('.row .who')).fontSize)"
    assert tab.run(size) < tab.run(size.replace(".who", ".text"))
    tab.open(talk.path, width=360, height=640)
    assert tab.run("document.documentElement.scrollWidth") <= 360
    cards = "[...document.querySelectorAll('#overview .card')].map((card) => card.getBoundingClientRect())"
    assert tab.run(f"{cards}.every((card, n, all) => !n || card.top >= all[n - 1].bottom)")
    tab.click(".opening .open")
    assert (seen(tab, "list"), seen(tab, "message"), focused(tab)) == (False, True, "message")
    quiet(tab, talk.path)
