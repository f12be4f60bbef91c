"""What a turn takes on several stores, a question after another worker has forgotten something, and one to a user."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from latency_clock import Figures, Span, p50, summary, timed
from latency_talk import turns
from stores_load import Sessions, fill

from shared_core import InfiniteMemory, Message, Store
from shared_core.testing import CountedStore

__all__ = ["Turn", "after_forgetting", "medians", "more", "questions", "take_turns", "user_wide"]

USER, ONE, MANY, ASKS = "wide", "one", "wide", "asks"
WARMING = 12
"""Turns after which a server has prepared each statement, and has chosen a plan for it."""

ROUNDS = 9
"""How often each kind of question to a user is asked."""


def questions(count: int, seed: int = 11) -> list[str]:
    """Return different questions."""
    return [asked.content for asked, _ in turns(count, seed)]


def medians(spans: Sequence[Span]) -> Span:
    """Return the median of both times."""
    return Span(p50([span.clock for span in spans]), p50([span.processor for span in spans]))


def more(turns: Sequence[float], than: Sequence[float]) -> float:
    """Return how much more some turns took than the same ones elsewhere, the median."""
    return median(one - other for one, other in zip(turns, than, strict=True))


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn took.

    Attributes:
        span: of this process.
        server: milliseconds of the processor in the server.
        trips: how often the store was called, each time a round trip.
    """

    span: Span
    server: float
    trips: int

    def distant(self, trip: float) -> float:
        """Return its milliseconds if nothing else ran: the processor's time here and there, and the round trips.

        Args:
            trip: milliseconds of a round trip.
        """
        return self.span.processor + self.server + trip * self.trips


def take_turns(
    stores: Mapping[str, Store], messages: int, count: int, backends: Callable[[], float]
) -> dict[str, list[Turn]]:
    """Return what each turn takes on each store: the question is added, the prompt is built, the reply is added.

    The stores take each turn one after the other, and another one begins each time.

    Args:
        stores: by name.
        messages: in the session before.
        count: of turns; `WARMING` more are taken first, and left out.
        backends: returns the milliseconds that the server has taken so far; called once the stores are connected.
    """
    session = Sessions("turns", 1, messages)
    fill(list(stores.values()), session, indexed=True)
    found: dict[str, list[Turn]] = {name: [] for name in stores}
    user, name = session.key(0)
    counted = {on: CountedStore(store) for on, store in stores.items()}
    memories = {on: InfiniteMemory(store, session_id=name, user_id=user) for on, store in counted.items()}
    for memory in memories.values():
        memory.context("What did we say first?")
    for number, (asked, replied) in enumerate(turns(WARMING + count)):
        order = list(memories)
        for on in order[number % len(order) :] + order[: number % len(order)]:
            counted[on].reset()
            worked = backends()
            span = timed(partial(_turn, memories[on], asked, replied))
            if number >= WARMING:
                found[on].append(Turn(span, backends() - worked, len(counted[on].trips)))
    for memory in memories.values():
        memory.close()
    return found


def _turn(memory: InfiniteMemory, asked: Message, replied: Message) -> None:
    memory.add(asked)
    memory.context()
    memory.add(replied)


def after_forgetting(first: Store, other: Store, session: Sessions, rounds: int, offset: int) -> dict[str, list[Span]]:
    """Return how long a question takes usually, and how long the first one after another worker forgot a message.

    Args:
        first: the store of the worker that is asked.
        other: that of the worker that forgets.
        session: what is asked.
        rounds: how often it is done.
        offset: another one for each call, so that each forgets other messages.
    """
    user, name = session.key(0)
    found: dict[str, list[Span]] = {"usual": [], "first": [], "forget": []}
    asked = iter(questions(4 * rounds + 2))
    with (
        InfiniteMemory(first, session_id=name, user_id=user) as memory,
        InfiniteMemory(other, session_id=name, user_id=user) as worker,
    ):
        memory.context(next(asked))
        memory.index()  # what an opening makes in the background is made
        worker.context(next(asked))
        worker.index()
        for number in range(rounds):
            found["usual"] += [timed(partial(memory.context, next(asked))) for _ in range(3)]
            gone = f"m{session.messages // 2 + offset + 11 * number}"
            found["forget"].append(timed(partial(worker.forget, ids=[gone])))
            found["first"].append(timed(partial(memory.context, next(asked))))
    return found


def user_wide(store: Store, sessions: int, messages: int) -> Figures:
    """Return how long questions take that search all sessions of a user, as multiples of those to one session.

    Args:
        store: where they are.
        sessions: of the user.
        messages: in each; the single session has as many as all of these together.
    """
    fill([store], Sessions(ONE, 1, sessions * messages), indexed=True)
    fill([store], Sessions(MANY, sessions, messages))
    one = partial(InfiniteMemory, store, session_id=f"{ONE}0", user_id=f"{ONE}-user0")
    wide = partial(InfiniteMemory, store, session_id=ASKS, user_id=f"{MANY}-user0", scope="user")
    figures: Figures = {}
    with one() as single, wide() as every:
        every.add(Message.user("Hello."))
        pair = (single, every)
        _note(figures, "the first question", [[timed(partial(memory.context, "what about it?"))] for memory in pair])
        elsewhere = partial(InfiniteMemory, store, user_id=f"{MANY}-user0")
        befores: dict[str, Callable[[InfiniteMemory, int], None]] = {
            "a question": lambda memory, number: None,
            "a question after a message": lambda memory, number: _say(memory),
            "a question after a message elsewhere": lambda memory, number: _say(
                memory if memory is single else elsewhere(session_id=f"{MANY}{number}")
            ),
        }
        for seed, (label, before) in enumerate(befores.items(), 20):
            _note(figures, label, [_asked(memory, before, seed) for memory in pair])
    return figures


def _say(memory: InfiniteMemory) -> None:
    memory.add(Message.user("And now?"))


def _asked(memory: InfiniteMemory, before: Callable[[InfiniteMemory, int], None], seed: int) -> list[Span]:
    spans = []
    for number, question in enumerate(questions(ROUNDS, seed)):
        before(memory, number)
        spans.append(timed(partial(memory.context, question)))
    return spans


def _note(figures: Figures, label: str, both: Sequence[Sequence[Span]]) -> None:
    for of, spans in zip(("one session", "user"), both, strict=True):
        figures |= summary(f"{label}, {of},", spans)
    single, wide = (medians(spans) for spans in both)
    figures[f"{label}, times one session"] = wide.clock / single.clock
    figures[f"{label}, times one session, of processor"] = wide.processor / max(single.processor, 1e-9)
