"""The terms of texts in other languages, and the forms that a question's words have in each."""

import pytest

from shared_core.index.text import language_of, question_terms, speaker_focus, terms
from shared_core.languages.language import LANGUAGES, Language, fold
from tests.support.languages import DANISH, ENGLISH, FRENCH, GERMAN, ITALIAN, PORTUGUESE, RUSSIAN, SPANISH


def test_words_are_reduced_to_the_stems_of_their_language(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Language, str, dict[str, int]]] = [
        (GERMAN, "Die Boote und das Boot", {"boot": 2}),
        (GERMAN, "Häuser Haus HAUS", {"haus": 3}),
        (GERMAN, "Brücke Bruecke Brücken", {"bruck": 3}),
        (GERMAN, "Straße Strasse Straßen", {"strass": 3}),
        (FRENCH, "les réservations, la réservation", {"reserv": 2}),
        (FRENCH, "mangé mangée mangees manger", {"mang": 4}),
        (FRENCH, "j'ai vu l'étoile d'Anne", {"vu": 1, "etoil": 1, "anne": 1}),
        (SPANISH, "¿Las habitaciones? La habitación", {"habit": 2}),
        (SPANISH, "quería querer queria", {"quer": 3}),
        (PORTUGUESE, "reservação reservacoes", {"reserv": 2}),
        (ITALIAN, "la città e le città", {"citt": 2}),
        (RUSSIAN, "новый новая ёлка елки", {"нов": 2, "елк": 2}),
        (DANISH, "gæster og gæst", {"gæst": 2}),
        # scripts without spaces and numbers are those of English
        (GERMAN, "東京タワー 4093", {"東京": 1, "京タ": 1, "タワ": 1, "ワー": 1, "4093": 1}),
    ]
    for language, text, expected in rows:
        with subtests.test(language=language, text=text, expected=expected):
            assert terms(text, language) == expected


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
@pytest.mark.parametrize(
    "words", ["Müller Zürich Brücke", "réservé réservée été", "habitación mañana ía", "città è più", "ёлка й край"]
)
def test_accents_are_folded_in_question_and_message_alike(language: Language, words: str) -> None:
    assert terms(words, language) == terms(fold(words), language) == terms(words.upper(), language)


def test_a_question_has_the_forms_of_all_languages_of_the_talk() -> None:
    assert question_terms("die Buchungen", GERMAN, [GERMAN, ENGLISH]) == {"buchung": ("buchungen",)}
    assert question_terms("die Buchungen", GERMAN, [GERMAN]) == {"buchung": ()}
    assert question_terms("what of the boats?", ENGLISH, [ENGLISH]) == {"boat": ()}
    # A stop word of the question is none of its terms, whatever it means elsewhere.
    assert question_terms("die Kuh", GERMAN, [ENGLISH]) == {"kuh": ()}
    assert question_terms("die cow", ENGLISH, [GERMAN]) == {"die": (), "cow": ()}
    # What is a term itself is no form of another.
    forms = question_terms("Kosten kosten kost", GERMAN, [ENGLISH])
    assert not {form for same in forms.values() for form in same} & set(forms)
    assert question_terms("東京タワー", ENGLISH, [GERMAN]) == {"東京": (), "京タ": (), "タワ": (), "ワー": ()}


def test_a_question_about_oneself_is_found_in_the_words_of_what_was_told() -> None:
    assert question_terms("how old am I?", ENGLISH, [], of_known=True) == {"age": ("born", "birthday", "turn", "old")}
    assert question_terms("how old is the bridge?", ENGLISH, []) == {"old": (), "bridg": ()}
    assert "work" in question_terms("what do I do for a living?", ENGLISH, [], of_known=True)["job"]


def test_whom_a_text_is_about(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, int]] = [
        ("Ich war mit meiner Schwester dort", 1),
        ("Hat es dir nicht gefallen?", -1),
        ("Das ist nicht teuer", 0),
        ("J'ai vu ma sœur avec elle", 1),
        ("Tu as aimé cette ville, non ?", -1),
        ("Yo fui con ella", 1),
        ("¿Te gustó mucho? ¿Qué tal tu hermana?", -1),
        ("Sono stato con mio fratello e lei", 1),
        ("Мы купили лодку", 1),
        ("Где был твой брат?", -1),
    ]
    for text, focus in rows:
        with subtests.test(text=text, focus=focus):
            assert speaker_focus(text, language_of(text)) == focus
