"""The frame of a prompt: system messages, the question with its grounding and tool groups, the summary; pure."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, takewhile
from typing import Literal, get_args

from shared_core.arguments import function, one_of, whole_number
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.events import Note
from shared_core.messages import Grounding, GroundingItem, Message, join
from shared_core.plugins.base import TokenCounter
from shared_core.prompt.abridged import fit_groups, stubs_of
from shared_core.prompt.template import defused
from shared_core.session.turns import Entry, Turn, chronological, tokens_of, tool_groups
from shared_core.tokens import message_tokens

LONG_WORD = 40
"""At most this many characters are given up to cut between words."""

Shorten = Callable[[GroundingItem], str]
"""Returns the text of a passage in less detail."""

LARGE_TOOLS = 0.5
"""Tool schemas that take this share of the budget are named as the reason why older turns do not fit."""


@dataclass(frozen=True, slots=True)
class FittedGrounding:
    """Grounding as rendered into the prompt.

    Attributes:
        text: the rendered text; empty if nothing fits.
        omitted: how many items were left out.
        cut: whether the only remaining item was cut.
        shortened: how many of the items that are there are in less detail.
    """

    text: str
    omitted: int = 0
    cut: bool = False
    shortened: int = 0

    @property
    def trimmed(self) -> bool:
        """Whether items are left out or cut."""
        return bool(self.omitted) or self.cut


def render_grounding(grounding: Grounding | None, *, keep: Sequence[int] | None = None, content: str = "") -> str:
    """Return header, items and footer as one text; empty if there are no items.

    Args:
        grounding: the grounding; None renders as an empty text.
        keep: indices of the items to show; all by default.
        content: the content of the message, which is part of the text if the grounding surrounds it.
    """
    return "" if grounding is None else _written(grounding, grounding.shown(keep), content)


def _written(grounding: Grounding, texts: Sequence[str], content: str) -> str:
    if not grounding.surrounds:
        return grounding.render(texts)
    return grounding.with_content(content, texts) if any(texts) else ""


def _strongest_first(grounding: Grounding) -> list[int]:
    # Items without a score come last. Of equal scores, the earlier item is the stronger one.
    def strength(index: int) -> tuple[float, int]:
        score = grounding.items[index].score
        return (float("-inf") if score is None else score, -index)

    return sorted(grounding.filled, key=strength, reverse=True)


def fit_grounding(
    grounding: Grounding | None, fits: Callable[[str], bool], *, content: str = "",
    shorten: Callable[[int], str] | None = None,
) -> FittedGrounding:  # fmt: skip
    """Trim grounding until it fits. Whole items are left out, weakest first; only the last remaining one is cut.

    Args:
        grounding: the grounding to trim.
        fits: returns whether a rendered grounding fits. If a text fits, a shorter one must fit as well.
        content: as for `render_grounding`.
        shorten: returns the text of the item at an index in less detail. Before any item is left out, all are given so,
            weakest first, as far as that makes them shorter.

    Returns:
        The longest version found that fits; empty if not even a part of the best item does.
    """
    order = _strongest_first(grounding) if grounding is not None else []
    if grounding is None or not order:
        return FittedGrounding("")
    whole = render_grounding(grounding, content=content)
    if fits(whole):  # checked first: a note on omitted items may be longer than the items
        return FittedGrounding(whole)
    detailed = grounding.items
    if shorten is not None and not grounding.surrounds:
        briefer = _in_less_detail(grounding, order, shorten)
        enough = bisect_left(briefer, True, key=lambda version: fits(version.render()))
        if enough < len(briefer):
            return FittedGrounding(briefer[enough].render(), shortened=enough + 1)
        grounding = briefer[-1] if briefer else grounding
    # Counting tokens is the expensive part, so bisect instead of removing item by item.
    counts = range(1, len(order))
    kept = bisect_left(
        counts, True, key=lambda count: not fits(render_grounding(grounding, keep=order[:count], content=content))
    )
    if kept:
        text = render_grounding(grounding, keep=order[:kept], content=content)
        short = sum(grounding.items[index] != detailed[index] for index in order[:kept])
        return FittedGrounding(text, omitted=len(order) - kept, shortened=short)
    text = _cut(grounding.items[order[0]].text, fits, lambda part: _written(grounding, [part], content))
    return FittedGrounding(text, omitted=len(order) - bool(text), cut=bool(text))


def _in_less_detail(grounding: Grounding, order: Sequence[int], shorten: Callable[[int], str]) -> list[Grounding]:
    """Return the grounding with its weakest item in less detail, then with two, and so on; `order` is best first."""
    items, versions = list(grounding.items), list[Grounding]()
    for index in reversed(order):
        text = shorten(index)
        if text and len(text) < len(items[index].text):
            items[index] = items[index].model_copy(update={"text": text})
            versions.append(grounding.model_copy(update={"items": tuple(items)}))
    return versions


def _cut(item: str, fits: Callable[[str], bool], render: Callable[[str], str]) -> str:
    """Return the rendering with the longest beginning of `item` that fits, cut between words if possible."""

    def rendered(length: int) -> str:
        return render(item[:length].rstrip())

    longest = bisect_left(range(1, len(item) + 1), True, key=lambda length: not fits(rendered(length)))
    at_word = rendered(word_end(item, longest))
    # A tokenizer may need more tokens for a shorter text, so the result is checked again.
    return at_word if fits(at_word) else rendered(longest)


def word_end(text: str, length: int) -> int:
    """Return the end of the last whole word in `text[:length]`, or `length` if that is far, as without spaces."""
    ends = range(length, max(0, length - LONG_WORD), -1)
    words = (end for end in ends if text[end : end + 1].isspace() and not text[:end].isspace())
    return length if length >= len(text) else next(words, length)


def with_grounding(message: Message, grounding_text: str) -> Message:
    """Return the message as sent: with the grounding before its text instead of in a field of its own.

    Grounding that surrounds the content has been rendered with it, so its text is the whole content.
    """
    if not grounding_text and message.grounding is None:
        return message
    surrounds = message.grounding is not None and message.grounding.surrounds
    content = grounding_text if surrounds and grounding_text else join(grounding_text, message.content)
    return message.replace(content=content, grounding=None)


KeepGrounding = Literal["newest", "all", "none"] | int
OnOverflow = Literal["raise", "keep"]


@dataclass(frozen=True, slots=True)
class FramedSummary:
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
class Frame:
    """The part of a prompt that must be sent, and the room it leaves.

    Attributes:
        budget: tokens that may be sent.
        tools: tokens of the tool schemas.
        stays: system and pinned messages.
        question: the current question, None if there is none.
        bare: the question's size without grounding.
        grounding: the question's grounding, trimmed to fit.
        grounding_tokens: the tokens that it adds.
        answers: the messages that answer the question so far, in order.
        stubs: the stubs of tool results among them, by `order`, if they do not all fit.
        groups: those of them that are sent, in order, or stubs.
        left_out: older tool groups of this turn that do not fit, not even with stubs.
        spare: tokens left free so that the turn can grow.
        summary: the summary of messages older than the window, None without one.
        shown: whether the prompt contains the question and its answers so far. They count either way.
    """

    budget: int
    tools: int
    stays: tuple[Entry, ...]
    question: Entry | None
    bare: int
    grounding: FittedGrounding
    grounding_tokens: int
    answers: tuple[Entry, ...] = ()
    stubs: Mapping[int, Entry] = field(default_factory=dict)
    groups: tuple[Entry, ...] = ()
    left_out: tuple[Entry, ...] = ()
    spare: int = 0
    summary: FramedSummary | None = None
    shown: bool = True

    @property
    def open(self) -> int:
        """Tokens left beside pinned messages and tool schemas."""
        return self.budget - self.tools - tokens_of(self.stays)

    @property
    def stubbed(self) -> tuple[Entry, ...]:
        """The tool results that are replaced by stubs, in order."""
        sent = {entry.order for entry in self.groups if self.stubs.get(entry.order) == entry}
        return tuple(entry for entry in self.answers if entry.order in sent)

    @property
    def room(self) -> int:
        """Tokens left for recalled messages and the window; negative if the frame alone is too large."""
        summary = self.summary.tokens if self.summary is not None else 0
        return self.open - self.bare - self.grounding_tokens - tokens_of(self.groups) - summary

    @property
    def rest(self) -> int:
        """The part of `room` that may be filled, never negative."""
        return max(0, self.room - self.spare)


@dataclass(frozen=True, slots=True)
class Framer:
    """Builds frames. Its fields are constructor arguments of the memory, apart from `fences`.

    `fences` is the wording around recalled messages and summaries. Its tags are escaped in recalled messages, summaries
    and grounding, so that neither a page that was retrieved nor a summarizer can pose as something that was said. What
    the user asks, and the messages of the window, are sent word for word, each in its own role.

    Raises:
        ValueError: a value is out of range.
    """

    counter: TokenCounter
    keep_grounding: KeepGrounding = "newest"
    on_overflow: OnOverflow = "raise"
    shorten: Shorten | None = None
    fences: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.keep_grounding, str):
            one_of("keep_grounding", self.keep_grounding, ("newest", "all", "none"))
        else:
            whole_number("keep_grounding", self.keep_grounding, least=0)
        one_of("on_overflow", self.on_overflow, get_args(OnOverflow))
        if self.shorten is not None:
            function("shorten_grounding", self.shorten, "(item: GroundingItem) -> str")

    def frame(
        self, *, budget: int, tools: int, stays: Sequence[Entry], current: Turn | None, shown: bool = True
    ) -> Frame:
        """Return the frame at the time of the question. `answered` adds the messages that answer it.

        Raises:
            BudgetError: system and pinned messages and tool schemas alone exceed the budget.
            MessageTooLargeError: the question and the part of its turn that must be sent do not fit beside them.
        """
        frame = Frame(budget, tools, tuple(stays), None, 0, FittedGrounding(""), 0, shown=shown)
        if frame.open < 0:
            raise _too_much_stays(frame)
        if current is None or not current.entries:
            return frame
        question, *answers = current.entries
        asked = self._with_grounding(replace(frame, question=question, bare=question.tokens, answers=tuple(answers)))
        if tokens_of(answers) > asked.open - asked.bare:
            asked = replace(asked, stubs=stubs_of(answers, lambda message: self._sent(message, "")))
        # Check with the answers so far but return without them: `Assembler.settle` adds as many as fit.
        self._check(self.answered(asked, len(answers)) if answers else asked)
        return asked

    def answered(self, asked: Frame, count: int, *, slack: float = 0.0) -> Frame:
        """Return the frame with the first `count` messages that answer the question.

        The newest tool group and pinned ones are always included; then older ones, newest first, as `fit_groups` says.
        If some do not fit whole, the share `slack` of the room is left free, so that not every new message changes
        another group. Grounding takes the room that groups leave.
        """
        groups = list(tool_groups(asked.answers[:count]))
        # Without the newest results, which the model asked for, the turn could not go on.
        must = [group is groups[-1] or any(entry.message.pinned for entry in group) for group in groups]
        room = asked.open - asked.bare - sum(map(tokens_of, compress(groups, must)))
        if sum(size for size, needed in zip(map(tokens_of, groups), must, strict=True) if not needed) > room > 0:
            room -= int(slack * room)
        sent, left_out = fit_groups(groups, must, asked.stubs, room)
        return self._with_grounding(replace(asked, groups=sent, left_out=left_out))

    def _check(self, frame: Frame) -> None:
        """Raise MessageTooLargeError if the question and its answers so far cannot be sent."""
        needed = frame.bare + tokens_of(frame.groups)
        if needed > frame.open and self.on_overflow == "raise":
            beside = f" and its newest tool group {needed - frame.bare:,}" if frame.groups else ""
            raise MessageTooLargeError(
                f"the question needs {frame.bare:,} tokens{beside}, but {frame.open:,} are left of a budget of "
                f"{frame.budget:,}: "
                'raise max_tokens, lower reserve_tokens, shorten it, or pass on_overflow="keep"',
                needed=needed,
                available=frame.open,
            )

    def _with_grounding(self, frame: Frame) -> Frame:
        assert frame.question is not None
        given, message = frame.question.message.grounding, self.safe(frame.question.message)
        if given is None or self.keep_grounding in ("none", 0):
            return frame
        available = frame.open - tokens_of(frame.groups)
        fitted = fit_grounding(
            message.grounding, lambda text: self._sent(message, text) <= available, content=message.content,
            shorten=None if self.shorten is None else lambda index: self._shortened(given.items[index]),
        )  # fmt: skip
        tokens = self._sent(message, fitted.text) - frame.bare if fitted.text else 0
        return replace(frame, grounding=fitted, grounding_tokens=tokens)

    def _shortened(self, item: GroundingItem) -> str:
        assert self.shorten is not None
        text = self.shorten(item)
        if not isinstance(text, str):
            raise TypeError(f"shorten_grounding returned {text!r}; it must return a text")
        return defused(text, self.fences)

    def safe(self, message: Message) -> Message:
        """Return a message in whose grounding the tags of `fences` are escaped."""
        grounding = message.grounding
        if grounding is None:
            return message
        items = [item.model_copy(update={"text": defused(item.text, self.fences)}) for item in grounding.items]
        around = {name: defused(getattr(grounding, name), self.fences) for name in ("header", "footer", "omitted_note")}
        safe = grounding.model_copy(update={"items": tuple(items), **around})
        return message if safe == grounding else message.replace(grounding=safe)

    def between_fences(self, message: Message) -> Message:
        """Return a message in whose text and name the tags of `fences` are escaped, as it is recalled."""
        said, name = defused(message.content, self.fences), message.name and defused(message.name, self.fences)
        if said == message.content and name == message.name:
            return message
        return message.replace(content=said, name=name or message.name)

    def size(self, message: Message) -> int:
        """Return the size of a message as sent, in tokens."""
        return message_tokens(message, self.counter)

    def _sent(self, message: Message, grounding_text: str) -> int:
        return self.size(with_grounding(message, grounding_text))


def _too_much_stays(frame: Frame) -> BudgetError:
    needed = frame.budget - frame.open
    parts = f"system and pinned messages ({needed - frame.tools:,}) and tool schemas ({frame.tools:,}) need"
    return BudgetError(
        f"{parts if frame.tools else 'system and pinned messages need'} {needed:,} tokens, but the budget is "
        f"{frame.budget:,}: raise max_tokens, lower reserve_tokens, or shorten them",
        needed=needed,
        available=frame.budget,
    )


def with_summary(frame: Frame, summary: FramedSummary, size: Callable[[Message], int]) -> Frame:
    """Return the frame with a summary, or without one if it does not fit beside what must be sent.

    Args:
        frame: a frame, with or without a summary.
        summary: the summary to add. Its `tokens` are counted again for this frame.
        size: counts the tokens of a message as sent.
    """
    after = _system(frame.stays)
    # Appending to an existing system message saves the framing of a message.
    if after is not None:
        tokens = size(_appended(after.message, summary.text)) - after.tokens
    else:
        tokens = size(Message.system(summary.text))
    summed = replace(frame, summary=replace(summary, tokens=tokens))
    # A summary is optional, so it is dropped before anything that must be sent.
    return summed if summed.room >= 0 else replace(frame, summary=None)


def asked_with(frame: Frame, recalled: str) -> Message:
    """Return the question as sent: after the recalled text and its grounding."""
    assert frame.question is not None
    asked = with_grounding(frame.question.message, frame.grounding.text)
    return asked.replace(content=join(recalled, asked.content)) if recalled else asked


def insert_summary(frame: Frame, messages: list[Message]) -> list[Message]:
    """Return a prompt with the summary in its system message, or in a new one if there is none."""
    if frame.summary is None:
        return messages
    after = _system(frame.stays)
    if after is None:
        return [Message.system(frame.summary.text), *messages]
    index = next(n for n, message in enumerate(messages) if message.id == after.message.id)
    return [*messages[:index], _appended(messages[index], frame.summary.text), *messages[index + 1 :]]


def _appended(message: Message, text: str) -> Message:
    return message.replace(content=join(message.content, text))


def _system(stays: Sequence[Entry]) -> Entry | None:
    """Return the last of the system messages at the beginning of every prompt."""
    first = takewhile(lambda entry: entry.message.role == "system" and entry.turn_no < 0, chronological(stays))
    return next(reversed(list(first)), None)


def trimming_notes(frame: Frame, *, reaches_all: bool) -> list[Note]:
    """Return notes on what did not fit beside the question: its grounding, older steps of its turn, and older turns.

    Args:
        frame: the frame of the prompt.
        reaches_all: whether the prompt holds all turns.
    """
    fitted, stubbed, left_out = frame.grounding, frame.stubbed, frame.left_out
    grounding = frame.question.message.grounding if frame.question is not None else None
    passages = f"of {len(grounding.filled)} retrieved passages" if grounding is not None else ""
    texts = [
        fitted.shortened and f"{fitted.shortened} {passages} given in less detail: they do not fit whole",
        fitted.omitted and f"{fitted.omitted} {passages} left out: they do not fit",
        fitted.cut and f"the end of the best {passages} left out: it does not fit",
        stubbed and f"tool results of this turn replaced by stubs: {_counted(stubbed)} do not fit",
        left_out and f"messages of this turn left out: {_counted(left_out)} do not fit",
        not reaches_all
        and frame.tools >= LARGE_TOOLS * frame.budget
        and f"tool schemas take {frame.tools:,} of {frame.budget:,} tokens, so little of the conversation fits",
    ]
    return [Note(text, "left_out") for text in texts if text]


def _counted(entries: Sequence[Entry]) -> str:
    return f"{len(entries):,} ({tokens_of(entries):,} tokens)"
