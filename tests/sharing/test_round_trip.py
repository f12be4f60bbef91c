"""Export and import are exact inverses; importing again adds nothing, and false claims change nothing."""

import hashlib
import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from shared_core import InfiniteMemory, Message, StoreError
from shared_core.errors import InputFileError
from shared_core.stores import SQLiteStore
from tests.tree.test_verb_sequences import SOAK, Verbs
from tests.tree.verbs_twin import Twin


class Sharing(Verbs):
    """All verbs on branches, by somebody who moves to another store in between, and one who is kept informed."""

    @initialize()
    def begin_sharing(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name, "chat.jsonl")
        self.other = SQLiteStore(":memory:")
        self.mirror = InfiniteMemory(self.other)

    def told(self) -> bytes:
        self.twin.memory.export(self.file, vectors=True)
        return self.file.read_bytes()

    @rule()
    def move_to_another_store(self) -> None:
        twin, model = self.twin, self.twin.model
        told, old, stands = self.told(), twin.store, (model.branch, model.detached)
        twin.store = SQLiteStore(":memory:")
        twin.open()
        result = twin.memory.import_file(self.file)
        old.close()
        model.stand(*stands)
        assert (result.new, result.known) == (len(model.ids(model.nodes)), 0)
        assert (result.created, result.remapped) == (True, {})
        assert self.told() == told

    @rule()
    def import_what_is_there(self) -> None:
        told, model = self.told(), self.twin.model
        result = self.twin.memory.import_file(self.file)
        assert (result.new, result.created, result.remapped) == (0, False, {})
        assert dict(result.branches) == {name: name for name in model.branches}
        assert self.told() == told

    @rule()
    def tell_another(self) -> None:
        before = stored(self.mirror)
        model = self.twin.model
        self.twin.memory.export(self.file)
        result = self.mirror.import_file(self.file)
        here = model.ids(model.nodes)
        assert result.remapped == {}
        assert (result.new, result.known) == (len(set(here) - before), len(set(here) & before))
        assert stored(self.mirror) == {*before, *here}
        for name, node in model.branches.items():
            there = {message.id for message in at_branch(self.mirror, result.branches[name])}
            assert there.issuperset(model.ids(model.seen(node)))
        assert self.mirror.import_file(self.file).new == 0

    @rule(number=st.integers(0, 99))
    def tell_one_branch(self, number: int) -> None:
        everything, model = self.told(), self.twin.model
        name = sorted(model.branches)[number % len(model.branches)]
        said = at_branch(InfiniteMemory(self.twin.store), name)
        assert self.twin.memory.export(self.file, branch=name, vectors=True) == len(said)
        told = self.file.read_bytes()
        dangling, ids = references(told)
        assert dangling == set()
        assert ids == {message.id for message in said}
        assert {message.turn_id for message in said} & {*model.ids(model.nodes)} <= ids
        with InfiniteMemory() as other:
            assert dict(other.import_file(self.file).branches) == {name: name}
            assert list(other.messages()) == said
            assert at_branch(other, "main") == said
            other.export(self.file, branch=name, vectors=True)
            assert self.file.read_bytes() == told
        result = self.twin.memory.import_file(self.file)
        assert (result.new, result.remapped, dict(result.branches)) == (0, {}, {name: name})
        assert self.told() == everything

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.other.close()
            self.folder.cleanup()
        super().teardown()


def references(told: bytes) -> tuple[set[object], set[object]]:
    """Return what lines of a file of one branch refer to and no line has, and the ids of its messages."""
    lines = [json.loads(line) for line in told.splitlines()]
    ids = {line["id"] for line in lines if line["type"] == "message"}
    tips = {line["segment"]: line["tip"] for line in lines if line["type"] == "segment"}
    keys = ("at", "base", "parent", "merged")
    places = [line[key] for line in lines for key in keys if isinstance(line.get(key), list)]
    places += [(number, upto) for line in lines for number, _, upto in line.get("covers", ())]
    unknown: set[object] = {(number, depth) for number, depth in places if depth > tips.get(number, -2)}
    unknown |= {line["picked_from"] for line in lines if "picked_from" in line} - ids
    branches = {line["name"] for line in lines if line["type"] == "branch"}
    about = {line["name"] for line in lines if line.get("kind") in ("stash", "move")}
    forgotten = {id_ for line in lines if line["type"] == "forgotten" for id_ in line["ids"]}
    return unknown | (about - branches) | forgotten, ids


def stored(memory: InfiniteMemory) -> set[str | None]:
    return {entry.message.id for entry in memory.log(9_999) if entry.message is not None}


def at_branch(memory: InfiniteMemory, name: str) -> list[Message]:
    memory.checkout(name)
    return list(memory.messages())


TestSharing = Sharing.TestCase
TestSharing.settings = settings(
    max_examples=50 if SOAK else 4,
    stateful_step_count=1_000 if SOAK else 120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


ODD: list[object] = [
    None, 0, -1, 1, 2, 2**31 - 1, 2**31, 2**70, 1.5, "", "x", [], {}, ["x"], [0], [None], True, [[0, 0]], [["a", "b"]],
    {"a": 1}, "item1", "main", "\ud800", [["item1", "item2"]], ["item1", 0],
]  # fmt: skip


def lie(chance: random.Random, lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """Change some lines of a file: values, order, what is there twice, what is missing."""
    lines = [dict(line) for line in lines]
    for _ in range(chance.randint(1, 3)):
        one, other = (chance.randrange(1, len(lines)) for _ in range(2))
        field = chance.choice(sorted(lines[other]))
        match chance.choice(["value", "value", "value", "field", "copy", "swap", "drop"]):
            case "value":
                lines[other][field] = chance.choice(ODD)
            case "field":
                lines[one][field] = lines[other][field]
            case "copy":
                lines.insert(one, dict(lines[other]))
            case "swap":
                lines[one], lines[other] = lines[other], lines[one]
            case _:
                del lines[one]
    return lines


@pytest.mark.parametrize("seed", range(400 if SOAK else 6))
def test_a_file_that_lies_is_refused_or_harmless(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    twin = Twin(SQLiteStore(":memory:"))
    for _ in range(25):
        twin.step(chance)
    file, again = tmp_path / "chat.jsonl", tmp_path / "again.jsonl"
    twin.memory.export(file)
    honest = [json.loads(line) for line in file.read_bytes().splitlines()][:-1]
    for number in range(8):
        lines = lie(chance, honest)
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        messages = sum(line.get("type") == "message" for line in lines)
        end = {"type": "end", "lines": len(lines), "messages": messages, "sha256": hashlib.sha256(data).hexdigest()}
        file.write_bytes(data + json.dumps(end).encode() + b"\n")
        memory = InfiniteMemory() if number % 2 else InfiniteMemory(twin.store)
        before = (twin.memory.stats(), twin.memory.branches(), twin.memory.reflog(), twin.memory.stashes())
        try:
            memory.import_file(file)
        except (InputFileError, StoreError):
            after = (twin.memory.stats(), twin.memory.branches(), twin.memory.reflog(), twin.memory.stashes())
            assert before == after
            continue
        for branch in memory.branches():
            memory.checkout(branch.name)
            assert len(memory.context().messages) <= len(list(memory.messages()))
        memory.export(file)
        with InfiniteMemory() as other:
            other.import_file(file)
            other.export(again)
        assert again.read_bytes() == file.read_bytes()
    twin.store.close()
