"""Merges: bring what another branch has to the one stood on; the other branch stays as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from shared_core.arguments import one_of
from shared_core.base import Summarizer
from shared_core.errors import StaleHeadError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.records import Draft, Merge, Move, Position, Stretch
from shared_core.session import Changes
from shared_core.tree.conflicts import LISTED, Conflict, conflicts, digest, report
from shared_core.tree.copies import Stashing, if_unmoved
from shared_core.tree.paths import Head, Path, Span

__all__ = ["How", "MergeResult", "Merging"]

How = Literal["auto", "fast-forward", "full", "squash", "three-way"]

SQUASH_PROMPT = "What was found out on the branch {name!r}?"
THREE_WAY_PROMPT = "What do the branches {ours!r} and {name!r} say now, and where do they differ?"


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What became of a merge.

    Attributes:
        how: what was done; `"nothing"`: there was nothing to merge.
        source: what was merged, as it was called.
        base: the newest message that both sides had before; None: none.
        messages: what the merge itself added, as stored: of a squash or a three-way merge a question and its answer.
        ours: ids of what only the branch stood on had; of a three-way merge only.
        theirs: ids of what only the source had; of a three-way merge only.
        conflicts: what the sides contradict; of a three-way merge only.
    """

    how: Literal["nothing", "fast-forward", "full", "squash", "three-way"]
    source: str
    base: str | None
    messages: tuple[Message, ...] = ()
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

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
    """Two places to be merged; `new` is what only the second has."""

    session: int
    epoch: int
    head: Head
    branch: str
    ours: Path
    theirs: Path
    place: Position
    base: str | None
    new: tuple[Span, ...]


class Merging(Stashing):
    """The verb that merges."""

    def merge(
        self, source: str, how: How = "auto", *, prompt: str | None = None, summarizer: Summarizer | None = None
    ) -> MergeResult:
        """Bring what another branch has to this one, at once or not at all. The source stays.

        Merging again what has been merged changes nothing, and the result says so.

        Args:
            source: a branch, message or other place.
            how: `"fast-forward"`: this branch, which must have nothing of its own, ends where the source does.
                `"full"`: all messages that only the source has come before the merge, on every prompt and in recall.
                `"squash"`: only a question and its answer, which sums the source up. `"three-way"`: full, followed by a
                question and an answer that says what each side added and what they contradict, which nobody decides.
                `"auto"`: fast-forward if possible, else full.
            prompt: the question of a squash or three-way merge; None: a plain one.
            summarizer: writes the answer; the last message it is given is the question. None: it lists what was said.

        Raises:
            UnknownReferenceError: there is no such place.
            ValueError: it cannot be a fast-forward; or a prompt or summarizer is given where none is used; or the
                summarizer returned nothing. What the summarizer raises is passed on. Nothing is changed.
        """
        one_of("how", how, get_args(How))
        if how not in ("squash", "three-way") and (prompt is not None or summarizer is not None):
            raise ValueError(f"how={how!r} asks nothing: prompt and summarizer are for 'squash' and 'three-way'")
        while True:
            with self._lock:
                sides = self._sides(source)
                new = self._to_merge(sides, how)
                if not self._newest_of(new, 1):
                    return MergeResult("nothing", source, sides.base)
                if how in ("auto", "fast-forward", "full"):
                    try:
                        return self._bring(source, how, sides)
                    except StaleHeadError:
                        continue
            try:
                if how == "squash":
                    return self._squash(source, sides, new, prompt, summarizer)
                return self._three_way(source, sides, prompt, summarizer)
            except StaleHeadError:
                continue  # the answer may tell of what was forgotten meanwhile, or another has been given

    def sources(self, id: str) -> list[str]:
        """Return the ids of what a message was made from: one for a copy, what a merge's answer sums up; else none.

        Raises:
            UnknownReferenceError: there is no such message.
        """
        with self._lock:
            session = self._existing()
            records = self._store.get(session, [id])
            if not records:
                raise UnknownReferenceError(f"no message {id!r} in this session")
            if records[0].picked_from is not None:
                return [records[0].picked_from]
            here = records[0].position
            covers = self._store.covers(session, [here.segment])
            spans = [Span(one.segment, one.upto, one.start) for position, one in covers if position == here]
            return [record.message.id or "" for record in self._read(session, spans)]

    def _sides(self, source: str) -> _Sides:
        session = self._existing()
        place = self._placed(source)
        ours, theirs = self._live.path, self._live.path_to(place)
        base = self._base(ours, theirs)
        branch = self._live.head.branch or "here"
        head, new = self._live.head, tuple(theirs.without(ours))
        return _Sides(session, self._live.epoch, head, branch, ours, theirs, place, base, new)

    def _to_merge(self, sides: _Sides, how: How) -> tuple[Span, ...]:
        """Return what of the source we have not; for a squash, less what summaries on our path stand for."""
        if how != "squash":
            return sides.new
        known = self._store.covers(sides.session, {span.segment for span in sides.new})
        summed_up = [stretch for place, stretch in known if sides.ours.covers(place)]
        left = list(sides.new)
        for stretch in summed_up:
            left = [part for span in left for part in _cut(span, stretch)]
        return tuple(left)

    # The ways to merge

    def _bring(self, source: str, how: How, sides: _Sides) -> MergeResult:
        """Merge without a word."""
        behind = not sides.ours.without(sides.theirs)
        if how == "fast-forward" and not behind:
            raise ValueError(f"{sides.branch!r} has messages that {source!r} has not: merge 'full', or 'squash' it")
        branch = self._live.head.branch
        note = f"merge {source}"
        if how == "full" or not behind:
            merge = if_unmoved(sides.epoch, sides.ours.head, lambda name: [Merge(name, sides.place, note)])
            self._writer.write([], changes=merge)
            self._stand(self._live.head)
            return MergeResult("full", source, sides.base)
        if branch is not None:
            self._store.change(sides.session, [Move(branch, sides.place, note, sides.ours.head)])
        self._stand(Head(branch, None if branch is not None else sides.place))
        return MergeResult("fast-forward", source, sides.base)

    def _squash(
        self, source: str, sides: _Sides, new: tuple[Span, ...], prompt: str | None, summarizer: Summarizer | None
    ) -> MergeResult:
        question = SQUASH_PROMPT.format(name=source) if prompt is None else prompt
        if summarizer is None:
            text = digest([record.message for record in self._newest_of(new, LISTED + 1)])
        else:
            text = _summed_up(summarizer, self._said(sides.session, new), question)
        answer = f"From the branch {source!r}:\n{text}"
        with self._lock:
            drafts = self._exchange(question, answer, new, own=prompt is None)
            messages = self._write(sides, "squash", new, drafts)
        return MergeResult("squash", source, sides.base, messages)

    def _three_way(self, source: str, sides: _Sides, prompt: str | None, summarizer: Summarizer | None) -> MergeResult:
        question = THREE_WAY_PROMPT.format(ours=sides.branch, name=source) if prompt is None else prompt
        only_ours = tuple(sides.ours.without(sides.theirs))
        ours, theirs = (self._said(sides.session, spans) for spans in (only_ours, sides.new))
        found = tuple(conflicts(ours, theirs))
        answer = report(ours, theirs, found, (sides.branch, source))
        if summarizer is not None:
            parts = [
                *ours,
                Message.system(f"All above was said on the branch {sides.branch!r}, all below on {source!r}."),
                *theirs,
                Message.system(answer),
            ]
            answer = f"{_summed_up(summarizer, parts, question)}\n\n{answer}"
        note = f"merge {source}"
        with self._lock:
            drafts = self._exchange(question, answer, (*only_ours, *sides.new), own=prompt is None)
            messages = self._write(sides, "three-way", sides.new, drafts, lambda name: [Merge(name, sides.place, note)])
        our_ids, their_ids = (tuple(message.id or "" for message in side) for side in (ours, theirs))
        return MergeResult("three-way", source, sides.base, messages, our_ids, their_ids, found)

    def _said(self, session: int, spans: Sequence[Span]) -> list[Message]:
        records = self._read(session, spans)
        return [record.message for record in records if record.message.role != "system"]

    def _exchange(self, question: str, answer: str, covered: Sequence[Span], *, own: bool) -> list[Draft]:
        """Return a question and its answer, which sums up what it covers; `own`: the question says what it is, too."""
        covers = tuple(span.stretch for span in covered)
        asked = replace(self._writer.draft(Message.user(question)), covers=covers if own else ())
        return [asked, replace(self._writer.draft(Message.assistant(answer)), covers=covers)]

    def _write(
        self,
        sides: _Sides,
        how: How,
        new: tuple[Span, ...],
        drafts: Sequence[Draft],
        changes: Changes = lambda name: (),
    ) -> tuple[Message, ...]:
        """Store what a merge says, unless what is to be merged is not `new` any more."""
        if self._live.head != sides.head:
            raise ValueError(
                f"this memory left {sides.branch!r} while the summarizer wrote, and nothing was changed: "
                "check it out and merge again"
            )
        while True:
            head = self._unchanged(sides, how, new)
            try:
                appended = self._writer.write(drafts, changes=if_unmoved(sides.epoch, head, changes))
            except StaleHeadError:
                continue
            self._stand(self._live.head)
            return tuple(record.message for record in appended.records)

    def _unchanged(self, sides: _Sides, how: How, new: tuple[Span, ...]) -> Position:
        """Return where the branch ends now; StaleHeadError if it has not only been added to, and the merge is another.

        What others said there meanwhile makes no difference to what the source is to be summed up in.
        """
        self._live.sync()
        now = replace(sides, ours=self._live.path, new=tuple(sides.theirs.without(self._live.path)))
        fewer = sides.ours.without(now.ours)
        if fewer or self._live.epoch != sides.epoch or self._to_merge(now, how) != new:
            raise StaleHeadError(f"what {sides.branch!r} is to get has changed meanwhile; try again")
        return now.ours.head


def _summed_up(summarizer: Summarizer, messages: Sequence[Message], question: str) -> str:
    text = summarizer(None, [*messages, Message.user(question)])
    if not text.strip():
        raise ValueError("the summarizer returned nothing; the branches are as they were")
    return text


def _cut(span: Span, stretch: Stretch) -> list[Span]:
    """Return what is left of a span without a stretch."""
    if span.segment != stretch.segment or stretch.upto < span.start or span.upto < stretch.start:
        return [span]
    parts = [span._replace(upto=stretch.start - 1), span._replace(start=stretch.upto + 1)]
    return [part for part in parts if part.start <= part.upto]
