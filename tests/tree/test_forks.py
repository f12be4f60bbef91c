"""Branches: what a fork shares, where an added message goes, and recall that never leaves its branch."""

from contextlib import closing
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared_core import DuplicateError, InfiniteMemory, Message, RecallTemplate, UnknownReferenceError
from shared_core.errors import AmbiguousReferenceError
from shared_core.records import MAIN, Position, Segment
from shared_core.results import Reason
from shared_core.session.paths import Path, Span, walk
from shared_core.stores import SQLiteStore
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


# Forking


def test_many_forks_at_one_position(memory: InfiniteMemory) -> None:
    names = [f"fork {number}" for number in range(5)]
    for name in names:
        memory.fork(name, at="m3")
        memory.add(Message.user(name, id=name))
    assert [branch.name for branch in memory.branches()] == [MAIN, *names]
    for name in names:
        memory.checkout(name)
        assert path(memory) == ["m0", "m1", "m2", "m3", name]
    assert memory.stats()["messages"] == 6 + len(names)


def test_a_fork_of_nothing(store: CountingStore) -> None:
    memory = InfiniteMemory(store)
    memory.fork("side")
    memory.add(Message.user("a", id="a"))
    assert path(memory) == ["a"]
    assert path(InfiniteMemory(store)) == []


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


# Going elsewhere


def test_the_first_addition_to_a_detached_head_opens_a_branch(memory: InfiniteMemory) -> None:
    memory.fork("branch-1", at="m0")
    memory.checkout("m2")
    memory.add([Message.user("a", id="a"), Message.assistant("b", id="b")])
    assert memory.branch == "branch-2"
    memory.add(Message.user("c", id="c"))
    assert path(memory) == ["m0", "m1", "m2", "a", "b", "c"]
    assert [branch.name for branch in memory.branches()] == [MAIN, "branch-1", "branch-2"]


def test_a_detached_head_does_not_follow_its_old_branch(memory: InfiniteMemory) -> None:
    memory.checkout("m5")
    other(memory).add(Message.user("a", id="a"))
    assert path(memory) == ids(history(6))
    assert ids(memory.newest(2)) == ["m4", "m5"]


def test_two_detached_objects_open_two_branches(memory: InfiniteMemory) -> None:
    second = other(memory)
    for object_, name in ((memory, "a"), (second, "b")):
        object_.checkout("m5")
        object_.add(Message.user(name, id=name))
    assert (path(memory)[-1], path(second)[-1]) == ("a", "b")
    assert {memory.branch, second.branch} == {"branch-1", "branch-2"}
    assert path(other(memory)) == ids(history(6)), "main, at whose end they stood"


def test_a_detached_addition_that_fails_opens_no_branch(memory: InfiniteMemory) -> None:
    memory.checkout("m3")
    with pytest.raises(DuplicateError, match="'m1'"):
        memory.add(Message.user("not what m1 says", id="m1"))
    assert memory.branch is None
    assert len(memory.branches()) == 1


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


def test_an_empty_session_has_nothing_to_check_out(store: CountingStore) -> None:
    memory = InfiniteMemory(store)
    with pytest.raises(UnknownReferenceError, match="'side'"):
        memory.checkout("side")
    memory.checkout(MAIN)
    assert store.session(None, "default") is None


# Paths


@pytest.mark.parametrize("count", [60, pytest.param(1_200, marks=pytest.mark.soak)])
def test_a_line_forked_at_each_message(store: CountingStore, count: int) -> None:
    memory = InfiniteMemory(store, embedder="words")
    for message in history(count):
        memory.fork(f"at {message.id}")
        memory.add(message)
        memory.checkout(str(message.id))
    assert path(memory) == ids(history(count))
    memory.fork("deep", at="m50")
    memory.add(Message.user("new", id="new"))
    assert path(memory) == [*ids(history(51)), "new"]
    assert ids(memory.newest(2)) == ["m50", "new"]


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
    memory = InfiniteMemory(store, max_tokens=260, reserve_tokens=10, embedder=HashingEmbedder(), embed_budget_ms=1e6)
    memory.add(history(40))
    second = InfiniteMemory(store)
    second.fork("side", at="m20")
    memory.index()
    before = memory.context("what of item3 and the seven gardens?"), memory.search("item3 seven")
    second.add(history(40, start=100))
    second.add(Message.user("item3 item3 seven gardens, item3 seven", id="bait"))
    assert (memory.context("what of item3 and the seven gardens?"), memory.search("item3 seven")) == before
    assert "m3" in ids(hit.message for hit in before[1])


@dataclass
class Said:
    """A message of the oracle; `parent` is the one before it."""

    id: str
    parent: "Said | None"
    role: str
    turn: str = ""
    forgotten: bool = False


@dataclass
class Place:
    """Where an object of the oracle stands, and the turn it opened last."""

    branch: str | None = MAIN
    at: Said | None = None
    turn: str | None = None


@dataclass
class Oracle:
    """The tree as linked messages; every question is answered by walking from the head to the root."""

    branches: dict[str, Said | None] = field(default_factory=lambda: {MAIN: None})
    said: list[Said] = field(default_factory=list)

    def head(self, place: Place) -> Said | None:
        return place.at if place.branch is None else self.branches[place.branch]

    def path(self, place: Place) -> list[Said]:
        found: list[Said] = []
        node = self.head(place)
        while node is not None:
            found += [] if node.forgotten else [node]
            node = node.parent
        return found[::-1]

    def add(self, place: Place, role: str) -> Said:
        before = self.path(place)
        new = Said(f"item{len(self.said)}", self.head(place), role)
        if role == "user":
            new.turn = place.turn = new.id
        else:
            if place.turn not in {node.turn for node in before}:  # on another branch it may go on
                place.turn = None
            users = [node.id for node in before if node.role == "user"]
            new.turn = place.turn or (users[-1] if users else new.id)
        if place.branch is None:
            place.branch = next(name for n in range(1, 99) if (name := f"branch-{n}") not in self.branches)
        self.branches[place.branch] = new
        self.said.append(new)
        return new


BARE = RecallTemplate(header="", footer="", day="")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "user", "assistant", "assistant", "fork", "fork at", "branch", "message", "forget"]),
        st.integers(0, 1),
        st.integers(0, 99),
    ),
    max_size=25,
)


# The question is forgotten on one branch, and its turn goes on only on another: a reply does not join it.
@example([("user", 0, 0), ("fork", 1, 0), ("assistant", 1, 0), ("forget", 0, 0), ("assistant", 0, 0)])
@given(STEPS)
def test_every_view_is_the_path_from_the_head_to_the_root(steps: list[tuple[str, int, int]]) -> None:
    with closing(SQLiteStore(":memory:")) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared_core.session.live.PAGE", 3)
        patch.setattr("shared_core.session.live.TAIL_KEPT", 2)
        patch.setattr("shared_core.session.paths.PAGE", 3)
        oracle, places, embedder = Oracle(), (Place(), Place()), HashingEmbedder(16)
        memories = [
            # Everything on the branch is close enough to be found.
            InfiniteMemory(store, max_tokens=60, reserve_tokens=0, embedder=embedder, embed_budget_ms=1e6,
                           min_score=-1, recall_template=BARE, token_counter="characters/4")
            for _ in places
        ]  # fmt: skip
        for step, who, number in steps:
            take(oracle, places[who], memories[who], step, number)
            assert ids(memories[who].newest(3)) == [node.id for node in oracle.path(places[who])][-3:]
        for place, memory in zip(places, memories, strict=True):
            check(memory, oracle.path(place))


def take(oracle: Oracle, place: Place, memory: InfiniteMemory, step: str, number: int) -> None:
    """Do one step to a memory and to its oracle."""
    alive = [node for node in oracle.said if not node.forgotten]
    if step in ("user", "assistant"):
        new = oracle.add(place, step)
        (stored,) = memory.add(Message.model_validate({"role": step, "content": f"{new.id} alike", "id": new.id}))
        assert stored.turn_id == new.turn
    elif step == "fork":
        name = f"fork {len(oracle.branches)}"
        oracle.branches[name] = oracle.head(place)
        place.branch, place.turn = name, None
        memory.fork(name)
    elif step == "branch":
        place.branch = list(oracle.branches)[number % len(oracle.branches)]
        place.turn = None
        memory.checkout(place.branch)
    elif alive:
        node = alive[number % len(alive)]
        if step == "forget":
            node.forgotten = True
            memory.forget(ids=[node.id])
        elif step == "message":
            place.branch, place.at, place.turn = None, node, None
            memory.checkout(node.id)
        else:
            name = f"fork {len(oracle.branches)}"
            oracle.branches[name] = node
            place.branch, place.turn = name, None
            memory.fork(name, at=node.id)
    assert memory.branch == place.branch


def check(memory: InfiniteMemory, expected: list[Said]) -> None:
    """Compare what can be seen of the conversation with the path."""
    line = [node.id for node in expected]
    assert ids(memory.messages()) == line
    assert ids(memory.newest(99)) == line
    assert sorted(str(hit.message.id) for hit in memory.search("alike", 99)) == sorted(line)
    context = memory.context("which of them are alike?")
    text = " ".join(message.content for message in context.messages)
    assert {word for word in text.split() if word.startswith("item")} <= set(line)
    considered = {line_.id for line_ in context.report.lines} - {None}
    assert considered <= set(line)
