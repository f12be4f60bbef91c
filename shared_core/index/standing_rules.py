"""What the rules consist of that find standing facts in a text, and the kinds of task that facts bear on."""

from typing import Literal, NamedTuple

StandingKind = Literal["allergy", "diet", "name", "role", "constraint", "preference", "instruction"]

KINDS: tuple[StandingKind, ...] = ("allergy", "diet", "name", "role", "constraint", "preference", "instruction")
"""In the order of their codes, which are stored in snapshots: append only."""

Task = Literal[
    "food", "travel", "health", "writing", "code", "schedule", "money", "gifts", "media", "learning", "work",
    "shopping", "home", "reply",
]  # fmt: skip

TASKS: tuple[Task, ...] = (
    "food", "travel", "health", "writing", "code", "schedule", "money", "gifts", "media", "learning", "work",
    "shopping", "home", "reply",
)  # fmt: skip
"""In the order of their bits. `"reply"` is what every request wants: an answer."""

SubjectOf = Literal["head", "phrase", "kind"]


class Rule(NamedTuple):
    """A way to say a standing fact.

    Attributes:
        kind: what kind of fact it is.
        pattern: a regular expression for the beginning of a clause, in lower case; `{me}` and other names of the
            language's `words` stand for what they hold. Its group `what`, if any, is what the fact is about.
        tasks: the kinds of task it bears on, besides those that its words name.
        subject: which facts replace each other: those with the same last noun, with the same phrase, or all.
        about: what it is about, if the pattern alone tells: all such facts replace each other.
        case: whether capitals count.
        lasting: whether the pattern says that it holds from then on. If not, "answer in English" counts in a message of
            its own alone: at the end of a task it holds for that task.
    """

    kind: StandingKind
    pattern: str
    tasks: tuple[Task, ...] = ()
    subject: SubjectOf = "head"
    about: str = ""
    case: bool = False
    lasting: bool = True


class StandingRules(NamedTuple):
    """The rules of one language.

    Attributes:
        language: the code of the language.
        words: parts of patterns, by name.
        rules: the rules; of several that match a clause, the first counts.
        lead_ins: words that may come before a statement in its clause.
        clause: where a clause begins: after this pattern.
        ends: where a statement ends at the latest.
        supposes: makes a sentence one that does not state what it says.
        condition: begins the condition of an instruction: "when I ask about".
        subjects: what a fact is about if its phrase matches: facts about the same replace each other.
        light: words at the beginning of a phrase that do not tell what it is about.
        verbs: what instructions begin with, which does not tell what they are about.
        generic: words that do not tell what a condition is about.
        tasks: words that name a kind of task.
        hints: of these texts, in lower case and divided by bars, a text that a rule may match holds at least one.
        starts: the words with which the patterns begin.
        request: matches a question that wants something made, suggested or explained.
        past: matches a question about what was.
        asks_for: patterns for questions about the user, and the kinds of facts that answer them.
    """

    language: str
    words: dict[str, str]
    rules: tuple[Rule, ...]
    lead_ins: str
    clause: str
    ends: str
    supposes: str
    condition: str
    subjects: dict[str, str]
    light: str
    verbs: str
    generic: str
    tasks: dict[Task, str]
    hints: str
    starts: str
    request: str
    past: str
    asks_for: tuple[tuple[str, tuple[StandingKind, ...]], ...] = ()
