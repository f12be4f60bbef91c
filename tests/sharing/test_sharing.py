"""Exported sessions: what the file holds, what another store makes of it, and what is said of a damaged one."""

import hashlib
import json
import os
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from shared_core import (
    InfiniteMemory,
    Message,
    StoreError,
    UnknownReferenceError,
    export_sessions,
    import_sessions,
)
from shared_core.errors import InputFileError
from shared_core.messages import Grounding, GroundingItem, Payload, ToolCall
from shared_core.queries import After
from shared_core.records import ALL
from shared_core.sharing import format as jsonl
from shared_core.sharing.format import parse, read_line, schema
from shared_core.sharing.readers import FORMATS
from shared_core.sharing.redact import Redact, drop_grounding, drop_tool_results, replace_names
from shared_core.stores import SQLiteStore
from shared_core.testing.hashing_embedder import HashingEmbedder
from shared_core.testing.oracle import draft
from tests.support.documents import ROOT
from tests.support.histories import NOON, history, ids, texts

Lines = list[dict[str, Any]]

EVERYTHING = [
    Message.system("Be brief.", id="s", created_at=NOON),
    Message.user(
        "Bob, where? \ud800 \x00 שלום",
        id="u",
        name="Ann",
        created_at=NOON,
        grounding=Grounding(items=(GroundingItem(text="of Ann", score=0.1 + 0.2),), header="h", footer="f"),
    ),
    Message.assistant(id="a", created_at=NOON, tool_calls=(ToolCall(id="c", name="look", arguments='{"who":"Ann"}'),)),
    Message.tool("a secret", "c", id="t", created_at=NOON, payload=Payload(format="x/1", data={"a": [1, 2.5, None]})),
    Message.assistant("There, Ann.", id="b", created_at=NOON, pinned=True, media_tokens=7),
]


@pytest.fixture
def memory() -> Iterator[InfiniteMemory]:
    with InfiniteMemory(session_id="from", embedder=HashingEmbedder(4)) as memory:
        memory.add(EVERYTHING)
        yield memory


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chat.jsonl"


def lines_of(file: Path) -> Lines:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def write(file: Path, lines: Sequence[dict[str, Any] | bytes], *, sessions: int = 1) -> Path:
    """Write a file with a header and an end that fit what is between."""
    header = {"format": "infinite-memory", "version": 1, "type": "header", "sessions": sessions, "messages": 1}
    data = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in [header, *lines])
    messages = sum(isinstance(line, dict) and line.get("type") == "message" for line in lines)
    end = {"type": "end", "lines": len(lines) + 1, "messages": messages, "sha256": hashlib.sha256(data).hexdigest()}
    file.write_bytes(data + json.dumps(end).encode() + b"\n")
    return file


SESSION = {"type": "session", "session_id": "x"}
ZERO = {"type": "segment", "segment": 0, "tip": 2}
MAIN: dict[str, Any] = {"type": "branch", "name": "main", "at": [0, -1]}


def said(id_: str, depth: int = 0, number: int = 0, **fields: Any) -> dict[str, Any]:
    about = {"role": "user", "content": f"text of {id_}", "created_at": NOON.isoformat(), "turn_no": 0}
    return {"type": "message", "id": id_, "at": [number, depth], **about, **fields}


# What is in a file


def test_a_file_says_all_there_is(memory: InfiniteMemory, file: Path) -> None:
    assert memory.export(file) == 5
    header, session, segment, *rest, branch, head, end = lines_of(file)
    assert header == {"format": "infinite-memory", "version": 1, "type": "header", "sessions": 1, "messages": 5}
    assert session == {"type": "session", "session_id": "from"}
    assert segment == {"type": "segment", "segment": 0, "tip": 4}
    assert branch == {"type": "branch", "name": "main", "at": [0, 4]}
    assert head == {"type": "head", "branch": "main"}
    assert (end["type"], end["lines"], end["messages"]) == ("end", 10, 5)
    assert [(line["id"], line["at"], line.get("turn_id"), line["turn_no"]) for line in rest] == [
        ("s", [0, 0], None, -1),
        ("u", [0, 1], None, 0),
        ("a", [0, 2], "u", 0),
        ("t", [0, 3], "u", 0),
        ("b", [0, 4], "u", 0),
    ]
    with InfiniteMemory(session_id="to") as other:
        result = other.import_file(file)
        assert (result.format, result.session_id, result.new, result.created) == ("infinite-memory", "to", 5, True)
        assert list(other.messages()) == list(memory.messages())
        assert other.context("where?", reserve_tokens=0).messages == memory.context("where?", reserve_tokens=0).messages


def test_every_line_is_as_the_schema_says(memory: InfiniteMemory, file: Path) -> None:
    memory.index()
    memory.fork("side", at="u")
    memory.add([Message.user("q"), Message.assistant("r")])
    memory.checkout("main")
    memory.merge("side", "squash")
    memory.add(Message.user("x"))
    memory.merge("side", "full")
    memory.tag("t")
    memory.add(Message.user("y", id="y"))
    memory.stash()
    memory.forget(ids=["b"])
    memory.export(file, vectors=True)
    shipped = json.loads(Path(jsonl.__file__).with_name("schema.json").read_text(encoding="utf-8"))
    assert shipped == schema(), "write it anew with shared_core.sharing.format.schema()"
    kinds = set()
    for data in file.read_bytes().splitlines():
        kinds.add(read_line(parse(data)).type)
    assert kinds == {
        "header", "session", "forgotten", "segment", "message", "branch", "ref", "head", "end",
    }  # fmt: skip
    validator = Draft202012Validator(shipped)
    for line in lines_of(file):
        validator.validate(line)


def test_vectors_of_a_file_are_not_buried_under_those_of_another_embedder(tmp_path: Path) -> None:
    with InfiniteMemory(embedder=HashingEmbedder()) as memory:
        memory.add(history(5))
        memory.index()
        memory.export(tmp_path / "a.jsonl", vectors=True)
    with closing(SQLiteStore(":memory:")) as store, InfiniteMemory(store) as memory:
        memory.add(history(3))
        memory.search("item1")
        memory.import_file(tmp_path / "a.jsonl")
        memory.add(Message.user("more"))
        assert store.spaces(store.session(None, "default") or 0) == ["hashing/64"]


def test_a_message_that_came_alone_stays_so(tmp_path: Path) -> None:
    with closing(SQLiteStore(":memory:")) as store, closing(SQLiteStore(":memory:")) as other:
        key = store.create_session(None, "default")
        store.append(key, "main", [replace(draft("u1"), alone=True), draft("u2")])
        export_sessions(store, tmp_path / "a.jsonl")
        import_sessions(other, tmp_path / "a.jsonl")
        assert [one.alone for one in other.find(other.session(None, "default") or 0, After(0, ALL))] == [True, False]


def test_numbers_that_json_has_no_form_for_come_back(file: Path) -> None:
    found = Grounding(items=tuple(GroundingItem(text="t", score=float(score)) for score in ("nan", "inf", "-inf", 1)))
    odd = [
        Message.user("a", id="a", grounding=found, payload=Payload(format="x", data={"$json": "1", "a": 1})),
        Message.user("b", id="b", payload=Payload(format="x", data=[float("nan"), {"x": float("inf")}])),
        Message.user("c", id="c", payload=Payload(format="x", data={"$json": "1"})),
    ]
    with InfiniteMemory() as memory, InfiniteMemory() as other:
        memory.add(odd)
        memory.export(file)
        assert b"NaN," not in file.read_bytes().replace(b'"NaN"', b"").replace(b"[NaN", b"")
        other.import_file(file)
        assert repr(list(other.messages())) == repr(list(memory.messages()))


def test_vectors_need_not_be_made_again(memory: InfiniteMemory, file: Path) -> None:
    memory.index()
    memory.export(file, vectors=True)
    embedder = HashingEmbedder(4)
    with InfiniteMemory(embedder=embedder) as other:
        other.import_file(file)
        other.index()
        assert embedder.documents == []
        assert other.stats()["embedders"] == memory.stats()["embedders"] != []
    with pytest.raises(ValueError, match="a text can be guessed from its vector"):
        memory.export(file, vectors=True, redact=drop_grounding)


def test_nothing_is_exported_of_nothing(file: Path) -> None:
    with InfiniteMemory() as memory, pytest.raises(UnknownReferenceError):
        memory.export(file)
    with InfiniteMemory() as memory, pytest.raises(ValueError, match=r"'jsonl'.*'markdown'"):
        memory.export(file, format="pdf")  # type: ignore[arg-type]


# What is not told


RULES: list[tuple[list[Redact], list[str], list[str]]] = [
    ([drop_grounding], ["of Ann"], ["a secret", "There, Ann."]),
    ([drop_tool_results], ["a secret"], ["of Ann", "look"]),
    ([replace_names({"Ann": "Eve", "Bob": "Joe"})], ["Ann", "Bob"], ["Joe, where?", "There, Eve.", "a secret"]),
    ([drop_grounding, drop_tool_results, replace_names({"Ann": "E"})], ["Ann", "a secret", "of "], ["There, E."]),
    ([replace_names({})], [], ["There, Ann."]),
    ([lambda message: None if message.role == "tool" else message], ["a secret"], ["There, Ann."]),
]


def test_names_are_replaced_in_the_short_form_of_a_passage_too() -> None:
    passage = GroundingItem(text="Ann lives in Porto.", score=0.5, brief="of Ann")
    told = replace_names({"Ann": "E"})(Message.user("where?", grounding=Grounding(items=(passage,))))
    assert told is not None
    assert told.grounding is not None
    assert told.grounding.items == (GroundingItem(text="E lives in Porto.", score=0.5, brief="of E"),)


def test_what_is_not_to_be_told_is_not_in_the_file(memory: InfiniteMemory, file: Path) -> None:
    memory.set_title("A title that tells")
    for rules, hidden, kept in RULES:
        for path in (file, file.with_suffix(".md")):
            memory.export(path, redact=rules)
            text = path.read_text(encoding="utf-8")
            assert not [word for word in (*hidden, "A title") if word in text]
            assert [word for word in kept if word in text] == kept or path.suffix == ".md"
        with InfiniteMemory() as other:
            other.import_file(file)
            assert [message.id for message in other.messages()] in (["s", "u", "a", "t", "b"], ["s", "u", "a", "b"])
            other.export(file.with_name("again.jsonl"))
            assert lines_of(file)[2:-3] == lines_of(file.with_name("again.jsonl"))[2:-3]


def test_a_name_is_replaced_however_it_is_written() -> None:
    for text, expected in (
        ("Ann, Anna and ann", "E, Anna and ann"),
        ("田中さんとAnnさん", "TさんとEさん"),
        ('{"to": "Jos\\u00E9", "Ann": ["Ann", 1]}', '{"to": "J", "E": ["E", 1]}'),
        ('{"to":  "Ann"}', '{"to":  "E"}'),
        ('{"to": "Ann', '{"to": "E'),
        ("[" * 2_000 + "Ann", "[" * 2_000 + "E"),
    ):
        call = ToolCall(id="c", name="f", arguments=text)
        told = replace_names({"Ann": "E", "José": "J", "田中": "T"})(Message.assistant(text, tool_calls=[call]))
        assert told is not None
        assert told.tool_calls[0].arguments == expected
        assert told.content == expected or "\\" in text


def test_a_rule_may_not_change_what_a_message_is_known_by(memory: InfiniteMemory, file: Path) -> None:
    with pytest.raises(ValueError, match="'s'"):
        memory.export(file, redact=lambda message: message.replace(id="z"))
    assert not file.exists()


# Writing


def test_a_file_appears_whole_or_not_at_all(memory: InfiniteMemory, file: Path, tmp_path: Path) -> None:
    file.write_text("old")
    file.chmod(0o644)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        memory.export(file, progress=stop)
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["chat.jsonl"])
    seen: list[tuple[int, int]] = []
    memory.export(file, progress=lambda done, total: seen.append((done, total)))
    assert (seen[0], seen[-1], len(lines_of(file))) == ((1, 5), (5, 5), 11)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    memory.export(tmp_path / "new.jsonl")
    assert stat.S_IMODE((tmp_path / "new.jsonl").stat().st_mode) == 0o600
    for bad in (tmp_path / "no" / "x.jsonl", tmp_path, "nul\0.jsonl"):
        with pytest.raises(StoreError):
            memory.export(bad)


def test_an_export_never_replaces_a_database(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        memory.add(EVERYTHING)
        ways: list[Callable[[Path], object]] = [
            memory.export, partial(memory.export, format="markdown"), partial(export_sessions, tmp_path / "chat.db"),
        ]  # fmt: skip
        for end in ("", "-wal", "-shm", "-journal"):
            for write in ways:
                with pytest.raises(StoreError):
                    write(tmp_path / f"chat.db{end}")
            with pytest.raises(InputFileError):
                memory.import_file(tmp_path / f"chat.db{end}")
    with InfiniteMemory(tmp_path / "chat.db") as memory:
        assert ids(memory.messages()) == ids(EVERYTHING)


def test_a_full_disk_is_said_and_leaves_what_was_there(memory: InfiniteMemory, file: Path) -> None:
    resource = pytest.importorskip("resource")
    memory.add(Message.user("a" * 100_000))
    file.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        for format in ("jsonl", "markdown"):
            with pytest.raises(StoreError, match=r"chat.jsonl' cannot be written: .* check the disk space"):
                memory.export(file, format=format)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert [(path.name, path.read_text()) for path in file.parent.iterdir()] == [("chat.jsonl", "old")]


def test_messages_forgotten_during_the_call_are_not_written(memory: InfiniteMemory, file: Path) -> None:
    def forget(done: int, total: int) -> None:
        if done == 5 == total:
            memory.forget(ids=["b"])

    assert memory.export(file, progress=forget) == 4
    assert b"There, Ann." not in file.read_bytes()

    def always(done: int, total: int) -> None:
        memory.forget(ids=[memory.add(Message.user("x"))[0].id or ""])

    with pytest.raises(StoreError, match="forgotten during all 5 attempts"):
        memory.export(file, progress=always)


def test_markdown_cannot_be_broken_out_of(memory: InfiniteMemory, tmp_path: Path) -> None:
    memory.add(Message.user("```\n# no heading\n````", name="*Al*\n# x", created_at=NOON))
    assert memory.export(tmp_path / "chat.md") == 6
    text = (tmp_path / "chat.md").read_text(encoding="utf-8")
    assert text.startswith("# from\n\n## system, 2024-05-01 12:00\n\n```text\nBe brief.\n```\n")
    assert text.endswith("\n## user (\\*Al\\* \\# x), 2024-05-01 12:00\n\n`````text\n```\n# no heading\n````\n`````\n")
    assert '\nCalls look:\n\n```json\n{"who":"Ann"}\n```\n' in text
    assert "\nFound for it:\n\n```text\nh\n\nof Ann\n\nf\n```\n" in text
    memory.export(tmp_path / "chat.txt", format="markdown")
    assert (tmp_path / "chat.txt").read_text(encoding="utf-8") == text
    memory.export(tmp_path / "odd.md", format="jsonl")
    assert len(lines_of(tmp_path / "odd.md")) == 12


# Importing into what is there


def test_other_content_under_a_known_id_gets_another_id(file: Path) -> None:
    """As a conversation does whose ids are counted, in a session that has another one."""
    with InfiniteMemory() as memory, InfiniteMemory() as other:
        memory.add([Message.user("one", id="1"), Message.assistant("ok", id="2"), Message.user("three", id="3")])
        other.add([Message.user("uno", id="1"), Message.assistant("ok", id="2")])
        memory.export(file)
        first = other.import_file(file)
        assert (first.new, first.known, list(first.remapped), first.created) == (3, 0, ["1", "2", "3"][:2], False)
        assert dict(first.branches) == {"main": "imported/main"}
        assert texts(other.messages()) == ["uno", "ok"]
        again = other.import_file(file)
        assert (again.new, again.known, again.remapped) == (0, 3, first.remapped)
        memory.add(Message.assistant("four", id="4"))
        memory.export(file)
        assert (other.import_file(file).new, texts(other.messages())) == (1, ["uno", "ok"])
        other.checkout("imported/main")
        assert texts(other.messages()) == ["one", "ok", "three", "four"]
        one, ok, three, four = other.messages()
        assert (one.turn_id, ok.turn_id, four.turn_id) == (one.id, one.id, three.id)
        assert ids([one, ok]) == list(first.remapped.values())


def test_who_stood_on_a_message_stands_there_again(file: Path) -> None:
    with InfiniteMemory() as memory, InfiniteMemory() as other:
        memory.add(history(3))
        memory.checkout("m1")
        memory.export(file)
        assert other.import_file(file).head is None
        assert (other.branch, ids(other.messages())) == (None, ["m0", "m1"])


def test_what_was_forgotten_stays_forgotten(file: Path) -> None:
    """Here, whatever a file brings; and there, whoever imports the file."""
    with InfiniteMemory() as memory, InfiniteMemory() as other, InfiniteMemory() as third:
        memory.add(history(6))
        memory.export(file)
        other.import_file(file)
        other.forget(ids=["m2"])
        result = other.import_file(file)
        assert (result.new, result.known, result.forgotten) == (0, 5, 1)
        assert ids(other.messages()) == ["m0", "m1", "m3", "m4", "m5"]
        other.export(file)
        third.import_file(file)
        assert third.add(history(3)[2:]) == []
        assert (memory.import_file(file).new, len(list(memory.messages()))) == (0, 6), "this one's past is its own"


def test_what_was_forgotten_under_another_id_stays_forgotten(file: Path) -> None:
    for gone, known in ((["o0~"], 5), (["m0"], 6), (["m0", "o0~"], 5), (["o5~"], 5)):
        with InfiniteMemory() as memory, InfiniteMemory() as other:
            memory.add(history(6))
            memory.export(file)
            other.add([message.replace(content="taken") for message in history(6)])
            there = other.import_file(file).remapped
            other.forget(ids=[there["m" + name[1]] if name.startswith("o") else name for name in gone])
            result = other.import_file(file)
            assert (result.new, result.known, result.forgotten) == (0, known, 6 - known), gone
            other.checkout("imported/main")
            assert len(list(other.messages())) == known, gone


def test_several_sessions_at_once(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    for user, session in ((None, "a"), ("ann", "a"), ("ann", "b")):
        with InfiniteMemory(path, session_id=session, user_id=user) as memory:
            memory.add(Message.user(f"{user} in {session}", id="1"))
    assert export_sessions(path, file) == 3
    new = tmp_path / "new.db"
    results = import_sessions(new, file)
    assert [(one.user_id, one.session_id, one.new) for one in results] == [
        (None, "a", 1), ("ann", "a", 1), ("ann", "b", 1),
    ]  # fmt: skip
    export_sessions(new, tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == file.read_bytes()
    export_sessions(path, file, users=["ann"])
    with InfiniteMemory() as memory:
        with pytest.raises(ValueError, match=r"'a'.*'b'"):
            memory.import_file(file)
        with pytest.raises(UnknownReferenceError, match="'z'"):
            memory.import_file(file, session="z")
        assert memory.import_file(file, session="b").new == 1
        assert texts(memory.messages()) == ["ann in b"]
    store = SQLiteStore(":memory:")
    assert [one.user_id for one in import_sessions(store, file, user_id="bob")] == ["bob", "bob"]
    assert {one.user_id for one in store.sessions()} == {"bob"}
    store.close()


def test_a_whole_tree_stands_beside_what_is_there(file: Path) -> None:
    """Merges, empty places, stashes and tags, where ids and names are taken; and nothing of it comes twice."""
    with InfiniteMemory() as memory, InfiniteMemory() as other:
        memory.add(history(4))
        memory.fork("side", at="m1")
        memory.add([Message.user("aside", id="x"), Message.user("and on", id="y")])
        memory.tag("t")
        memory.checkout("main")
        memory.merge("side", "full")
        memory.merge("side", "full")
        memory.add([Message.user("after", id="z"), Message.assistant("all", id="zz")])
        memory.stash(note="later")
        memory.fork("empty", at="z")
        memory.forget(ids=["x", "z"])
        memory.checkout("main")
        memory.export(file)
        other.add([Message.user("mine", id="m0"), Message.assistant("too", id="n")])
        other.tag("t")
        before = list(other.messages())
        result = other.import_file(file)
        assert (result.new, result.known, list(result.remapped)) == (6, 0, ["m0"])
        assert dict(result.branches) == {"main": "imported/main", "side": "side", "empty": "empty"}
        assert list(other.messages()) == before
        assert sorted(tag.name for tag in other.tags()) == ["imported/t", "t"]
        for name, here in result.branches.items():
            memory.checkout(name)
            other.checkout(here)
            assert texts(other.messages()) == texts(memory.messages())
        assert [(one.branch, one.note, len(one.ids)) for one in other.stashes()] == [("main", "later", 1)]
        other.export(file.with_name("one.jsonl"))
        again = other.import_file(file)
        assert (again.new, again.known, again.branches) == (0, 6, result.branches)
        other.export(file.with_name("two.jsonl"))
        assert file.with_name("two.jsonl").read_bytes() == file.with_name("one.jsonl").read_bytes()
        other.checkout("imported/main")
        other.stash_pop()
        assert texts(other.messages())[-1] == "all"


# What is wrong with a file

BAD: list[tuple[str, list[Any], str]] = [
    ("no session", [said("a")], "line 2 comes before the first session"),
    ("duplicate", [SESSION, ZERO, said("a"), said("a", 1)], "line 5 has the id 'a', which an earlier line has"),
    ("no segment", [SESSION, said("a")], "line 3 refers to position [0, 0], which no earlier line has"),
    ("too deep", [SESSION, ZERO, said("a", 3)], "line 4 refers to position [0, 3], which no earlier line has"),
    ("before", [SESSION, ZERO, said("a", -1)], "line 4 stands at [0, -1], where no message can"),
    ("same", [SESSION, ZERO, said("a"), said("b")], "line 5 stands at [0, 0], where no message can"),
    ("segment twice", [SESSION, ZERO, ZERO], "line 4 is a second segment 0"),
    ("loop", [SESSION, {**ZERO, "parent": [0, 0]}], "line 3 refers to position [0, 0]"),
    ("later", [SESSION, {**ZERO, "segment": 3}, {**ZERO, "parent": [3, 0]}], "line 4 grows out of segment 3"),
    ("short", [SESSION, ZERO, {"type": "segment", "segment": 1, "tip": 0, "parent": [0, 1]}], "line 4 ends before"),
    ("half a merge", [SESSION, ZERO, {**ZERO, "segment": 1, "merged": [0, 0]}], "line 4 is a merge without"),
    ("many", [SESSION, {**ZERO, "tip": 2**25}, MAIN], "line 4 ends a session with more than 16,777,216 positions"),
    ("role", [SESSION, said("a", role="robot")], "line 3 role"),
    ("turn", [SESSION, said("a", turn_no=2**40)], "line 3 turn_no"),
    ("time", [SESSION, said("a", created_at="noon")], "line 3 is invalid: Invalid isoformat string"),
    ("no time", [SESSION, ZERO, said("a", created_at=None)], "line 4 has no created_at"),
    ("number for time", [SESSION, said("a", created_at=5)], "line 3 created_at: expected ISO 8601 text"),
    ("field", [SESSION, said("a", colour="red")], "line 3 colour: Extra inputs"),
    ("kind", [SESSION, {"type": "poem"}], "line 3 this line: Input tag 'poem'"),
    ("list", [SESSION, b"[1]\n"], "line 3 is not a line of this format"),
    ("text", [SESSION, b"hello\n"], "line 3 is not JSON"),
    ("bytes", [SESSION, b'"\xff"\n'], "line 3 is not text in UTF-8"),
    ("nan", [SESSION, b'{"type":NaN}\n'], "line 3 has NaN, which is not JSON"),
    ("infinity", [SESSION, b'{"type":1e999}\n'], "line 3 has a number that is too large"),
    ("digits", [SESSION, b'{"type":' + b"9" * 5_000 + b"}\n"], "line 3 is not JSON"),
    ("deep", [SESSION, b"[" * 100_000 + b"\n"], "line 3 is nested too deeply"),
    ("nested", [SESSION, b"[" * 400 + b"]" * 400 + b"\n"], "line 3 is nested too deeply"),
    ("no branch line", [SESSION, ZERO, said("a"), {"type": "head", "branch": "x"}], "line 5 refers to the branch 'x'"),
    ("twice", [SESSION, ZERO, MAIN, MAIN], "line 5 has the name 'main', which an earlier line has"),
    ("name", [SESSION, ZERO, {**MAIN, "name": "main@{1}"}], "line 4 has the name 'main@{1}'"),
    ("late", [SESSION, ZERO, MAIN, said("a")], "line 5 comes after the branches"),
    ("covers", [SESSION, ZERO, said("a"), said("b", 1, covers=[[1, 0, 0]])], "line 5 refers to position [1, 0]"),
    ("backwards", [SESSION, ZERO, said("a"), said("b", 1, covers=[[0, 1, 0]])], "line 5 covers positions backwards"),
    ("base64", [SESSION, ZERO, said("a", vectors=[{"space": "e/4", "hash": "h", "data": "%"}])], "has a vector that"),
    ("vector", [SESSION, ZERO, said("a", vectors=[{"space": "e/4", "hash": "h", "data": "AAAA"}])], "of 3 bytes"),
    ("no number", [SESSION, ZERO, said("a", vectors=[{"space": "e/1", "hash": "h", "data": "AH4="}])], "that is NaN"),
    ("same session", [SESSION, ZERO, MAIN, SESSION, MAIN], "line 5 is a second session for 'x'"),
    ("tag", [SESSION, ZERO, {"type": "ref", "kind": "tag", "name": "t", "at": [0, 0], "created_at": "x"}], "ISO 8601"),
    ("header", [SESSION, {"format": "infinite-memory", "version": 1, "type": "header", "sessions": 1, "messages": 1}],
     "line 3 is a second header"),
]  # fmt: skip


def test_a_bad_line_is_named_and_nothing_is_stored(file: Path, subtests: pytest.Subtests) -> None:
    for number, (name, lines, expected) in enumerate(BAD):
        sessions = max(1, sum(line == SESSION for line in lines))
        write(file, lines, sessions=sessions)
        with subtests.test(name), InfiniteMemory() as memory:
            memory.add(history(number % 2 * 2))  # every other one into a session that holds something
            before = (list(memory.messages()), memory.stats(), memory.branches())
            with pytest.raises(InputFileError) as error:
                import_sessions(memory._store, file) if sessions > 1 else memory.import_file(file)
            assert str(error.value).startswith(f"{str(file)!r}, ")
            assert expected in str(error.value)
            assert "nothing was stored" in str(error.value)
            assert (list(memory.messages()), memory.stats(), memory.branches()) == before
            assert ids(memory.add(Message.user("goes on", id="on"))) == ["on"]


def test_a_file_that_breaks_off_anywhere_is_refused(memory: InfiniteMemory, file: Path) -> None:
    memory.export(file)
    whole = file.read_bytes()
    with InfiniteMemory() as other:
        for size in range(len(whole) - 1):
            if size > 40 and size % 7 and whole[size - 1 : size] != b"\n":
                continue
            file.write_bytes(whole[:size])
            with pytest.raises(InputFileError):
                other.import_file(file)
        assert other.stats()["messages"] == 0
        file.write_bytes(whole[:-1])
        assert other.import_file(file).new == 5


def test_a_file_that_was_changed_is_refused(memory: InfiniteMemory, file: Path) -> None:
    memory.export(file)
    whole = file.read_bytes()
    changes = [
        (b"Be brief.", b"Be great.", "its checksum differs"),
        (b'"messages":5,"sha256"', b'"messages":6,"sha256"', "holds 5 messages, but its end says 6"),
        (b'"lines":10', b'"lines":8', "holds 10 lines before its end, which says 8"),
        (b'"sessions":1', b'"sessions":2', "checksum differs"),
        (b'{"type":"end"', b'{"type":"head","branch":"main"}\n{"type":"end"', "holds 11 lines before its end"),
        (b'"version":1', b'"version":2', "written by a newer version of this package (format 2, not 1)"),
        (b'"version":1', b'"version":0', "line 1 "),
        (b'"version":1', b'"version":"1"', "line 1 "),
    ]
    with InfiniteMemory() as other:
        for old, new, expected in changes:
            assert old in whole
            file.write_bytes(whole.replace(old, new))
            with pytest.raises(InputFileError) as error:
                other.import_file(file)
            assert expected in str(error.value)
        file.write_bytes(whole + b'{"more":1}\n')
        with pytest.raises(InputFileError):
            other.import_file(file)
        assert other.stats()["messages"] == 0
        file.write_bytes(b"\xef\xbb\xbf" + whole + b"\n\n")
        assert other.import_file(file).new == 5


def test_a_line_has_an_end(memory: InfiniteMemory, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.export(file)
    monkeypatch.setattr("shared_core.sharing.format.MAX_LINE", 300)
    memory.add(Message.user("x" * 300, id="long"))
    with pytest.raises(StoreError, match="'long'"):
        memory.export(file)
    write(file, [SESSION, said("a", content="x" * 9_000)])
    with InfiniteMemory() as other, pytest.raises(InputFileError, match="line 3 is longer than 300 bytes"):
        other.import_file(file)


def test_every_format_is_in_the_table() -> None:
    page = (ROOT / "docs" / "import.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in FORMATS)
