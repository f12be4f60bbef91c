"""What the models that need no key answer: they quote the line of their prompt that answers the question; pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

from shared_core.index.text import terms
from shared_core.prompt.template import RecallTemplate

Shown = Sequence[tuple[str, str]]
"""Role and text of each message in the prompt; `"user"`, `"assistant"`, `"system"`, `"tool"` or any other."""

SHARE = 1 / 3
"""The share of a question's words that a line must contain to be quoted. With less, most questions match something."""

_QUESTIONS = re.compile(r"(?<![^.!?])[^.!?]*+\?")
_CHUNK = re.compile(r"\S+\s*|\s+")
_ASKS = re.compile(
    r"\?\s*$|^\s*(?:what|which|who|whose|where|when|why|how|tell|show|say|quote|remind)\b", re.IGNORECASE
)
_RECORD = re.compile(r"- (?P<speaker>[^:\n]{1,80}): (?P<text>.*)")
_ECHO = re.compile(r"Noted\. I was shown|I was shown|It says: |[^:]{1,80} said: ")
_OPENINGS = {"user": "You said", "assistant": "I said", "system": "It says"}
_RANKS = {"user": 2, "assistant": 1}
"""Of lines that match equally, what the user said comes first."""


class _Line(NamedTuple):
    speaker: str
    text: str


def words(text: str) -> list[str]:
    """Return a text in pieces, as a model would stream it."""
    return _CHUNK.findall(text)


def echo(shown: Shown) -> str:
    """Return the answer to the newest user message of a prompt.

    A question is answered with the line that shares most words with it, rare words first: a line of a recalled record,
    of an earlier message, of an instruction or of text that was retrieved; if none does, with what answered the same
    question before. Questions and earlier answers of this function are never quoted. If nothing matches, or nothing is
    asked, the answer says how many messages were shown.
    """
    number = f"{len(shown)} message{'s' * (len(shown) != 1)}"
    asked = next((index for index in reversed(range(len(shown))) if shown[index][0] == "user"), None)
    if asked is None:
        return f"I was shown {number}, and no question."
    question, beside = _question(shown[asked][1])
    if not _ASKS.search(question):
        return f"Noted. I was shown {number}."
    said = [_Line(role, line) for index, (role, text) in enumerate(shown) if index != asked for line in _lines(text)]
    best = _best(question, [*beside, *said]) or _answer_before(question, [*beside, *said])
    if best is None:
        return f"I was shown {number}, and nothing matches."
    return f"{_OPENINGS.get(best.speaker, f'{best.speaker} said')}: {best.text}"


def _question(text: str) -> tuple[str, list[_Line]]:
    """Return the question in the newest user message, and the lines beside it: recalled records, retrieved text."""
    template = RecallTemplate()
    before, _, rest = text.partition(template.header)
    record, _, after = rest.partition(template.footer)
    own = _lines(before + after)
    asking = [line for line in own if line.endswith("?")]
    if not asking:
        return "\n".join(own), list(_records(record))
    return asking[-1], [*_records(record), *(_Line("system", line) for line in own if line not in asking)]


def _records(record: str) -> Iterator[_Line]:
    """Yield the lines of recalled messages with who said them; a message may have several lines."""
    speaker = "system"
    for line in _lines(record):
        if match := _RECORD.fullmatch(line):
            speaker = match["speaker"]
        yield _Line(speaker, match["text"] if match else line)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _best(question: str, lines: Sequence[_Line]) -> _Line | None:
    wanted = set(terms(question))
    shared = {line: wanted & set(terms(_QUESTIONS.sub("", line.text))) for line in lines if not _is_echo(line)}
    found = {line: words for line, words in shared.items() if words and len(words) >= SHARE * len(wanted)}
    occurrences = Counter(word for words in found.values() for word in words)

    def score(line: _Line) -> tuple[float, int]:
        return sum(log(1 + len(found) / occurrences[word]) for word in found[line]), _RANKS.get(line.speaker, 0)

    return max(reversed(found), key=score, default=None)  # of equal ones the newest


def _answer_before(question: str, lines: Sequence[_Line]) -> _Line | None:
    after = (line for asked, line in pairwise(lines) if asked.text == question)
    return next((line for line in after if line.speaker == "assistant" and not _is_echo(line)), None)


def _is_echo(line: _Line) -> bool:
    return line.speaker == "assistant" and _ECHO.match(line.text) is not None
