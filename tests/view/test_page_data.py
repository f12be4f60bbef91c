"""The data of the page against the verbs of the engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared_core.doors.view import gather, page, write_page
from shared_core.errors import BudgetError, StoreError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Grounding, GroundingItem, Message, ToolCall
from shared_core.prompt.hits import Kind
from shared_core.stores import SQLiteStore
from tests.view.pages import NOON, SETTINGS, store_a_tree


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A session with all that a tree may have."""
    store_a_tree(tmp_path / "chat.db")
    return tmp_path / "chat.db"


def row_of(data: dict[str, Any], id: str) -> int:
    return next(row for row, node in enumerate(data["nodes"]) if node.get("id") == id)


def path_of(data: dict[str, Any], head: int) -> set[int]:
    seen: set[int] = set()
    waiting = [head]
    while waiting:
        row = waiting.pop()
        if row not in seen:
            seen.add(row)
            waiting += data["nodes"][row]["parents"]
    return seen


def test_the_tree_is_that_of_the_log(store: Path) -> None:
    data = gather(store, questions=0, **SETTINGS)
    with InfiniteMemory(store, **SETTINGS) as memory:
        log = memory.log(1_000)[::-1]
        rows = {entry.position: row for row, entry in enumerate(log)}
        assert [node.get("id") for node in data["nodes"]] == [entry.message and entry.message.id for entry in log]
        assert [node["parents"] for node in data["nodes"]] == [[rows[at] for at in entry.parents] for entry in log]
        assert [node.get("branches", []) for node in data["nodes"]] == [list(entry.branches) for entry in log]
        assert [node.get("tags", []) for node in data["nodes"]] == [list(entry.tags) for entry in log]
        for branch in data["branches"]:
            memory.checkout(branch["name"])
            path = {data["nodes"][row].get("id") for row in path_of(data, branch["row"])}
            assert path - {None} == {message.id for message in memory.messages()}
    assert {node["role"] for node in data["nodes"]} == {"system", "user", "assistant", "merge"}
    assert data["reports"] == {}


def test_a_message_is_there_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    call = ToolCall(id="c1", name="look", arguments='{"at": 1}')
    items = (GroundingItem(text="best", score=0.5), GroundingItem(text="good", score=float("nan")))  # JSON has no NaN
    passages = Grounding(items=items, header="From the book:")
    with InfiniteMemory(tmp_path / "a.db", **SETTINGS) as memory:
        memory.add(
            [
                Message.user("where?", id="q", name="ann", created_at=NOON, grounding=passages, pinned=True),
                Message.assistant("", id="c", created_at=NOON, tool_calls=(call,), media_tokens=7),
                Message.tool("there", "c1", id="t", created_at=NOON),
            ]
        )
        counted = {message.id: memory._count(message) for message in memory.messages()}
    common = {"at": NOON.isoformat(), "turn": "q", "lane": 0, "owner": 0}
    assert gather(tmp_path / "a.db", questions=0, **SETTINGS)["nodes"] == [
        {
            "role": "user", "text": "where?", "id": "q", "name": "ann", "tokens": counted["q"], "pinned": True,
            "grounding": {"items": ({"text": "best", "score": 0.5}, {"text": "good"}), "header": "From the book:"},
            "parents": [], **common,
        },
        {
            "role": "assistant", "text": "", "id": "c", "tokens": counted["c"], "calls": [call.model_dump()],
            "media": 7, "parents": [0], **common,
        },
        {
            "role": "tool", "text": "there", "id": "t", "tokens": counted["t"], "answers": "c1", "branches": ["main"],
            "parents": [1], **common,
        },
    ]  # fmt: skip


def test_copies_summaries_and_stashes_say_what_they_come_from(store: Path) -> None:
    data = gather(store, questions=0, **SETTINGS)
    with InfiniteMemory(store, **SETTINGS) as memory:
        for row, node in enumerate(data["nodes"]):
            if "id" in node and node["role"] == "assistant":
                sources = [data["nodes"][source]["id"] for source in node.get("sums", [])]
                picked = [node["picked_from"]] if "picked_from" in node else []
                assert list(memory.sources(node["id"])) == picked + sources, row
        (stash,) = memory.stashes()
    assert data["stashes"] == [
        {
            "number": 0, "branch": "main", "note": "for later", "at": stash.at.isoformat(),
            "rows": [row_of(data, "q-white"), row_of(data, "a-white")],
        }
    ]  # fmt: skip
    assert sum("sums" in node for node in data["nodes"]) == 1
    assert sum("picked_from" in node for node in data["nodes"]) == 2


def test_a_report_is_that_of_the_question_where_it_was_asked(store: Path) -> None:
    data = gather(store, questions=None, **SETTINGS)
    asked = [row for row, node in enumerate(data["nodes"]) if node["role"] == "user"]
    assert [int(row) for row in data["reports"]] == asked
    with InfiniteMemory(store, **SETTINGS) as memory:
        for row in asked:
            memory.checkout(data["nodes"][row]["id"])
            report = memory.context().report
            shown = data["reports"][str(row)]
            assert shown["totals"] == [report.totals[kind] for kind in Kind]
            assert (shown["budget"], shown["reserve"], shown["total_tokens"]) == (100, 20, report.total_tokens)
            assert [unfolded(data, cells) for cells in shown["lines"]] == [
                (line.id, line.kind, line.included, line.why, line.tokens, line.left) for line in report.lines
            ]
            assert shown["total_tokens"] == sum(cells[4] for cells in shown["lines"] if cells[2])


def unfolded(data: dict[str, Any], cells: list[Any]) -> tuple[Any, ...]:
    row, kind, included, reason, tokens, left, *_ = cells
    id = None if row is None else data["nodes"][row]["id"]
    return id, Kind(data["kinds"][kind]), bool(included), data["reasons"][reason], tokens, left


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_newest_questions_of_each_branch_have_a_report(store: Path, count: int) -> None:
    data = gather(store, questions=count, **SETTINGS)
    wanted: set[int] = set()
    for branch in data["branches"]:
        on = [row for row in sorted(path_of(data, branch["row"])) if data["nodes"][row]["role"] == "user"]
        wanted.update(on[max(0, len(on) - count) :])
    assert [int(row) for row in data["reports"]] == sorted(wanted)


def test_a_prompt_that_cannot_be_built_says_why(store: Path) -> None:
    settings = SETTINGS | {"max_tokens": 40}
    data = gather(store, questions=None, **settings)
    with InfiniteMemory(store, **settings) as memory:
        for row, report in data["reports"].items():
            memory.checkout(data["nodes"][int(row)]["id"])
            with pytest.raises(BudgetError) as error:
                memory.context()
            assert report == {"error": str(error.value)}


def test_a_message_of_another_session_brings_its_words(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    for session, text in (("old", "The zebra sleeps in the attic."), ("new", "Where does the zebra sleep?")):
        with InfiniteMemory(path, user_id="u", session_id=session, **SETTINGS) as memory:
            memory.add(Message.user(text))
    settings = SETTINGS | {"scope": "user", "max_tokens": 2_000}
    data = gather(path, user_id="u", session_id="new", **settings)
    strangers = [cells for cells in data["reports"]["0"]["lines"] if cells[0] is None]
    assert "The zebra sleeps in the attic." in [cells[10] for cells in strangers]


def test_looking_changes_nothing(store: Path) -> None:
    def all_there_is() -> tuple[Any, ...]:
        with InfiniteMemory(store, **SETTINGS) as memory:
            stats = {name: value for name, value in memory.stats().items() if name != "bytes"}
            return stats, memory.log(1_000), memory.reflog(), memory.stashes()

    before = all_there_is()
    with InfiniteMemory(store, **SETTINGS) as memory:
        memory.checkout("side")
        data = gather(store, **SETTINGS)
        assert memory.branch == "side"
    assert all_there_is() == before
    assert gather(store, **SETTINGS) == data
    assert page(data) == page(gather(store, **SETTINGS))


def test_messages_forgotten_during_the_call_are_not_shown(store: Path) -> None:
    calls: list[tuple[int, int]] = []

    def forgetting(done: int, total: int) -> None:
        calls.append((done, total))
        if len(calls) == 1:
            with InfiniteMemory(store, **SETTINGS) as memory:
                memory.forget(ids=["q-yellow"])

    data = gather(store, questions=1, progress=forgetting, **SETTINGS)
    assert "yellow now" not in json.dumps(data)
    assert calls[-1] == (len(data["reports"]), len(data["reports"]))
    assert len(calls) == 2 * len(data["reports"])


def test_a_session_in_which_nothing_was_said_has_a_page(tmp_path: Path) -> None:
    store = SQLiteStore(":memory:")
    store.create_session("u", "empty")
    data = gather(store, session_id="empty", user_id="u")
    assert (data["nodes"], data["reports"], data["branches"]) == ([], {}, [{"name": "main", "row": None}])
    assert write_page(store, tmp_path / "empty.html", session_id="empty", user_id="u").exists()
    store.close()


def test_a_store_or_a_session_that_is_not_there(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownReferenceError, match=r"'x'.*'default'") as error:
        gather(store, session_id="x")
    assert error.value.candidates == ("default",)
    with pytest.raises(UnknownReferenceError, match="'u'"):
        gather(store, user_id="u")
    with pytest.raises(StoreError):
        gather(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(ValueError, match="questions=-1"):
        gather(store, questions=-1)
