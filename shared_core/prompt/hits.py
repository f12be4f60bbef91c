"""What recall finds, a message or the turn around it, and why a message is in a prompt or not."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from shared_core.messages import Message, brief
from shared_core.prompt.relevance import Band, band, closeness
from shared_core.session.turns import Entry


class Kind(StrEnum):
    """The part of the prompt that tokens belong to."""

    SYSTEM = "system"
    TOOLS = "tools"
    QUESTION = "question"
    GROUNDING = "grounding"
    SUMMARY = "summary"
    RECALLED = "recalled"
    WINDOW = "window"

    @property
    def letter(self) -> str:
        """Its letter in the budget bar. The summary is M, since S is the system messages."""
        return "M" if self is Kind.SUMMARY else self.value[0].upper()


class Reason(StrEnum):
    """Why a message is in the prompt or not: a stable code for programs, such as `"newest"`, and a sentence.

    Attributes:
        why: the sentence.
    """

    why: str

    def __new__(cls, code: str, why: str = "") -> "Reason":
        """Return a reason that equals its code."""
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.why = why
        return reason

    # In the prompt
    ALWAYS_SENT = "always_sent", "always sent: a system or pinned message, or the tool schemas"
    QUESTION = "question", "the question, what was retrieved for it, or what was said since"
    SUMMARY = "summary", "sums up older messages"
    NEWEST = "newest", "among the newest turns"
    RECALLED = "recalled", "matches the question"
    NEIGHBOUR = "neighbour", "goes with a match: said around it, or later about the same"
    WORDING = "wording", "the wording around what is recalled"

    # Not in the prompt
    NO_ROOM = "no_room", "did not fit beside what comes first"
    OLDER = "older", "older than the window"
    TOP_K = "top_k", "beyond top_k better matches"
    WEAK = "weak", "matches the question too little to be worth its tokens"
    REPEATED = "repeated", "says what the question, a newer message or a better match in its turn says"
    IN_WINDOW = "in_window", "in the window already"
    IN_SUMMARY = "in_summary", "stands in the summary word for word"
    INCOMPLETE = "incomplete", "cannot be sent alone: a call without its result, no question, or nothing to read"
    NO_GROUNDING = "no_grounding", 'nothing was retrieved for the question, or keep_grounding is "none"'


PART = "a part of it is shown"
"""What a line says besides its reason if its text is cut, trimmed, or replaced by a stub."""


Source = Literal["lexical", "dense", "both", "grounding"]

Place = tuple[int, int]
"""The number of a scope, and the index of a message on its line."""


class Hit(NamedTuple):
    """A message that was found. In a prompt, the others of its turn may come with it.

    Attributes:
        score: higher is better; scores are comparable within one search only.
        lexical: the share of the question's informative words that the message matches, about 0 to 1; 0 if it
            holds none of them itself, however near a match it is.
        dense: the cosine with the question, None without a vector.
        reranked: the reranker's score; None if it gave none. `score` is then that of the rank it was given.
        session_id: the session that holds it; empty in a prompt.
        entries: the message, or the messages of its turn, in order.
        reason: the decision on it; None if it may still be recalled.
        matches: whether its own words or meaning match; others are found through a match that they go with.
        grounding: whether only the words of its grounding match.
        id: the message's id.
        cut: ids of the messages of which it holds an excerpt.
        place: where it was found. For a turn, that is the message whose words match best.
        threshold: the cosine from which a text is about the query, as for `band`.
    """

    place: Place
    score: float
    lexical: float = 0.0
    dense: float | None = None
    reason: Reason | None = None
    matches: bool = True
    grounding: bool = False
    reranked: float | None = None
    entries: tuple[Entry, ...] = ()
    id: str | None = None
    cut: Sequence[str | None] = ()
    session_id: str = ""
    threshold: float = 0.0

    @property
    def band(self) -> Band | None:
        """How well it matches, in a word; None if nothing is known about it."""
        return band(self.lexical, self.dense, self.threshold)

    @property
    def closeness(self) -> float:
        """How well it matches, from 0 to 2, comparable between searches."""
        return closeness(self.lexical, self.dense, self.threshold)

    @property
    def message(self) -> Message:
        """The message, the first of its turn in a prompt."""
        return self.entries[0].message

    @property
    def source(self) -> Source:
        """What found it: its words, its meaning, both, or the words of its grounding alone."""
        if self.grounding:
            return "grounding"
        if self.dense is None:
            return "lexical"
        return "both" if self.lexical > 0 else "dense"

    @property
    def tokens(self) -> int:
        """The tokens of its messages, sent as messages."""
        return sum([entry.tokens for entry in self.entries])

    def because(self, reason: Reason | None) -> "Hit":
        """Return the hit with a decision."""
        # `_replace` takes twice as long, and this is called a hundred times per prompt.
        return tuple.__new__(Hit, (*self[:REASON], reason, *self[REASON + 1 :]))

    def why_recalled(self, entry: Entry) -> Reason:
        """Return why one of its messages is recalled."""
        return Reason.RECALLED if self.matches and entry.message.id == self.id else Reason.NEIGHBOUR

    def __repr__(self) -> str:
        known = {
            "source": self.source,
            "lexical": self.lexical,
            "dense": self.dense,
            "session_id": self.session_id,
        }
        fields = {"message": self.message, "score": self.score} | known if self.entries else self._asdict()
        return f"Hit({', '.join(f'{name}={brief(value)}' for name, value in fields.items())})"


REASON = Hit._fields.index("reason")


def without_weak(found: Sequence[Hit]) -> list[Hit]:
    """Return what matches at least fairly; all of it if nothing does."""
    return [hit for hit in found if hit.band not in (None, Band.WEAK)] or [*found]
