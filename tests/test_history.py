"""A client that sends its history again: each message is stored once, and an edited history becomes a branch."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, SQLiteStore, ToolCall
from shared_core.errors import DuplicateError
from shared_core.queries import After
from shared_core.records import Appended, Draft
from shared_core.results import FollowedHistory
from shared_core.testing import CountedStore, HashingEmbedder

ai, user = Message.assistant, Message.user


def memory(store: SQLiteStore, **settings: Any) -> InfiniteMemory:
    return InfiniteMemory(store, embedder=HashingEmbedder(), **settings)


def talk(*texts: str, ids: bool = True) -> list[Message]:
    """Questions and answers in turn; the text before a colon is the id."""
    found = []
    for number, text in enumerate(texts):
        name, _, said = text.partition(":")
        make = user if number % 2 == 0 else ai
        found.append(make(said or name, id=name) if ids else make(said or name))
    return found


def ids_of(memory: InfiniteMemory, history: list[Message]) -> list[str | None]:
    return list(memory.follow(history).ids)


def said(memory: InfiniteMemory) -> list[str]:
    return [message.content for message in memory.messages()]


@pytest.mark.parametrize("ids", [True, False])
def test_what_is_sent_again_is_stored_once(store: SQLiteStore, *, ids: bool) -> None:
    one = memory(store)
    history = talk("q1", "a1", "q2", "a2", "q3", ids=ids)
    for end in (1, 3, 5, 5, 5):
        one.follow(history[:end])
        assert said(one) == [message.content for message in history[:end]]
    new = memory(store)
    assert ids_of(new, history) == [message.id for message in one.messages()]
    assert [branch.name for branch in one.branches()] == ["main"]
    assert one.stats()["messages"] == 5


def test_ids_are_kept_and_missing_ones_are_random(store: SQLiteStore) -> None:
    assert ids_of(memory(store), talk("q1", "a1")) == ["q1", "a1"]
    made = ids_of(memory(store, session_id="2"), talk("q1", "a1", ids=False))
    other = ids_of(memory(store, session_id="3"), talk("q1", "a1", ids=False))
    assert len({*made, *other, "q1", "a1"}) == 6, "an id says nothing about the text"


@pytest.mark.parametrize("fresh", [True, False], ids=["new object", "same object"])
@pytest.mark.parametrize("place", [0, 3])
def test_a_changed_text_under_an_old_id_is_a_branch(store: SQLiteStore, place: int, *, fresh: bool) -> None:
    history = talk("q1", "a1", "q2", "a2", "q3")
    one = memory(store)
    one.follow(history)
    edited = [m.replace(content="changed") if n == place else m for n, m in enumerate(history)]
    for _ in range(2):
        one = memory(store) if fresh else one
        ids = ids_of(one, edited)
        assert said(one) == [message.content for message in edited]
        assert ids == [message.id for message in one.messages()]
        assert ids[:place] == [message.id for message in history[:place]]
        assert not set(ids[place:]) & {message.id for message in history}
    one.follow([*edited, ai("a3", id="a3")])
    assert said(one) == [*(message.content for message in edited), "a3"]
    assert one.stats() == {**one.stats(), "messages": 11 - place, "branches": 2}
    one.follow(history)
    assert (said(one), one.branch) == (["q1", "a1", "q2", "a2", "q3"], "main")


def test_what_another_line_says_is_copied_to_the_line_that_goes_on(store: SQLiteStore) -> None:
    one = memory(store)
    one.follow(talk("q1", "a1", "q2", "a2"))
    edited = one.follow([*talk("q1", "a1"), user("changed", id="q2")])
    for _ in range(2):
        one.follow([ai("a2", id="a2")], after=edited)
        assert said(one) == ["q1", "a1", "changed", "a2"]
    assert one.follow([ai("a1", id="a1")], after=edited.upto(2)).ids == ("q1", "a1", "a1"), "it was sent twice"
    assert one.stats()["messages"] == 6


def test_a_history_asked_again_without_its_answer_stands_at_the_question(store: SQLiteStore) -> None:
    one = memory(store)
    one.follow(talk("q1", "a1", "q2", "a2"))
    one.follow(talk("q1", "a1", "q2"))
    assert (said(one), one.branch) == (["q1", "a1", "q2"], None)
    assert [m.content for m in one.context().messages] == ["q1", "a1", "q2"]
    assert one.stats()["branches"] == 1


def test_a_long_end_of_a_history_is_known_on_any_line(store: SQLiteStore) -> None:
    texts = [f"{'qa'[n % 2]}{n}" for n in range(100)]
    memory(store).follow(talk(*texts, ids=False))
    memory(store).follow(talk(*texts[:98], "other", ids=False))
    one = memory(store)
    one.follow(talk(*texts[30:], "new", ids=False))
    assert (said(one), one.branch) == ([*texts, "new"], "main")


def test_what_is_put_before_stored_messages_is_not_stored(store: SQLiteStore) -> None:
    one = memory(store)
    one.follow(talk("q1", "a1", "q2", "a2"))
    summary = user("summary of it all", id="s")
    assert ids_of(one, [summary, *talk("q2", "a2", "q3")]) == [None, "q2", "a2", "q3"]
    assert said(one) == ["q1", "a1", "q2", "a2", "q3"]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("middle", [["a2"], ["note", "q2", "a2"]], ids=["missing", "unknown"])
def test_without_ids_another_middle_is_another_line(store: SQLiteStore, middle: list[str], *, ids: bool) -> None:
    one = memory(store)
    one.follow(talk("q1", "a1", "q2", "a2", ids=ids))
    sent = ["q1", "a1", *middle, "q3"]
    one.follow([(ai if text[0] == "a" else user)(text, id=text if ids else None) for text in sent])
    assert said(one) == (["q1", "a1", "q2", "a2", "q3"] if ids else sent)


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_of_two_that_say_the_same_the_one_that_is_missing_was_forgotten(store: SQLiteStore, removed: Any) -> None:
    one, history = memory(store), [user("q1"), ai("ok"), ai("ok"), user("q2"), ai("a2")]
    ids = one.follow(history, removed=removed).ids
    one.forget(ids=[ids[2] or ""])
    again = one.follow([*history, user("q3")], removed=removed)
    assert (again.ids[:5], one.branch) == ((*ids[:2], None, *ids[3:]), "main")


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_a_new_line_tells_what_was_forgotten_before_it(store: SQLiteStore, removed: Any) -> None:
    one, history = memory(store), talk("q1", "a1", "q2", "a2", "q3", ids=False)
    one.forget(ids=[one.follow(history, removed=removed).ids[2] or ""])
    for _ in range(3):
        one = memory(store)
        one.follow([*history[:3], ai("b2"), user("q4")], removed=removed)
        assert said(one) == ["q1", "a1", "b2", "q4"]
    assert (one.stats()["messages"], one.stats()["branches"]) == (6, 2)


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_what_is_new_comes_after_a_system_prompt_that_follows_what_was_forgotten(
    store: SQLiteStore, removed: Any
) -> None:
    one, history = memory(store), talk("q1", "a1", "q2", "a2", ids=False)
    one.forget(ids=[one.follow(history, removed=removed).ids[3] or ""])
    one.add(Message.system("Be brief."))
    one.follow([Message.system("Be brief."), *history, user("q3")], removed=removed)
    assert (said(one), one.branch) == (["q1", "a1", "q2", "Be brief.", "q3"], "main")


@pytest.mark.parametrize("sent", [["a2", "q4"], ["new"], ["q2", "a2", "q4"]])
@pytest.mark.parametrize("end", ["forgotten", "a system prompt"])
def test_the_line_that_was_stored_last_goes_on_though_its_end_is_no_message(
    store: SQLiteStore, sent: list[str], end: str
) -> None:
    one = memory(store)
    one.follow(talk("q1", "a1", ids=False))
    one.fork("side")
    ids = one.follow(talk("q1", "a1", "q2", "a2", *(["q3", "a3"] if end == "forgotten" else []), ids=False)).ids
    if end == "forgotten":
        one.forget(ids=[id_ for id_ in ids[4:] if id_])
    else:
        one.add(Message.system("Be brief."))
    new = memory(store)
    new.follow([(ai if text[0] == "a" else user)(text) for text in sent])
    asked = [message.content for message in new.messages() if message.role != "system"]
    assert (asked, new.branch) == (["q1", "a1", "q2", "a2", sent[-1]], "side")


def test_a_conversation_that_begins_anew_and_says_forgotten_words_again_keeps_them(store: SQLiteStore) -> None:
    one, history = memory(store), talk("q1", "ok", "q2", "ok", "q3", "ok", ids=False)
    one.forget(ids=[one.follow(history).ids[0] or ""])
    for end in (1, 3, 5):  # the answers are equal, and do not tell which conversation it is
        one.follow(history[:end])
        one.add(history[end])
        assert said(one)[5:] == [message.content for message in history[: end + 1]]
    assert one.branch == "main"


def test_what_is_new_is_not_taken_for_what_was_forgotten(store: SQLiteStore) -> None:
    one, history = memory(store), talk("q1", "a1", "q2", "a2", "q3", "a3", ids=False)
    stored = one.follow(history).ids
    one.forget(ids=[id_ for id_ in stored[2:] if id_])
    other = talk("other", "to it", "q9", ids=False)  # fewer than were forgotten there
    one.follow([*history[:2], *other])
    assert said(one) == ["q1", "a1", "other", "to it", "q9"]
    one.follow(talk("x1", "y1", "x2", ids=False))  # of a client that sends only what is new
    assert said(one)[-3:] == ["x1", "y1", "x2"]


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_a_question_is_answered_though_its_words_were_erased(store: SQLiteStore, removed: Any) -> None:
    one = memory(store)
    one.follow([user("Hello.")], removed=removed)
    one.add(ai("Hi."))
    for _ in range(2):
        one.forget(session=True)
        for new in (one, memory(store)):
            again = new.follow([user("Hello.")], removed=removed)
            assert said(new) == [message.content for message in new.context().messages] == ["Hello."]
        one.follow([ai("Hi.")], after=again, removed=removed)
        for new in (one, memory(store)):
            new.follow(talk("Hello.", "Hi.", "How are you?", ids=False), removed=removed)
            assert said(new) == ["Hello.", "Hi.", "How are you?"]
    assert one.stats()["messages"] == 3


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_an_id_tells_more_than_words_that_were_erased(store: SQLiteStore, removed: Any) -> None:
    one = memory(store)
    history = talk("q1", "a1", "q2", "a2", "q3", ids=False)
    one.follow(history, removed=removed)
    one.forget(session=True)
    named = [message.replace(id=f"{message.content}-new") for message in history]
    assert ids_of(one, named) == [message.id for message in named]
    one.forget(session=True)
    assert one.follow(named, removed=removed).ids == (None,) * 5
    assert said(one) == []


def test_a_question_in_a_tool_loop_is_answered_though_all_was_erased_meanwhile(store: SQLiteStore) -> None:
    call = ai("", tool_calls=[ToolCall(id="c", name="erase_all")])
    loop = [*talk("q1", "a1", "erase it", ids=False), call, Message.tool("done", tool_call_id="c")]
    one = memory(store)
    one.follow(loop[:4])
    one.forget(session=True)
    for new in (one, memory(store)):
        new.follow(loop)
        assert [message.role for message in new.context().messages] == ["user", "assistant", "tool"]
    one.follow([*loop, ai("a2")])
    assert said(one) == ["erase it", "", "done", "a2"]
    # A question that was erased alone was answered by what is still stored.
    one.forget(ids=[one.newest(4)[0].id or ""])
    one.follow(loop)
    assert said(one) == ["", "done"]


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["say", "erase", "ask again"]), st.integers(0, 9), st.booleans()), max_size=12
    )
)
@example(steps=[("say", 2, True), ("erase", 2, True), ("ask again", 2, True), ("say", 1, False), ("erase", 2, True)])
def test_what_is_erased_stays_erased_until_it_is_asked_again(steps: list[tuple[str, int, bool]], removed: Any) -> None:
    """The line says what the history says, without erased messages: all but an erased question that ends it."""
    with closing(SQLiteStore(":memory:")) as store:
        one, history, erased, number = memory(store), [user("first")], set[str](), 0
        once = set[str]()
        followed = one.follow(history, removed=removed)
        for verb, count, fresh in steps:
            if verb == "say":
                for _ in range(1 + count % 3):
                    number += 1
                    history.append((ai if len(history) % 2 else user)(f"text {number}"))
            elif verb == "ask again":
                # A history of one question may be all that a client sends of a longer one.
                # What is said instead of an erased message cannot be told from it.
                cut = (3 if removed == "keep" else 1) + count // 2 * 2
                if not any(message.content in once for message in history[cut:]):
                    del history[cut:]
            elif len(history) > 1 and (id_ := followed.ids[at := 1 + count % (len(history) - 1)]) is not None:
                if history[at].content in once or len(one.branches()) > 1:
                    continue  # at the end of another branch, nothing tells it from what is new
                one.forget(ids=[id_])
                once.add(history[at].content)
                erased.add(history[at].content)
            if history[-1].role == "user":
                erased.discard(history[-1].content)
            one = memory(store) if fresh else one
            followed = one.follow(history, removed=removed)
            assert said(one) == [message.content for message in history if message.content not in erased]
            assert [id_ for id_ in followed.ids if id_] == [message.id for message in one.messages()]
            assert one.follow(history, removed=removed) == followed


def test_the_reply_that_ends_a_turn_may_come_after_other_questions(store: SQLiteStore) -> None:
    asked = memory(store).follow([user("q1")])
    memory(store).follow([user("q2")])
    one = memory(store)
    one.follow([ai("a1")], after=replace(asked, branch="main"))
    assert (said(one), one.branch) == (["q1", "q2", "a1"], "main")
    assert one.newest(1)[0].turn_id == asked.ids[0]
    # Nobody has said where the history stood; more of it is known than its beginning; or more replies will come.
    call = ai("", tool_calls=[ToolCall(id="c", name="f")])
    for reply, after in (
        (ai("other"), asked),
        (ai("more"), replace(asked, branch="b").upto(0)),
        (call, replace(asked, branch="main")),
    ):
        one = memory(store)
        history = [reply] if len(after) else [user("q1"), reply]
        one.follow(history, after=after)
        assert (said(one), one.newest(1)[0].turn_id) == (["q1", reply.content], asked.ids[0])
    assert [branch.name for branch in one.branches()] == ["main", "branch-1", "branch-2", "branch-3"]


def test_a_second_reply_to_a_question_does_not_come_after_the_first(store: SQLiteStore) -> None:
    """A client that was cut off asks again; the reply that it did not wait for is stored before the other one."""
    with memory(store) as one, memory(store) as other:
        first = replace(one.follow([Message.user("q", id="q")]), branch="main")
        again = replace(other.follow([Message.user("q", id="q")]), branch="main")
        other.follow([Message.user("elsewhere", id="e")], after=again)
        one.follow([ai("unheard")], after=first)
        other.follow([ai("heard")], after=again)
        assert said(other) == ["q", "heard"]
        other.checkout("main")
        assert said(other) == ["q", "elsewhere", "unheard"]


def test_the_reply_goes_to_its_question_whatever_the_branch_is_called_by_now(store: SQLiteStore) -> None:
    """One run asks on `main`; another goes back, and makes its own line `main`, before the first has its answer."""
    one, two = memory(store), memory(store)
    history = talk("q1", "a1", "qA")
    asked = replace(one.follow(history), branch=one.branch)
    two.follow(talk("q1", "a1", "qB"))
    two.make_main()
    for run in (one, memory(store)):
        run.follow(talk("q1", "a1", "qA", "aA")[3:], after=asked)
        assert said(run) == ["q1", "a1", "qA", "aA"]
        assert said(memory(store)) == ["q1", "a1", "qB"]
    # Of several lines that hold the question, `main` is first, else the newest.
    for name in ("older", "newer"):
        one.fork(name, at="qA")
        one.add(user(f"on {name}"))
    one.checkout("older")
    one.make_main()
    for reply, line in (("aB", ["q1", "a1", "qA", "on older", "aB"]), ("aC", ["q1", "a1", "qA", "on newer", "aC"])):
        one.follow([ai(reply, id=reply)], after=replace(asked, branch="gone"))
        assert said(one) == line
        one.checkout("older")
        one.make_main()


def test_part_of_a_history_has_no_branch() -> None:
    history = FollowedHistory(("1", "2"), (True, False), "main")
    assert (history.upto(2), history.upto(1)) == (history, FollowedHistory(("1",), (True,)))
    with pytest.raises(ValueError, match=r"count=3.*has 2 messages"):
        history.upto(3)


def test_two_system_messages_of_one_id_are_two(store: SQLiteStore) -> None:
    one = memory(store)
    system = [Message.system(text, id="s") for text in ("be brief", "be polite")]
    for _ in range(2):
        first, second, _ = ids_of(one, [*system, user("q1", id="q1")])
        assert (first, len({first, second, "q1"})) == ("s", 3)
        assert said(one) == ["be brief", "be polite", "q1"]
        one = memory(store)


def test_new_messages_that_say_the_same_as_the_question_before_are_said_again(store: SQLiteStore) -> None:
    """Unless that has no answer yet, or began the conversation: then a client that sends all of it went back to it."""
    for text in ("q", "next", "next", "next"):
        one = memory(store)
        answer = ai(f"to {text}")
        one.follow([answer], after=one.follow([user(text)]))
    assert said(memory(store)) == ["q", "to q", *["next", "to next"] * 3]
    for _ in range(2):
        memory(store).follow([user("next")])
    assert said(memory(store)) == ["q", "to q", *["next", "to next"] * 3, "next"]
    again = memory(store)
    again.follow([user("q")])
    assert said(again) == ["q", "to q", *["next", "to next"] * 3, "next", "q"]


def test_a_first_question_without_its_answer_is_the_conversation_that_went_back(store: SQLiteStore) -> None:
    one = memory(store)
    one.follow([ai("there")], after=one.follow([user("where?")]))
    one.follow([user("where?")])
    assert said(one) == ["where?"]


def test_only_the_new_messages_and_a_few_more_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        history = [message for n in range(500) for message in talk(f"q{n}", f"a{n}")]
        one = memory(store)
        followed = one.follow(history)
        rows: list[int] = []
        get = SQLiteStore.get

        def counted(self: SQLiteStore, session: int, ids: Any) -> Any:
            found = get(self, session, ids)
            rows.append(len(found))
            return found

        monkeypatch.setattr(SQLiteStore, "get", counted)
        one.follow(talk("q500", "a500"), after=followed)
        assert sum(rows) <= 2
        history += talk("q500", "a500", "q501", "a501")
        assert ids_of(memory(store), history) == [message.id for message in history]
        assert sum(rows) <= 2 + 64 + 8
        assert one.stats()["messages"] == 1002 + 2


histories = st.lists(st.tuples(st.integers(0, 6), st.lists(st.sampled_from("abc"), max_size=3)), min_size=1, max_size=6)


@pytest.mark.parametrize("ids", [True, False])
@given(steps=histories, fresh=st.booleans(), warm=st.booleans())
def test_every_history_is_on_its_branch_as_it_was_sent(
    steps: list[tuple[int, list[str]]], *, ids: bool, fresh: bool, warm: bool
) -> None:
    """Whatever a client goes back to and says instead, the branch says what the client's history says."""
    with closing(SQLiteStore(":memory:")) as store:
        one, history, number, followed = (
            memory(store),
            [user("first", id="first" if ids else None)],
            0,
            FollowedHistory(),
        )
        for back, texts in steps:
            followed = followed.upto(min(len(followed), max(1, len(history) - back)))
            del history[max(1, len(history) - back) :]
            for text in texts:
                number += 1
                make = user if len(history) % 2 == 0 else ai
                history.append(make(text, id=f"{number}" if ids else None))
            if fresh:
                one = memory(store)
            known = len(followed) if warm else 0
            followed = one.follow(history[known:], after=followed.upto(known))
            assert said(one) == [message.content for message in history]
            assert list(followed.ids) == [message.id for message in one.messages()]
        again = memory(store)
        assert again.follow(history) == followed
        assert said(again) == [message.content for message in history]


@pytest.mark.parametrize("forgotten", ["first", "second"])
def test_a_forgotten_question_before_an_answer_written_anew_is_not_stored_again(forgotten: str) -> None:
    stored = [
        Message.user("first?", id="first"), Message.assistant("**Yes**, it is.", id="a1"),
        Message.user("second?", id="second"), Message.assistant("**No**, it is not.", id="a2"),
    ]  # fmt: skip
    sent = [
        Message.user("first?"), Message.assistant("Yes, it is."), Message.user("second?"),
        Message.assistant("No, it is not."), Message.user("third?"),
    ]  # fmt: skip
    with InfiniteMemory() as memory:
        memory.add(stored)
        memory.forget(ids=[forgotten])
        history = memory.follow(sent, rewritten=True)
        left = [message.id for message in stored if message.id != forgotten]
        assert [message.id for message in memory.messages()] == [*left, history.ids[-1]]
        assert history.ids == (
            *(None if message.id == forgotten else message.id for message in stored),
            history.ids[-1],
        )


@pytest.mark.parametrize("forgotten", ["first?", "Asking."])
def test_what_comes_without_a_history_is_not_taken_for_what_was_forgotten(store: SQLiteStore, forgotten: str) -> None:
    call = ai("", tool_calls=[ToolCall(id="c", name="ask")])
    one = memory(store)
    one.add([user("first?"), ai("Asking."), user("second?"), call])
    one.forget(ids=[message.id or "" for message in one.messages() if message.content == forgotten])
    for new in ([Message.tool("9", tool_call_id="c")], [ai("Nine.")], [user("third?")]):
        one.follow(new, rewritten=True)
        assert said(one)[-len(new) :] == [message.content for message in new]


@given(
    window=st.integers(2, 120), named=st.sets(st.integers(0, 119)), forgotten=st.sets(st.integers(0, 119), max_size=9),
    rewritten=st.booleans(),
)  # fmt: skip
def test_the_end_of_a_history_is_known_whatever_was_forgotten_in_it(
    window: int, named: set[int], forgotten: set[int], *, rewritten: bool
) -> None:
    """Some messages have the ids under which they are stored, and some have none; of a short end, the newest has."""
    if window < 64:
        named, forgotten = {*named, 119}, forgotten - {119}
    texts = [f"text {number} of {number}" for number in range(120)]
    with closing(SQLiteStore(":memory:")) as store, memory(store) as one:
        ids = one.follow(talk(*texts, ids=False)).ids
        gone = [ids[number] for number in sorted(forgotten)]
        one.forget(ids=[id_ for id_ in gone if id_])
        sent = [
            message.replace(id=ids[number] if number in named else None)
            for number, message in enumerate(talk(*texts, ids=False))
        ]
        again = one.follow([*sent[-window:], user("new?")], rewritten=rewritten)
        assert said(one) == [*(text for number, text in enumerate(texts) if number not in forgotten), "new?"]
        if window >= 64:
            assert again.ids[-60:-1] == tuple(None if id_ in gone else id_ for id_ in ids[-59:])


def test_an_answer_written_anew_is_compared_with_the_others_of_its_turn_in_one_read() -> None:
    """Though many messages may be this answer, because all questions are equal and some messages were forgotten."""
    with closing(CountedStore(SQLiteStore(":memory:"))) as store:
        one = InfiniteMemory(store, embedder=HashingEmbedder())
        talk = [make(text) for number in range(20) for make, text in ((user, "go on"), (ai, f"**step {number}** done"))]
        ids = one.follow(talk, removed="leave_out", rewritten=True).ids
        one.forget(ids=[id_ for id_ in ids[:10] if id_])
        one.fork("other")
        anew = [message.replace(content=message.content.replace("**", "so ")) for message in talk]
        store.reset()
        one.follow([*anew, user("and then?")], removed="leave_out", rewritten=True)
        assert said(one) == [*(message.content for message in talk[10:]), "and then?"]
        assert 0 < store.trips.count("read(InTurns)") <= 15, "as many as there are turns left"


class Interrupted(SQLiteStore):
    """Lets another process do something before messages are stored."""

    meanwhile: Callable[[], object] | None = None

    def append(self, session: int, branch: str, drafts: Sequence[Draft], **how: Any) -> Appended:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().append(session, branch, drafts, **how)


@pytest.mark.interleaved
@pytest.mark.parametrize("removed", ["keep", "leave_out"])
def test_two_processes_that_go_back_with_one_history_store_its_question_once(tmp_path: Path, removed: Any) -> None:
    path, back = tmp_path / "chat.db", [*talk("q1", "a1"), user("q7", id="q7")]
    with closing(Interrupted(path)) as store, closing(SQLiteStore(path)) as other:
        one, two = memory(store), memory(other)
        one.follow(talk("q1", "a1", "q2", "a2"))
        store.meanwhile = lambda: two.follow(back, removed=removed)
        assert one.follow(back, removed=removed).ids == ("q1", "a1", "q7")
        assert (said(one), one.branch) == (["q1", "a1", "q7"], two.branch)
        assert len(one.branches()) == 2
        with pytest.raises(DuplicateError, match="'q8' is given twice"):
            one.follow([user("q8", id="q8"), user("q9", id="q8")])


class Rewriting:
    """A client that sends its whole history again, of any line that it has ever shown; it may write answers anew."""

    def __init__(self, store: SQLiteStore, removed: Any, *, rewritten: bool) -> None:
        self.store, self.removed, self.rewritten = store, removed, rewritten
        self.lines: list[list[Message]] = []
        self.forgotten, self.ever = set[str](), set[str]()
        self.number = 0

    def chosen(self, step: str, which: int, back: int) -> list[Message]:
        """Return the next history: one that goes on, one whose answer is asked for again, or one that was edited."""
        self.number += 1
        line = self.lines[-1 - which % min(4, len(self.lines))] if self.lines else []
        question = user(f"question{self.number} then{self.number}")
        if step == "ask" or not line:
            return [*line, question]
        at = max(0, len(line) - 2 - 2 * back)
        return line[: at + 1] if step == "ask again" else [*line[:at], question]

    def forget(self, number: int) -> None:
        with memory(self.store) as one:
            stored = self.stored()
            gone = stored[number % len(stored)]
            one.forget(ids=[gone.id or ""])
            self.forgotten.add(gone.content)
            self.ever.add(gone.content)

    def stored(self) -> list[Message]:
        key = self.store.session(None, memory(self.store).session_id)
        return [record.message for record in self.store.find(key, After(0, 10_000))] if key is not None else []

    def send(self, one: InfiniteMemory, history: list[Message]) -> None:
        self.forgotten.discard(history[-1].content)  # it is asked again
        sent = [message.replace(content=message.content.replace("**", "")) for message in history]
        sent = sent if self.rewritten else history
        followed = one.follow(sent, removed=self.removed, rewritten=self.rewritten)
        answer = ai(f"**answer{self.number}** it{self.number} is{self.number} so")
        one.follow([answer], after=followed, rewritten=self.rewritten)
        if one.branch is not None:
            one.make_main()
        self.lines.append([*history, answer])


steps_with_forgets = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask again", "edit"]), st.integers(0, 3), st.integers(0, 2),
        st.none() | st.integers(0, 20), st.booleans(),
    ),
    min_size=3, max_size=14,
)  # fmt: skip


@pytest.mark.parametrize("removed", ["keep", "leave_out"])
@given(steps=steps_with_forgets, rewritten=st.booleans())
def test_nothing_that_was_forgotten_comes_back(
    steps: list[tuple[str, int, int, int | None, bool]], removed: Any, *, rewritten: bool
) -> None:
    """Whatever line a client goes back to: the store holds nothing forgotten and nothing twice, and no line is lost."""
    with closing(SQLiteStore(":memory:")) as store:
        client, one = Rewriting(store, removed, rewritten=rewritten), memory(store)
        for step, which, back, forgotten, fresh in steps:
            history = client.chosen(step, which, back)
            if len(history) == 1 and client.lines and removed == "keep":
                continue  # alone, it is what is new on the line that goes on
            if forgotten is not None and client.lines:
                client.forget(forgotten)
            one = memory(store) if fresh else one
            client.send(one, history)
            texts = [message.content for message in client.stored()]
            assert not client.forgotten.intersection(texts)
            assert len(set(texts)) == len(texts)
            line, whole = said(one), [message.content for message in client.lines[-1]]
            if client.ever.isdisjoint(whole):
                assert line == whole
            asked = [text for text in whole[::2] if text not in client.ever or text in line]
            assert [text for text in line if text.startswith("question")] == asked
            assert line[-2:] == whole[-2:]
