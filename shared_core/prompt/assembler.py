"""Fill the room that the fixed part of a prompt leaves, and write the prompt and its report; pure."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from itertools import chain
from math import inf
from typing import Literal, get_args

from shared_core.arguments import in_range, instance, one_of, whole_number
from shared_core.events import Note
from shared_core.messages import Message, with_grounding
from shared_core.prompt.context import Context
from shared_core.prompt.fixed_part import (
    FixedPart,
    FixedPartBuilder,
    asked_with,
    insert_summary,
    trimming_notes,
    with_summary,
)
from shared_core.prompt.hits import Hit, Reason
from shared_core.prompt.report import report_on
from shared_core.prompt.template import RecallEstimate, RecallTemplate
from shared_core.prompt.window import ELSEWHERE, Fill, Selection, Window, abridged, fit_window
from shared_core.session.turns import Entry, Turn, chronological

Placement = Literal["grounding", "messages", "system"]

NEWEST_LEAVES = 0.25
"""The newest turn takes precedence over recalled messages if it leaves this share of the room."""

SLACK = 0.25
"""The share of the room that a steady window may leave unused. Half of it makes twice as many steps."""

SHARE = 0.8
"""The share of what pinned text leaves that recalled messages may take by default, beside what no turn can use.

The latter counts where turns are long and room is short. On BEAM in 1,000 tokens, 182 stayed empty; 131 of these bring
2.3 points of the evidence and 2.1 of the facts of the answers, with static vectors.
"""

SET_ASIDE = 12_000
"""The most tokens that the window leaves to a question and what it recalls where those take less.

Without any, each question that recalls more than the one before moves the window's start. In prompts of 32,000 tokens
and more, recalled text took at most 12,300 for 95 of 100 messages of the chats of `benchmarks/prefix.py`.
"""

LEAST_STEADY = 4_000
"""The window's tokens of which it leaves none. Providers cache nothing, or little, of prompts as short as these."""

NOTHING_FITS = "nothing recalled: what may help does not fit"
"""Why nothing is recalled where something is worth its tokens, and they are too many."""


@dataclass(frozen=True)
class Assembler:
    """Fills the room that the fixed part of a prompt leaves. Its fields are constructor arguments of the memory.

    `recall_tokens` is a number of tokens or, as a float up to 1.0, a share of what pinned text leaves. None: `SHARE`,
    and, without tools, what no turn can use, because the next older one is too large.

    Raises:
        ValueError: a value is out of range.
    """

    builder: FixedPartBuilder
    fill: Fill = "steady"
    placement: Placement = "grounding"
    template: RecallTemplate = field(default_factory=RecallTemplate)
    recall_tokens: float | int | None = None
    top_k: int | None = None
    window_turns: int | None = None

    def __post_init__(self) -> None:
        instance("recall_template", self.template, RecallTemplate)
        one_of("fill", self.fill, get_args(Fill))
        one_of("placement", self.placement, get_args(Placement))
        if isinstance(self.recall_tokens, float):
            in_range("recall_tokens", self.recall_tokens, 0, 1, advice=", as a share; a number of tokens is an int")
        elif self.recall_tokens is not None:
            whole_number("recall_tokens", self.recall_tokens, least=0)
        if self.top_k is not None:
            whole_number("top_k", self.top_k, least=0)
        if self.window_turns is not None:
            whole_number("window_turns", self.window_turns, least=0)

    @property
    def slack(self) -> float:
        """The share of the room that may be left unused so that the beginning of the prompt stays the same."""
        return SLACK if self.fill == "steady" else 0.0

    @property
    def off(self) -> str:
        """Which setting turns recall off, as a sentence for the report; empty: none does."""
        zeros = [name for name in ("top_k", "recall_tokens") if getattr(self, name) == 0]
        return f"nothing recalled: {zeros[0]}=0 turns recall off" if zeros else ""

    def room_for_recall(self, fixed: FixedPart, turns: Sequence[Turn]) -> int:
        """Return how many tokens recalled messages may take from the window; `turns` are newest first.

        Unless `recall_tokens` is a number, the newest turn takes what it needs first, unless that is nearly everything:
        questions are most often about the newest turn.
        """
        if self.top_k == 0:
            return 0
        if isinstance(self.recall_tokens, int):
            return min(self.recall_tokens, fixed.room)
        left = fixed.room - (turns[0].tokens if turns else 0)
        return min(self._share(fixed), left if left >= NEWEST_LEAVES * fixed.room else fixed.room)

    def _share(self, fixed: FixedPart) -> int:
        """Return how many tokens of recalled messages `recall_tokens` allows."""
        most = SHARE if self.recall_tokens is None else self.recall_tokens
        return int(most * fixed.beside_pinned) if isinstance(most, float) else most

    def _takes_rest(self, fixed: FixedPart) -> bool:
        """Return whether recalled messages may take what no turn can use, too."""
        return self.recall_tokens is None and not fixed.tools

    def window(self, fixed: FixedPart, dressed: Sequence[Turn], *, recall: int = 0) -> Window:
        """Return the window that fits beside `recall` tokens of recalled messages, of turns that `dressed` returned."""
        return fit_window(
            dressed, fixed.room - recall, slack=self.slack, skip=self.fill == "skip",
            steady=fixed.beside_pinned - self._set_aside(fixed), most=self.window_turns,
        )  # fmt: skip

    def _set_aside(self, fixed: FixedPart) -> int:
        """Return how many tokens the window leaves to a question and what it recalls, however little that is.

        It does not depend on the question, and so the window's start does not, as long as question and recalled text
        take no more than this. Where little may be recalled, it is twice that, as the question takes some of it.
        """
        recall = 0 if self.top_k == 0 else 2 * self._share(fixed)
        return max(0, min(SET_ASIDE, int(self.slack * fixed.beside_pinned), recall, fixed.beside_pinned - LEAST_STEADY))

    def dressed(self, fixed: FixedPart, turns: Sequence[Turn]) -> list[Turn]:
        """Return turns as they are sent, newest first: `_grounded`, and with less of what is not text if needed."""
        return abridged(
            self._grounded(fixed, turns), self.builder.size, room=fixed.room,
            window=lambda: fixed.room - self.room_for_recall(fixed, turns),
        )  # fmt: skip

    def _grounded(self, fixed: FixedPart, turns: Sequence[Turn]) -> list[Turn]:
        """Return turns with their grounding as far back as `keep_grounding` reaches.

        Pinned user messages count as well, but are sent without the text that was retrieved for them.
        """
        keep = self.builder.keep_grounding
        reach = {"newest": 1, "none": 0, "all": inf}[keep] if isinstance(keep, str) else keep
        left = reach - (fixed.question is not None)
        pinned = [entry.order for entry in fixed.stays if entry.message.role == "user"]
        dressed: list[Turn] = []
        for turn in turns:
            if left <= 0:  # for most prompts already before the first
                return [*dressed, *turns[len(dressed) :]]
            newer = sum(order > turn.entries[0].order for order in pinned)
            dressed.append(replace(turn, entries=tuple(map(self._dress, turn.entries))) if left > newer else turn)
            left -= turn.asks
        return dressed

    def _dress(self, entry: Entry) -> Entry:
        if entry.message.grounding is None or entry.message.role != "user":
            return entry
        message = self.builder.safe(entry.message).grounded
        return replace(entry, message=message, tokens=self.builder.size(message))

    def settle(
        self, asked: FixedPart, turns: Sequence[Turn], candidates: Sequence[Hit], selection: Selection | None = None
    ) -> tuple[FixedPart, Selection]:
        """Return the fixed part and the selection to send; for the arguments see `select` and `fixed_part`.

        `selection` is what `select` returned for them, if it was asked already.

        The selection depends only on the conversation up to the question, and a tool loop appends to the prompt until
        the budget is used up. This keeps the prompt's beginning stable for a provider's cache. Then older turns give
        way: the selection is made again around everything so far, with a share `slack` of the room left free for what
        follows.
        """
        fixed, selection, known = asked, selection or self.select(asked, turns, candidates), 0
        room = _left(fixed, selection)
        for count, entry in enumerate(asked.answers, start=1):
            room -= entry.tokens
            if room < 0:
                fixed, known = self.builder.answered(asked, count, slack=self.slack), count
                fixed = replace(fixed, kept_free=int(self.slack * fixed.beside_pinned))
                if fixed.summary is not None:  # tool results take precedence over the summary
                    fixed = with_summary(fixed, fixed.summary, self.builder.size)
                selection = self.select(fixed, turns, candidates)
                room = _left(fixed, selection)
        return replace(fixed, groups=(*fixed.groups, *asked.answers[known:])), selection

    def select(self, fixed: FixedPart, turns: Sequence[Turn], candidates: Sequence[Hit]) -> Selection:
        """Choose the recalled messages and the window. Room that recall does not use goes to the window.

        What is recalled depends on the window, which holds some of the candidates, and the window on the tokens of what
        is recalled. So `_choose` takes the window that is left if recall uses its whole room; `_fill` picks candidates
        by estimated sizes and counts what they take as one text; and as the window then grows, candidates that it has
        come to hold are given up, until nothing changes.

        By default, recall then takes what no turn can use, since the next older one is too large. The window stays the
        same, and with it the beginning of the prompt. With tools, that room stays free for their results, so that their
        loop goes on appending to the prompt.

        Args:
            fixed: the part of the prompt that must be sent.
            turns: newest first, as many as could fit.
            candidates: best first.
        """
        dressed = self.dressed(fixed, turns)
        everything = self.window(fixed, dressed)
        beyond = ELSEWHERE in [one.entries[0].turn_no for one in candidates if one.reason is None]
        # If all past turns fit, only messages of other sessions can add something.
        if not candidates or (everything.reaches_all and not beyond):
            return Selection(everything, tuple(candidates))
        room = self.room_for_recall(fixed, turns)
        chosen = self._choose(fixed, dressed, candidates, room)
        free = fixed.room - chosen.window.fitting
        if free > room and self._takes_rest(fixed) and _without_room(chosen.candidates):
            more = self._choose(fixed, dressed, _as_if_there_were_room(chosen.candidates), free)
            if more.recall_tokens >= chosen.recall_tokens:  # else the counter is odd, and the window might move
                chosen = more
        return replace(chosen, candidates=_explained(chosen.window, chosen.candidates))

    def _choose(self, fixed: FixedPart, dressed: Sequence[Turn], candidates: Sequence[Hit], room: int) -> Selection:
        """Return what is recalled in this room, and the window beside it."""
        base = self.window(fixed, dressed, recall=room)
        chosen = self._fill(fixed, dressed, self._outside(candidates, base), room)
        while True:
            window = self.window(fixed, dressed, recall=chosen.recall_tokens)
            outside = self._outside(chosen.candidates, window)
            if outside == chosen.candidates:
                return replace(chosen, window=window)
            # A message that entered the window need not be recalled, which frees room for the window.
            chosen = self._counted(fixed, outside)

    def _fill(self, fixed: FixedPart, dressed: Sequence[Turn], candidates: Sequence[Hit], room: int) -> Selection:
        """Fill the room by estimated sizes. If the exact size exceeds it, fill again with less."""
        limit = room
        while True:
            fates, about = self._pick(candidates, limit)
            # Exact counting is expensive, so leave out candidates that the window will hold anyway.
            chosen = self._counted(fixed, self._outside(fates, self.window(fixed, dressed, recall=about)))
            if chosen.recall_tokens > about:
                chosen = self._counted(fixed, fates)
            if chosen.recall_tokens <= room:
                return chosen
            # Assume that the next estimate is off by the same factor.
            limit = min(min(limit, about) * room // chosen.recall_tokens, limit - 1)

    def _outside(self, candidates: Sequence[Hit], window: Window) -> tuple[Hit, ...]:
        """Return the candidates, marking exactly those that are in this window, and not those in an earlier one."""
        kept = _turn_ids(window.kept)
        result: list[Hit] = []
        for candidate in candidates:
            reason, first = candidate.reason, candidate.entries[0]
            inside = first.message.turn_id in kept and first.turn_no != ELSEWHERE
            if inside and (reason is None or reason is Reason.RECALLED):
                candidate = candidate.because(Reason.IN_WINDOW)
            elif reason is Reason.IN_WINDOW and not inside:
                candidate = candidate.because(Reason.OLDER)
            result.append(candidate)
        return tuple(result)

    def _pick(self, candidates: Sequence[Hit], room: int) -> tuple[tuple[Hit, ...], int]:
        """Fill the room greedily, best first, skipping what does not fit. Also return the estimated size.

        What is recalled already stays.
        """
        fates: list[Hit] = []
        used, count = self._wording, 0
        days: set[date] = set()
        for candidate in _recalled(candidates):
            cost, new = self._cost(candidate, days)
            used, count = used + cost, count + 1
            days |= new
        for candidate in candidates:
            if candidate.reason is not None:
                fates.append(candidate)
                continue
            if count == self.top_k:
                fates.append(candidate.because(Reason.TOP_K))
                continue
            cost, new = self._cost(candidate, days)
            if used + cost > room:
                fates.append(candidate.because(Reason.NO_ROOM))
                continue
            fates.append(candidate.because(Reason.RECALLED))
            used, count = used + cost, count + 1
            days |= new
        return tuple(fates), used

    @cached_property
    def _wording(self) -> int:
        """The estimated tokens around the recalled messages."""
        return 0 if self.placement == "messages" else self._estimate.wording

    def _cost(self, candidate: Hit, days: Set[date]) -> tuple[int, Set[date]]:
        """Return the estimated tokens that a candidate adds, and its days beside those of what is recalled already."""
        if self.placement == "messages":
            return candidate.tokens, frozenset()
        return self._estimate.lines(candidate.entries, days)

    def _counted(self, fixed: FixedPart, fates: tuple[Hit, ...]) -> Selection:
        """Render the recalled messages and count exactly what they add to the prompt."""
        recalled = _recalled(fates)
        if not recalled:
            return Selection(candidates=fates)
        if self.placement == "messages":
            return Selection(candidates=fates, recall_tokens=sum(candidate.tokens for candidate in recalled))
        entries = self._in_order(recalled)
        text = self.template.render([entry.message for entry in entries])
        if self._beside_question(fixed):
            tokens = self.builder.size(asked_with(fixed, text)) - fixed.question_tokens - fixed.grounding_tokens
        else:
            tokens = self.builder.size(Message.system(text))
        return Selection(candidates=fates, recall_tokens=tokens, text=text)

    @cached_property
    def _estimate(self) -> RecallEstimate:
        return RecallEstimate(self.template, self.builder.counter)

    def _beside_question(self, fixed: FixedPart) -> bool:
        return self.placement == "grounding" and fixed.shown and fixed.question is not None

    def _in_order(self, recalled: Sequence[Hit]) -> list[Entry]:
        """Return the recalled messages in the template's order."""
        if self.template.order == "score":
            return list(chain.from_iterable(chronological(one.entries) for one in reversed(recalled)))
        return chronological(chain.from_iterable([candidate.entries for candidate in recalled]))

    def compose(
        self, fixed: FixedPart, selection: Selection, *, reserve: int, orphans: Sequence[Entry] = (),
        notes: Sequence[Note] = (), pending: int = 0, embedder: str | None = None, stopped: str = "",
    ) -> Context:  # fmt: skip
        """Write the prompt and the report.

        Args:
            fixed: the part of the prompt that must be sent.
            selection: the recalled messages and the window.
            reserve: tokens kept free for the reply.
            orphans: replies without their user message, for the report.
            notes: what could not be done.
            pending: how many messages have no vector yet.
            embedder: the key of the embedder whose vectors were used.
            stopped: why recall ends where it does, unless that is the room or `top_k`.
        """
        reasons = {candidate.reason for candidate in selection.candidates}
        if not reasons.isdisjoint((Reason.NO_ROOM, Reason.TOP_K)):
            stopped = "" if selection.recalled else NOTHING_FITS
        notes = [*notes, *trimming_notes(fixed, reaches_all=selection.window.reaches_all)]
        report = report_on(
            fixed, selection, orphans, reserve=reserve, pending=pending, degraded=tuple(notes), embedder=embedder,
            stopped=stopped,
        )  # fmt: skip
        messages, stable = self._messages(fixed, selection)
        return Context(tuple(messages), report, stable)

    def _messages(self, fixed: FixedPart, selection: Selection) -> tuple[list[Message], int]:
        """Return the prompt, and how many messages stand before all that depends on the question."""
        text = selection.text
        entries = [*fixed.stays, *chain.from_iterable([turn.entries for turn in selection.window.kept])]
        beside = self._beside_question(fixed)
        if self.placement == "messages":
            entries += chain.from_iterable(candidate.entries for candidate in selection.recalled)
        if fixed.question is not None and fixed.shown:
            asked = replace(fixed.question, message=asked_with(fixed, text if beside else ""))
            entries += [asked, *fixed.groups]
        ordered = chronological(entries)
        # Grounding that is sent is in the text by now. What is still in the field is not to be sent.
        messages = insert_summary(fixed, [with_grounding(entry.message, "") for entry in ordered])
        if beside:
            stable = next(index for index, entry in enumerate(ordered) if entry is asked)
            return messages, stable + len(messages) - len(ordered)
        stable = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
        if text:
            messages.insert(stable, Message.system(text))
        return messages, stable


def _left(fixed: FixedPart, selection: Selection) -> int:
    """Return the tokens that a selection leaves free."""
    return fixed.left - selection.window.tokens - selection.recall_tokens


def _without_room(fates: Iterable[Hit]) -> bool:
    """Return whether more candidates would be recalled if there were room."""
    return any(candidate.reason is Reason.NO_ROOM for candidate in fates)


def _as_if_there_were_room(fates: Iterable[Hit]) -> list[Hit]:
    """Return candidates without the decision on those that did not fit."""
    return [one.because(None) if one.reason is Reason.NO_ROOM else one for one in fates]


def _explained(window: Window, fates: Iterable[Hit]) -> tuple[Hit, ...]:
    """Return the candidates; of those that were not chosen, the ones that the window holds are marked so."""
    kept, open_ = _turn_ids(window.kept), (Reason.NO_ROOM, Reason.TOP_K, Reason.OLDER)
    explained = [
        candidate.because(Reason.IN_WINDOW)
        if candidate.reason in open_ and candidate.message.turn_id in kept and candidate.entries[0].turn_no != ELSEWHERE
        else candidate
        for candidate in fates
    ]
    return tuple(explained)


def _turn_ids(turns: Iterable[Turn]) -> set[str]:
    return {turn.turn_id for turn in turns}


def _recalled(candidates: Sequence[Hit]) -> list[Hit]:
    return [candidate for candidate in candidates if candidate.reason is Reason.RECALLED]
