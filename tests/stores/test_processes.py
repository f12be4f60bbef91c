"""Several processes on one file: each call sees what the others stored before it."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import history, ids, texts

SCRIPT = Path(__file__).parents[1] / "support" / "chat_process.py"
SETTINGS: dict[str, Any] = {"max_tokens": 300, "reserve_tokens": 50}
WORD = "xyzzyplugh"

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


class Talker:
    """Another process, told line by line what to do with its memory."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[2]), *sys.path])}
        self.child = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(SCRIPT), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
        )
        stack.callback(self.child.kill)

    def __call__(self, verb: str, **arguments: Any) -> Any:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps([verb, arguments]) + "\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def end(self) -> int:
        """Let it close its memory; return how it ended."""
        self.child.communicate()
        return self.child.returncode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
def talkers(path: Path) -> Iterator[Callable[[], Talker]]:
    with ExitStack() as stack:
        yield lambda: Talker(path, stack)


@pytest.fixture
def memory(path: Path) -> Iterator[InfiniteMemory]:
    with InfiniteMemory(path, embedder=HashingEmbedder(), **SETTINGS) as memory:
        yield memory


def test_what_one_process_does_the_other_knows_in_its_next_call(
    talkers: Callable[[], Talker], memory: InfiniteMemory, path: Path
) -> None:
    ann, bob = talkers(), talkers()
    question = f"what is the {WORD}?"
    memory.add(history(60))
    assert WORD not in " ".join(bob("context", question="anything new?"))

    # What one adds, the other recalls, though it is not in its window.
    assert ann("add", role="user", content=f"the {WORD} is under the mat", id="secret") == ["secret"]
    assert "the mat" in bob("context", question=question)[-2], "it is the newest"
    memory.add(history(40, start=60))
    for process in (ann, bob):
        prompt = process("context", question=question)
        assert "the mat" in prompt[-1]
        assert not any("the mat" in text for text in prompt[:-1])
        assert process("search", query=WORD, top_k=1) == ["secret"]

    # What one embeds, the other need not.
    assert set(bob("index")) | set(ann("index")) >= {f"the {WORD} is under the mat"}
    memory.index()
    memory.add(Message.user("only this is new", id="new"))
    assert memory.search("only this is new", 1)[0].dense is not None
    before = len(ann("index"))
    assert len(ann("index")) == before

    # What one forgets, the other cannot recall any more.
    assert ann("forget", ids=["secret"])["scrubbed"]
    assert WORD not in " ".join(bob("context", question="what is under the mat?"))
    assert "secret" not in bob("search", query=f"{WORD} mat", top_k=99)
    assert "secret" not in bob("messages")
    assert bob("add", role="user", content="once more", id="secret") == []
    assert WORD not in " ".join(texts(memory.context("what is under the mat?").messages))
    assert (ann.end(), bob.end()) == (0, 0)
    memory.close()
    assert not any(WORD.encode() in file.read_bytes() for file in path.parent.iterdir())


def test_interleaved_exchanges_keep_their_turns(talkers: Callable[[], Talker], memory: InfiniteMemory) -> None:
    ann, bob = talkers(), talkers()
    chance = random.Random(5)
    said: list[tuple[str, str]] = []
    asked: dict[Talker, str] = {}
    for number in range(60):
        who = chance.choice([ann, bob])
        if who in asked and chance.random() < 0.7:
            reply = f"reply {number}"
            assert who("add", role="assistant", content=f"{reply} to {asked[who]}", id=reply) == [asked[who]]
            said.append((reply, asked[who]))
        else:
            asked[who] = f"question {number}"
            assert who("add", role="user", content=asked[who], id=asked[who]) == [asked[who]]
            said.append((asked[who], asked[who]))
    assert [(message.id, message.turn_id) for message in memory.messages()] == said
    assert ann("messages") == bob("messages") == [id_ for id_, _ in said]
    sent = [text.rpartition(" to ")[2] for text in ann("context", question="and now?")[:-1]]
    assert len(sent) > 6
    assert sent == sorted(sent, key=lambda turn: int(turn.removeprefix("question "))), "a turn stands together"


# Forking


def in_child(work: Callable[[], None]) -> int:
    """Do something in a forked process and return its status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@forks
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_the_memory_its_parent_opened(memory: InfiniteMemory) -> None:
    memory.add(history(60))
    expected = memory.context("what of item3?")

    def work() -> None:
        assert memory.context("what of item3?") == expected
        memory.add(Message.user("from the child", id="child"))
        memory.forget(ids=["m3"])
        assert "child" in ids(hit.message for hit in memory.search("from the child"))

    assert in_child(work) == 0
    assert ids(memory.newest(1)) == ["child"]
    assert "item3 " not in " ".join(texts(memory.context("what of item3?").messages[:-1]))
    memory.add(Message.assistant("to the parent's own question", id="answer"))
    assert memory.get("answer").turn_id == "m58"
    assert in_child(lambda: memory.close()) == 0
    assert ids(memory.newest(2)) == ["child", "answer"]
