"""Recall in German, French and Spanish finds what it finds in English, and is silent where it is silent in English."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.languages.language import Language
from shared_core.prompt.hits import Kind
from shared_core.recall.excerpts import excerpt
from shared_core.recall.query import DatePattern, as_said, parse_query, points_back, tells
from tests.support.languages import ENGLISH, FRENCH, GERMAN, ITALIAN, RUSSIAN, SPANISH

TALK: dict[str, Any] = json.loads(Path(__file__).with_name("translated_talk.json").read_text(encoding="utf-8"))
"""A part of examples/data in four languages, with questions and the ids of their evidence."""

SPOKEN = ("en", "de", "fr", "es")
POINTS = 0.05
"""How much less of the evidence than in English recall may find in another language."""


def test_dates(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, Language, list[DatePattern]]] = [
        ("Was war am 3. März 2023?", GERMAN, [DatePattern(3, 3, 2023)]),
        ("im Mai oder Dezember 2022", GERMAN, [DatePattern(12, None, 2022), DatePattern(5)]),
        ("am 3.5.2023 oder 04.06.", GERMAN, [DatePattern(5, 3, 2023), DatePattern(6, 4)]),
        ("Mark und Marzipan", GERMAN, []),
        ("le 1er août 2022", FRENCH, [DatePattern(8, 1, 2022)]),
        ("en février, depuis décembre", FRENCH, [DatePattern(2), DatePattern(12)]),
        ("le 5/6/2023", FRENCH, [DatePattern(6, 5, 2023)]),
        ("el 5 de mayo de 2023, en abril", SPANISH, [DatePattern(5, 5, 2023), DatePattern(4)]),
        ("mayo del 2021", SPANISH, [DatePattern(5, None, 2021)]),
        ("il 5 maggio", ITALIAN, [DatePattern(5, 5)]),
        ("7 мая 2023, в июне", RUSSIAN, [DatePattern(5, 7, 2023), DatePattern(6)]),
        ("2023-05-07", RUSSIAN, [DatePattern(5, 7, 2023)]),
        ("on 3.5.2023 or 5/6/2023", ENGLISH, []),
    ]
    for text, language, expected in rows:
        with subtests.test(text=text, language=language, expected=expected):
            assert list(parse_query(text, [], (language,)).dates) == expected


SMALL_TALK = {
    "en": ["haha exactly", "thank you so much!", "good night", "ok cool", "that sounds great"],
    "de": ["haha genau", "vielen Dank!", "wie geht's?", "gute Nacht", "ok cool", "das klingt super", "bis morgen"],
    "fr": ["merci beaucoup !", "haha exactement", "ça va ?", "bonne nuit", "d'accord, super", "ok, à demain"],
    "es": ["¿qué tal?", "jaja exacto", "muchas gracias", "buenas noches", "vale, genial", "hasta mañana"],
}


def test_what_a_question_asks_for(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, Language, int, bool, bool]] = [
        ("Wo waren wir am Wochenende?", GERMAN, 1, False, False),
        ("schönes Wochenende", GERMAN, 0, False, False),
        ("Welchen Wein hast du empfohlen?", GERMAN, 2, True, False),
        ("Was haben wir über den Wein gesagt?", GERMAN, 1, False, True),
        ("Où étions-nous ce week-end ?", FRENCH, 2, False, False),
        ("Quel vin m'as-tu recommandé ?", FRENCH, 2, True, False),
        ("De quoi avons-nous parlé ?", FRENCH, 1, False, True),
        ("¿Dónde dormimos el sábado?", SPANISH, 2, False, False),
        ("¿Qué vino me recomendaste?", SPANISH, 2, True, False),
        ("¿Qué dijimos del tema?", SPANISH, 2, False, True),
    ]
    for text, language, informative, asks_back, about_talk in rows:
        with subtests.test(
            text=text, language=language, informative=informative, asks_back=asks_back, about_talk=about_talk
        ):
            query = parse_query(text, [], (language,))
            assert (query.informative, query.asks_back, query.about_talk) == (informative, asks_back, about_talk)
            assert query.language is language


def test_a_noun_with_a_capital_is_no_name_in_german() -> None:
    assert parse_query("Was hat der Klempner repariert?", [], (GERMAN,)).proper == frozenset()
    assert parse_query("Qu'est-ce que Marta a dit ?", [], (FRENCH,)).proper == {"mart"}


def test_a_question_of_few_words_points_back(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, Language, bool]] = [
        ("Und wie teuer war das?", GERMAN, True),
        ("Wer hat sie empfohlen?", GERMAN, True),
        ("haha genau", GERMAN, False),
        ("wie geht's?", GERMAN, False),
        ("Wann hat es in Lissabon beim Marathon geregnet?", GERMAN, False),
        ("Et c'était combien ?", FRENCH, True),
        ("Qui l'a recommandé, celui-là ?", FRENCH, True),
        ("Est-ce que la chaudière marche ?", FRENCH, False),
        ("¿Y cuánto era?", SPANISH, True),
        ("¿Quién lo recomendó?", SPANISH, True),
        ("¿Cuánto cuesta el barco?", SPANISH, False),
    ]
    for text, language, back in rows:
        with subtests.test(text=text, language=language, back=back):
            assert points_back(parse_query(text, [], (language,))) is back


@pytest.mark.parametrize(
    ("text", "language", "says"),
    [
        ("Der Entwurf ist fertig. Was kommt als Nächstes?", GERMAN, True),
        ("Fasse bitte zusammen, was wir sagten.", GERMAN, False),
        ("Kannst du mir die Bücher nennen?", GERMAN, False),
        ("Le brouillon est prêt. Et maintenant ?", FRENCH, True),
        ("Résume ce que nous avons dit.", FRENCH, False),
        ("El borrador está listo. ¿Qué sigue?", SPANISH, True),
        ("Resume lo que dijimos.", SPANISH, False),
    ],
)
def test_a_message_that_says_something_is_told_from_a_question(text: str, language: Language, says: bool) -> None:
    assert tells(text, language) is says


def test_a_compound_that_never_occurs_is_found_by_its_parts() -> None:
    said = {"rahm", "numm", "flug", "buchung"}
    query = parse_query("Welche Rahmennummer und welcher Flug?", [], (GERMAN,))
    assert as_said(query, said.__contains__).forms == {"rahmennumm": ("numm", "rahm")}
    assert as_said(query, {*said, "rahmennumm"}.__contains__).forms == {}
    assert as_said(query, lambda term: False).forms == {"rahmennumm": ()}
    english = parse_query("Which framenumber?", [])
    assert as_said(english, {"frame", "number"}.__contains__) is english


def test_an_excerpt_holds_the_words_of_its_language() -> None:
    filler = "Gestern war es den ganzen Tag sehr ruhig und wir haben nichts gemacht. " * 30
    text = f"{filler}Die Schlüssel der Häuser liegen im Schuppen. {filler}"
    found = excerpt(text, ["haus", "schlussel"], 40, lambda text: len(text) // 4, len(text) // 4)
    assert found is not None
    assert "Schlüssel der Häuser" in found


@pytest.fixture(scope="module", params=["words", "static"])
def memories(request: pytest.FixtureRequest) -> Iterator[dict[str, InfiniteMemory]]:
    """The translated talk in each language, by words alone and with static vectors."""
    memories = {}
    for code in SPOKEN:
        memory = InfiniteMemory(embedder=request.param, max_tokens=900, reserve_tokens=0)
        memory.add([
            Message(role=each["role"], content=each[code], id=each["id"], created_at=each["created_at"])
            for each in TALK["messages"]
        ])  # fmt: skip
        memory.index()
        memories[code] = memory
    yield memories
    for memory in memories.values():
        memory.close()


def recalled(memory: InfiniteMemory, question: str) -> list[str]:
    return [line.id for line in memory.context(question).report.included if line.kind == Kind.RECALLED and line.id]


def evidence(memory: InfiniteMemory, code: str) -> tuple[float, float]:
    """Return the shares of the evidence in the five best of `search` and in the prompt of `context`."""
    found, sent = 0.0, 0.0
    for question in TALK["questions"]:
        hits = [hit.message.id or "" for hit in memory.search(question[code], 5)]
        shown = [line.id or "" for line in memory.context(question[code]).report.included]
        found += _share(question, hits)
        sent += _share(question, shown)
    return found / len(TALK["questions"]), sent / len(TALK["questions"])


def _share(question: dict[str, Any], ids: list[str]) -> float:
    if set(question["also"]) & set(ids):
        return 1.0
    return len(set(question["evidence"]) & set(ids)) / len(question["evidence"])


def test_recall_finds_about_as_much_as_in_english(memories: dict[str, InfiniteMemory]) -> None:
    shares = {code: evidence(memory, code) for code, memory in memories.items()}
    for code in SPOKEN[1:]:
        assert shares[code][0] >= shares["en"][0] - POINTS, (code, shares)
        assert shares[code][1] >= shares["en"][1] - POINTS, (code, shares)


def test_small_talk_recalls_nothing(memories: dict[str, InfiniteMemory]) -> None:
    for code, texts in SMALL_TALK.items():
        assert [text for text in texts if recalled(memories[code], text)] == []


def test_the_languages_of_a_talk_are_those_of_its_branch() -> None:
    with InfiniteMemory(embedder="words") as memory:
        memory.add([Message.user("We sold the boats in April.", id="en")])
        memory.fork("anders")
        memory.add([Message.user("Die Buchungen für die Häuser sind nicht da.", id="de")])
        assert memory.search("Haus?")[0].message.id == "de"
        memory.checkout("main")
        assert memory.search("Haus?") == []
        assert [hit.message.id for hit in memory.search("boat?")] == ["en"]


def test_names_may_lack_their_accents_and_hold_function_words() -> None:
    names = ["Maëlle", "Carlos de la Cruz"]
    assert parse_query("¿Qué dijo Maelle de la casa?", names, (SPANISH,)).speakers == ("Maëlle",)
    assert parse_query("¿Qué dijo Cruz?", names, (SPANISH,)).speakers == ("Carlos de la Cruz",)
    assert parse_query("What did MAËLLE say?", names).speakers == ("Maëlle",)
