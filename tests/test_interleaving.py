"""Others forget, move branches and check out during a call: nothing comes back, and nothing lands elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, ToolCall, UnknownReferenceError
from shared_core.session.checkout import Checkout
from shared_core.stores import SQLiteStore

pytestmark = pytest.mark.interleaved


def talk(memory: InfiniteMemory, *said: str) -> None:
    """Add messages, a user's and an assistant's in turn; the ids are the texts."""
    roles = (Message.user, Message.assistant)
    memory.add([roles[number % 2](text, id=text) for number, text in enumerate(said)])


def texts(memory: InfiniteMemory) -> list[str]:
    return [message.content for message in memory.messages()]


@pytest.mark.parametrize("how", ["squash", "three-way"])
def test_what_is_forgotten_while_it_is_summed_up_does_not_come_back(tmp_path: Path, how: Any) -> None:
    with InfiniteMemory(tmp_path / "chat.db") as memory, InfiniteMemory(tmp_path / "chat.db") as other:
        talk(memory, "hi", "hello")
        memory.fork("side")
        memory.add([Message.user("my PIN is 4711", id="u"), Message.assistant("noted 4711", id="a")])
        memory.checkout("main")

        def summarizer(previous: str | None, messages: Sequence[Message]) -> str:
            if messages:
                other.forget(ids=["u", "a"])
            return "; ".join(message.content for message in messages)

        assert memory.merge("side", how, summarizer=summarizer).how == "nothing"
        assert texts(memory) == ["hi", "hello"]
    stored = (tmp_path / "chat.db").read_bytes()
    assert not any(said in stored for said in (b"PIN is 4711", b"noted 4711")), "four digits may be those of a time"


def test_what_is_forgotten_while_it_is_copied_is_not_copied(tmp_path: Path) -> None:
    class Slow(SQLiteStore):
        def get(self, *given: Any) -> Any:
            found = super().get(*given)
            if (forget := self.__dict__.pop("forget", None)) is not None:
                forget()
            return found

    store = Slow(tmp_path / "chat.db")
    with InfiniteMemory(store) as memory, InfiniteMemory(tmp_path / "chat.db") as other:
        talk(memory, "hi", "hello")
        memory.fork("side")
        talk(memory, "my PIN is 4711", "noted")
        memory.checkout("main")
        store.__dict__["forget"] = lambda: other.forget(ids=["my PIN is 4711"])
        with pytest.raises(UnknownReferenceError):
            memory.cherry_pick(["my PIN is 4711"])
        assert texts(memory) == ["hi", "hello"]
    store.close()


@pytest.mark.parametrize("how", ["squash", "three-way"])
def test_a_merge_does_not_land_where_others_went_during_it(how: Any) -> None:
    with InfiniteMemory() as memory:
        talk(memory, "hi", "hello")
        memory.fork("private")
        talk(memory, "p", "q")
        memory.fork("side", at="hello")
        talk(memory, "s", "t")
        memory.checkout("main")

        def summarizer(previous: str | None, messages: Sequence[Message]) -> str:
            memory.checkout("private")
            return "in short"

        with pytest.raises(ValueError, match="'main'"):
            memory.merge("side", how, summarizer=summarizer)
        assert texts(memory) == ["hi", "hello", "p", "q"]
        memory.checkout("main")
        assert texts(memory) == ["hi", "hello"]


def test_a_call_goes_with_the_results_of_its_own_branch() -> None:
    calls = tuple(ToolCall(id=name, name="f", arguments="{}") for name in ("c1", "c2"))
    with InfiniteMemory() as memory:
        talk(memory, "hi", "hello")
        memory.fork("a")
        memory.add([Message.user("q", id="q"), Message(role="assistant", content="", id="k", tool_calls=calls)])
        memory.fork("b")
        memory.add([Message(role="tool", content=f"b {c}", tool_call_id=c, id=f"b {c}") for c in ("c1", "c2")])
        memory.checkout("a")
        memory.add([Message(role="tool", content="a c1", tool_call_id="c1", id="a c1"), Message.assistant("done")])
        memory.fork("new", at="hello")
        talk(memory, "new", "there")
        memory.checkout("a")
        memory.rebase("new")
        assert texts(memory) == ["hi", "hello", "new", "there", "q", "", "a c1", "done"]


def test_what_a_merge_brought_in_is_not_put_aside_by_itself() -> None:
    with InfiniteMemory() as memory:
        talk(memory, "hi", "hello")
        memory.fork("side")
        talk(memory, "s1", "s2", "s3", "s4")
        memory.checkout("main")
        talk(memory, "o1", "o2")
        memory.merge("side", "full")
        talk(memory, "f1", "f2")
        before = texts(memory)
        with pytest.raises(ValueError, match="merge"):
            memory.stash(since="s3")
        assert texts(memory) == before
        stashed = memory.stash()
        assert stashed is not None
        assert texts(memory) == before[:-2]


def test_the_log_goes_on_behind_what_was_forgotten() -> None:
    with InfiniteMemory() as memory:
        talk(memory, *(f"m{number}" for number in range(40)))
        memory.forget(ids=[f"m{number}" for number in range(20, 40)])
        assert [entry.message.id for entry in memory.log(3) if entry.message] == ["m19", "m18", "m17"]


class Interrupted(SQLiteStore):
    """Lets somebody else act once, at the last moment before something is written."""

    meanwhile: Callable[[], object] | None = None

    def append(self, *given: Any, **named: Any) -> Any:
        self._let_them()
        return super().append(*given, **named)

    def change(self, *given: Any) -> None:
        self._let_them()
        super().change(*given)

    def _let_them(self) -> None:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[InfiniteMemory, InfiniteMemory]]:
    """Two objects on one file, as in two processes, on `main`, which says i j and k l after it, `side` after j m n."""
    store, path = Interrupted(tmp_path / "chat.db"), tmp_path / "chat.db"
    with InfiniteMemory(store, embedder="words") as one, InfiniteMemory(path, embedder="words") as two:
        talk(one, "i", "j")
        one.fork("side")
        talk(one, "m", "n")
        one.checkout("main")
        talk(one, "k", "l")
        one.stash()
        talk(one, "k2", "l2")
        yield one, two
    store.close()


Verb = Callable[[InfiniteMemory], Any]
AT_ONCE: dict[str, tuple[Verb, Callable[[Any], Any], Any]] = {
    "squash": (lambda memory: memory.merge("side", "squash"), lambda done: done.how, ["squash", "nothing"]),
    "full": (lambda memory: memory.merge("side", "full"), lambda done: done.how, ["full", "nothing"]),
    "auto": (lambda memory: memory.merge("side"), lambda done: done.how, ["full", "nothing"]),
    "three-way": (lambda memory: memory.merge("side", "three-way"), lambda done: done.how, ["three-way", "nothing"]),
    "pick": (lambda memory: memory.cherry_pick(["m", "n"]), lambda done: done.skipped, [(), ("m", "n")]),
    "apply": (lambda memory: memory.stash_pop(keep=True), lambda done: done.skipped, [(), ("k", "l")]),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_two_do_at_once_is_done_once(pair: tuple[InfiniteMemory, InfiniteMemory], name: str) -> None:
    one, two = pair
    verb, told, expected = AT_ONCE[name]
    first: list[Any] = []

    def other() -> None:
        first.append(verb(two))
        first.extend(texts(two))

    one._store.meanwhile = other  # type: ignore[attr-defined]
    last = verb(one)
    assert [told(first[0]), told(last)] == expected
    assert last.messages == ()
    assert texts(one) == first[1:], "nothing came after the first"


def test_of_two_that_take_one_stash_each_takes_another(pair: tuple[InfiniteMemory, InfiniteMemory]) -> None:
    one, two = pair
    one.stash()
    one._store.meanwhile = two.stash_pop  # type: ignore[attr-defined]
    one.stash_pop()
    assert (texts(one), one.stashes()) == (["i", "j", "k2", "l2", "k", "l"], [])


@pytest.mark.parametrize("how", ["squash", "three-way"])
def test_a_summary_is_not_written_again_because_somebody_spoke(
    pair: tuple[InfiniteMemory, InfiniteMemory], how: Any
) -> None:
    one, two = pair
    asked: list[int] = []

    def summarizer(previous: str | None, messages: Sequence[Message]) -> str:
        asked.append(len(messages))
        return "in short"

    one._store.meanwhile = lambda: talk(two, "o", "p")  # type: ignore[attr-defined]
    question, answer = one.merge("side", how, summarizer=summarizer).messages
    assert len(asked) == 1
    brought = ["m", "n"] if how == "three-way" else []
    assert texts(one) == ["i", "j", "k2", "l2", "o", "p", *brought, question.content, answer.content]


def test_a_three_way_merge_is_decided_again_where_the_branch_was_moved(
    pair: tuple[InfiniteMemory, InfiniteMemory],
) -> None:
    one, two = pair
    one._store.meanwhile = lambda: two.reset("k2")  # type: ignore[attr-defined]
    result = one.merge("side", "three-way")
    assert (result.ours, result.theirs) == (("k2",), ("m", "n"))
    assert one.sources(str(result.messages[1].id)) == ["k2", "m", "n"]


def test_a_line_made_main_is_decided_again_where_others_moved_an_end(
    pair: tuple[InfiniteMemory, InfiniteMemory],
) -> None:
    one, two = pair
    one.checkout("side")

    def meanwhile() -> None:
        talk(two, "o", "p")
        two.checkout("side")
        talk(two, "q", "r")

    one._store.meanwhile = meanwhile  # type: ignore[attr-defined]
    one.make_main()
    assert (one.branch, texts(one)) == ("main", ["i", "j", "m", "n", "q", "r"])
    assert texts(two) == ["i", "j", "k2", "l2", "o", "p"]
    # Both make their line main at once: the one that comes last is main, and no line is lost.
    one.checkout("n")
    one._store.meanwhile = two.make_main  # type: ignore[attr-defined]
    one.make_main()
    assert texts(one) == texts(two) == ["i", "j", "m", "n"]
    assert one.diff("side").only_a == ("q", "r")
    assert one.diff("branch-1").only_a == ("k2", "l2", "o", "p")


def test_two_that_set_the_same_aside_at_once_keep_it_once(pair: tuple[InfiniteMemory, InfiniteMemory]) -> None:
    one, two = pair
    one._store.meanwhile = lambda: two.rewind("j")  # type: ignore[attr-defined]
    assert one.rewind("j") == "main"
    assert [branch.name for branch in one.branches()] == ["main", "side", "main-2"]
    talk(one, "s")
    one._store.meanwhile = lambda: two.fork("main-3", at="i")  # type: ignore[attr-defined]
    assert one.rewind("j") == "main-4"
    assert (texts(one), one.diff("main-4").only_a) == (["i", "j"], ("s",))


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_what_another_process_adds_while_a_history_is_followed_is_on_another_branch(
    tmp_path: Path, removed: Any
) -> None:
    """The history is matched again with what is there by then."""

    class Slow(SQLiteStore):
        def append(self, *given: Any, **named: Any) -> Any:
            if (first := self.__dict__.pop("first", None)) is not None:
                first()
            return super().append(*given, **named)

    store = Slow(tmp_path / "chat.db")
    asked, told = Message.user("hi"), Message.assistant("hello")
    with InfiniteMemory(store) as memory, InfiniteMemory(tmp_path / "chat.db") as other:
        store.__dict__["first"] = lambda: other.follow([asked, told], removed=removed)
        memory.follow([asked, told], removed=removed)
        assert memory.stats()["messages"] == 2
        store.__dict__["first"] = lambda: other.follow([asked, told, Message.user("theirs")], removed=removed)
        history = memory.follow([asked, told, Message.user("ours")], removed=removed)
        assert texts(memory) == ["hi", "hello", "ours"]
        store.__dict__["first"] = lambda: other.follow([Message.user("theirs, too")], after=history.upto(3))
        memory.follow([Message.assistant("to ours")], after=history)
        assert texts(memory) == ["hi", "hello", "ours", "to ours"]
        assert [branch.name for branch in memory.branches()] == ["main", "branch-1", "branch-2"]
        memory.checkout("main")
        assert texts(memory) == ["hi", "hello", "theirs"]
    store.close()


@pytest.mark.parametrize("reply", [False, True])
def test_what_another_process_adds_while_a_branch_is_checked_out_is_on_another_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reply: bool
) -> None:
    """Between the look for the branch that ends with the history and its checkout."""
    with InfiniteMemory(tmp_path / "chat.db") as memory, InfiniteMemory(tmp_path / "chat.db") as other:
        begun = [Message.user("hi"), Message.assistant("hello"), Message.user("how?")][: 3 if reply else 2]
        asked = memory.follow(begun)
        memory.fork("side")
        memory.add(Message.user("aside"))
        stand, meanwhile = Checkout.stand, [(Message.assistant if reply else Message.user)("theirs")]

        def slow(checkout: Checkout, head: Any) -> None:
            if head.branch == "main" and meanwhile:
                theirs = meanwhile.pop()
                other.checkout("main")
                other.add(theirs)
            stand(checkout, head)

        monkeypatch.setattr(Checkout, "stand", slow)
        if reply:
            memory.follow([Message.assistant("ours")], after=replace(asked, branch="main"))
        else:
            memory.follow([*begun, Message.user("ours")])
        assert not meanwhile
        said = [message.content for message in begun]
        assert texts(memory) == [*said, "ours"]
        memory.checkout("main")
        assert texts(memory) == [*said, "theirs"]
