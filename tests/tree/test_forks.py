"""Branches: what a fork shares, where an added message goes, and recall that never leaves its branch."""

import pytest

from shared_core import InfiniteMemory, Message, UnknownReferenceError
from shared_core.errors import AmbiguousReferenceError
from shared_core.records import MAIN, Position, Segment
from shared_core.results import Reason
from shared_core.session.paths import Path, Span, walk
from shared_core.testing.hashing_embedder import HashingEmbedder
from tests.support.histories import CountingStore, history, ids


@pytest.fixture
def memory(store: CountingStore) -> InfiniteMemory:
    memory = InfiniteMemory(store, embedder="words")
    memory.add(history(6))
    return memory


def other(memory: InfiniteMemory) -> InfiniteMemory:
    """Another object on the same session, as another process would have."""
    return InfiniteMemory(memory._store, embedder="words")


def path(memory: InfiniteMemory) -> list[str | None]:
    return ids(memory.messages())


def test_main_goes_on_after_a_fork_at_its_tip(memory: InfiniteMemory) -> None:
    memory.fork("side")
    memory.add(Message.user("s", id="s"))
    memory.checkout(MAIN)
    memory.add(Message.user("m", id="m"))
    memory.add(Message.assistant("r", id="r"))
    assert memory.branch == MAIN
    assert path(memory) == [*ids(history(6)), "m", "r"]
    memory.checkout("side")
    assert path(memory) == [*ids(history(6)), "s"]
    assert [branch.name for branch in memory.branches()] == [MAIN, "side"]


def test_a_branch_whose_session_was_forgotten_is_named(memory: InfiniteMemory) -> None:
    second = other(memory)
    second.fork("side")
    memory.forget(session=True)
    with pytest.raises(UnknownReferenceError, match="'side'"):
        second.newest(3)
    with pytest.raises(UnknownReferenceError, match="'side'"):
        second.fork("again")
    with pytest.raises(UnknownReferenceError, match="'side'"):
        second.add(Message.user("x"))
    second.checkout(MAIN)
    assert path(second) == []


def test_a_detached_head_does_not_follow_its_old_branch(memory: InfiniteMemory) -> None:
    memory.checkout("m5")
    other(memory).add(Message.user("a", id="a"))
    assert path(memory) == ids(history(6))
    assert ids(memory.newest(2)) == ["m4", "m5"]


def test_a_prefix_of_four_characters_names_a_message(store: CountingStore) -> None:
    memory = InfiniteMemory(store)
    memory.add([Message.user("x", id=id_) for id_ in ("abcd1", "abcd2", "abce-", "xyz", "%bcd")])
    memory.checkout("abce")
    assert path(memory)[-1] == "abce-"
    memory.checkout("xyz")
    assert path(memory)[-1] == "xyz"
    with pytest.raises(AmbiguousReferenceError, match="'abcd1', 'abcd2'") as error:
        memory.checkout("abcd")
    assert error.value.candidates == ("abcd1", "abcd2")
    for reference in ("abc", "xy", "", "%", "____", "abcd1x"):
        with pytest.raises(UnknownReferenceError, match="branches: 'main'") as unknown:
            memory.checkout(reference)
        assert unknown.value.candidates == (MAIN,)
    assert path(memory)[-1] == "xyz", "an error moves nothing"


def test_a_branch_goes_before_a_message_of_its_name(memory: InfiniteMemory) -> None:
    memory.fork("m4", at="m1")
    memory.checkout(MAIN)
    memory.checkout("m4")
    assert (memory.branch, path(memory)) == ("m4", ["m0", "m1"])


def test_a_path_is_walked_segment_by_segment() -> None:
    segments = [Segment(number, Position(number - 1, number - 1) if number else None, 10**6) for number in range(5_000)]
    line = walk(Position(4_999, 5_010), segments.__getitem__)
    assert line == Path((*(Span(number, number, number) for number in range(4_999)), Span(4_999, 5_010, 4_999)))
    assert line.covers(Position(17, 17))
    assert not line.covers(Position(17, 18))
    assert not line.covers(Position(5_000, 0))
    assert (line.at(17), line.at(5_005)) == (Position(17, 17), Position(4_999, 5_005))


# Recall along the branch


def test_what_is_pinned_on_another_branch_is_not_sent(memory: InfiniteMemory) -> None:
    memory.add([Message.system("of all", id="rule"), Message.user("pin", id="pin", pinned=True)])
    memory.fork("side", at="m3")
    memory.add([Message.system("of the side", id="side rule"), Message.user("side pin", id="side pin", pinned=True)])
    for branch, expected in (("main", {"rule", "pin"}), ("side", {"side rule", "side pin"}), ("m3", set())):
        memory.checkout(branch)
        report = memory.context("and now?").report
        assert {line.id for line in report.lines if line.reason is Reason.ALWAYS_SENT} == expected


def test_messages_on_another_branch_change_nothing(store: CountingStore) -> None:
    memory = InfiniteMemory(store, max_tokens=260, reserve_tokens=10, embedder=HashingEmbedder())
    memory.add(history(40))
    second = InfiniteMemory(store)
    second.fork("side", at="m20")
    memory.index()
    before = memory.context("what of item3 and the seven gardens?"), memory.search("item3 seven")
    second.add(history(40, start=100))
    second.add(Message.user("item3 item3 seven gardens, item3 seven", id="bait"))
    assert (memory.context("what of item3 and the seven gardens?"), memory.search("item3 seven")) == before
    assert "m3" in ids(hit.message for hit in before[1])


def test_a_reply_joins_a_turn_that_a_merge_brought_in_deeper_on_a_segment_that_both_lines_share(
    memory: InfiniteMemory,
) -> None:
    memory.fork("side", at="m1")
    memory.add(Message.user("s", id="s"))
    memory.merge(MAIN)
    (reply,) = memory.add(Message.assistant("late", id="late"), turn="m2")
    assert (memory.branch, reply.turn_id) == ("side", "m2")
