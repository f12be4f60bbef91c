"""A history that is the whole conversation: what was taken back leaves the line, and stays stored elsewhere."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore
from shared_core.errors import UnknownReferenceError
from shared_core.records import MAIN, After
from shared_core.results import FollowedHistory
from tests.support.histories import CountingStore

ai, user = Message.assistant, Message.user


@pytest.fixture
def store() -> Iterator[SQLiteStore]:
    with closing(SQLiteStore(":memory:")) as store:
        yield store


def opened(store: SQLiteStore, **settings: Any) -> InfiniteMemory:
    return InfiniteMemory(store, ranking="lexical", token_counter="characters/4", **settings)


def talk(*ids: str) -> list[Message]:
    """Messages that say their ids; a user's id begins with q."""
    return [(user if id_[0] == "q" else ai)(f"says {id_}", id=id_) for id_ in ids]


def line(memory: InfiniteMemory) -> list[str]:
    """What the branch says, and which ids: a copy by that of its original."""
    return [message.content.removeprefix("says ") for message in memory.messages()]


class Client:
    """A client whose list is the truth: it sends the list again, to the same object or to a new one."""

    def __init__(self, store: SQLiteStore, *, warm: bool) -> None:
        self.store, self.warm = store, warm
        self.memory = opened(store)
        self.sent: list[Message] = []
        self.followed = FollowedHistory()

    def send(self, messages: list[Message], since: str | None = None, **settings: Any) -> FollowedHistory:
        if not self.warm:
            self.memory, self.followed, self.sent = opened(self.store, **settings), FollowedHistory(), []
        same = next(
            (n for n, (one, other) in enumerate(zip(self.sent, messages, strict=False)) if one != other),
            min(len(self.sent), len(messages)),
        )
        after = self.followed.upto(same)
        self.followed = self.memory.follow(messages[same:], after=after, removed="leave_out", since=since)
        self.sent = list(messages)
        assert len(self.followed) == len(messages)
        return self.followed


@pytest.fixture(params=[True, False], ids=["same object", "new objects"])
def client(store: SQLiteStore, request: pytest.FixtureRequest) -> Client:
    return Client(store, warm=request.param)


TEXTS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.lists(TEXTS, min_size=1, max_size=3)),
        st.tuples(st.just("remove"), st.frozensets(st.integers(0, 9), min_size=1, max_size=4)),
        st.tuples(st.just("edit"), st.tuples(st.integers(0, 9), TEXTS)),
        st.tuples(st.just("insert"), st.tuples(st.integers(0, 9), TEXTS)),
        st.tuples(st.just("back"), st.integers(1, 4)),
        st.tuples(st.just("undo"), st.integers(1, 3)),
        st.tuples(st.just("clear"), st.none()),
        st.tuples(st.just("forget"), st.integers(0, 9)),
        st.tuples(st.just("main"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=12,
)


class Editor:
    """Edits a list of messages, and remembers all that it ever was."""

    def __init__(self, *, ids: bool) -> None:
        self.ids = ids
        self.number = 0
        self.messages: list[Message] = []
        self.earlier: list[list[Message]] = []
        self.gone: set[str] = set()

    def message(self, text: str) -> Message:
        self.number += 1
        make = user if self.number % 2 else ai
        return make(text, id=f"m{self.number}" if self.ids else None)

    def do(self, verb: str, what: Any) -> None:
        self.earlier.append(list(self.messages))
        size = len(self.messages)
        match verb:
            case "say":
                self.messages += [self.message(text) for text in what]
            case "remove":
                self.messages = [one for n, one in enumerate(self.messages) if n not in what]
            case "edit" if size:
                at = what[0] % size
                self.messages[at] = self.messages[at].replace(content=f"{what[1]} edited")
            case "insert":
                self.messages.insert(what[0] % (size + 1), self.message(what[1]))
            case "back":
                self.messages = self.messages[:-what]
            case "undo":
                self.messages = list(self.earlier[max(0, len(self.earlier) - what)])
            case "clear":
                self.messages = []
        self.messages = [one for one in self.messages if one.id not in self.gone]


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])
@given(steps=STEPS, warm=st.booleans())
def test_the_line_says_what_the_history_says(steps: list[tuple[str, Any]], *, ids: bool, warm: bool) -> None:
    """Whatever is taken back, edited, put between or brought back, and whoever asks: the line is the list."""
    with closing(SQLiteStore(":memory:")) as store:
        client, editor = Client(store, warm=warm), Editor(ids=ids)
        stored, erased = set[str](), set[str]()
        for verb, what in steps:
            if verb == "restart":
                client.memory, client.followed, client.sent = opened(store), FollowedHistory(), []
            elif verb == "main":
                client.memory.make_main()
            elif verb == "forget":
                if not ids or not editor.messages:
                    continue
                id_ = editor.messages[what % len(editor.messages)].id or ""
                try:
                    gone = set(client.memory.forget(ids=[id_]).ids)
                except UnknownReferenceError:
                    continue
                stored -= gone
                erased |= gone
                editor.gone.add(id_)
            else:
                editor.do(verb, what)
            followed = client.send(editor.messages)
            told = [message for message in editor.messages if message.id not in editor.gone]
            assert [message.content for message in client.memory.messages()] == [one.content for one in told]
            assert [id_ for id_ in followed.ids if id_ not in {None, *erased}] == [
                message.id for message in client.memory.messages()
            ]
            now = {record.message.id or "" for record in store.find(1, After(0, 9999))}
            assert stored <= now, "nothing is lost"
            stored = now
            again = opened(store)
            found = again.follow(editor.messages, removed="leave_out")
            assert [message.content for message in again.messages()] == [one.content for one in told]
            assert [id_ for id_ in found.ids if id_] == [message.id for message in again.messages()]
            client.send(editor.messages)
            assert len(store.find(1, After(0, 9999))) == len(now), "and nothing more is stored"
