"""The plan of a prompt, made before recall: the question, what must be sent with it, and the turns before it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared_core.messages import Message
from shared_core.prompt.assembler import Assembler
from shared_core.prompt.fixed_part import FixedPart
from shared_core.prompt.window import SKIP_LIMIT, Window, tokens_without_media, with_results
from shared_core.records import Position, SessionState
from shared_core.session.live import PAGE, LiveSession
from shared_core.session.paths import Path
from shared_core.session.turns import FRONT, Entry, Turn, group_turns, is_prompt, turns_before
from shared_core.tokens import tools_tokens

BEFORE_ALL = -1
"""The index on the path of what comes before its first message."""

READ_AHEAD = 1.125
"""The tokens of newest messages that are read, per token of the budget."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One call of `context`.

    Attributes:
        question: the question. None: the newest user message.
        max_tokens: the model's context limit.
        reserve: the tokens kept free for the reply.
        tools: the tool schemas that are sent with the prompt.
        shown: whether the prompt contains the question, and what answers it so far.
        system: the system prompt that is a setting; empty: there is none.
    """

    question: Message | None
    max_tokens: int
    reserve: int
    tools: Sequence[Any] = ()
    shown: bool = True
    system: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions that are made before recall.

    Attributes:
        ask: the call it was made for.
        state: the session's state at that time.
        path: the path at that time. Another thread may check out another one in the meantime.
        fixed: what must be sent, as `FixedPartBuilder.fixed_part` returned it.
        turns: past turns, newest first: more than fit, or all.
        window: the window that is left beside recalled messages. None: everything fits, and recall searches no other
            session.
        position: the position of the question. None: it is not stored.
        orphans: replies without their user message, which cannot be sent.
        fits: whether all past turns fit beside what must be sent.
    """

    ask: Ask
    state: SessionState
    path: Path
    fixed: FixedPart
    turns: tuple[Turn, ...]
    window: Window | None
    position: Position | None
    orphans: tuple[Entry, ...]
    fits: bool

    @property
    def question(self) -> str:
        """The text of the question; empty if there is none."""
        return self.fixed.question.message.content if self.fixed.question is not None else ""

    @property
    def end(self) -> int:
        """The question's index on the path."""
        return self.path.index_of(self.position) if self.position is not None else self.path.spans[-1].last + 1

    @property
    def sent(self) -> tuple[str, ...]:
        """The ids of the turns of the window and of the pinned ones, which recall leaves out.

        In a tool loop, some of the window give way to results. They are not recalled for that: the prompt only grows.
        """
        window = [turn.turn_id for turn in self.window.kept] if self.window is not None else []
        stays = [entry.message.turn_id for entry in self.fixed.stays]
        return tuple({turn_id for turn_id in (*window, *stays) if turn_id})


class Planner:
    """Makes the plans of one session.

    Args:
        live: the session.
        assembler: knows what fits.
        searches_others: whether recall searches other sessions, too, and so even if this one fits as a whole.
    """

    def __init__(self, live: LiveSession, assembler: Assembler, *, searches_others: bool) -> None:
        self._live = live
        self._assembler = assembler
        self._searches_others = searches_others
        self._turns: dict[str, Turn] = {}

    def plan(self, ask: Ask) -> Plan:
        """Return the plan of a prompt; errors are those of `FixedPartBuilder.fixed_part`."""
        state, builder = self._live.sync(PAGE), self._assembler.builder
        budget, tools = ask.max_tokens - ask.reserve, tools_tokens(ask.tools, builder.counter)
        # The beginning of the oldest turn that is read may be missing. Reading ahead makes that turn seldom needed.
        needed = int(READ_AHEAD * budget) if self._assembler.fill != "skip" else SKIP_LIMIT * budget
        while True:
            entries, whole = self._live.tail(needed + 1)
            turns = group_turns(entries, self._turns)
            self._turns = {turn.turn_id: turn for turn in turns}
            # Until the newest user message is read, neither the question nor the messages sent with it are known.
            if whole or any(turn.asks for turn in turns):
                current, stored = self._current(ask, turns)
                stays = self._stays(ask, current)
                pinned = {entry.message.turn_id for entry in stays}
                past = [turn for turn in reversed(turns) if turn is not stored and turn.turn_id not in pinned]
                older, unsent = turns_before(past, current, builder.size)
                fixed = builder.fixed_part(budget=budget, tools=tools, stays=stays, current=current, shown=ask.shown)
                # Turns that cannot be sent take no room, so the budget may need more of the past than expected.
                if whole or tokens_without_media(older) > fixed.beside_pinned - fixed.question_tokens:
                    return self._planned(ask, state, fixed, older, stored, unsent if whole else ())
            needed = 2 * sum(entry.tokens for entry in entries) + 1

    def _planned(
        self, ask: Ask, state: SessionState, fixed: FixedPart, older: Sequence[Turn], stored: Turn | None,
        unsent: Sequence[Turn],
    ) -> Plan:  # fmt: skip
        """Return the plan, given the stored turn that is asked, if it is stored, and the turns that cannot be sent."""
        live, assembler = self._live, self._assembler
        dressed = assembler.dressed(fixed, older)
        window, fits = None, assembler.window(fixed, dressed).reaches_all
        if self._searches_others or not fits:
            window = assembler.window(fixed, dressed, recall=assembler.room_for_recall(fixed, older))
        if fits and not live.replaced:  # the system prompt has room where it was said, if that was in mid-talk
            said = {entry.message.id: entry for entry in live.system_prompt() if entry.turn_no >= 0}
            fixed = replace(fixed, stays=tuple(said.get(entry.message.id, entry) for entry in fixed.stays))
        position = live.path.at(stored.entries[0].order) if stored is not None else None
        orphans = tuple(entry for turn in unsent for entry in turn.entries)
        return Plan(ask, state, live.path, fixed, tuple(older), window, position, orphans, fits)

    def _stays(self, ask: Ask, current: Turn | None) -> list[Entry]:
        """Return the messages of every prompt: the system prompt, where a setting replaces a stored one, and pins."""
        stays = self._live.stays_beside(current.turn_id if current is not None else None)
        if not ask.system:
            return stays
        message = Message.system(ask.system)
        pinned = [entry for entry in stays if not is_prompt(entry.message)]
        return [Entry(message, self._assembler.builder.size(message), FRONT, BEFORE_ALL), *pinned]

    def _current(self, ask: Ask, turns: Sequence[Turn]) -> tuple[Turn | None, Turn | None]:
        """Return the turn that is being answered, and the stored turn it is (None: the question is not stored)."""
        newest = next((turn for turn in reversed(turns) if turn.asks), None)
        question = ask.question
        if question is None:
            return (self._pending(newest), newest) if newest else (None, None)
        if newest is not None and not newest.answered and newest.entries[0].message.content == question.content:
            current = self._pending(newest)
            if question.grounding is not None:
                first = current.entries[0]
                grounded = replace(first, message=first.message.replace(grounding=question.grounding))
                current = replace(current, entries=(grounded, *current.entries[1:]))
            return current, newest
        turn_no = (turns[-1].turn_no if turns else -1) + 1
        entry = Entry(question, self._assembler.builder.size(question), turn_no, self._live.path.head.depth + 1)
        return Turn("", turn_no, (entry,)), None

    def _pending(self, turn: Turn) -> Turn:
        """Return the turn that is being answered, with its results whole: the model has asked for them."""
        return with_results(turn.whole(self._assembler.builder.size, pending=True), self._assembler.builder.size)
