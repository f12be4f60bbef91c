"""A history that is the whole conversation: what was taken back leaves the line, and stays stored elsewhere."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore, ToolCall
from shared_core.errors import UnknownReferenceError
from shared_core.history.forms import Forms
from shared_core.queries import After
from shared_core.records import MAIN, Record
from shared_core.results import FollowedHistory
from tests.support.histories import CountingStore

ai, user = Message.assistant, Message.user


def opened(store: SQLiteStore, **settings: Any) -> InfiniteMemory:
    return InfiniteMemory(store, embedder="words", token_counter="characters/4", **settings)


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


def ids_at(memory: InfiniteMemory, *ids: str | None) -> list[str]:
    """Return the originals of some messages: itself, or what it is a copy of."""
    return [next(iter(memory.sources(id_)), id_) for id_ in ids if id_ is not None]


def everything(store: SQLiteStore) -> list[str]:
    return [record.message.content.removeprefix("says ") for record in store.find(1, After(0, 9999))]


LONG = ("q1", "a1", "q2", "a2", "q3", "a3")


def test_what_is_missing_in_the_middle_leaves_the_line(client: Client, store: SQLiteStore) -> None:
    client.send(talk(*LONG))
    followed = client.send(talk("q1", "q2", "a2", "q3", "a3"))
    assert line(client.memory) == ["q1", "q2", "a2", "q3", "a3"]
    assert list(followed.ids) == [message.id for message in client.memory.messages()]
    assert followed.ids[0] == "q1"
    assert ids_at(client.memory, *followed.ids) == ["q1", "q2", "a2", "q3", "a3"]
    assert not set(followed.ids[1:]) & set(LONG)
    assert everything(store) == [*LONG, "q2", "a2", "q3", "a3"]
    turns = [message.turn_id for message in client.memory.messages()]
    assert turns == ["q1", followed.ids[1], followed.ids[1], followed.ids[3], followed.ids[3]]
    found = {hit.message.content for hit in client.memory.search("a1 a2", 9)}
    assert ("says a2" in found, "says a1" in found) == (True, False)
    # What is said next stands on the new line, also for a process that knows the ids of the client only.
    longer = talk("q1", "q2", "a2", "q3", "a3", "q4", "a4")
    for number in (6, 7):
        assert client.send(longer[:number]).ids[number - 1] == longer[number - 1].id
        assert (line(client.memory), client.memory.branch) == (
            ["q1", "q2", "a2", "q3", "a3", "q4", "a4"][:number],
            "branch-1",
        )
    # What was taken back comes back.
    assert client.send(talk(*LONG)).ids == LONG
    assert (line(client.memory), client.memory.branch, len(everything(store))) == (list(LONG), MAIN, 12)


def test_what_stands_before_a_given_message_stays(client: Client, store: SQLiteStore) -> None:
    client.send(talk(*LONG))
    summary = talk("summary")
    for _ in range(2):
        followed = client.send([*summary, *talk("q3", "a3", "q4")], since="q3")
        assert (followed.ids, line(client.memory)) == ((None, "q3", "a3", "q4"), [*LONG, "q4"])
    # After it, the list is the truth.
    followed = client.send([*summary, *talk("q3", "q4", "a4")], since="q3")
    assert line(client.memory) == [*LONG[:5], "q4", "a4"]
    assert followed.ids[:2] == (None, "q3")
    # The first message that is left may be a copy, or new; then all that is stored stays.
    client.memory.make_main()
    followed = client.send([*talk("other summary"), *talk("q4", "a4", "q5")], since="q4")
    assert line(client.memory) == [*LONG[:5], "q4", "a4", "q5"]
    assert ids_at(client.memory, *followed.ids) == ["q4", "a4", "q5"]
    client.send([*summary, *talk("q6")], since="q6")
    client.send([*summary, *talk("q6", "a6")], since="q6")
    assert line(client.memory) == [*LONG[:5], "q4", "a4", "q5", "q6", "a6"]
    assert client.memory.branch == MAIN
    assert len(everything(store)) == 12
    client.sent, client.followed = [], FollowedHistory()
    client.send([*summary, *talk("q6", "a6")])
    assert line(client.memory) == ["summary", "q6", "a6"], "nothing says that it stays"


def test_the_first_message_that_is_kept_is_looked_for_on_the_own_line(store: SQLiteStore) -> None:
    one = opened(store)
    one.follow(talk(*LONG), removed="leave_out")
    followed = one.follow(talk("q1", *LONG[2:]), removed="leave_out")
    kept = talk("summary", "q3", "a3", "q4")
    # Of two forms of it, this is the one on the line of what was followed, else on the one that is checked out.
    one.checkout(MAIN)
    one.follow(kept, after=followed.upto(2), removed="leave_out", since="q3")
    assert (line(one), one.branch) == (["q1", *LONG[2:], "q4"], "branch-1")
    for branch, expected in ((MAIN, [*LONG, "q4"]), ("branch-1", ["q1", *LONG[2:], "q4"])):
        one.checkout(branch)
        one.follow(kept, removed="leave_out", since="q3")
        assert line(one) == expected


@pytest.mark.parametrize(
    ("since", "sent", "expected"),
    [
        ("q3", [user("says [PIN]", id="q3"), *talk("a3")], [*LONG[:4], "[PIN]", "a3"]),  # edited
        ("q9", talk("q9", "q3", "a3"), [*LONG[:4], "q9", "q3", "a3"]),  # new: before what is known
        ("other", talk("q3", "a3"), ["summary", "q3", "a3"]),  # unknown: it says nothing
    ],
)
def test_the_first_message_that_is_kept_may_be_another_one(
    client: Client, since: str, sent: list[Message], expected: list[str]
) -> None:
    client.send(talk(*LONG))
    for more in ([], talk("q4")):
        client.send([*talk("summary"), *sent, *more], since=since)
        assert line(client.memory) == [*expected, *(message.id or "" for message in more)]


def test_a_history_of_new_messages_begins_anew(client: Client, store: SQLiteStore) -> None:
    """Nothing is guessed from what the messages say."""
    client.send(talk(*LONG))
    for number in range(4):
        again = [one.replace(id=f"{one.id}-{number}") for one in talk(*LONG)]
        assert client.send(again).ids == tuple(one.id for one in again)
        assert line(client.memory) == list(LONG)
        client.memory.make_main()
    assert len(everything(store)) == 5 * 6
    assert client.send([]).ids == ()
    assert line(client.memory) == []
    client.send(talk("q9"))
    assert line(client.memory) == ["q9"]


def test_an_empty_history_of_an_empty_session_stores_nothing(client: Client, store: SQLiteStore) -> None:
    assert client.send([]) == FollowedHistory()
    assert (client.memory.branches(), store.session(None, "default")) == ([], None)
    client.send(talk("q1"))
    assert (line(client.memory), client.memory.branch) == (["q1"], MAIN)


@pytest.mark.parametrize("place", [0, 3])
def test_what_was_forgotten_is_not_missed_where_nothing_has_an_id(client: Client, place: int) -> None:
    """The client still has it; only its place tells which one it is."""
    messages = [message.replace(id=None) for message in talk(*LONG)]
    forgotten = client.send(messages).ids[place]
    assert forgotten is not None
    client.memory.forget(ids=[forgotten])
    client.sent, client.followed = [], FollowedHistory()
    client.send([*messages, Message.user("says q4")])
    assert line(client.memory) == [*LONG[:place], *LONG[place + 1 :], "q4"]


def test_only_as_many_are_left_out_as_were_forgotten_there(store: SQLiteStore) -> None:
    one = opened(store)
    one.follow(talk(*LONG), removed="leave_out")
    one.forget(ids=["a2"])
    sent = [message.replace(id=None) for message in talk("q1", "note", *LONG[1:])]
    one.follow(sent, removed="leave_out")
    assert line(one)[:4] == ["q1", "note", "a1", "q2"]


def test_who_forgets_a_message_forgets_its_copies_and_edited_forms(client: Client, store: SQLiteStore) -> None:
    client.send(talk(*LONG))
    client.send(talk(*LONG[1:]))
    edited = [ai("my secret", id="a2") if one.id == "a2" else one for one in talk(*LONG[1:])]
    client.send(edited)
    assert line(client.memory) == ["a1", "q2", "my secret", "q3", "a3"]
    gone = client.memory.forget(ids=["a2"]).ids
    assert (len(gone), "a2" in everything(store), "my secret" in everything(store)) == (3, False, False)
    client.sent, client.followed = [], FollowedHistory()
    client.send([*edited, *talk("q4")])
    assert line(client.memory) == ["a1", "q2", "q3", "a3", "q4"]


def test_a_redacted_reply_does_not_come_after_what_it_was(store: SQLiteStore) -> None:
    """Not even where it may be added to a branch to which others have added."""
    one = opened(store)
    one.follow(talk("q1", "a1"), removed="leave_out")
    asked = replace(one.follow(talk("q1"), removed="leave_out"), branch=MAIN)
    one.follow([ai("[redacted]", id="a1")], after=asked, removed="leave_out")
    assert line(one) == ["q1", "[redacted]"]


def test_two_messages_that_now_say_the_same_are_two(client: Client, store: SQLiteStore) -> None:
    client.send(talk(*LONG))
    redacted = [one.replace(content="[redacted]") if one.id in ("a1", "a2") else one for one in talk(*LONG)]
    client.send(redacted)
    assert line(client.memory) == ["q1", "[redacted]", "q2", "[redacted]", "q3", "a3"]
    client.memory.forget(ids=["a1"])
    assert line(client.memory) == ["q1", "q2", "[redacted]", "q3", "a3"]
    client.sent, client.followed = [], FollowedHistory()
    assert client.send(redacted).ids[1] is None
    assert line(client.memory) == ["q1", "q2", "[redacted]", "q3", "a3"]


def test_a_system_prompt_is_not_missed(client: Client, store: SQLiteStore) -> None:
    system = Message.system
    client.send([system("one"), *talk(*LONG[:4])])
    client.send([system("two"), *talk(*LONG)])
    assert line(client.memory) == [*LONG[:4], "two", *LONG[4:]]
    client.send(talk(*LONG, "q4"))
    assert client.memory.branch == MAIN
    # A new line has the system prompt of the list, also where it is not checked out.
    client.send([system("two"), *talk(*LONG[2:], "q4")])
    assert sorted(line(client.memory)) == sorted(["two", *LONG[2:], "q4"])
    count = len(everything(store))
    for _ in range(2):
        client.send([system("three"), *talk(*LONG[2:], "q4", "q5")])
        client.sent, client.followed = [], FollowedHistory()
        client.memory.checkout(MAIN)
    assert len(everything(store)) == count + 2


def test_a_line_that_begins_anew_keeps_the_system_prompt(client: Client) -> None:
    client.memory.add([Message.system("be brief"), Message.system("be polite", pinned=False)])
    client.send(talk(*LONG))
    client.send(talk("q9"))
    assert [message.content for message in client.memory.messages()] == ["be brief", "be polite", "says q9"]


@pytest.mark.parametrize("done", ["cherry-pick", "rebase"])
def test_copies_that_others_made_are_recognized(client: Client, store: SQLiteStore, done: str) -> None:
    client.send(talk(*LONG[:4]))
    memory = opened(store)
    memory.fork("side", at="a1")
    memory.add(talk("q9"))
    if done == "rebase":
        memory.checkout(MAIN)
        memory.rebase("side")
    else:
        memory.cherry_pick(["q2", "a2"])
        copies = [message.id or "" for message in memory.newest(2)]
        memory.rewind("q9")
        memory.cherry_pick(copies)
        memory.make_main()
    count = len(everything(store))
    followed = client.send(talk("q1", "a1", "q9", "q2", "a2", "q3"))
    assert (line(client.memory), client.memory.branch) == (["q1", "a1", "q9", "q2", "a2", "q3"], MAIN)
    assert list(followed.ids) == [message.id for message in client.memory.messages()]
    assert len(everything(store)) == count + 1


def test_what_is_in_the_list_twice_is_on_the_line_once(client: Client, store: SQLiteStore) -> None:
    client.send(talk("q1", "a1", "q2", "q1", "q2"))
    assert line(client.memory) == ["q1", "a1", "q2"]
    followed = client.send(talk("q1", "a1", "q2", "q1", "a1", "a2"))
    assert (followed.ids, line(client.memory)) == (("q1", "a1", "q2", None, None, "a2"), ["q1", "a1", "q2", "a2"])
    client.send(talk("a1", "q2", "a1", "a2", "q2"))
    assert line(client.memory) == ["a1", "q2", "a2"]
    count = len(everything(store))
    client.send(talk("a1", "q2", "a1", "a2", "q2", "a1", "q3"))
    assert (line(client.memory), len(everything(store))) == (["a1", "q2", "a2", "q3"], count + 1)


def test_what_was_followed_as_part_of_a_history_goes_on_as_a_whole(client: Client, store: SQLiteStore) -> None:
    """A line with an edited message, from before the client said that it sends all."""
    one = opened(store)
    one.follow(talk(*LONG))
    edited = [ai("edited", id="a1") if m.id == "a1" else m for m in talk(*LONG)]
    one.follow(edited)
    assert line(one) == ["q1", "edited", *LONG[2:]]
    client.send([*edited, *talk("q4")])
    assert (line(client.memory), client.memory.branch) == (["q1", "edited", *LONG[2:], "q4"], one.branch)
    assert len(everything(store)) == 6 + 5 + 1


def test_of_two_lines_the_one_that_says_more_goes_on(store: SQLiteStore) -> None:
    """Where nothing has an id, a message that was forgotten on one line may stand on another."""
    one = opened(store)
    one.follow(talk(*LONG[:4]), removed="leave_out")
    one.follow(talk("q1", "b1", *LONG[2:4]), removed="leave_out")
    one.forget(ids=["a1"])
    one.checkout(MAIN)
    one.follow([message.replace(id=None) for message in talk("q1", "b1", *LONG[2:5])], removed="leave_out")
    assert line(one) == ["q1", "b1", *LONG[2:5]]


def test_a_copy_is_what_its_original_is(client: Client, store: SQLiteStore) -> None:
    """Its time, its size and its tool calls; only its id and its turn are its own."""
    call = ToolCall(id="c", name="f", arguments="{}")
    messages = [*talk("q1"), ai("", id="a1", tool_calls=[call]), Message.tool("found", tool_call_id="c", id="t1")]
    client.send([*messages, *talk("a2")])
    stored = {message.id: message for message in client.memory.messages()}
    followed = client.send([*talk("a2"), *messages])
    assert [one.content for one in client.memory.messages()] == ["says a2", "says q1", "", "found"]
    for record in store.get(1, [id_ for id_ in followed.ids if id_ is not None]):
        copied = stored[record.picked_from]
        assert record.message.replace(id=copied.id, turn_id=copied.turn_id) == copied
        assert (record.counter, record.tokens) == ("characters/4", store.get(1, [copied.id or ""])[0].tokens)


def test_what_is_read_grows_with_what_is_new(store: SQLiteStore) -> None:
    with closing(CountingStore(":memory:")) as counting:
        history = talk(*(f"{'qa'[n % 2]}{n}" for n in range(200)))
        one = opened(counting)
        followed = one.follow(history, removed="leave_out")
        reads: list[Counter[str]] = []
        for removed in ("keep", "leave_out"):
            new = talk(f"q{removed}", f"a{removed}")
            one.newest(1)
            counting.reset()
            followed = one.follow(new, after=followed, removed=removed)
            reads.append(+counting.rows)
            history += new
        assert reads[0] == reads[1]
        assert sum(reads[0].values()) <= 4
        # A new object reads the list once, and where its line is not the one that is checked out, its copies, too.
        for times, copied, main in ((1, False, False), (2, True, False), (1, True, True)):
            if copied:
                del history[1]
                one.follow(history, removed="leave_out")
            if main:
                one.make_main()
            counting.reset()
            opened(counting).follow(history, removed="leave_out")
            rows = counting.rows["get"] + counting.rows["at"] + counting.rows["madefrom"]
            assert len(history) <= rows <= times * len(history) + 16
        counting.reset()
        opened(counting).follow(history[:5], removed="leave_out")
        assert counting.rows["at"] <= 2 * 5 + 4


def test_a_line_that_differs_is_compared_once(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    history = talk(*(f"{'qa'[n % 2]}{n}" for n in range(300)))
    opened(store).follow(history)
    count, is_one = Counter[str](), Forms.is_one

    def counted(forms: Forms, index: int, record: Record) -> bool:
        count["compared"] += 1
        return is_one(forms, index, record)

    monkeypatch.setattr(Forms, "is_one", counted)
    one = opened(store)
    one.follow(history[2:], removed="leave_out")
    assert line(one) == [message.content.removeprefix("says ") for message in history[2:]]
    assert count["compared"] <= 3 * len(history)


TEXTS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.lists(TEXTS, min_size=1, max_size=3)),
        st.tuples(st.just("remove"), st.frozensets(st.integers(0, 9), min_size=1, max_size=4)),
        st.tuples(st.just("edit"), st.tuples(st.integers(0, 9), TEXTS)),
        st.tuples(st.just("insert"), st.tuples(st.integers(0, 9), TEXTS)),
        st.tuples(st.just("back"), st.integers(1, 4)),
        st.tuples(st.just("undo"), st.integers(1, 3)),
        st.tuples(st.just("bring"), st.tuples(st.integers(0, 9), st.integers(0, 9))),
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
            case "bring":  # one that is not there, or that stood elsewhere
                known = {one.id: one for messages in self.earlier for one in messages}
                if None not in known and known:
                    one = known[list(known)[what[0] % len(known)]]
                    self.messages = [other for other in self.messages if other.id != one.id]
                    self.messages.insert(what[1] % (len(self.messages) + 1), one)
            case "clear":
                self.messages = []
        self.messages = [one for one in self.messages if one.id not in self.gone]


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])
@example(steps=[("insert", (0, "a"))] * 3 + [("insert", (1, "a"))], warm=False)
@example(steps=[("insert", (0, "a"))] * 2 + [("say", ["a"]), ("forget", 0)], warm=True)
@example(steps=[("insert", (0, "a"))] * 3 + [("back", 1), ("insert", (1, "a")), ("undo", 2), ("forget", 1)], warm=True)
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
            if verb == "bring":  # what was taken for it before may stand in the list, too: the whole list tells
                client.followed, client.sent = FollowedHistory(), []
            followed = client.send(editor.messages)
            told = [message for message in editor.messages if message.id not in editor.gone]
            assert [message.content for message in client.memory.messages()] == [one.content for one in told]
            assert [id_ for id_ in followed.ids if id_ not in {None, *erased}] == [
                message.id for message in client.memory.messages()
            ]
            now = {record.message.id or "" for record in store.find(1, After(0, 9999))}
            assert stored <= now, "nothing is lost"
            assert not erased & now
            stored = now
            again = opened(store)
            found = again.follow(editor.messages, removed="leave_out")
            assert [message.content for message in again.messages()] == [one.content for one in told]
            assert [id_ for id_ in found.ids if id_] == [message.id for message in again.messages()]
            assert len(store.find(1, After(0, 9999))) == len(now), "and nothing more is stored"
