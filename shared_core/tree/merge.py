"""Merges: bring another branch's messages to the one checked out, and say where the two contradict each other."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from shared_core.errors import StaleHeadError, UnknownReferenceError
from shared_core.messages import Message, short_repr
from shared_core.plugins.base import Summarizer
from shared_core.plugins.calls import Steps
from shared_core.records import Draft, Merge, Move, Position, Stretch
from shared_core.session.checkout import Changes, Checkout, if_unmoved, with_move
from shared_core.session.paths import Head, Path, Span
from shared_core.summaries.requests import answer_steps

CLIP = 280
"""Characters of a message in a digest."""

LISTED = 20
"""Messages of a branch in a digest: its newest."""

SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")

COMPARED = range(3, 31)
"""How many words a sentence may have to be compared with others."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A contradiction between two branches, which nobody has decided yet.

    Attributes:
        about: the subject, in words.
        ours: ids of the messages about it on the branch checked out.
        theirs: ids of the messages about it on the other branch.
        ours_say: the text of ours.
        theirs_say: the text of theirs.
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
    """Return the newest messages of users and assistants, one per line."""
    said = [message for message in messages if message.role in ("user", "assistant") and message.content.strip()]
    lines = [f"{message.role}: {_clipped(message.content)}" for message in said[-LISTED:]]
    return "\n".join(["...", *lines] if len(said) > LISTED else lines)


def report(ours: Sequence[Message], theirs: Sequence[Message], found: Sequence[Conflict], names: Sequence[str]) -> str:
    """Return what each of two branches added, and where they contradict each other; `names` are theirs."""
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
    """Return the contradictions between the messages that two branches added since they parted.

    These are two answers to one question, and two sentences that differ in one word, such as "the budget is 10k" and
    "the budget is 20k". The last word of a branch on a thing counts. Contradictions in other words are not seen.
    """
    found: dict[Conflict, None] = {}
    for read in (_answers, _statements):
        own, other = read(ours), read(theirs)
        for key, said in own.items():
            answer = other.get(key)
            if answer is not None and _words(said.text) != _words(answer.text):
                about = said.about or _shared_words(said.text, answer.text)
                texts = _clipped(said.text), _clipped(answer.text)
                found[Conflict(about, said.ids, answer.ids, *texts)] = None
    return list(found)


class _Said(NamedTuple):
    """What one branch says of a subject, and the ids of the messages that say it; "": the text itself tells of what."""

    about: str
    ids: tuple[str, ...]
    text: str


def _answers(messages: Iterable[Message]) -> dict[object, _Said]:
    """Return the answers by the words of their question, or by its id if it was asked before the branches parted."""
    asked: dict[str, Message] = {}
    answered: dict[str, list[Message]] = {}
    for message in messages:
        if message.role == "user":
            asked[message.turn_id or ""] = message
        elif message.role == "assistant" and not message.tool_calls and message.content.strip():
            answered.setdefault(message.turn_id or "", []).append(message)
    found: dict[object, _Said] = {}
    for turn_id, replies in answered.items():
        question = asked.get(turn_id)
        key, about = (turn_id, turn_id) if question is None else (tuple(_words(question.content)), question.content)
        ids = tuple(message.id or "" for message in ([] if question is None else [question]) + replies)
        found[key] = _Said(f"the answer to {_clipped(about)!r}", ids, " ".join(reply.content for reply in replies))
    return found


def _statements(messages: Iterable[Message]) -> dict[object, _Said]:
    """Return the sentences that people and assistants say, by a hash of all words but one, for each word left out."""
    found: dict[object, _Said] = {}
    for message in messages:
        sentences = SENTENCE.split(message.content) if message.role in ("user", "assistant") else ()
        for sentence in sentences:
            words, said = _words(sentence), _Said("", (message.id or "",), sentence)
            if len(words) in COMPARED and not sentence.rstrip().endswith("?"):
                found |= {hash((*words[:index], "", *words[index + 1 :])): said for index in range(len(words))}
    return found


def _shared_words(one: str, other: str) -> str:
    """Return what two sentences share that differ in one word."""
    pairs = zip(_words(one), _words(other), strict=False)
    return _clipped(" ".join(word if word == own else "…" for word, own in pairs))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CLIP else line[: CLIP - 3] + "..."


How = Literal["auto", "fast-forward", "full", "squash", "three-way"]

SQUASH_PROMPT = "What was found out on the branch {name!r}?"
THREE_WAY_PROMPT = "What do the branches {ours!r} and {name!r} say now, and where do they differ?"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The outcome of a merge.

    Attributes:
        how: the kind of merge; `"nothing"`: there was nothing to merge.
        source: the reference that was merged, as given.
        base: id of the newest message that both sides had before; None: they had none.
        messages: what the merge itself added, as stored: a question and its answer for a squash or three-way merge.
        ours: ids of the messages that only the branch checked out had; three-way merges only.
        theirs: ids of the messages that only the source had; three-way merges only.
        conflicts: where the sides contradict each other; three-way merges only.
    """

    how: Literal["nothing", "fast-forward", "full", "squash", "three-way"]
    source: str
    base: str | None
    messages: tuple[Message, ...] = ()
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {
            "how": self.how,
            "source": self.source,
            "base": self.base,
            "added": [message.id for message in self.messages],
            "ours": list(self.ours),
            "theirs": list(self.theirs),
            "conflicts": [conflict.to_dict() for conflict in self.conflicts],
        }


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two positions to be merged; `new` are the spans that only the second has."""

    session: int
    epoch: int
    head: Head
    branch: str
    ours: Path
    theirs: Path
    position: Position
    base: str | None
    new: tuple[Span, ...]


def merge(
    checkout: Checkout, source: str, how: How, summarizer: Summarizer | None, *, prompt: str | None = None
) -> Steps[MergeResult]:
    """Bring the messages of another branch to this one, all at once or not at all; see `TreeVerbs.merge`."""
    while True:
        with checkout.lock:
            sides = _sides(checkout, source)
            new = _to_merge(checkout, sides, how)
            if not checkout.newest_of(new, 1):
                return MergeResult("nothing", source, sides.base)
            if how in ("auto", "fast-forward", "full"):
                try:
                    return _join(checkout, source, how, sides)
                except StaleHeadError:
                    continue
        try:
            if how == "squash":
                return (yield from _squash(checkout, source, sides, new, prompt, summarizer))
            return (yield from _three_way(checkout, source, sides, prompt, summarizer))
        except StaleHeadError:
            continue  # the answer may repeat what was forgotten meanwhile, or there is more to merge by now


def sources(checkout: Checkout, id_: str) -> list[str]:
    """Return the ids of what a message was made from: a copy's original, or what a merge's answer sums up."""
    with checkout.lock:
        session = checkout.existing()
        records = checkout.store.get(session, [id_])
        if not records:
            raise UnknownReferenceError(f"no message {id_!r} in this session")
        if records[0].picked_from is not None:
            return [records[0].picked_from]
        here = records[0].position
        covers = checkout.store.covers(session, [here.segment])
        spans = [Span(one.segment, one.upto, one.start) for position, one in covers if position == here]
        return [record.message.id or "" for record in checkout.read(spans)]


def _sides(checkout: Checkout, source: str) -> _Sides:
    session = checkout.existing()
    position = checkout.position_of(source)
    live = checkout.live
    ours, theirs = live.path, live.path_to(position)
    base = checkout.newest_shared(ours, theirs)
    new = tuple(theirs.without(ours))
    return _Sides(session, live.epoch, live.head, live.head.branch or "here", ours, theirs, position, base, new)


def _to_merge(checkout: Checkout, sides: _Sides, how: How) -> tuple[Span, ...]:
    """Return what only the source has; for a squash, without what summaries on our path stand for already."""
    if how != "squash":
        return sides.new
    known = checkout.store.covers(sides.session, {span.segment for span in sides.new})
    summed_up = [stretch for position, stretch in known if sides.ours.covers(position)]
    left = list(sides.new)
    for stretch in summed_up:
        left = [part for span in left for part in _cut(span, stretch)]
    return tuple(left)


def _cut(span: Span, stretch: Stretch) -> list[Span]:
    """Return what is left of a span without a stretch."""
    if span.segment != stretch.segment or stretch.upto < span.start or span.upto < stretch.start:
        return [span]
    parts = [span._replace(upto=stretch.start - 1), span._replace(start=stretch.upto + 1)]
    return [part for part in parts if part.start <= part.upto]


# The ways to merge


def _join(checkout: Checkout, source: str, how: How, sides: _Sides) -> MergeResult:
    """Fast-forward or merge in full: no message is added."""
    behind = not sides.ours.without(sides.theirs)
    if how == "fast-forward" and not behind:
        raise ValueError(f"{sides.branch!r} has messages that {source!r} has not: merge 'full', or 'squash' it")
    branch = checkout.live.head.branch
    note = f"merge {source}"
    if how == "full" or not behind:
        changes = if_unmoved(sides.epoch, sides.ours.head, lambda name: [Merge(name, sides.position, note)])
        if branch is None:
            checkout.writer.write([], changes=changes)  # on a branch that it opens
        else:
            checkout.store.change(sides.session, changes(branch))
        checkout.stand(checkout.live.head)
        return MergeResult("full", source, sides.base)
    if branch is not None:
        checkout.store.change(sides.session, [Move(branch, sides.position, note, sides.ours.head)])
    checkout.stand(Head(branch, None if branch is not None else sides.position))
    return MergeResult("fast-forward", source, sides.base)


def _squash(
    checkout: Checkout, source: str, sides: _Sides, new: tuple[Span, ...], prompt: str | None,
    summarizer: Summarizer | None,
) -> Steps[MergeResult]:  # fmt: skip
    question = SQUASH_PROMPT.format(name=source) if prompt is None else prompt
    if summarizer is None:
        text = digest([record.message for record in checkout.newest_of(new, LISTED + 1)])
    else:
        text = yield from answer_steps(summarizer, _said(checkout, new), question, checkout.live.sizer.counter)
    answer = f"From the branch {source!r}:\n{text}"
    with checkout.lock:
        drafts = _exchange(checkout, question, answer, new, own=prompt is None)
        messages = _write(checkout, sides, "squash", new, drafts, lambda head: with_move(f"squash {source}", head))
    return MergeResult("squash", source, sides.base, messages)


def _three_way(
    checkout: Checkout, source: str, sides: _Sides, prompt: str | None, summarizer: Summarizer | None
) -> Steps[MergeResult]:
    question = THREE_WAY_PROMPT.format(ours=sides.branch, name=source) if prompt is None else prompt
    only_ours = tuple(sides.ours.without(sides.theirs))
    ours, theirs = (_said(checkout, spans) for spans in (only_ours, sides.new))
    found = tuple(conflicts(ours, theirs))
    answer = report(ours, theirs, found, (sides.branch, source))
    if summarizer is not None:
        parts = [
            *ours,
            Message.system(f"All above was said on the branch {sides.branch!r}, all below on {source!r}."),
            *theirs,
            Message.system(answer),
        ]
        written = yield from answer_steps(summarizer, parts, question, checkout.live.sizer.counter)
        answer = f"{written}\n\n{answer}"
    changes: Changes = lambda name: [Merge(name, sides.position, f"merge {source}")]  # noqa: E731
    with checkout.lock:
        drafts = _exchange(checkout, question, answer, (*only_ours, *sides.new), own=prompt is None)
        messages = _write(checkout, sides, "three-way", sides.new, drafts, lambda head: changes)
    our_ids, their_ids = (tuple(message.id or "" for message in side) for side in (ours, theirs))
    return MergeResult("three-way", source, sides.base, messages, our_ids, their_ids, found)


def _said(checkout: Checkout, spans: Sequence[Span]) -> list[Message]:
    return [record.message for record in checkout.read(spans) if record.message.role != "system"]


def _exchange(checkout: Checkout, question: str, answer: str, covered: Sequence[Span], *, own: bool) -> list[Draft]:
    """Return a question and its answer, which sums up the spans; `own`: so does the question, which is ours."""
    covers = tuple(span.stretch for span in covered)
    asked = replace(checkout.writer.draft(Message.user(question)), covers=covers if own else ())
    return [asked, replace(checkout.writer.draft(Message.assistant(answer)), covers=covers)]


def _write(
    checkout: Checkout, sides: _Sides, how: How, new: tuple[Span, ...], drafts: Sequence[Draft],
    changes: Callable[[Position], Changes],
) -> tuple[Message, ...]:  # fmt: skip
    """Store what a merge says, with the changes for where the branch ends, unless `new` is not what is to be merged."""
    if checkout.live.head != sides.head:
        raise ValueError(
            f"this memory left {sides.branch!r} while the summarizer wrote, and nothing was changed: "
            "check it out and merge again"
        )
    while True:
        head = _unchanged_head(checkout, sides, how, new)
        try:
            appended = checkout.writer.write(drafts, changes=if_unmoved(sides.epoch, head, changes(head)))
        except StaleHeadError:
            continue
        checkout.stand(checkout.live.head)
        return tuple(record.message for record in appended.records)


def _unchanged_head(checkout: Checkout, sides: _Sides, how: How, new: tuple[Span, ...]) -> Position:
    """Return where the branch ends now; StaleHeadError if more than additions happened to it.

    Messages that others added there meanwhile do not change how the source is to be summed up.
    """
    live = checkout.live
    live.sync()
    now = replace(sides, ours=live.path, new=tuple(sides.theirs.without(live.path)))
    fewer = sides.ours.without(now.ours)
    if fewer or live.epoch != sides.epoch or _to_merge(checkout, now, how) != new:
        raise StaleHeadError(f"what {sides.branch!r} is to get has changed meanwhile; try again")
    return now.ours.head
