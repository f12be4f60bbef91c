"""What a session in the interpreter shows of a result is one short line, however long the conversation is."""

from datetime import UTC, datetime
from pathlib import Path

from shared_core import InfiniteMemory, Message
from shared_core.results import Conflict, Hit, LogEntry, MergeResult
from shared_core.session.turns import Entry

LONG = "a word " * 1_000
MANY = [Message.user(LONG, id=f"m{number}") for number in range(40)]


def test_a_repr_names_what_is_not_the_default() -> None:
    merged = MergeResult("full", "side", "m1", ours=("a", "b", "c"), theirs=("a", "b", "c", "d"))
    assert repr(merged) == (
        "MergeResult(how='full', source='side', base='m1', ours=('a', 'b', 'c'), theirs=('a', 'b', 'c', … 4 in all))"
    )
    assert repr(MergeResult("nothing", "side", None)) == "MergeResult(how='nothing', source='side', base=None)"
    both = MergeResult("squash", "side", None, (MANY[0], MANY[1]))
    assert repr(both) == "MergeResult(how='squash', source='side', base=None, messages=('m0', 'm1'))"
    differ = MergeResult("three-way", "side", None, conflicts=(Conflict("it", ("a",), ("b",), "yes", "no"),))
    assert "ours_say='yes', theirs_say='no'" in repr(differ)


def test_a_message_is_shown_by_its_beginning() -> None:
    hit = Hit((0, 3), 1.5, 0.5, 0.2, entries=(Entry(MANY[3], 9, 3, 3),), session_id="s")
    said = repr(f"{LONG[:59]}…")
    scores = "score=1.5, source='both', lexical=0.5, dense=0.2, session_id='s'"
    assert repr(hit) == f"Hit(message=<user m3: {said}>, {scores})"


def test_the_results_of_a_long_conversation_are_short(tmp_path: Path) -> None:
    with InfiniteMemory(embedder="words", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)) as memory:
        memory.add(MANY)
        memory.fork("side", at="m20")
        followed = memory.follow([Message.user(LONG, id=f"s{number}") for number in range(20)])
        results = [
            followed, memory.diff("main", "side"), memory.search("word")[0], memory.log(1)[0], memory.context("word"),
            memory.context("word").report, memory.cherry_pick(["m30", "m31", "m32", "m33", "m34"]), memory.stash("m20"),
        ]  # fmt: skip
        memory.checkout("main")
        results += [
            memory.merge("side", "three-way"),
            memory.forget(before=datetime(2027, 1, 1, tzinfo=UTC), dry_run=True),
        ]
        assert isinstance(memory.log(1)[0], LogEntry)
    for result in results:
        assert len(repr(result)) < 500, type(result)
        assert "\n" not in repr(result)


def test_a_memory_says_what_it_is() -> None:
    with InfiniteMemory(session_id="trip", user_id="ann", max_tokens=1_600, embedder="words") as memory:
        memory.add(MANY)
        assert repr(memory) == "<InfiniteMemory: conversation 'trip' of 'ann', on branch 'main'>"
        assert str(memory) == f"{memory!r}, 40 messages, prompts of at most 1,100 tokens"
        memory.checkout("m3")
        assert "detached at a message>, 4 messages" in str(memory)
    assert str(memory).endswith(">, closed")
