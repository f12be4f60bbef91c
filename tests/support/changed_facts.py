"""Made-up conversations in which somebody changes what was said before, among filler and other speakers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

from shared_core import Message
from tests.support.changing_topics import Topic

__all__ = ["Change", "changes", "conversation", "filler"]

_FILLER = (
    "I ran {n} km in the park with {who} on {day}.", "The weather was {n} degrees and sunny on {day}.",
    "{who} sent me a photo of the lake, lovely.", "I spent {n} euros on groceries on {day}.",
    "Do you know a good recipe for lentil soup?", "I read {n} pages of the novel before going to sleep.",
    "{who} and I watched a film about whales.", "My shoes are wet, it rained all {day}.",
    "Chapter {n} of the history course is about canals.", "I fixed the lamp, it took {n} minutes.",
    "What do you think about board games for {n} people?", "{who} is {n} years old this week.",
    "I have a headache, probably too much sun on {day}.", "The museum had {n} paintings by {who}.",
    "Ticket {n} is closed, {who} checked it.", "We planted {n} tulips, {who} helped.",
)  # fmt: skip
_REPLIES = (
    "Noted.", "Thanks for telling me!", "Got it, I'll remember that.", "That sounds good.", "Okay, anything else?",
    "I see. Shall I put it on a list?",
)  # fmt: skip
_WHO = ("Tom", "Priya", "Aunt Rosa", "Lena", "Mr Novak")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

START = datetime(2025, 1, 6, 9, tzinfo=UTC)


@dataclass(frozen=True)
class Change:
    """A conversation in which something changes.

    Attributes:
        messages: everything said, oldest first.
        said: the ids of the statements of its value, oldest first.
        of_others: the ids of what another speaker says about his or her own.
        values: the values, oldest first.
        question: asks for the value of today.
        history: asks for the value before.
    """

    messages: tuple[Message, ...]
    said: tuple[str, ...]
    of_others: tuple[str, ...]
    values: tuple[str, ...]
    question: str
    history: str


def filler(random: Random) -> str:
    """Return a line that states nothing that lasts."""
    line = random.choice(_FILLER)
    return line.format(n=random.randint(2, 60), who=random.choice(_WHO), day=random.choice(_DAYS))


def conversation(topic: Topic, random: Random, *, length: int = 120, others: bool = True) -> Change:
    """Return a conversation about a topic.

    Args:
        topic: what it is about.
        random: the source of all choices.
        length: lines of the user's, each with a reply.
        others: whether Ben, who listens, says something about his own as well.
    """
    steps = random.choice((2, 2, 2, 3))
    first = random.randrange(len(topic.values))
    values = tuple(topic.values[(first + step) % len(topic.values)] for step in range(steps))
    texts = [random.choice(topic.before).format(v=values[0])]
    texts += [random.choice(topic.after).format(v=new, old=old) for old, new in pairwise(values)]
    texts = [text[0].upper() + text[1:] for text in texts]
    spots = sorted(random.sample(range(length), steps + others))
    theirs = random.choice(spots) if others else None
    messages: list[Message] = []
    said: list[str] = []
    of_others: list[str] = []
    left = list(texts)
    for line in range(length):
        at, id_ = START + timedelta(hours=7 * line), f"m{line}"
        if line == theirs:
            text = random.choice(topic.others)
            value = next(value for value in reversed(topic.values) if value != values[-1])
            messages.append(Message.user(text.format(v=value), id=id_, name="Ben", created_at=at))
            of_others.append(id_)
        elif line in spots:
            messages.append(Message.user(left.pop(0), id=id_, created_at=at))
            said.append(id_)
        else:
            messages.append(Message.user(filler(random), id=id_, created_at=at))
        reply = random.choice(_REPLIES)
        messages.append(Message.assistant(reply, id=f"r{line}", created_at=at + timedelta(minutes=1)))
    question, history = random.choice(topic.asks), random.choice(topic.history)
    return Change(tuple(messages), tuple(said), tuple(of_others), values, question, history)


def changes(topics: Sequence[Topic], count: int, *, seed: int = 0) -> Iterator[Change]:
    """Yield changes of topics by turns, at various lengths; every third conversation is without Ben."""
    random = Random(seed)
    for number in range(count):
        length = random.choice((12, 40, 90, 160))
        yield conversation(topics[number % len(topics)], random, length=length, others=number % 3 != 2)
