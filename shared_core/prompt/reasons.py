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

    @property
    def short(self) -> str:
        """It in two or three words, for counting; reasons that come to the same for a reader share them."""
        return next((words for words, reasons in _SHORT.items() if self in reasons), self.value.replace("_", " "))

    # In the prompt
    ALWAYS_SENT = "always_sent", "a system or pinned message, which is always sent"
    QUESTION = "question", "the question"
    CURRENT_TURN = "current_turn", "said since the question was asked"
    GROUNDING = "grounding", "retrieved for the question"
    GROUNDING_TRIMMED = "grounding_trimmed", "retrieved for the question, trimmed to fit"
    TOOL_SCHEMAS = "tool_schemas", "the tool schemas"
    SUMMARY = "summary", "sums up older messages"
    NEWEST = "newest", "among the newest turns"
    RECALLED = "recalled", "matches the question"
    EXCERPT = "excerpt", "matches the question; a part of it is shown"
    NEWER = "newer", "says later what a match is about"
    NEIGHBOUR = "neighbour", "shown for context around a match"
    NEIGHBOUR_EXCERPT = "neighbour_excerpt", "a part of it is shown for context around a match"
    WORDING = "wording", "the wording around what is recalled"
    STUB = "stub", "a stub in place of a tool's result in this turn, which gives way to newer ones"

    # Not in the prompt, with the question
    GROUNDING_OFF = "grounding_off", 'retrieved for the question, but keep_grounding is "none"'
    GROUNDING_EMPTY = "grounding_empty", "nothing was retrieved for the question"
    GROUNDING_TOO_LARGE = "grounding_too_large", "retrieved for the question, but not even a part of it fits"
    OLDER_GROUP = "older_group", "an older step of this turn, which gives way to newer ones"

    # Not in the window
    STABLE_START = "stable_start", "fits, but the window starts later so that its start stays the same for a while"
    OLDER_THAN_WINDOW = "older_than_window", "older than the window"
    WINDOW_TURNS = "window_turns", "older than as many turns as window_turns allows"
    TOO_LARGE_FOR_WINDOW = "too_large_for_window", "its turn is larger than what newer turns and recall leave"
    BROKEN_GROUP = "broken_group", "a tool call without its results, or results without their call"
    NO_QUESTION = "no_question", "a turn without a user message cannot be sent by itself"

    # Not recalled
    IN_WINDOW = "in_window", "in the window already"
    IN_SUMMARY = "in_summary", "stands in the summary word for word"
    SUMMARY_LEFT_OUT = "summary_left_out", "stands in the summary, which was left out because it does not fit"
    DUPLICATE = "duplicate", "says the same as a newer message"
    SAME_TURN = "same_turn", "a better match was found in the same turn"
    REPEATS_QUESTION = "repeats_question", "is the question, asked before"
    WEAK = "weak", "matches the question too little"
    UNLIKELY = "unlikely", "too unlikely to help to be worth its tokens"
    NO_TEXT = "no_text", "has no text to recall, apart from tool messages"
    TOP_K = "top_k", "beyond top_k better matches"
    RECALL_SHARE_USED = "recall_share_used", "better matches use up the recall share"
    TOO_LARGE_FOR_SHARE = "too_large_for_share", "larger, with all that comes with it, than the recall share"
    BUDGET_USED = "budget_used", "better matches use up what the rest of the prompt leaves"
    TOO_LARGE_FOR_BUDGET = (
        "too_large_for_budget", "larger, with all that comes with it, than what the rest of the prompt leaves"
    )  # fmt: skip
    WINDOW_TOOK_ROOM = "window_took_room", "newer turns took the room that recall did not use in the end"
    FITS_IN_HINDSIGHT = "fits_in_hindsight", "did not fit by the estimate when it was considered, but would fit now"
    DISPLACED = "displaced", "was in the window until a newer, larger turn took the room"


_SHORT = {
    "no room": {
        Reason.GROUNDING_TOO_LARGE, Reason.OLDER_GROUP, Reason.TOO_LARGE_FOR_WINDOW,
        Reason.RECALL_SHARE_USED, Reason.TOO_LARGE_FOR_SHARE, Reason.BUDGET_USED, Reason.TOO_LARGE_FOR_BUDGET,
        Reason.WINDOW_TOOK_ROOM, Reason.FITS_IN_HINDSIGHT, Reason.DISPLACED,
    },
    "older than the window": {Reason.OLDER_THAN_WINDOW, Reason.STABLE_START, Reason.WINDOW_TURNS},
    "in the prompt already": {Reason.IN_WINDOW, Reason.IN_SUMMARY, Reason.SAME_TURN},
    "said twice": {Reason.DUPLICATE},
    "asked before": {Reason.REPEATS_QUESTION},
    "matches too little": {Reason.WEAK, Reason.UNLIKELY},
}  # fmt: skip
