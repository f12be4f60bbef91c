"""What branches say, in words and without a model: a digest of one, and what two of them contradict; pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shared_core.messages import Message

__all__ = ["Conflict", "conflicts", "digest", "report"]

CLIP = 280
"""Characters of a message in a digest."""

LISTED = 20
"""Messages of a branch in a digest: its newest."""

SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
STATEMENT = re.compile(r"(?:the |our |my |your )?(.{2,60}?)(?: is| are| was| were| will be|:| =) +(.{1,120}?)[.!;]*")
POINTING = {"it", "this", "that", "these", "those", "there", "here", "he", "she", "they", "you", "we", "i"}
"""Words that mean something else in every sentence."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """What two branches say differently; nobody has decided between them.

    Attributes:
        about: what it is about, in words.
        ours: ids of the messages that say it on the branch stood on.
        theirs: ids of those on the other branch.
        ours_say: what they say.
        theirs_say: what the others say.
    """

    about: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    ours_say: str
    theirs_say: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields | {"ours": list(self.ours), "theirs": list(self.theirs)}


def digest(messages: Sequence[Message]) -> str:
    """Return the newest messages that say something to somebody, a line each."""
    said = [message for message in messages if message.role in ("user", "assistant") and message.content.strip()]
    lines = [f"{message.role}: {_clipped(message.content)}" for message in said[-LISTED:]]
    return "\n".join(["...", *lines] if len(said) > LISTED else lines)


def report(ours: Sequence[Message], theirs: Sequence[Message], found: Sequence[Conflict], names: Sequence[str]) -> str:
    """Return what each of two branches, named `names`, has added, and what they contradict."""
    parts = [
        f"Only on {name!r}:\n{digest(messages) or '(nothing)'}"
        for name, messages in zip(names, (ours, theirs), strict=True)
    ]
    open_questions = "\n".join(
        f"- {one.about}: {names[0]!r} says {one.ours_say!r} [{', '.join(one.ours)}], "
        f"{names[1]!r} says {one.theirs_say!r} [{', '.join(one.theirs)}]"
        for one in found
    )
    return "\n\n".join([*parts, f"Undecided, ask before relying on either:\n{open_questions}"] if found else parts)


def conflicts(ours: Sequence[Message], theirs: Sequence[Message]) -> list[Conflict]:
    """Return what two branches contradict in what they have added since they parted.

    Two answers to one question, and two values of one thing in sentences such as "the budget is 10k". The last word of
    a branch on a thing counts. Deterministic, and blind to contradictions in other words.
    """
    sides = _answers(ours), _answers(theirs)
    found = [
        _conflict(f"the answer to {sides[0][key][0]!r}", sides[0][key], sides[1][key])
        for key in sides[0]
        if key in sides[1] and _plain(sides[0][key][2]) != _plain(sides[1][key][2])
    ]
    values = _statements(ours), _statements(theirs)
    return found + [
        _conflict(thing, values[0][thing], values[1][thing])
        for thing in values[0]
        if thing in values[1] and _plain(values[0][thing][2]) != _plain(values[1][thing][2])
    ]


_Said = tuple[str, tuple[str, ...], str]
"""What it is about, the ids that say it, what they say."""


def _conflict(about: str, ours: _Said, theirs: _Said) -> Conflict:
    return Conflict(about, ours[1], theirs[1], _clipped(ours[2]), _clipped(theirs[2]))


def _answers(messages: Iterable[Message]) -> dict[str, _Said]:
    """Return question -> (question, ids, answer); a question goes by its text, or by its turn if it is not given."""
    asked: dict[str, Message] = {}
    answered: dict[str, list[Message]] = {}
    for message in messages:
        if message.role == "user":
            asked[message.turn_id or ""] = message
        elif message.role == "assistant" and not message.tool_calls and message.content.strip():
            answered.setdefault(message.turn_id or "", []).append(message)
    found: dict[str, _Said] = {}
    for turn_id, replies in answered.items():
        question = asked.get(turn_id)
        about = _clipped(question.content) if question is not None else turn_id
        ids = [message.id or "" for message in ([question] if question is not None else []) + replies]
        said = " ".join(reply.content for reply in replies)
        found[f"text {_plain(question.content)}" if question is not None else f"turn {turn_id}"] = (
            about, tuple(ids), said
        )  # fmt: skip
    return found


def _statements(messages: Iterable[Message]) -> dict[str, _Said]:
    """Return thing -> (thing, ids, value) for what is said of it last."""
    found: dict[str, _Said] = {}
    for message in messages:
        if message.role not in ("user", "assistant"):
            continue
        for sentence in SENTENCE.split(message.content):
            match = None if sentence.rstrip().endswith("?") else STATEMENT.fullmatch(" ".join(sentence.split()).lower())
            if match is not None and match[1] not in POINTING:
                found[match[1]] = (match[1], (message.id or "",), match[2])
    return found


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CLIP else line[: CLIP - 3] + "..."
