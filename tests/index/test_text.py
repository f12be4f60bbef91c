"""The words of a text: which are left out or made one, which an identifier is found by, and of focus they speak."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core.index.text import KNOWN_CHARACTERS, LOOKED_AT, near_duplicate_key, speaker_focus, terms

texts = st.text(st.one_of(st.characters(), st.sampled_from("aZé\u0301\u0308 _-.'\n東カｶ\uff9eีปिदَك\u200d👍+\ud83d")))
"""Any characters, and those that depend on the ones beside them more often."""


def test_terms(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, dict[str, int]]] = [
        # function words, and what is left of them at an apostrophe, straight or curly
        ("Would you please tell me what that was again?", {}),
        ("I don't think she's right, we\u2019ll see", {"think": 1, "right": 1, "see": 1}),
        ("OK, thanks!", {}),
        # English stems, counted together
        ("boat boats boating boated", {"boat": 4}),
        ("Cities city CITY'S", {"citi": 3}),
        # accents, ligatures, full width, mathematical and long letters
        ("Café CAFÉ cafe\u0301 cafe", {"cafe": 4}),
        (
            "naïve ﬁne \uff37\uff29\uff24\uff25 \U0001d401\U0001d428\U0001d425\U0001d41d",
            {"naiv": 1, "fine": 1, "wide": 1, "bold": 1},
        ),
        ("Straße STRASSE", {"strass": 2}),
        ("Ёлка ёлка елка", {"елка": 3}),
        ("Σίσυφος ΣΊΣΥΦΟΣ", {"σισυφοσ": 2}),
        ("İstanbul istanbul", {"istanbul": 2}),
        # identifiers fall into parts, the same ones in question and text
        ("AB-123", {"ab": 1, "123": 1}),
        ("12.50", {"12": 1, "50": 1}),
        ("INGEST_BATCH_MAX", {"ingest": 1, "batch": 1, "max": 1}),
        ("foo_bar(foo.bar)", {"foo": 2, "bar": 2}),
        ("v2 x86 3.14", {"v2": 1, "x86": 1, "3": 1, "14": 1}),
        # scripts without spaces, in pairs; words of others among them are words
        ("東京タワー", {"東京": 1, "京タ": 1, "タワ": 1, "ワー": 1}),
        ("東", {"東": 1}),
        ("我用Python写the boats", {"我用": 1, "python": 1, "写": 1, "boat": 1}),
        ("ｶﾞガ", {"ガガ": 1}),
        ("สวัสดี", {"สว": 1, "วั": 1, "ัส": 1, "สด": 1, "ดี": 1}),
        # marks belong to their word; Hebrew and Arabic are written with and without their vowel signs
        ("हिन्दी में", {"हिन्दी": 1, "में": 1}),
        ("كَتَبَ كتب كـتب", {"كتب": 3}),
        ("שָׁלוֹם שלום", {"שלום": 2}),
        ("서울에서", {"서울에서": 1}),
        # nothing that is not a word
        ("", {}),
        (" \n\t\x00\u200b", {}),
        ("?! -- ... 👍 \ud83d \udc4d", {}),
        ("a\ud800b boat\udfffs", {"b": 1, "boat": 1}),
    ]
    for text, expected in rows:
        with subtests.test(text=text, expected=expected):
            assert terms(text) == expected


@given(texts)
def test_any_text_has_clean_terms(text: str) -> None:
    found = terms(text)
    assert all(count > 0 for count in found.values())
    for term in found:
        assert term
        assert not any(character.isspace() or character in "_-.\x00" for character in term)


@given(texts, st.sampled_from([" ", "\n", ", ", "_", " - ", "\u2028"]), texts)
def test_texts_side_by_side_have_the_terms_of_both(first: str, between: str, second: str) -> None:
    assert terms(first + between + second) == terms(first) + terms(second)


def test_a_stemmer_serves_many_threads() -> None:
    words = [f"boat{suffix}{number}s walking cities" for number in range(200) for suffix in ("", "x")]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(terms, words)) == [terms(word) for word in words]


def test_texts_that_say_the_same_share_a_key(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str]] = [
        ("I love it!", "i LOVE it"),
        ("Café,  crème", "cafe\ncreme."),
        ("«Hello» — (again)", "hello again"),
        ("foo_bar", "foo bar"),
        ("2+2=4", "2 + 2 = 4!"),
        ("ﬁne", "fine"),
        ("كَتَبَ", "كتب"),
        ("yes 👍", "Yes... 👍"),
        ("東京、大阪", "東京 大阪"),
    ]
    for first, second in rows:
        with subtests.test(first=first, second=second):
            assert near_duplicate_key(first) == near_duplicate_key(second) != ""


def test_texts_that_say_something_else_have_keys_of_their_own(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str]] = [
        ("boat", "boats"),
        ("not now", "now"),
        ("👍", "👎"),
        ("👍", "👍👍"),
        ("2+2", "2-2"),
        ("x < y", "x > y"),
        ("5 $", "5 €"),
        ("C++", "C"),
        ("???", "..."),
        ("ปี", "ปู"),
        ("दिन", "दान"),
        ("12.50", "1250"),
        ("東京", "京東"),
    ]
    for first, second in rows:
        with subtests.test(first=first, second=second):
            assert near_duplicate_key(first) != near_duplicate_key(second)


@given(texts)
def test_a_key_is_the_key_of_itself(text: str) -> None:
    key = near_duplicate_key(text)
    assert near_duplicate_key(key) == key
    assert bool(key) == bool(text.strip())


def test_a_key_is_the_same_once_too_many_characters_are_known() -> None:
    every = "".join(map(chr, range(0x3400, 0x3400 + KNOWN_CHARACTERS + 1)))
    assert near_duplicate_key(every) == every
    assert near_duplicate_key("a \U0001f5ff\u2e2eb") == "a \U0001f5ff b"
    assert near_duplicate_key("a \U0001f5ff\u2e2eb") == "a \U0001f5ff b"


def test_speakers_focus_on_themselves_or_on_the_listener(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, int]] = [
        ("I went there", 1),
        ("i'm fine", 1),
        ("that is MINE, you know", 1),
        ("Our boat and yours", 1),
        ("Did you like it?", -1),
        ("You're right", -1),
        ("Enjoy yourselves", -1),
        ("Nice!", 0),
        ("", 0),
        ("immense youth", 0),
        ("ich war dort", 0),
        ("x" * (LOOKED_AT - 2) + " I", 1),
        ("x" * (LOOKED_AT - 1) + " I", 0),
    ]
    for text, focus in rows:
        with subtests.test(text=text, focus=focus):
            assert speaker_focus(text) == focus
