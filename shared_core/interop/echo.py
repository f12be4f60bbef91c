"""The answers of models that only repeat what they were shown, for trying out a memory without a real model."""

import re
from collections.abc import Sequence

from shared_core.prompt.template import RecallTemplate

__all__ = ["matching_line", "recalled_lines", "words"]

Shown = Sequence[tuple[str, str]]
"""Role and text of each message in the prompt."""

OPENING = "I was shown"

_CHUNK = re.compile(r"\S+\s*|\s+")
_KEYWORD = re.compile(r"\w{5,}")


def words(text: str) -> list[str]:
    """Return a text in the pieces in which a model would stream it."""
    return _CHUNK.findall(text)


def recalled_lines(shown: Shown) -> str:
    """Return an answer that lists the recalled messages which stand before the newest user message."""
    template = RecallTemplate()
    question = next((text for role, text in reversed(shown) if role == "user"), "")
    _, fence, rest = question.partition(template.header)
    if fence:
        return "\n".join(["Earlier it was said:", *rest.partition(template.footer)[0].strip("\n").split("\n")])
    return f"{OPENING} {len(shown)} messages, and nothing from before them matches."


def matching_line(shown: Shown) -> str:
    """Return an answer that quotes the line which shares most words with the newest user message."""
    asked = next((index for index in reversed(range(len(shown))) if shown[index][0] == "user"), None)
    keywords = _keywords(shown[asked][1]) if asked is not None else set()
    lines = [line for index, (_, text) in enumerate(shown) if index != asked for line in _statements(text)]
    best = max(reversed(lines), key=lambda line: len(keywords & _keywords(line)), default="")
    if not keywords & _keywords(best):
        return f"{OPENING} {len(shown)} messages, and nothing in them matches."
    return f"{OPENING} {len(shown)} messages. In one it says: {best}"


def _keywords(text: str) -> set[str]:
    return set(_KEYWORD.findall(text.lower()))


def _statements(text: str) -> list[str]:
    """Return the lines of a message that can answer a question: not questions, and not earlier answers like these."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith(OPENING) and not line.endswith("?")]
