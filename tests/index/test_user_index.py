"""The index over a user's sessions: whatever it has followed, it holds what one that reads everything holds."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message
from shared_core.index.cache import SharedIndex
from shared_core.index.user import UserIndex
from shared_core.records import (
    MAIN,
    ROOT,
    MainChanges,
    MainNews,
    Mark,
    Move,
    Position,
    VectorRows,
)
from shared_core.stores import SQLiteStore
from shared_core.testing.oracle import drafts

SPACE = ("hashing/4", 4)
OTHER = "other/4"
SESSIONS = 3

Read = tuple[list[tuple[int, Position]], set[tuple[int, Position]], list[int]]


class NotingStore(SQLiteStore):
    """Notes how much a question over all sessions reads."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.told: list[int] = []
        self.asked: list[Sequence[int]] = []

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        self.told.append(len(found.states))
        return found

    def main_news(self, wanted: Any, space: str | None = None) -> dict[int, MainNews]:
        self.asked.append(sorted(wanted))
        return super().main_news(wanted, space)


def read(shared: SharedIndex, asking: int | None) -> Read:
    """Return what an index finds on main, which of it has a vector, and the sessions of another embedder."""
    index: UserIndex = shared.refreshed(lambda rows: rows.follow(asking))
    vectors = index.vectors[SPACE[0]]
    places = index.places(index.main_line(asking).line.rows)
    embedded = {one for one in index.places(vectors.vectors.owners) if one[0] != asking}
    return places, embedded & {*places}, sorted(index.of_others - {asking})


def filled(store: SQLiteStore, sessions: int) -> tuple[list[int], SharedIndex]:
    """Store an exchange in each of some sessions; return their keys, and an index that has read nothing yet."""
    keys = [store.create_session("ann", str(number)) for number in range(sessions)]
    for key in keys:
        store.append(key, MAIN, drafts("u1", "a1"))
    return keys, SharedIndex(UserIndex(store, "ann", *SPACE))


def acts(store: SQLiteStore, keys: Sequence[int]) -> st.SearchStrategy[Callable[[], object]]:
    """Make changes to sessions, each of which is possible at any time. The last session is another embedder's."""
    count = iter(range(10**6))

    def append(key: int, embeds: bool) -> None:
        done = store.append(key, MAIN, drafts(f"u{next(count)}", f"a{next(count)}"))
        if embeds:
            rows = [(one.position, "h", b"\x00\x3c" * 4) for one in done.records]
            store.keep(key, VectorRows(SPACE[0] if key != keys[-1] else OTHER, rows))

    def move(key: int, depth: int) -> None:
        head = store.state(key, MAIN).head
        assert head is not None
        back = Position(head.segment, max(0, head.depth - max(0, depth))) if head.depth >= 0 else head
        to = back if depth >= 0 or head.segment else ROOT
        store.change(key, [Move(MAIN, to, "")])

    def forget(key: int, number: int, everything: bool) -> None:
        found = store.get(key, [Position(0, number)])
        store.forget(key, [one.position for one in found], branches=everything)

    session = st.sampled_from(keys)
    return st.one_of(
        st.builds(lambda key, embeds: lambda: append(key, embeds), session, st.booleans()),
        st.builds(lambda key, depth: lambda: move(key, depth), session, st.integers(-1, 3)),
        st.builds(lambda key, n, all_: lambda: forget(key, n, all_), session, st.integers(0, 9), st.booleans()),
    )


@settings(max_examples=10)
@given(st.data())
def test_whoever_has_followed_the_changes_finds_what_one_finds_that_reads_everything(data: st.DataObject) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        keys = [store.create_session("ann", str(number)) for number in range(SESSIONS)]
        possible = acts(store, keys)
        shared = SharedIndex(UserIndex(store, "ann", *SPACE))
        for act in data.draw(st.lists(possible, min_size=1, max_size=8)):
            act()
            if data.draw(st.booleans()):
                asking = data.draw(st.sampled_from([None, *keys]))
                assert read(shared, asking) == read(SharedIndex(UserIndex(store, "ann", *SPACE)), asking)


def test_a_question_reads_what_changed_since_the_last_one() -> None:
    with closing(NotingStore(":memory:")) as store:
        keys, shared = filled(store, 40)
        read(shared, keys[0])
        store.told.clear()
        store.asked.clear()
        read(shared, keys[0])
        store.append(keys[0], MAIN, drafts("u2"))
        read(shared, keys[0])
        assert (store.told, store.asked) == ([0, 1], []), "what the session has said that asks is in its own index"
        store.append(keys[7], MAIN, drafts("u2"))
        read(shared, keys[0])
        read(shared, keys[0])
        assert (store.told[2:], store.asked) == ([1, 0], [[keys[7]]])
        store.forget(keys[8], [Position(0, 0)])
        store.change(keys[9], [Move(MAIN, ROOT, "")])
        read(shared, keys[0])
        assert (store.told[4:], store.asked[1:]) == ([2], [])
        read(shared, keys[1])
        assert (store.told[5:], store.asked[1:]) == ([0], [[keys[0]]]), "another session asks"


def test_what_another_thread_was_told_meanwhile_is_still_taken_out() -> None:
    """It may be told between the look at what is to be taken out and the reading of what is new."""
    with closing(SQLiteStore(":memory:")) as store:
        keys, shared = filled(store, 3)
        read(shared, None)
        index = shared.rows
        assert isinstance(index, UserIndex)
        store.forget(keys[0], [Position(0, 0)])
        store.change(keys[1], [Move(MAIN, ROOT, "")])
        index.ask()
        index.read_new(None)
        assert index.outdated() == [(keys[0], 0), (keys[1], None)]
        assert read(shared, None) == read(SharedIndex(UserIndex(store, "ann", *SPACE)), None)


class Interrupted(NotingStore):
    """Lets somebody else act between the reading of an answer and its return, once."""

    meanwhile: Callable[[], object] | None = None

    def main_changes(self, user_id: str | None, since: Mark | None = None) -> MainChanges:
        found = super().main_changes(user_id, since)
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            act()
        return found


def test_an_answer_that_another_one_has_overtaken_brings_nothing_back() -> None:
    with closing(Interrupted(":memory:")) as store:
        (key,), shared = filled(store, 1)
        read(shared, None)
        index = shared.rows
        assert isinstance(index, UserIndex)

        def another_thread() -> None:
            store.forget(key, [Position(0, 0)])
            index.ask()

        store.append(key, MAIN, drafts("u2"))
        store.meanwhile = another_thread
        index.ask()
        assert index.told[key].state == store.state(key, MAIN)
        assert index.outdated() == [(key, 0)]


def test_an_answer_is_followed_where_it_says_something_new() -> None:
    with closing(NotingStore(":memory:")) as store:
        (one, other), shared = filled(store, 2)
        read(shared, None)
        store.asked.clear()
        index = shared.rows
        assert isinstance(index, UserIndex)
        store.append(one, MAIN, drafts("u2"))
        index._mark = None  # a store may tell all states each time
        read(shared, None)
        assert store.asked == [[one]], "of the other, nothing was said that was not known"
        store.main_changes = lambda *_: MainChanges([(index.told[other].key, index.told[other].state)], None, True)  # type: ignore[method-assign]
        index.ask()
        assert index.outdated() == [(one, None)], "it is not in a list of all"


def test_what_a_merge_brought_in_is_a_sitting_of_its_own_on_either_line() -> None:
    with closing(SQLiteStore(":memory:")) as store, InfiniteMemory(store, session_id="s", embedder="words") as memory:
        memory.add(Message.user("a boat", id="m0"))
        memory.fork("side")
        memory.add(Message.user("an aside", id="s0"))
        memory.checkout("main")
        memory.add(Message.user("a tower", id="m1"))
        memory.merge("side", "full")
        memory.add(Message.user("a river", id="m2"))
        live = memory._checkout.live
        rows, _ = memory._prompts.searcher.indexes.open(live.sync())
        user: UserIndex = SharedIndex(UserIndex(store, None)).refreshed(lambda index: index.follow(None))
        for index, line in ((rows, rows.line(live.path)), (user, user.main_line(None))):
            said = [position for _, position in index.places(line.rows)]
            ids = [record.message.id for record in store.get(live.key or 0, said)]
            sittings = dict(zip(ids, line.sittings.tolist(), strict=True))
            assert list(sittings)[:3] == ["m0", "m1", "s0"]
            assert sittings["m0"] == sittings["m1"] == 0
            assert sittings["s0"] == 1
            assert sittings["m2"] == 2


def test_after_a_forgetting_the_vectors_of_turns_are_read_anew() -> None:
    """One that stands for several messages may have lost one of them."""
    with closing(SQLiteStore(":memory:")) as store:
        keys, _ = filled(store, 2)
        for key, space in zip(keys, ("hashing/4", "hashing/4#turn"), strict=True):
            shared = SharedIndex(UserIndex(store, "ann", space, 4))
            before = shared.refreshed(lambda index: index.follow(None))
            store.forget(key, [Position(0, 0)])
            assert (shared.refreshed(lambda index: index.follow(None)) is before) == ("#" not in space)
