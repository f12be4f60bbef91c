"""What a branch holds and what a prompt has to be made of, worked out from the stored messages alone."""

Messages = list[Message]

# What a branch holds, worked out from its stored messages alone


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


def is_complete(unit: Messages) -> bool:
    head, *results = unit
    return head.role != "tool" and {c.id for c in head.tool_calls} <= {r.tool_call_id for r in results}


def sendable(turn: Sequence[Message], *, current: bool = False) -> list[Messages]:
    """The units that may be sent: complete ones, and in the current turn a call at its end that still waits."""
    found = units(turn)
    return [u for u in found if is_complete(u) or (current and u is found[-1] and u[0].role != "tool")]


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
    def number(self) -> dict[str, int]:
        """Turn -> its number."""
        return {turn: number for number, turn in enumerate(self.turns)}

    @cached_property
    def by_id(self) -> dict[str | None, Message]:
        return {message.id: message for message in self.messages}

    @cached_property
    def key(self) -> dict[str | None, tuple[int, int, int]]:
        """Message -> where it stands in a prompt: number of the turn, place of its tool group, own place."""
        place = {message.id: place for place, message in enumerate(self.messages)}
        keys, opened = {}, -1
        for message in self.messages:
            opened += message.role == "user"
            keys[message.id] = (opened, place[message.id], place[message.id])
        for turn, members in self.turns.items():
            for unit in units(members):
                keys |= {m.id: (self.number[turn], place[unit[0].id], place[m.id]) for m in unit}
        return keys

    def tokens(self, messages: Sequence[Message]) -> int:
        """Their size as sent without grounding."""
        return sum(self.size(bare(message)) for message in messages)


def bare(message: Message) -> Message:
    return message.replace(grounding=None)


def joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def rendered(grounding: Grounding | None, keep: Sequence[int] | None = None) -> str:
    """Header, the items kept in their order, the note on the others, footer."""
    if grounding is None:
        return ""
    kept = range(len(grounding.items)) if keep is None else sorted(keep)
    texts = [grounding.items[index].text for index in kept]
    omitted = len(grounding.items) - len(texts)
    note = grounding.omitted_note.replace("{count}", str(omitted)) if omitted else ""
    return joined(grounding.header, *texts, note, grounding.footer) if any(texts) else ""


def grounded(message: Message) -> Message:
    return with_text(message, rendered(message.grounding))


def with_text(message: Message, grounding: str) -> Message:
    return bare(message).replace(content=joined(grounding, message.content))


# One call of `context`, and what it has to deal with


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
        if not asked.content.strip() and asked.grounding is None:
            return self.newest
        question, *_, last = [*self.told.turns[self.newest], *self.told.turns[self.newest][-1:]]
        answered = last.role == "assistant" and not last.tool_calls
        return None if answered or question.content != asked.content else self.newest

    @cached_property
    def question(self) -> Message | None:
        """The question, with its grounding."""
        asked = Message.user(self.asked) if isinstance(self.asked, str) else self.asked
        if self.stored is None:
            return None if asked is None or not (asked.content.strip() or asked.grounding) else asked
        stored = self.told.turns[self.stored][0]
        given = asked.grounding if asked and asked.content == stored.content else None
        return stored if given is None else stored.replace(grounding=given)

    @cached_property
    def answers(self) -> list[Messages]:
        """What answers it so far, in units that may be sent."""
        turn = self.told.turns[self.stored] if self.stored else []
        return sendable(turn, current=True)[1:]

    @cached_property
    def tools(self) -> int:
        return tools_tokens(self.scenario.ask.tools, as_counter(self.scenario.constructor["token_counter"]))

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

    @cached_property
    def sent(self) -> list[Messages]:
        """The groups of the turn that fit beside the question: the newest, pinned ones, then newest first."""
        room = self.available - self.told.tokens(self.must)
        stop, found = False, []
        for unit in reversed(self.answers):
            if unit[0] not in self.must:
                room -= self.told.tokens(unit)
                stop = stop or room < 0
                if stop:
                    continue
            found.insert(0, unit)
        return found

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
        return {t: self.dressed(t, [m for u in sendable(turns[t]) for m in u]) for t in reversed(turns)}

    def dressed(self, turn: str, members: Messages) -> Messages:
        """Messages of a turn as sent: with grounding as far as `keep_grounding` says."""
        keep = self.scenario.arguments["keep_grounding"]
        reach = {"newest": 1, "none": 0, "all": 10**9}.get(keep, keep)
        rank = len(self.told.turns) - 1 - self.told.number[turn] + (self.stored is None and self.question is not None)
        dress = grounded if rank < reach else bare
        return [dress(members[0]), *map(bare, members[1:])]

    def context(self, memory: InfiniteMemory | None = None) -> Context:
        ask = self.scenario.ask
        return (memory or self.memory).context(
            self.asked, tools=ask.tools, reserve_tokens=ask.reserve, include_question=ask.shown
        )

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


def told_by(scenario: Scenario, memory: InfiniteMemory) -> Told:
    counter, overhead = as_counter(scenario.constructor["token_counter"]), scenario.arguments["message_overhead"]
    return Told(list(memory.messages()), lambda message: message_tokens(message, counter, overhead))


def prepare(scenario: Scenario, store: SQLiteStore) -> tuple[Case, Talk]:
    """Say everything to a memory, on the store, and give it its budget."""
    talk = Talk(new_memory(scenario, store), scenario.reuse_call_ids)
    talk.play(scenario.steps)
    case = Case(scenario, talk.memory, told_by(scenario, talk.memory))
    case.set_budget()
    return case, talk


def case_of(scenario: Scenario) -> Case:
    return prepare(scenario, SQLiteStore(":memory:"))[0]


def ids(messages: Sequence[Message]) -> list[str | None]:
    return [message.id for message in messages]


def recalled_in(context: Context) -> list[str]:
    """What was brought back, best first."""
    return [line.id for line in context.report.included if line.kind is Kind.RECALLED and line.id is not None]


# What the laws compare with


def units_in_order(messages: Sequence[Message]) -> list[Messages]:
    """Units as a provider reads them: results belong to the call right before them."""
    found: list[Messages] = []
    for message in messages:
        if message.role == "tool" and found and message.tool_call_id in {c.id for c in found[-1][0].tool_calls}:
            found[-1].append(message)
        else:
            found.append([message])
    return found


def fenced(scenario: Scenario, recalled: Messages, told: Told) -> str:
    """The recalled text, from the order of the report: best first."""
    if not recalled:
        return ""
    template = scenario.template
    unit_of = {m.id: m.turn_id if scenario.arguments["recall_unit"] == "turn" else m.id for m in recalled}
    ranks = list(dict.fromkeys(reversed(unit_of.values())))
    ordered = sorted(recalled, key=lambda message: told.key[message.id])
    if template.order == "score":
        ordered = sorted(ordered, key=lambda message: ranks.index(unit_of[message.id]))
    lines, day = [template.header], ""
    for message in ordered:
        assert message.created_at is not None
        date = message.created_at.date().isoformat()
        lines += [date] if date != day else []
        text = message.content
        for tag in ("old", "earlier_messages"):
            if f"{tag}>" in template.header + template.footer:
                text = text.replace(f"</{tag}>", f"&lt;/{tag}>")
        lines.append(f"- {message.name or message.role}: {text}")
        day = date
    return "\n".join([*lines, template.footer])


def trimmed(question: Message, told: Told, most: int, least: int) -> Iterator[Message]:
    """The question with as much of its grounding as fits into some room between two."""
    longest = ""
    for cut, version in fitting(question):
        size = told.size(version)
        if size <= most and not longest:
            yield version
        elif longest and len(longest.removeprefix(cut).split()) <= 1 and cut:
            yield version  # a cut may give up the word it would break
        if size <= least:
            if not cut:
                return
            longest = longest or cut
    if not longest:
        yield bare(question)  # with on_overflow="keep" not even that need fit


def fitting(question: Message) -> Iterator[tuple[str, Message]]:
    """What is left of the best item if it is cut, and the question with its grounding, from whole to none."""
    grounding = question.grounding or Grounding()
    filled = [index for index, item in enumerate(grounding.items) if item.text]
    scores = [-1e9 if item.score is None else item.score for item in grounding.items]
    strongest = sorted(filled, key=lambda index: (-scores[index], index))
    yield "", grounded(question)
    for count in range(len(strongest) - 1, 0, -1):
        yield "", with_text(question, rendered(grounding, strongest[:count]))
    for best in strongest[:1]:
        text = grounding.items[best].text
        for length in range(len(text) - 1, 0, -1):
            cut = text[:length].rstrip()
            items = [
                item.model_copy(update={"text": cut}) if index == best else item
                for index, item in enumerate(grounding.items)
            ]
            if cut:
                yield cut, with_text(question, rendered(grounding.model_copy(update={"items": tuple(items)}), [best]))
    yield "", bare(question)


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
