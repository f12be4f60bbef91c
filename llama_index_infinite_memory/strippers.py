"""Strippers: set apart text that only served one turn, when a message is stored; pure.

The part that stays is the message's `content`. The rest moves into its `grounding`, which the engine sends with the
newest question only. `rejoin` restores the message to the last character: for `get_all`, and for the messages of the
newest turn, which a model must see whole.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shared_core.messages import Grounding, Message

__all__ = ["DEFAULT_STRIPPERS", "Stripper", "set_apart"]

NOTE = "(Left out for length: {count} parts.)"
"""What the model is told when grounding is trimmed; also marks grounding that was made here."""

CUT = " […]"
"""Replaces the end of a long result."""

LONG = 400
"""Characters up to which a result stays whole: leaving out less would save little more than the note costs."""

MANY = 1_000
"""Paragraphs that become parts of their own; all further ones are one part."""

BEGINNING = 200
"""Characters that stay of a long result, so that the model sees what it was."""


@dataclass(frozen=True, slots=True)
class Stripper:
    """One kind of text that is set apart.

    Args:
        name: names the kind.
        strip: returns the message with that text set apart by `set_apart`, or the message itself.
    """

    name: str
    strip: Callable[[Message], Message]


def strip(message: Message, strippers: Iterable[Stripper] | None = None) -> Message:
    """Return the message without the text that the strippers, one after the other, set apart.

    A message that already has grounding is returned as it is.

    Args:
        message: the message as it was put.
        strippers: None: `DEFAULT_STRIPPERS`.

    Raises:
        ValueError: a stripper lost text, so that the message could not be restored.
    """
    if message.grounding is not None:
        return message
    stripped = message
    for stripper in DEFAULT_STRIPPERS if strippers is None else strippers:
        stripped = stripper.strip(stripped)
        if rejoin(stripped) != message:
            raise ValueError(
                f"stripper {stripper.name!r} changed what the message says; use set_apart(message, start, end), "
                "which keeps one part of the text and sets the rest apart"
            )
    return stripped


def rejoin(message: Message) -> Message:
    """Return a message as it was before `strip`; one that was not stripped is returned as it is."""
    if not _is_stripped(message):
        return message
    assert message.grounding is not None
    kept, rest = message.content, "".join(item.text for item in message.grounding.items)
    if message.grounding.header:
        text = kept.removesuffix(CUT) + message.grounding.header + rest
    else:
        text = rest + kept + message.grounding.footer
    return message.replace(content=text, grounding=None)


def set_apart(message: Message, start: int, end: int) -> Message:
    """Return the message with `content[start:end]`, without surrounding space, as its content, and the rest set apart.

    Nothing is set apart if nothing else is there, or no text would stay.
    """
    return _set_apart(message, start, end, mark="")


def _set_apart(message: Message, start: int, end: int, *, mark: str) -> Message:
    if message.grounding is not None and (message.grounding.header or not _is_stripped(message)):
        return message
    kept = message.content[start:end]
    if not kept.strip():
        return message
    whole = rejoin(message)
    shift = sum(len(item.text) for item in message.grounding.items) if message.grounding else 0
    start += shift + len(kept) - len(kept.lstrip())
    end = start + len(kept.strip())
    before, kept, after = whole.content[:start], whole.content[start:end], whole.content[end:]
    if before:
        grounding = _grounding(before, footer=after)
    else:  # text comes before its grounding: the header marks this, so it must not be empty
        header = after[: max(1, len(after) - len(after.lstrip()))]
        grounding = _grounding(after[len(header) :], header=header)
    if not (before + after).strip():
        return message
    apart = whole.replace(content=kept + mark, grounding=grounding)
    return apart if rejoin(apart) == whole else message  # the text itself ends with the mark


def _grounding(text: str, *, header: str = "", footer: str = "") -> Grounding:
    """Return grounding with a paragraph to an item, so that it can be trimmed by paragraphs."""
    paragraphs = (part for part in re.split(r"(?<=\n\n)", text, maxsplit=MANY) if part)
    return Grounding.of(*paragraphs, header=header, footer=footer, omitted_note=NOTE)


def _is_stripped(message: Message) -> bool:
    return message.grounding is not None and message.grounding.omitted_note == NOTE


# Results of tools and of executed code


def _tool_result(message: Message) -> Message:
    return _beginning(message) if message.role == "tool" else message


EXECUTED = "Result of executing the code given:"
"""The beginning of the results of a `CodeActAgent`'s code, which come in the user's role."""


def _execution_result(message: Message) -> Message:
    executed = message.role in ("user", "assistant") and message.content.startswith(EXECUTED)
    return _beginning(message) if executed else message


def _beginning(message: Message) -> Message:
    text = message.content
    if len(text) <= LONG:
        return message
    first = len(text) - len(text.lstrip())
    spaces = [found.start() for found in re.finditer(r"\s", text[first : first + BEGINNING])]
    end = first + (spaces[-1] if spaces and spaces[-1] > BEGINNING // 2 else BEGINNING)
    return message if first else _set_apart(message, 0, end, mark=CUT)


# The steps of a ReAct agent, which stores them and its answer as one text


def _react_observations(message: Message) -> Message:
    text = message.content
    if message.role != "assistant" or not text.startswith("Thought:") or "\nObservation:" not in text:
        return message
    last = text.rfind("\nThought:", 0, text.rfind("\nAnswer:") + 1)
    return set_apart(message, last + 1, len(text)) if last > text.find("\nObservation:") else message


# An agent's state, written around a message


def _state_prompt(message: Message) -> Message:
    text = message.content
    if message.role != "user" or not text.startswith("Current state:\n"):
        return message
    found = text.find(marker := "\n\nCurrent message:\n")
    return set_apart(message, found + len(marker), len(text)) if found >= 0 else message


# Passages pasted around a question. They must look as if a program had written them: what people themselves write under
# "Context:" has to be recalled.

OPENING = re.compile(
    r"\s*(?:context information[^\n]* is below|use the context information below|"
    r"(?:[^\n]{0,200}\. )?(?:use|answer[^\n]{0,60}) the following (?:pieces of )?(?:retrieved )?context)",
    re.IGNORECASE,
)
FENCE = re.compile(r"^[ \t]*[-=]{5,}[ \t]*$", re.MULTILINE)
QUESTION = re.compile(r"^[ \t]*(?:user )?(?:query|question):[ \t]*", re.IGNORECASE | re.MULTILINE)
CONTEXT = re.compile(r"^[ \t]*(?:context|documents|sources|passages):", re.IGNORECASE | re.MULTILINE)
ANSWER = re.compile(r"\n[ \t]*(?:helpful |refined |your )?answer[^\n]{0,20}:\s*\Z", re.IGNORECASE)
TAG = re.compile(r"^[ \t]*<(context|documents?|sources|passages|search_results)(?: [^>\n]*)?>", re.I | re.MULTILINE)
REFINED = re.compile(
    r"The original query is as follows: (?P<kept>.*)\nWe have provided an existing answer: ", re.DOTALL
)


def _pasted_context(message: Message) -> Message:
    if message.role != "user":
        return message
    for find in (_refined, _tagged, _question_first, _context_first):
        if (span := find(message.content)) is not None:
            return set_apart(message, *span)
    return message


def _refined(text: str) -> tuple[int, int] | None:
    found = REFINED.match(text)
    return (0, found.end("kept")) if found else None


def _tagged(text: str) -> tuple[int, int] | None:
    """Find the question before or after passages in tags."""
    found = TAG.search(text)
    if found is None:
        return None
    closing = f"</{found[1]}>"
    if closing not in text[found.end() :]:
        return None
    end = text.rindex(closing) + len(closing)
    if not text[: found.start()].strip():
        return end, len(text)
    return (0, found.start()) if not text[end:].strip() else None


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


STATE_PROMPTS = Stripper("state_prompts", _state_prompt)
PASTED_CONTEXT = Stripper("pasted_context", _pasted_context)
REACT_OBSERVATIONS = Stripper("react_observations", _react_observations)
EXECUTION_RESULTS = Stripper("execution_results", _execution_result)
TOOL_RESULTS = Stripper("tool_results", _tool_result)

DEFAULT_STRIPPERS: tuple[Stripper, ...] = (
    STATE_PROMPTS, PASTED_CONTEXT, REACT_OBSERVATIONS, EXECUTION_RESULTS, TOOL_RESULTS,
)  # fmt: skip
