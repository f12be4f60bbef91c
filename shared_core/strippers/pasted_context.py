"""Documents that a program pasted around a question, in the known templates of LlamaIndex and LangChain; pure.

Only text that these templates wrote is recognized. What people write themselves, under "Context:" or in a tag of their
own, is what they say, and is recalled like everything else.
"""

import re

from shared_core.messages import Message
from shared_core.strippers.stripper import Stripper, set_apart

OPENING = re.compile(
    r"\s*+(?:context information[^\n]* is below|use the context information below|"
    r"(?:[^\n]{0,200}\. )?(?:use|answer[^\n]{0,60}) the (?:following|provided) (?:pieces of )?(?:retrieved )?context)",
    re.IGNORECASE,
)
"""What the templates begin with."""

FENCE = re.compile(r"^[ \t]*[-=]{5,}[ \t]*$", re.MULTILINE)
QUESTION = re.compile(r"^[ \t]*(?:user )?(?:query|question):[ \t]*", re.IGNORECASE | re.MULTILINE)
CONTEXT = re.compile(r"^[ \t]*(?:context|documents|sources|passages):", re.IGNORECASE | re.MULTILINE)
ANSWER = re.compile(r"\n[ \t]*(?:helpful |refined |your )?answer[^\n]{0,20}:\s*\Z", re.IGNORECASE)
REFINED = (
    ("The original query is as follows: ", "", "\nWe have provided an existing answer: "),
    ("You are an expert Q&A system that strictly operates in two modes ", "\nQuery: ", "\nOriginal Answer: "),
)
"""LlamaIndex's templates that improve an answer by more passages: how they begin, and what encloses the question."""


def _pasted_context(message: Message) -> Message:
    if message.role != "user":
        return message
    for find in (_refined, _question_first, _context_first):
        if (span := find(message.content)) is not None:
            return set_apart(message, *span)
    return message


def _refined(text: str) -> tuple[int, int] | None:
    for beginning, before, after in REFINED:
        if text.startswith(beginning):
            end = text.rfind(after)
            start = text.rfind(before, len(beginning), end) if before else len(beginning)
            return (start + len(before), end) if 0 <= start <= end else None
    return None


def _question_first(text: str) -> tuple[int, int] | None:
    """Find the question before passages."""
    asked = QUESTION.search(text)
    if asked is None or CONTEXT.search(text, 0, asked.start()) or FENCE.search(text, 0, asked.start()):
        return None
    context = CONTEXT.search(text, asked.end())
    written = OPENING.match(text) or _answer(text) < len(text)
    return (0, context.start()) if context and written else None


def _context_first(text: str) -> tuple[int, int] | None:
    """Find the question after passages."""
    answer = _answer(text)
    if not OPENING.match(text) and not (answer < len(text) and CONTEXT.match(text)):
        return None
    fences = [found.end() for found in FENCE.finditer(text)]
    start = fences[-1] if len(fences) > 1 else 0
    questions = [found.end() for found in QUESTION.finditer(text, start)]
    if questions:
        start = questions[0 if start else -1]
    return (start, answer) if start else None


def _answer(text: str) -> int:
    """Return the index at which a template asks for the answer, at its end."""
    found = ANSWER.search(text, max(0, len(text) - 100))
    return found.start() if found else len(text)


PASTED_CONTEXT = Stripper("pasted_context", _pasted_context)
