"""A memory about to be asked, and what its prompt is made from, computed from the stored messages."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from hypothesis import assume

from shared_core.errors import BudgetError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.context import Context
from shared_core.prompt.reasons import Kind
from shared_core.stores import SQLiteStore
from shared_core.tokens import message_tokens, tools_tokens
from tests.support.prompt_oracle import (
    Messages,
    Told,
    bare,
    fenced,
    grounded,
    ids,
    lighter,
    media_kept,
    sendable,
)
from tests.support.scenarios import Scenario, Talk, new_memory

__all__ = ["Case", "as_stored", "case_of", "prepare", "recalled_in", "sent_in", "summary_in", "told_by"]


@dataclass(frozen=True)
class Case:
    """A memory that is about to be asked."""

    scenario: Scenario
    memory: InfiniteMemory
    told: Told

    @cached_property
    def newest(self) -> str | None:
        """The newest turn."""
        return next(reversed(self.told.turns), None)

    @cached_property
    def asked(self) -> Message | str | None:
        """What `context` is given."""
        question = self.scenario.ask.question
        if question == "repeated":
            return self.told.turns[self.newest][0].content if self.newest else None
        return None if isinstance(question, str) else question

    @cached_property
    def stored(self) -> str | None:
        """The turn that is being answered, if its question is stored."""
        if self.asked is None or self.newest is None:
            return self.newest
        asked = Message.user(self.asked) if isinstance(self.asked, str) else self.asked
        if _is_blank(asked):
            return self.newest
        question, *_, last = [*self.told.turns[self.newest], *self.told.turns[self.newest][-1:]]
        answered = last.role == "assistant" and not last.tool_calls
        return None if answered or question.content != asked.content else self.newest

    @cached_property
    def question(self) -> Message | None:
        """The question, with its grounding."""
        asked = Message.user(self.asked) if isinstance(self.asked, str) else self.asked
        if self.stored is None:
            return None if asked is None or _is_blank(asked) else asked
        stored = self.told.turns[self.stored][0]
        given = asked.grounding if asked and asked.content == stored.content else None
        return stored if given is None else stored.replace(grounding=given)

    @cached_property
    def answers(self) -> list[Messages]:
        """What answers it so far, in units that may be sent."""
        turn = self.told.turns[self.stored] if self.stored else []
        return sendable(turn, current=True)[1:]

    def sends_recalled(self, turn: str | None, recalled: Sequence[str]) -> bool:
        """Whether a turn is recalled as real messages."""
        return self.scenario.arguments["placement"] == "messages" and turn in recalled

    def sendable(self, turn: str | None, recalled: Sequence[str]) -> list[Messages]:
        """What may be sent of a past turn; of one that is recalled, nothing that was said after the question."""
        members = self.told.turns.get(turn or "", [])
        if self.sends_recalled(turn, recalled) and self.stored:
            before = ids(self.told.messages[: self.told.messages.index(self.told.turns[self.stored][0])])
            members = [m for m in members if m.id in before]
        return sendable(members)

    @cached_property
    def tools(self) -> int:
        return tools_tokens(self.scenario.ask.tools, self.scenario.token_counter)

    @cached_property
    def pinned(self) -> dict[str, Messages]:
        """Turn -> what is sent of it, for turns that hold a pinned message and are not the current one."""
        return {
            turn: [m for unit in sendable(members) for m in unit]
            for turn, members in self.told.turns.items()
            if turn != self.stored and any(m.pinned for m in members)
        }

    @cached_property
    def stays(self) -> Messages:
        """System messages and pinned turns."""
        system = [m for m in self.told.messages if m.role == "system"]
        return [*system, *(m for members in self.pinned.values() for m in members)]

    @cached_property
    def must(self) -> Messages:
        """The question, the newest group of its turn, and pinned ones."""
        question = [] if self.question is None else [bare(self.question)]
        groups = [u for u in self.answers if u is self.answers[-1] or any(m.pinned for m in u)]
        return [*question, *(m for unit in groups for m in unit)]

    def short(self, unit: Messages) -> Messages:
        """A tool group with a stub in place of each result that is larger than its stub."""
        return [self._stub(bare(m)) if m.role == "tool" else bare(m) for m in unit]

    def _stub(self, result: Message) -> Message:
        name = "look_up" if result.tool_call_id != "no such call" else "a tool"
        stub = result.replace(content=f"[result of {name} left out, {self.told.size(result):,} tokens]")
        return stub if self.told.size(stub) < self.told.size(result) else result

    @cached_property
    def budget(self) -> int:
        return self.memory.max_tokens - self.scenario.ask.reserve

    @property
    def available(self) -> int:
        """Tokens for everything but what stays."""
        return self.budget - self.tools - self.told.tokens(self.stays)

    @cached_property
    def past(self) -> dict[str, Messages]:
        """Turn -> what the window may hold of it, newest first."""
        turns = {t: m for t, m in self.told.turns.items() if t != self.stored and t not in self.pinned}
        past = {t: self.dressed(t, [m for u in sendable(turns[t]) for m in u]) for t in reversed(turns)}
        return past | {m.id or "": [m] for m in self.told.greeting if self.question is not None and not m.pinned}

    def light(self, members: Messages) -> Messages:
        """Messages of a turn, without media that are larger than the note on them."""
        return [lighter(message, self.told) for message in members]

    def sent_past(self, context: Context) -> dict[str, Messages]:
        """`past` as it is sent where the question has no answer yet: the oldest media give way first."""
        chosen = (Kind.WINDOW, Kind.RECALLED)
        must = sum(line.tokens for line in context.report.included if line.kind not in chosen)
        rest = max(0, self.budget - must)
        full = [sum(map(self.told.size, members)) for members in self.past.values()]
        light = [sum(map(self.told.size, self.light(members))) for members in self.past.values()]
        kept = media_kept(full, light, rest, rest - self._room_for_recall(rest))
        past = enumerate(self.past.items())
        return {turn: members if number < kept else self.light(members) for number, (turn, members) in past}

    def _room_for_recall(self, rest: int) -> int:
        """What recalled messages may take of the rest: a share of all, but the newest turn takes what it needs first,
        unless that leaves less than a quarter.
        """
        share: float | None = self.scenario.arguments["recall_tokens"]
        if isinstance(share, int):
            return min(share, rest)
        share = 0.8 if share is None else share
        newest = [self.told.by_id[m.id] for m in next(iter(self.past.values()), [])]
        left = rest - self.told.tokens(newest)
        return min(int(share * self.available), left if left >= 0.25 * rest else rest)

    def dressed(self, turn: str, members: Messages) -> Messages:
        """Messages of a turn as sent: with grounding as far as `keep_grounding` says."""
        keep = self.scenario.arguments["keep_grounding"]
        reach = {"newest": 1, "none": 0, "all": 10**9}.get(keep, keep)
        rank = len(self.told.turns) - 1 - self.told.number[turn] + (self.stored is None and self.question is not None)
        dress = grounded if rank < reach else bare
        return [dress(members[0]), *map(bare, members[1:])]

    def block(self, recalled: Sequence[str]) -> str:
        """The text that brings messages back, from their ids, best first."""
        messages = [self.told.by_id[id_] for id_ in recalled]
        by_turn = self.scenario.arguments["recall_unit"] == "turn"
        return fenced(self.scenario.template, messages, self.told, by_turn=by_turn)

    def context(self, memory: InfiniteMemory | None = None) -> Context:
        ask = self.scenario.ask
        return (memory or self.memory).context(
            self.asked, tools=ask.tools, reserve_tokens=ask.reserve, include_question=ask.shown
        )

    def settled(self) -> "Case":
        """Ask until no more is waiting to be summed up: one question does not wait for all of it."""
        with suppress(BudgetError):
            while any("one question sums up" in note for note in self.context().report.degraded):
                pass
        return self

    def prompt(self) -> Context:
        """The prompt; examples that cannot be sent are other laws' business."""
        try:
            return self.context()
        except BudgetError:
            assume(False)
            raise

    def set_budget(self) -> None:
        """Choose the limit as the scenario says; the parts it is made of are counted without a limit."""
        budget, tokens = self.scenario.budget, self.told.tokens
        must = tokens(self.must)
        turn = [m for unit in self.answers for m in unit] + ([grounded(self.question)] if self.question else [])
        past = tokens([m for members in self.past.values() for m in members])
        size = {
            "stays": 0,
            "must": must,
            "turn": must + budget.percent * (tokens(turn) - must) // 100,
            "past": tokens(turn) + budget.percent * past // 100,
        }[budget.base]
        stays = self.tools + tokens(self.stays)
        self.memory.max_tokens = max(1, stays + size + budget.more + self.scenario.ask.reserve)


def _is_blank(asked: Message) -> bool:
    return not (asked.content.strip() or asked.grounding or asked.media_tokens)


def told_by(scenario: Scenario, memory: InfiniteMemory) -> Told:
    counter = scenario.token_counter
    return Told(list(memory.messages()), lambda message: message_tokens(message, counter))


def prepare(scenario: Scenario, store: SQLiteStore) -> tuple[Case, Talk]:
    """Say everything to a memory, on the store, and give it its budget."""
    talk = Talk(new_memory(scenario, store), scenario.reuse_call_ids)
    talk.play(scenario.steps)
    case = Case(scenario, talk.memory, told_by(scenario, talk.memory))
    case.set_budget()
    return case, talk


def case_of(scenario: Scenario) -> Case:
    return prepare(scenario, SQLiteStore(":memory:"))[0]


def recalled_in(context: Context) -> list[str]:
    """What was brought back, best first."""
    return [line.id for line in context.report.included if line.kind is Kind.RECALLED and line.id is not None]


def summary_in(context: Context) -> str:
    """The summary as it is written; empty without one."""
    for line in context.report.included:
        if line.kind is Kind.SUMMARY:
            said = counted_summary(line.text)[1]
            # The tags of the recalled text's own wording, whichever that is, are escaped.
            escaped = said.replace("</old>", "&lt;/old>"), said.replace("</earlier_messages>", "&lt;/earlier_messages>")
            both = escaped[0].replace("</earlier_messages>", "&lt;/earlier_messages>")
            forms = [f"<sum>\n{one}\n</sum>" for one in (said, *escaped, both)]
            sent = "\n".join(message.content for message in context.messages)
            return next((one for one in forms if one in sent), forms[0])
    return ""


def counted_summary(text: str) -> tuple[int, str]:
    """How many messages a report says that a summary is made of, and what it says."""
    count, _, said = text.partition(" message")
    return int(count), said.removeprefix("s").removeprefix(": ")


def as_stored(context: Context) -> list[Message]:
    """The prompt without its summary: that is taken out of where it is allowed to be."""
    messages, summary = list(context.messages), summary_in(context)
    places = [n for n, message in enumerate(messages) if summary and summary in message.content]
    assert len(places) == bool(summary)
    for place in places:
        message = messages[place]
        if message.role == "system" and message.content == summary and message.id is None:
            del messages[place]
        else:
            end = f"\n\n{summary}"
            assert message.role == "user" or message.content == summary or message.content.endswith(end)
            content = message.content.removesuffix(end).removeprefix(summary).removeprefix("\n\n")
            messages[place] = message.replace(content=content)
    return messages


def sent_in(case: Case, context: Context) -> list[Messages]:
    """The groups of the current turn as they are sent, or charged for, by the report."""
    stubs = {line.id: line.part for line in context.report.included if line.kind is Kind.QUESTION}
    there = [unit for unit in case.answers if unit[0].id in stubs]
    stubbed = [any(stubs[m.id] for m in unit) for unit in there]
    return [case.short(unit) if short else [*map(bare, unit)] for unit, short in zip(there, stubbed, strict=True)]
