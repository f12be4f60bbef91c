"""Standing facts are found in what users say about themselves, and nowhere else."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import SQLiteStore
from shared_core.index import arrays
from shared_core.index.session_index import SessionIndex
from shared_core.index.standing_facts import FACT_COLUMNS, LOOKED_AT, MOST_FACTS, bit, facts_in
from shared_core.index.text import language_of
from shared_core.messages import Role
from shared_core.records import MAIN
from shared_core.testing.oracle import Session, draft
from tests.index.sessions import refreshed

STATED = [
    ("I'm vegan", "diet", "I'm vegan"),
    ("I\u2019m vegan.", "diet", "I\u2019m vegan"),
    ("I'm no longer vegan", "diet", "I'm no longer vegan"),
    ("Thanks! I'm vegan by the way, can you suggest dinner?", "diet", "I'm vegan by the way"),
    ("I don't eat pork.", "diet", "I don't eat pork"),
    ("I'm allergic to nuts", "allergy", "I'm allergic to nuts"),
    ("Well, my wife is allergic to shellfish, so no prawns.", "allergy", "my wife is allergic to shellfish"),
    ("I have a peanut allergy", "allergy", "I have a peanut allergy"),
    ("Please call me Sam", "name", "call me Sam"),
    ("My name is Raman.", "name", "My name is Raman"),
    ("Call me Sam.", "name", "Call me Sam"),
    ("Hi, I'm Bob.", "name", "I'm Bob"),
    ("I'd like you to always cite sources.", "instruction", "I'd like you to always cite sources"),
    ("I'd like replies to be short, please.", "instruction", "I'd like replies to be short"),
    ("Hi, I'm Christian.", "name", "I'm Christian"),
    ("Hello! I'm Maria Santos.", "name", "I'm Maria"),
    ("Hello! I am Bob and I live in Leeds", "name", "I am Bob"),
    ("I am Bob and I live in Leeds", "name", "I am Bob"),
    ("I'm Ann Lee, I work nights.", "name", "I'm Ann"),
    ("I work as a nurse in Graz", "role", "I work as a nurse in Graz"),
    ("I'm a freelance software engineer.", "role", "I'm a freelance software engineer"),
    ("I can't work on Fridays", "constraint", "I can't work on Fridays"),
    ("I have asthma, by the way.", "constraint", "I have asthma"),
    ("I prefer asynchronous persistence", "preference", "I prefer asynchronous persistence"),
    ("Since I prefer tea over coffee, what should I buy?", "preference", "I prefer tea over coffee"),
    ("I prefer simple, quiet rooms.", "preference", "I prefer simple, quiet rooms"),
    ("My favourite colour is blue", "preference", "My favourite colour is blue"),
    ("I can't stand cilantro!", "preference", "I can't stand cilantro"),
    ("I only use metric tools", "preference", "I only use metric tools"),
    ("please answer in metric units", "instruction", "please answer in metric units"),
    ("Answer in French from now on.", "instruction", "Answer in French from now on"),
    ("Always cite your sources.", "instruction", "Always cite your sources"),
    ("Never suggest pork", "instruction", "Never suggest pork"),
    ("From now on, keep answers short.", "instruction", "From now on, keep answers short"),
    ("Always show the units when I ask for a measure", "instruction", "Always show the units when I ask for a measure"),
    ("Whenever I ask about code, use type hints.", "instruction", "Whenever I ask about code, use type hints"),
    ("Don't use emojis", "instruction", "Don't use emojis"),
    ("Keep your answers short, please.", "instruction", "Keep your answers short"),
    ("Always report sizes when I ask for shoes.", "instruction", "Always report sizes when I ask for shoes"),
    ("24-hour clock.", "instruction", "24-hour clock"),
    ("Metric units, please.", "instruction", "Metric units"),
]

STATED_ELSEWHERE = [
    ("Zeig mir immer die Einheiten, wenn ich nach einem Mass frage.", True),
    ("Wenn ich dich frage, antworte auf Deutsch.", False),
    ("Ab jetzt antworte bitte kurz.", False),
    ("Montre toujours les unités quand je te demande une mesure.", True),
    ("Quand je parle de cuisine, donne les quantités en grammes.", True),
    ("Muestra siempre las unidades cuando te pregunte por una medida.", True),
    ("A partir de ahora, responde en español.", False),
    ("Всегда показывай единицы, когда я спрашиваю.", False),
    ("Отвечай всегда кратко.", False),
]

NOT_STATED_ELSEWHERE = [
    "Gestern war ich mit dem Hund im Wald.", "Ich gehe immer zum Bäcker, wenn ich Zeit habe.",
    "Das hat mir immer geholfen.", "Kannst du mir immer die Einheiten zeigen?", "Zeigst du mir das, wenn ich frage?",
    "Je vais toujours au marché quand je peux.", "Siempre voy al mercado cuando puedo.",
    "Я всегда хожу на рынок, когда могу.", "> Zeig mir immer die Einheiten, wenn ich dich frage.",
]  # fmt: skip

NOT_STATED = [
    "Hi, I'm German and I live in Leeds.", "Hello, I am French.", "Hi, I'm ADHD and I cook", "Hi, I'm Dr. Weber.",
    "I am German and I live in Leeds", "I'm French, I cook", "I'm SICK and I know it",
    "I'm German.", "Hi, I'm German but live here", "Delhi, I'm Bob", "Hi, I'm tired.",
    "Am I allergic to nuts?", "What if I'm allergic to nuts?", "If I'm vegan, what should I eat?", "Do I prefer tea?",
    "Should I always cite sources?", "I always have to go there?", '"I\'m vegan", she said', "She said I'm vegan",
    "> I'm vegan", "`I'm vegan`", "```\nI'm vegan\nAlways cite sources\n```", "never mind", "Never give up!",
    "I always wanted to go to Rome", "call me back tomorrow", "call me crazy", "I'm a big fan of trains",
    "I have never been to Rome", "They cheer us up and always make us smile.", "I ate a vegan cake", "You are vegan",
    "Suppose I'm vegan.", "lol", "", " ", "I always say, Chair, that it is late.", "You always break it down.",
    "I prefer its simplicity", "Show me the tools when I need them.", "I prefer it",
    "Imagine I'm allergic to nuts and I'm vegan.",
]  # fmt: skip


def say(session: Session, *said: tuple[Role, str]) -> None:
    """Store messages of these roles and texts."""
    start = session.store.state(session.key).last_seq
    session.append(MAIN, [draft(f"m{start + number}", role, text) for number, (role, text) in enumerate(said)])


def test_what_is_stated_is_found(subtests: pytest.Subtests) -> None:
    for text, kind, said in STATED:
        with subtests.test(text=text, kind=kind, said=said):
            (found,) = facts_in(text)
            assert (found.kind, text[found.start : found.end]) == (kind, said)


def test_instructions_in_other_languages_are_found(subtests: pytest.Subtests) -> None:
    for text, conditional in STATED_ELSEWHERE:
        with subtests.test(text=text, conditional=conditional):
            (found,) = facts_in(text, language_of(text))
            assert (found.kind, found.conditional) == ("instruction", conditional)
            assert found.words
            assert facts_in(text) == []


def test_what_people_do_in_other_languages_is_no_instruction(subtests: pytest.Subtests) -> None:
    for text in NOT_STATED_ELSEWHERE:
        with subtests.test(text=text):
            assert facts_in(text, language_of(text)) == []


def test_questions_quotes_code_and_suppositions_state_nothing(subtests: pytest.Subtests) -> None:
    for text in NOT_STATED:
        with subtests.test(text=text):
            assert facts_in(text) == []


def test_facts_about_the_same_have_the_same_code(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str]] = [
        ("I'm vegan", "I'm no longer vegan"),
        ("I'm vegan", "I'm a vegetarian now"),
        ("I'm vegan", "I eat meat again"),
        ("I prefer asynchronous persistence", "I prefer synchronous persistence now"),
        ("I prefer Bootstrap over Foundation", "I prefer Foundation over Bootstrap now"),
        ("I'm allergic to nuts", "I am not allergic to nuts after all"),
        ("call me Sam", "Please call me Alex"),
        ("please answer in French", "Answer in German from now on"),
        ("keep your answers short", "Always make your answers long"),
        ("Always use APA style when I ask about references", "Always use APA style when I ask about references."),
    ]
    for older, newer in rows:
        with subtests.test(older=older, newer=newer):
            (one,), (other,) = facts_in(older), facts_in(newer)
            assert one.code(None) == other.code(None)
            assert one.code("Ann") != other.code("Bob")
            assert one.code("Ann") != one.code(None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I'm vegan", "I'm allergic to nuts"),
        ("I'm allergic to nuts", "My wife is allergic to nuts"),
        ("I prefer aisle seats", "I prefer asynchronous persistence"),
        ("Always cite sources when I ask about history", "Always cite sources when I ask about physics"),
        ("Always include version numbers", "Always show line numbers"),
        ("My favourite colour is blue", "My favourite food is blue cheese"),
    ],
)
def test_facts_about_something_else_have_another_code(one: str, other: str) -> None:
    (first,), (second,) = facts_in(one), facts_in(other)
    assert first.code(None) != second.code(None)


def test_a_fact_knows_the_tasks_it_bears_on() -> None:
    (diet,), (code,), (reply,) = map(facts_in, ("I'm vegan", "I prefer tabs over spaces", "Always cite sources"))
    assert diet.tasks == bit("food")
    assert code.tasks & bit("code")
    assert reply.tasks & bit("reply")
    (conditional,) = facts_in("Always show version numbers when I ask about libraries")
    assert conditional.conditional
    assert conditional.words == {"librari"}


def test_a_message_may_state_several_facts() -> None:
    text = "I'm vegan. Also, I'm allergic to nuts and I prefer quiet places, so where should we go?"
    assert [text[found.start : found.end] for found in facts_in(text)] == [
        "I'm vegan", "I'm allergic to nuts", "I prefer quiet places",
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from([*(text for text, _, _ in STATED), *NOT_STATED, "\n", '"', "```", "and", "?"]), max_size=9)
)
def test_facts_are_short_parts_of_the_text_in_order(parts: list[str]) -> None:
    text = " ".join(parts)
    found = facts_in(text)
    assert len(found) <= MOST_FACTS
    ends = [0, *(one.end for one in found)]
    for before, one in zip(ends, found, strict=False):
        assert before <= one.start < one.end <= len(text)
        assert text[one.start : one.end] == text[one.start : one.end].strip()


@given(st.text(), st.sampled_from(STATED))
def test_no_text_makes_it_raise(text: str, stated: tuple[str, str, str]) -> None:
    facts_in(text + stated[0])
    facts_in(stated[0] + text)


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert len(facts_in("I'm vegan. " + "x " * LOOKED_AT)) == 1
    assert facts_in("x " * LOOKED_AT + ". I'm vegan.") == []


def test_only_users_state_facts() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        session = Session(store)
        say(session, ("user", "I'm vegan"), ("assistant", "I'm vegan, too"), ("system", "Always cite sources"))
        assert refreshed(session).standing.column("rows").tolist() == [0]


def test_a_snapshot_keeps_the_facts() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        session = Session(store)
        say(session, ("user", "I'm vegan"), ("user", "hi"), ("user", "I prefer aisle seats"))
        made = refreshed(session)
        made.save_snapshot()
        read = refreshed(session)
        assert read.saved == 3
        for name in FACT_COLUMNS:
            np.testing.assert_array_equal(read.standing.column(name), made.standing.column(name))
        assert read.standing.words.of("aisl")[0].tolist() == [1]
        # The next facts continue the numbers of those that were read.
        say(session, ("user", "I prefer aisle cleats"))
        assert refreshed(session, read).standing.words.of("aisl")[0].tolist() == [1, 2]


def test_a_snapshot_of_the_version_before_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SQLiteStore(":memory:")) as store:
        session = Session(store)
        say(session, ("user", "I'm vegan"))
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "MAGIC", b"IMSNAP06")
            refreshed(session).save_snapshot()
        index = SessionIndex(store, session.key)
        index.refresh(store.state(session.key))
        assert not index.damaged
        assert index.saved == 0
        assert index.standing.column("rows").tolist() == [0]
