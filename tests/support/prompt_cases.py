"""A memory about to be asked, and what its prompt is made from, computed from the stored messages alone."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, takewhile

from hypothesis import assume

from shared_core.errors import BudgetError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, with_grounding
from shared_core.prompt.context import Context
from shared_core.prompt.grounding import fit_grounding, render_grounding
from shared_core.prompt.hits import Kind
from shared_core.stores import SQLiteStore
from shared_core.tokens import message_tokens, tools_tokens
from tests.support.scenarios import Scenario, Talk, new_memory

Messages = list[Message]


def ids(messages: Sequence[Message]) -> list[str | None]:
    return [message.id for message in messages]


def flat(units: Sequence[Messages]) -> Messages:
    return [message for unit in units for message in unit]


def bare(message: Message) -> Message:
    return message.replace(grounding=None)


# Tool groups


def units(turn: Sequence[Message]) -> list[Messages]:
    """A tool call with its results, wherever in the turn they came; every other message alone."""
    found: list[Messages] = []
    of_call: dict[str | None, Messages] = {}
    for message in turn:
        if message.role == "tool" and message.tool_call_id in of_call:
            of_call[message.tool_call_id].append(message)
        else:
            found.append([message])
            of_call |= {call.id: found[-1] for call in message.tool_calls}
    return found


def units_in_order(messages: Sequence[Message]) -> list[Messages]:
    """Units as a provider reads them: results belong to the call right before them."""
    found: list[Messages] = []
    for message in messages:
        if message.role == "tool" and found and message.tool_call_id in {c.id for c in found[-1][0].tool_calls}:
            found[-1].append(message)
        else:
            found.append([message])
    return found


def is_complete(unit: Messages) -> bool:
    head, *results = unit
    return head.role != "tool" and {c.id for c in head.tool_calls} <= {r.tool_call_id for r in results}


def sendable(turn: Sequence[Message], *, current: bool = False) -> list[Messages]:
    """The units that may be sent: without calls that have no result, but for one that waits at the current turn's end.

    What says nothing besides such calls is left out, and so is a result without its call.
    """
    found = units(turn)
    return [
        sent
        for unit in found
        if unit[0].role != "tool" and (sent := unit if current and unit is found[-1] else _answered(unit))
    ]


def _answered(unit: Messages) -> Messages:
    """A call with its results, without calls that have none; empty if it says nothing then."""
    head, *results = unit
    calls = tuple(c for c in head.tool_calls if c.id in {r.tool_call_id for r in results})
    if calls == head.tool_calls:
        return unit
    return [head.replace(tool_calls=calls), *results] if calls or head.content.strip() else []


def slack_rule(sizes: dict[str, int], number: dict[str, int], room: int, slack: float) -> list[str]:
    """Return the turns kept; all newest first."""
    sums = dict(zip(sizes, accumulate(sizes.values()), strict=True))
    turns = list(sizes)
    fitting = list(takewhile(lambda turn: sums[turn] <= room, turns))
    if fitting == turns or not fitting:
        return fitting
    enough = [turn for turn in fitting if sums[turn] >= (1 - slack) * sums[fitting[-1]]]
    start = max(enough, key=lambda turn: (number[turn] == 0, number[turn] & -number[turn], turns.index(turn)))
    return turns[: turns.index(start) + 1]


@dataclass(frozen=True)
class Told:
    """A branch: its messages, oldest first, and how large they are for one memory."""

    messages: Messages
    size: Callable[[Message], int]

    @cached_property
    def turns(self) -> dict[str, Messages]:
        """Turn -> messages, in the order in which the turns were opened; only turns that a user opened."""
        found: dict[str, Messages] = {m.id or "": [] for m in self.messages if m.role == "user"}
        for message in self.messages:
            if message.turn_id in found and message.role != "system":
                found[message.turn_id].append(message)
        return found

    @cached_property
    def greeting(self) -> Messages:
        """What is said before the first user message, without tool calls, newest first."""
        before = takewhile(lambda message: message.role != "user", self.messages)
        return [m for m in before if m.role == "assistant" and not m.tool_calls][::-1]

    @cached_property
    def number(self) -> dict[str, int]:
        """Turn -> its number."""
        return {m.id or "": -1 for m in self.greeting} | {turn: number for number, turn in enumerate(self.turns)}

    @cached_property
    def by_id(self) -> dict[str | None, Message]:
        return {message.id: message for message in self.messages}

    def keys(self, *, front: bool) -> dict[str | None, tuple[int, int, int]]:
        """Message -> where it stands in a prompt: number of the turn, place of its tool group, own place.

        The system prompt stands in front, or where it was said.
        """
        place = {message.id: place for place, message in enumerate(self.messages)}
        keys, opened = {}, -1
        for message in self.messages:
            opened += message.role == "user"
            first = front and message.role == "system" and not message.pinned
            keys[message.id] = (-2 if first else opened, place[message.id], place[message.id])
        for turn, members in self.turns.items():
            for unit in units(members):
                keys |= {m.id: (self.number[turn], place[unit[0].id], place[m.id]) for m in unit}
        return keys

    def tokens(self, messages: Sequence[Message]) -> int:
        """Their size as sent without grounding."""
        return sum(self.size(bare(message)) for message in messages)

    def lighter(self, message: Message) -> Message:
        """The message with a note in place of its media, if that is smaller."""
        if not message.media_tokens or message.role not in ("user", "tool"):
            return message
        content = "\n".join(part for part in (message.content, "[media left out]") if part)
        light = message.replace(content=content, media_tokens=0, payload=None)
        return light if self.size(light) < self.size(message) else message


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
    def asked(self) -> Message | None:
        """What `context` is given."""
        question = self.scenario.ask.question
        if question == "repeated":
            return Message.user(self.told.turns[self.newest][0].content) if self.newest else None
        return None if isinstance(question, str) else question

    @cached_property
    def stored(self) -> str | None:
        """The turn that is being answered, if its question is stored."""
        if self.asked is None or self.newest is None or _is_blank(self.asked):
            return self.newest
        question, *_, last = [*self.told.turns[self.newest], *self.told.turns[self.newest][-1:]]
        answered = last.role == "assistant" and not last.tool_calls
        return None if answered or question.content != self.asked.content else self.newest

    @cached_property
    def question(self) -> Message | None:
        """The question, with its grounding."""
        if self.stored is None:
            return None if self.asked is None or _is_blank(self.asked) else self.asked
        stored = self.told.turns[self.stored][0]
        given = self.asked.grounding if self.asked and self.asked.content == stored.content else None
        return stored if given is None else stored.replace(grounding=given)

    @cached_property
    def answers(self) -> list[Messages]:
        """What answers it so far, in units that may be sent."""
        return sendable(self.told.turns[self.stored] if self.stored else [], current=True)[1:]

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
        past = {turn: members for turn, members in self.told.turns.items() if turn != self.stored}
        return {t: flat(sendable(members)) for t, members in past.items() if any(m.pinned for m in members)}

    @cached_property
    def stays(self) -> Messages:
        """System messages and pinned turns."""
        return [*(m for m in self.told.messages if m.role == "system"), *flat(list(self.pinned.values()))]

    @cached_property
    def must(self) -> Messages:
        """The question, the newest group of its turn, and pinned ones."""
        question = [] if self.question is None else [bare(self.question)]
        return [*question, *flat([u for u in self.answers if u is self.answers[-1] or any(m.pinned for m in u)])]

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
        past = {turn: self.dressed(turn, flat(sendable(turns[turn]))) for turn in reversed(turns)}
        return past | {m.id or "": [m] for m in self.told.greeting if self.question is not None and not m.pinned}

    def light(self, members: Sequence[Message]) -> Messages:
        """Messages without media that are larger than the note on them."""
        return [self.told.lighter(message) for message in members]

    def dressed(self, turn: str, members: Messages) -> Messages:
        """Messages of a turn as sent: with grounding as far as `keep_grounding` says."""
        keep = self.scenario.arguments["keep_grounding"]
        reach = {"newest": 1, "none": 0, "all": 10**9}.get(keep, keep)
        rank = len(self.told.turns) - 1 - self.told.number[turn] + (self.stored is None and self.question is not None)
        first, *rest = members
        dressed = bare(first)
        if first.grounding is not None and rank < reach:
            dressed = with_grounding(first, render_grounding(first.grounding))
        return [dressed, *map(bare, rest)]

    def fitted(self, question: Message, room: int) -> Message:
        """The question with as much of its grounding as fits."""

        def written(text: str) -> Message:
            return with_grounding(question, text)

        if question.grounding is None:
            return written("")
        return written(fit_grounding(question.grounding, lambda text: self.told.size(written(text)) <= room).text)

    def block(self, recalled: Sequence[str]) -> str:
        """The text that brings messages back, from their ids, best first."""
        messages, by_turn = [self.told.by_id[id_] for id_ in recalled], self.scenario.arguments["recall_unit"] == "turn"
        ranks = list(dict.fromkeys(m.turn_id if by_turn else m.id for m in reversed(messages)))
        keys = self.told.keys(front=True)
        ordered = sorted(messages, key=lambda m: (keys[m.id][0], keys[m.id][2]))
        if self.scenario.template.order == "score":
            ordered = sorted(ordered, key=lambda m: ranks.index(m.turn_id if by_turn else m.id))
        return self.scenario.template.render(ordered)

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
        question = [] if self.question is None else [self.fitted(self.question, 10**9)]
        turn = tokens([*flat(self.answers), *question])
        size = {
            "stays": 0,
            "must": must,
            "turn": must + budget.percent * (turn - must) // 100,
            "past": turn + budget.percent * tokens(flat(list(self.past.values()))) // 100,
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
    """The summary, after the number of messages it is made of; empty without one."""
    return next((line.text for line in context.report.included if line.kind is Kind.SUMMARY), "")


def sent_in(case: Case, context: Context) -> list[Messages]:
    """The groups of the current turn as they are sent, or charged for, by the report."""
    stubs = {line.id: line.part for line in context.report.included if line.kind is Kind.QUESTION}
    there = [unit for unit in case.answers if unit[0].id in stubs]
    return [case.short(unit) if any(stubs[m.id] for m in unit) else [*map(bare, unit)] for unit in there]
