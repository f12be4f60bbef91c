"""The parts of a prompt, and the reasons why a message is in it or not."""

from enum import StrEnum


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
    QUESTION = "question", "the question"
    CURRENT_TURN = "current_turn", "said since the question was asked"
    GROUNDING = "grounding", "retrieved for the question"
    SUMMARY = "summary", "sums up older messages"
    NEWEST = "newest", "among the newest turns"
    RECALLED = "recalled", "matches the question"
    NEWER = "newer", "says later what a match is about"
    NEIGHBOUR = "neighbour", "shown for context around a match"
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
