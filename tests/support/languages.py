"""The languages by their names."""

from shared_core.languages.language import LANGUAGES

(
    ENGLISH, GERMAN, FRENCH, SPANISH, ITALIAN, PORTUGUESE, DUTCH, SWEDISH, DANISH, NORWEGIAN, FINNISH, RUSSIAN,
) = LANGUAGES  # fmt: skip
