"""A text is taken for the language whose function words it has, and for the expected one where it has none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.index.text import language_of, read_terms, terms
from shared_core.languages.detection import digest, own_words
from shared_core.languages.language import ALSO_ENGLISH, IN_ENGLISH, LANGUAGES, Language, fold, matcher
from tests.support.languages import (
    DANISH,
    DUTCH,
    ENGLISH,
    FINNISH,
    FRENCH,
    GERMAN,
    ITALIAN,
    NORWEGIAN,
    PORTUGUESE,
    RUSSIAN,
    SPANISH,
    SWEDISH,
)


def test_language(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, Language]] = [
        ("Das Boot ist nicht teuer", GERMAN),
        ("wir haben es gestern verkauft", GERMAN),
        ("WO IST DER SCHLÜSSEL?", GERMAN),
        ("C'était très bien, merci beaucoup", FRENCH),
        ("¿Dónde está la llave?", SPANISH),
        ("prohibido con los dos nombres, ni de adorno", SPANISH),
        ("Dove abbiamo messo le chiavi?", ITALIAN),
        ("Onde estão as chaves que você comprou?", PORTUGUESE),
        ("Waar heb je de sleutel gelegd?", DUTCH),
        ("Var är nyckeln som jag köpte?", SWEDISH),
        ("Hvor er nøglen, som jeg købte til os?", DANISH),
        ("Hvor er nøkkelen vi kjøpte til deg, jeg finner den ikke", NORWEGIAN),
        ("Missä on se avain, jonka minä ostin?", FINNISH),
        ("Где ключ от лодки?", RUSSIAN),
        ("Ёлка", RUSSIAN),
        ("Where did you put the key?", ENGLISH),
        # names, borrowed words and single letters make no text another language's
        ("Die Hard was on in Los Angeles", ENGLISH),
        ("El Paso, Las Vegas, Le Havre, Der Spiegel, De Niro", ENGLISH),
        ("Leonardo da Vinci a la carte, crème de la crème", ENGLISH),
        ("Walk Brösel in Zürich", ENGLISH),
        ("for el in els: el.do(l, c, d)", ENGLISH),
        ("She said 'ich liebe dich' to me and I was so happy", ENGLISH),
        ("東京タワー", ENGLISH),
        ("4093", ENGLISH),
        ("", ENGLISH),
    ]
    for text, language in rows:
        with subtests.test(text=text, language=language):
            assert language_of(text) is language


@pytest.mark.parametrize(
    ("text", "expected", "language"),
    [
        ("Zahnarzt?", (GERMAN, ENGLISH), GERMAN),
        ("was war in Bern", (GERMAN, ENGLISH), GERMAN),
        ("was war in Bern", (ENGLISH,), ENGLISH),
        ("Where is it?", (GERMAN,), ENGLISH),
        ("C'était où ?", (GERMAN, ENGLISH), FRENCH),
        ("no me gusta", (SPANISH, ENGLISH), SPANISH),
        ("lol", (SPANISH, FRENCH), SPANISH),
    ],
)
def test_a_text_of_few_words_is_in_a_language_that_is_expected(
    text: str, expected: tuple[Language, ...], language: Language
) -> None:
    assert language_of(text, expected) is language


ENGLISH_WORDS = sorted(
    {"boats", "walking", "Paris", "cities", "sold", "quickly", "die", "hat", "El", "Los", "café", "x86", "東京"}
    | set(ENGLISH.stops)
    | set(ENGLISH.small_talk.split())
)


@given(st.lists(st.sampled_from(ENGLISH_WORDS), min_size=1, max_size=12), st.sampled_from([" ", ", ", ". "]))
def test_english_text_has_the_terms_of_english(words: list[str], between: str) -> None:
    text = between.join(words)
    assert read_terms(text) == (terms(text), ENGLISH)


@given(st.text(st.one_of(st.characters(), st.sampled_from("aé\u0301ßñ и東\n'"))))
def test_any_text_has_a_language_and_its_terms(text: str) -> None:
    found, language = read_terms(text)
    assert language in LANGUAGES
    assert found == terms(text, language)
    assert language is language_of(text)


def test_every_language_is_complete(subtests: pytest.Subtests) -> None:
    """Every list is there, every pattern compiles, and every month has a number."""
    for language in LANGUAGES:
        with subtests.test(language=language):
            assert len({each.code for each in LANGUAGES}) == len(LANGUAGES)
            assert language.stops
            assert language.stops | language.sure == {fold(word) for word in language.stops | language.sure}
            assert all(re.fullmatch(r"\w+", word) for word in language.stops | language.sure)
            assert sorted(set(language.month_numbers.values())) == list(range(1, 13))
            for month, number in language.month_numbers.items():
                found = [match for pattern in language.dates for match in pattern.finditer(f"7 {month} 2023")]
                assert found[0]["day"] == "7"
                assert found[0]["year"] == "2023"
                assert language.month_numbers[found[0]["month"].lower()] == number
            for pattern in (language.asks_back, language.numeric):
                assert not matcher(pattern).search("")
            for text in ("", "?", "x"):
                asked = [language.speaks_of_speaker, language.speaks_to_hearer, language.asks_of_us]
                asked += [language.adds_to_talk, language.points_back, language.requests_something]
                assert not any(ask(text) for ask in asked)
                assert language.asks(text) is (text == "?")


def test_the_words_that_tell_are_not_english() -> None:
    english = {*ENGLISH.stops, *ENGLISH.small_talk.split(), *ENGLISH.about_talk.split(), *ALSO_ENGLISH}
    assert sorted(own_words() & english) == []
    assert sorted(IN_ENGLISH - own_words()) == []


def test_the_digest_is_that_of_what_decides_the_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest()
    assert digest() == before
    digest.cache_clear()
    monkeypatch.setattr("shared_core.languages.detection.LANGUAGES", LANGUAGES[:-1])
    try:
        assert digest() != before
    finally:
        monkeypatch.undo()
        digest.cache_clear()
    assert digest() == before
