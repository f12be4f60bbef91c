"""Conversations with labelled evidence, as read from a file."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from shared_core import Message
from shared_core.plugins.base import TokenCounter

__all__ = ["Question", "Talk", "foreign_questions", "read_talks"]

ROLES = ("user", "assistant")

OF_ONE_SUBJECT = ("beam", "qmsum", "realmem")
"""How the names of those sets begin whose conversations are about much the same, such as the meetings of one project: a
question about one of them is not quite foreign to the next."""

MOST_FOREIGN = 80
"""Questions of another conversation that are asked at most."""

NO_TIME = datetime(2024, 1, 1, tzinfo=UTC)
"""When everything was said of which the file does not tell."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked after the end of a conversation, or in the middle of it.

    Attributes:
        text: as asked.
        evidence: places of the messages that answer it, from 0.
        category: what kind of question it is, as the file calls it.
        answer: what the file says it is; None if it says nothing.
        at: how many messages were said before it; None: all.
    """

    text: str
    evidence: frozenset[int]
    category: str
    answer: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation.

    Attributes:
        dataset: what it belongs to.
        name: its name there.
        messages: as they are given to a memory.
        sessions: the session of each.
        tokens: what `speaker: text` costs, of each.
        questions: those with any evidence.
    """

    dataset: str
    name: str
    messages: tuple[Message, ...]
    sessions: tuple[Any, ...]
    tokens: tuple[int, ...]
    questions: tuple[Question, ...]

    @property
    def has_assistant(self) -> bool:
        """Whether an assistant takes part."""
        return any(message.role == "assistant" for message in self.messages)

    def until(self, place: int) -> "Talk":
        """Return the conversation up to a place, with the questions about all of it."""
        messages, sessions, tokens = self.messages[:place], self.sessions[:place], self.tokens[:place]
        return replace(self, messages=messages, sessions=sessions, tokens=tokens)


def read_talks(path: Path, count: TokenCounter, first: int | None = None) -> list[Talk]:
    """Return the conversations of a gzipped file of JSON lines, or only the first so many.

    A line is `{"dataset", "conversation", "messages": [{"id", "session", "speaker", "text", "time"}], "questions":
    [{"text", "evidence": [ids], "category", "answer"?, "at"?}]}`; the time is ISO 8601 or null. A question with "at" is
    asked when so many messages have been said.
    """
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [_talk(json.loads(line), count) for line in islice(file, first)]


def _talk(found: dict[str, Any], count: TokenCounter) -> Talk:
    said: Sequence[dict[str, Any]] = found["messages"]
    places = {line["id"]: place for place, line in enumerate(said)}
    questions = [
        Question(
            text=asked["text"],
            evidence=frozenset(places[id_] for id_ in asked["evidence"]),
            category=asked["category"],
            answer=asked.get("answer"),
            at=asked.get("at"),
        )
        for asked in found["questions"]
        if asked["evidence"]
    ]
    return Talk(
        dataset=found["dataset"],
        name=found["conversation"],
        messages=tuple(map(_message, said)),
        sessions=tuple(line["session"] for line in said),
        tokens=tuple(count(f"{line['speaker']}: {line['text']}") for line in said),
        questions=tuple(questions),
    )


def _message(line: dict[str, Any]) -> Message:
    moment = datetime.fromisoformat(line["time"]) if line["time"] else NO_TIME
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if line["speaker"] in ROLES:
        return Message(role=line["speaker"], content=line["text"], id=line["id"], created_at=moment)
    return Message.user(line["text"], name=line["speaker"], id=line["id"], created_at=moment)


def foreign_questions(conversations: Sequence[Sequence[str]], at: int) -> list[str]:
    """Return questions about the conversation after the one `at`, the same ones every time; none if there is no other.

    After the last one comes the first.

    Args:
        conversations: the questions about each.
        at: the number of a conversation, from 0.
    """
    if len(conversations) == 1:
        return []
    questions = list(conversations[(at + 1) % len(conversations)])
    return questions if len(questions) <= MOST_FOREIGN else Random(at).sample(questions, MOST_FOREIGN)
