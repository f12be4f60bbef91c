"""The fixed part of a prompt: system messages, the question with its grounding and tool groups, the summary; pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, takewhile
from typing import Literal, get_args

from shared_core.arguments import one_of, whole_number
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.events import Note
from shared_core.formats.parts import OPENAI_FORMAT
from shared_core.messages import Message, Payload, join, with_grounding
from shared_core.plugins.base import TokenCounter
from shared_core.prompt.grounding import FittedGrounding, fit_grounding
from shared_core.prompt.template import defused
from shared_core.session.turns import Entry, Size, Turn, calls_of, chronological, tokens_of, tool_groups
from shared_core.tokens import message_tokens

_set = object.__setattr__  # a frozen value has no other way in

LARGE_TOOLS = 0.5
"""Tool schemas that take this share of the budget are named as the reason why older turns do not fit."""


STUB = "[result of {name} left out, {tokens:,} tokens]"
"""What the model reads in place of a tool's result."""

_STUB = re.compile(r"\[result of .+ left out, [\d,]+ tokens\]", re.DOTALL)

STUBS_SHARE = 0.25
"""The share of the room that newer groups leave for the stubs of older ones.

A group's call is sent with its stubs, and the arguments of calls may be long. Without a limit, they would take the room
of newer results, which the model needs more. Without a reserve, the model would forget what it has called already, and
call it again.
"""

Group = tuple[Entry, ...]

KeepGrounding = Literal["newest", "all", "none"] | int
OnOverflow = Literal["raise", "keep"]


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """A summary of messages older than the window, as written into the prompt.

    Attributes:
        said: the summary itself.
        text: the summary with its wording.
        tokens: the tokens that it adds to the prompt.
        messages: how many messages it sums up.
    """

    said: str
    text: str
    messages: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class FixedPart:
    """The part of a prompt that must be sent, and the room it leaves.

    Attributes:
        budget: tokens that may be sent.
        tools: tokens of the tool schemas.
        stays: system and pinned messages.
        question: the current question, None if there is none.
        question_tokens: the question's size without grounding.
        grounding: the question's grounding, trimmed to fit.
        grounding_tokens: the tokens that it adds.
        answers: the messages that answer the question so far, in order.
        stubs: the stubs of tool results among them, by `order`, if they do not all fit.
        groups: those of them that are sent, in order, or stubs.
        left_out: older tool groups of this turn that do not fit, not even with stubs.
        kept_free: tokens left free so that the turn can grow.
        summary: the summary of messages older than the window, None without one.
        shown: whether the prompt contains the question and its answers so far. They count either way.
        beside_pinned: the tokens left beside pinned messages and tool schemas.
    """

    budget: int
    tools: int
    stays: tuple[Entry, ...]
    question: Entry | None
    question_tokens: int
    grounding: FittedGrounding
    grounding_tokens: int
    answers: tuple[Entry, ...] = ()
    stubs: Mapping[int, Entry] = field(default_factory=dict)
    groups: tuple[Entry, ...] = ()
    left_out: tuple[Entry, ...] = ()
    kept_free: int = 0
    summary: WrittenSummary | None = None
    shown: bool = True
    beside_pinned: int = field(init=False)

    def __post_init__(self) -> None:
        _set(self, "beside_pinned", self.budget - self.tools - tokens_of(self.stays))

    @property
    def stubbed(self) -> tuple[Entry, ...]:
        """The tool results that are replaced by stubs, in order."""
        sent = {entry.order for entry in self.groups if self.stubs.get(entry.order) == entry}
        return tuple(entry for entry in self.answers if entry.order in sent)

    @property
    def left(self) -> int:
        """Tokens left for recalled messages and the window; negative if the fixed part alone is too large."""
        summary = self.summary.tokens if self.summary is not None else 0
        return self.beside_pinned - self.question_tokens - self.grounding_tokens - tokens_of(self.groups) - summary

    @property
    def room(self) -> int:
        """The part of `left` that may be filled, never negative."""
        return max(0, self.left - self.kept_free)


@dataclass(frozen=True, slots=True)
class FixedPartBuilder:
    """Builds the fixed parts of prompts. Its fields are constructor arguments of the memory, apart from `fences`.

    `fences` is the wording around recalled messages and summaries. Its tags are escaped in recalled messages, summaries
    and grounding, so that neither a page that was retrieved nor a summarizer can pose as something that was said. What
    the user asks, and the messages of the window, are sent word for word, each in its own role.

    Raises:
        ValueError: a value is out of range.
    """

    counter: TokenCounter
    keep_grounding: KeepGrounding = "newest"
    on_overflow: OnOverflow = "raise"
    fences: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.keep_grounding, str):
            one_of("keep_grounding", self.keep_grounding, ("newest", "all", "none"))
        else:
            whole_number("keep_grounding", self.keep_grounding, least=0)
        one_of("on_overflow", self.on_overflow, get_args(OnOverflow))

    def fixed_part(
        self, *, budget: int, tools: int, stays: Sequence[Entry], current: Turn | None, shown: bool = True
    ) -> FixedPart:
        """Return the fixed part at the time of the question. `answered` adds the messages that answer it.

        Raises:
            BudgetError: system and pinned messages and tool schemas alone exceed the budget.
            MessageTooLargeError: the question and the part of its turn that must be sent do not fit beside them.
        """
        fixed = FixedPart(budget, tools, tuple(stays), None, 0, FittedGrounding(""), 0, shown=shown)
        if fixed.beside_pinned < 0:
            raise _too_much_stays(fixed)
        if current is None or not current.entries:
            return fixed
        question, *answers = current.entries
        asked = self._with_grounding(
            replace(fixed, question=question, question_tokens=question.tokens, answers=tuple(answers))
        )
        if tokens_of(answers) > asked.beside_pinned - asked.question_tokens:
            asked = replace(asked, stubs=stubs_of(answers, lambda message: self._sent(message, "")))
        # Check with the answers so far but return without them: `Assembler.settle` adds as many as fit.
        self._check(self.answered(asked, len(answers)) if answers else asked)
        return asked

    def answered(self, asked: FixedPart, count: int, *, slack: float = 0.0) -> FixedPart:
        """Return the fixed part with the first `count` messages that answer the question.

        The newest tool group and pinned ones are always included; then older ones, newest first, as `fit_groups` says.
        If some do not fit whole, the share `slack` of the room is left free, so that not every new message changes
        another group. Grounding takes the room that groups leave.
        """
        groups = list(tool_groups(asked.answers[:count]))
        # Without the newest results, which the model asked for, the turn could not go on.
        must = [group is groups[-1] or any(entry.message.pinned for entry in group) for group in groups]
        room = asked.beside_pinned - asked.question_tokens - sum(map(tokens_of, compress(groups, must)))
        if sum(size for size, needed in zip(map(tokens_of, groups), must, strict=True) if not needed) > room > 0:
            room -= int(slack * room)
        sent, left_out = fit_groups(groups, must, asked.stubs, room)
        return self._with_grounding(replace(asked, groups=sent, left_out=left_out))

    def _check(self, fixed: FixedPart) -> None:
        """Raise MessageTooLargeError if the question and its answers so far cannot be sent."""
        needed = fixed.question_tokens + tokens_of(fixed.groups)
        if needed > fixed.beside_pinned and self.on_overflow == "raise":
            beside = f" and its newest tool group {needed - fixed.question_tokens:,}" if fixed.groups else ""
            raise MessageTooLargeError(
                f"the question needs {fixed.question_tokens:,} tokens{beside}, but {fixed.beside_pinned:,} are left "
                f"of a budget of {fixed.budget:,}: "
                'raise max_tokens, lower reserve_tokens, shorten it, or pass on_overflow="keep"',
                needed=needed,
                available=fixed.beside_pinned,
            )

    def _with_grounding(self, fixed: FixedPart) -> FixedPart:
        assert fixed.question is not None
        if fixed.question.message.grounding is None or self.keep_grounding in ("none", 0):
            return fixed
        message = self.safe(fixed.question.message)
        assert message.grounding is not None
        available = fixed.beside_pinned - tokens_of(fixed.groups)
        fitted = fit_grounding(
            message.grounding, lambda text: self._sent(message, text) <= available, content=message.content
        )
        tokens = self._sent(message, fitted.text) - fixed.question_tokens if fitted.text else 0
        return replace(fixed, grounding=fitted, grounding_tokens=tokens)

    def safe(self, message: Message) -> Message:
        """Return a message in whose grounding the tags of `fences` are escaped."""
        grounding = message.grounding
        if grounding is None:
            return message
        items = [
            item.model_copy(update={"text": defused(item.text, self.fences), "brief": defused(item.brief, self.fences)})
            for item in grounding.items
        ]
        around = {name: defused(getattr(grounding, name), self.fences) for name in ("header", "footer", "omitted_note")}
        safe = grounding.model_copy(update={"items": tuple(items), **around})
        return message if safe == grounding else message.replace(grounding=safe)

    def size(self, message: Message) -> int:
        """Return the size of a message as sent, in tokens."""
        return message_tokens(message, self.counter)

    def _sent(self, message: Message, grounding_text: str) -> int:
        return self.size(with_grounding(message, grounding_text))


def _too_much_stays(fixed: FixedPart) -> BudgetError:
    needed = fixed.budget - fixed.beside_pinned
    parts = f"system and pinned messages ({needed - fixed.tools:,}) and tool schemas ({fixed.tools:,}) need"
    return BudgetError(
        f"{parts if fixed.tools else 'system and pinned messages need'} {needed:,} tokens, but the budget is "
        f"{fixed.budget:,}: raise max_tokens, lower reserve_tokens, or shorten them",
        needed=needed,
        available=fixed.budget,
    )


def with_summary(fixed: FixedPart, summary: WrittenSummary, size: Callable[[Message], int]) -> FixedPart:
    """Return the fixed part with a summary, or without one if it does not fit beside what must be sent.

    Args:
        fixed: a fixed part, with or without a summary.
        summary: the summary to add. Its `tokens` are counted again for this fixed part.
        size: counts the tokens of a message as sent.
    """
    after = _system(fixed.stays)
    # Appending to an existing system message saves the framing of a message.
    if after is not None:
        tokens = size(_appended(after.message, summary.text)) - after.tokens
    else:
        tokens = size(Message.system(summary.text))
    summed = replace(fixed, summary=replace(summary, tokens=tokens))
    # A summary is optional, so it is dropped before anything that must be sent.
    return summed if summed.left >= 0 else replace(fixed, summary=None)


def asked_with(fixed: FixedPart, recalled: str) -> Message:
    """Return the question as sent: after the recalled text and its grounding."""
    assert fixed.question is not None
    asked = with_grounding(fixed.question.message, fixed.grounding.text)
    return asked.replace(content=join(recalled, asked.content)) if recalled else asked


def insert_summary(fixed: FixedPart, messages: list[Message]) -> list[Message]:
    """Return a prompt with the summary in its system message, or in a new one if there is none."""
    if fixed.summary is None:
        return messages
    after = _system(fixed.stays)
    if after is None:
        return [Message.system(fixed.summary.text), *messages]
    index = next(n for n, message in enumerate(messages) if message.id == after.message.id)
    return [*messages[:index], _appended(messages[index], fixed.summary.text), *messages[index + 1 :]]


def _appended(message: Message, text: str) -> Message:
    return message.replace(content=join(message.content, text))


def _system(stays: Sequence[Entry]) -> Entry | None:
    """Return the last of the system messages at the beginning of every prompt."""
    first = takewhile(lambda entry: entry.message.role == "system" and entry.turn_no < 0, chronological(stays))
    return next(reversed(list(first)), None)


def trimming_notes(fixed: FixedPart, *, reaches_all: bool) -> list[Note]:
    """Return notes on what did not fit beside the question: its grounding, older steps of its turn, and older turns.

    Args:
        fixed: the fixed part of the prompt.
        reaches_all: whether the prompt holds all turns.
    """
    fitted, stubbed, left_out = fixed.grounding, fixed.stubbed, fixed.left_out
    grounding = fixed.question.message.grounding if fixed.question is not None else None
    passages = f"of {len(grounding.filled)} retrieved passages" if grounding is not None else ""
    texts = [
        fitted.shortened and f"{fitted.shortened} {passages} given in less detail: they do not fit whole",
        fitted.omitted and f"{fitted.omitted} {passages} left out: they do not fit",
        fitted.cut and f"the end of the best {passages} left out: it does not fit",
        stubbed and f"tool results of this turn replaced by stubs: {_counted(stubbed)} do not fit",
        left_out and f"messages of this turn left out: {_counted(left_out)} do not fit",
        not reaches_all
        and fixed.tools >= LARGE_TOOLS * fixed.budget
        and f"tool schemas take {fixed.tools:,} of {fixed.budget:,} tokens, so little of the conversation fits",
    ]
    return [Note(text, "left_out") for text in texts if text]


def _counted(entries: Sequence[Entry]) -> str:
    return f"{len(entries):,} ({tokens_of(entries):,} tokens)"


# Tool results of the current turn


def is_stub(message: Message) -> bool:
    """Return whether a message of a prompt is a tool's result that was replaced by a stub."""
    return message.role == "tool" and _STUB.fullmatch(message.content) is not None


def stubs_of(answers: Sequence[Entry], size: Size) -> dict[int, Entry]:
    """Return the stub of each tool result that is larger than its stub, by the result's `order`.

    Args:
        answers: what answers a question so far, in order.
        size: counts the tokens of a message as sent.
    """
    calls = calls_of(answers)
    stubs: dict[int, Entry] = {}
    for index, entry in enumerate(answers):
        message = entry.message
        if message.role == "tool":
            caller, number = calls[index]
            name = answers[caller].message.tool_calls[number].name or "a tool"
            sent = message.replace(
                content=STUB.format(name=name, tokens=entry.tokens), media_tokens=0, payload=_without_parts(message)
            )
            if (tokens := size(sent)) < entry.tokens:
                stubs[entry.order] = Entry(sent, tokens, entry.turn_no, entry.order)
    return stubs


def _without_parts(message: Message) -> Payload | None:
    """Return what a payload says beside the content: in OpenAI's, that is the form of a result."""
    payload = message.payload
    if payload is None or payload.format != OPENAI_FORMAT or not isinstance(payload.data, Mapping):
        return None
    kept = {key: value for key, value in payload.data.items() if key != "content"}
    return Payload(format=payload.format, data=kept) if kept else None


def fit_groups(
    groups: Sequence[Group], needed: Sequence[bool], stubs: Mapping[int, Entry], room: int
) -> tuple[Group, Group]:
    """Return what is sent of the groups, and what is not: the newest are whole, older ones have stubs, the oldest go.

    From the first group that does not fit whole, all older ones have stubs; from the first that does not fit with stubs
    either, all older ones are left out. So the turn has one gap, and what follows it is complete.

    Args:
        groups: tool groups, oldest first.
        needed: which of them are sent whole in any case. They take no room.
        stubs: the stubs of results, by `order`.
        room: tokens for the other groups.
    """
    short = [group if must else _with_stubs(group, stubs) for group, must in zip(groups, needed, strict=True)]
    older = sum(tokens_of(group) for group, must in zip(short, needed, strict=True) if not must)
    reserve = int(STUBS_SHARE * max(0, room))
    sent: list[Group] = []
    left_out: list[Group] = []
    whole = True
    for group, stubbed, must in zip(reversed(groups), reversed(short), reversed(needed), strict=True):
        older -= 0 if must else tokens_of(stubbed)
        whole = whole and (must or tokens_of(group) + min(older, reserve) <= room)
        given = group if must or whole else stubbed
        if must or (not left_out and tokens_of(given) <= room):
            sent.insert(0, given)
            room -= 0 if must else tokens_of(given)
        else:
            left_out.insert(0, group)
    return tuple(chain(*sent)), tuple(chain(*left_out))


def _with_stubs(group: Group, stubs: Mapping[int, Entry]) -> Group:
    return tuple(stubs.get(entry.order, entry) for entry in group)
